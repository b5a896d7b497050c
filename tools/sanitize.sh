#!/usr/bin/env bash
# Runs the GPU tests under NVIDIA's compute-sanitizer, which finds errors that results may not show:
# access beyond an array's end (memcheck), missing synchronisation of threads (racecheck,
# synccheck), and memory that is read before it is written (initcheck).
#
# usage: tools/sanitize.sh [what pytest is to run, all of it by default]; TOOLS="memcheck" chooses,
# PYTHON=… as well
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python}
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer ||
    ls "${CUDA_PATH:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null || true)}
[ -n "$sanitizer" ] || {
    echo "compute-sanitizer was not found; it comes with the CUDA toolkit" >&2
    exit 1
}

export CUPY_ACCELERATORS="" PYTHONPATH="tools${PYTHONPATH:+:$PYTHONPATH}"

# Excluded: tests with many spots, and of speed.
small='not 20000 and not several_threads and not in_pieces and not little_memory and not nobody_waits and not as_accurate'
[ $# -gt 0 ] ||
    set -- tests/engine tests/localization/test_fit_spots.py tests/test_models_on_gpu.py tests/test_on_gpu.py
failed=""
for tool in ${TOOLS:-memcheck racecheck synccheck initcheck}; do
    echo "== $tool"
    "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1 --print-limit 20 \
        "$python" -m pytest -p sanitized -p no:cacheprovider -o filterwarnings=default -q -m gpu \
        -k "$small" "$@" ||
        failed+=" $tool"
done
[ -z "$failed" ] || {
    echo "failed:$failed" >&2
    exit 1
}
