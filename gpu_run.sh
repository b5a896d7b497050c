export SPOTFIT_REAL_FILES=$PWD/.real
for n in kernels napari.yaml; do ln -sfn ../../$n src/napari_spotfit/$n; done
export PYTHONPATH=$PWD/src
timeout 240 python3 -m pytest -q -m gpu -n 12 -p no:benchmark -p no:cacheprovider -o filterwarnings=error tests/engine tests/estimation tests/localization tests/images tests/analysis tests/results tests/test_on_gpu.py tests/test_models_on_gpu.py > $OUT/tests.txt 2>&1
grep -E "^(FAILED|ERROR)|passed|failed" $OUT/tests.txt | tail -30; grep -E "^E  " $OUT/tests.txt | sort | uniq -c | sort -rn | head
timeout 200 python3 benchmarks/gpu_against.py --only calls localize movies detection 2>&1 | tail -60
