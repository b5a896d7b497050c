"""Fits that come in parts, joined while the next ones are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.rois import put_rows
from .spot_fits import SpotFits

#: So much more room is made than the parts until now ask for.
_MARGIN = 1.1


def joined_parts(parts: Iterable[tuple[SpotFits, float]]) -> SpotFits:
    """Return fits that come in parts of one kind as one, in order.

    Each part is put in its place as it comes, into columns whose length is foretold: nothing is
    left to do after the last one. Room that is not needed is never touched.

    Parameters
    ----------
    parts : iterable of (SpotFits, float)
        One at least, each with the share of all work that is done with it.

    Examples
    --------
    >>> from napari_spotfit import fit_spots, simulate_spots
    >>> fits = fit_spots(simulate_spots(100, photons=2000, seed=1)[0])
    >>> both = joined_parts([(fits[:30], 0.5), (fits[30:], 1.0)])
    >>> len(both), (both.x == fits.x).all()
    (100, np.True_)
    """
    first: SpotFits | None = None
    columns: dict[str, NDArray[Any]] = {}
    count = room = 0
    for fits, share in parts:
        own = fits.columns
        if first is None:
            first, columns, count, room = fits, own, len(fits), len(fits)
            continue
        last = count + len(fits)
        if last > room:
            room = max(int(_MARGIN * last / (share or 1.0)), last)
            columns = {name: _longer(column, count, room) for name, column in columns.items()}
        put_rows(own, None, {name: column[count:last] for name, column in columns.items()})
        count = last
    if first is None:
        raise ValueError("there are no fits to join")
    if count == len(first):
        return first
    columns = {name: column[:count] for name, column in columns.items()}
    return SpotFits(columns, first.index_names, first.settings)


def in_frame_order(parts: Sequence[SpotFits], leading: tuple[int, ...]) -> SpotFits:
    """Return fits of some frames each as one, by frame; those of a frame stay in order.

    Parameters
    ----------
    parts : sequence of SpotFits
        One at least.
    leading : tuple of int
        How many frames there are along each leading axis.
    """
    if len(parts) == 1:
        return parts[0]
    joined = joined_parts((part, (i + 1) / len(parts)) for i, part in enumerate(parts))
    if not leading:
        return joined
    index = [joined.columns[name] for name in joined.index_names]
    frame = np.ravel_multi_index(index, leading)
    return joined[np.argsort(frame, kind="stable")]


def _longer(column: NDArray[Any], count: int, room: int) -> NDArray[Any]:
    """Return a column with more room behind its first numbers."""
    longer = np.empty(room, column.dtype)
    longer[:count] = column[:count]
    return longer
