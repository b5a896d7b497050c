"""Fit the crowds of a block in parts of a few frames, each by one thread, and join their rows.

Between the calls of the library there are many short steps, which one thread does. Parts keep the
other threads busy meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..models.columns import GROUP
from . import threads
from .backend import Columns, Positions
from .positions import POSITION

#: Spots of a part that are fitted together, at least, as a part takes a thousand steps, however few
#: they are; and parts for each thread, at most.
_LEAST, _OF_EACH = 1000, 2


def parts_of_crowds(
    positions: Positions, takes_part: NDArray[np.bool_], workers: int | None
) -> list[slice]:
    """Return positions in parts of whole frames that take about as long; one for few of them.

    Parameters
    ----------
    positions : Positions
        All positions of a block.
    takes_part : ndarray of bool
        Which of them may be fitted together with others.
    workers : int or None
        How many threads share the parts; None: all.

    Examples
    --------
    >>> positions = Positions(np.zeros((4000, 2)), np.repeat(np.arange(8), 500))
    >>> [part.stop for part in parts_of_crowds(positions, np.ones(4000, bool), 2)]
    [1000, 2000, 3000, 4000]
    >>> parts_of_crowds(positions, np.ones(4000, bool), 1)
    [slice(0, 4000, None)]
    """
    count, each = len(takes_part), workers or threads.available()
    before, frames = np.cumsum(takes_part), positions.frames
    parts = min(int(before[-1]) // (_LEAST * each), _OF_EACH) * each
    if each == 1 or parts == 0:
        return [slice(0, count)]
    last = np.searchsorted(before, before[-1] * np.arange(1, parts) / parts)
    ends = np.unique([0, *np.searchsorted(frames, frames[last], "right"), count])
    if len(ends) <= parts:  # few frames, which threads would not share evenly
        return [slice(0, count)]
    return [slice(*part) for part in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def fit_in_parts(
    fit: Callable[[slice], Columns], parts: Sequence[slice], workers: int | None
) -> Columns:
    """Return the columns of parts of positions that threads share, with their groups.

    Parameters
    ----------
    fit : callable
        Returns the columns of a part, whose groups and positions are numbered from 0 on.
    parts : sequence of slice
        The parts.
    workers : int or None
        How many threads share them.
    """
    made: list[Columns] = [{}] * len(parts)

    def work(first: int, last: int) -> None:
        for number in range(first, last):
            made[number] = fit(parts[number])

    threads.in_pieces(work, len(parts), 1, workers)
    if len(parts) == 1:
        return made[0]
    have_positions, rows = any(POSITION in columns for columns in made), 0
    for part, columns in zip(parts, made, strict=True):
        own = len(columns[GROUP])
        columns[GROUP] = columns[GROUP] + rows
        if have_positions:
            columns[POSITION] = columns.get(POSITION, np.arange(own)) + part.start
        rows += own
    return {name: np.concatenate([columns[name] for columns in made]) for name in made[0]}
