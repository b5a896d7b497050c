"""The levels of a super-resolved image, whose tiles are rendered when the viewer shows them."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...analysis.render import RenderIndex
from ...engine import threads

Pixels = NDArray[Any]

#: Pixels along the sides of a tile; memory of kept tiles in bytes.
TILE, _MOST_BYTES = 256, 256 << 20
#: Longest side of the coarsest level, which napari reads as a whole, and of the image in which
#: the contrast is measured.
_COARSEST, _MEASURED = 512, 2048
#: Pixels of the finest level per median width, and per camera pixel at most.
_PER_SIGMA, _FINEST = 4.0, 256
#: Share of the pixels with light that the contrast limits include.
_INCLUDED = 0.99


class Level:
    """One level, an array as napari reads them: localisations per camera pixel, or their colours.

    Divided by the area of its pixels, a level is as bright as the others.

    Parameters
    ----------
    image : RenderedImage
        The image.
    number : int
        0 for the finest level, whose pixels are half as large as those of the next one.
    """

    def __init__(self, image: RenderedImage, number: int):
        self._image, self._number = image, number
        height, width = image.sides
        sides = (height << (image.last - number), width << (image.last - number))
        self.shape = (*sides, 3) if image.index.channels == 3 else sides
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)
        self.chunks = (TILE, TILE, 3)[: self.ndim]
        self.dtype = np.dtype(np.uint8 if self.ndim == 3 else np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Pixels:
        return np.asarray(self[:], dtype)

    def __getitem__(self, key: Any) -> Pixels:
        keys = key if isinstance(key, tuple) else (key,)
        if Ellipsis in keys:
            place = keys.index(Ellipsis)
            missing = self.ndim - len(keys) + 1
            keys = (*keys[:place], *[slice(None)] * missing, *keys[place + 1 :])
        keys = (*keys, *[slice(None)] * (self.ndim - len(keys)))
        spans, within = zip(
            *(_span(one, side) for one, side in zip(keys[:2], self.shape, strict=False)),
            strict=True,
        )
        pixels = self._image.read(self._number, *spans)
        chosen: Pixels = pixels[within[0]]
        if self.ndim == 3:
            return chosen[..., within[1], :][..., keys[2]]
        return chosen[..., within[1]]


def _span(key: Any, side: int) -> tuple[tuple[int, int], Any]:
    """Return the span of indices that a key takes, and which of them it does."""
    chosen = np.arange(side)[key]
    if not np.size(chosen):
        return (0, 0), chosen
    first, last = int(np.min(chosen)), int(np.max(chosen))
    whole = isinstance(key, slice) and key.step in (None, 1)
    return (first, last + 1), slice(None) if whole else chosen - first


class _Key(NamedTuple):
    level: int
    row: int
    column: int


class RenderedImage:
    """A super-resolved image in levels; tiles that were read last are kept.

    Threads: any number may read it.

    Parameters
    ----------
    index : RenderIndex
        The localisations.
    ahead : bool
        Whether the next finer level of what was read is rendered in the background, so that it is
        there when the viewer zooms in.

    Attributes
    ----------
    index : RenderIndex
        The localisations.
    finest : int
        Pixels of the finest level per camera pixel.
    levels : list of Level
        From the finest to the coarsest.
    limit : float
        Localisations per camera pixel that are shown brightest.
    """

    def __init__(self, index: RenderIndex, *, ahead: bool = False):
        self.index, self._ahead = index, ahead
        #: Counts reads: what is rendered ahead of an earlier one is given up.
        self._reads = 0
        side = max(index.shape)
        wanted = _PER_SIGMA / index.median_sigma if index.median_sigma else _FINEST
        self.finest = 1 << max(0, min(round(math.log2(wanted)), int(math.log2(_FINEST))))
        self.last = max(0, math.ceil(math.log2(side * self.finest / _COARSEST)))
        #: Height and width of the coarsest level.
        coarse = self.finest / (1 << self.last)
        self.sides = tuple(max(2, math.ceil(one * coarse - 1e-6)) for one in index.shape)
        self._tiles: OrderedDict[_Key, Pixels] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()
        self.limit = self._brightness()
        self.levels = [Level(self, number) for number in range(self.last + 1)]

    def show(self, rows: NDArray[np.bool_] | None) -> None:
        """Render only some rows of the table from now on."""
        self.index.show(rows)
        with self._lock:
            self._reads += 1
            # Tiles that another thread renders at the moment go to the old ones.
            self._tiles = OrderedDict()
            self._bytes = 0

    def read(self, level: int, rows: tuple[int, int], columns: tuple[int, int]) -> Pixels:
        """Return a part of a level, and render those of its tiles that are not kept."""
        with self._lock:
            self._reads += 1
            reads = self._reads
        pixels = self._read(level, rows, columns)
        if self._ahead and level and pixels.size:
            finer = ((2 * span[0], 2 * span[1]) for span in (rows, columns))
            threads.pool().submit(self._go_ahead, reads, level - 1, *finer)
        return pixels

    def _go_ahead(
        self, reads: int, level: int, rows: tuple[int, int], columns: tuple[int, int]
    ) -> None:
        """Render a part of a level, a row of tiles at a time, until another one is read."""
        for top in range(rows[0], rows[1], TILE):
            if reads != self._reads:
                return
            self._read(level, (top, min(top + TILE, rows[1])), columns)

    def _read(self, level: int, rows: tuple[int, int], columns: tuple[int, int]) -> Pixels:
        shape = (max(rows[1] - rows[0], 0), max(columns[1] - columns[0], 0))
        colours = self.index.channels == 3
        pixels = np.empty((*shape, 3) if colours else shape, np.uint8 if colours else np.float32)
        if not pixels.size:
            return pixels
        first, end = columns[0] // TILE, -(-columns[1] // TILE)
        for row in range(rows[0] // TILE, -(-rows[1] // TILE)):
            for column, tile in self._row_of_tiles(level, row, first, end):
                top, left = row * TILE - rows[0], column * TILE - columns[0]
                part = tile[max(-top, 0) : shape[0] - top, max(-left, 0) : shape[1] - left]
                top, left = max(top, 0), max(left, 0)
                pixels[top : top + part.shape[0], left : left + part.shape[1]] = part
        return pixels

    def _row_of_tiles(self, level: int, row: int, first: int, end: int) -> list[tuple[int, Pixels]]:
        """Return tiles side by side; those in between that are missing are rendered at once."""
        with self._lock:
            tiles, found = self._tiles, {}
            for column in range(first, end):
                tile = tiles.get(_Key(level, row, column))
                if tile is not None:
                    found[column] = tile
                    tiles.move_to_end(_Key(level, row, column))
        missing = [column for column in range(first, end) if column not in found]
        if missing:
            drawn = self._draw(
                level, (row * TILE, (row + 1) * TILE),
                (missing[0] * TILE, (missing[-1] + 1) * TILE),
            )  # fmt: skip
            for column in missing:
                left = (column - missing[0]) * TILE
                found[column] = np.ascontiguousarray(drawn[:, left : left + TILE])
                self._keep(tiles, _Key(level, row, column), found[column])
        return sorted(found.items())

    def _keep(self, tiles: OrderedDict[_Key, Pixels], key: _Key, tile: Pixels) -> None:
        with self._lock:
            if tiles is not self._tiles or key in tiles:
                return
            tiles[key] = tile
            self._bytes += tile.nbytes
            while self._bytes > _MOST_BYTES:
                _, oldest = self._tiles.popitem(last=False)
                self._bytes -= oldest.nbytes

    def _draw(self, level: int, rows: tuple[int, int], columns: tuple[int, int]) -> Pixels:
        scale = self.finest / (1 << level)
        drawn = self.index.part((scale, scale), rows, columns, scale * scale)
        return drawn if self.index.channels == 1 else in_colours(drawn, self.limit)

    def _brightness(self) -> float:
        """Return the density up to which nearly all pixels with light are."""
        scale = min(self.finest / _PER_SIGMA, _MEASURED / max(self.index.shape))
        sides = [max(1, math.ceil(side * scale)) for side in self.index.shape]
        drawn = self.index.part((scale, scale), (0, sides[0]), (0, sides[1]), scale * scale)
        light = drawn.max(axis=2) if drawn.ndim == 3 else drawn
        light = light[light > 0]
        return float(np.quantile(light, _INCLUDED)) if len(light) else 1.0


def in_colours(light: NDArray[np.float32], limit: float) -> NDArray[np.uint8]:
    """Return colours as bytes: full brightness at a limit, and the same hue beyond."""
    brightest = light.max(axis=2, keepdims=True)
    shown: NDArray[np.uint8] = np.rint(light * (255 / np.maximum(brightest, limit))).astype(
        np.uint8
    )
    return shown
