"""Cut a movie into segments, in which blinks count once, for the estimate of drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..models.columns import STDERR
from ..results.spot_fits import SpotFits
from .depth import depth_in_nm
from .drift_overlap import WINDOW
from .drift_ties import Pieces
from .drift_within import Motion
from .events import event_means, link_events
from .linking import frames_of, measured_once
from .summary import in_field, taken

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]
Groups = NDArray[np.int32]
Columns = Mapping[str, NDArray[Any]]

#: Frames of a segment, and least number of localisations in it, where no other is asked for.
_FRAMES, _ENOUGH = 100, 500
#: Fits whose blinks are merged at once by a thread, and most threads, as each needs memory.
_BLOCK, _MERGERS = 1 << 16, 8
#: Least number of localisations from which a segment's drift is known.
LEAST = 10


class Rows(NamedTuple):
    """The localisations of a movie, in the order of frames."""

    columns: Columns  # of all fits
    axes: list[str]
    rows: Integers
    frame: Integers
    starts: Integers | None = None  # first frame of each piece between jumps
    steps: Floats | None = None  # what is subtracted in each piece along each axis


class Segments(NamedTuple):
    """Events of a movie by segment."""

    places: Singles  # y, x and maybe z from 0 on, in units of their errors, shape (axes, n)
    errors: Floats  # the usual one along each axis
    segment: Groups
    half: NDArray[np.bool_]  # in which half of the field
    middles: Floats  # mean frame of each segment
    frames: Integers  # first frame of each segment, and the one after the last
    rows: Rows
    origin: Floats  # the position along each axis that is 0
    divide: tuple[int, float]  # the axis across the halves of the field, and where these meet


class Estimate(NamedTuple):
    """The drift of each segment in pixels (along z, in nm), NaN where unknown, and its errors."""

    drift: Floats
    errors: Floats
    used: Integers  # number of spots
    halves: Floats  # the drift of each half of the field
    scale: float  # scatter of molecules over their errors


class Checked(NamedTuple):
    """The drift of segments, and what it leaves within them."""

    found: Segments
    estimate: Estimate
    motion: Motion
    pieces: Pieces

    @property
    def beside(self) -> float:
        """How much the sample moves beside its drift, in errors of a localisation."""
        return float(np.sqrt(self.motion.square[:2].sum()))

    @property
    def cost(self) -> float:
        """Mean square error of the drift in the plane, in errors² of a localisation."""
        spread = np.square(self.estimate.errors[:, :2] / self.found.errors[:2]).sum(axis=1)
        spread = np.where(np.isfinite(spread), np.minimum(spread, 1), 1)
        return float(spread.mean()) + self.beside**2


def rows_of(fits: SpotFits) -> Rows:
    """Return the localisations that drift is estimated from."""
    columns, axes, heights = fits.columns, ["y", "x"], depth_in_nm(fits)
    if heights is not None:
        columns, axes = columns | heights, ["y", "x", "z"]
    known = fits.accepted & measured_once(fits)
    for axis in axes:
        error = columns[axis + STDERR]
        known &= np.isfinite(columns[axis]) & np.isfinite(error) & (error > 0)
    rows = in_field(columns, np.flatnonzero(known))
    if len(rows) < 2 * LEAST:
        raise ValueError(
            f"{len(rows)} of {len(fits)} fits are good and have standard errors above 0 of "
            f"{', '.join(axes)}, but drift needs thousands"
        )
    frame = taken(frames_of(fits), rows)
    if (frame[1:] < frame[:-1]).any():
        order = np.argsort(frame, kind="stable")
        rows, frame = rows[order], frame[order]
    first = int(frame[0])
    if first == frame[-1]:
        raise ValueError(f"all fits that count are of frame {first}: drift is that of several")
    return Rows(columns, axes, rows, frame)


def segments_of(raw: Rows, length: int | None) -> Segments:
    """Return the events of each segment of a movie, none on both sides of a jump."""
    columns, axes, rows, frame = raw[:4]
    first, span = int(frame[0]), int(frame[-1] - frame[0]) + 1
    length = length or min(max(_FRAMES, round(_ENOUGH * span / len(rows))), max(span // 4, 1))
    count = max(round(span / length), 1)
    frames = first + np.round(np.linspace(0, span, count + 1)).astype(np.int64)
    if raw.starts is not None:
        for start in raw.starts[1:]:
            if count > 1:
                frames[1 + np.abs(frames[1:-1] - start).argmin()] = start
        count = len(frames := np.unique(frames)) - 1
    starts = np.searchsorted(frame, frames)
    places, stderrs, segment, middles = _merged(columns, axes, rows, frame, starts)
    errors = np.array([np.median(one) for one in stderrs])
    errors[:2] = np.sqrt(np.mean(errors[:2] ** 2))
    across, middle = _halves(places, errors)
    half = np.asarray(places[across] > middle)
    origin = np.array([axis.min() for axis in places])
    scaled = [
        ((axis - first) / error).astype(np.float32)
        for axis, first, error in zip(places, origin, errors, strict=True)
    ]
    divide = (across, (middle - origin[across]) / errors[across])
    return Segments(np.stack(scaled), errors, segment, half, middles, frames, raw, origin, divide)


def _merged(
    columns: Columns, axes: list[str], rows: Integers, frame: Integers, starts: Integers
) -> tuple[list[Floats], list[Singles], Groups, Floats]:
    """Return places and errors of events along each axis, their segments, and these' middles.

    Blinks are merged a few segments at a time, so that little of it is in memory.

    Parameters
    ----------
    columns : mapping
        Those of the fits.
    axes : list of str
        The axes along which places are known.
    rows, frame : ndarray of int64
        The rows of the fits, in the order of their frames, and these.
    starts : ndarray of int64
        Which of them is the first of each segment; and their number.
    """
    firsts = np.unique(np.searchsorted(starts, np.arange(0, len(rows), _BLOCK), side="right") - 1)
    firsts = np.append(firsts, len(starts) - 1)
    names = [*axes, *(axis + STDERR for axis in axes)]
    found: list[list[NDArray[Any]]] = [[]] * (len(firsts) - 1)

    def merge(begin: int, end: int) -> None:
        for number in range(begin, end):
            segments = np.arange(firsts[number], firsts[number + 1])
            own = slice(starts[segments[0]], starts[segments[-1] + 1])
            chosen = {name: columns[name][rows[own]] for name in names} | {"frame": frame[own]}
            flags = np.zeros(len(chosen["frame"]), np.uint32)
            fits = SpotFits(chosen | {"flags": flags}, ["frame"])
            part = np.repeat(segments, np.diff(starts[firsts[number] : firsts[number + 1] + 1]))
            links = link_events(fits, 1, None, part=part)
            means = event_means(fits, links, axes)
            middle = (chosen["frame"][links.first] + chosen["frame"][links.last]) / 2
            segment = part[links.first]
            own_segment, count = segment - segments[0], len(segments)
            with np.errstate(all="ignore"):
                middles = np.bincount(own_segment, middle, count) / np.bincount(
                    own_segment, minlength=count
                )
            found[number] = [*(means[name] for name in names), segment.astype(np.int32), middles]

    threads.in_pieces(merge, len(found), 1, min(threads.available(), _MERGERS))
    joined: list[NDArray[Any]] = []
    for number in range(len(names) + 2):
        joined.append(np.concatenate([block[number] for block in found]))
        for block in found:
            block[number] = joined[-1][:0]
    return joined[: len(axes)], joined[len(axes) : -2], joined[-2], joined[-1]


def _halves(places: list[Floats], errors: Floats) -> tuple[int, float]:
    """Return across which axis the field is divided into halves, and where they meet."""
    size = np.array([np.ptp(axis) for axis in places[:2]])
    if (size / errors[:2]).max() < 2 * WINDOW:
        raise ValueError(
            f"all fits are within {size.max():.3g} px of one place, so halves "
            "of the field cannot be compared: use fiducial_drift"
        )
    across = int((size / errors[:2]).argmax())
    return across, float(np.median(places[across]))
