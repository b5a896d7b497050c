"""Noise, PSF and gain of the chosen image: measured once for all fits, or set by a button."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from qtpy.QtCore import QObject, Signal

from ...estimation.image_estimates import MeasuredNoise
from ...estimation.psf_width import PsfWidth, estimate_sigma
from ...images.frames import HeldFrame
from ...settings.noise_model import NoiseModel, excess_of
from ...settings.settings import Settings, parameters
from ..layers import images
from ..layers.images import CONTENTS, events_of
from ..layers.maps import LayerMaps, frame_of, layer_maps
from ..napari_compat import is_image
from ..parts.docking import Follower
from ..parts.work import Latest

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

    from .settings_panel import SettingsPanel


class ImageNoise(QObject):
    """Noise and PSF of the ticked images, measured again when pixels or camera maps change.

    Measured values are shown in the controls of σ and the ROI's size.

    Parameters
    ----------
    settings : SettingsPanel
        The image and the maps of its pixels.
    parent : QObject
        Qt parent.
    """

    #: Earlier measurements no longer count.
    renewed = Signal()

    def __init__(self, settings: SettingsPanel, parent: QObject):
        super().__init__(parent)
        self._settings = settings
        self._known: WeakKeyDictionary[Image, MeasuredNoise] = WeakKeyDictionary()
        self._bound = False
        self._latest = Latest(self, lambda done: self.show())
        self._watch = Follower(self._renew)
        settings.changed.connect(self.show)
        settings.image.changed.connect(self._on_image)
        settings.image.ticks_changed.connect(self._on_ticks)
        settings.camera.changed.connect(self._on_layers)

    def get(self, image: Image | None = None) -> MeasuredNoise:
        """Return the noise of an image as it is now; by default of the current one."""
        image = image or self._settings.image.layer
        return MeasuredNoise() if image is None else self._known.setdefault(image, MeasuredNoise())

    def prepare(self) -> None:
        """Measure in the background, so that the first fit does not wait."""
        image = self._settings.image.layer
        if image is None or image.rgb:
            return
        try:
            settings = self._settings.settings()
            maps = layer_maps(image, self._settings.camera.layers())
        except (TypeError, ValueError):  # reported by the next fit
            return
        pixels, noise = images.full_resolution(image), self.get()
        self._latest.ask(lambda: noise.put_into(settings, pixels, maps.read()))

    def show(self) -> None:
        """Show the values measured so far in the controls."""
        try:
            values = self.get().known(self._settings.settings())
        except (TypeError, ValueError):  # reported by the next fit
            values = None
        self._settings.show_estimate(values)

    def bind(self) -> None:
        """Follow the image and the camera's maps."""
        self._bound = True
        self._on_layers()

    def unbind(self) -> None:
        """Stop following them."""
        self._bound = False
        self._latest.drop()
        self._watch.follow()
        self._renew()

    def _on_layers(self) -> None:
        self._on_ticks()
        self._renew()

    def _on_ticks(self) -> None:
        """Follow the ticked images, and forget the others, whose changes go unnoticed."""
        if self._bound:
            ticked = self._settings.image.ticked
            for image in [one for one in self._known if one not in ticked]:
                del self._known[image]
            self._watch.follow(
                *events_of(("data",), *ticked),
                *events_of(CONTENTS, *self._settings.camera.layers().values()),
            )

    def _renew(self, event: Any = None) -> None:
        """Measure again; running work keeps the noise that it was given."""
        self._known.clear()
        self._on_image()

    def _on_image(self) -> None:
        if self._bound:
            self.show()
            self.renewed.emit()


class SigmaEstimate(QObject):
    """Estimates σ when its button is pressed, and sets the control.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose current frame counts.
    settings : SettingsPanel
        The panel with the button.
    noise : ImageNoise
        The noise of its image.
    parent : QObject
        Qt parent.
    """

    #: Progress or result.
    said = Signal(str)
    #: The exception that ended it.
    failed = Signal(object)

    def __init__(self, viewer: Viewer, settings: SettingsPanel, noise: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._viewer, self._settings, self._noise = viewer, settings, noise
        self._image: Image | None = None
        self._latest = Latest(self, self._on_done, self._on_failed)
        settings.image.changed.connect(self.drop)
        settings.estimate_button.clicked.connect(self.ask)

    def ask(self) -> None:
        """Begin to estimate."""
        try:
            job = self._job()
        except (TypeError, ValueError) as error:
            self.failed.emit(error)
            return
        self._image = self._settings.image.layer
        self._settings.estimate_button.setEnabled(False)
        self.said.emit("Estimating σ…")
        self._latest.ask(job)

    def drop(self) -> None:
        """Drop the request if another image was chosen."""
        if self._settings.image.layer is self._image:
            return
        self._latest.drop()
        self._settings.estimate_button.setEnabled(True)

    def _job(self) -> Callable[[], PsfWidth]:
        image = self._settings.current_image()
        return partial(
            _estimate,
            images.full_resolution(image),
            images.current_frame(self._viewer, image),
            self._settings.settings(),
            layer_maps(image, self._settings.layers()),
            self._noise.get(),
        )

    def _on_done(self, width: PsfWidth) -> None:
        self._settings.estimate_button.setEnabled(True)
        low, high = parameters()["sigma"].minimum or 0.0, parameters()["sigma"].maximum or np.inf
        sigma = float(f"{width.sigma:.3g}")
        accepted = min(max(sigma, low), high)
        self._settings.controls.put({"sigma": accepted})
        text = f"PSF σ {sigma:g} px from {width.spots} good fits (scatter {width.scatter:.2g} px)"
        if width.sigma_z is not None:
            self._settings.controls.put({"sigma_z": float(f"{width.sigma_z:.3g}")})
            text += f", σ along z {width.sigma_z:.3g} planes (scatter {width.scatter_z:.2g})"
        if accepted != sigma:
            text += f". Detection takes {low:g} to {high:g} px, so it is set to {accepted:g} px; "
            text += "σ of the fits is not bound by it"
        self.said.emit(text)

    def _on_failed(self, error: Exception) -> None:
        self._settings.estimate_button.setEnabled(True)
        self.failed.emit(error)


def _estimate(
    image: Any, index: tuple[int, ...], settings: Settings, maps: LayerMaps, noise: MeasuredNoise
) -> PsfWidth:
    """Estimate from the frame that is shown; from some of all frames if it has too few spots."""
    known = maps.read()
    known.pop("weights", None)
    mask = known.pop("mask", None)
    settings = noise.put_into(settings, image, known)
    frame = HeldFrame(image, index, settings.dimensions)
    own = None if mask is None else frame_of(mask, index)
    try:
        return estimate_sigma(frame, frames=index or None, mask=own, settings=settings, **known)
    except ValueError:
        if not index:
            raise
    return estimate_sigma(image, mask=mask, settings=settings, **known)


class GainOffer(QObject):
    """Asks for the chosen image's noise in the background while the camera's controls are shown.

    It is the noise of fits, previews and clicks, measured once. The button is there where the gain
    is not set and can be estimated; pressed, it sets gain and offset.

    Parameters
    ----------
    settings : SettingsPanel
        The image, and the controls of the camera with the button.
    noise : ImageNoise
        The noise of its image.
    parent : QObject
        Qt parent.
    """

    def __init__(self, settings: SettingsPanel, noise: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._settings, self._noise = settings, noise
        self._found: NoiseModel | None = None
        self._latest = Latest(self, self._on_done)
        for name in ("gain", "offset", "emccd"):
            settings.controls[name].changed.connect(self._show)
        settings.camera.gain_button.clicked.connect(
            lambda: settings.controls.put(self._suggested())
        )
        settings.advanced.toggled.connect(self.ask)
        noise.renewed.connect(self.ask)

    def ask(self) -> None:
        """Ask for the noise, if there is something to offer."""
        self.drop()
        job = self._job()
        if job is not None:
            self._latest.ask(job)

    def drop(self) -> None:
        """Forget the noise, or that it was asked for."""
        self._latest.drop()
        self._found = None
        self._show()

    def _job(self) -> Callable[[], NoiseModel | None] | None:
        image, layers = self._settings.image.layer, self._settings.camera.layers()
        shown = self._settings.advanced.isExpanded()
        if not is_image(image) or image.rgb or not shown or "gain" in layers:
            return None
        try:
            maps = layer_maps(image, layers)
            settings = self._settings.settings().changed(gain=None)
        except (TypeError, ValueError):  # which a fit will report
            return None
        pixels, noise = images.full_resolution(image), self._noise.get()
        return lambda: noise.put_into(settings, pixels, maps.read()).noise

    def _suggested(self) -> dict[str, Any]:
        """Return the settings that are offered, none where nothing is."""
        controls, found = self._settings.controls, self._found
        if found is None or found.gain is None or controls["gain"].value is not None:
            return {}
        gain = found.gain / excess_of(controls["emccd"].value)
        offer: dict[str, Any] = {"gain": float(f"{gain:.3g}")}
        # A gain alone would take all that the camera adds for light.
        if controls["offset"].value == 0 and "offset" not in self._settings.camera.layers():
            offer["offset"] = round(found.offset or 0.0, 1)
        return offer

    def _on_done(self, found: NoiseModel | None) -> None:
        self._found = found
        self._show()
        self._noise.show()

    def _show(self) -> None:
        offer, button = self._suggested(), self._settings.camera.gain_button
        if offer:
            text = f"Use {offer['gain']:g} counts/e⁻ of the image"
            button.setText(text)
            button.setAccessibleName(text)
        button.setVisible(bool(offer))
