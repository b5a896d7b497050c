"""Link spots of successive frames into tracks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..files.table import Step
from ..models.columns import CHANNEL, TRACK
from ..results.fit_parts import refuse_parts
from ..results.spot_fits import SpotFits, on_host

#: The track number of spots that are in none.
NO_TRACK = -1

#: Largest distance in pixels: no frame is as wide, and larger squares overflow.
_FARTHEST = 1e6
#: Numbers of frames are below this, so that real numbers have all of them.
_MOST = 2**53


def link_spots(
    fits: SpotFits, max_distance: float, *, memory: int = 0, least_frames: int = 1
) -> SpotFits:
    """Link fits into tracks by trackpy, and return them with a column ``track``.

    Parameters
    ----------
    fits : SpotFits
        Fits of a movie, or of several: each file and each index along other leading axes is linked
        separately. Only good fits are linked, or spots that another program has found.
    max_distance : float
        Largest movement of a spot from one frame to the next in pixels.
    memory : int, default 0
        Number of frames in which a spot may be missing.
    least_frames : int, default 1
        Shortest track in spots; shorter ones are discarded.

    Returns
    -------
    SpotFits
        The same rows with a column ``track``: numbers from 0 on in the order in which tracks begin,
        and -1 for spots in none.

    Raises
    ------
    ImportError
        If trackpy is missing.
    ValueError
        If the fits are not of a movie, a number is out of range, or too many spots are too close
        to be linked.

    Examples
    --------
    >>> from napari_spotfit import fit_at, link_spots, simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=1, photons=5000, seed=2)
    >>> place = truth[["y", "x"]].iloc[0]
    >>> movie[1] = movie[0]
    >>> fits = fit_at(movie, [(0, *place), (1, *place)], sigma=1.3)
    >>> link_spots(fits, max_distance=2.0).track.tolist()
    [0, 0]
    """
    refuse_parts(fits)
    fits = on_host(fits)
    if "frame" not in fits.columns:
        raise ValueError(
            "these fits have no column frame: spots are linked over the frames of a movie"
        )
    if not 0 < max_distance < _FARTHEST:
        raise ValueError(
            f"max_distance must be above 0 and below {_FARTHEST:g} px; got {max_distance!r}"
        )
    if memory < 0 or least_frames < 1:
        raise ValueError(
            f"memory must be 0 or above, and least_frames 1 or above; got {memory!r} and "
            f"{least_frames!r}"
        )
    rows = np.flatnonzero(fits.accepted)
    number = np.full(len(fits), NO_TRACK, np.int64)
    if len(rows):
        number[rows] = _linked(fits, rows, max_distance, memory)
    counts = np.bincount(number[rows], minlength=1) if len(rows) else np.zeros(1, np.int64)
    short = (number >= 0) & (counts[number] < least_frames)
    number[short] = NO_TRACK
    # Renumber without gaps, in the order in which tracks begin.
    number[number >= 0] = np.unique(number[number >= 0], return_inverse=True)[1]
    step = Step(
        "link_spots",
        {"max_distance": max_distance, "memory": memory, "least_frames": least_frames},
    )
    return fits.with_columns({**fits.columns, TRACK: number}, step)


def frames_of(fits: SpotFits) -> NDArray[np.int64]:
    """Return the frame of each fit; ValueError if these are no whole numbers."""
    given = fits.columns["frame"]
    try:
        values = given if given.dtype.kind in "iu" else given.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"the column frame must be of whole numbers; got {given.dtype}") from None
    with np.errstate(invalid="ignore"):
        wrong = ~((values > -_MOST) & (values < _MOST) & (values == np.floor(values)))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"the column frame must have whole numbers between -2**53 and 2**53; got "
            f"{values[row]} in row {row}, and {np.count_nonzero(wrong)} such rows: leave them out"
        )
    return values.astype(np.int64, copy=False)


def leading_axes(fits: SpotFits) -> list[str]:
    """Return the columns of indices along axes before that of frames, such as of positions."""
    index, columns = fits.index_names, fits.columns
    axes = [name for name in columns if name in index or name.startswith("axis_")]
    numbered = [name for name in axes if name.startswith("axis_")]
    if "frame" not in index and len(numbered) > 1:
        # The last of several numbered axes is that of frames.
        axes.remove(numbered[-1])
    frame = columns.get("frame", np.empty(0))
    return [
        name for name in axes
        if name not in ("frame", CHANNEL)
        and (name in index or not np.array_equal(columns[name], frame))
    ]  # fmt: skip


def movies_of(fits: SpotFits) -> NDArray[np.int64]:
    """Return the number of each fit's movie: its file, channel, and indices along leading axes."""
    movie = np.zeros(len(fits), np.int64)
    for name in ("file", CHANNEL, *leading_axes(fits)):
        if name in fits.columns:
            own = fits.columns[name]
            if own.dtype.kind not in "iu":
                own = own.astype(str)
            kinds, numbers = np.unique(own, return_inverse=True)
            movie = np.unique(movie * len(kinds) + numbers, return_inverse=True)[1]
    return movie


def _linked(
    fits: SpotFits, rows: NDArray[np.int64], max_distance: float, memory: int
) -> NDArray[np.int64]:
    """Return the track numbers of some rows."""
    try:
        import trackpy
    except ImportError:
        raise ImportError(
            'linking needs trackpy, which is missing: pip install "napari-spotfit[tracking]"'
        ) from None
    frame = frames_of(fits)[rows]
    # Give each movie its own frames, far from those of others.
    frame = frame + movies_of(fits[rows]) * (int(frame.max()) + memory + 2)
    order = np.argsort(frame, kind="stable")
    places = fits.points()[rows[order], len(fits.index_names) :]
    ends = np.searchsorted(frame[order], np.arange(frame.max() + 2))
    by_frame = (places[first:last] for first, last in pairwise(ends))
    trackpy.quiet()
    try:
        linked = trackpy.link_iter(by_frame, max_distance, memory=memory)
        numbers = [np.asarray(one, np.int64) for _, one in linked]
    except trackpy.SubnetOversizeException:
        raise ValueError(
            f"too many spots are within {max_distance:g} px of each other to be linked between "
            "frames; make max_distance smaller"
        ) from None
    found = np.empty(len(rows), np.int64)
    found[order] = np.concatenate(numbers)
    return found
