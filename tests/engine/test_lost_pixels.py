"""Pixels that count in no fit: those of the GPU, with one wait, are the CPU's."""

from __future__ import annotations

import detection_on_host
import numpy as np
import pytest

from napari_spotfit import Settings
from napari_spotfit.engine.cuda.lost_pixels import lost_pixels_on
from napari_spotfit.engine.lost_pixels import lost_pixels
from napari_spotfit.localization.tiles import level_of, level_places
from napari_spotfit.settings.noise_model import NoiseModel

SETTINGS = Settings(sigma=1.3, noise=NoiseModel(0.0, 0.0, 400.0), threads=1)


@pytest.fixture(scope="module", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def on_gpu(request):
    """Look for lost pixels as a GPU does."""
    if request.param == "host":
        return lambda *given, level=None: lost_pixels_on(
            detection_on_host.HOST, *given, level=level
        )
    request.getfixturevalue("gpu")
    import cupy

    from napari_spotfit.engine.cuda.lost_pixels import lost_pixels as there

    return lambda frames, corners, roi_shape, settings, level=None: there(
        cupy.asarray(frames), corners, roi_shape, detection=settings, level=level
    )


def assert_same(one, other):
    assert (one is None) == (other is None)
    if one is not None:
        np.testing.assert_array_equal(one.rois, other.rois)
        np.testing.assert_array_equal(one.pixels, other.pixels)


@pytest.mark.parametrize("saturated", [False, True], ids=["", "saturated"])
@pytest.mark.parametrize("hot", [False, True], ids=["", "hot"])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_those_of_a_gpu_are_the_cpus(on_gpu, dtype, hot, saturated):
    rng = np.random.default_rng([hot, saturated])
    frames = rng.normal(500, 20, (5, 60, 70))
    if hot:
        frames[1::2, 5::9, 7::31] += 900
    if saturated:
        frames[2, 20:24, 30:34] = 4095
    frames = frames.astype(dtype)
    corners = np.column_stack(
        [np.sort(rng.integers(-1, 5, 2000)), *(rng.integers(0, n - 9, 2000) for n in (60, 70))]
    )
    there = on_gpu(frames, corners, (9, 9), SETTINGS)
    here = lost_pixels(frames, corners, (9, 9), 1, detection=SETTINGS)
    assert ((here.saturated is not None), (here.lone is not None)) == (saturated, hot)
    assert_same(there.saturated, here.saturated)
    assert_same(there.lone, here.lone)
    assert_same(there.all(), here.all())


def test_the_level_of_a_frame_counts_for_a_part_of_it(on_gpu):
    """Noise follows the light above the frame's level, not that of the part."""
    rng = np.random.default_rng(7)
    frame = np.zeros((1, 90, 70))
    frame[:, :, :] = rng.poisson(np.where(np.arange(90) < 60, 100, 3000)[:, np.newaxis], (90, 70))
    frame[0, 64::6, 5::7] += 700
    frame = frame.astype(np.uint16)
    settings = SETTINGS.changed(noise=NoiseModel(1.0, 4.0, 4.0))
    y, x = (n.ravel() for n in np.meshgrid(np.arange(62, 78, 3), np.arange(3, 57, 5)))
    corners = np.column_stack([np.zeros_like(y), y, x])
    level = level_of(frame.ravel()[level_places(frame.size)])
    part = np.ascontiguousarray(frame[:, 30:])
    there = corners - (0, 30, 0)
    whole = lost_pixels(frame, corners, (9, 9), 1, detection=settings)
    assert whole.lone is not None
    assert_same(
        lost_pixels(part, there, (9, 9), 1, detection=settings, level=level).lone, whole.lone
    )
    assert_same(on_gpu(part, there, (9, 9), settings, level=level).lone, whole.lone)
