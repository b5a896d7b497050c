"""Noise and PSF of the image that is chosen, measured once for fits, previews and clicks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, Signal

from ..layers import images
from ..layers.images import CONTENTS, events_of
from ..layers.maps import layer_maps
from ..layers.measured_noise import MeasuredNoise
from ..parts.docking import Follower
from ..parts.work import Latest

if TYPE_CHECKING:
    from ..fitting.settings_panel import SettingsPanel


class ImageNoise(QObject):
    """Keeps the noise of the chosen image until its pixels, or the camera's maps, are others.

    Parameters
    ----------
    settings : SettingsPanel
        Which image, and what is known of its pixels.
    parent : QObject
        Qt parent.
    """

    #: What was measured no longer counts.
    renewed = Signal()
    #: It was measured in the background, as was asked for.
    prepared = Signal()

    def __init__(self, settings: SettingsPanel, parent: QObject):
        super().__init__(parent)
        self._settings = settings
        self._noise, self._bound = MeasuredNoise(), False
        self._latest = Latest(self)
        self._latest.done.connect(self.prepared)
        self._pixels, self._known = Follower(self._renew), Follower(self._renew)
        settings.image.changed.connect(self._on_layers)
        settings.camera.changed.connect(self._on_layers)

    def get(self) -> MeasuredNoise:
        """Return the noise of the image as it is now."""
        return self._noise

    def prepare(self) -> None:
        """Measure it in the background, so that nobody has to wait."""
        image = self._settings.image.layer
        if image is None or image.rgb:
            return
        try:
            settings = self._settings.settings()
            maps = layer_maps(image, self._settings.camera.layers())
        except (TypeError, ValueError):  # told whoever asks for a fit
            return
        pixels, noise = images.full_resolution(image), self._noise
        self._latest.ask(lambda: noise.put_into(settings, pixels, maps.read()))

    def bind(self) -> None:
        """Follow the image and the camera's maps."""
        self._bound = True
        self._on_layers()

    def unbind(self) -> None:
        """Stop following them."""
        self._bound = False
        self._latest.drop()
        self._pixels.follow()
        self._known.follow()
        self._renew()

    def _on_layers(self) -> None:
        if self._bound:
            self._pixels.follow(*events_of(("data",), self._settings.image.layer))
            self._known.follow(*events_of(CONTENTS, *self._settings.camera.layers().values()))
            self._renew()

    def _renew(self, event: Any = None) -> None:
        """Measure anew; what is under way still has what it was asked with."""
        self._noise = MeasuredNoise()
        self.renewed.emit()
