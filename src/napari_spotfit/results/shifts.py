"""One displacement of many shifts: their weighted mean, robust against some that are wrong."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Shifts count that lie within so many of their standard errors of the others, which include
#: a little for what no error tells: a few thousandths of a pixel.
_WITHIN, _BESIDES = 4.0, 0.003
#: From so many on the mean of all is looked at first.
_MANY = 8
#: Medians are not as precise as means: so much more is allowed for at first.
_OF_MEDIAN = 1.25


class Mean(NamedTuple):
    """A weighted mean along y and x, with its standard errors, and what it is of."""

    shift: Floats
    errors: Floats
    taken: NDArray[np.bool_]


def robust_mean(shifts: Floats, errors: Floats, candidates: NDArray[np.bool_]) -> Mean:
    """Return the mean of shifts by their own errors, without those that lie apart.

    Parameters
    ----------
    shifts, errors : ndarray of float64, shape (n, 2)
        Shifts along y and x, and their standard errors.
    candidates : ndarray of bool, shape (n,)
        Which may count.

    Examples
    --------
    >>> shifts = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [9.0, 0.0]])
    >>> robust_mean(shifts, np.full((4, 2), 0.1), np.ones(4, bool)).taken
    array([ True,  True,  True, False])
    """
    count = int(np.count_nonzero(candidates))
    if count == 0:
        return Mean(np.full(2, math.nan), np.full(2, math.nan), candidates)
    weights = 1.0 / (errors * errors)
    if count == 2:
        return Mean(*_mean(shifts, weights, taken := _sharper(shifts, errors, candidates)), taken)
    taken = candidates
    if count > 2:
        allowed = np.sqrt(_WITHIN**2 * (errors * errors + _BESIDES**2))
        if count >= _MANY:
            # None of many that lies apart can hide by drawing their mean to itself.
            shift, spread = _mean(shifts, weights, candidates)
            if ((np.abs(shifts - shift) <= allowed).all(axis=1) | ~candidates).all():
                return Mean(shift, spread, candidates)
        own = shifts[candidates]
        center = middle(own)
        near = np.abs(shifts - center) <= _OF_MEDIAN * allowed + middle(np.abs(own - center))
        first = candidates & near.all(axis=1)
        if first.any():
            shift, _ = _mean(shifts, weights, first)
            taken = candidates & (np.abs(shifts - shift) <= allowed).all(axis=1)
            if not taken.any():
                taken = first
    return Mean(*_mean(shifts, weights, taken), taken)


def _sharper(shifts: Floats, errors: Floats, both: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return two if they agree; else the sharper one, as nobody knows which is wrong."""
    one, other = np.flatnonzero(both)
    allowed = _WITHIN * np.sqrt(errors[one] ** 2 + errors[other] ** 2 + _BESIDES**2)
    taken = both.copy()
    if (np.abs(shifts[one] - shifts[other]) > allowed).any():
        taken[one if errors[other].sum() <= errors[one].sum() else other] = False
    return taken


def middle(values: Floats) -> Floats:
    """Return the median along the first axis, of two in the middle the upper: in fewer steps."""
    return np.asarray(np.sort(values, axis=0)[len(values) // 2])


def _mean(shifts: Floats, weights: Floats, taken: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    if not taken.all():
        shifts, weights = shifts[taken], weights[taken]
    total = np.add.reduce(weights)
    return np.add.reduce(shifts * weights) / total, 1.0 / np.sqrt(total)


class Similarity(NamedTuple):
    """How a field was shifted, turned and magnified, with the standard errors of all four."""

    shift: Floats
    errors: Floats
    #: Degrees from x towards y.
    rotation: float = math.nan
    rotation_error: float = math.nan
    scale: float = math.nan
    scale_error: float = math.nan


def similarity(
    shifts: Floats, errors: Floats, places: Floats, pivot: Floats, *, rotation: bool, scale: bool
) -> Similarity:
    """Return the shift of the pivot, and rotation and scale around it, by weighted least squares.

    Parameters
    ----------
    shifts, errors : ndarray of float64, shape (n, 2)
        Shifts along y and x of at least two places, and their standard errors.
    places : ndarray of float64, shape (n, 2)
        Where these were, y and x.
    pivot : ndarray of float64, shape (2,)
        The place whose shift is asked for.
    rotation, scale : bool
        What is not asked for is held, and is NaN.
    """
    beside = places - pivot
    rows = []
    for axis, other, sign in ((0, 1, 1.0), (1, 0, -1.0)):
        row = np.zeros((len(places), 4))
        row[:, axis] = 1.0
        row[:, 2] = sign * beside[:, other] if rotation else 0.0
        row[:, 3] = beside[:, axis] if scale else 0.0
        rows.append(row / errors[:, axis, np.newaxis])
    columns = [0, 1, *([2] if rotation else []), *([3] if scale else [])]
    design = np.concatenate(rows)[:, columns]
    told = np.concatenate([shifts[:, axis] / errors[:, axis] for axis in (0, 1)])
    inverse = np.linalg.pinv(design.T @ design)
    found, spread = inverse @ (design.T @ told), np.sqrt(np.diagonal(inverse))
    known = dict(zip(columns, zip(found, spread, strict=True), strict=True))
    turned, turned_error = known.get(2, (math.nan, math.nan))
    grown, grown_error = known.get(3, (math.nan, math.nan))
    return Similarity(
        found[:2], spread[:2], math.degrees(turned), math.degrees(turned_error),
        1.0 + grown, grown_error,
    )  # fmt: skip
