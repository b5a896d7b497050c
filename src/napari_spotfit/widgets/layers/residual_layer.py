"""An Image layer of what the spots that are shown do not explain, in the frame that is shown."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...analysis.residual import residual_of
from ...analysis.spot_sample import camera_settings
from ...models.columns import REFIT
from ...settings.options import settings_from
from ...settings.settings import Settings
from ..parts.docking import Follower
from ..parts.work import Latest, delayed
from .fitted_frames import Key, read_frame
from .images import (
    PLACE,
    RESIDUAL,
    current_frame,
    events_of,
    full_resolution,
    image_of,
    matrix_of,
    transform_arguments,
)
from .maps import LayerMaps, maps_of
from .points import is_preview, settings_of_layer
from .result_layers import REFITS
from .selection import add_unselected

if TYPE_CHECKING:
    import pandas as pd
    from napari import Viewer
    from napari.layers import Image, Points

Pixels = NDArray[np.float32]

#: From blue, where the image is darker than the model, over grey, 0, to red, where it is brighter.
_COLORMAP = "coolwarm"
#: The share of pixels whose residual is within the colours of a new layer.
_INCLUDED = 0.998
_NO_IMAGE = "The image of these spots is not open, so there is no residual of it. Open it."
_NO_MODEL = (
    "These spots have no amplitude and width that a model is drawn from, as they are of another "
    "program: there is no residual."
)


def residual_layer(points: Points, layers: Any) -> Image | None:
    """Return the layer with the residual of spots, if there is one."""
    own = str(points.unique_id)
    return next((one for one in layers if one.metadata.get(RESIDUAL) == own), None)


class ResidualLayer(QObject):
    """Shows the residual of the frame that the viewer shows, and follows slider, spots and image.

    The layer has the axes of the image, but one frame alone: where the slider stands at another
    one, nothing is shown until its residual is there.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    points : napari.layers.Points
        The spots; those that are shown count.
    parent : QObject
        Qt parent.
    """

    #: The layer shows the frame.
    drawn = Signal()
    #: How many spots are done, and how many there are.
    progressed = Signal(int, int)
    failed = Signal(object)
    #: The layer was removed by the user, or its spots or their image are gone.
    gone = Signal()

    def __init__(self, viewer: Viewer, points: Points, parent: QObject):
        super().__init__(parent)
        self._viewer, self.points = viewer, points
        #: The layer, which may be there from before; None until it is drawn first.
        self.layer: Image | None = residual_layer(points, viewer.layers)
        self._image: Image | None = None
        self._shown: tuple[int, ...] | None = None
        self._work = Latest(self, self._on_done, self.failed.emit)
        self._work.progressed.connect(self.progressed)
        self._soon = delayed(self._ask, 0, self)
        self._spots, self._pixels = Follower(self._later), Follower(self._later)
        self._place, self._step = Follower(self._on_moved), Follower(self._on_step)
        self._removed = Follower(self._on_removed)

    def draw(self) -> None:
        """Show the residual of the frame, and follow from now on."""
        events = self.points.events
        self._spots.follow(events.features, events.data, events.set_data, events.metadata)
        self._step.follow(self._viewer.dims.events.current_step)
        self._removed.follow(self._viewer.layers.events.removed)
        self._soon.start()

    def stop(self) -> None:
        """Follow nothing any more; the layer stays as it is."""
        self._soon.stop()
        self._work.drop()
        for one in (self._spots, self._pixels, self._place, self._step, self._removed):
            one.follow()

    def remove(self) -> None:
        """Stop, and remove the layer."""
        self.stop()
        layer, self.layer = self.layer, None
        if layer is not None and layer in self._viewer.layers:
            self._viewer.layers.remove(layer)

    def _later(self, event: Any = None) -> None:
        self._soon.start()

    def _on_step(self, event: Any = None) -> None:
        if self._image is not None and _frame(self._viewer, self._image) not in (self._shown, None):
            self._soon.start()

    def _ask(self) -> None:
        try:
            steps = self._steps()
        except (IndexError, TypeError, ValueError) as error:
            self.failed.emit(error)
            return
        if steps is not None:
            self._work.ask_steps(steps)

    def _steps(self) -> Any:
        """Return the work to do; layers are read now."""
        points, layers = self.points, self._viewer.layers
        image = image_of(points, layers)
        settings = settings_of_layer(points.metadata)
        if image is None:
            raise ValueError(_NO_IMAGE)
        if settings is None:
            raise ValueError(_NO_MODEL)
        self._image = image
        self._pixels.follow(image.events.data)
        self._place.follow(*events_of(PLACE, image))
        at = _frame(self._viewer, image)
        if at is None:  # the slider stands beside the image
            return None
        self._shown = at
        maps = maps_of(points, image, layers)
        key = Key(full_resolution(image), at, camera_settings(settings, maps.ids), maps.ids)
        spots = Spots(
            points.data, np.array(points.shown), points.features, dict(points.metadata), settings
        )
        return lambda: _residual(key, maps, spots)

    def _on_done(self, done: tuple[tuple[int, ...], Pixels]) -> None:
        at, pixels = done
        image, layers = self._image, self._viewer.layers
        if image is None or image not in layers or self.points not in layers:
            return
        pixels = pixels[(np.newaxis,) * len(at)]
        place = transform_arguments(image) | {"translate": _origin(image, at)}
        if self.layer is None:
            self._add(image, pixels, place)
        else:
            for name, value in place.items():
                setattr(self.layer, name, value)
            self.layer.data = pixels
        self.drawn.emit()

    def _add(self, image: Image, pixels: Pixels, place: Mapping[str, Any]) -> None:
        from napari.layers import Image as ImageLayer

        most = float(np.quantile(np.abs(pixels), _INCLUDED)) or 1.0
        self.layer = ImageLayer(
            pixels, name=f"{image.name} residual", colormap=_COLORMAP, interpolation2d="nearest",
            contrast_limits=(-most, most), metadata={RESIDUAL: str(self.points.unique_id)}, **place,
        )  # fmt: skip
        add_unselected(self._viewer, self.layer, self._viewer.layers.index(image) + 1)

    def _on_moved(self, event: Any = None) -> None:
        if self.layer is not None and self._image is not None and self._shown is not None:
            place = transform_arguments(self._image)
            for name, value in (place | {"translate": _origin(self._image, self._shown)}).items():
                setattr(self.layer, name, value)

    def _on_removed(self, event: Any) -> None:
        if event.value is self.layer:
            self.layer = None
        elif event.value is self.points and is_preview(self.points):
            self._soon.stop()
            self._work.drop()
        elif event.value not in (self.points, self._image):
            return
        self.gone.emit()


class Spots(NamedTuple):
    """A layer of spots as it was when its residual was asked for."""

    data: NDArray[Any]
    shown: NDArray[np.bool_]
    features: pd.DataFrame
    metadata: Mapping[str, Any]
    settings: Settings

    def of_frame(self, at: tuple[int, ...]) -> list[tuple[dict[str, NDArray[Any]], Settings]]:
        """Return the columns of the spots of a frame by the settings they were fitted with."""
        there = self.shown.copy()
        for axis, along in enumerate(at):
            there &= np.abs(self.data[:, axis] - along) < 0.5
        rows = np.flatnonzero(there)
        refit = np.zeros(len(rows))
        if REFIT in self.features:
            refit = np.nan_to_num(self.features[REFIT].to_numpy(float)[rows])
        known = [self.settings, *map(settings_from, self.metadata.get(REFITS, []))]
        found = []
        for number in np.unique(refit[refit < len(known)]).astype(int):
            settings = known[number]
            columns = {one.column.name for one in settings.profile.shape}
            columns |= {*settings.profile.axes, "amplitude", "background", "photons"}
            own = rows[refit == number]
            if missing := columns - set(self.features):
                if {"amplitude", *settings.profile.axes} & missing:
                    raise ValueError(_NO_MODEL)
                continue
            found.append(
                ({name: self.features[name].to_numpy(float)[own] for name in columns}, settings)
            )
        return found


def _residual(
    key: Key, maps: LayerMaps, spots: Spots
) -> Generator[tuple[int, int], None, tuple[tuple[int, ...], Pixels]]:
    """Return a frame and its residual, in steps."""
    frame = read_frame(key, maps)
    yield 0, 1
    return key.at, (yield from residual_of(frame.pixels, spots.of_frame(key.at)))


def _frame(viewer: Viewer, image: Image) -> tuple[int, ...] | None:
    """Return the frame of an image that the viewer shows, if it shows one."""
    try:
        return current_frame(viewer, image)
    except ValueError:
        return None


def _origin(image: Image, at: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the translation of a layer whose first pixel is that of a frame of an image."""
    first = np.zeros(image.ndim)
    first[: len(at)] = at
    away = np.asarray(image.data_to_world(first)) - image.data_to_world(np.zeros(image.ndim))
    affine = matrix_of(image.affine, image.ndim)[:-1, :-1]
    return np.asarray(image.translate + np.linalg.solve(affine, away), float)
