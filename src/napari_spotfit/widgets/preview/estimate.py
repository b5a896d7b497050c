"""The button "Estimate": the PSF's width from the image's bright spots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QObject, Signal

from ...estimation.psf_width import PsfWidth, estimate_sigma
from ...images.frames import HeldFrame
from ...settings.settings import Settings, parameters
from ..layers import images
from ..layers.maps import LayerMaps, layer_maps
from ..layers.measured_noise import MeasuredNoise
from ..parts.work import Latest

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

    from ..fitting.settings_panel import SettingsPanel
    from .image_noise import ImageNoise


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

    #: What is going on, or what was found.
    said = Signal(str)
    #: What went wrong, an exception.
    failed = Signal(object)

    def __init__(self, viewer: Viewer, settings: SettingsPanel, noise: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._viewer, self._settings, self._noise = viewer, settings, noise
        self._image: Image | None = None
        self._latest = Latest(self)
        self._latest.done.connect(self._on_done)
        self._latest.failed.connect(self._on_failed)
        settings.image.changed.connect(self.drop)
        settings.estimate_button.clicked.connect(self.ask)

    def ask(self) -> None:
        """Begin to estimate."""
        try:
            job = self._job()
        except (TypeError, ValueError) as error:
            self.failed.emit(error)
            return
        self._settings.estimate_button.setEnabled(False)
        self.said.emit("Estimating σ…")
        self._latest.ask(job)

    def drop(self) -> None:
        """Forget what was asked for; the image is no longer the chosen one."""
        self._latest.drop()
        self._settings.estimate_button.setEnabled(True)

    def _job(self) -> Callable[[], PsfWidth]:
        image = self._settings.image.layer
        if image is None:
            raise ValueError(
                "there is no image with spots to estimate σ from; open one, or a sample in "
                "File ▸ Open Sample"
            )
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
        about = parameters()["sigma"]
        assert about.minimum is not None
        assert about.maximum is not None
        sigma = float(f"{width.sigma:.3g}")
        accepted = min(max(sigma, about.minimum), about.maximum)
        self._settings.controls.put({"sigma": accepted})
        text = f"PSF σ {sigma:g} px from {width.spots} good fits (scatter {width.scatter:.2g} px)"
        if accepted != sigma:
            text += (
                f". Detection takes {about.minimum:g} to {about.maximum:g} px, so it is set to "
                f"{accepted:g} px; σ of the fits is not bound by it"
            )
        self.said.emit(text)

    def _on_failed(self, error: Exception) -> None:
        self._settings.estimate_button.setEnabled(True)
        self.failed.emit(error)


def _estimate(
    image: Any,
    index: tuple[int, ...],
    settings: Settings,
    maps: LayerMaps,
    noise: MeasuredNoise,
) -> PsfWidth:
    """Estimate from the frame that is shown; from some of all frames if it has too few spots."""
    known = maps.read()
    known.pop("weights", None)
    mask = known.pop("mask", None)
    settings = noise.put_into(settings, image, known)
    held = HeldFrame(image, index)
    here = mask if mask is None or mask.ndim == 2 else np.asarray(mask[index])
    try:
        return estimate_sigma(held, frames=index or None, mask=here, settings=settings, **known)
    except ValueError:
        if not index:
            raise
    return estimate_sigma(image, mask=mask, settings=settings, **known)
