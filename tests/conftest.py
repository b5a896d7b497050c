"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os

import pytest
import real_files

from napari_spotfit.engine.cpu.library import INSTRUCTION_SET, load

#: Programs rather than tests.
collect_ignore = ["platforms"]

# napari's settings stay in memory: those on disk are the user's, and shared by processes. Set
# before napari is imported, which the conftest of a folder that is named to pytest may do.
os.environ["NAPARI_CONFIG"] = ""


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while tests are collected: a seventh of the time.

    What is collected stays, and later collections look at it no more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item):
    """Mark tests that need real files, and skip them before their fixtures if one is missing.

    A skip in a fixture would come too late: napari's viewer does not close after one.
    """
    fixtures = real_files.REAL_FILES.keys() & getattr(item, "fixturenames", ())
    if fixtures:
        item.add_marker(pytest.mark.real_files)
    missing = [name for fixture in sorted(fixtures) for name in real_files.missing(fixture)]
    if missing:
        item.add_marker(pytest.mark.skip(reason=f"needs {missing[0]}"))


@pytest.fixture(scope="session")
def gpu():
    """Return the number of GPUs; skip without one."""
    cupy = pytest.importorskip("cupy")
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(params=load().instruction_sets)
def instruction_set(request, monkeypatch):
    """Run the test with every instruction set of this machine."""
    monkeypatch.setenv(INSTRUCTION_SET, request.param)
    return request.param


@pytest.fixture(params=[*load().instruction_sets, pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request, monkeypatch):
    """Run the test with each backend, the CPU with every instruction set of this machine."""
    if request.param == "cuda":
        request.getfixturevalue("gpu")
        return "cuda"
    monkeypatch.setenv(INSTRUCTION_SET, request.param)
    return "cpu"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def machine(request):
    """Run the test with each backend, the CPU with the best instruction set of this machine."""
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return request.param


@pytest.fixture
def dax():
    """Ten frames of simulated STORM, big-endian, and their true emitters."""
    return real_files.read_dax()


@pytest.fixture
def paint():
    """A DNA-PAINT movie, and another fitter's localisations in it."""
    return real_files.read_paint()


@pytest.fixture
def hybiss():
    """Real HybISS spots."""
    return real_files.read_tiff("hybiss")


@pytest.fixture
def stuck_particles():
    """Five frames of real particles."""
    return real_files.read_tiff("stuck_particles")
