"""Fits in large ROIs, one after the other: start, search, results, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.profiles import GAUSSIAN_ROTATED
from ...models.stopping import (
    FIRST_AMPLITUDE,
    FIRST_BACKGROUND,
    LEAST_BACKGROUND,
    LIKELIHOOD_DELTA,
    MIN_DELTA_PIXELS,
    ROUNDING_PIXELS,
    StopCondition,
)
from ...results.columns import errors_of, values_of
from ...settings.settings import Settings
from ..limits import make_limits
from .image import Array, Image
from .points import Box, LeastSquares, Likelihood, ends_of
from .results import ANGLE, LargeResults
from .search import Found, Rules, search
from .start import Look, first_bins, look, start_values


def fit_rois(
    image_of: Callable[[int], Image | None],
    count: int,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: NDArray[np.float32] | None,
) -> dict[str, NDArray[Any]]:
    """Fit large ROIs.

    Parameters
    ----------
    image_of : callable
        Takes the number of a ROI and returns its pixels; None for one outside the image.
    count : int
        How many ROIs there are.
    roi_shape : tuple of int
        Their rows and columns.
    settings : Settings
        How to fit.
    start : ndarray of float32, shape (count, K), or None
        Start values y, x and widths; NaN asks for the built-in ones.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits, with y and x from the ROI's first pixel.
    """
    profile = settings.profile
    columns: dict[str, NDArray[Any]] = {"y": np.full(count, np.nan), "x": np.full(count, np.nan)}
    columns |= {name: np.full(count, np.nan, np.float32) for name in values_of(profile)}
    columns["iterations"] = np.zeros(count, np.uint16)
    columns["stop_condition"] = np.full(count, StopCondition.INVALID, np.uint8)
    if settings.errors:
        columns |= {name: np.full(count, np.nan, np.float32) for name in errors_of(profile)}
    for number in range(count):
        if (image := image_of(number)) is None:
            continue
        own = None if start is None else np.asarray(start[number], float)
        with np.errstate(over="ignore"):  # χ² may be infinite in single precision
            for name, value in _fit(image, roi_shape, settings, own).items():
                columns[name][number] = value
    return columns


def _fit(
    image: Image, roi_shape: tuple[int, int], settings: Settings, start: Array | None
) -> dict[str, float]:
    """Return the results of one fit by their columns; of an invalid one, nothing."""
    bins, cell = first_bins(image, roi_shape)
    low, high, pixels = float(bins.low.min()), float(bins.high.max()), int(bins.pixels.sum())
    mean = float((bins.mean * bins.pixels).sum()) / max(pixels, 1)
    rules = _rules(settings, roi_shape, pixels)
    fitted = int((~rules.held).sum()) + 2
    likelihood, gain = settings.estimator == "mle", settings.gain or 1.0
    dark = likelihood and high <= settings.offset
    if pixels <= fitted or not 0 < high - low < math.inf or not math.isfinite(mean) or dark:
        return {}
    # Least squares has numbers around 0 with a range of 1, maximum likelihood photo-electrons.
    level, scale = (settings.offset, 1 / gain) if likelihood else (mean, 1 / (high - low))
    image.set_unit(level, scale)
    box = _box(settings, roi_shape, level, scale)
    seen = look(image, roi_shape, bins, cell)
    begin = np.clip(_start(seen, settings, start), rules.low, rules.high)
    first = rules._replace(max_error=settings.max_error * scale**2)
    if likelihood:
        first = rules._replace(max_error=0.0, min_delta=max(rules.min_delta, LIKELIHOOD_DELTA))
    found = search(LeastSquares(image, box, pixels), begin, first)
    if likelihood and found.point is not None:
        light = max((mean - level) * scale, (high - level) * scale / pixels)
        box = _above_nothing(box, light)
        found = _likeliest(image, found, box, rules, light)
    results = LargeResults(image, settings, pixels - fitted, level, scale, rules, box)
    return results.columns(found)


def _rules(settings: Settings, roi_shape: tuple[int, int], pixels: int) -> Rules:
    limits = make_limits(settings, roi_shape)
    turned = settings.profile == GAUSSIAN_ROTATED
    unit = np.ones(len(limits.low))
    if turned:
        unit[ANGLE] = math.pi / 180
    return Rules(
        np.array(limits.low) * unit, np.array(limits.high) * unit, np.array(limits.held),
        len(limits.low), min(pixels, ROUNDING_PIXELS), limits.max_iterations, limits.max_error,
        limits.min_delta * min(1.0, MIN_DELTA_PIXELS / max(pixels, 1)), limits.min_step,
    )  # fmt: skip


def _box(settings: Settings, roi_shape: tuple[int, int], level: float, scale: float) -> Box:
    limits = make_limits(settings, roi_shape)
    return Box(
        (limits.amplitude_min * scale, limits.amplitude_max * scale),
        ((limits.background_min - level) * scale, (limits.background_max - level) * scale),
    )


def _start(seen: Look, settings: Settings, start: Array | None) -> Array:
    """Return start values in the order of the kernels: built-in, given, or held."""
    profile = settings.profile
    given = np.full(len(profile.shape), np.nan) if start is None else start.copy()
    given[:2] = given[1::-1]
    if profile == GAUSSIAN_ROTATED:
        given[ANGLE] = math.radians(given[ANGLE])
    begin = start_values(profile, seen, given)
    for name, value in settings.fixed.items():
        if value is not None and name in profile.widths:
            place = 2 + profile.widths.index(name)
            begin[place] = math.radians(value) if name == "angle" else value
    return begin


def _above_nothing(box: Box, light: float) -> Box:
    """Return bounds whose background makes no pixel impossible."""
    low, high = box.background
    return box._replace(background=(LEAST_BACKGROUND * light if low == 0 else low, high))


def _likeliest(image: Image, found: Found, box: Box, rules: Rules, light: float) -> Found:
    """Go on from the least-squares answer to maximum likelihood."""
    point = found.point
    assert point is not None
    low, high = ends_of(rules, box)
    amplitudes = (
        max(point.amplitude, FIRST_AMPLITUDE * light),
        max(point.background, FIRST_BACKGROUND * light),
    )
    begin = np.clip(np.append(point.parameters, amplitudes), low, high)
    held = np.append(rules.held, (False, False))
    return search(Likelihood(image), begin, rules._replace(low=low, high=high, held=held))
