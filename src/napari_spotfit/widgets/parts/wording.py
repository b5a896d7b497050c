"""What went wrong, in the words of the controls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from ...settings.settings import parameters


def in_words(error: object, labels: Mapping[str, str] | None = None) -> str:
    """Say what went wrong with what controls are called, where Python has other names.

    Parameters
    ----------
    error : Exception or str
        What went wrong.
    labels : mapping of str to str, optional
        What other arguments of functions are called here, besides settings.

    Examples
    --------
    >>> in_words("amplitude_max = 2 must be above amplitude_min = 3")
    '“Amplitude at most” = 2 must be above “Amplitude at least” = 3'
    >>> in_words("link with a larger memory", {"memory": "Missing"})
    'Link with a larger “Missing”'
    """
    text = str(error) or type(error).__name__
    called = {**_settings(), **(labels or {})}
    # What its label stands before.
    text = re.sub(rf" \((?:{'|'.join(_settings())})\)", "", text)
    text = _names(tuple(labels or ())).sub(lambda found: f"“{called[found[1]]}”", text)
    return text[:1].upper() + text[1:]


def report(error: Exception) -> str:
    """Say what went wrong; of an error that nobody expects, napari shows more."""
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
    """Return what finds names; a name that is a word, too, only where it is given a value."""
    plain = [name for name in _settings() if "_" in name] + list(others)
    words = [name for name in _settings() if "_" not in name]
    given = rf"(?:{'|'.join(words)})(?==…| = )"
    return re.compile(rf"\b({'|'.join(plain)}|{given})\b(?:=…)?")
