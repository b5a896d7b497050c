"""The camera's gain that an image suggests, offered where it is not known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, Signal

from ...settings.noise_model import NoiseModel, excess_of
from ...settings.settings import Settings
from ..layers import images
from ..layers.maps import LayerMaps, layer_maps
from ..layers.noise import MeasuredNoise
from ..parts.latest import Latest

if TYPE_CHECKING:
    from ..preview.estimates import ImageNoise
    from .settings_panel import SettingsPanel


class GainOffer(QObject):
    """Asks for the chosen image's noise in the background while the camera's controls are shown.

    It is the noise of fits, previews and clicks, measured once. The button is there where the gain
    is not set and the image tells one; pressed, it sets gain and offset.

    Parameters
    ----------
    settings : SettingsPanel
        The panel with the controls and the button.
    measured : ImageNoise
        The noise of its image.
    parent : QObject
        Qt parent.
    """

    #: The noise is known.
    asked = Signal()

    def __init__(self, settings: SettingsPanel, measured: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._settings, self._button = settings, settings.camera.gain_button
        self._measured = measured
        self._noise: NoiseModel | None = None
        self._latest = Latest(self)
        self._latest.done.connect(self._on_done)
        for signal in (measured.renewed, settings.advanced.toggled):
            signal.connect(self.ask)
        for name in ("gain", "offset", "emccd"):
            settings.controls[name].changed.connect(self._show)
        self._button.clicked.connect(self._use)

    def ask(self) -> None:
        """Ask for the noise, if there is something to offer."""
        self.drop()
        job = self._job()
        if job is not None:
            self._latest.ask(job)

    def drop(self) -> None:
        """Forget the noise, or that it was asked for."""
        self._latest.drop()
        self._noise = None
        self._show()

    def _job(self) -> Callable[[], NoiseModel | None] | None:
        image, layers = self._settings.image.layer, self._settings.camera.layers()
        if (
            image is None
            or image.rgb
            or not self._settings.advanced.isExpanded()
            or "gain" in layers
        ):
            return None
        try:
            maps = layer_maps(image, layers)
            settings = self._settings.settings().changed(gain=None)
        except (TypeError, ValueError):  # which a fit will say
            return None
        return partial(_noise, self._measured.get(), settings, images.full_resolution(image), maps)

    def _suggested(self) -> dict[str, Any]:
        """Return the settings that are offered, none where nothing is."""
        controls, noise = self._settings.controls, self._noise
        if noise is None or noise.gain is None or controls["gain"].value is not None:
            return {}
        gain = noise.gain / excess_of(controls["emccd"].value)
        found: dict[str, Any] = {"gain": float(f"{gain:.3g}")}
        # A gain alone would take all that the camera adds for light.
        if controls["offset"].value == 0 and "offset" not in self._settings.camera.layers():
            found["offset"] = round(noise.offset or 0.0, 1)
        return found

    def _on_done(self, noise: NoiseModel | None) -> None:
        self._noise = noise
        self._show()
        self.asked.emit()

    def _show(self) -> None:
        found = self._suggested()
        if found:
            text = f"The image suggests {found['gain']:g} counts/e⁻: use it"
            self._button.setText(text)
            self._button.setAccessibleName(text)
        self._button.setVisible(bool(found))

    def _use(self) -> None:
        self._settings.controls.put(self._suggested())


def _noise(
    measured: MeasuredNoise, settings: Settings, image: Any, maps: LayerMaps
) -> NoiseModel | None:
    return measured.put_into(settings, image, maps.read()).noise
