"""If the GPU fails during a run, the CPU continues, and nothing is lost.

The GPU that fails is the CPU in disguise (see failing_gpu), and raises what CuPy raises.
"""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from failing_gpu import FailingGpu, errors

from napari_spotfit import Settings, simulate_movie
from napari_spotfit.engine.backend import BackendFallbackWarning, Block, Positions
from napari_spotfit.engine.fallback import Fallback
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.select import select_backend
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.settings.noise_model import NoiseModel

cupy = pytest.importorskip("cupy")

SETTINGS = Settings(
    backend="cpu", threads=2, sigma=1.3, roi_size=9, noise=NoiseModel(1.0, 0.0, 1.0)
)
ROI = (9, 9)
ERRORS = errors()


def cpu():
    return select_backend(SETTINGS)


@pytest.fixture(scope="module")
def blocks():
    movie, _ = simulate_movie(12, shape=(48, 48), spots_per_frame=6, seed=3)
    return [np.ascontiguousarray(movie[first : first + 2]) for first in range(0, 12, 2)]


def job_of(frames):
    return FitJob.of_spots(SETTINGS, ROI, frames.dtype)


def localize(backend, frames):
    """Detect and fit one block, like a run."""
    block = Block(frames, frames)
    found = backend.detect(block, SETTINGS)
    positions = Positions(np.column_stack([found.y, found.x]).astype(float), found.frame)
    return backend.fit(job_of(frames), block, positions)


def fit_cut_outs(backend, spots, planes=None):
    return backend.fit(job_of(spots), Block(spots, spots, planes))


def assert_same(results, blocks):
    for columns, frames in zip(results, blocks, strict=True):
        expected = localize(cpu(), frames)
        assert len(expected["y"]) > 0
        assert list(columns) == list(expected)
        for name in expected:
            np.testing.assert_array_equal(columns[name], expected[name])


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("first", [0, 1, 2, 7, 11])
def test_nothing_is_lost(blocks, error, first):
    backend = Fallback(FailingGpu(error, first), cpu)
    with pytest.warns(BackendFallbackWarning) as warned:
        results = [localize(backend, frames) for frames in blocks]
    assert_same(results, blocks)
    assert len(warned) == 1
    assert backend.ran_on() == "NVIDIA Test, CPU (2 threads)"


def test_the_warning_says_what_and_what_next(blocks):
    backend = Fallback(FailingGpu(ERRORS["no kernel"]), cpu)
    with pytest.warns(BackendFallbackWarning) as warned:
        backend.detect(Block(blocks[0], blocks[0]), SETTINGS)
    assert str(warned[0].message) == (
        "NVIDIA Test failed (CompileException: fit.cu(3): error: what?). CPU (2 threads) does "
        "the rest of this run, and its result is complete."
    )


@pytest.mark.parametrize("task", ["detect", "fit"])
def test_after_an_error_the_gpu_is_left_alone(blocks, task):
    failing = FailingGpu(ERRORS["lost"], task=task)
    backend = Fallback(failing, cpu)
    with pytest.warns(BackendFallbackWarning):
        results = [localize(backend, frames) for frames in blocks]
    assert_same(results, blocks)
    assert next(failing.calls) == 1


def test_several_workers(blocks):
    """Three at once meet the same error; one warning, and all blocks come out."""
    together = threading.Barrier(3)
    failing = FailingGpu(ERRORS["memory"], task="detect")

    def detect(*arguments):
        together.wait(60)
        raise ERRORS["memory"]

    failing.detect = detect
    backend = Fallback(failing, cpu)
    with (
        pytest.warns(BackendFallbackWarning) as warned,
        ThreadPoolExecutor(3) as pool,
    ):
        results = list(pool.map(lambda frames: localize(backend, frames), blocks[:3]))
    assert_same(results, blocks[:3])
    assert len(warned) == 1


def test_without_an_error_there_is_no_warning_and_no_cpu(blocks):
    made = []
    backend = Fallback(FailingGpu(ERRORS["lost"], first=99), lambda: made.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same([localize(backend, frames) for frames in blocks], blocks)
    assert not made
    assert backend.ran_on() == "NVIDIA Test"
    assert backend.load == (2, 1, 3)


@pytest.mark.parametrize("error", [ValueError("mask"), MemoryError(), RuntimeError("else")])
def test_other_errors_are_raised(blocks, error):
    backend = Fallback(FailingGpu(error), cpu)
    with pytest.raises(type(error)):
        backend.detect(Block(blocks[0], blocks[0]), SETTINGS)


def test_cut_outs(blocks):
    spots = np.ascontiguousarray(blocks[0][:, :9, :9])
    backend = Fallback(FailingGpu(ERRORS["lost"]), cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = fit_cut_outs(backend, spots)
    expected = fit_cut_outs(cpu(), spots)
    np.testing.assert_array_equal(columns["x"], expected["x"])


def test_what_is_known_of_the_pixels_goes_along(blocks):
    spots = np.ascontiguousarray(blocks[0][:, :9, :9])
    weights = np.ones((1, 9, 9), np.float32)
    weights[0, 3, 4] = 0
    backend = Fallback(FailingGpu(ERRORS["lost"]), cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = fit_cut_outs(backend, spots, Planes(weights))
    expected = fit_cut_outs(cpu(), spots, Planes(weights))
    plain = fit_cut_outs(cpu(), spots)
    np.testing.assert_array_equal(columns["chi_square"], expected["chi_square"])
    assert np.all(columns["chi_square"] < plain["chi_square"])


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_prepared_fits_go_on_with_the_cpu(blocks, error):
    spots = [np.ascontiguousarray(frames[:, :9, :9]) for frames in blocks]
    failing = FailingGpu(error, first=2, task="prepared")
    backend = Fallback(failing, cpu)
    fitter = backend.fitter(job_of(spots[0]))
    fits = (fitter.fit(Block(some, some)) for some in spots)
    with pytest.warns(BackendFallbackWarning) as warned:
        results = [{name: one.copy() for name, one in columns.items()} for columns in fits]
    for some, columns in zip(spots, results, strict=True):
        expected = fit_cut_outs(cpu(), some)
        assert list(columns) == list(expected)
        for name in expected:
            np.testing.assert_array_equal(columns[name], expected[name])
    assert len(warned) == 1
    assert next(failing.calls) == 3
    assert backend.ran_on() == "NVIDIA Test, CPU (2 threads)"


@pytest.mark.gpu
def test_planes_on_the_gpu_come_back(gpu, blocks):
    spots = np.ascontiguousarray(blocks[0][:, :9, :9])
    planes = Planes(cupy.ones((1, 9, 9), np.float32))
    backend = Fallback(FailingGpu(ERRORS["lost"]), cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = fit_cut_outs(backend, spots, planes)
    assert np.isfinite(columns["x"]).all()


@pytest.mark.gpu
def test_arrays_on_the_gpu_come_back(gpu, blocks):
    """Frames that the caller has on the GPU are downloaded for the CPU."""
    backend = Fallback(FailingGpu(ERRORS["memory"]), cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = localize(backend, cupy.asarray(blocks[0]))
    np.testing.assert_array_equal(columns["x"], localize(cpu(), blocks[0])["x"])


def test_results_that_were_to_stay_on_the_gpu_are_not_made_elsewhere(blocks):
    backend = Fallback(FailingGpu(ERRORS["lost"], task="fit"), cpu)
    with pytest.raises(type(ERRORS["lost"])):
        backend.fit(job_of(blocks[0]), Block(blocks[0], blocks[0]), on_device=True)
