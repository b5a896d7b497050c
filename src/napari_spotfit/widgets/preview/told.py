"""What the image tells of its PSF, shown where σ and the ROI's size are set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import QObject

if TYPE_CHECKING:
    from ..fitting.settings_panel import SettingsPanel
    from .image_noise import ImageNoise


class ToldPsf(QObject):
    """Keeps the controls in step with what fits, previews and clicks have measured.

    Nothing is measured for it.

    Parameters
    ----------
    settings : SettingsPanel
        The panel with the controls.
    noise : ImageNoise
        What the chosen image tells.
    parent : QObject
        Qt parent.
    """

    def __init__(self, settings: SettingsPanel, noise: ImageNoise, parent: QObject):
        super().__init__(parent)
        self._settings, self._noise = settings, noise
        noise.renewed.connect(self.show)
        noise.prepared.connect(self.show)
        settings.changed.connect(self.show)

    def show(self) -> None:
        """Show what is known by now."""
        try:
            settings = self._settings.settings()
        except (TypeError, ValueError):  # told whoever asks for a fit
            self._settings.show_estimate(None)
        else:
            self._settings.show_estimate(self._noise.get().known(settings))
