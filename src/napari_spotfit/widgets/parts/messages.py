"""Numbers, times and errors as text, and the status line that shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QLabel, QSizePolicy

from ...engine.quality.flags import thousands
from ...settings.settings import parameters
from .layout import sentence

#: What stands for a number that there is not.
MISSING = "–"
#: Narrow space that does not break, between thousands and before units.
_THIN = "\u202f"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Powers of ten outside which a number is written with one.
_LOWEST, _HIGHEST = -3, 7
#: A whole number with its thousands apart.
number = thousands
#: Digits of a standard error, of a number without one, and of a table's.
_OF_ERROR, _OF_NUMBER, _OF_TABLE = 2, 5, 4
#: Seconds after which the time left can be estimated.
_RELIABLE = 3.0
#: Lightness from which on a background is light.
_MIDDLE = 128
_ERROR_ON_DARK, _ERROR_ON_LIGHT = "#ff8a80", "#b00020"


def with_error(value: float, error: float | None, decimals: int | None = None) -> str:
    """Return a value and its standard error, rounded to two digits of the error.

    Parameters
    ----------
    value : float
        The value.
    error : float or None
        Its standard error; None if none was asked for, NaN if there is none.
    decimals : int, optional
        Digits after the point where no standard error decides; by default five digits
        in all.
    """
    if not math.isfinite(value):
        return MISSING
    if error is None:
        return plain(value, decimals)
    if not math.isfinite(error) or error <= 0:
        return f"{plain(value, decimals)} ± {'0' if error == 0 else '?'}"
    power = _power(max(abs(value), error))
    if not _LOWEST <= power < _HIGHEST:
        scaled = _rounded(value / 10.0**power, error / 10.0**power)
        return f"({' ± '.join(scaled)})×10{_superscript(power)}"
    return " ± ".join(_rounded(value, error))


def plain(value: float, decimals: int | None = None, digits: int = _OF_NUMBER) -> str:
    """Return a number with some digits in all, or some after the point."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    power = _power(value)
    if not _LOWEST <= power < _HIGHEST:
        return f"{value / 10.0**power:.{digits - 1}f}×10{_superscript(power)}"
    places = max(digits - 1 - power, 0) if decimals is None else decimals
    text = f"{value:,.{places}f}".replace(",", _THIN)
    return text.rstrip("0").rstrip(".") if places and decimals is None else text


def number_text(value: float, decimals: int) -> str:
    """Return a number with decimal places, or in powers of ten if they do not suit."""
    if math.isnan(value):
        return MISSING
    size = abs(value)
    if value and (size >= 1e9 or size < 0.5 * 10.0**-decimals):
        return f"{value:.3g}"
    return f"{value:.{decimals}f}"


def decimals_for(size: float) -> int:
    """Return how many decimal places numbers of about this size get."""
    size = abs(size) if math.isfinite(size) and size else 1.0
    return min(max(_OF_TABLE - 1 - _power(size), 0), 7)


def digits_apart(low: float, high: float) -> int:
    """Return how many digits distinguish two numbers."""
    return next((n for n in (3, 6) if f"{low:.{n}g}" != f"{high:.{n}g}"), 9)


def _rounded(value: float, error: float) -> tuple[str, str]:
    """Return both, cut where the error's second digit is."""
    places = _OF_ERROR - 1 - int(f"{error:.{_OF_ERROR - 1}e}".partition("e")[2])
    value, error = (round(number, places) + 0.0 for number in (value, error))
    first, second = (f"{number:,.{max(places, 0)}f}" for number in (value, error))
    return first.replace(",", _THIN), second.replace(",", _THIN)


def _power(value: float) -> int:
    return math.floor(math.log10(abs(value)))


def _superscript(power: int) -> str:
    return str(power).translate(_SUPERSCRIPTS)


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
        """Show what parts emit as ``said`` and ``failed``."""
        for part in parts:
            part.said.connect(self.say)
            part.failed.connect(self.fail)

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
