"""What is known about a setting besides its value."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, NamedTuple


class Parameter(NamedTuple):
    """What people and controls need to know about one setting."""

    label: str
    doc: str
    group: Literal["detection", "fit", "stop", "bounds", "camera", "run"]
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    none_means: str = ""


def setting(default: Any, label: str, doc: str, group: str, **rest: Any) -> Any:
    """Return a field of :class:`~.settings.Settings` with what is known about it."""
    return field(
        default=default,
        metadata={"parameter": Parameter(label, doc, group, **rest)},  # type: ignore[arg-type]
    )
