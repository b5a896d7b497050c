#!/usr/bin/env bash
# Runs all tests, with the Python that is named: those with windows one after the other, as on a
# display one window has the keyboard; beside them the rest, in as many processes as there are
# cores. What one file's tests need is compiled once, in one process.
set -u
python=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$python" -m pytest tests/widgets >"$log" 2>&1 &
"$python" -m pytest --ignore=tests/widgets --numprocesses auto --maxprocesses 4 --dist loadfile
rest=$?
echo "The tests with windows:"
wait $!
windows=$?
cat "$log"
exit $((rest || windows))
