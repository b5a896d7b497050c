"""Plan which frames are read together, and skip damaged ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

#: Reads frames of ascending numbers.
Read = Callable[[NDArray[np.int64]], Any]


class Box(NamedTuple):
    """A box of frames that is read at once, and those of its frames that are wanted."""

    #: Along each leading axis, the first index and the one after the last.
    ranges: tuple[tuple[int, int], ...]
    #: Positions of wanted frames in the box, in C order; None for all.
    wanted: Numbers | None
    #: Numbers of the wanted frames.
    numbers: Numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of frames along each leading axis."""
        return tuple(last - first for first, last in self.ranges)


class ChunkGrid:
    """The chunks of an image along its leading axes.

    Parameters
    ----------
    leading : tuple of int
        Number of frames along each leading axis.
    chunks : sequence, optional
        Size of the chunks along each axis of the image, or of each chunk, like in Dask, Zarr and
        HDF5. By default each frame is a chunk.
    spatial : int
        Number of axes of a frame.

    Examples
    --------
    Two chunks of 2×2 frames each, which are read one after the other:

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
        #: The first axis along which chunks have several frames, or None.
        self._first: int | None = several[0] if several else None

    def blocks(self, numbers: Numbers, size: int) -> list[Numbers]:
        """Divide ascending frame numbers into blocks of ``size`` frames, or of a larger chunk.

        Blocks follow the order of chunks; frames stay in order if chunks span only one axis.
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
        """Return the positions in ascending numbers at which chunks end; None if they alternate.

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
        """Return the boxes to read for ascending frame numbers; no chunk is in two of them."""
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
        """Return the order of frames by chunk, and the beginning of each chunk in it."""
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
        """Return the smallest box that contains some frames."""
        index = np.unravel_index(numbers, self.leading)
        ranges = tuple((int(along.min()), int(along.max()) + 1) for along in index)
        shape = [last - first for first, last in ranges]
        if math.prod(shape) == len(numbers):
            return Box(ranges, None, numbers)
        within = [along - first for along, (first, _) in zip(index, ranges, strict=True)]
        return Box(ranges, np.ravel_multi_index(within, shape), numbers)


def evenly_spread(count: int, size: int) -> Numbers:
    """Return ``count`` evenly spread numbers below ``size``.

    Examples
    --------
    >>> evenly_spread(3, 12)
    array([ 2,  6, 10])
    """
    return np.asarray((2 * np.arange(count) + 1) * size // (2 * count), np.int64)


def all_before(blocks: list[Numbers]) -> list[bool]:
    """Return for each block of numbers whether all later blocks have larger ones.

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
    """Divide a frame into tiles of about ``rows`` rows, each of whole chunks.

    Parameters
    ----------
    height : int
        Number of rows of the frame.
    chunk : int or sequence of int
        Number of rows of its chunks, or of each chunk.
    rows : int
        Largest number of rows of a tile, unless a chunk has more.

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
    """Return the edges of chunks along an axis."""
    return np.append(_begins(size, chunk), size)


def _begins(size: int, chunk: Any) -> Numbers:
    """Return the beginnings of chunks along an axis."""
    if isinstance(chunk, (tuple, list)):
        ends = np.cumsum([0, *chunk], dtype=np.int64)
        return ends[:-1][np.diff(ends) > 0]
    return np.arange(0, size, max(int(chunk), 1))


def up_to_damage(read: Read, numbers: NDArray[np.int64]) -> tuple[Any, Exception | None]:
    """Read frames up to the first that cannot be read; return them and its error, or None.

    Parameters
    ----------
    read : callable
        Reads frames, and may raise any kind of error.
    numbers : ndarray of int
        Ascending numbers of the frames.

    Raises
    ------
    Exception
        If the first frame cannot be read.
    MemoryError
        If the frames do not fit into the memory.

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
        # Read all of them again, as a read may fail depending on the number of frames.
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
    """Read those frames that can be read; return their numbers and pixels.

    If some fail, frames are read one by one into the host's memory. If all fail, as of a movie that
    was cut off early, the first frames of the image stand for them. Arguments and errors are those
    of :func:`up_to_damage`; errors are raised only if no frame can be read.

    Examples
    --------
    >>> frames = {0: [5], 1: [6], 3: [8]}
    >>> def read(numbers):
    ...     return np.array([frames[number] for number in numbers.tolist()])
    >>> numbers, pixels = without_damage(read, np.arange(4))
    >>> numbers.tolist(), pixels.tolist()
    ([0, 1, 3], [[5], [6], [8]])
    >>> without_damage(read, np.array([4, 9]))[0].tolist()
    [0, 1]
    """
    whole, damage = _tried(read, numbers)
    if damage is None:
        return numbers, whole
    found = [(number, _tried(read, numbers[i : i + 1])) for i, number in enumerate(numbers)]
    readable = {number: pixels for number, (pixels, error) in found if error is None}
    if not readable:
        for number in range(min(int(numbers.min()), len(numbers))):
            pixels, error = _tried(read, np.array([number]))
            if error is not None:
                break
            readable[number] = pixels
    if not readable:
        raise damage
    return np.array(list(readable)), np.concatenate(list(readable.values()))


def _tried(read: Read, numbers: NDArray[np.int64]) -> tuple[Any, Exception | None]:
    """Return frames and None, or None and the error; lack of memory is raised."""
    try:
        return read(numbers), None
    except MemoryError:
        raise
    except Exception as error:
        return None, error
