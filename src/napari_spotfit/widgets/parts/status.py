"""The line that says what happened, or what went wrong."""

from __future__ import annotations

from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QLabel, QSizePolicy

from ...engine.quality.flags import reasons_in_words
from ...engine.quality.flags import thousands as number
from ...images.arrays import to_host
from ...results.spot_fits import SpotFits
from .layout import sentence

__all__ = ["StatusLine", "number", "summary", "time_left"]

#: Narrow space that does not break, before units.
_SPACE = "\u202f"
#: Seconds after which the time that is left can be told.
_TELLING = 3.0
#: Lightness from which on a background is light.
_MIDDLE = 128
_ERROR_ON_DARK, _ERROR_ON_LIGHT = "#ff8a80", "#b00020"


def summary(fits: SpotFits, seconds: float, device: str, why_invalid: str = "") -> str:
    """Say in one line what a fit has found.

    Parameters
    ----------
    fits : SpotFits
        All fits, the invalid ones too.
    seconds : float
        How long it took.
    device : str
        What it ran on.
    why_invalid : str
        Why some could not be fitted, and what to do, where that is known.
    """
    total = len(fits)
    found = f"{number(total)} spot{'' if total == 1 else 's'}" if total else "No spots"
    text = f"{found} in {seconds:.1f}{_SPACE}s on {device}"
    if not total:
        return f"{text}: allow more false spots or try another PSF σ"
    valid = to_host(fits.valid)
    invalid = int((~valid).sum())
    text += f", {reasons_in_words(to_host(fits.flags)[valid])}"
    if not invalid:
        return text
    text += (
        f"; {number(invalid)} could not be fitted and {'is' if invalid == 1 else 'are'} not drawn"
    )
    return f"{text}: {why_invalid}" if why_invalid else text


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
    """Shows a message; errors stand out in any theme."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether it says that something went wrong.
        self.failed = False
        sentence(self)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)

    def say(self, text: str) -> None:
        """Show what happened."""
        self.put(text, failed=False)

    def fail(self, text: str) -> None:
        """Show what went wrong."""
        self.put(f"⚠ {text}", failed=True)

    def changeEvent(self, event: QEvent | None) -> None:
        """Take the colours of another theme."""
        super().changeEvent(event)
        if event is not None and event.type() == QEvent.Type.StyleChange:
            self._paint()

    def put(self, text: str, *, failed: bool) -> None:
        """Show a text, as of something that went wrong or not."""
        self.failed = failed
        self._paint()
        self.setText(text)

    def _paint(self) -> None:
        # By what it is, not by the theme's name: users make themes of their own.
        light = self.palette().color(self.backgroundRole()).lightness() > _MIDDLE
        color = _ERROR_ON_LIGHT if light else _ERROR_ON_DARK
        style = f"color: {color};" if self.failed else ""
        if style != self.styleSheet():  # Qt works it out anew
            self.setStyleSheet(style)
