"""Merge the fits of a molecule in successive frames to one event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..files.table import Step
from ..models import number_checks
from ..models.columns import CHANNEL, DETECTIONS, PARENT, STDERR, STOP
from ..results.fit_parts import FitParts, gathered, refuse_iterator
from ..results.repeats import duplicates_and_repeats
from ..results.spot_fits import SpotFits
from .events import Links, joined_columns, link_events, truncated_events
from .linking import frames_of, movies_of

Integers = NDArray[np.int64]

#: Columns that events depend on.
_NEEDED = (
    "file", CHANNEL, "frame", "y", "x", "z", *(axis + STDERR for axis in "yxz"), STOP, DETECTIONS,
)  # fmt: skip
#: Standard errors in pixels above which they are likely to be in nm.
_LARGE_ERROR = 2.0
#: Columns that are added up, and those that Picasso adds up.
_SUMMED: dict[str, tuple[str, ...]] = {
    "nearest": ("photons",), "picasso": ("photons", "background"),
}  # fmt: skip


@overload
def merge_blinks(
    fits: SpotFits,
    max_dark_frames: int = ...,
    radius: float | None = ...,
    members: Literal[False] = ...,
    rule: Literal["nearest", "picasso"] = ...,
) -> SpotFits: ...
@overload
def merge_blinks(
    fits: SpotFits,
    max_dark_frames: int = ...,
    radius: float | None = ...,
    members: Literal[True] = ...,
    rule: Literal["nearest", "picasso"] = ...,
) -> tuple[SpotFits, SpotFits]: ...
@overload
def merge_blinks(
    fits: Sequence[SpotFits] | FitParts,
    max_dark_frames: int = ...,
    radius: float | None = ...,
    members: Literal[False] = ...,
    rule: Literal["nearest", "picasso"] = ...,
) -> FitParts: ...
def merge_blinks(
    fits: SpotFits | Sequence[SpotFits] | FitParts,
    max_dark_frames: int = 1,
    radius: float | None = None,
    members: bool = False,
    rule: Literal["nearest", "picasso"] = "nearest",
) -> SpotFits | tuple[SpotFits, SpotFits] | FitParts:
    """Merge fits of the same molecule in successive frames to events.

    A fit continues an event if each is the nearest to the other, and they are within the gate, or
    the radius. Shorter gaps are closed first. The position of an event is the mean of its fits,
    weighted by their standard errors. Subtract drift before, if it is large within an event.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits of a movie, or of several: files, channels and positions are merged separately. Only
        good fits are merged, or spots that another program has found; others are left out. Parts,
        such as of :func:`load_parts`, need not fit in memory, which frames and positions do; no
        iterator, as they are read twice and more.
    max_dark_frames : int, default 1
        Largest number of successive frames within an event in which the molecule is not seen.
    radius : float, optional
        Largest distance between a fit and its event in pixels. By default it follows from the
        standard errors of both, so that one fit in 1000 is lost: √(−2 ln 0.001) · √(σ_event² +
        σ_fit²) in a plane.
    members : bool, default False
        Return the fits, too, with a column ``parent``.
    rule : {"nearest", "picasso"}
        ``"picasso"`` gives the events of Picasso's *Link*: a fit goes to the first event that
        begins within the radius, compared with its last fit; backgrounds are added up, and events
        that begin in frame 0 are left out.

    Returns
    -------
    SpotFits
        One row for each event, in order of its first frame, which is ``frame``. Photons are added
        up, positions and shapes averaged by their standard errors, and other numbers averaged; what
        has no mean is that of the first fit. Columns are added: ``n_detections``, ``n_frames``,
        ``dark_frames``, ``scatter_chi_square`` and ``truncated``.
    iterable of SpotFits
        The same of parts: each event is in the part in which it ends.
    SpotFits
        If `members` is set: all fits with the row of their event as ``parent``, -1 for none.

    Raises
    ------
    ValueError
        If the fits are not of a movie, have no standard errors and no radius is given, were merged
        before, or are so close together that events are ambiguous.

    Warns
    -----
    UserWarning
        If standard errors of some fits are unknown, so that they stay single, or no fit is good.
        If fits are the same to the bit as those of the frame before, as where frames were stored
        twice: a measurement counts once in what is averaged and added up. If rows are there twice.
        If standard errors are so large that they seem to be in nm.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import localize, merge_blinks, simulate_movie
    >>> movie, truth = simulate_movie(1, shape=(64, 64), spots_per_frame=4, photons=5000, seed=3)
    >>> frames = np.random.default_rng(3).poisson(np.repeat(movie, 3, axis=0))
    >>> fits = localize(frames, sigma=1.3)
    >>> events = merge_blinks(fits)
    >>> events.n_detections.tolist() == [3] * (len(fits) // 3)
    True
    """
    step = Step(
        "merge_blinks", {"max_dark_frames": max_dark_frames, "radius": radius, "rule": rule}
    )
    refuse_iterator(fits)
    whole = gathered(fits, _NEEDED)
    _check(whole, max_dark_frames, radius, rule)
    movie = movies_of(whole)
    duplicate, repeated = _not_new(whole, movie, rule)
    linked = whole
    if duplicate.any():  # those without a position are in no event
        linked = whole.with_columns(whole.columns | {"y": np.where(duplicate, np.nan, whole.y)})
    links = link_events(linked, max_dark_frames, radius, greedy=rule == "picasso", part=movie)
    if len(whole) and not len(links.event):
        warn_caller(f"none of these {len(whole)} fits is good and has a position: no events")
    truncated = truncated_events(frames_of(whole)[links.rows], links)
    if not isinstance(fits, SpotFits):
        if members:
            raise ValueError(
                "members=True needs a table; of parts, there are events only: leave it out, or "
                "join the parts if they fit in memory, SpotFits.concatenate(list(parts))"
            )
        rows = np.arange(len(whole)) if isinstance(links.rows, slice) else links.rows
        known = _EventsOfParts(rows, links, truncated, repeated, step)
        return FitParts(fits, known.merged)
    columns = joined_columns(whole, links, _SUMMED[rule], truncated, repeated)
    merged = whole.with_columns(columns, step)
    parent = links.event
    if rule == "picasso":
        kept = merged.columns["frame"] > 0
        merged = merged[kept]
        parent = np.where(kept, np.cumsum(kept) - 1, -1)[parent]
    if not members:
        return merged
    of_row = np.full(len(whole), -1, np.int64)
    of_row[links.rows] = parent
    return merged, whole.with_columns(whole.columns | {PARENT: of_row})


class _EventsOfParts:
    """Which rows of parts are which events, to merge them part by part.

    Parameters
    ----------
    rows : ndarray of int64
        The good fits of all parts that belong to events, in the order of links.
    links, truncated
        Their events.
    repeated : ndarray of bool
        Which of all good fits measure nothing new.
    step : Step
        The step in the history.
    """

    def __init__(
        self, rows: Integers, links: Links, truncated: NDArray[np.bool_],
        repeated: NDArray[np.bool_], step: Step,
    ):  # fmt: skip
        count = len(repeated)
        self._event = np.full(count, -1, np.int64)
        self._event[rows] = links.event
        self._place = np.zeros(count, np.int64)
        self._place[rows] = np.arange(len(rows))
        last_row = np.full(len(truncated), -1, np.int64)
        np.maximum.at(last_row, links.event, rows)
        # Of each row the last one of its event, and none of those without.
        self._last = np.full(count, count, np.int64)
        self._last[rows] = last_row[links.event]
        self._truncated, self._repeated, self._step = truncated, repeated, step

    def merged(self, parts: Iterable[SpotFits]) -> Iterator[SpotFits]:
        """Yield the events that end in each part."""
        waiting: SpotFits | None = None
        rows, end = np.zeros(0, np.int64), 0
        for part in parts:
            part = part.to_host()
            good = part[part.accepted]
            rows = np.concatenate([rows, np.arange(end, end + len(good))])
            end += len(good)
            if end > len(self._event):
                raise ValueError("there are more good fits in the parts than when they were linked")
            table = good if waiting is None else SpotFits.concatenate([waiting, good])
            event = self._event[rows]
            over = self._last[rows] < end
            yield self._events(table[over], rows[over])
            waits = (event >= 0) & ~over
            waiting, rows = table[waits], rows[waits]

    def _events(self, fits: SpotFits, rows: Integers) -> SpotFits:
        """Return the events that some fits are."""
        order = np.argsort(self._place[rows])
        numbers, first, event = np.unique(
            self._event[rows[order]], return_index=True, return_inverse=True
        )
        last = len(event) - 1 - np.unique(event[::-1], return_index=True)[1]
        links = Links(order, event, first, last, np.array([0, len(event)]))
        rule = str(self._step.arguments["rule"])
        columns = joined_columns(
            fits, links, _SUMMED[rule], self._truncated[numbers], self._repeated[rows]
        )
        merged = fits.with_columns(columns, self._step)
        return merged[columns["frame"] > 0] if rule == "picasso" else merged


def _not_new(
    fits: SpotFits, movie: Integers, rule: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which fits are duplicates, and which measure nothing new; warn of them.

    Repeats count by Picasso's rule, and where there are no standard errors, as of simulated
    molecules.
    """
    duplicate, found = duplicates_and_repeats(fits, movie, frames_of(fits))
    found &= fits.accepted & np.all(["y" + STDERR in fits, "x" + STDERR in fits])
    count = int(np.count_nonzero(found))
    if count:
        counted = "counts once in events"
        if rule == "picasso":
            counted = "counts several times by Picasso's rule"
        warn_caller(
            f"{count:,} of {len(fits):,} fits are the same, to the bit, as one in the frame "
            f"before, as where frames were stored twice: what they measure {counted}"
        )
    return duplicate, found & (rule != "picasso")


def _check(fits: SpotFits, max_dark_frames: int, radius: float | None, rule: str) -> None:
    """Raise a ValueError that says why fits cannot be merged like this."""
    if "frame" not in fits:
        raise ValueError(
            "these fits have no column frame: blinks are merged over the frames of a movie"
        )
    if DETECTIONS in fits:
        raise ValueError("these are events, which were merged before: merge the fits themselves")
    number_checks.whole("max_dark_frames", max_dark_frames)
    number_checks.one_of("rule", rule, ("nearest", "picasso"))
    if radius is None:
        if rule == "picasso":
            raise ValueError("Picasso's rule needs a radius in pixels: pass radius=…")
        for name in ("y" + STDERR, "x" + STDERR):
            if name not in fits:
                raise ValueError(
                    f"these fits have no column {name}, from which the distance of fits of one "
                    "molecule follows: fit with errors=True, or pass radius=… in pixels"
                )
        errors = fits.columns["y" + STDERR]
        errors = errors[np.isfinite(errors)]
        if len(errors) and (usual := float(np.median(errors))) > _LARGE_ERROR:
            warn_caller(
                f"half of the standard errors are above {usual:.3g} px, so that fits of different "
                "molecules are merged: errors are in pixels, divide nm by the size of a pixel; or "
                "pass radius=… in pixels"
            )
    else:
        number_checks.number("radius", radius, 0, above=True, unit="pixels")
