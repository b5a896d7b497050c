"""Parts of a table of fits, in time or by channel, which need not fit in memory together."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.positions import scatter_rows
from ..files.parts import channel_folder
from ..images.channels import Channel
from ..models.columns import CHANNEL, GROUP, GroupCounter, numbered
from ..settings.settings import Settings
from .spot_fits import SpotFits, on_host

if TYPE_CHECKING:
    from concurrent.futures import Future

Columns = Mapping[str, NDArray[Any]]

#: Factor by which allocated columns exceed the length predicted from the parts so far.
_MARGIN = 1.1
#: Number of parts that are copied at a time.
_AT_ONCE = 4


class FitParts:
    """Fits part by part: iterate as often as you like, each time the parts are made again.

    Parameters
    ----------
    source : iterable
        What the parts are made of, such as paths or other parts; no iterator, which ends.
    make : callable
        Makes the parts of it.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits
    >>> from napari_spotfit.results.fit_parts import FitParts
    >>> parts = FitParts([1, 2], lambda counts: (SpotFits({"y": np.zeros(n)}) for n in counts))
    >>> [len(part) for part in parts], [len(part) for part in parts]
    ([1, 2], [1, 2])
    """

    def __init__(self, source: Iterable[Any], make: Callable[[Iterable[Any]], Iterator[SpotFits]]):
        refuse_iterator(source)
        self._source, self._make = source, make

    def __iter__(self) -> Iterator[SpotFits]:
        return self._make(self._source)


def refuse_iterator(parts: Iterable[Any]) -> None:
    """Raise a TypeError if parts can be read but once."""
    if isinstance(parts, Iterator):
        raise TypeError(
            "these parts are read more than once, but an iterator ends: pass load_parts(folder), "
            "or a list of SpotFits"
        )


def refuse_parts(fits: SpotFits | Iterable[SpotFits]) -> None:
    """Raise a TypeError if fits of beads, which must be in one table, are parts."""
    if isinstance(fits, (FitParts, list, tuple, Iterator)):
        raise TypeError(
            f"beads are linked in one table, a SpotFits; got {type(fits).__name__}: choose their "
            "fits from each part first, such as the brightest, "
            "SpotFits.concatenate([part[part.photons > 5000] for part in parts])"
        )


def gathered(fits: SpotFits | Iterable[SpotFits], names: Collection[str]) -> SpotFits:
    """Return fits, or of parts the good ones in memory, with no more columns than are needed.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits, which are returned, or parts.
    names : collection of str
        The columns that are needed beside indices, as far as there are any.
    """
    if isinstance(fits, SpotFits) or not isinstance(fits, Iterable):
        return on_host(fits)
    return SpotFits.concatenate([_few_columns(part, names) for part in fits])


def _few_columns(part: SpotFits, names: Collection[str]) -> SpotFits:
    part = on_host(part)
    good = part.accepted
    kept = {
        name: values[good] for name, values in part.columns.items()
        if name in names or name in part.index_names
    }  # fmt: skip
    return part.with_columns(kept | {"flags": np.zeros(np.count_nonzero(good), np.uint32)})


def joined_parts(parts: Iterable[tuple[SpotFits, float]]) -> SpotFits:
    """Join parts of fits in order.

    Parts are copied in a thread while the next ones are computed, into columns of a predicted
    length. Memory beyond the end is never touched.

    Parameters
    ----------
    parts : iterable of (SpotFits, float)
        At least one, each with the fraction of all work that is done after it.

    Examples
    --------
    >>> from napari_spotfit import fit_spots, simulate_spots
    >>> fits = fit_spots(simulate_spots(100, photons=2000, seed=1)[0])
    >>> both = joined_parts([(fits[:30], 0.5), (fits[30:], 1.0)])
    >>> len(both), (both.x == fits.x).all()
    (100, np.True_)
    """
    first: SpotFits | None = None
    columns: Columns = {}
    count = room = 0
    under_way: deque[Future[None]] = deque()
    apart = GroupCounter()
    for fits, share in parts:
        own = apart(fits.columns)
        if first is None:
            first, columns, count, room = fits, own, len(fits), len(fits)
            continue
        last = count + len(fits)
        if last > room:
            room = max(int(_MARGIN * last / (share or 1.0)), last)
            _wait(under_way, 0)
            columns = _grown(columns, count, room)
        # In a thread: writing to new memory takes longest, as the system allocates it.
        under_way.append(threads.pool().submit(_put, own, columns, count, last))
        _wait(under_way, _AT_ONCE)
        count = last
    _wait(under_way, 0)
    if first is None:
        raise ValueError("there are no fits to join")
    if count == len(first):
        return first
    columns = {name: column[:count] for name, column in columns.items()}
    return SpotFits(columns, first.index_names, first.settings)


def in_frame_order(parts: Sequence[SpotFits], leading: tuple[int, ...]) -> SpotFits:
    """Join fits of different frames, sorted by frame; spots of a frame stay in order.

    Parameters
    ----------
    parts : sequence of SpotFits
        At least one.
    leading : tuple of int
        Number of frames along each leading axis.
    """
    if len(parts) == 1:
        return parts[0]
    joined = joined_parts((part, (i + 1) / len(parts)) for i, part in enumerate(parts))
    if not leading:
        return joined
    index = [joined.columns[name] for name in joined.index_names]
    frame = np.ravel_multi_index(index, leading)
    ordered = joined[np.argsort(frame, kind="stable")]
    if GROUP not in ordered:
        return ordered
    columns = ordered.columns | {GROUP: numbered(ordered.group)}
    return SpotFits(columns, ordered.index_names, ordered.settings)


def in_whole_groups(pieces: Iterator[SpotFits]) -> Iterator[SpotFits]:
    """Redivide pieces so that none splits a group; number the groups of each piece from 0.

    Parameters
    ----------
    pieces : iterator of SpotFits
        At least one; group numbers ascend over all.
    """
    held = next(pieces)
    if GROUP not in held:
        yield held
        yield from pieces
        return

    def counted(rows: slice) -> SpotFits:
        columns = {name: column[rows] for name, column in held.columns.items()}
        columns[GROUP] = numbered(columns[GROUP])
        return SpotFits(columns, held.index_names, held.settings)

    for piece in pieces:
        if not len(piece):
            continue
        joined = {
            name: np.concatenate([column, piece.columns[name]])
            for name, column in held.columns.items()
        }
        held = SpotFits(joined, held.index_names, held.settings)
        last = int(np.searchsorted(held.group, held.group[-1]))
        yield counted(slice(last))
        held = held[last:]
    yield counted(slice(None))


def _wait(under_way: deque[Future[None]], most: int) -> None:
    """Wait until at most ``most`` copies are pending."""
    while len(under_way) > most:
        under_way.popleft().result()


def _grown(columns: Columns, count: int, room: int) -> Columns:
    """Return larger columns with the first rows copied."""
    before = {name: np.ascontiguousarray(column[:count]) for name, column in columns.items()}
    grown = {name: np.empty(room, column.dtype) for name, column in columns.items()}
    _put(before, grown, 0, count)
    return grown


def _put(part: Columns, columns: Columns, first: int, last: int) -> None:
    """Copy all columns of a part in one call, which releases the interpreter."""
    scatter_rows(part, None, {name: column[first:last] for name, column in columns.items()})


def with_channel(fits: SpotFits, channel: Channel) -> SpotFits:
    """Return the fits of one of all channels with its number.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie
    >>> from napari_spotfit.images.channels import Maps
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = with_channel(localize(movie), Channel(movie, Maps(), 2, 1, True))
    >>> fits.index_names, fits.points()[0, 1]
    (('frame', 'channel'), np.float64(2.0))
    """
    if not channel.is_one_of_all:
        return fits
    assert channel.axis is not None
    names = list(fits.index_names)
    names.insert(channel.axis, CHANNEL)
    columns = fits.columns
    number = np.full(len(fits), channel.number, np.int64)
    index = {name: number if name == CHANNEL else columns[name] for name in names}
    return SpotFits(index | columns, names, fits.settings)


def places_with_channel(places: NDArray[np.float64], channel: Channel) -> NDArray[np.float64]:
    """Return places in one of all channels as places in the image."""
    if not channel.is_one_of_all:
        return places
    assert channel.axis is not None
    assert channel.number is not None
    return np.insert(places, channel.axis, channel.number, axis=1)


def common_settings(found: Iterable[Settings | None]) -> Settings | None:
    """Return settings that hold for the fits of all channels: what differs is left open."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    first = known[0]
    left_open = {
        name: getattr(Settings(), name)
        for name in ("sigma", "roi_size", "noise")
        if any(getattr(one, name) != getattr(first, name) for one in known)
    }
    return first.changed(**left_open)


def resume_in(
    folder: str | os.PathLike[str] | None, channel: Channel
) -> str | os.PathLike[str] | None:
    """Return the folder of the parts of a channel: its own if it is one of all."""
    if folder is None or not channel.is_one_of_all:
        return folder
    assert channel.number is not None
    return channel_folder(Path(folder), channel.number)


def joined_channels(parts: Iterable[SpotFits]) -> SpotFits:
    """Return the fits of all channels, those of each after those of the one before."""
    held = list(parts)
    if len(held) == 1:
        return held[0]
    joined = SpotFits.concatenate(held)
    return SpotFits(
        joined.columns, joined.index_names, common_settings(one.settings for one in held)
    )
