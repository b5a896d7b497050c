"""Pixels that count in no fit: those of the GPU, with one wait, are the CPU's."""

from __future__ import annotations

import detection_on_host
import numpy as np
import pytest

from napari_spotfit import Settings
from napari_spotfit.engine.cuda.lost_pixels import lost_pixels_on
from napari_spotfit.engine.lost_pixels import lost_pixels
from napari_spotfit.settings.noise_model import NoiseModel

SETTINGS = Settings(sigma=1.3, noise=NoiseModel(0.0, 0.0, 400.0), threads=1)


@pytest.fixture(scope="module", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def on_gpu(request):
    """Look for lost pixels as a GPU does."""
    if request.param == "host":
        return lambda *given: lost_pixels_on(detection_on_host.HOST, *given)
    request.getfixturevalue("gpu")
    import cupy

    from napari_spotfit.engine.cuda.lost_pixels import lost_pixels as there

    return lambda frames, corners, roi_shape, settings: there(
        cupy.asarray(frames), corners, roi_shape, detection=settings
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
