export SPOTFIT_REAL_FILES=$PWD/.real
for n in kernels napari.yaml; do ln -sfn ../../$n src/napari_spotfit/$n; done
cat > /tmp/d.py <<'P'
import sys, numpy as np
sys.path.insert(0,'benchmarks')
import cupy
from napari_spotfit import fit_spots, simulate_spots
from common import paper_spots, MLE
spots,_=paper_spots(7,200000)
n=10204081
s=cupy.asarray(np.resize(spots,(n,7,7)).astype(np.float32))
out={}
for k in range(2):
    f=fit_spots(s,errors=True,on_device=True,**MLE)
    for c in sorted(f.columns): out[f"{k}{c}"]=cupy.asnumpy(f.columns[c][:1000000])
np.savez(sys.argv[1],**out)
P
PYTHONPATH=build/baseline/src python3 /tmp/d.py /tmp/a.npz; PYTHONPATH=src python3 /tmp/d.py /tmp/b.npz
python3 - <<'P'
import numpy as np
a,b=np.load('/tmp/a.npz'),np.load('/tmp/b.npz')
for k in a.files:
    d=~((a[k]==b[k])|((a[k]!=a[k])&(b[k]!=b[k])))
    if d.any(): i=d.nonzero()[0][:4]; print(k,d.sum(),i,a[k][i],b[k][i])
for x,n in ((a,'base'),(b,'new')):
    for k in x.files:
        if k[0]=='0':
            d=~((x[k]==x['1'+k[1:]])|((x[k]!=x[k])&(x['1'+k[1:]]!=x['1'+k[1:]])))
            if d.any(): print('itself',n,k,d.sum())
P
export PYTHONPATH=$PWD/src
timeout 400 python3 -m pytest -q -m gpu -n 12 -p no:benchmark -p no:cacheprovider -o filterwarnings=error tests/engine tests/estimation tests/localization tests/images tests/analysis tests/results tests/test_on_gpu.py tests/test_models_on_gpu.py > $OUT/tests.txt 2>&1
tail -n 30 $OUT/tests.txt
