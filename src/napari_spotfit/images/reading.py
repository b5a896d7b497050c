"""Which frames are read together, and which of them can be read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

#: Returns frames of rising numbers.
Read = Callable[[NDArray[np.int64]], Any]


class Box(NamedTuple):
    """Neighbouring frames that are read at once, and those of them that are wanted."""

    #: For each leading axis, the first index and the one after the last.
    ranges: tuple[tuple[int, int], ...]
    #: Which are wanted, by their places in C order; None for all.
    wanted: Numbers | None
    #: The wanted frames' numbers.
    numbers: Numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """How many frames it has along each leading axis."""
        return tuple(last - first for first, last in self.ranges)


class ChunkGrid:
    """The chunks of an image along its leading axes.

    Parameters
    ----------
    leading : tuple of int
        How many frames there are along each leading axis.
    chunks : sequence, optional
        As Dask, Zarr and HDF5 have it, for all axes of the image: how many frames the chunks hold
        along each, or how many each of them does. By default each frame stands alone.
    spatial : int
        How many axes a frame has.

    Examples
    --------
    Two chunks side by side, each of two rows of frames: they are read one after the other.

    >>> grid = ChunkGrid((2, 4), (2, 2, 64, 64))
    >>> [block.tolist() for block in grid.blocks(np.arange(8), 4)]
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    >>> [block.tolist() for block in grid.blocks(np.arange(8), 8)]
    [[0, 1, 2, 3, 4, 5, 6, 7]]
    """

    def __init__(self, leading: tuple[int, ...], chunks: Any = None, spatial: int = 2) -> None:
        self.leading = leading
        is_known = chunks and len(chunks) == len(leading) + spatial
        known = chunks if is_known else (1,) * len(leading)
        self._begins = [_begins(*one) for one in zip(leading, known, strict=False)]
        several = [
            axis
            for axis, (begins, size) in enumerate(zip(self._begins, leading, strict=True))
            if len(begins) < size
        ]
        #: The first axis along which chunks hold several frames; None where none do.
        self._first: int | None = several[0] if several else None

    def blocks(self, numbers: Numbers, size: int) -> list[Numbers]:
        """Cut rising frame numbers into blocks of ``size`` frames, or of a chunk if it has more.

        Blocks are in the order in which chunks lie, and so are frames where a chunk holds
        neighbours along one axis only.
        """
        if self._first is None:
            return np.split(numbers, range(size, len(numbers), size)) if len(numbers) else []
        order, begins = self._by_chunk(numbers)
        counts = np.diff([*begins, len(numbers)])
        starts, held = [], size
        for begin, count in zip(begins, counts, strict=True):
            held += count
            if held > size:
                starts.append(begin)
                held = count
        ordered = numbers[order]
        return [np.sort(block) for block in np.split(ordered, starts[1:])]

    def ends(self, numbers: Numbers) -> Numbers | None:
        """Return after how many of rising frame numbers chunks end; None if frames of some mingle.

        Examples
        --------
        >>> ChunkGrid((5,), (2, 64, 64)).ends(np.array([0, 1, 3, 4]))
        array([2, 3, 4])
        >>> ChunkGrid((2, 4), (2, 2, 64, 64)).ends(np.arange(8)) is None
        True
        """
        if self._first is None:
            return np.arange(1, len(numbers) + 1)
        order, begins = self._by_chunk(numbers)
        if (np.diff(order) < 0).any():
            return None
        return np.append(begins[1:], len(numbers))

    def boxes(self, numbers: Numbers) -> list[Box]:
        """Return the boxes to read for frames of rising numbers; no chunk is in two of them."""
        whole = self._box(numbers)
        if whole.wanted is None:
            return [whole]
        if self._first is None:
            last = self.leading[-1]
            breaks = (np.diff(numbers) != 1) | (numbers[1:] % last == 0)
            parts = np.split(numbers, np.flatnonzero(breaks) + 1)
        else:
            order, begins = self._by_chunk(numbers)
            parts = np.split(numbers[order], begins[1:])
        return [self._box(part) for part in parts]

    def _by_chunk(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return the order of frames by chunk, and where each chunk begins in it."""
        index = np.unravel_index(numbers, self.leading)
        cells = [
            np.searchsorted(begins, along, "right") - 1
            for begins, along in zip(self._begins, index, strict=True)
        ]
        cell = np.ravel_multi_index(cells, [len(begins) for begins in self._begins])
        order = np.argsort(cell, kind="stable")
        changes = np.flatnonzero(np.diff(cell[order])) + 1
        return order, np.concatenate([[0], changes])

    def _box(self, numbers: Numbers) -> Box:
        """Return the smallest box that frames lie in."""
        index = np.unravel_index(numbers, self.leading)
        ranges = tuple((int(along.min()), int(along.max()) + 1) for along in index)
        shape = [last - first for first, last in ranges]
        if math.prod(shape) == len(numbers):
            return Box(ranges, None, numbers)
        within = [along - first for along, (first, _) in zip(index, ranges, strict=True)]
        return Box(ranges, np.ravel_multi_index(within, shape), numbers)


def evenly_spread(count: int, size: int) -> Numbers:
    """Return ``count`` numbers from 0 to below a size, each in the middle of its share of them.

    Examples
    --------
    >>> evenly_spread(3, 12)
    array([ 2,  6, 10])
    """
    return np.asarray((2 * np.arange(count) + 1) * size // (2 * count), np.int64)


def all_before(blocks: list[Numbers]) -> list[bool]:
    """Return after which blocks of rising numbers no later block has lower ones.

    Examples
    --------
    >>> all_before([np.array([0, 2]), np.array([1, 3]), np.array([4])])
    [False, True, True]
    """
    highest = np.maximum.accumulate([int(block.max(initial=-1)) for block in blocks])
    lowest = [int(block[0]) for block in blocks[1:]]
    later = np.minimum.accumulate(lowest[::-1])[::-1]
    return [*(bool(one) for one in highest[:-1] < later), True]


def row_tiles(height: int, chunk: Any, rows: int) -> list[tuple[int, int]]:
    """Cut a frame into tiles of about ``rows`` rows, each of whole chunks.

    Parameters
    ----------
    height : int
        Rows of the frame.
    chunk : int or sequence of int
        Rows of its chunks.
    rows : int
        The most rows of a tile, if a chunk has no more.

    Examples
    --------
    >>> row_tiles(10, 2, 5), row_tiles(10, (3, 7), 1)
    ([(0, 4), (4, 8), (8, 10)], [(0, 3), (3, 10)])
    """
    tiles, first, last = [], 0, 0
    for end in edges(height, chunk)[1:].tolist():
        if last > first and end - first > rows:
            tiles.append((first, last))
            first = last
        last = end
    return [*tiles, (first, last)]


def edges(size: int, chunk: Any) -> Numbers:
    """Return where the chunks along an axis begin, and where the last one ends."""
    return np.append(_begins(size, chunk), size)


def _begins(size: int, chunk: Any) -> Numbers:
    """Return where the chunks along an axis begin."""
    if isinstance(chunk, (tuple, list)):
        ends = np.cumsum([0, *chunk], dtype=np.int64)
        return ends[:-1][np.diff(ends) > 0]
    return np.arange(0, size, max(int(chunk), 1))


def up_to_damage(read: Read, numbers: NDArray[np.int64]) -> tuple[Any, Exception | None]:
    """Return frames, and nothing; or those before one that cannot be read, and why it cannot.

    Parameters
    ----------
    read : callable
        Reads frames; its errors may be of any kind.
    numbers : ndarray of int
        Rising numbers of the frames.

    Raises
    ------
    Exception
        If the first one cannot be read: what was wrong with it.
    MemoryError
        If memory does not hold them.

    Examples
    --------
    >>> frames = {0: "a", 1: "b", 3: "d"}
    >>> up_to_damage(lambda numbers: [frames[number] for number in numbers], [0, 1, 2, 3])
    (['a', 'b'], KeyError(2))
    """
    whole, damage = _tried(read, numbers)
    if damage is None:
        return whole, None
    pixels, readable, damaged = None, 0, len(numbers)
    while damaged - readable > 1:
        middle = (readable + damaged) // 2
        # All of them again: how many are read together may decide whether they can be.
        part, error = _tried(read, numbers[:middle])
        if error is None:
            pixels, readable = part, middle
        else:
            damaged, damage = middle, error
    if not readable:
        raise damage
    return pixels, damage


def without_damage(
    read: Read, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return those of some frames that can be read: their numbers and pixels.

    Where not all can, each is read by itself, in the host's memory. Takes and raises what
    :func:`up_to_damage` does, the error only if none can be read.

    Examples
    --------
    >>> frames = {0: [5], 1: [6], 3: [8]}
    >>> def read(numbers):
    ...     return np.array([frames[number] for number in numbers.tolist()])
    >>> numbers, pixels = without_damage(read, np.arange(4))
    >>> numbers.tolist(), pixels.tolist()
    ([0, 1, 3], [[5], [6], [8]])
    """
    whole, damage = _tried(read, numbers)
    if damage is None:
        return numbers, whole
    found = [(number, _tried(read, numbers[i : i + 1])) for i, number in enumerate(numbers)]
    readable = {number: pixels for number, (pixels, error) in found if error is None}
    if not readable:
        raise damage
    return np.array(list(readable)), np.concatenate(list(readable.values()))


def _tried(read: Read, numbers: NDArray[np.int64]) -> tuple[Any, Exception | None]:
    """Return frames, or what was wrong; that memory is short is no damage."""
    try:
        return read(numbers), None
    except MemoryError:
        raise
    except Exception as error:
        return None, error
