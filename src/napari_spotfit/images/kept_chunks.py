"""The chunks of a frame that tell something before its rows are read: kept until they are."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .frames import TILE, FrameReader, Part

#: Chunks are kept if they have no more bytes than so many tiles; else they are read twice.
_TILES = 5


class KeptChunks:
    """A frame whose pixels are read once, some of them before the others.

    Parameters
    ----------
    reader : FrameReader
        The image.
    number : int
        The frame's number.
    workers : int
        Chunks that are read at once.
    """

    def __init__(self, reader: FrameReader, number: int, workers: int) -> None:
        self._reader, self._numbers, self._workers = reader, np.array([number]), workers
        self._rows, self._columns = reader.chunk_edges()
        #: By the places of their first pixels.
        self._kept: dict[tuple[int, int], NDArray[np.generic]] = {}

    def points(self, y: NDArray[np.int64], x: NDArray[np.int64]) -> list[NDArray[np.generic]]:
        """Return single pixels, each of shape (1, 1, 1), and keep the chunks they are in."""
        row = np.searchsorted(self._rows, y, "right") - 1
        column = np.searchsorted(self._columns, x, "right") - 1
        cells = sorted(set(zip(row.tolist(), column.tolist(), strict=True)))
        parts = [self._part(*cell) for cell in cells]
        pixels = sum(math.prod(one.stop - one.start for one in part) for part in parts)
        if pixels * self._reader.pixel_bytes > _TILES * TILE or len(self._rows) == 2:
            return self._reader.read_points(int(self._numbers[0]), y, x)
        with ThreadPoolExecutor(self._workers, "napari-spotfit chunks") as pool:
            for part, chunk in zip(parts, pool.map(self._read, parts), strict=True):
                self._kept[part[0].start, part[1].start] = chunk
        found = []
        for place_y, place_x, i, j in zip(y, x, row, column, strict=True):
            top, left = int(self._rows[i]), int(self._columns[j])
            value = self._kept[top, left][0, place_y - top, place_x - left]
            found.append(np.full((1, 1, 1), value))
        return found

    def read_rows(self, pixels: NDArray[np.generic], first: int) -> None:
        """Put some rows, from a first one on, of whole chunks into memory of the shape (rows, X).

        What was kept of them is kept no more.
        """
        last, width = first + len(pixels), int(self._columns[-1])
        if not any(first <= top < last for top, _ in self._kept):
            self._read_into(pixels, first, slice(first, last), slice(0, width))
            return
        tops = self._rows[(self._rows >= first) & (self._rows < last)]
        for top in tops.tolist():
            bottom = int(self._rows[np.searchsorted(self._rows, top) + 1])
            begun = 0
            # What lies between kept ones is read at once.
            for left in [*sorted(left for own, left in self._kept if own == top), width]:
                if left > begun:
                    self._read_into(pixels, first, slice(top, bottom), slice(begun, left))
                chunk = self._kept.pop((top, left), None)
                if chunk is not None:
                    begun = left + chunk.shape[2]
                    pixels[top - first : bottom - first, left:begun] = chunk[0]

    def _read_into(
        self, pixels: NDArray[np.generic], first: int, rows: slice, columns: slice
    ) -> None:
        own = pixels[rows.start - first : rows.stop - first, columns]
        self._reader.read_part_into(own, int(self._numbers[0]), (rows, columns))

    def _read(self, part: Part) -> NDArray[np.generic]:
        return self._reader.read_part(self._numbers, part)

    def _part(self, row: int, column: int) -> Part:
        return (
            slice(int(self._rows[row]), int(self._rows[row + 1])),
            slice(int(self._columns[column]), int(self._columns[column + 1])),
        )
