"""A preview of the spots in the frame shown, redrawn whenever a setting changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox, QSizePolicy
from superqt.utils import qdebounced

from ..layers import images, points
from ..layers.appearance import PREVIEW, Look, color_faces, with_look
from ..layers.images import CONTENTS, PLACE, events_of
from ..layers.maps import LayerMaps, layer_maps
from ..layers.selection import add_unselected
from ..parts.docking import Follower
from ..parts.layout import explain
from ..parts.work import Latest
from .detection_panel import Previewed, Previewer, PreviewJob

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

    from .estimates import ImageNoise
    from .settings_panel import SettingsPanel

_TIP = (
    "<p>Find and fit the spots of the frame that the viewer shows, and redraw them whenever "
    "the settings or the frame change. They are what <b>Fit</b> finds in this frame. The layer "
    "of the preview goes when this is unticked.</p>"
)
#: Pixels of a frame up to which the preview opens by itself.
_QUICK = 2**20
#: Milliseconds without a first result after which the wait is explained.
_PATIENCE = 1500
#: A preview is a halo: results are as they were, and shine through it.
_OPACITY = 0.6


class Preview(QObject):
    """Keeps one layer showing the spots of the current frame while its box is ticked.

    Work runs in the background; of the changes that come meanwhile only the last counts.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose current frame counts.
    settings : SettingsPanel
        What to find and fit, and where.
    noise : ImageNoise
        The noise of its image.
    parent : QObject
        Qt parent.
    """

    #: The layer shows another result.
    drawn = Signal()
    #: The exception that ended it; the same is not reported twice in a row.
    failed = Signal(object)
    #: The result takes long: the frame is still being read.
    slow = Signal()
    #: The last report no longer holds.
    recovered = Signal()
    #: The user has opened or closed it.
    chosen = Signal()

    def __init__(self, viewer: Viewer, settings: SettingsPanel, noise: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._viewer, self._settings, self._noise = viewer, settings, noise
        self._shown = PreviewLayer(viewer)
        self._work = Previewer()
        self.latest = Latest(self, self._on_done, self._on_failed)
        self.box = QCheckBox("Preview")
        #: Whether it opens where it is quick; until the user has closed it.
        self.opens = True
        explain(self.box, "Preview", _TIP)
        self.box.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        #: What colours the faces of a new layer.
        self.look = Look()
        #: The image whose spots are shown.
        self.image: Image | None = None
        self._index: tuple[int, ...] | None = None
        self._version = 0
        self._maps: LayerMaps | None = None
        self._reported, self._bound = "", False
        self._pixels, self._place = Follower(self._on_pixels), Follower(self._on_maps)
        self._known, self._step = Follower(self._on_maps), Follower(self._on_step)
        self._gone = Follower(self._on_removed)
        self._soon = qdebounced(self._ask_now, 0, parent=self)
        self._patience = qdebounced(self._on_slow, _PATIENCE, parent=self)
        self._connect()

    @property
    def layer(self) -> Points | None:
        """The layer that shows the spots."""
        return self._shown.layer

    def unbind(self) -> None:
        """Untick the box, which disconnects from the viewer."""
        self.box.setChecked(False)

    def ask(self) -> None:
        """Redraw, once for all changes until the next turn of the event loop."""
        if self._bound:
            self._soon()

    def _on_clicked(self, ticked: bool) -> None:
        self.opens = ticked
        self.chosen.emit()

    def _is_quick(self) -> bool:
        """Whether the chosen image is small, at hand, and has not been fitted yet."""
        image, layers = self._settings.image.layer, self._viewer.layers
        if image is None or image.rgb or not isinstance(images.own_pixels(image), np.ndarray):
            return False
        if math.prod(images.own_pixels(image).shape[-images.spatial_axes(image) :]) > _QUICK:
            return False
        return not any(
            points.is_result(one) and images.image_of(one, layers) is image for one in layers
        )

    def _on_ticked(self, ticked: bool) -> None:
        self._settings.detection_panel.setVisible(ticked)
        if ticked:
            self._follow()
            self.ask()
        else:
            self._leave()

    def _follow(self) -> None:
        self._bound = True
        self._step.follow(self._viewer.dims.events.current_step)
        self._gone.follow(self._viewer.layers.events.removed)
        self._on_image()
        self._on_maps_chosen()

    def _leave(self) -> None:
        self._bound = False
        self._soon.cancel()
        self._patience.cancel()
        self.latest.drop()
        for follower in (self._pixels, self._place, self._known, self._step, self._gone):
            follower.follow()
        self.image, self._work = None, Previewer()
        self._settings.detection_panel.clear()
        self._shown.remove()
        self._recover()

    def _ask_now(self) -> None:
        """Request the spots of the frame shown now."""
        if self._shown.image is not self.image:
            self._shown.remove()
            self._settings.detection_panel.clear()
        if self.image is None:
            self._recover()
            return
        try:
            job = self._job(self.image)
        except (TypeError, ValueError) as error:
            self._on_failed(error)
            return
        self._index = job.index
        self._patience()
        work = self._work
        self.latest.ask(lambda: work(job))

    def _job(self, image: Image) -> PreviewJob:
        if self._maps is None:
            self._maps = layer_maps(image, self._settings.layers())
        return PreviewJob(
            image=images.full_resolution(image),
            index=images.current_frame(self._viewer, image),
            version=self._version,
            settings=self._settings.settings(),
            maps=self._maps,
            noise=self._noise.get(),
            look=self.look,
        )

    def _on_done(self, result: Previewed) -> None:
        self._patience.cancel()
        if not self._bound or self.image is None or result.job.version != self._version:
            return
        self._shown.draw(self.image, result.points)
        self._settings.detection_panel.show_found(result)
        self._recover()
        self.drawn.emit()

    def _on_failed(self, error: Exception) -> None:
        self._patience.cancel()
        self._shown.empty()
        self._settings.detection_panel.clear()
        if str(error) != self._reported:
            self._reported = str(error)
            self.failed.emit(error)
        self.drawn.emit()

    def _on_slow(self) -> None:
        self._reported = "slow"
        self.slow.emit()

    def _recover(self) -> None:
        if self._reported:
            self._reported = ""
            self.recovered.emit()

    def _on_image(self) -> None:
        """Turn to the image that is chosen.

        The layer on the other one goes later: napari may be in the middle of removing layers.
        """
        if not self._bound:
            self.box.setChecked(self.opens and self._is_quick())
            return
        if self.image is self._settings.image.layer:
            return
        self.image = self._settings.image.layer
        if self.image is None:
            self._shown.hide()
        self._pixels.follow(*events_of(("data",), self.image))
        self._place.follow(*events_of(PLACE, self.image), self._viewer.layers.events.reordered)
        self._maps = None
        self._on_pixels()
        self.latest.drop()

    def _on_pixels(self, event: Any = None) -> None:
        self._version += 1
        self.ask()

    def _on_maps_chosen(self) -> None:
        if self._bound:
            self._known.follow(*events_of(CONTENTS, *self._settings.layers().values()))
            self._on_maps()

    def _on_maps(self, event: Any = None) -> None:
        self._maps = None
        self.ask()

    def _on_step(self, event: Any = None) -> None:
        """Redraw if the image shows another frame."""
        if self.image is not None:
            try:
                index = images.current_frame(self._viewer, self.image)
            except ValueError:
                index = None
            if index is None or index != self._index:
                self.ask()

    def _on_removed(self, event: Any) -> None:
        if self.layer is not None and event.value is self.layer:
            self.box.setChecked(False)

    def _connect(self) -> None:
        self.box.toggled.connect(self._on_ticked)
        self.box.clicked.connect(self._on_clicked)
        self._settings.changed.connect(self.ask)
        self._settings.image.changed.connect(self._on_image)
        self._settings.maps_changed.connect(self._on_maps_chosen)


class PreviewLayer:
    """One layer, made with the first spots, updated by each later result, then removed.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows it.
    """

    def __init__(self, viewer: Viewer):
        self._viewer = viewer
        self.layer: Points | None = None
        #: The image on which it lies.
        self.image: Image | None = None

    def draw(self, image: Image, arguments: dict[str, Any]) -> None:
        """Show an image's spots.

        Parameters
        ----------
        image : napari.layers.Image
            The image in which they were found.
        arguments : dict
            From :func:`~napari_spotfit.widgets.layers.points.points_arguments`.
        """
        self.image = image
        if self.layer is None:
            arguments = with_look(arguments, Look(mark=PREVIEW))
            arguments["metadata"][points.PASSING] = True
            layer = points.make_points_layer(arguments, image, f"{image.name} (preview)")
            layer.opacity = _OPACITY
            self.layer = layer
            add_unselected(self._viewer, layer)
        else:
            self._update(self.layer, image, arguments)
        self._raise(image)

    def empty(self) -> None:
        """Show no spots."""
        if self.layer is not None:
            self.layer.selected_data = set()
            self.layer.face_color_mode = self.layer.border_color_mode = "direct"
            self.layer.data = np.empty((0, self.layer.ndim))
            self.layer.metadata = {**self.layer.metadata, "stop_counts": {}, "invalid": 0}

    def hide(self) -> None:
        """Hide the layer, as Mesa's OpenGL crashes where points of one frame are drawn alone."""
        if self.layer is not None:
            self.layer.visible = False

    def remove(self) -> None:
        """Remove the layer, if it is still there."""
        layer, self.layer, self.image = self.layer, None, None
        if layer is not None and layer in self._viewer.layers:
            self._viewer.layers.remove(layer)

    def _update(self, layer: Points, image: Image, arguments: dict[str, Any]) -> None:
        """Show other spots in the layer; colours that were chosen for it stay."""
        earlier = dict(layer.metadata)
        points.update_points_layer(layer, arguments, image)
        points.color_points_layer(layer)
        limits = earlier.get("face_limits")
        if limits is not None and earlier.get("face") == layer.metadata["face"]:
            color_faces(layer, layer.metadata["face"], limits=limits)

    def _raise(self, image: Image) -> None:
        """Keep the layer above the image, and above the results of earlier fits."""
        layers = self._viewer.layers
        if self.layer is not None and self.layer in layers and image in layers:
            place = layers.index(self.layer)
            below = [i for i, one in enumerate(layers) if one is image or points.is_result(one)]
            if place < max(below):
                layers.move(place, max(below) + 1)
