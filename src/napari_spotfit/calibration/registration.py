"""Registration of beads in three dimensions, to a fraction of a voxel.

What is made as large as it can be is the normalised correlation C of a bead with a reference over
the voxels that both have, for whole shifts; between them, log C is interpolated quadratically
along each axis. It is next to flat along z, where its curvature depends on x and y, so that
a quadric is biased.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Shift = tuple[int, int, int]

#: Passes over all beads, and rounds of leaving out those that differ most.
_PASSES, _ROUNDS = 2, 3
#: Standard deviations above the mean beyond which a bead's residual leaves it out, where both are
#: of those within this many median absolute deviations.
_DEVIATIONS, _WITHIN = 3.0, 4.0
#: How far beads may be shifted: along z a part of the planes, and pixels along y and x.
_PART, _PIXELS = 0.4, 4
#: Steps to the highest place between voxels.
_NEWTON = 10


def align(boxes: NDArray[np.float32]) -> Array:
    """Return where the beads are, relative to each other, as (z, y, x) in voxels.

    Parameters
    ----------
    boxes : ndarray of float32, shape (n, planes, rows, columns)
        Beads without background.
    """
    shifts = np.zeros((len(boxes), 3))
    norms = np.sqrt((boxes.astype(float) ** 2).sum(axis=(1, 2, 3)))
    unit = boxes / norms[:, None, None, None]
    if len(boxes) < 2:
        return shifts
    flat = unit.reshape(len(unit), -1)
    alike = flat @ flat.T @ norms  # specks may be many, but have little light
    best = np.argsort(-alike)[: max(len(boxes) // 2, 1)]
    reference = unit[best[:1]].mean(axis=0)
    for _ in range(_PASSES):
        shifts = np.array(
            [_shift_of(reference, bead, at) for bead, at in zip(unit, shifts, strict=True)]
        )
        shifts -= np.median(shifts, axis=0)
        reference = average(unit, shifts, norms)
    return shifts


def average(boxes: NDArray[np.float32], shifts: Array, weights: Array | None = None) -> Array:
    """Return the mean of beads that are moved to where they have no shift."""
    weights = np.ones(len(boxes)) if weights is None else weights
    total = np.zeros(boxes.shape[1:])
    for box, shift, weight in zip(boxes, shifts, weights, strict=True):
        total += weight * moved(box, shift)
    total /= weights.sum()
    return total


def moved(box: NDArray[np.float32], shift: Iterable[float]) -> Array:
    """Return a box at places that are further by a shift, by splines of the fifth degree."""
    values = box.astype(float)
    for axis, by in enumerate(shift):
        matrix = _matrix(values.shape[axis], round(by * 1024) / 1024)
        values = np.moveaxis(np.tensordot(matrix, values, (1, axis)), 0, axis)
    return values


@cache
def _matrix(size: int, by: float) -> Array:
    """Return what moves numbers along an axis; beyond their ends they stay the same."""
    from scipy.interpolate import make_interp_spline  # here, as SciPy takes its time to import

    places = np.clip(np.arange(size) + by, 0, size - 1)
    return np.asarray(make_interp_spline(np.arange(size), np.eye(size), k=5)(places))


def outliers(aligned: Array, weights: Array) -> NDArray[np.bool_]:
    """Return which beads differ in shape from the mean of the others.

    Parameters
    ----------
    aligned : ndarray, shape (n, planes, rows, columns)
        Beads that were moved to one place.
    weights : ndarray, shape (n,)
        Their light.
    """
    out = np.zeros(len(aligned), bool)
    for _ in range(_ROUNDS):
        kept = np.flatnonzero(~out)
        if len(kept) < 4:
            break
        total = aligned[kept].sum(axis=0)
        residuals = np.full(len(aligned), np.nan)
        for i in kept:
            own, others = aligned[i] / weights[i], total - aligned[i]
            others = others / (weights[kept].sum() - weights[i])
            residuals[i] = math.sqrt(((own - others) ** 2).sum() / (others**2).sum())
        middle = np.nanmedian(residuals)
        deviation = np.nanmedian(np.abs(residuals - middle))
        near = residuals[np.abs(residuals - middle) <= _WITHIN * deviation]
        new = residuals > near.mean() + max(_DEVIATIONS * near.std(), 0.02)
        if not new.any():
            break
        out |= new
    return out


def _shift_of(reference: Array, bead: NDArray[np.float32], start: Array) -> Array:
    """Return where a bead is, by whole steps uphill and then between them."""
    correlation = _Correlation(reference, bead)
    planes = len(bead)
    _, y, x = (round(float(one)) for one in start)
    most = int(_PART * planes)
    at: Shift = max(((z, y, x) for z in range(-most, most + 1)), key=correlation)
    limits = (planes // 2, _PIXELS, _PIXELS)
    for _ in range(4 * planes):
        around = _around(at)
        best = max(around, key=correlation)
        if best == at or any(abs(one) >= end for one, end in zip(best, limits, strict=True)):
            break
        at = best
    logs = np.log([max(correlation(one), 1e-6) for one in _around(at)]).reshape(3, 3, 3)
    return np.array(at) + _peak(logs)


class _Correlation:
    """The normalised correlation of a bead with a reference, by whole shifts."""

    def __init__(self, reference: Array, bead: NDArray[np.float32]) -> None:
        self._reference, self._bead = reference.astype(np.float32), bead
        self._known: dict[Shift, float] = {}

    def __call__(self, shift: Shift) -> float:
        if shift not in self._known:
            sizes = self._bead.shape
            bead = self._bead[
                tuple(slice(max(s, 0), n + min(s, 0)) for s, n in zip(shift, sizes, strict=True))
            ]
            own = self._reference[
                tuple(slice(max(-s, 0), n + min(-s, 0)) for s, n in zip(shift, sizes, strict=True))
            ]
            norm = float((own * own).sum()) * float((bead * bead).sum())
            self._known[shift] = float((own * bead).sum()) / math.sqrt(norm) if norm > 0 else 0.0
        return self._known[shift]


def _around(at: Shift) -> list[Shift]:
    z, y, x = at
    steps = (-1, 0, 1)
    return [(z + i, y + j, x + k) for i in steps for j in steps for k in steps]


def _peak(logs: Array) -> Array:
    """Return where the product of quadratics through 27 values is highest, from the middle."""
    # Of each axis: the coefficients of 1, t and t² by the values at -1, 0 and 1.
    quadratic = np.array([[0, 1, 0], [-0.5, 0, 0.5], [0.5, -1, 0.5]])
    c = np.einsum("ai,bj,ck,ijk->abc", quadratic, quadratic, quadratic, logs)
    at = np.zeros(3)
    for _ in range(_NEWTON):
        # By how many derivatives along z, y and x.
        rows = [np.array([[1, t, t * t], [0, 1, 2 * t], [0, 0, 2]]) for t in at]
        by = np.einsum("abc,ia,jb,kc->ijk", c, *rows)
        slope = np.array([by[1, 0, 0], by[0, 1, 0], by[0, 0, 1]])
        zy, zx, yx = by[1, 1, 0], by[1, 0, 1], by[0, 1, 1]
        curvature = [[by[2, 0, 0], zy, zx], [zy, by[0, 2, 0], yx], [zx, yx, by[0, 0, 2]]]
        at = np.clip(at - np.linalg.lstsq(np.array(curvature), slope, rcond=1e-9)[0], -1, 1)
    return at
