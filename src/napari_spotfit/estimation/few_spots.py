"""Measure the noise of small images, which have too few blocks for a line and few spots, or one.

The only block of a small image holds a spot, and what its detail says of noise in the dark is up to
a hundred times too much: the middle of the distribution of all fine detail says it instead. How
fast noise grows with light is known from what fits of bright spots leave, as in larger images, but
of a single spot it is known to within 40 % only, and a shape that is not the model's counts more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import NOT_GOOD, Flag
from ..settings.noise_model import NoiseModel, Process
from ..settings.settings import Settings
from .bright_fits import BrightFits, bright_fits, squares_of
from .calm_pixels import clipped_deviation
from .measured_noise import Measured
from .noise_line import LEAST_BLOCKS, is_usable
from .residual_slope import Squares, slope_of, slope_of_few
from .spot_noise import as_white

Numbers = NDArray[np.float64]

#: Sum of the squares of the weights of the finest detail; the least number of its values, and the
#: share of them that may be 0, as these do not count.
_OF_FINE, _LEAST_VALUES, _MOST_ZEROS = 36.0, 64, 0.2
#: That of detail along one axis, and of the finest; and at most how much more of it there is than
#: along both, and along both than of the finest, in noise of independent pixels, with the chance
#: of one pixel. The second is 1.8 to 2.2 where bright wide spots, and their noise, are blurred.
_ALONG_ONE, _FINEST_ALONG_ONE, _WHITE, _NO_BLUR, _CHANCE = 6.0, 70.0, 1.15, 1.6, 6.0
#: What fits leave of noise has less fine detail than this share where it was blurred.
_SMOOTH = 0.35
#: How many values of detail along both axes are enough, or else of what is between bad pixels.
_ENOUGH_VALUES = 500
#: There are too few blocks with less than this share usable, and bad pixels everywhere where they
#: are near more than this share of the others.
_FEW_USABLE, _EVERYWHERE = 0.25, 0.5
#: Processing that is concluded from noise alone, which a block with a spot does not show.
_BY_NOISE = (Process.NONE, Process.FILTERED, Process.DENOISED, Process.DECONVOLVED)
#: The share of spots that stand alone where there is no crowd.
_MOST_ALONE = 0.5
#: The variance of rounding to steps of 1, less what it may share with other noise.
_ROUNDING = 1 / 20


def has_few_blocks(measured: Measured, noise: NoiseModel) -> bool:
    """Whether there are too few blocks for a line: of a small image, or between bad pixels."""
    if not noise.is_known or noise.process not in _BY_NOISE:
        return False
    is_small = measured.blocks[0].size == 1 or measured.blocks.size < LEAST_BLOCKS
    return is_small or _has_scattered_holes(measured)


def _has_scattered_holes(measured: Measured) -> bool:
    """Whether most blocks have too many bad pixels, which lie everywhere."""
    frames = measured.recorded
    usable = np.count_nonzero(is_usable(measured.blocks))
    if frames.dtype.kind != "f" or usable > _FEW_USABLE * measured.blocks.size:
        return False
    bad = np.isnan(frames[len(frames) // 2])
    return not bad.all() and share_beside(bad) > _EVERYWHERE


def share_beside(bad: NDArray[np.bool_], reach: int = 2) -> float:
    """Return the share of the pixels that count with bad ones within a reach along each axis.

    Examples
    --------
    >>> bad = np.zeros((20, 20), bool)
    >>> bad[:, :10] = True
    >>> share_beside(bad)
    0.2
    """
    padded, near = np.pad(bad, reach), np.zeros(bad.shape, bool)
    rows, columns = bad.shape
    for y in range(2 * reach + 1):
        for x in range(2 * reach + 1):
            near |= padded[y : y + rows, x : x + columns]
    return float(np.mean(near[~bad])) if not bad.all() else 0.0


def with_noise_of_few_spots(
    noise: NoiseModel, measured: Measured, settings: Settings
) -> NoiseModel:
    """Return the noise of a small image as all of its detail, and what fits leave, say.

    In a crowd, no fit says as much as all pixels do, and a slope by these stays.

    Parameters
    ----------
    noise : NoiseModel
        That of the few blocks or, if it has a slope with an error, of all pixels.
    measured : Measured
        The frames.
    settings : Settings
        Those of corrected frames; ``sigma`` and ``threads`` count.
    """
    frames = measured.recorded
    by_pixels = noise if noise.slope_error is not None else None
    known = frames[np.isfinite(frames)] if frames.dtype.kind == "f" else frames.ravel()
    if not known.size:
        return noise
    seems_filtered = noise if noise.correlation > 1 or noise.process else None
    if seems_filtered is not None:
        if noise.blocks and not _is_white(frames):
            return noise
        noise = as_white(replace(noise, process=Process.NONE.value))
    level = float(np.median(known))
    dark = _dark_variance(frames, noise, measured.step)
    noise = replace(
        noise, intercept=dark, least=min(noise.least, dark), slope=0.0, slope_error=None
    )
    fits = bright_fits(frames, settings, noise, level)
    if by_pixels is not None and np.count_nonzero(fits.alone) <= _MOST_ALONE * len(fits.alone):
        return by_pixels
    usable = _usable(fits)
    if not usable.any():
        return noise
    fits = fits._replace(usable=usable)
    if seems_filtered is not None and (fits.finest_detail(measured.step) or 1) < _SMOOTH:
        return seems_filtered
    squares = _of_what_counts(squares_of(fits, level, dark), fits)
    slope = slope_of(squares, noise.blocks).value_if_sure
    slope = slope or slope_of_few(squares).value * fits.share_of_noise(measured.step)
    return replace(noise, slope=slope, intercept=dark - slope * level)


def _is_white(frames: NDArray[Any]) -> bool:
    """Whether calm pixels have as much detail along each axis as along both.

    And in the finest along each no less, as blurred noise has beside the light of bright spots.
    """
    pixels = frames.astype(np.float64)
    both = clipped_deviation(np.diff(np.diff(pixels, 2, axis=1), 2, axis=2)) / math.sqrt(_OF_FINE)
    along, finest = (
        math.sqrt(
            math.prod(clipped_deviation(np.diff(pixels, order, axis=axis)) for axis in (1, 2)) / of
        )
        for order, of in ((2, _ALONG_ONE), (4, _FINEST_ALONG_ONE))
    )
    chance = _CHANCE / math.sqrt(frames.size)
    return along < (_WHITE + chance) * both and both < (_NO_BLUR + chance) * finest


def _dark_variance(frames: NDArray[Any], noise: NoiseModel, step: float) -> float:
    """Return the variance of most pixels: that of the middle of all of their finest detail."""
    own = float(noise.variance(0.0)) / noise.correlation**2
    fine, of_fine = _fine_values(frames.astype(np.float64))
    zeros = np.count_nonzero(fine == 0)
    if fine.size - zeros < _LEAST_VALUES:
        return own
    found = max(clipped_deviation(fine) ** 2 / of_fine, _ROUNDING * step**2)
    return found if zeros < _MOST_ZEROS * fine.size else min(found, own)


def _fine_values(frames: Numbers) -> tuple[Numbers, float]:
    """Return the finest detail that there is between bad pixels, and the sum of squared weights."""
    fine, least = np.empty(0), min(_ENOUGH_VALUES, frames.size // 2)
    for down, right in ((1, 1), (0, 1), (1, 0), (2, 2)):
        detail = frames
        for axis, step in ((1, down), (2, right)):
            if step and detail.shape[axis] > 2 * step:
                lines = np.moveaxis(detail, axis, 0)
                second = lines[: -2 * step] - 2 * lines[step:-step] + lines[2 * step :]
                detail = np.moveaxis(second, 0, axis)
        found = detail[np.isfinite(detail)]
        if len(found) >= least:
            return found, _ALONG_ONE ** ((down > 0) + (right > 0))
        if (down, right) == (1, 1):
            fine = found
    return fine, _OF_FINE


def _of_what_counts(squares: Squares, fits: BrightFits) -> Squares:
    """Return squares of ROIs in which some pixels are bad, whose light is in none of them."""
    parameters = len(fits.settings.profile.shape) + 2
    share = (squares.degrees + parameters) / math.prod(fits.settings.roi_shape)
    own = squares.own * share
    return squares._replace(
        own=own, rise=squares.rise - squares.own + own, overlap=squares.overlap * share
    )


def _usable(fits: BrightFits) -> NDArray[np.bool_]:
    """Return the best that there are: spots alone, and inside; alone; good ones; or any."""
    flags, columns = fits.columns["flags"].astype(np.int64), fits.columns
    fitted: NDArray[np.bool_] = np.ones(len(flags), bool)
    with np.errstate(invalid="ignore"):
        for name in ("reduced_chi_square", "photons", "amplitude"):
            fitted = fitted & (columns[name] > 0)
    good = fitted & ((flags & int(NOT_GOOD & ~Flag.POOR_FIT)) == 0)
    alone = good & fits.alone
    inside = alone & ((flags & int(Flag.EDGE)) == 0)
    return next((best for best in (inside, alone, good) if best.any()), fitted)
