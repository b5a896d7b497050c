"""Measure how noise grows with light in frames that have too few blocks for a line through them.

A filter that passes the highest frequencies leaves hardly any light of spots. The mean square of
what it leaves at a pixel is the sum of the variances around, each times the square of its weight,
so that it lies on a line over the light that is summed in the same way.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import NoiseModel
from .noise_line import LEAST_BLOCKS, median

Numbers = NDArray[np.float64]

#: Half of the highest frequencies are passed from here on, all and none so far beyond and below:
#: of spots of σ 1.1 px and 10,000 photons, what is left has 0.4 times the variance of their noise.
#: And how far the filter reaches, in pixels.
_FROM, _BESIDE, _REACH = 2.9, 0.35, 4
#: Narrower spots have light at these frequencies; in fewer pixels there is no line.
_LEAST_SIGMA, _LEAST_PIXELS = 1.1, 250
#: Bad pixels with no more of them around, in squares of 5×5, are filled in, if they are fewer than
#: this share.
_FILLED, _FEW = 6, 0.08
#: What is more times as large as its mean is left out: hot pixels.
_FAR, _ROUNDS = 12.0, 8
#: All detail is compared with a given noise in this many frames, in the middle of this side.
_FRAMES, _MIDDLE = 16, 128
#: The median of squares of normal deviates.
_OF_MEDIAN = 0.4549
#: By how many of its errors the slope must be more than 0: without one, bright pixels are said to
#: have no more noise than dark ones, which is surely wrong.
_SIGNIFICANT = 2.0
#: No pixel has less than this share of the usual noise, or of that of dark ones.
_LEAST, _OF_DARK, _DARK = 0.02, 0.5, 0.05
#: Less than this share of the highest pixel is rounding.
_PRECISION = 1e-7
_TINY = float(np.finfo(float).tiny)


def with_line_of_pixels(noise: NoiseModel, frames: NDArray[Any], sigma: float) -> NoiseModel:
    """Return noise that grows with light, where few blocks do not show by how much.

    Parameters
    ----------
    noise : NoiseModel
        That of the blocks.
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.
    sigma : float
        The PSF's width.

    Examples
    --------
    >>> light = np.linspace(10, 200, 32 * 32).reshape(1, 32, 32)
    >>> frames = np.random.default_rng(1).poisson(light).astype(float)
    >>> found = with_line_of_pixels(NoiseModel(0.0, 105.0, 50.0, blocks=1), frames, 1.3)
    >>> 0.6 < found.slope < 1.4
    True
    """
    short = min(frames.shape[1:]) <= 2 * _REACH
    if not noise.blocks < LEAST_BLOCKS or sigma < _LEAST_SIGMA or short:
        return noise
    pixels, filled = without_few_bad(frames.astype(np.float64))
    square, light = (part.ravel() for part in _passed(pixels))
    known = np.isfinite(square) & np.isfinite(light)
    if known.sum() < _LEAST_PIXELS:
        return noise
    # What is filled in takes a part of the detail away.
    square, light = square[known] / (1 - _shared() * filled), light[known]
    lowest, dark, highest = np.nanquantile(pixels, [0, _DARK, 1]).tolist()
    usual = median(square) / _OF_MEDIAN
    if lowest == highest or not usual > (_PRECISION * max(highest, -lowest)) ** 2:
        return noise
    expected = np.full(len(square), usual)
    slope = error = middle = level = 0.0
    for _ in range(_ROUNDS):
        weight = np.where(square < _FAR * expected, expected**-2.0, 0.0)
        total = float(weight.sum())
        if not 0 < total < math.inf:
            return noise
        level, middle = float(weight @ light) / total, float(weight @ square) / total
        away = light - level
        spread = float(weight @ away**2)
        if not spread > 0:
            return noise
        slope, error = float(weight @ (away * square)) / spread, (2 * _shared() / spread) ** 0.5
        # No light is below the lowest pixel.
        slope = min(slope, middle / max(level - lowest, _TINY))
        expected = np.maximum(middle + slope * away, _LEAST * middle)
    if not slope > _SIGNIFICANT * error:
        return noise
    intercept = middle - slope * level
    least = max(_OF_DARK * (slope * dark + intercept), _LEAST * middle)
    return replace(noise, slope=slope, intercept=intercept, least=least, slope_error=error)


def detail_over_noise(frames: NDArray[Any], noise: NoiseModel) -> float:
    """Return how many times the variance that noise says pixels have, most of them.

    It goes by the light at each, and not by that of a block, which may be mostly spot. It is NaN
    where frames are too small.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad. Of large frames the middle counts.
    noise : NoiseModel
        What a camera has.

    Examples
    --------
    >>> frames = np.random.default_rng(1).poisson(50.0, (1, 32, 32)).astype(float)
    >>> 0.8 < detail_over_noise(frames, NoiseModel(1.0, 0.0, 1.0)) < 1.25
    True
    """
    count, *shape = frames.shape
    if min(shape) <= 2 * _REACH:
        return math.nan
    y, x = (max(size - _MIDDLE, 0) // 2 for size in shape)
    middle = frames[:: -(-count // _FRAMES), y : y + _MIDDLE, x : x + _MIDDLE].astype(np.float64)
    square, light = (part.ravel() for part in _passed(middle))
    variance = noise.variance(light)
    known = np.isfinite(square) & (variance > 0)
    if not known.any():
        return math.nan
    return median(square[known] / variance[known]) / _OF_MEDIAN


@lru_cache(maxsize=1)
def _filter() -> Numbers:
    """Return what passes the highest frequencies; its squares add up to 1."""
    side = 64
    k = 2 * np.pi * np.fft.fftfreq(side)
    radius = np.hypot(k[:, np.newaxis], k)
    passed = np.clip((radius - _FROM + _BESIDE) / (2 * _BESIDE), 0.0, 1.0)
    whole = np.fft.fftshift(np.fft.ifft2(np.sin(np.pi / 2 * passed) ** 2).real)
    near = slice(side // 2 - _REACH, side // 2 + _REACH + 1)
    fade = np.hanning(2 * _REACH + 3)[1:-1]
    weights = whole[near, near] * np.outer(fade, fade)
    found: Numbers = weights / np.sqrt(np.sum(weights**2))
    return found


@lru_cache(maxsize=1)
def _correlation() -> Numbers:
    """Return by how much what is passed at two pixels is correlated; the same one in the middle."""
    from scipy.signal import convolve  # takes longer to import than a few fits

    weights = _filter()
    found: Numbers = convolve(weights, weights[::-1, ::-1], method="direct")
    return found


@lru_cache(maxsize=1)
def _shared() -> float:
    """Return for how many pixels there is one independent square."""
    return float(np.sum(_correlation() ** 2))


def _passed(pixels: Numbers) -> tuple[Numbers, Numbers]:
    """Return the square of what is passed at pixels away from borders, and the light around."""
    from scipy.ndimage import convolve  # that of scipy.signal takes ten times as long

    weights = _filter()
    inside = slice(_REACH, -_REACH)
    detail, light = (
        np.stack([convolve(frame, own)[inside, inside] for frame in pixels])
        for own in (weights, weights**2)
    )
    return detail**2, light


def without_few_bad(pixels: Numbers) -> tuple[Numbers, float]:
    """Return pixels, bad ones that lie apart filled in, and the share of these.

    They have the values that leave the least detail.

    Parameters
    ----------
    pixels : ndarray, shape (n, Y, X)
        NaN where they are bad: for small frames.
    """
    from scipy import ndimage

    bad = ~np.isfinite(pixels)
    around = ndimage.convolve(bad.astype(np.int8), np.ones((1, 5, 5), np.int8), mode="constant")
    apart = bad & (around <= _FILLED)
    if not apart.any() or apart.mean() > _FEW:
        return pixels, 0.0
    pixels, correlation = pixels.copy(), _correlation()
    # Frames of one camera have the same bad pixels, whose equations are solved once.
    frames_of: dict[bytes, list[int]] = {}
    for number, own in enumerate(apart):
        if own.any():
            frames_of.setdefault(own.tobytes(), []).append(number)
    for numbers in frames_of.values():
        own = apart[numbers[0]]
        levels = [float(np.median(pixels[n][~bad[n]])) for n in numbers]
        passed = [
            ndimage.convolve(
                np.where(bad[n], 0.0, pixels[n] - level), correlation, mode="constant"
            )[own]
            for n, level in zip(numbers, levels, strict=True)
        ]
        shares = _shares(np.argwhere(own))
        away = np.linalg.lstsq(shares, np.stack(passed, axis=1), rcond=1e-3)[0]
        for n, level, those in zip(numbers, levels, away.T, strict=True):
            pixels[n][own] = level - those
    return pixels, float(apart.sum() / max(np.count_nonzero(~bad | apart), 1))


def _shares(at: NDArray[np.int64]) -> Numbers:
    """Return what each pixel of some passes to each of them."""
    correlation, reach = _correlation(), 2 * _REACH
    off = at[:, np.newaxis] - at
    is_near = (abs(off) <= reach).all(axis=2)
    off = np.clip(off, -reach, reach) + reach
    return np.where(is_near, correlation[off[..., 0], off[..., 1]], 0.0)
