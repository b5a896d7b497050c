"""Measure noise that is less than the steps between values, as of 12 bits that are stored in 8.

Rounding to steps s adds a variance of s²/12, as long as the noise is about a third of a step or
more. Of less noise, pixels that are as bright have one value or two, depending on where the steps
lie: fine detail is anything from nothing to a quarter of s², and light of less than a step is lost,
or becomes one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import times
from ..settings.noise_model import NoiseModel, Process
from .measured_noise import Measured
from .noise_line import is_usable, median
from .photon_transfer import MEDIAN_OVER_MEAN
from .pixel_values import usual_is_lowest

#: The variance of rounding to steps of 1.
OF_STEPS = 1 / 12
#: Noise of fewer steps than this hides what lies between two of them; in the calmest blocks it
#: looks like less.
_HIDES, _IN_CALM = 0.27, 0.25
#: Fine detail of noise that is looked at, in steps², at most: half of the pixels one step higher.
_MAY_HIDE = 0.28
#: Noise of pixels that is tried, in steps, and where its middle may lie between two of them.
_TRIED, _MIDDLES = np.arange(0.06, 0.62, 0.02), np.linspace(-0.5, 0.5, 21)
#: Pixels that are anything else, by chance.
_OTHERS = 1e-3
#: Side of a block, how many are looked at, and which part of them, those without spots.
_BLOCK, _MOST_BLOCKS, _OF_BLOCKS = 8, 1600, 4
#: How many steps above most pixels there is light.
_BRIGHT = 1.5
#: The least share of pixels that differ from the middle of their block: noise, or there is none.
_SOME = 5e-4
#: Neighbours of raw images, rounded, are correlated by less than this.
_CORRELATED = 0.2
#: How many pixels alone would have two photons, at least, where too few of them speak against
#: photons; and from which part of them on they are.
_LEAST_EXPECTED, _AS_PHOTONS = 10.0, 0.2
#: The part of a camera's noise that rounding may add; electrons of a step that may be single ones,
#: which nothing has rounded; and the part of what it adds that a given variance counts.
_ADDS, _SINGLE, _COUNTED = 0.35, 1.5, 0.99


def hides_noise(measured: Measured) -> bool:
    """Whether steps between values are more than three times as large as the noise beside spots.

    Pixels of the calmest blocks that are one step higher, or lower, than the middle of their block,
    and those that are more, decide it: noise of one strength explains all of these, wherever the
    middle of a block lies between two steps.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> from napari_spotfit.estimation.measured_noise import measured_blocks
    >>> noise = np.random.default_rng(1).normal(100.0, 3.0, (1, 96, 96)).astype("f4")
    >>> noise[0, 40:43, 40:43] += 60
    >>> for step in (3.0, 6.0, 15.0):
    ...     rounded = (np.rint(noise / step) * step).astype(np.float32)
    ...     print(hides_noise(measured_blocks(rounded, Settings(sigma=1.3))))
    False
    False
    True
    """
    step, usable = measured.step, is_usable(measured.blocks)
    if not step > 0 or not usable.any():
        return False
    detail = median(measured.blocks["both"][usable]) / MEDIAN_OVER_MEAN
    if not detail < _MAY_HIDE * step**2:
        return False
    middle = measured.recorded[len(measured.recorded) // 2]
    calm = _calm_blocks(middle, step)
    if not len(calm) or not np.mean(calm != 0) > _SOME or _correlation(calm) > _CORRELATED:
        return False
    if not _has_light(middle, step):
        return False
    if usual_is_lowest(middle) and _may_be_photons(middle, step, float(np.mean(calm == 1))):
        return False
    counts = np.stack([(calm < -1).sum((1, 2)), *((calm == n).sum((1, 2)) for n in (-1, 0, 1)),
                       (calm > 1).sum((1, 2))], -1)  # fmt: skip
    likelihood = np.einsum("smk,bk->sbm", _log_shares(), counts).max(2).sum(1)
    return float(_TRIED[likelihood.argmax()]) < _IN_CALM


def _has_light(frame: NDArray[Any], step: float) -> bool:
    """Whether neighbours are two steps above most pixels, which noise of less never makes."""
    high = frame > np.nanmedian(frame) + _BRIGHT * step
    return bool((high[1:] & high[:-1]).any() or (high[:, 1:] & high[:, :-1]).any())


def _calm_blocks(frame: NDArray[Any], step: float) -> NDArray[np.float64]:
    """Return how many steps pixels are above the middle of their block, in the calmest blocks."""
    rows, columns = (size // _BLOCK for size in frame.shape)
    own = frame[: rows * _BLOCK, : columns * _BLOCK].astype(float) / step
    blocks = own.reshape(rows, _BLOCK, columns, _BLOCK).swapaxes(1, 2).reshape(-1, _BLOCK, _BLOCK)
    blocks = blocks[:: -(-len(blocks) // _MOST_BLOCKS) or 1]
    blocks = blocks[np.isfinite(blocks).all((1, 2))]
    if not len(blocks):
        return blocks
    away = np.rint(blocks - np.median(blocks, (1, 2), keepdims=True))
    # By the means of their quarters, so that single pixels hardly decide which blocks count.
    quarters = away.reshape(-1, 2, _BLOCK // 2, 2, _BLOCK // 2).mean((2, 4))
    calm = np.argsort(quarters.var((1, 2)), kind="stable")[: -(-len(away) // _OF_BLOCKS)]
    found: NDArray[np.float64] = away[calm]
    return found


def _may_be_photons(frame: NDArray[Any], step: float, one: float) -> bool:
    """Whether as many pixels alone are two steps above the lowest value as of single photons.

    One step above it is this share of the pixels. Of few of them none may be two by chance; light
    of spots is beside other light.
    """
    away = np.rint((frame - np.nanmin(frame)) / step)
    inner = away[1:-1, 1:-1]
    beside = away[:-2, 1:-1], away[2:, 1:-1], away[1:-1, :-2], away[1:-1, 2:]
    alone = np.count_nonzero((inner == 2) & np.all([own == 0 for own in beside], axis=0))
    expected = one**2 / 2 * (1 - one) ** len(beside) * inner.size
    return bool(expected < _LEAST_EXPECTED or alone > _AS_PHOTONS * expected)


def _correlation(blocks: NDArray[np.float64]) -> float:
    """Return the usual correlation of neighbours in a block along one axis, or the other one."""
    rest = blocks - blocks.mean((1, 2), keepdims=True)
    power = np.square(rest).sum((1, 2))
    along = (rest[:, 1:] * rest[:, :-1]).sum((1, 2)), (rest[:, :, 1:] * rest[:, :, :-1]).sum((1, 2))
    shown = power > 0
    return max(float(np.median(one[shown] / power[shown])) for one in along)


@cache
def _log_shares() -> NDArray[np.float64]:
    """Return the logarithm of the shares of pixels by steps from the middle of a block.

    By noise, where the middle lies, and steps: two or more below, one, none, one, two or more.
    """
    from scipy.special import ndtr  # takes longer to import than a few fits

    ends = np.array([-1.5, -0.5, 0.5, 1.5])
    below = ndtr((ends - _MIDDLES[:, np.newaxis]) / _TRIED[:, np.newaxis, np.newaxis])
    shares = np.diff(below, axis=-1, prepend=0.0, append=1.0)
    found: NDArray[np.float64] = np.log((1 - _OTHERS) * shares + _OTHERS / (len(ends) + 1))
    return found


def with_noise_of_steps(noise: NoiseModel, measured: Measured) -> NoiseModel:
    """Return the noise with that of rounding, which fine detail does not show.

    What looks filtered, denoised or cut off is rounded, unless its noise is more, as where detail
    was filtered before, or most pixels have the lowest value, as where darker ones were cut off.
    """
    step = measured.step
    variance = (_HIDES**2 + OF_STEPS) * step**2
    is_cut = noise.process == Process.CUT and usual_is_lowest(measured.recorded[0])
    if is_cut or noise.correlation**2 * float(noise.variance(measured.level)) > variance:
        return noise
    return replace(
        noise, slope=0.0, intercept=variance, least=OF_STEPS * step**2, correlation=1.0,
        slope_error=None, uneven=1.0, blur=0.0, unfiltered=1.0, process=Process.NONE.value,
    )  # fmt: skip


def of_hidden_noise(step: float) -> str:
    """Return a warning of steps that hide the noise."""
    return (
        f"values come in steps of {step:.4g}, more than three times the noise: light of less than "
        "a step is lost, or becomes one, so that light, widths and backgrounds are wrong, those of "
        "dim spots by a half and more, and standard errors do not count it. Take the image with "
        "all of its bits, as the camera stored it"
    )


def of_camera_in_steps(
    step: float, camera: NoiseModel, level: float, gain: float, variance: float
) -> str:
    """Return a warning of rounding that adds to a camera's noise; nothing where it adds little.

    Parameters
    ----------
    step : float
        The step between values; 0 if there is none.
    camera : NoiseModel
        The camera's.
    level : float
        How bright half of the pixels are.
    gain, variance : float
        What was given; a variance of 0 if none was.
    """
    known, added = float(camera.variance(level)), OF_STEPS * step**2
    is_counted = variance > _COUNTED * added
    own = known - added if is_counted else known
    if step < _SINGLE * gain or not added > _ADDS * own > 0:
        return ""
    if own < (_HIDES * step) ** 2:
        return of_hidden_noise(step)
    if is_counted:
        return ""
    return (
        f"values come in steps of {step:.4g}, which adds a variance of {added:.3g} counts² that is "
        f"not in the camera's: standard errors are up to {times(math.sqrt(1 + added / known))} "
        f"times too small. Give variance={variance + added:.4g}, with it"
    )
