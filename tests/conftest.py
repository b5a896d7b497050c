"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

#: Real files that are not part of the project; tests that need one skip without it.
DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def gpu():
    """Skip where CUDA shows no GPU; the number of GPUs where it does."""
    cupy = pytest.importorskip("cupy")
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request):
    """Either backend by its name."""
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return request.param


def real_file(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs the file {name}")
    return path


@pytest.fixture
def dax():
    """Ten frames of simulated STORM, big-endian, and their true emitters."""
    pandas = pytest.importorskip("pandas")
    movie = np.fromfile(real_file("storm-analysis/test.dax"), ">u2").reshape(10, 256, 256)
    return movie, pandas.read_csv(real_file("storm-analysis/test_truth.csv"))


@pytest.fixture
def paint():
    """A DNA-PAINT movie, and another fitter's localisations in it."""
    h5py = pytest.importorskip("h5py")
    movie = np.fromfile(real_file("picasso/testdata_1000frames.raw"), "<u2")
    with h5py.File(real_file("picasso/testdata_locs.hdf5")) as file:
        localisations = file["locs"][:]
    return movie.reshape(1000, 32, 32), localisations


@pytest.fixture
def hybiss():
    """Real HybISS spots."""
    tifffile = pytest.importorskip("tifffile")
    return tifffile.imread(real_file("spotiflow/img_hybiss_2d.tif"))


@pytest.fixture
def stuck():
    """Five frames of real particles."""
    tifffile = pytest.importorskip("tifffile")
    return tifffile.imread(real_file("trackpy/stuck.tif"))
