"""Frames for comparisons of detection between backends, and the comparison."""

from __future__ import annotations

import numpy as np
from scenes import movie_of, on_grid, scattered
from scipy import ndimage

#: Frames within one unit of work of a kernel's warps, and larger.
SHAPES = [(1, 1), (1, 9), (40, 1), (2, 2), (5, 7), (3, 300), (33, 47), (96, 64)]


def assert_alike(ours, theirs):
    """Compare candidates, with tolerance for another order of summation."""
    for column in range(3):
        np.testing.assert_array_equal(ours[column], theirs[column])
        assert ours[column].dtype == theirs[column].dtype
    assert ours.score.dtype == ours.height.dtype == np.float32
    for name in ("score", "height"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)
        if len(other) > 20:
            assert np.median(np.abs(mine / other - 1)) < 1e-5


def textured(rng, shape, length, extra=0.0):
    """Return counts of light with a texture of a length in pixels, a tenth of it."""
    field = ndimage.gaussian_filter(rng.normal(size=shape), length)
    light = np.maximum(320 * (1 + 0.1 * field / field.std()), 5)
    return (rng.poisson(light + extra) + 100).astype(np.uint16)


def beside_bad_pixels(bad, dtype):
    """Return frames, one with a bad pixel, and one with many."""
    rng = np.random.default_rng(56)
    frames = movie_of(rng, on_grid(rng, (64, 64), 16), 3, (64, 64)).astype(dtype)
    frames[0, 30, 40] = bad
    frames[1, 5:30, :20] = bad
    return frames


def hot_frames(dtype):
    """Return frames with hot pixels, also in corners, and variances of their pixels."""
    rng = np.random.default_rng(63)
    shape = (128, 140)
    frames = movie_of(rng, scattered(rng, shape, 60), 2, shape)
    hot = rng.random(frames.shape) < 2e-3
    frames = (frames + hot * rng.integers(30, 2000, frames.shape)).astype(dtype)
    frames[:, 0, 5], frames[:, 127, 139] = 5000, 4000
    if frames.dtype.kind == "f":
        frames[0, 50, 50:60] = np.nan
    return frames, np.where(rng.random(shape) < 1e-2, 500, 2).astype(np.float32)


def saturated(dtype):
    """Return frames with flat-topped spots."""
    rng = np.random.default_rng(58)
    frames = movie_of(rng, on_grid(rng, (80, 80), 20), 4, (80, 80), photons=20000, sigma=1.4)
    frames = np.minimum(frames, [[[250]], [[10000]], [[200]], [[251]]]).clip(0, 255).astype(dtype)
    frames[1] = movie_of(rng, on_grid(rng, (80, 80), 20), 1, (80, 80), photons=200)
    if frames.dtype.kind == "f":
        frames[2, 3, 3] = np.nan
    return frames
