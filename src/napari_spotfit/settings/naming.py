"""Names that are no settings, and settings of which one takes the place of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

_BOTH = (
    "false_spots and threshold were both given, but spots are found by one of them: give "
    "false_spots=…, or threshold=… in counts"
)

Kind = TypeVar("Kind", bound=type)


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError that names what is no setting."""
    known = tuple(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(
            f"unknown setting {', '.join(unknown)}; the settings are {', '.join(known)}"
        )


def checks_names(kind: Kind) -> Kind:
    """Let a dataclass say what to do where it is made with a name that it does not have."""
    plain: Callable[..., None] = kind.__init__  # type: ignore[misc]
    known = frozenset(item.name for item in fields(kind))

    @wraps(plain)
    def init(self: Any, **values: Any) -> None:
        if not known.issuperset(values):
            check_names(values, (item.name for item in fields(kind)))
        plain(self, **values)

    kind.__init__ = init  # type: ignore[misc]
    return kind


def check_not_both(false_spots: bool, threshold: bool) -> None:
    """Raise a ValueError if both a number of false spots and a threshold are given."""
    if false_spots and threshold:
        raise ValueError(_BOTH)


def replacing(options: Mapping[str, Any], false_spots: float) -> dict[str, Any]:
    """Add what follows from changes: a threshold takes the place of false spots, and they of it.

    Parameters
    ----------
    options : mapping
        What is changed.
    false_spots : float
        Their number by default.
    """
    if options.get("threshold") is not None:
        return {"false_spots": false_spots, **options}
    return {"threshold": None, **options} if "false_spots" in options else dict(options)
