#!/bin/sh
# Everything that needs an NVIDIA GPU: the tests, the fits beside an older version's, and how
# they are best laid out over threads. Runs in a checkout with nothing installed but CuPy, NumPy,
# SciPy, pandas and pytest; the library for the CPU must have been built.
#
# usage: tools/test_gpu.sh [tests] [against] [launches] [layouts] [feeding]
#
# The older version is a checkout in build/baseline (see `make baseline`). SPOTFIT_REAL_FILES names
# the folder of the real files that some tests read, where it does not stand beside the checkout.
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
for step in ${*:-tests against launches layouts}; do
    case $step in
    tests)
        "$PYTHON" -m pytest -q -p no:cacheprovider -o filterwarnings=error -m gpu \
            tests/test_on_gpu.py tests/test_models_on_gpu.py tests/engine tests/localization tests/images \
            tests/results \
            || status=1 ;;
    against)
        "$PYTHON" benchmarks/gpu_against.py build/baseline || status=1
        "$PYTHON" benchmarks/gpu_frames_against.py build/baseline || status=1 ;;
    feeding)
        "$PYTHON" benchmarks/gpu_feeding.py || status=1 ;;
    launches)
        "$PYTHON" benchmarks/gpu_launches.py || status=1 ;;
    layouts)
        "$PYTHON" benchmarks/gpu_layouts.py --kinds lse \
            --trials "single pixels,16 rounds,8 rounds of 28" || status=1
        "$PYTHON" benchmarks/gpu_layouts.py --kinds rotated,mle,wlse --sizes 9,16,32 --quick \
            --trials "3 at once,4 at once" || status=1
        "$PYTHON" benchmarks/gpu_layouts.py --kinds elliptical,integrated --sizes 9,16,32 --quick \
            || status=1 ;;
    *)
        echo "unknown step: $step" >&2
        exit 2 ;;
    esac
done
exit $status
