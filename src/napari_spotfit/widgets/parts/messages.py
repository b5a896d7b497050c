"""Times and errors as text, and the status line that shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QLabel, QSizePolicy

from ...engine.flags import thousands
from ...settings.settings import parameters
from .layout import sentence

#: Narrow space that does not break, between thousands and before units.
_THIN = "\u202f"
#: A whole number with its thousands apart.
number = thousands
#: Seconds after which the time left can be estimated.
_RELIABLE = 3.0
#: Lightness from which on a background is light.
_MIDDLE = 128
_ERROR_ON_DARK, _ERROR_ON_LIGHT = "#ff8a80", "#b00020"


def in_words(error: object, labels: Mapping[str, str] | None = None) -> str:
    """Return an error with the labels of controls instead of Python's names.

    Parameters
    ----------
    error : Exception or str
        What went wrong.
    labels : mapping of str to str, optional
        The labels of other arguments of functions, besides settings.

    Examples
    --------
    >>> in_words("amplitude_max = 2 must be above amplitude_min = 3")
    '“Amplitude at most” = 2 must be above “Amplitude at least” = 3'
    >>> in_words("link with a larger memory", {"memory": "Missing"})
    'Link with a larger “Missing”'
    >>> in_words("channels differ. Fit them one by one, as image[:, 1], and without gain")
    'Channels differ. Fit them one by one, and without gain'
    """
    text = str(error) or type(error).__name__
    called = {**_settings(), **(labels or {})}
    # Code is no advice in a window.
    text = re.sub(r",? (?:such )?as image\[[^\]]*\]", "", text)
    # What its label stands before.
    text = re.sub(rf" \((?:{'|'.join(_settings())})\)", "", text)
    text = _names(tuple(labels or ())).sub(lambda found: f"“{called[found[1]]}”", text)
    return text[:1].upper() + text[1:]


def report(error: Exception) -> str:
    """Return an error in words; napari shows more of an unexpected one."""
    if isinstance(error, (TypeError, ValueError, RuntimeError)):
        return in_words(error)
    from napari.utils.notifications import notification_manager

    notification_manager.receive_error(type(error), error, error.__traceback__)
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}"


@cache
def _settings() -> dict[str, str]:
    return {name: about.label for name, about in parameters().items()}


@cache
def _names(others: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of settings' names; those that are words only with a value behind them."""
    plain = [name for name in _settings() if "_" in name] + list(others)
    words = [name for name in _settings() if "_" not in name]
    given = rf"(?:{'|'.join(words)})(?==…| = )"
    return re.compile(rf"\b({'|'.join(plain)}|{given})\b(?:=…)?")


def time_left(done: int, total: int, seconds: float) -> str:
    """Return about how much time is left, once that can be estimated; else nothing.

    Parameters
    ----------
    done, total : int
        How many are done, and how many there are.
    seconds : float
        Since the first one began.
    """
    if not done or seconds < _RELIABLE:
        return ""
    left = seconds * (total - done) / done
    if left < 60:
        # In steps that do not flicker.
        return f"about {max(5 * round(left / 5), 1)}{_THIN}s left"
    hours, minutes = divmod(round(left / 60), 60)
    return "about " + f"{hours}{_THIN}h " * (hours > 0) + f"{minutes}{_THIN}min left"


class StatusLine(QLabel):
    """Shows a message; errors stand out in any theme.

    Parameters
    ----------
    hides : bool
        Whether the line takes no room while it is empty.
    """

    def __init__(self, *, hides: bool = False) -> None:
        super().__init__()
        self._hides = hides
        #: Whether an error is shown.
        self.failed = False
        sentence(self)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.setHidden(hides)

    def say(self, text: str) -> None:
        """Show a message."""
        self.put(text, failed=False)

    def fail(self, text: str) -> None:
        """Show an error."""
        self.put(f"⚠ {text}", failed=True)

    def listen(self, *parts: Any) -> None:
        """Show what parts emit as ``said`` and, in words or as an exception, as ``failed``."""
        for part in parts:
            part.said.connect(self.say)
            part.failed.connect(self._on_failed)

    def _on_failed(self, error: Exception | str) -> None:
        self.fail(report(error) if isinstance(error, Exception) else error)

    def changeEvent(self, event: QEvent | None) -> None:
        """Take the colours of another theme."""
        super().changeEvent(event)
        if event is not None and event.type() == QEvent.Type.StyleChange:
            self._paint()

    def put(self, text: str, *, failed: bool) -> None:
        """Show a text, as an error or not."""
        self.failed = failed
        self._paint()
        self.setText(text)
        if self._hides:
            self.setVisible(bool(text))

    def _paint(self) -> None:
        # By what it is, not by the theme's name: users make themes of their own.
        light = self.palette().color(self.backgroundRole()).lightness() > _MIDDLE
        color = _ERROR_ON_LIGHT if light else _ERROR_ON_DARK
        style = f"color: {color};" if self.failed else ""
        if style != self.styleSheet():  # each time Qt computes it again
            self.setStyleSheet(style)
