"""Link spots: those of two channels to pairs, and those of successive frames to tracks."""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.cpu.layouts import PairedSpots
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address
from ..files.table import Step
from ..models import number_checks
from ..models.columns import CHANNEL, TRACK
from ..results.fit_parts import refuse_parts
from ..results.repeats import duplicates, duplicates_and_repeats
from ..results.spot_fits import SpotFits, on_host
from .depth import places_in_pixels

#: The track number of spots that are in none.
NO_TRACK = -1

#: Largest distance in pixels: no frame is as wide, and larger squares overflow.
_FARTHEST = 1e6
#: Numbers of frames are below this, so that real numbers have all of them.
_MOST = 2**53
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Index of a missing partner.
ALONE = -1
#: Largest mean number of partners within the radius; few spots may have more in total.
_MOST_PARTNERS, _FEW = 50, 1_000_000


def link_spots(
    fits: SpotFits,
    max_distance: float,
    *,
    memory: int = 0,
    least_frames: int = 1,
    z_scale: float | None = None,
) -> SpotFits:
    """Link fits into tracks by trackpy, and return them with a column ``track``.

    Parameters
    ----------
    fits : SpotFits
        Fits of a movie, or of several: each file and each index along other leading axes is linked
        separately. Only good fits are linked, or spots that another program has found, that have a
        position.
    max_distance : float
        Largest movement of a spot from one frame to the next in pixels.
    memory : int, default 0
        Number of frames in which a spot may be missing.
    least_frames : int, default 1
        Shortest track in spots; shorter ones are discarded.
    z_scale : float, optional
        Pixels per unit of z; by default that of the voxel size of fits in stacks, and 0 otherwise,
        which leaves z out.

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
        If the fits are not of a movie, a number is out of range, z is in planes whose distance is
        unknown, or too many spots are too close to be linked.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import fit_at, link_spots, simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=1, photons=5000, seed=2)
    >>> place = truth[["y", "x"]].iloc[0]
    >>> movie[1] = np.random.default_rng(2).poisson(movie[0])
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
    number_checks.number("max_distance", max_distance, 0, above=True, unit="pixels")
    if max_distance >= _FARTHEST:
        raise ValueError(f"max_distance must be below {_FARTHEST:g} px; got {max_distance!r}")
    memory = number_checks.whole("memory", memory)
    least_frames = number_checks.whole("least_frames", least_frames, 1)
    places = places_in_pixels(fits, z_scale)
    once = fits.accepted & ~duplicates(fits)
    rows = np.flatnonzero(once & np.isfinite(places).all(axis=1))
    number = np.full(len(fits), NO_TRACK, np.int64)
    if len(rows):
        number[rows] = _linked(fits, rows, places[rows], max_distance, memory)
    counts = np.bincount(number[rows], minlength=1) if len(rows) else np.zeros(1, np.int64)
    short = (number >= 0) & (counts[number] < least_frames)
    number[short] = NO_TRACK
    # Renumber without gaps, in the order in which tracks begin.
    number[number >= 0] = np.unique(number[number >= 0], return_inverse=True)[1]
    arguments = {"max_distance": max_distance, "memory": memory, "least_frames": least_frames}
    step = Step("link_spots", arguments | ({} if z_scale is None else {"z_scale": z_scale}))
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


def measured_once(fits: SpotFits) -> NDArray[np.bool_]:
    """Return which rows count, so that each measurement does once; warn of the others.

    Others are duplicates, and those of frames that were stored again.
    """
    if "frame" not in fits:
        return ~duplicates(fits)
    duplicate, repeated = duplicates_and_repeats(fits, movies_of(fits), frames_of(fits))
    if count := int(np.count_nonzero(repeated & ~duplicate)):
        warn_caller(
            f"{count:,} of {len(fits):,} rows are the same, to the bit, as one in the frame "
            "before, as where frames were stored twice: what they measure counts once"
        )
    return ~(duplicate | repeated)


def _linked(
    fits: SpotFits, rows: NDArray[np.int64], places: Floats, max_distance: float, memory: int
) -> NDArray[np.int64]:
    """Return the track numbers of some rows, whose positions are in pixels."""
    try:
        import trackpy
    except ImportError:
        raise ImportError(
            'linking needs trackpy, which is missing: pip install "napari-spotfit[tracking]"'
        ) from None
    frame, movie = frames_of(fits)[rows], movies_of(fits[rows])
    order = np.lexsort((frame, movie))
    places = places[order]
    # Tracks span no more frames without spots than the memory, nor two movies: more are not needed.
    steps = np.minimum(np.diff(frame[order]), memory + 2)
    steps[np.diff(movie[order]) > 0] = memory + 2
    frame = np.concatenate([[0], np.cumsum(steps)])
    ends = np.searchsorted(frame, np.arange(frame[-1] + 2))
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


def common_frames(*channels: SpotFits) -> list[Integers]:
    """Return a number for each spot that identifies its frame and file.

    A frame is an index along all leading axes except that of channels.

    Raises
    ------
    ValueError
        If the channels have different leading axes.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie
    >>> fits = localize(simulate_movie(3, shape=(64, 64), seed=1)[0])
    >>> one, other = common_frames(fits, fits[fits.frame == 2])
    >>> bool((one[fits.frame == 2] == other).all())
    True
    """
    names = [leading_of(fits) for fits in channels]
    if len(set(names)) > 1:
        axes = " and ".join(", ".join(one) or "none" for one in names)
        raise ValueError(
            f"the channels must be of images with the same leading axes; they have {axes}"
        )
    ends = np.cumsum([len(fits) for fits in channels])[:-1]
    number = np.zeros(sum(map(len, channels)), np.int64)
    for name in names[0]:
        values = np.concatenate([fits.to_host().columns[name] for fits in channels])
        if values.dtype.kind not in "iu":
            values = np.unique(values.astype(str), return_inverse=True)[1]
        low, high = (int(end) for end in (values.min(initial=0), values.max(initial=0)))
        # Mixed radix: numbers stay small with many axes.
        number = number * (high - low + 1) + (values - low)
        if number.max(initial=0) > np.iinfo(np.int32).max:
            number = np.unique(number, return_inverse=True)[1].astype(np.int64)
    return np.split(number, ends)


def leading_of(fits: SpotFits) -> tuple[str, ...]:
    """Return the columns that identify a spot's frame: the file, and all leading axes."""
    names = (name for name in fits.index_names if name != CHANNEL)
    return (*(["file"] if "file" in fits else []), *names)


def split_channels(fits: SpotFits) -> dict[int, SpotFits]:
    """Return the fits of each channel by its number, without an index of channels.

    Examples
    --------
    >>> from napari_spotfit import SpotFits
    >>> columns = {"channel": np.array([0, 2, 2]), "y": np.arange(3.0), "x": np.arange(3.0)}
    >>> {number: len(own) for number, own in split_channels(SpotFits(columns, ["channel"])).items()}
    {0: 1, 2: 2}
    """
    fits = on_host(fits)
    if CHANNEL not in fits:
        raise ValueError('these fits have no column channel: fit with channel="all"')
    index = [name for name in fits.index_names if name != CHANNEL]
    whole = SpotFits(fits.columns, index, fits.settings, units=fits.units, history=fits.history)
    return {int(number): whole[fits.channel == number] for number in np.unique(fits.channel)}


def of_one_channel(fits: SpotFits) -> SpotFits:
    """Return fits of one channel without an index of channels; ValueError if there are several."""
    fits = on_host(fits)
    if CHANNEL not in fits:
        return fits
    channels = split_channels(fits)
    if len(channels) > 1:
        raise ValueError(
            f"these fits are of the channels {', '.join(map(str, channels))}: choose one, "
            f"fits[fits.channel == {next(iter(channels))}]"
        )
    index = [name for name in fits.index_names if name != CHANNEL]
    empty = fits.to_host().columns
    return next(
        iter(channels.values()),
        SpotFits(empty, index, fits.settings, units=fits.units, history=fits.history),
    )


def partners(a: Floats, b: Floats, a_frame: Integers, b_frame: Integers, radius: float) -> Integers:
    """Return the row of b that each spot of a is paired with, -1 for none.

    Pairs are in the same frame and within the radius. They minimise the sum of squared distances,
    in which a spot without a partner counts as one at the radius.

    Parameters
    ----------
    a, b : ndarray of float64, shape (n, 2 or 3)
        Positions; those that are not finite have no partner. Fastest if sorted by :func:`in_order`.
    a_frame, b_frame : ndarray of int64, shape (n,)
        The frame of each spot.
    radius : float
        The largest distance.

    Raises
    ------
    ValueError
        If spots are so close to each other that pairs are ambiguous.

    Examples
    --------
    >>> a, b = np.array([[0.0, 0.0], [0.0, 2.0]]), np.array([[0.0, 1.1], [0.0, 2.9]])
    >>> frame = np.zeros(2, np.int64)
    >>> partners(a, b, frame, frame, 1.5), partners(a, b, frame, frame, 1.0)
    (array([0, 1]), array([-1,  1]))
    """
    found = np.full(len(a), ALONE, np.int64)
    a_rows, b_rows = (np.flatnonzero(np.isfinite(one.sum(axis=1))) for one in (a, b))
    if not (len(a_rows) and len(b_rows)):
        return found
    places = []
    for one, rows in ((a, a_rows), (b, b_rows)):
        place = np.zeros((len(rows), 3))
        place[:, 3 - one.shape[1] :] = one[rows] / radius
        places.append(place)
    groups = [
        np.ascontiguousarray(frame[rows], np.int64)
        for frame, rows in ((a_frame, a_rows), (b_frame, b_rows))
    ]
    counts = len(a_rows), len(b_rows)
    lists = _lists(counts[1])
    heads, first = np.empty(lists, np.int64), np.empty(counts[0] + 1, np.int64)
    own, of_b, numbers = (
        np.empty(counts[0], np.int64),
        np.empty((5, counts[1]), np.int64),
        np.empty((2, counts[1])),
    )
    given = PairedSpots(
        *map(address, (*places, *groups)), *counts, int(a.shape[1] < 3), lists,
        min(_lists(_largest(groups[1])), lists),
        *map(address, (heads, of_b[0], first)), 0, 0,
        *map(address, (own, of_b[1], *numbers, *of_b[2:])),
    )  # fmt: skip
    most = max(_MOST_PARTNERS * sum(counts), _FEW)
    room, total = 0, sum(counts)
    while total > room:  # again, if there are more pairs than usual
        room, candidates, costs = total, np.empty(total, np.int64), np.empty(total)
        given.partners, given.costs = address(candidates), address(costs)
        total = load().functions.spotfit_find_partners(ctypes.byref(given), room, most)
    if total < 0:
        raise ValueError(
            f"more than {_MOST_PARTNERS} spots of the other channel are within {radius:g} px of a "
            "spot on average: pairs are ambiguous; choose a smaller radius"
        )
    load().functions.spotfit_pair_spots(ctypes.byref(given))
    found[a_rows] = np.where(own == ALONE, ALONE, b_rows[own])
    return found


def _lists(count: int) -> int:
    """Return the smallest power of two that is at least twice the number of spots."""
    return 1 << (2 * count - 1).bit_length()


def _largest(frame: Integers) -> int:
    """Return an upper bound of the number of spots in a frame."""
    steps = np.diff(frame)
    if (steps < 0).any():
        return len(frame)
    firsts = np.concatenate([[0], np.flatnonzero(steps) + 1, [len(frame)]])
    return int(np.diff(firsts).max())


def in_order(places: Floats, frame: Integers, side: float) -> Integers:
    """Return the rows with positions, sorted by frame and line, so that neighbours are adjacent.

    Pairing is several times faster in this order.
    """
    rows = np.flatnonzero(np.isfinite(places.sum(axis=1)))
    lines = np.floor(places[rows, -2:] / side)
    lines -= lines.min(axis=0, initial=0)
    key = frame[rows] * (lines[:, 0].max(initial=0) + 1) + lines[:, 0]
    key = key * (lines[:, -1].max(initial=0) + 1) + lines[:, -1]
    return rows[np.argsort(key)]
