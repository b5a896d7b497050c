#!/usr/bin/env bash
# Runs all tests but those of CUDA code with the given Python, in one process per core; idle
# processes take over tests of others. Random examples are the same each time, so that failures are
# repeatable; "make test-random" tries new ones.
set -u
python=$1
# Otherwise each process would compile everything that it imports.
unset PYTHONDONTWRITEBYTECODE
# With a process per core, threads of linear algebra only wait for each other, at full load.
export OPENBLAS_NUM_THREADS=1

side_by_side() {
    "$python" -m pytest --hypothesis-profile ci \
        --numprocesses logical --maxprocesses 8 --dist worksteal --durations 20 --durations-min 4 --ignore=tests/engine/cuda "$@"
}

# Each process has its own virtual display.
if [[ $(uname -s) == Linux ]] && command -v Xvfb >/dev/null; then
    side_by_side
    exit
fi
# On a shared display, only one window has the keyboard.
side_by_side --ignore=tests/widgets
rest=$?
"$python" -m pytest --hypothesis-profile ci tests/widgets
windows=$?
exit $((rest || windows))
