"""Image layers of localisations on the raw image, whose tiles are rendered when they are shown."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...analysis.render import RenderIndex
from ...engine import threads
from ...files.exchange.image_info import nanometres_of
from ...models.columns import STDERR
from ...results.spot_fits import SpotFits
from ..parts.work import Latest, delayed
from .images import PLACE, RENDERED, matrix_of, pixel_size
from .points import fits_of_features

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer, Points

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
_COLORMAP = "inferno"
#: After a change of spots, others of the same kind may follow for so long, in ms.
_PATIENCE = 100


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
        #: The tiles that were read last, by level, row and column.
        self._tiles: OrderedDict[tuple[int, int, int], Pixels] = OrderedDict()
        self._lock = threading.Lock()
        self.limit = self._brightness()
        self.levels = [Level(self, number) for number in range(self.last + 1)]

    def show(self, rows: NDArray[np.bool_] | None) -> None:
        """Render only some rows of the table from now on."""
        self.index.show(rows)
        with self._lock:
            self._reads += 1
            # Tiles that another thread renders at the moment go to the old ones.
            self._tiles = OrderedDict()

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
                if (level, row, column) in tiles:
                    found[column] = tiles[level, row, column]
                    tiles.move_to_end((level, row, column))
        missing = [column for column in range(first, end) if column not in found]
        if missing:
            scale = self.finest / (1 << level)
            rows = row * TILE, (row + 1) * TILE
            columns = missing[0] * TILE, (missing[-1] + 1) * TILE
            drawn: Pixels = self.index.part((scale, scale), rows, columns, scale * scale)
            if self.index.channels == 3:
                drawn = in_colours(drawn, self.limit)
            for column in missing:
                left = (column - missing[0]) * TILE
                tile = found[column] = np.ascontiguousarray(drawn[:, left : left + TILE])
                with self._lock:
                    tiles[level, row, column] = tile
                    while len(tiles) * tile.nbytes > _MOST_BYTES:  # all are of one size
                        tiles.popitem(last=False)
        return sorted(found.items())

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
    shown = np.rint(light * (255 / np.maximum(brightest, limit)))
    return np.asarray(shown, np.uint8)


class Looks(NamedTuple):
    """How localisations are rendered."""

    by: str | float = "precision"
    colour_by: str | None = None


def layer_arguments(image: RenderedImage, on: Layer | None, name: str) -> dict[str, Any]:
    """Return the arguments of a layer that shows an image exactly on the pixels of another layer.

    Parameters
    ----------
    image : RenderedImage
        The image.
    on : napari.layers.Layer, optional
        The fitted image, or a layer that lies on it.
    name : str
        Name of the layer.
    """
    place = {} if on is None else {"units": on.units[-2:], "axis_labels": on.axis_labels[-2:]}
    coloured = image.index.channels == 3
    looks = {} if coloured else {"colormap": _COLORMAP, "contrast_limits": (0.0, image.limit)}
    return {
        "data": image.levels, "multiscale": True, "rgb": coloured, "name": name,
        "affine": affine_of(image, on), "blending": "additive", "interpolation2d": "nearest",
        "metadata": {RENDERED: "" if on is None else str(on.unique_id)}, **place, **looks,
    }  # fmt: skip


def affine_of(image: RenderedImage, on: Layer | None) -> NDArray[np.float64]:
    """Return the transform from pixels of the finest level to the world."""
    # The corner of the first pixel is that of the first camera pixel.
    first = 0.5 / image.finest - 0.5
    own = np.diag([1 / image.finest, 1 / image.finest, 1.0])
    own[:2, 2] = first
    camera = np.eye(3)
    if on is not None:
        camera = matrix_of(on.data_to_world, on.ndim)[-3:, -3:]
    return camera @ own


class Known(NamedTuple):
    """The localisations of a layer that can be rendered."""

    fits: SpotFits
    rows: NDArray[np.intp]
    #: How many others are shown whose width is unknown.
    unknown: int


def known_fits(
    features: Any, metadata: dict[str, Any], ndim: int, looks: Looks, shown: NDArray[np.bool_]
) -> Known:
    """Return the rows with a position, a width and a colour."""
    fits = fits_of_features(features, metadata, ndim)
    there = np.isfinite(fits.y) & np.isfinite(fits.x)
    known = there.copy()
    for name in (f"y{STDERR}", f"x{STDERR}"):
        if looks.by == "precision" and name in fits:
            known &= fits.columns[name] > 0
    if looks.by == "psf":
        known &= fits.mean_sigma > 0
    if looks.colour_by in fits:
        known &= np.isfinite(np.asarray(fits.columns[str(looks.colour_by)], float))
    rows = np.flatnonzero(known)
    return Known(fits[rows], rows, int(np.count_nonzero(there & shown & ~known)))


class RenderedLayer(QObject):
    """An Image layer that is rendered again when the spots it was made of are changed.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    points : napari.layers.Points
        The spots; those that are shown are rendered.
    looks : Looks
        How.
    parent : QObject
        Qt parent.
    """

    #: The layer shows other spots; how many spots were left out, as their width is unknown.
    drawn = Signal(int)
    failed = Signal(object)

    def __init__(self, viewer: Viewer, points: Points, looks: Looks, parent: QObject):
        super().__init__(parent)
        self._viewer, self.points, self.looks = viewer, points, looks
        own = str(points.unique_id)
        made = (one for one in viewer.layers if one.metadata.get(RENDERED) == own)
        #: The layer, which may be there from before; None until it is drawn first.
        self.layer: Image | None = next(made, None)
        self.image: RenderedImage | None = None
        self._rows: NDArray[np.intp] = np.zeros(0, np.intp)
        self._shown: NDArray[np.bool_] = np.zeros(0, bool)
        self._work = Latest(self, self._on_indexed, self.failed.emit)
        self._index_soon = delayed(self.draw, _PATIENCE, self)
        self._show_soon = delayed(self._show, 0, self)
        for event in self._events():
            event[0].connect(event[1])

    def draw(self, looks: Looks | None = None) -> None:
        """Render the spots as they are now."""
        self.looks = looks or self.looks
        points = self.points
        shown = np.array(points.shown)
        known = points.features, dict(points.metadata), points.ndim
        self._work.ask(partial(_indexed, *known, self.looks, shown))

    def stop(self) -> None:
        """Follow the spots no more; the layer stays as it is."""
        self._index_soon.stop()
        self._show_soon.stop()
        self._work.drop()
        for event, slot in self._events():
            event.disconnect(slot)

    def _events(self) -> list[tuple[Any, Any]]:
        events = self.points.events
        table = [(event, self._on_table) for event in (events.features, events.data)]
        place = [(getattr(events, name), self._on_moved) for name in PLACE]
        gone = self._viewer.layers.events.removed
        return [*table, *place, (events.set_data, self._on_shown), (gone, self._on_removed)]

    def _on_table(self, event: Any = None) -> None:
        if self.layer is not None:
            self._index_soon.start()

    def _on_shown(self, event: Any = None) -> None:
        if self.layer is not None and not self._index_soon.isActive():
            self._show_soon.start()

    def _on_moved(self, event: Any = None) -> None:
        if self.layer is not None and self.image is not None:
            self.layer.affine = affine_of(self.image, self.points)

    def _on_removed(self, event: Any) -> None:
        if event.value is self.layer:
            self.layer = self.image = None
            self._work.drop()
        elif event.value is self.points:
            self.stop()

    def _on_indexed(self, done: tuple[RenderedImage, Known, NDArray[np.bool_]]) -> None:
        self.image, known, self._shown = done
        self._rows = known.rows
        name = f"{self.points.name} rendered"
        arguments = layer_arguments(self.image, self.points, name)
        old = self.layer
        if old is None or old.rgb != arguments["rgb"]:
            self.layer = None
            if old is not None:
                self._viewer.layers.remove(old)
            self.layer = self._viewer.add_image(**arguments)
        else:
            _put(old, self.image)
            old.affine = arguments["affine"]
        assert self.layer is not None
        self.layer.metadata = {**self.layer.metadata, **self.looks._asdict()}
        self.drawn.emit(known.unknown)
        self._show()

    def _show(self) -> None:
        """Render the spots that are shown."""
        shown = np.array(self.points.shown)
        if self.image is None or self.layer is None or np.array_equal(shown, self._shown):
            return
        if len(shown) != len(self._shown):  # the table comes later
            return
        self._shown = shown
        self.image.show(shown[self._rows])
        _put(self.layer, self.image)


def _put(layer: Image, image: RenderedImage) -> None:
    """Show another image in a layer, with the contrast that it has."""
    corners = np.zeros((2, 2), int)
    corners[1] = np.array(image.sides) - 1
    layer.corner_pixels = corners  # napari reads the coarsest level first
    layer.data = image.levels


def _indexed(
    features: Any, metadata: dict[str, Any], ndim: int, looks: Looks, shown: NDArray[np.bool_]
) -> tuple[RenderedImage, Known, NDArray[np.bool_]]:
    """Return an image of the spots that are shown."""
    known = known_fits(features, metadata, ndim, looks, shown)
    index = RenderIndex(
        known.fits, shape=metadata.get("image_shape"), by=looks.by, colour_by=looks.colour_by
    )
    visible = shown[known.rows]
    index.show(None if visible.all() else visible)
    return RenderedImage(index, ahead=True), known, shown


def rendered_nm(layer: Points, oversampling: float) -> list[float] | None:
    """Return the height and width of a rendered pixel in nm, if that of the camera is known."""
    pixel = pixel_size(layer)
    unit = None if pixel is None else nanometres_of(pixel.unit)
    if pixel is None or unit is None:
        return None
    return [pixel.y * unit / oversampling, pixel.x * unit / oversampling]
