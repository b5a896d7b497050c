"""Image layers of localisations that lie on the raw image, and follow their Points layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...analysis.render import RenderIndex
from ...files.exchange.image_info import nanometres_of
from ...models.columns import STDERR
from ...results.spot_fits import SpotFits
from ..parts.work import Latest, delayed
from .images import PLACE, RENDERED, matrix_of, pixel_size
from .points import fits_of_features
from .rendered_levels import RenderedImage

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer, Points

_COLORMAP = "inferno"
#: After a change of spots, others of the same kind may follow for so long, in ms.
_PATIENCE = 100


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
        matrix = matrix_of(on.data_to_world, on.ndim)
        camera[:2] = matrix[-2:, [-3, -2, -1]]
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
    needed = [f"{axis}{STDERR}" for axis in "yx"] if looks.by == "precision" else []
    there = np.isfinite(fits.y) & np.isfinite(fits.x)
    known = there.copy()
    for name in needed:
        if name in fits:
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
        job = partial(
            _indexed, points.features, dict(points.metadata), points.ndim, self.looks, shown
        )
        self._work.ask(job)

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
