"""How far a fit is, and what ends it before it is done."""

from __future__ import annotations

import time

from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QWidget

from ..parts.layout import fill
from ..parts.status import number, time_left

_STOP_TIP = "<p>Stop fitting, and show the spots found until now.</p>"
_CANCEL_TIP = "<p>Stop fitting; the layers stay as they are.</p>"


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
