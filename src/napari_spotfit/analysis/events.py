"""Link the fits of a molecule in successive frames to one event, and join their columns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine import threads
from ..engine.cpu.layouts import EventFits, EventMemory, JoinedColumn, JoinRule
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address
from ..models.columns import DETECTIONS, STDERR, describe
from ..results.spot_fits import SpotFits
from .linking import frames_of, movies_of

Integers = NDArray[np.int64]

#: Probability that a fit is farther from its own event than the gate.
MISSED = 0.001
#: Mean number of fits and events within each other's gates, above which events are ambiguous.
_MOST_PAIRS, _FEW = 50, 1_000_000
#: Least number of fits that a thread links.
_SHARE = 1 << 16
#: Most frames within an event in which the molecule is dark, as each has a list of pairs.
_MOST_DARK = 1_000_000
Floats = NDArray[np.float64]

#: Fits whose columns are joined sooner than threads begin.
_FEW_ROWS = 1 << 16
#: Columns of angles, which come again after half a turn.
_ANGLES = ("angle",)


@dataclass(frozen=True)
class Links:
    """Which fits belong to which event.

    Parameters
    ----------
    rows : ndarray of int64, or slice
        The rows of the fits that belong to events, by part and frame.
    event : ndarray of int64
        The event of each of them.
    first, last : ndarray of int64
        The first and the last of them in each event, as places in `rows`.
    ends : ndarray of int64
        The place in `rows` where each part begins, and the last one ends.
    """

    rows: Integers | slice
    event: Integers
    first: Integers
    last: Integers
    ends: Integers


def link_events(
    fits: SpotFits,
    max_dark_frames: int,
    radius: float | None,
    *,
    greedy: bool = False,
    part: Integers | None = None,
) -> Links:
    """Return which fits belong to which event.

    Parameters
    ----------
    fits : SpotFits
        Fits of one or several movies.
    max_dark_frames, radius
        As for :func:`merge_blinks`.
    greedy : bool
        Whether to link by Picasso's rule.
    part : ndarray of int64, optional
        A number for each fit: events do not span parts. By default movies are parts.
    """
    columns = fits.columns
    known, axes, errors = _linkable(fits, radius)
    part = movies_of(fits) if part is None else part
    frame = frames_of(fits)
    rows = _in_order(known, part, frame)
    parts = part[rows]
    inner = np.flatnonzero(np.diff(parts)) + 1
    ends = np.concatenate([[0], inner, [len(parts)]])[: len(inner) + 1 + (len(parts) > 0)]

    def of(values: NDArray[Any], kind: type) -> NDArray[Any]:
        return np.ascontiguousarray(values[rows], kind)

    frames = of(frame, np.int64)
    dark = _most_dark(frames, ends, max_dark_frames)
    given = [_apart(frames, ends, dark), *(of(columns[axis], np.float64) for axis in axes)]
    given += [of(one, np.float32) for one in errors]
    written = [np.empty(len(parts), np.int64) for _ in range(3)]
    # Threads take several parts at once.
    marks = np.searchsorted(ends, np.arange(0, len(parts), _SHARE))
    shares = np.unique(np.append(ends[marks], len(parts)))
    counts = np.zeros(len(shares) - 1, np.int64)

    def link(begin: int, end: int) -> None:
        for number in range(begin, end):
            own = slice(shares[number], shares[number + 1])
            memory = [one[own] for one in (*given, *written)]
            counts[number] = _link_part(memory, len(axes), dark, radius, greedy)

    threads.in_pieces(link, len(counts), 1, None)
    if (counts < 0).any():
        raise ValueError(
            f"more than {_MOST_PAIRS} fits of successive frames are as near to each other as those "
            "of one molecule, on average: events are ambiguous. Pass a smaller radius=… in pixels"
        )
    event, first, last = written
    before = np.cumsum(counts) - counts
    for number in range(1, len(counts)):  # numbers of each share's own so far
        event[shares[number] : shares[number + 1]] += before[number]
    firsts, lasts = (
        np.concatenate([np.zeros(0, np.int64)] + [
            one[shares[number] : shares[number] + counts[number]] + shares[number]
            for number in range(len(counts))
        ])
        for one in (first, last)
    )  # fmt: skip
    return Links(rows, event, firsts, lasts, ends)


def _most_dark(frames: Integers, ends: Integers, asked: int) -> int:
    """Return the largest number of dark frames that matters; raise a ValueError if it is too large.

    Parameters
    ----------
    frames : ndarray of int64
        The frame of each fit, by part, and rising in each.
    ends : ndarray of int64
        Where parts begin and end.
    asked : int
        The number that is asked for.
    """
    if not len(frames):
        return 0
    dark = min(asked, int((frames[ends[1:] - 1] - frames[ends[:-1]]).max()))
    if dark > _MOST_DARK:
        raise ValueError(
            f"max_dark_frames must be at most {_MOST_DARK} for fits over this many frames; got "
            f"{asked}"
        )
    return dark


def _apart(frames: Integers, ends: Integers, dark: int) -> Integers:
    """Return frames that rise from part to part, too far for an event of two of them."""
    if len(ends) <= 2:
        return frames
    first, last = frames[ends[:-1]], frames[ends[1:] - 1]
    after = np.cumsum(last - first + dark + 2)
    return frames + np.repeat(np.concatenate([[0], after[:-1]]) - first, np.diff(ends))


def _linkable(
    fits: SpotFits, radius: float | None
) -> tuple[NDArray[np.bool_], list[str], list[NDArray[Any]]]:
    """Return which fits belong to events, the axes to compare, and standard errors along these.

    Errors that are not known are NaN; with a radius, there are none if they are not known of all.
    """
    columns = fits.columns
    axes = [axis for axis in ("y", "x", "z") if axis in "yx" or axis + STDERR in columns]
    known = fits.accepted & np.isfinite(columns["y"]) & np.isfinite(columns["x"])
    has_errors = known.copy()
    for axis in axes:
        error = columns.get(axis + STDERR, np.zeros(len(fits)))
        has_errors &= np.isfinite(error) & (error > 0) & np.isfinite(columns[axis])
    single = np.count_nonzero(known) - np.count_nonzero(has_errors)
    if radius is not None and single:
        return known, ["y", "x"], []
    errors = [columns[axis + STDERR] for axis in axes]
    if single:
        warn_caller(
            f"{single} of {np.count_nonzero(known)} fits have no standard errors above 0 and stay "
            "single: pass radius=… in pixels to merge them, too"
        )
        errors = [np.where(has_errors, error, np.nan) for error in errors]
    return known, axes, errors


def _in_order(known: NDArray[np.bool_], part: Integers, frame: Integers) -> Integers | slice:
    """Return the rows of known fits by part and frame; a slice if all are in this order."""
    rows: Integers | slice = slice(None) if known.all() else np.flatnonzero(known)
    apart = np.diff(part[rows])
    if not ((apart < 0) | ((np.diff(frame[rows]) < 0) & (apart == 0))).any():
        return rows
    rows = np.flatnonzero(known)
    return rows[np.lexsort((frame[rows], part[rows]))]


def _link_part(
    memory: list[NDArray[Any]], axes: int, max_dark: int, radius: float | None, greedy: bool
) -> int:
    """Link the fits of some parts; return the number of events, or -1 if they are ambiguous.

    Parameters
    ----------
    memory : list of ndarray
        Frames, positions and standard errors, if known, along each axis; and what is written:
        the events, and the first and last row of each.
    axes : int
        Number of axes.
    max_dark, radius, greedy
        As for :func:`link_events`.
    """
    from scipy.special import chdtri  # here, as SciPy takes its time to import

    functions, frames = load().functions, memory[0]
    places, errors = memory[1 : 1 + axes], memory[1 + axes : -3]
    given = EventFits(
        address(frames),
        *(address(places[axis]) if axis < len(places) else 0 for axis in range(3)),
        *(address(errors[axis]) if axis < len(errors) else 0 for axis in range(3)),
        len(frames), max_dark, radius or 0.0,
        float(chdtri(1 if radius else axes, MISSED)), *map(address, memory[-3:]),
    )  # fmt: skip
    if greedy:
        return int(functions.spotfit_link_greedily(ctypes.byref(given)))
    most = int(functions.spotfit_most_in_window(ctypes.byref(given)))
    most_pairs = _MOST_PAIRS * most + _FEW
    numbers, indices = np.empty(11 * most), np.empty(3 * most, np.int64)
    cells = np.empty(6 * most, np.int32)
    heads, pairs = np.empty(given.max_dark + 1, np.int64), np.empty(3 * most_pairs, np.int64)
    distances = np.empty(most_pairs)
    own = EventMemory(
        *map(address, (numbers, indices, cells, pairs, heads)), most_pairs, address(distances)
    )
    return int(functions.spotfit_link_events(ctypes.byref(given), ctypes.byref(own), most))


def truncated_events(frames: NDArray[np.int64], links: Links) -> NDArray[np.bool_]:
    """Return which events begin or end where their movie does, of fits in the order of links."""
    movie = np.searchsorted(links.ends, links.first, side="right") - 1
    starts, stops = frames[links.ends[:-1]], frames[links.ends[1:] - 1]
    found: NDArray[np.bool_] = (frames[links.first] == starts[movie]) | (
        frames[links.last] == stops[movie]
    )
    return found


def joined_columns(
    fits: SpotFits, links: Links, summed: tuple[str, ...], truncated: NDArray[np.bool_],
    repeated: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """Return the columns of events.

    Parameters
    ----------
    fits, links
        Fits, and which events they belong to.
    summed : tuple of str
        The columns that are added up.
    truncated : ndarray of bool
        Which events are.
    repeated : ndarray of bool
        Which fits measure nothing new: they make events longer, but count in nothing else.
    """
    columns, count = fits.columns, len(links.first)
    frames = frames_of(fits)[links.rows]
    lasting = frames[links.last] - frames[links.first] + 1
    dark = lasting - np.bincount(links.event, minlength=count)
    if repeated.any():
        links = _without(links, repeated[links.rows])
    first = links.first if isinstance(links.rows, slice) else links.rows[links.first]
    scatter = np.zeros(count)
    found = {name: _rule(name, values, summed) for name, values in columns.items()}
    rules = {name: rule for name, rule in found.items() if rule is not None}
    averaged = {*rules, *(name + STDERR for name in rules)}
    made = {
        name: values[:0] if name in averaged else values[first] for name, values in columns.items()
    }
    # The positions add to one column.
    places = [name for name in rules if name in fits.axes]
    groups = [places, *([name] for name in rules if name not in places)]

    def join(begin: int, end: int) -> None:
        for name in (name for group in groups[begin:end] for name in group):
            own = scatter if name in places else None
            made.update(_column(name, fits, links, rules[name], own))

    threads.in_pieces(join, len(groups), 1, 1 if len(links.event) < _FEW_ROWS else None)
    if "flags" in columns:
        flags = columns["flags"][links.rows]
        flagged = np.flatnonzero(flags)
        np.bitwise_or.at(made["flags"], links.event[flagged], flags[flagged])
    detections = np.bincount(links.event, minlength=count)
    with np.errstate(all="ignore"):
        scatter /= len(places) * (detections - 1)
    known = all(name + STDERR in columns for name in places)
    return made | {
        DETECTIONS: detections,
        "n_frames": lasting,
        "dark_frames": dark,
        "scatter_chi_square": np.where(known, scatter, np.nan).astype(np.float32),
        "truncated": truncated,
    }


def _without(links: Links, repeated: NDArray[np.bool_]) -> Links:
    """Return links without repeats of a measurement, unless an event begins with one."""
    kept = ~repeated
    kept[links.first] = True
    place = np.cumsum(kept) - 1
    rows = np.flatnonzero(kept) if isinstance(links.rows, slice) else links.rows[kept]
    return Links(
        rows, links.event[kept], place[links.first], place[links.last],
        np.searchsorted(np.flatnonzero(kept), links.ends),
    )  # fmt: skip


def event_means(fits: SpotFits, links: Links, axes: Sequence[str]) -> dict[str, Floats]:
    """Return the position and standard errors of each event along axes."""
    made: dict[str, Floats] = {}

    def join(first: int, last: int) -> None:
        for axis in axes[first:last]:
            made.update(_column(axis, fits, links, JoinRule.JOIN_WEIGHTED, None))

    threads.in_pieces(join, len(axes), 1, 1 if len(links.event) < _FEW_ROWS else None)
    return made


def _rule(name: str, values: NDArray[Any], summed: tuple[str, ...]) -> int | None:
    """Return how values of an event are joined; None if its first fit has them all."""
    if name in summed:
        return JoinRule.JOIN_SUM
    group = describe(name).group
    if values.dtype.kind != "f" or group in ("index", "viewer") or name.endswith(STDERR):
        return None
    return JoinRule.JOIN_WEIGHTED if group in ("position", "shape") else JoinRule.JOIN_MEAN


def _column(
    name: str,
    fits: SpotFits,
    links: Links,
    rule: int,
    scatter: Floats | None,
) -> dict[str, NDArray[Any]]:
    """Return a column of events and that of its standard errors, if fits have it."""
    columns, of_errors = fits.columns, name + STDERR

    def of(values: NDArray[Any]) -> NDArray[Any]:
        kind = np.float32 if values.dtype == np.float32 else np.float64
        return np.ascontiguousarray(values[links.rows], kind)

    values, errors = of(columns[name]), of(columns[of_errors]) if of_errors in columns else None
    first = values[links.first]
    if name in _ANGLES:  # the nearest to the first one's, of those half turns apart
        values = first[links.event] + (values - first[links.event] + 90) % 180 - 90
    if errors is None and rule == JoinRule.JOIN_WEIGHTED:
        rule = JoinRule.JOIN_MEAN
    joined, spread, weights = np.empty((3, len(first)))
    load().functions.spotfit_join_column(
        ctypes.byref(
            JoinedColumn(
                address(values), 0 if errors is None else address(errors), address(links.event),
                len(values), len(first), values.dtype == np.float64,
                errors is not None and errors.dtype == np.float64, rule, address(joined),
                address(spread), 0 if scatter is None or errors is None else address(scatter),
                address(weights),
            )
        )
    )  # fmt: skip
    # Without a known error, as of a fixed width, the first one's value stands for all.
    unknown = np.isnan(joined)
    joined[unknown] = first[unknown]
    kind = columns[name].dtype
    made = {name: joined.astype(kind if kind.kind == "f" else np.float64)}
    if errors is not None:
        spread[unknown] = errors[links.first[unknown]]
        made[of_errors] = spread.astype(columns[of_errors].dtype)
    return made
