"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from napari_spotfit.engine.cpu.library import INSTRUCTION_SET, load

#: The folder of real files that are not part of the project; SPOTFIT_REAL_FILES names another.
FOLDER = Path(os.environ.get("SPOTFIT_REAL_FILES") or Path(__file__).parents[2] / "shared" / "data")

#: Programs, no tests.
collect_ignore = ["platforms"]

#: What the fixtures that read real files need.
REAL_FILES = {
    "dax": ("storm-analysis/test.dax", "storm-analysis/test_truth.csv"),
    "paint": ("picasso/testdata_1000frames.raw", "picasso/testdata_locs.hdf5"),
    "hybiss": ("spotiflow/img_hybiss_2d.tif",),
    "stuck_particles": ("trackpy/stuck.tif",),
}


def pytest_configure():
    """Keep napari's settings in memory: those on disk are the user's, and shared by processes."""
    os.environ["NAPARI_CONFIG"] = ""


def pytest_itemcollected(item):
    """Mark a test that needs real files, and skip it before any fixture of it where one is missing.

    A skip in a fixture would come too late: napari's viewer does not close after one.
    """
    fixtures = REAL_FILES.keys() & getattr(item, "fixturenames", ())
    names = [name for fixture in sorted(fixtures) for name in REAL_FILES[fixture]]
    if names:
        item.add_marker(pytest.mark.real_files)
    missing = [name for name in names if not (FOLDER / name).exists()]
    if missing:
        item.add_marker(pytest.mark.skip(reason=f"needs the file {missing[0]}"))


@pytest.fixture(scope="session")
def gpu():
    """Skip where CUDA shows no GPU; the number of GPUs where it does."""
    cupy = pytest.importorskip("cupy")
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(params=load().instruction_sets)
def instruction_set(request, monkeypatch):
    """Every instruction set of this machine, in use while the test runs."""
    monkeypatch.setenv(INSTRUCTION_SET, request.param)
    return request.param


@pytest.fixture(params=[*load().instruction_sets, pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request, monkeypatch):
    """Either backend by its name, the CPU's with every instruction set of this machine."""
    if request.param == "cuda":
        request.getfixturevalue("gpu")
        return "cuda"
    monkeypatch.setenv(INSTRUCTION_SET, request.param)
    return "cpu"


@pytest.fixture
def dax():
    """Ten frames of simulated STORM, big-endian, and their true emitters."""
    import pandas

    movie, truth = (FOLDER / name for name in REAL_FILES["dax"])
    return np.fromfile(movie, ">u2").reshape(10, 256, 256), pandas.read_csv(truth)


@pytest.fixture
def paint():
    """A DNA-PAINT movie, and another fitter's localisations in it."""
    import h5py

    movie, localisations = (FOLDER / name for name in REAL_FILES["paint"])
    with h5py.File(localisations) as file:
        rows = file["locs"][:]
    return np.fromfile(movie, "<u2").reshape(1000, 32, 32), rows


@pytest.fixture
def hybiss():
    """Real HybISS spots."""
    import tifffile

    return tifffile.imread(FOLDER / REAL_FILES["hybiss"][0])


@pytest.fixture
def stuck_particles():
    """Five frames of real particles."""
    import tifffile

    return tifffile.imread(FOLDER / REAL_FILES["stuck_particles"][0])
