"""Average shifts robustly: of many spots, and of the frames of a movie by fiducials."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu.layouts import Shifts
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address
from ..estimation.noise_line import SIGMA_PER_MAD
from ..models.columns import IN_PLANE, TRACK
from .linking import NO_TRACK

Floats = NDArray[np.float64]


class Mean(NamedTuple):
    """A weighted mean along each axis, its standard errors, and the shifts used."""

    shift: Floats
    errors: Floats
    taken: NDArray[np.bool_]


def robust_mean(shifts: Floats, errors: Floats, candidates: NDArray[np.bool_]) -> Mean:
    """Return the weighted mean of shifts without outliers.

    Parameters
    ----------
    shifts, errors : ndarray of float64, shape (n, 1 or 2)
        Shifts along one axis, or along y and x, and their standard errors.
    candidates : ndarray of bool, shape (n,)
        Which shifts can be used.

    Examples
    --------
    >>> shifts = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [9.0, 0.0]])
    >>> robust_mean(shifts, np.full((4, 2), 0.1), np.ones(4, bool)).taken
    array([ True,  True,  True, False])
    """
    shifts, errors = (np.ascontiguousarray(values, float) for values in (shifts, errors))
    candidates = np.ascontiguousarray(candidates, bool)
    count, axes = shifts.shape
    work, taken, mean = np.empty(count), np.empty(count, bool), np.empty((2, axes))
    given = Shifts(
        *map(address, (shifts, errors, candidates)), count, axes, *map(address, (work, taken)),
        address(mean), address(mean[1]),
    )  # fmt: skip
    load().functions.spotfit_robust_mean(ctypes.byref(given))
    return Mean(mean[0], mean[1], taken)


class Similarity(NamedTuple):
    """Shift, rotation and magnification of a field, with standard errors."""

    shift: Floats
    errors: Floats
    #: In degrees from x towards y.
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
        Shifts along y and x at two or more positions, and their standard errors.
    places : ndarray of float64, shape (n, 2)
        These positions, y and x.
    pivot : ndarray of float64, shape (2,)
        The position whose shift is returned.
    rotation, scale : bool
        Which of them to fit; the others are fixed, and NaN.
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
    scaled = np.concatenate([shifts[:, axis] / errors[:, axis] for axis in (0, 1)])
    inverse = np.linalg.pinv(design.T @ design)
    found, spread = inverse @ (design.T @ scaled), np.sqrt(np.diagonal(inverse))
    known = dict(zip(columns, zip(found, spread, strict=True), strict=True))
    rotated, rotated_error = known.get(2, (math.nan, math.nan))
    grown, grown_error = known.get(3, (math.nan, math.nan))
    return Similarity(
        found[:2], spread[:2], math.degrees(rotated), math.degrees(rotated_error),
        1.0 + grown, grown_error,
    )  # fmt: skip


#: Iterations to reconcile displacements and reference positions of fiducials.
_ROUNDS = 6
#: Least number of deviates of successive frames from which the scatter of fiducials is estimated.
_DEVIATES = 200
#: Number of successive frames without fiducials that is no coincidence.
_STRETCH = 10

Columns = dict[str, NDArray[np.generic]]


def by_track(
    columns: Columns, count: int, least_share: float, axes: Sequence[str] = IN_PLANE
) -> tuple[Floats, Floats]:
    """Return positions and standard errors by track and frame, NaN where a track is missing."""
    track, frame, linked = _linked_spots(columns, count)
    numbers, own = np.unique(track[linked], return_inverse=True)
    seen = np.bincount(own, minlength=len(numbers))
    long = np.flatnonzero(seen >= max(least_share * count, 1))
    if not len(long):
        most = int(seen.max(initial=0))
        raise ValueError(
            f"no track is seen in {least_share:.0%} of the {count} frames, the longest in {most}: "
            "link with a larger max_distance or memory, or take a smaller least_share"
        )
    row = np.full(len(numbers), -1)
    row[long] = np.arange(len(long))
    rows, at = row[own], frame[linked]
    places, errors = (np.full((len(long), count, len(axes)), math.nan) for _ in range(2))
    for axis, name in enumerate(axes):
        for to, column in ((places, name), (errors, f"{name}_stderr")):
            to[rows[rows >= 0], at[rows >= 0], axis] = columns[column][linked][rows >= 0]
    errors[errors <= 0] = math.nan
    return places, errors


def _linked_spots(
    columns: Columns, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return track and frame of each spot, and which are on a track and in the movie."""
    track, frame = columns[TRACK].astype(np.int64), columns["frame"].astype(np.int64)
    return track, frame, (track != NO_TRACK) & (frame < count)


def agreed_shifts(
    places: Floats, errors: Floats, known: NDArray[np.bool_]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the shifts of frames, their standard errors, and the numbers of fiducials.

    Positions and errors are those of each track and frame, along one axis, or along y and x.
    Alternates between reference positions from shifts and shifts from reference positions, and then
    scales the errors to the scatter of both.
    """
    _, count, axes = places.shape
    spread, used = np.full((count, axes), math.nan), np.zeros(count, np.int64)
    weights = np.where(known[..., np.newaxis], 1.0 / errors**2, 0.0)
    references, shifts = _tied(places, known)
    own_errors = errors
    for turn in range(_ROUNDS):
        if turn:
            errors = (
                own_errors * _scatter(places, references, shifts, own_errors, known)[:, np.newaxis]
            )
        taken = np.zeros_like(known)
        for frame in range(count):
            mean = robust_mean(places[:, frame] - references, errors[:, frame], known[:, frame])
            used[frame] = np.count_nonzero(mean.taken)
            if used[frame]:
                shifts[frame], spread[frame] = mean.shift, mean.errors
                taken[:, frame] = mean.taken
        own = np.where(taken[..., np.newaxis], weights, 0.0)
        total = own.sum(axis=1)
        sums = (own * np.where(taken[..., np.newaxis], places - shifts, 0.0)).sum(axis=1)
        references = np.where(total > 0, sums / np.where(total > 0, total, 1.0), references)
    return shifts, spread, used


def _scatter(
    places: Floats, references: Floats, shifts: Floats, errors: Floats, known: NDArray[np.bool_]
) -> Floats:
    """Return the ratio of fiducials' scatter around each frame's shift to standard errors.

    At least 1; from the median deviate of the frame and its neighbours.
    """
    seen = known.sum(axis=0)
    # With few fiducials, the mean follows each, and reduces the deviates.
    free = np.sqrt(np.maximum(seen - 1, 0) / np.maximum(seen, 1))
    away = np.abs(places - references[:, np.newaxis] - shifts) / errors
    found = np.ones(places.shape[1])
    ends = np.cumsum(np.where(seen > 1, places.shape[2] * seen, 0))
    for frame in np.flatnonzero(seen > 1):
        middle = ends[frame] - places.shape[2] * seen[frame] / 2
        first, last = np.searchsorted(ends, [middle - _DEVIATES / 2, middle + _DEVIATES / 2])
        part = slice(first, last + 1)
        deviates = away[:, part][known[:, part] & (seen[part] > 1)]
        found[frame] = max(SIGMA_PER_MAD * float(np.median(deviates)) / free[frame], 1.0)
    return found


def _tied(places: Floats, known: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return reference positions of fiducials, and initial shifts.

    Starts from the fiducial in most frames, and adds others over the frames that they share.
    """
    references = np.full((len(places), places.shape[2]), math.nan)
    shifts = np.full(places.shape[1:], math.nan)
    shared, tied = np.zeros(len(places), np.int64), np.zeros(places.shape[1], np.bool_)
    one = int(np.argmax(known.sum(axis=1)))
    references[one] = np.median(places[one, known[one]], axis=0)
    while True:
        new = known[one] & ~tied
        shifts[new] = places[one, new] - references[one]
        tied |= new
        shared += np.count_nonzero(known[:, new], axis=1)
        # Next is the one that shares most frames, as its position is the most reliable.
        left = np.where(np.isnan(references[:, 0]), shared, 0)
        one = int(np.argmax(left))
        if left[one] == 0:
            break
        common = known[one] & tied
        references[one] = np.median(places[one, common] - shifts[common], axis=0)
    _refuse_untied(np.asarray(known.any(axis=0)), tied)
    return references, shifts


def _refuse_untied(seen: NDArray[np.bool_], tied: NDArray[np.bool_]) -> None:
    """Raise a ValueError if some frames share no fiducial with the others."""
    apart = np.flatnonzero(seen & ~tied)
    if len(apart):
        raise ValueError(
            f"no track ties {spans(apart)} to {spans(np.flatnonzero(tied))}, so the shift of the "
            "sample between them is unknown: link with a larger max_distance or memory, or use a "
            "smaller least_share"
        )


def refuse_unlinked(columns: Columns, used: NDArray[np.int64], least_share: float) -> None:
    """Raise a ValueError if tracks in frames without fiducials could be fiducials.

    They are present in as large a fraction of those frames as fiducials are of the movie.
    """
    track, frame, linked = _linked_spots(columns, len(used))
    has_spots = np.bincount(frame[linked], minlength=len(used)) > 0
    for stretch in _stretches(np.flatnonzero(has_spots & (used == 0))):
        if len(stretch) < _STRETCH:
            continue
        there = linked & (frame >= stretch[0]) & (frame <= stretch[-1])
        seen = np.unique(track[there], return_counts=True)[1]
        if seen.max(initial=0) >= least_share * len(stretch):
            raise ValueError(
                f"spots are seen all along {spans(stretch)}, but in tracks of less than "
                f"{least_share:.0%} of the {len(used)} frames, too short to measure the shift "
                "of the sample there: link with a larger max_distance or memory, or take a smaller "
                "least_share"
            )


def _stretches(frames: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Divide sorted frames into ranges without gaps."""
    if not len(frames):
        return []
    return np.split(frames, np.flatnonzero(np.diff(frames) > 1) + 1)


def spans(frames: NDArray[np.int64]) -> str:
    """Return text for sorted frames: their first ranges."""
    spans = _stretches(frames)
    words = [f"{one[0]}–{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in spans[:3]]
    more = " and others" if len(spans) > 3 else ""
    return f"frame{'s' * (len(frames) > 1)} {', '.join(words)}{more}"
