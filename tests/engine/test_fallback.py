"""When the GPU fails in the middle, the CPU does the rest, and nothing is lost.

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
from napari_spotfit.engine.errors import BackendFallbackWarning
from napari_spotfit.engine.fallback import with_fallback
from napari_spotfit.engine.select import select_backend
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.settings.noise_model import NoiseModel

cupy = pytest.importorskip("cupy")

SETTINGS = Settings(backend="cpu", threads=2, sigma=1.3, noise=NoiseModel(1.0, 0.0, 1.0))
ROI = (9, 9)
ERRORS = errors()


def cpu():
    return select_backend(SETTINGS)


@pytest.fixture(scope="module")
def blocks():
    movie, _ = simulate_movie(12, shape=(48, 48), spots_per_frame=6, seed=3)
    return [np.ascontiguousarray(movie[first : first + 2]) for first in range(0, 12, 2)]


def localize(backend, frames):
    """Upload, detect and fit one block, as a run does."""
    there = backend.upload(frames)
    found = backend.detect(there, SETTINGS, None)
    corners = np.column_stack([found.frame, found.y, found.x]).astype(np.int64)
    corners[:, 1:] = np.clip(corners[:, 1:] - 4, 0, 48 - 9)
    return corners, backend.fit_rois(there, corners, ROI, SETTINGS)


def assert_same(results, blocks):
    for (corners, columns), frames in zip(results, blocks, strict=True):
        expected_corners, expected = localize(cpu(), frames)
        assert len(expected_corners) > 0
        np.testing.assert_array_equal(corners, expected_corners)
        assert list(columns) == list(expected)
        for name in expected:
            np.testing.assert_array_equal(columns[name], expected[name])


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("first", [0, 1, 2, 7, 17])
def test_nothing_is_lost(blocks, error, first):
    backend = with_fallback(FailingGpu(error, first).backend, cpu)
    with pytest.warns(BackendFallbackWarning) as warned:
        results = [localize(backend, frames) for frames in blocks]
    assert_same(results, blocks)
    assert len(warned) == 1
    assert backend.ran_on() == "NVIDIA Test, CPU (2 threads)"


def test_the_warning_says_what_and_what_next(blocks):
    backend = with_fallback(FailingGpu(ERRORS["no kernel"]).backend, cpu)
    with pytest.warns(BackendFallbackWarning) as warned:
        backend.upload(blocks[0])
    assert str(warned[0].message) == (
        "NVIDIA Test failed (CompileException: fit.cu(3): error: what?). CPU (2 threads) does "
        "the rest of this run, and its result is complete."
    )


@pytest.mark.parametrize("task", ["upload", "detect", "fit_rois"])
def test_after_an_error_the_gpu_is_left_alone(blocks, task):
    failing = FailingGpu(ERRORS["lost"], task=task)
    backend = with_fallback(failing.backend, cpu)
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

    backend = with_fallback(failing.backend._replace(detect=detect), cpu)
    with (
        pytest.warns(BackendFallbackWarning) as warned,
        ThreadPoolExecutor(3) as pool,
    ):
        results = list(pool.map(lambda frames: localize(backend, frames), blocks[:3]))
    assert_same(results, blocks[:3])
    assert len(warned) == 1


def test_without_an_error_there_is_no_warning_and_no_cpu(blocks):
    made = []
    backend = with_fallback(FailingGpu(ERRORS["lost"], first=99).backend, lambda: made.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same([localize(backend, frames) for frames in blocks], blocks)
    assert not made
    assert backend.ran_on() == "NVIDIA Test"
    assert (backend.frames_at_once, backend.workers) == (2, 3)


@pytest.mark.parametrize("error", [ValueError("mask"), MemoryError(), RuntimeError("else")])
def test_other_errors_are_raised(blocks, error):
    backend = with_fallback(FailingGpu(error, first=1).backend, cpu)
    there = backend.upload(blocks[0])
    with pytest.raises(type(error)):
        backend.detect(there, SETTINGS)


def test_frames_that_were_not_uploaded(blocks):
    """Cut-outs go to the fit as they are."""
    spots = np.ascontiguousarray(blocks[0][:, :9, :9])
    backend = with_fallback(FailingGpu(ERRORS["lost"]).backend, cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = backend.fit_rois(spots, None, ROI, SETTINGS)
    expected = cpu().fit_rois(spots, None, ROI, SETTINGS)
    np.testing.assert_array_equal(columns["x"], expected["x"])


def test_what_is_known_of_the_pixels_goes_along(blocks):
    spots = np.ascontiguousarray(blocks[0][:, :9, :9])
    weights = np.ones((1, 9, 9), np.float32)
    weights[0, 3, 4] = 0
    backend = with_fallback(FailingGpu(ERRORS["lost"]).backend, cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = backend.fit_rois(spots, None, ROI, SETTINGS, planes=Planes(weights))
    expected = cpu().fit_rois(spots, None, ROI, SETTINGS, planes=Planes(weights))
    plain = cpu().fit_rois(spots, None, ROI, SETTINGS)
    np.testing.assert_array_equal(columns["chi_square"], expected["chi_square"])
    assert np.all(columns["chi_square"] < plain["chi_square"])


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_prepared_fits_go_on_with_the_cpu(blocks, error):
    spots = [np.ascontiguousarray(frames[:, :9, :9]) for frames in blocks]
    failing = FailingGpu(error, first=2, task="prepared")
    backend = with_fallback(failing.backend, cpu)
    fit = backend.prepare_fits(SETTINGS, ROI, spots[0].dtype)
    with pytest.warns(BackendFallbackWarning) as warned:
        results = [{name: one.copy() for name, one in fit(some).items()} for some in spots]
    for some, columns in zip(spots, results, strict=True):
        expected = cpu().fit_rois(some, None, ROI, SETTINGS)
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
    backend = with_fallback(FailingGpu(ERRORS["lost"]).backend, cpu)
    with pytest.warns(BackendFallbackWarning):
        columns = backend.fit_rois(spots, None, ROI, SETTINGS, planes=planes)
    assert np.isfinite(columns["x"]).all()


@pytest.mark.gpu
def test_arrays_on_the_gpu_come_back(gpu, blocks):
    """Frames and corners that the caller has on the GPU are downloaded for the CPU."""
    frames = cupy.asarray(blocks[0])
    backend = with_fallback(FailingGpu(ERRORS["memory"], task="upload").backend, cpu)
    with pytest.warns(BackendFallbackWarning):
        there = backend.upload(frames)
    corners, expected = localize(cpu(), blocks[0])
    columns = backend.fit_rois(there, cupy.asarray(corners), ROI, SETTINGS)
    np.testing.assert_array_equal(columns["x"], expected["x"])


def test_results_that_were_to_stay_on_the_gpu_are_not_made_elsewhere(blocks):
    backend = with_fallback(FailingGpu(ERRORS["lost"], task="fit_rois").backend, cpu)
    with pytest.raises(type(ERRORS["lost"])):
        backend.fit_rois(blocks[0], None, (9, 9), Settings(), None, on_device=True)
