"""The Levenberg-Marquardt search of one fit, in double precision.

It takes the same decisions as the searches in many small ROIs at once (cpu/minimize.py,
kernels/search.cuh), with the same constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import (
    DAMPING_DECREASE,
    DAMPING_INCREASE,
    INITIAL_DAMPING,
    MAX_DAMPING,
    ROUNDING,
    ROUNDING_FLOOR,
    SINGULAR,
    SKIPPED_DAMPING,
    SKIPPED_STEP,
    StopCondition,
)
from .image import Array


class Point(NamedTuple):
    """All there is to know about a trial."""

    #: What is searched for: the shape, and amplitude and background unless they are implicit.
    parameters: Array
    amplitude: float
    background: float
    #: χ², or the deviance.
    chi: float
    #: The normal matrix and the right-hand side of a step.
    normal: Array
    gradient: Array
    #: What the change of χ² by a step along one parameter is compared to, and the rounding
    #: error of a residual.
    norm: float
    rounding: float


class Rules(NamedTuple):
    """What the parameters may be, and where the search stops."""

    low: Array
    high: Array
    held: NDArray[np.bool_]
    #: How many of the parameters are the shape's, and how many pixels' rounding errors count.
    shape: int
    pixels: int
    max_iterations: float
    max_error: float
    min_delta: float
    min_step: float


class Found(NamedTuple):
    """Where a search has come to."""

    point: Point | None
    iterations: int
    stop: StopCondition


def search(evaluate: Callable[[Array, Point | None], Point], start: Array, rules: Rules) -> Found:
    """Go downhill from the start until a stop condition holds.

    Parameters
    ----------
    evaluate : callable
        Takes a trial's parameters and the best point up to now, and returns the trial's
        point. χ² is NaN or infinite where the trial is none.
    start : ndarray
        Where to begin, within the bounds.
    rules : Rules
        What the parameters may be, and where to stop.
    """
    point = evaluate(start, None)
    if not point.chi < math.inf:
        return Found(None, 0, StopCondition.INVALID)
    if point.chi < rules.max_error:
        return Found(point, 0, StopCondition.MAX_ERROR)
    damping, decrease, iterations = INITIAL_DAMPING, math.inf, 0
    step = _damped_step(point, damping, rules)
    if _is_over(point, step, damping, decrease, rules):
        return Found(point, 0, StopCondition.MIN_DELTA)
    while True:
        trial = evaluate(np.clip(point.parameters + step, rules.low, rules.high), point)
        iterations += 1
        change = abs(trial.chi - point.chi)
        better = trial.chi < point.chi or _is_hidden(change, point, step, damping)
        small = _is_small(point, trial, rules)
        tiny = _is_settled(change, better, decrease, point, rules)
        damping *= DAMPING_DECREASE if better else DAMPING_INCREASE
        if better:
            point, decrease = trial, change
        step = _damped_step(point, damping, rules)
        if point.chi < rules.max_error:
            return Found(point, iterations, StopCondition.MAX_ERROR)
        if tiny or (better and _is_over(point, step, damping, decrease, rules)):
            return Found(point, iterations, StopCondition.MIN_DELTA)
        if better and small:
            return Found(point, iterations, StopCondition.MIN_STEP)
        if not better and (small or damping > MAX_DAMPING):
            return Found(point, iterations, StopCondition.NO_DECREASE)
        if iterations >= rules.max_iterations:
            return Found(point, iterations, StopCondition.MAX_ITERATIONS)


def _damped_step(point: Point, damping: float, rules: Rules) -> Array:
    """Solve (A + λ diag A) δ = b for the parameters that are free to move.

    Those that are held, that are at a bound and pushed outwards, or on which nothing
    depends, stay; so do combinations to which the matrix gives no curvature.
    """
    at, push, curvature = point.parameters, point.gradient, np.diag(point.normal)
    outwards = ((at <= rules.low) & (push < 0)) | ((at >= rules.high) & (push > 0))
    telling = curvature * np.maximum(at * at, 1) > SINGULAR**2 * point.norm
    free = np.flatnonzero(~rules.held & ~outwards & telling)
    step = np.zeros(len(at))
    if len(free):
        unit = 1 / np.sqrt(curvature[free])
        scaled = point.normal[np.ix_(free, free)] * np.outer(unit, unit)
        scaled[np.diag_indices(len(free))] += damping
        values, vectors = np.linalg.eigh(scaled)
        inverse = np.where(values > SINGULAR, 1 / np.maximum(values, SINGULAR), 0)
        step[free] = unit * (vectors @ (inverse * (vectors.T @ (unit * push[free]))))
    return step


def _is_small(point: Point, trial: Point, rules: Rules) -> bool:
    """Whether every parameter of the shape has moved by less than its share.

    Of the centre's coordinates, which may be thousands of pixels, no larger a share
    counts than of the distance over which the model changes.
    """
    size = np.abs(point.parameters)
    with np.errstate(divide="ignore", invalid="ignore"):  # a spot without light has neither
        size[:2] = np.fmin(size[:2], np.sqrt(point.norm / np.diag(point.normal)[:2]))
    moved = np.abs(trial.parameters - point.parameters)
    return bool(((moved < rules.min_step * size) | rules.held)[: rules.shape].all())


def _is_settled(change: float, better: bool, last: float, point: Point, rules: Rules) -> bool:
    """Whether χ² has changed by less than ``min_delta`` of it, for good.

    Steps that shrink slowly add up: from a decrease and the one before it follows what
    is still to come (a geometric series), and that must be small as well. A change below
    what rounding makes of χ² is none, and a χ² of rounding alone gets no better.
    """
    enough = rules.min_delta * point.chi
    slow = better and last < math.inf and change * last > enough * (last - change)
    floor = ROUNDING_FLOOR * rules.pixels * point.rounding
    return (
        (change <= enough and not slow)
        or change <= 2 * point.rounding * (math.sqrt(point.chi) + floor)
        or (not better and point.chi <= floor * point.rounding)
    )


def _is_hidden(change: float, point: Point, step: Array, damping: float) -> bool:
    """Whether rounding hides what the step changes; then it is believed to be a good one.

    Where the model is flat, pixels with equal counts have equal rounding errors, which do
    not average out. Gradients do not suffer from that.
    """
    unknown = ROUNDING * point.chi
    return change <= unknown and _expected(point, step, damping) <= unknown


def _expected(point: Point, step: Array, damping: float) -> float:
    """Return by how much a step lowers χ² if the model is linear."""
    return float(step @ (damping * np.diag(point.normal) * step + point.gradient))


def _is_over(point: Point, step: Array, damping: float, decrease: float, rules: Rules) -> bool:
    """Whether the next step would settle the fit, were the model linear, and is short.

    That step is not worth an evaluation.
    """
    expected = _expected(point, step, damping)
    enough = rules.min_delta * point.chi
    slow = decrease < math.inf and expected * decrease > enough * (decrease - expected)
    floor = 2 * ROUNDING_FLOOR * rules.pixels * point.rounding**2
    tiny = (expected <= enough and not slow) or expected <= floor
    short = bool((step * step * np.diag(point.normal) <= SKIPPED_STEP**2 * point.norm).all())
    return tiny and short and damping <= SKIPPED_DAMPING
