"""One displacement of many shifts: their weighted mean, robust against some that are wrong."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu.layouts import Shifts
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address

Floats = NDArray[np.float64]


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
    shifts, errors = (np.ascontiguousarray(values, float) for values in (shifts, errors))
    candidates = np.ascontiguousarray(candidates, bool)
    work, taken, told = np.empty(len(shifts)), np.empty(len(shifts), bool), np.empty((2, 2))
    given = Shifts(
        *map(address, (shifts, errors, candidates)), len(shifts), *map(address, (work, taken)),
        address(told), address(told[1]),
    )  # fmt: skip
    load().functions.spotfit_robust_mean(ctypes.byref(given))
    return Mean(told[0], told[1], taken)


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
