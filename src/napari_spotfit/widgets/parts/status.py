"""The line that says what happened, or what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel, QSizePolicy, QWidget

from ...images.frames import to_host
from ...results.flags import reasons_in_words
from ...results.flags import thousands as number
from ...results.spot_fits import SpotFits
from ..napari_compat import theme_of

if TYPE_CHECKING:
    from napari import Viewer

__all__ = ["StatusLine", "number", "summary", "time_left"]

#: Narrow space that does not break, before units.
_SPACE = "\u202f"
#: Seconds after which the time that is left can be told.
_TELLING = 3.0
_ERROR_ON_DARK, _ERROR_ON_LIGHT = "#ff8a80", "#b00020"


def summary(fits: SpotFits, seconds: float, device: str) -> str:
    """Say in one line what a fit has found.

    Parameters
    ----------
    fits : SpotFits
        All fits, the invalid ones too.
    seconds : float
        How long it took.
    device : str
        What it ran on.
    """
    total = len(fits)
    found = f"{number(total)} spot{'' if total == 1 else 's'}" if total else "No spots"
    text = f"{found} in {seconds:.1f}{_SPACE}s on {device}"
    if not total:
        return f"{text}: allow more false spots or try another PSF σ"
    invalid = int((~fits.valid).sum())
    text += f", {reasons_in_words(to_host(fits.flags))}"
    return f"{text}; {number(invalid)} invalid and not drawn" if invalid else text


def time_left(done: int, total: int, seconds: float) -> str:
    """Say about how long something takes yet, once that can be told; else nothing.

    Parameters
    ----------
    done, total : int
        So many are done, of so many.
    seconds : float
        Since the first one began.
    """
    if not done or seconds < _TELLING:
        return ""
    left = seconds * (total - done) / done
    if left < 60:
        # In steps that do not flicker.
        return f"about {max(5 * round(left / 5), 1)}{_SPACE}s left"
    hours, minutes = divmod(round(left / 60), 60)
    return "about " + f"{hours}{_SPACE}h " * (hours > 0) + f"{minutes}{_SPACE}min left"


class StatusLine(QLabel):
    """Shows a message; errors stand out in any theme.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose theme counts.
    parent : QWidget, optional
        Qt parent.
    """

    def __init__(self, viewer: Viewer, parent: QWidget | None = None):
        super().__init__(parent)
        self._viewer = viewer
        self._failed = False
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)

    def say(self, text: str) -> None:
        """Show what happened."""
        self._show(text, failed=False)

    def fail(self, text: str) -> None:
        """Show what went wrong."""
        self._show(f"⚠ {text}", failed=True)

    def bind(self) -> None:
        """Follow the viewer's theme."""
        self._viewer.events.theme.connect(self._paint)

    def unbind(self) -> None:
        """Stop following it."""
        self._viewer.events.theme.disconnect(self._paint)

    def _show(self, text: str, *, failed: bool) -> None:
        self._failed = failed
        self._paint()
        self.setText(text)

    def _paint(self, event: object = None) -> None:
        color = _ERROR_ON_LIGHT if theme_of(self._viewer).light else _ERROR_ON_DARK
        style = f"color: {color};" if self._failed else ""
        if style != self.styleSheet():  # Qt works it out anew
            self.setStyleSheet(style)
