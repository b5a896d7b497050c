"""The status of *Fit spots*: how far a fit is, and what happened to the chosen image."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from weakref import ref

from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QWidget

from ..layers.points import is_preview
from ..parts.layout import fill
from ..parts.messages import StatusLine, number, report, time_left
from .layer_fit import CancelledError, ImageChangedError, IncompleteFitError

if TYPE_CHECKING:
    from napari.layers import Layer, Points

    from .layer_fit import LayerFit
    from .settings_panel import SettingsPanel

_STOP_TIP = "<p>Stop fitting, and show the spots found until now.</p>"
_CANCEL_TIP = "<p>Stop fitting; the layers stay as they are.</p>"
#: Milliseconds for which the line says that a click did nothing.
_PASSES = 10_000


class RunBar(QWidget):
    """A progress bar, and the buttons *Stop* and *Cancel*."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = QProgressBar()
        self.stop_button, self.cancel_button = QPushButton("Stop"), QPushButton("Cancel")
        self.stop_button.setToolTip(_STOP_TIP)
        self.cancel_button.setToolTip(_CANCEL_TIP)
        self._began = 0.0
        fill(QHBoxLayout(self), (self.progress, 1), self.stop_button, self.cancel_button)

    def begin(self) -> None:
        """Show that something runs of which nothing is known yet."""
        self._began = time.monotonic()
        self.progress.setRange(0, 0)
        self.progress.setFormat("")
        self.stop_button.setEnabled(True)
        self.cancel_button.setEnabled(True)

    def tell(self, done: int, total: int) -> None:
        """Show how many frames are done, and how long it takes yet."""
        self.progress.setRange(0, total)
        self.progress.setValue(done)
        left = time_left(done, total, time.monotonic() - self._began)
        text = f"{number(done)} of {number(total)} frames"
        self.progress.setFormat(f"{text}, {left}" if left else text)

    def say_last(self, text: str) -> None:
        """Show what comes last, which nothing ends."""
        self.stop_button.setEnabled(False)
        self.cancel_button.setEnabled(False)
        self.progress.setFormat(text)


class FitStatusLine(StatusLine):
    """Says what happened to an image and its spots, as long as it is of them.

    Parameters
    ----------
    settings : SettingsPanel
        Chooses the image that is fitted: what is said is of that, and ends with another choice.
        What is said to be wrong ends with other settings, too.
    """

    def __init__(self, settings: SettingsPanel):
        super().__init__()
        self._choice = settings.image
        self._image: ref[Layer] | None = None
        self._layer: ref[Points] | None = None
        self._of_preview = self._lasts = False
        self._passing = QTimer(self)
        self._passing.setSingleShot(True)
        self._passing.timeout.connect(lambda: self.say(""))
        rows = (settings.controls.first, settings.controls.folded)
        for part in (*rows, settings.frames, settings.model):
            part.changed.connect(self.drop_error)
        settings.maps_changed.connect(self.drop_error)

    def fitting(self, image: Layer) -> None:
        """Say that an image is being fitted."""
        self.say(f"Fitting {self._which(image)}".rstrip() + "…")

    def end(self, run: LayerFit) -> None:
        """Say how a fit has ended."""
        error, which = run.error, self._which(run.image)
        if isinstance(error, ImageChangedError):
            self.fail(f"{error}. The layers are as they were.")
            # Another image takes the place of the one that was removed.
            self._lasts = True
            return
        if isinstance(error, CancelledError):
            text = "Cancelled; the layers are as they were."
        elif error is None or isinstance(error, IncompleteFitError):
            text = run.summary if error is None else report(error)
            text += ". They replace those of the last fit." * run.replaced
        else:
            text = report(error)
        failed = error is not None and not isinstance(error, CancelledError)
        self._tell(f"{which}: {text}" if which else text, shown_by(run), failed=failed)

    def pass_by(self, text: str) -> None:
        """Say for a while that a click did nothing."""
        self.say(text)
        self._passing.start(_PASSES)

    def preview(self, text: str = "", *, failed: bool = False) -> None:
        """Say what the preview has to say; nothing takes that away, and nothing else."""
        if text:
            (self.fail if failed else self.say)(text)
            self._of_preview = True
        elif self._of_preview:
            self.say("")

    def look(self) -> None:
        """End what is said of an image that is no longer chosen."""
        chosen = self._choice.layer
        before = None if self._image is None else self._image()
        if chosen is not before and not (self._lasts or self._of_preview):
            self.say("")

    def drop_error(self) -> None:
        """End what is said to be wrong, as something has changed that may have been its cause."""
        if self.failed and not self._of_preview:
            self.say("")

    def be_of(self, layer: Points) -> None:
        """Let what is said be of a layer of spots."""
        self._layer = ref(layer)

    def turn_to(self, layer: Points) -> None:
        """Say of another layer of spots what its fit has found, if a layer is spoken of."""
        spoken_of = None if self._layer is None else self._layer()
        if spoken_of is not None and spoken_of is not layer and not is_preview(layer):
            self._tell(str(layer.metadata.get("summary", "")), layer)

    def forget(self, layer: Layer) -> None:
        """End what is said of a layer that is gone, and errors: it may have been their cause."""
        if self._layer is not None and self._layer() in (layer, None):
            self.say("")
        if not is_preview(layer):
            self.drop_error()

    def _tell(self, text: str, layer: Points | None, *, failed: bool = False) -> None:
        """Say something of a layer of spots."""
        (self.fail if failed else self.say)(text)
        if layer is not None:
            self.be_of(layer)

    def _which(self, image: Layer) -> str:
        """Return the name of an image, where the one that is chosen is another."""
        return "" if image is self._choice.layer else f"“{image.name}”"

    def put(self, text: str, *, failed: bool) -> None:
        """Show a text, and remember of which image it is."""
        self._passing.stop()
        chosen = self._choice.layer
        self._image = None if chosen is None else ref(chosen)
        self._layer, self._of_preview, self._lasts = None, False, False
        super().put(text, failed=failed)


def shown_by(run: LayerFit) -> Points | None:
    """Return the layer that shows what a fit has found, if it has a result."""
    whole = run.error is None or isinstance(run.error, IncompleteFitError)
    return run.layer if whole else None
