"""Subtract jumps of a sample from its localisations, as found by a search of the whole field."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .drift_frames import still
from .drift_search import jump_frame, shift_between
from .drift_segments import Checked, Rows
from .drift_ties import PARTS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]

#: Parts of a movie before and after a jump, in which its frame is looked for.
_AROUND = 6
#: Most localisations that are searched for jumps.
_SEARCHED = 2_000_000


def joined(checked: Checked) -> Rows:
    """Return localisations less the jumps between pieces that do not lie on each other."""
    found, (starts, group) = checked.found, checked.pieces
    raw = found.rows
    thin = slice(None, None, -(-len(raw.rows) // _SEARCHED))
    frame = raw.frame[thin]
    places = still(found, checked.estimate, raw.rows[thin], frame)
    piece = np.searchsorted(starts, frame, side="right") - 1
    shifts = _shifts(places, piece, group)
    exact, known = starts[:-1].copy(), np.nan_to_num(shifts)
    reach = _AROUND * (starts[-1] - starts[0]) / PARTS
    beside = [np.abs(frame - start) < reach for start in starts[1:-1]]
    # Those that may be on the other side of a jump say nothing of it.
    sure = np.isfinite(shifts[piece, 0]) & ~np.any(beside, axis=0)
    whole = places[:, sure] - known[piece[sure]].T.astype(np.float32)
    for number, near in enumerate(beside, 1):
        jump = shifts[number] - shifts[number - 1]
        if np.isfinite(jump).all() and near.any() and sure.any():
            before = places[:, near] - known[number - 1][:, np.newaxis].astype(np.float32)
            exact[number] = jump_frame(before, frame[near], whole, jump)
    errors = found.errors[: len(places)] * checked.estimate.scale
    return _less_steps(raw, np.maximum.accumulate(exact), known * errors)


def _shifts(places: Singles, piece: Integers, group: Integers) -> Floats:
    """Return the shift of each piece from most of the movie, NaN if unknown."""
    shifts = np.full((len(group), len(places)), np.nan)
    shifts[group == 0] = 0
    whole = places[:, group[piece] == 0]
    for _ in range(2):  # the second time, with all that the first one has found
        for number in range(1, group.max() + 1):
            own = group[piece] == number
            if np.isfinite(shifts[group == number]).any() or not own.any():
                continue
            shift = shift_between(whole, places[:, own])
            if shift is not None:
                shifts[group == number] = shift
                moved = places[:, own] - shift[:, np.newaxis].astype(np.float32)
                whole = np.concatenate([whole, moved], axis=1)
    return shifts


def adjusted(checked: Checked) -> Rows:
    """Return localisations less exact jumps: what the drift still jumps there, too."""
    raw, frames, drift = checked.found.rows, checked.found.frames, checked.estimate.drift
    if raw.starts is None or raw.steps is None:
        return raw
    steps, moves = raw.steps.copy(), np.diff(drift, axis=0)
    for number, start in enumerate(raw.starts[1:], 1):
        after = int(np.searchsorted(frames, start))
        if not 0 < after < len(drift) or not (raw.steps[number] - raw.steps[number - 1]).any():
            continue
        beside = [moves[one] for one in (after - 2, after) if 0 <= one < len(moves)]
        more = moves[after - 1] - np.mean(beside, axis=0)
        if beside and np.isfinite(more).all():
            steps[number:] += more
    return _less_steps(raw, _exact(checked, raw.starts, steps), steps)


def _exact(checked: Checked, starts: Integers, steps: Floats) -> Integers:
    """Return the first frames of pieces, by localisations less a drift that knows of them."""
    found, exact = checked.found, starts.copy()
    raw = found.rows
    thin = slice(None, None, -(-len(raw.rows) // _SEARCHED))
    frame = raw.frame[thin]
    places = still(found, checked.estimate, raw.rows[thin], frame)
    piece = np.maximum(np.searchsorted(starts, frame, side="right") - 1, 0)
    errors = found.errors[: len(places)] * checked.estimate.scale
    own = (steps / errors).astype(np.float32)
    reach = _AROUND * (frame[-1] - frame[0] + 1) / PARTS
    beside = [np.abs(frame - start) < reach for start in starts[1:]]
    sure = ~np.any(beside, axis=0)
    for number, near in enumerate(beside, 1):
        jump = steps[number] / errors - steps[number - 1] / errors
        if jump.any() and near.any() and sure.any():
            before = places[:, near] + own[piece[near]].T - own[number - 1][:, np.newaxis]
            exact[number] = jump_frame(before, frame[near], places[:, sure], jump)
    return np.asarray(np.maximum.accumulate(exact))


def _less_steps(raw: Rows, starts: Integers, steps: Floats) -> Rows:
    """Return localisations less the steps of pieces; some may have been subtracted already."""
    own = steps[np.maximum(np.searchsorted(starts, raw.frame, side="right") - 1, 0)]
    if raw.starts is not None and raw.steps is not None:
        before = np.searchsorted(raw.starts, raw.frame, side="right") - 1
        own = own - raw.steps[np.maximum(before, 0)]
    columns = dict(raw.columns)
    for number, axis in enumerate(raw.axes[: steps.shape[1]]):
        moved = np.array(columns[axis], float)
        moved[raw.rows] -= own[:, number]
        columns[axis] = moved
    return raw._replace(columns=columns, starts=starts, steps=steps)


def apart_from_most(checked: Checked) -> NDArray[np.bool_]:
    """Return which segments are in pieces that do not lie on most of the movie."""
    starts, group = checked.pieces
    piece = np.searchsorted(starts, checked.found.middles, side="right") - 1
    return np.asarray(group[np.clip(piece, 0, len(group) - 1)] > 0)
