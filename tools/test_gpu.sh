#!/bin/sh
# Runs everything that needs an NVIDIA GPU: the tests, the comparison of speed with an older version,
# and the duration of launches. Needs only CuPy, NumPy, SciPy, pandas and pytest installed, and the
# library for the CPU built.
#
# usage: tools/test_gpu.sh [tests] [against] [launches]
#
# The older version is a checkout in build/baseline (see `make baseline`). SPOTFIT_REAL_FILES names
# the folder of real files for some tests, if it is not next to the checkout.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
PYTHONPATH=$PWD/src
PYTHONUNBUFFERED=1
export PYTHONPATH PYTHONUNBUFFERED
for name in kernels napari.yaml; do
    ln -sfn "../../$name" "src/napari_spotfit/$name"
done
status=0
for step in ${*:-tests against launches}; do
    case $step in
    tests)
        "$PYTHON" -m pytest -q -p no:cacheprovider -o filterwarnings=error -m gpu \
            tests/test_on_gpu.py tests/test_models_on_gpu.py tests/engine tests/estimation tests/localization tests/images \
            tests/analysis tests/results \
            || status=1 ;;
    against)
        "$PYTHON" benchmarks/gpu_against.py || status=1 ;;
    launches)
        "$PYTHON" tools/time_launches.py || status=1 ;;
    *)
        echo "unknown step: $step" >&2
        exit 2 ;;
    esac
done
exit $status
