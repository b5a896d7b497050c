"""The spots of the frame that the viewer shows, drawn anew whenever a setting changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox
from superqt.utils import qdebounced

from ..layers import images
from ..layers.appearance import FACE_COLORMAP
from ..layers.images import CONTENTS, PLACE, events_of
from ..layers.maps import LayerMaps, layer_maps
from ..parts.docking import Follower
from ..parts.layout import explain
from ..parts.work import Latest
from .job import Previewed, Previewer, PreviewJob
from .layer import PreviewLayer

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

    from ..fitting.settings_panel import SettingsPanel
    from .image_noise import ImageNoise

_TIP = (
    "<p>Find and fit the spots of the frame that the viewer shows, and draw them anew whenever "
    "the settings or the frame change. They are what <b>Fit</b> finds in this frame. The layer "
    "of the preview goes when this is unticked.</p>"
)
#: After so many milliseconds without a first result the wait is explained.
_PATIENCE = 1500


class Preview(QObject):
    """Keeps one layer showing the spots of the current frame while its box is ticked.

    The work is done in the background; changes that come meanwhile are taken together,
    and only the last counts.

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
    #: What went wrong, an exception; the same is not told twice in a row.
    failed = Signal(object)
    #: The result takes long: the frame is still being read.
    slow = Signal()
    #: What was told last is no longer so.
    recovered = Signal()

    def __init__(self, viewer: Viewer, settings: SettingsPanel, noise: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._viewer, self._settings, self._noise = viewer, settings, noise
        self._shown = PreviewLayer(viewer)
        self._work = Previewer()
        self.latest = Latest(self)
        self.box = QCheckBox("Preview")
        explain(self.box, "Preview", _TIP)
        #: What colours the faces of a new layer.
        self.face, self.colormap = "sigma", FACE_COLORMAP
        self._image: Image | None = None
        self._index: tuple[int, ...] | None = None
        self._version = 0
        self._maps: LayerMaps | None = None
        self._told, self._bound = "", False
        self._pixels, self._place = Follower(self._on_pixels), Follower(self._on_place)
        self._known = Follower(self._on_maps)
        self._soon = qdebounced(self._ask_now, 0, parent=self)
        self._patience = qdebounced(self._on_slow, _PATIENCE, parent=self)
        self._connect()

    @property
    def layer(self) -> Points | None:
        """The layer that shows the spots."""
        return self._shown.layer

    @property
    def image(self) -> Image | None:
        """The image whose spots are shown."""
        return self._image

    def unbind(self) -> None:
        """Untick the box, which ends all that follows the viewer."""
        self.box.setChecked(False)

    def ask(self) -> None:
        """Draw anew, once for all that changes before Qt has dealt with its events."""
        if self._bound:
            self._soon()

    def _on_ticked(self, ticked: bool) -> None:
        self._settings.detection_panel.setVisible(ticked)
        if ticked:
            self._follow()
            self.ask()
        else:
            self._leave()

    def _follow(self) -> None:
        self._bound = True
        self._viewer.dims.events.current_step.connect(self._on_step)
        self._viewer.layers.events.removed.connect(self._on_removed)
        self._viewer.layers.events.reordered.connect(self._on_place)
        self._on_image()
        self._on_maps_chosen()

    def _leave(self) -> None:
        self._bound = False
        self._soon.cancel()
        self._patience.cancel()
        self.latest.drop()
        self._viewer.dims.events.current_step.disconnect(self._on_step)
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        self._viewer.layers.events.reordered.disconnect(self._on_place)
        for follower in (self._pixels, self._place, self._known):
            follower.follow()
        self._image, self._work = None, Previewer()
        self._settings.detection_panel.clear()
        self._shown.remove()
        self._recover()

    def _ask_now(self) -> None:
        """Ask for the spots of what is shown now."""
        if self._shown.image is not self._image:
            self._shown.remove()
            self._settings.detection_panel.clear()
        if self._image is None:
            self._recover()
            return
        try:
            job = self._job(self._image)
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
            face=self.face,
            colormap=self.colormap,
        )

    def _on_done(self, result: Previewed) -> None:
        self._patience.cancel()
        if not self._bound or self._image is None or result.job.version != self._version:
            return
        self._shown.draw(self._image, result.points)
        self._settings.detection_panel.show_found(result)
        self._recover()
        self.drawn.emit()

    def _on_failed(self, error: Exception) -> None:
        self._patience.cancel()
        self._shown.empty()
        self._settings.detection_panel.clear()
        if str(error) != self._told:
            self._told = str(error)
            self.failed.emit(error)
        self.drawn.emit()

    def _on_slow(self) -> None:
        self._told = "slow"
        self.slow.emit()

    def _recover(self) -> None:
        if self._told:
            self._told = ""
            self.recovered.emit()

    def _on_image(self) -> None:
        """Turn to the image that is chosen.

        The layer on the other one goes later: napari may be in the middle of removing layers.
        """
        if not self._bound or self._image is self._settings.image.layer:
            return
        self._image = self._settings.image.layer
        if self._image is None:
            self._shown.hide()
        self._pixels.follow(*events_of(("data",), self._image))
        self._place.follow(*events_of(PLACE, self._image))
        self._maps = None
        self._on_pixels()
        self.latest.drop()

    def _on_pixels(self, event: Any = None) -> None:
        self._version += 1
        self.ask()

    def _on_place(self, event: Any = None) -> None:
        self._maps = None
        self.ask()

    def _on_maps_chosen(self) -> None:
        if self._bound:
            self._known.follow(*events_of(CONTENTS, *self._settings.layers().values()))
            self._on_maps()

    def _on_maps(self, event: Any = None) -> None:
        self._maps = None
        self.ask()

    def _on_step(self, event: Any = None) -> None:
        """Draw anew if the image shows another frame."""
        if self._image is not None:
            try:
                index = images.current_frame(self._viewer, self._image)
            except ValueError:
                index = None
            if index is None or index != self._index:
                self.ask()

    def _on_removed(self, event: Any) -> None:
        if self.layer is not None and event.value is self.layer:
            self.box.setChecked(False)

    def _connect(self) -> None:
        self.box.toggled.connect(self._on_ticked)
        self._settings.changed.connect(self.ask)
        self._settings.image.changed.connect(self._on_image)
        self._settings.maps_changed.connect(self._on_maps_chosen)
        self.latest.done.connect(self._on_done)
        self.latest.failed.connect(self._on_failed)
