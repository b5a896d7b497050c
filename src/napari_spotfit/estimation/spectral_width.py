"""Estimate the width of spots from an image's power spectrum, however much they overlap.

Places that are random have a flat spectrum, and so has the noise of a camera. What is left is the
square of the PSF's: of a Gaussian exp(-σ²k²). No spot has to be resolved, and
brightness may differ. Where places are not random, as in clusters, and where a background has
structure, the spectrum is bent: it falls faster at low frequencies than at high ones.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .noise_line import SIGMA_PER_MAD

#: The frequencies that count, times σ: lower ones are the background's too, and the higher ones
#: have little light, and show how far a PSF is no Gaussian.
_LOWEST, _HIGHEST = 0.6, 2.2
#: The noise is the least mean power of as many rings of higher frequencies.
_RINGS, _NOISE_FROM = 10, 1.5
#: At most this many pixels are looked at, and no less on each side; at most this share may be bad.
_MOST_PIXELS, _LEAST_SIDE, _MOST_BAD = 1 << 18, 16, 0.01
#: Hot pixels are higher than spots are over what is beside them by this factor, and by this many
#: deviations.
_SHARPER, _HOT = 1.3, 4.0
#: The mean power of light that is needed, over that of noise, which is known to a few per cent.
_OVER_NOISE = 2.0
#: From how many standard errors on a spectrum is bent.
_BENT = 1.5
#: Steps of a fit, when it rests, and the longest step of a logarithm; how often the frequencies are
#: chosen again.
_STEPS, _STILL, _LONGEST, _ROUNDS = 25, 1e-4, 0.3, 6
#: The variance of a tapered periodogram's mean, over that of as many independent frequencies.
_TAPERED = 2.25


class SpectralWidth(NamedTuple):
    """What an image's spectrum says of the width of its spots."""

    #: σ in pixels, and its standard error as a fraction of it.
    sigma: float
    error: float
    #: How the logarithm of the spectrum is bent along (σk)⁴, and the standard error of that.
    bend: float
    bend_error: float

    @property
    def is_bent(self) -> bool:
        """Whether places are not random, or the background has structure."""
        return self.bend > _BENT * self.bend_error


class Spectrum(NamedTuple):
    """The mean power of frames at frequencies along y and x, and of how many modes it is one."""

    power: NDArray[np.float64]
    modes: NDArray[np.float64]
    y: NDArray[np.float64]
    x: NDArray[np.float64]


def spectral_width(
    frames: NDArray[Any], sigma: float, *, is_integrated: bool, bad: NDArray[np.bool_] | None = None
) -> SpectralWidth | None:
    """Return the width of the spots in some frames; None if their spectrum shows none.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        The pixels.
    sigma : float
        A first guess.
    is_integrated : bool
        Whether σ is that of the light before pixels integrate it.
    bad : ndarray of bool, optional
        Pixels that are no data.
    """
    frames, bad = _middle(frames), None if bad is None else _middle(bad)
    if min(frames.shape[1:]) < _LEAST_SIDE:
        return None
    pixels = _without_bad(frames, bad)
    if pixels is None:
        return None
    spectrum = spectrum_of(without_hot_pixels(pixels, sigma))
    noise = _noise(spectrum, sigma)
    for _ in range(_ROUNDS):
        before = sigma
        found = _fitted(spectrum, noise, sigma, is_integrated, is_bent=False)
        if found is None:
            return None
        sigma, error, *_ = found
        if abs(sigma / before - 1) < error / 5:
            break
    bent = _fitted(spectrum, noise, sigma, is_integrated, is_bent=True)
    return None if bent is None else SpectralWidth(sigma, error, *bent[2:])


def _middle(frames: NDArray[Any]) -> NDArray[Any]:
    """Return the middle of large frames, and no more of them than are looked at."""
    most = math.isqrt(_MOST_PIXELS)
    for axis in (1, 2):
        first = max(frames.shape[axis] - most, 0) // 2
        frames = frames.take(range(first, first + min(frames.shape[axis], most)), axis)
    return frames[: max(_MOST_PIXELS // max(math.prod(frames.shape[1:]), 1), 1)]


def _without_bad(frames: NDArray[Any], bad: NDArray[np.bool_] | None) -> NDArray[np.float64] | None:
    """Return frames with the median of each in place of a few bad pixels; None with many."""
    pixels = frames.astype(np.float64)
    lost = ~np.isfinite(pixels)
    if bad is not None:
        lost |= bad
    if lost.mean() > _MOST_BAD:
        return None
    if lost.any():
        pixels[lost] = np.nan
        middle = np.nanmedian(pixels, axis=(1, 2), keepdims=True)
        pixels = np.where(lost, middle, pixels)
    return pixels


def without_hot_pixels(pixels: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Return frames with the median around in place of a few pixels that stand out of all beside.

    A single one has a flat spectrum, which hides that of spots.

    Parameters
    ----------
    pixels : ndarray, shape (n, Y, X)
        Finite values.
    sigma : float
        The PSF's width: the middle of a spot is higher than what is beside it, too.

    Examples
    --------
    >>> pixels = np.random.default_rng(1).normal(50.0, 4.0, (1, 32, 32))
    >>> pixels[0, 7, 9] = 500
    >>> changed = without_hot_pixels(pixels, 1.0) != pixels
    >>> int(changed.sum()), bool(changed[0, 7, 9])
    (1, True)
    """
    from scipy import ndimage  # takes longer to import than a few fits

    around = np.ones((1, 3, 3), bool)
    around[0, 1, 1] = False
    beside = ndimage.maximum_filter(pixels, footprint=around, mode="mirror")
    lowest = ndimage.minimum_filter(pixels, (1, 5, 5), mode="mirror")
    of_spot = math.erf(0.5 / (math.sqrt(2) * sigma))
    of_next = (math.erf(1.5 / (math.sqrt(2) * sigma)) - of_spot) / 2
    over = pixels - lowest - _SHARPER * of_spot / of_next * (beside - lowest)
    scatter = SIGMA_PER_MAD * np.median(abs(over - np.median(over)))
    is_hot = over > _HOT * scatter
    if not is_hot.any() or is_hot.mean() > _MOST_BAD:
        return pixels
    calm = ndimage.median_filter(pixels, footprint=around, mode="mirror")
    return np.where(is_hot, calm, pixels)


def spectrum_of(pixels: NDArray[np.float64], fading: int = 1) -> Spectrum:
    """Return the power of frames, ±ky taken together.

    They fade out towards their edges as this power of a sine. The higher it is, the less of strong
    low frequencies is seen at high ones.
    """
    count, height, width = pixels.shape
    lines = [np.sin(np.pi * (np.arange(side) + 0.5) / side) for side in (height, width)]
    taper = np.outer(*lines) / math.sqrt(height * width / 4)
    if fading > 1:
        taper = np.outer(*lines) ** fading
        taper /= math.sqrt(float(np.sum(taper**2)))
    level = np.tensordot(pixels, taper**2, 2)[:, np.newaxis, np.newaxis]
    power = np.zeros((height, width // 2 + 1))
    for frame, own in zip(pixels, level, strict=True):
        power += abs(np.fft.rfft2((frame - own) * taper)) ** 2
    y, x = np.arange(height // 2 + 1), np.arange(width // 2 + 1)
    both = (power[y] + power[-y]) / (2 * count)
    modes = count * np.outer(1 + (y % (height / 2) != 0), np.where(x % (width / 2) != 0, 1.0, 0.5))
    return Spectrum(both, modes, 2 * np.pi * y / height, 2 * np.pi * x / width)


def _noise(spectrum: Spectrum, sigma: float) -> float:
    """Return the power of white noise, which is all there is at some frequencies."""
    radius = np.hypot(spectrum.y[:, np.newaxis], spectrum.x)
    is_high = radius > min(_NOISE_FROM / sigma, np.pi)
    order = np.argsort(radius[is_high])
    power, modes = spectrum.power[is_high][order], spectrum.modes[is_high][order]
    first = np.arange(_RINGS) * len(order) // _RINGS
    means = np.add.reduceat(power * modes, first) / np.add.reduceat(modes, first)
    return float(means.min())


def gaussian_line(
    k: NDArray[np.float64], sigma: float, *, is_integrated: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a Gaussian's power along an axis, aliases with it, and its derivative by ln σ."""
    aliases = k + 2 * np.pi * np.array([-1, 0, 1])[:, np.newaxis]
    power = np.exp(-((sigma * aliases) ** 2))
    if is_integrated:
        power *= np.sinc(aliases / (2 * np.pi)) ** 2
    return power.sum(axis=0), (-2 * (sigma * aliases) ** 2 * power).sum(axis=0)


def _fitted(
    spectrum: Spectrum, noise: float, sigma: float, is_integrated: bool, *, is_bent: bool
) -> tuple[float, float, float, float] | None:
    """Return the likeliest σ, its relative error, the bend and its error, from those near σ."""
    lowest, highest = _LOWEST / sigma, min(_HIGHEST / sigma, np.pi)
    y, x = (k[k <= highest] for k in (spectrum.y, spectrum.x))
    radius = np.hypot(y[:, np.newaxis], x)
    counts = (radius >= lowest) & (radius <= highest)
    power = spectrum.power[: len(y), : len(x)][counts]
    modes = spectrum.modes[: len(y), : len(x)][counts]
    if not modes.size:
        return None
    bending = (sigma * radius[counts]) ** 4
    light = float(np.average(power, weights=modes)) - noise
    if not light > _OVER_NOISE * noise:
        return None
    state = np.array([math.nan, math.log(sigma), 0.0][: 3 if is_bent else 2])
    information = np.eye(len(state))
    for _ in range(_STEPS):
        lines = [gaussian_line(k, math.exp(state[1]), is_integrated=is_integrated) for k in (y, x)]
        shape = np.outer(lines[0][0], lines[1][0])[counts]
        wider = (np.outer(lines[0][1], lines[1][0]) + np.outer(lines[0][0], lines[1][1]))[counts]
        if math.isnan(state[0]):
            state[0] = math.log(light / float(np.average(shape, weights=modes)))
        bent = np.exp(state[0] + (state[2] * bending if is_bent else 0.0))
        mean = bent * shape + noise
        slopes = np.stack([bent * shape, bent * wider, bent * shape * bending][: len(state)]) / mean
        information = (slopes * modes) @ slopes.T
        try:
            step = np.linalg.solve(information, (slopes * modes) @ (power / mean - 1))
        except np.linalg.LinAlgError:
            return None
        longest = np.abs(step).max()
        if not np.isfinite(longest):
            return None
        state += step * min(1.0, _LONGEST / longest) if longest > _LONGEST else step
        if not abs(state[1] - math.log(sigma)) < 1:
            return None
        if longest < _STILL:
            break
    try:
        errors = np.sqrt(_TAPERED * np.diag(np.linalg.inv(information)))
    except np.linalg.LinAlgError:
        return None
    bend = (float(state[2]), float(errors[2])) if is_bent else (0.0, 0.0)
    return (math.exp(state[1]), float(errors[1]), *bend)
