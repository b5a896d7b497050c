"""Excluded pixels on the GPU, with one wait, are those on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from excluding import excluded, excluded_on_device

from napari_spotfit import Settings
from napari_spotfit.localization.tiles import level_of, level_places
from napari_spotfit.settings.noise_model import NoiseModel

SETTINGS = Settings(sigma=1.3, noise=NoiseModel(0.0, 0.0, 400.0), threads=1)


@pytest.fixture(scope="module", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def on_gpu(request):
    """Find pixels to exclude as on a GPU."""
    if request.param == "host":
        return excluded_on_device
    request.getfixturevalue("gpu")
    import cupy

    return lambda frames, *rest, **known: excluded_on_device(cupy.asarray(frames), *rest, **known)


def assert_same(one, other):
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


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
    here = excluded(frames, corners, (9, 9), SETTINGS)
    assert (here.saturated.any(), here.hot.any()) == (saturated, hot)
    assert_same(there, here)


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
    whole = excluded(frame, corners, (9, 9), settings)
    assert whole.hot.any()
    assert_same(excluded(part, there, (9, 9), settings, level=level), whole)
    assert_same(on_gpu(part, there, (9, 9), settings, level=level), whole)
