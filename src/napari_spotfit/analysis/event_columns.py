"""Join the columns of fits that are one event."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.cpu.layouts import JoinedColumn, JoinRule
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address
from ..models.columns import DETECTIONS, STDERR, describe
from ..results.spot_fits import SpotFits
from .event_links import Links
from .tracks import frames_of

Floats = NDArray[np.float64]

#: Fits whose columns are joined sooner than threads begin.
_FEW = 1 << 16
#: Columns of angles, which come again after half a turn.
_ANGLES = ("angle",)


def truncated_events(frames: NDArray[np.int64], links: Links) -> NDArray[np.bool_]:
    """Return which events begin or end where their movie does, of fits in the order of links."""
    movie = np.searchsorted(links.ends, links.first, side="right") - 1
    starts, stops = frames[links.ends[:-1]], frames[links.ends[1:] - 1]
    found: NDArray[np.bool_] = (frames[links.first] == starts[movie]) | (
        frames[links.last] == stops[movie]
    )
    return found


def joined_columns(
    fits: SpotFits, links: Links, summed: tuple[str, ...], truncated: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return the columns of events; those that are summed have names, `truncated` is known."""
    columns, count = fits.columns, len(links.first)
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

    threads.in_pieces(join, len(groups), 1, 1 if len(links.event) < _FEW else None)
    if "flags" in columns:
        flags = columns["flags"][links.rows]
        flagged = np.flatnonzero(flags)
        np.bitwise_or.at(made["flags"], links.event[flagged], flags[flagged])
    frames = frames_of(fits)[links.rows]
    detections = np.bincount(links.event, minlength=count)
    lasting = frames[links.last] - frames[links.first] + 1
    with np.errstate(all="ignore"):
        scatter /= len(places) * (detections - 1)
    known = all(name + STDERR in columns for name in places)
    return made | {
        DETECTIONS: detections,
        "n_frames": lasting,
        "dark_frames": lasting - detections,
        "scatter_chi_square": np.where(known, scatter, np.nan).astype(np.float32),
        "truncated": truncated,
    }


def event_means(fits: SpotFits, links: Links, axes: Sequence[str]) -> dict[str, Floats]:
    """Return the position and standard errors of each event along axes."""
    made: dict[str, Floats] = {}

    def join(first: int, last: int) -> None:
        for axis in axes[first:last]:
            made.update(_column(axis, fits, links, JoinRule.JOIN_WEIGHTED, None))

    threads.in_pieces(join, len(axes), 1, 1 if len(links.event) < _FEW else None)
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
