"""Noise that pixels share along one axis: of rows, of columns, and what filters leave."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from scenes import light, scattered
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.pixel_values import has_copied_lines

SHAPE, CAMERA = (128, 128), {"gain": 1.0, "offset": 100.0, "variance": 1.0}


def taken(seed, lines=None):
    """Return frames of spots, with noise of 2 counts that lines of these lengths share."""
    rng = np.random.default_rng(seed)
    clean = np.stack([light(scattered(rng, SHAPE, 25), 1500, 1.3, SHAPE) for _ in range(6)]) + 20
    counts = rng.poisson(clean) + 100 + rng.normal(0, 1, clean.shape)
    return counts if lines is None else counts + rng.normal(0, 2, lines)


def said_of(frames, **options):
    """Return the warnings that whole counts give."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        localize(np.rint(frames).astype(np.uint16), sigma=1.3, **options)
    return " ".join(str(one.message) for one in said)


@pytest.mark.parametrize("known", [{}, {"gain": 1.0, "offset": 100.0}, CAMERA])
def test_noise_of_lines_is_named(known):
    frames = taken(1, (6, 128, 1))
    for own, line in ((frames, "row"), (frames.swapaxes(1, 2), "column")):
        said = re.search(
            rf"a {line} share: its standard deviation is (\S+) times", said_of(own, **known)
        )
        assert said
        assert 0.35 < float(said[1]) < 0.53  # 2 / √21
    assert not said_of(taken(1), **known)
    # What the warning says to do.
    usual = np.median(frames, axis=2, keepdims=True) - np.median(frames)
    assert not said_of(frames - usual, **known)


@pytest.mark.parametrize("deviation", [4, 6])
@pytest.mark.parametrize("frames", [1, 6])
def test_strong_noise_of_lines_is_no_filter(frames, deviation):
    for seed in range(4):
        rng = np.random.default_rng([seed, deviation])
        rows = taken(seed)[:frames] + rng.normal(0, deviation, (frames, 128, 1))
        for own, line in ((rows, "row"), (rows.swapaxes(1, 2), "column")):
            said = re.search(
                rf"a {line} share: its standard deviation is (\S+) times", said_of(own)
            )
            assert said
            assert 0.75 < float(said[1]) / (deviation / 21**0.5) < 1.33


def deinterlaced(frames):
    made_up = frames.copy()
    made_up[:, 1:-1:2] = (frames[:, :-2:2] + frames[:, 2::2]) / 2
    return made_up


ONE_SIDED = {
    "stretched by splines": lambda frames: ndimage.zoom(frames, (1, 1, 2), order=3),
    "stretched": lambda frames: ndimage.zoom(frames, (1, 1, 2), order=1),
    "half a pixel aside": lambda frames: ndimage.shift(frames, (0, 0, 0.5), order=1),
    "blurred": lambda frames: ndimage.gaussian_filter1d(frames, 0.7, axis=2),
    "made-up rows": deinterlaced,
}


@pytest.mark.parametrize("change", ONE_SIDED.values(), ids=ONE_SIDED)
def test_what_was_filtered_along_one_axis_is_named(change):
    frames = change(taken(2))
    assert re.search("probably was (filtered|denoised)", said_of(frames))
    assert re.search("probably was (filtered|denoised)", said_of(frames.swapaxes(1, 2)))


@pytest.mark.parametrize("known", [{}, CAMERA], ids=["unknown", "known"])
@pytest.mark.parametrize("times", [2, 3])
def test_copied_lines_are_named(times, known):
    for seed in range(4):
        frames = np.repeat(taken(seed)[:, ::times], times, axis=1)[:, 1:]
        assert "has copied rows or columns" in said_of(frames, **known)
        assert "has copied rows or columns" in said_of(frames.swapaxes(1, 2), **known)


def test_sparse_photons_and_edges_are_no_copies():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        for light_of_a_pixel in (0.003, 0.02, 0.1, 1.0):
            counts = rng.poisson(light_of_a_pixel, (64, 64))
            assert not has_copied_lines(counts)
            assert not has_copied_lines(counts[:16, :16])
    halves = np.repeat([[0, 50]], 32, axis=1) * np.ones((64, 1))
    assert not has_copied_lines(halves)


def test_errors_follow_a_blur_along_both_without_a_word():
    assert not said_of(ndimage.gaussian_filter(taken(3), (0, 0.7, 0.7)))


def test_one_pixel_unlike_the_others_makes_no_copies() -> None:
    for side in (9, 10, 17, 24):
        for place in np.ndindex(3, 3):
            frame = np.ones((side, side), np.uint8)
            frame[place] = 0
            assert not has_copied_lines(frame)
