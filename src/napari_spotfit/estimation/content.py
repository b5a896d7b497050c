"""Look in an image for more than spots and a camera's noise: stripes, dark spots, planes alike."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Block
from ..engine.bands import along_z_noise
from ..engine.cpu.backend import detect
from ..images.arrays import to_host
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration
from ..images.reading import evenly_spread, without_damage
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from .band_noise import band_noise, recorded_parts, some_parts
from .measured_noise import Measured
from .noise_line import quantiles

#: Of stripes: the least number of periods; the longest period in pixels (that of two is a
#: mosaic's); their power over that of other periods, from this many frequencies beside on; their
#: amplitude over the mean difference of neighbouring pixels; and how many longer periods have less.
_LEAST_REPEATS, _MOST_APART, _OVER_OTHERS, _CLEAR, _BESIDE, _LONGER = 5, 16, 50.0, 0.25, 4, 3
#: The least share of their amplitude that the middle half of the pixels along them has: what the
#: brightest pixels alone make is spots on a grid.
_OF_MOST = 0.5
Array = NDArray[np.float64]

#: How many neighbouring planes are compared, at how many depths, and the longest side of their
#: parts.
_PLANES, _PLACES, _SIDE = 6, 3, 512
#: A correlation of neighbouring planes below this is chance, or a camera's fixed pattern.
_LEAST = 0.1
#: How many pixels show whether there is light; quantiles of them; how many times as far from the
#: middle the last one is as the first, where there is; and within how many deviations it is hidden.
_ENOUGH, _OF_LIGHT, _BRIGHTER, _HIDDEN = 1 << 16, (0.1, 0.5, 0.9), 2.0, 5.0


def hides_light(frames: NDArray[Any], noise: NoiseModel) -> bool:
    """Whether pixels differ by light, most of which is less than what noise is taken for.

    Light makes pixels brighter, and noise as many of them darker.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.
    noise : NoiseModel
        What their noise is taken for.

    Examples
    --------
    >>> white = np.random.default_rng(1).normal(50.0, 4.0, (1, 64, 64))
    >>> light = white + 60 * (np.indices((64, 64)) % 2 == 0).all(axis=0)
    >>> [hides_light(one, NoiseModel(0.0, 900.0, 900.0)) for one in (white, light)]
    [False, True]
    """
    known = frames.ravel()[:: max(frames.size // _ENOUGH, 1) | 1]
    known = known[np.isfinite(known)]
    if not known.size:
        return False
    low, middle, high = (float(value) for value in quantiles(known, *_OF_LIGHT))
    most = _HIDDEN * math.sqrt(float(noise.variance(middle)))
    return _BRIGHTER * (middle - low) < high - middle < most


def stripes(frames: NDArray[Any]) -> float:
    """Return the period of stripes along one axis in pixels; 0 without stripes.

    Examples
    --------
    >>> rng, rows = np.random.default_rng(1), np.arange(96)[:, np.newaxis]
    >>> counts = rng.poisson(35.0 + 15 * np.sin(rows * np.pi / 4), (1, 96, 96))
    >>> stripes(counts), stripes(rng.poisson(35.0, (1, 96, 96)))
    (8.0, 0.0)
    """
    found = []
    for across in (frames, frames.swapaxes(1, 2)):
        profile = across.mean(axis=(0, 2), dtype=float)
        size = len(profile)
        if size < _LEAST_REPEATS * _MOST_APART or not np.isfinite(profile).all():
            continue
        first = -(-size // _MOST_APART)
        of_all = abs(np.fft.rfft((profile - profile.mean()) * np.hanning(size))) ** 2
        power = of_all[first : 2 * size // 5]
        highest = int(np.argmax(power))
        near = power[max(highest - 4 * _BESIDE, 0) : highest + 4 * _BESIDE + 1].copy()
        middle = min(highest, 4 * _BESIDE)
        near[max(middle - _BESIDE + 1, 0) : middle + _BESIDE] = 0
        # Of light and shade, as of cells, longer periods have more.
        longer = of_all[highest + first - _LONGER : highest + first - 1].max()
        if not power[highest] > max(_OVER_OTHERS * near.max(), longer):
            continue
        amplitude = 4 * math.sqrt(power[highest]) / size
        if amplitude > _CLEAR * float(np.mean(abs(np.diff(across[0].astype(float))))):
            wave = np.exp(-2j * math.pi * np.arange(size) * (highest + first) / size)
            usual = abs(_usual_profile(across) @ (wave * np.hanning(size))) * 4 / size
            if usual > _OF_MOST * amplitude:
                found.append(size / (highest + first))
    return found[0] if len(found) == 1 else 0.0


def _usual_profile(frames: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean of the middle half of the pixels at each place along the second axis."""
    ordered = np.sort(frames, axis=2)
    quarter = ordered.shape[2] // 4
    profile = ordered[:, :, quarter : ordered.shape[2] - quarter].mean(axis=(0, 2), dtype=float)
    return np.asarray(profile - profile.mean())


def with_stripes(noise: NoiseModel, measured: Measured, settings: Settings) -> NoiseModel:
    """Return the noise of an image with stripes: spots must stand out of them, too.

    Parameters
    ----------
    noise : NoiseModel
        The noise of the frames without their stripes.
    measured : Measured
        The frames.
    settings : Settings
        ``sigma`` counts.
    """
    band = band_noise(some_parts(measured.frames), settings.known_sigma)
    if band is None:
        return noise
    times = float(np.median(band.variance / noise.variance(band.level)))
    return replace(noise, correlation=noise.correlation * math.sqrt(max(times, 1.0)))


#: The share of pixels in each tail of the brightness; the lower one is longer, or no spot is dark.
_TAIL = 1e-4
#: The least number of dark spots, and the sum of their depths over that of bright spots' heights:
#: between dark spots there are maxima, too, one fourteenth as high in all (240 spots, 6 frames).
_LEAST_DARK, _OVER_BRIGHT = 5, 5.0
#: How many of either noise may make in 10⁶ pixels.
_FALSE = 0.01


def dark_spots(measured: Measured, noise: NoiseModel, settings: Settings) -> int:
    """Return how many dark spots some frames have, if hardly any are bright; otherwise 0.

    Noise of light and bright spots lengthen the upper tail of the brightness. Where the lower one
    is longer, dark spots are looked for.

    Parameters
    ----------
    measured : Measured
        The frames, and what was measured in their blocks.
    noise : NoiseModel
        The noise of the frames.
    settings : Settings
        ``sigma`` and ``threads`` count.
    """
    frames = recorded_parts(measured.frames)
    is_whole = frames.dtype.kind in "iu"
    known = frames.ravel() if is_whole else frames[np.isfinite(frames)].astype(float)
    if not known.size:
        return 0
    low, level, high = (float(value) for value in quantiles(known, _TAIL, 0.5, 1 - _TAIL))
    if level - low <= high - level:
        return 0
    variance = float(noise.variance(level))
    flat = NoiseModel(0.0, variance, variance, correlation=noise.correlation)
    looked_for = Settings(
        sigma=settings.known_sigma, noise=flat, false_spots=_FALSE, threads=settings.threads,
        backend="cpu",
    )  # fmt: skip
    away = frames.astype(float) - level
    bright, deep = (_heights(side * away, looked_for) for side in (1, -1))
    is_dark = len(deep) >= _LEAST_DARK and deep.sum() > _OVER_BRIGHT * bright.sum()
    return len(deep) if is_dark else 0


def _heights(frames: NDArray[np.float64], settings: Settings) -> NDArray[np.float32]:
    """Return the heights of the spots in frames."""
    calibration = PixelCalibration(frames.shape, settings)
    block = Block.of(calibration, np.arange(len(frames)), frames)
    return detect(to_host(block.pixels), settings, texture=True).height


def depth_correlation(
    reader: FrameReader, calibration: PixelCalibration, numbers: NDArray[np.int64], sigma: float
) -> float:
    """Return the noise of spots in a stack over that of planes that are independent."""
    depth, *plane = reader.frame_shape
    count = min(_PLANES, depth)
    sigma_z = calibration.settings.sigma_z
    if count < 2 or sigma_z is None or not len(numbers):
        return 1.0
    middle = tuple(slice((n - min(n, _SIDE)) // 2, (n + min(n, _SIDE)) // 2) for n in plane)
    found = []
    for first in np.unique(evenly_spread(_PLACES, depth - count + 1)).tolist():
        part = (slice(first, first + count), *middle)
        read = partial(reader.read_part, part=part)
        own, pixels = without_damage(read, numbers[:1])
        corrected = calibration.corrected(own, pixels, mark_bad=True, part=part)
        found.append(_correlations(to_host(corrected)[0].astype(float)))
    usual = np.median(np.array(found), axis=0)
    if not usual[1] > _LEAST:
        return 1.0
    return max(along_z_noise(sigma, sigma_z, usual), 1.0)


def _correlations(planes: Array) -> Array:
    """Return how the finest detail of a plane correlates with that of the next ones, from 1 on.

    By their signs: hot pixels count as others do.
    """
    for axis in (1, 2):
        planes = np.diff(planes, 2, axis)
    signs = np.sign(planes)
    found = [1.0]
    for away in range(1, len(signs)):
        both = signs[away:] * signs[:-away]
        known = np.isfinite(both) & (both != 0)
        mean = float(both[known].mean()) if known.any() else 0.0
        found.append(math.sin(math.pi / 2 * mean))
    return np.array(found)
