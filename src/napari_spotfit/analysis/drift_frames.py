"""The drift of each frame, from that of the segments of a movie."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from .drift import Drift
from .drift_overlap import WINDOW
from .drift_segments import Checked, Estimate, Segments
from .drift_within import AT_ONCE, MOST, Sample, chosen
from .shifts import spans

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]

#: Least step that is none of a steady motion, in errors of a localisation and of the drift.
_JUMP = 3.0
#: Least motion within segments that is reported, in errors of a localisation.
_TOLD = 0.3
#: Least part of the localisations that are asked for, below which squares of the field are too few.
_LEAST_OF_SHARE = 0.2
#: Localisations around a jump, among whose frames its own is not known.
_UNSURE = 6.0
#: Largest part of the steps that are jumps.
_RARE = 0.2


def drift_of_frames(checked: Checked, count: int) -> Drift:
    """Return the drift of each frame."""
    found, estimate, motion = checked[:3]
    drift, errors, used = estimate[:3]
    known, numbers = np.flatnonzero(used), np.arange(count)
    curve = curve_of(found, known, drift, numbers)
    steps = found.rows.steps
    if steps is not None and found.rows.starts is not None:
        piece = np.searchsorted(found.rows.starts, numbers, side="right") - 1
        curve = curve + steps[np.maximum(piece, 0)]
    curve -= curve[found.frames[0]]
    spread = np.stack(
        [np.interp(numbers, found.middles[known], one) for one in errors[known].T], axis=1
    )
    jumps = _at_steps(spread, found)
    jumps += _widen_at_jumps(spread, found, known, drift[known], errors[known])
    _warn_of_jumps(jumps)
    of_frame = np.clip(np.searchsorted(found.frames, numbers, side="right") - 1, 0, len(used) - 1)
    moves = np.sqrt(np.maximum(motion.square, motion.local)) * found.errors[: drift.shape[1]]
    spread = np.hypot(spread, moves[of_frame])
    _warn_of_motion(checked)
    # A segment may begin and end without spots, but no more frames than it has.
    first, last = found.frames[[0, -1]]
    length = (last - first) / len(used)
    used = np.where((numbers < first - length) | (numbers >= last + length), 0, used[of_frame])
    bridged = used == 0
    spread[bridged] = np.nan
    if bridged.any():
        warn_caller(
            f"too few molecules are seen again in {spans(np.flatnonzero(bridged))}: the drift "
            "there is interpolated, or that of the nearest frame with some"
        )
    along_z = (curve[:, 2], spread[:, 2]) if curve.shape[1] > 2 else (None, None)
    return Drift(curve[:, 0], curve[:, 1], spread[:, 0], spread[:, 1], used, *along_z)


def curve_of(found: Segments, known: Integers, drift: Floats, numbers: Integers) -> Floats:
    """Return the drift of frames, interpolated between the middles of segments."""
    from scipy.interpolate import PchipInterpolator  # here, as SciPy takes its time to import

    knots, values = found.middles[known], drift[known]
    # One more knot at each end, on the line through the two before it.
    ends = 2 * knots[[0, -1]] - knots[[1, -2]], 2 * values[[0, -1]] - values[[1, -2]]
    knots = np.concatenate([ends[0][:1], knots, ends[0][1:]])
    values = np.concatenate([ends[1][:1], values, ends[1][1:]])
    numbers = np.clip(numbers, knots[0], knots[-1])
    curve: Floats = PchipInterpolator(knots, values)(numbers)
    return curve


def still(found: Segments, estimate: Estimate, rows: Integers, frame: Integers) -> Singles:
    """Return the positions of localisations less drift, in units of their errors."""
    numbers = np.arange(*found.frames[[0, -1]])
    curve = curve_of(found, np.flatnonzero(estimate.used), estimate.drift, numbers)
    time = frame - found.frames[0]
    return np.stack([
        ((found.rows.columns[axis][rows] - origin - own[time]) / error).astype(np.float32)
        for axis, origin, own, error in zip(
            found.rows.axes, found.origin, curve.T, found.errors * estimate.scale, strict=False
        )
    ])  # fmt: skip


def sample_of(found: Segments, estimate: Estimate) -> Sample:
    """Return some of the localisations, less the drift of their half of the field."""
    first, last = found.frames[[0, -1]]
    numbers, known = np.arange(first, last), np.flatnonzero(estimate.used)
    axes = estimate.drift.shape[1]
    errors = found.errors[:axes] * estimate.scale
    whole, *halves = (
        curve_of(found, known, drift, numbers) / errors
        for drift in (estimate.drift, *estimate.halves)
    )
    raw, (across, middle) = found.rows, found.divide
    share = MOST / len(raw.rows)
    parts: list[tuple[Singles, Integers]] = []
    for begin in range(0, len(raw.rows), AT_ONCE):
        own = slice(begin, begin + AT_ONCE)
        rows, time = raw.rows[own], raw.frame[own] - first
        places = np.stack([
            ((raw.columns[axis][rows] - origin) / error).astype(np.float32)
            for axis, origin, error in zip(raw.axes, found.origin, errors, strict=False)
        ])  # fmt: skip
        if share < 1:
            kept = chosen(places - whole[time].T.astype(np.float32), share)
            if np.count_nonzero(kept) < _LEAST_OF_SHARE * share * len(kept):
                kept = np.arange(len(kept)) % math.ceil(1 / share) == 0
            places, time = places[:, kept], time[kept]
        parts.append((places, time))
    places, time = (np.concatenate(one, axis=-1) for one in zip(*parts, strict=True))
    half = places[across] * np.float32(estimate.scale) > middle
    own_drift = np.where(half[:, np.newaxis], halves[1][time], halves[0][time]).T
    return Sample((places - own_drift).astype(np.float32), time + first, half)


def beyond_steady(found: Segments, known: Integers, drift: Floats, errors: Floats) -> Floats:
    """Return how much each step between known segments is larger than a steady motion has."""
    steps = np.diff(drift, axis=0)
    if len(steps) < 3:
        return np.zeros_like(steps)
    # A fast, but steady motion is no jump.
    usual = np.median([steps[:-2], steps[1:-1], steps[2:]], axis=0)
    more = np.abs(steps - np.concatenate([usual[:1], usual, usual[-1:]]))
    scale = found.errors[: drift.shape[1]]
    more[(more < _JUMP * scale) | (more < _JUMP * (errors[1:] + errors[:-1]))] = 0
    if np.count_nonzero(more.any(axis=1)) > max(_RARE * len(more), 2):
        more[:] = 0  # a fast motion, reported as such
    return np.asarray(more)


def _at_steps(spread: Floats, found: Segments) -> list[int]:
    """Add to errors beside jumps that are known, as their frame is not exact; return these."""
    starts, steps, (first, last) = found.rows.starts, found.rows.steps, found.frames[[0, -1]]
    if starts is None or steps is None:
        return []
    reach = math.ceil(_UNSURE * (last - first) / len(found.rows.rows))
    far = []
    for start, step in zip(starts[1:], np.diff(steps, axis=0), strict=True):
        if step.any():
            near = slice(max(start - reach, 0), start + reach)
            spread[near] = np.hypot(spread[near], np.abs(step) / 2)
            far.append(int(start))
    return far


def _widen_at_jumps(
    spread: Floats, found: Segments, known: Integers, drift: Floats, errors: Floats
) -> list[int]:
    """Add to errors that it is unknown in which frame between two segments the sample jumps."""
    more, scale = beyond_steady(found, known, drift, errors), found.errors[: drift.shape[1]]
    for number in np.flatnonzero(more.any(axis=1)):
        first, last = found.middles[known[number]], found.middles[known[number + 1]]
        spread[int(np.ceil(first)) : int(last) + 1] += more[number] / 2
    far = np.flatnonzero((more > WINDOW * scale).any(axis=1))
    return [int(one) for one in found.frames[known[far] + 1]]


def _warn_of_jumps(frames: list[int]) -> None:
    if frames:
        frames = sorted(frames)
        warn_caller(
            f"the sample jumps near frame {', '.join(map(str, frames[:3]))}"
            f"{' and others' if len(frames) > 3 else ''}: the drift there is uncertain for some "
            "frames, as many as a segment has or fewer; shorter ones, segment=…, show the frame "
            "better"
        )


def _warn_of_motion(checked: Checked) -> None:
    """Warn of motion within segments that is not small."""
    if checked.beside > _TOLD:
        frames = checked.found.frames
        length = (frames[-1] - frames[0]) / len(checked.found.middles)
        moves = checked.beside * float(checked.found.errors[0])
        warn_caller(
            f"the sample moves by about {moves:.2g} px r.m.s. within segments of {length:.0f} "
            "frames: the drift is their mean, and errors are as large; shorter ones, segment=…, "
            "may follow it"
        )
