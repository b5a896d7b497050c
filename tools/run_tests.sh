#!/usr/bin/env bash
# Runs all tests, with the Python that is named, in as many processes as there are cores; those
# that have done their share take over some of another's. Random examples are the same each time,
# so that what fails can be run again; "make test-random" looks for others.
set -u
python=$1
# Each process would else compile everything that it imports.
unset PYTHONDONTWRITEBYTECODE

side_by_side() {
    "$python" -m pytest --hypothesis-profile ci \
        --numprocesses logical --maxprocesses 8 --dist worksteal --durations 20 --durations-min 4 "$@"
}

# Each process opens its windows on a virtual display of its own.
if [[ $(uname -s) == Linux ]] && command -v Xvfb >/dev/null; then
    side_by_side
    exit
fi
# On the one display there is, one window has the keyboard.
side_by_side --ignore=tests/widgets
rest=$?
"$python" -m pytest --hypothesis-profile ci tests/widgets
windows=$?
exit $((rest || windows))
