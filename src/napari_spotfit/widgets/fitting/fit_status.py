"""The status of *Fit spots*: progress of a fit, messages about the chosen image, and advice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from weakref import ref

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QWidget

from ..layers.points import is_preview
from ..parts.layout import button, fill, sentence, show_text
from ..parts.messages import StatusLine, number, report, time_left
from ..parts.work import delayed
from .layer_fit import CancelledError, ImageChangedError

if TYPE_CHECKING:
    from napari.layers import Layer, Points

    from .image_fit import Advice
    from .layer_fit import FitRun, LayerFit
    from .settings_panel import SettingsPanel

_STOP_TIP = "<p>Stop fitting, and show the spots found until now.</p>"
_CANCEL_TIP = "<p>Stop fitting; the layers stay as they are.</p>"
#: What a summary must not be folded with.
_NOTABLE = ("⚠", "No spots", "could not be fitted", "Stopped after")
#: Milliseconds for which a brief message is shown.
_PASSES = 10_000


class RunBar(QWidget):
    """A progress bar, and the buttons *Stop* and *Cancel*."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = QProgressBar()
        self.stop_button = button("Stop", _STOP_TIP)
        self.cancel_button = button("Cancel", _CANCEL_TIP)
        self._began = 0.0
        fill(QHBoxLayout(self), (self.progress, 1), self.stop_button, self.cancel_button)

    def begin(self) -> None:
        """Show that a fit has started, without progress yet."""
        self._began = time.monotonic()
        self.progress.setRange(0, 0)
        self.progress.setFormat("")
        self.stop_button.setEnabled(True)
        self.cancel_button.setEnabled(True)

    def show_progress(self, done: int, total: int) -> None:
        """Show how many frames are done, and the time left."""
        self.progress.setRange(0, total)
        self.progress.setValue(done)
        left = time_left(done, total, time.monotonic() - self._began)
        text = f"{number(done)} of {number(total)} frames"
        self.progress.setFormat(f"{text}, {left}" if left else text)

    def show_last(self, text: str) -> None:
        """Show the last step, which cannot be stopped."""
        self.stop_button.setEnabled(False)
        self.cancel_button.setEnabled(False)
        self.progress.setFormat(text)


class FitStatusLine(StatusLine):
    """The status of the chosen image and its spots, cleared when it no longer holds.

    Parameters
    ----------
    settings : SettingsPanel
        Chooses the image: with another choice the status is cleared. Errors are cleared by other
        settings, too.
    """

    def __init__(self, settings: SettingsPanel):
        super().__init__(hides=True)
        self._choice = settings.image
        #: Whether the text has nothing to add to the heading of the result; then it is folded, too.
        self._quiet = self._unfolded = False
        self._image: ref[Layer] | None = None
        self._layer: ref[Points] | None = None
        self._of_preview = self._lasts = False
        self._passing = delayed(lambda: self.say(""), _PASSES, self)
        rows = (settings.controls.first, settings.controls.folded)
        for part in (*rows, settings.frames, settings.model):
            part.changed.connect(self.drop_error)
        settings.maps_changed.connect(self.drop_error)

    def fitting(self, run: FitRun) -> None:
        """Show which image is being fitted."""
        image, count = run.now.image, len(run.fits)
        which = self._which(image)
        if count > 1:
            which = f"“{image.name}”, {list(run.fits).index(run.now) + 1} of {count} images"
        self.say(f"Fitting {which}".rstrip() + "…")

    def end(self, run: FitRun) -> None:
        """Show how each fit has ended, first those that have failed."""
        if all(type(fit.error) is CancelledError for fit in run.fits):
            self.say("Cancelled; the layers are as they were.")
            return
        several, lines = len(run.fits) > 1, []
        for fit in sorted(run.fits, key=_failed, reverse=True):
            which = f"“{fit.image.name}”" if several else self._which(fit.image)
            if isinstance(fit.error, ImageChangedError):  # which names it
                which = ""
            text = fit.counts if several and _is_plain(fit.summary) else _end_in_words(fit)
            lines.append(f"{which}: {text}" if which else text)
        failed = any(_failed(fit) for fit in run.fits)
        self._say_of("\n".join(lines), next(iter(run.layers), None), failed=failed)
        # Another image takes the place of one that was removed.
        self._lasts = any(isinstance(fit.error, ImageChangedError) for fit in run.fits)
        if several:
            self._show_unless_folded(False)

    def fold(self, unfolded: bool) -> None:
        """Show or hide a text that has nothing to add to the heading of the result."""
        self._unfolded = unfolded
        self._show_unless_folded(self._quiet)

    def _show_unless_folded(self, quiet: bool) -> None:
        self._quiet = quiet
        self.setVisible(bool(self.text()) and (self._unfolded or not quiet))

    def say_briefly(self, text: str) -> None:
        """Show a message for a while, such as that a click did nothing."""
        self.say(text)
        self._passing.start()

    def preview(self, text: str = "", *, failed: bool = False) -> None:
        """Show a message of the preview; without a text clear the last one, and no other."""
        if text:
            (self.fail if failed else self.say)(text)
            self._of_preview = True
        elif self._of_preview:
            self.say("")

    def look(self) -> None:
        """Clear the status of an image that is no longer chosen."""
        chosen = self._choice.layer
        before = None if self._image is None else self._image()
        if chosen is not before and not (self._lasts or self._of_preview):
            self.say("")

    def drop_error(self) -> None:
        """Clear an error, as its cause may have changed."""
        if self.failed and not self._of_preview:
            self.say("")

    def describe(self, layer: Points) -> None:
        """Let the text that is shown be about a layer of spots."""
        self._layer = ref(layer)

    def switch_to(self, layer: Points) -> None:
        """Show the summary of another layer of spots, if the status is about a layer."""
        described = None if self._layer is None else self._layer()
        if described is not None and described is not layer and not is_preview(layer):
            self.summarize(layer)

    def summarize(self, layer: Points) -> None:
        """Show the summary of a layer of spots."""
        self._say_of(str(layer.metadata.get("summary", "")), layer)

    def forget(self, layer: Layer) -> None:
        """Clear the status of a layer that is gone, and errors that it may have caused."""
        if self._layer is not None and self._layer() in (layer, None):
            self.say("")
        if not is_preview(layer):
            self.drop_error()

    def _say_of(self, text: str, layer: Points | None, *, failed: bool = False) -> None:
        """Show a text about a layer of spots."""
        (self.fail if failed else self.say)(text)
        if layer is not None:
            self.describe(layer)
            self._show_unless_folded(not failed and _is_plain(text))

    def _which(self, image: Layer) -> str:
        """Return the name of an image unless it is the chosen one."""
        return "" if image is self._choice.layer else f"“{image.name}”"

    def put(self, text: str, *, failed: bool) -> None:
        """Show a text, and remember which image it is about."""
        self._passing.stop()
        chosen = self._choice.layer
        self._image = None if chosen is None else ref(chosen)
        self._layer, self._of_preview, self._lasts, self._quiet = None, False, False, False
        super().put(text, failed=failed)
        parent = self.parentWidget()
        if parent is not None and (layout := parent.layout()) is not None:
            layout.activate()  # else the window would be drawn twice


def _end_in_words(fit: LayerFit) -> str:
    error = fit.error
    if isinstance(error, CancelledError):
        return f"{error}. The layers are as they were."
    text = fit.summary if error is None else report(error)
    return text + ". They replace those of the last fit." * fit.replaced


def _is_plain(summary: str) -> bool:
    """Whether a summary says no more than how many spots are good, and why others are not."""
    return bool(summary) and not any(word in summary for word in _NOTABLE)


def _failed(fit: LayerFit) -> bool:
    return fit.error is not None and type(fit.error) is not CancelledError


class AdviceLine(QWidget):
    """One line that says why most fits are doubtful, and a button that mends it."""

    #: The settings to fit again with.
    accepted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.label, self.button = sentence(), button("", slot=self._on_clicked)
        self._advice: Advice | None = None
        fill(QHBoxLayout(self), (self.label, 1), self.button)
        self.hide()

    def show_advice(self, advice: Advice | None, image: str = "") -> None:
        """Show why most are doubtful, of an image that is named; nothing without advice."""
        self._advice = advice
        self.setVisible(advice is not None)
        if advice is not None:
            whose = f" of “{image}”" if image else ""
            self.label.setText(f"⚠ Most{whose} are doubtful: {advice.why}.")
            show_text(self.button, advice.offer)

    def _on_clicked(self) -> None:
        if self._advice is not None:
            self.accepted.emit(self._advice.settings)
