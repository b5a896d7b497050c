"""Descriptions of settings: label, unit, range and explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin

#: The groups in the order in which forms have them, with their headings.
GROUPS = {
    "detection": "Detection",
    "fit": "Fit",
    "camera": "Camera",
    "optics": "Optics",
    "bounds": "Bounds",
    "stop": "Stop a fit",
    "run": "Run",
}


class Parameter(NamedTuple):
    """Description of one setting, for people and for controls.

    Attributes
    ----------
    label, doc, group, unit : str
        Its name for people, what it does, where it belongs, and what it is counted in.
    minimum, maximum : float or None
        The range of a number.
    above_minimum : bool
        Whether the minimum itself is out of it.
    none_means : str
        The meaning of None, in words.
    automatic : float or None
        What stands for a number that is estimated from an image, before it is.
    step : float
        What one click on an arrow adds to a number; 0 adds to its second digit.
    decades : bool
        Whether one click multiplies or divides by ten instead.
    odd : bool
        Whether only odd numbers are accepted.
    words : mapping of str to str
        Names of its words in lists, where they differ.
    shown : str
        Its place in forms: first, folded in its group, or apart, in a form of its own.
    """

    label: str
    doc: str
    group: Literal["detection", "fit", "stop", "bounds", "camera", "optics", "run"]
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    none_means: str = ""
    automatic: float | None = None
    step: float = 1.0
    decades: bool = False
    odd: bool = False
    words: Mapping[str, str] = MappingProxyType({})
    shown: Literal["first", "folded", "apart"] = "folded"


def setting(default: Any, label: str, doc: str, group: str, **rest: Any) -> Any:
    """Return a field of :class:`~.settings.Settings` with its description.

    A new setting needs nothing else: checks, tooltips and the row in the widget's form, in
    its group, follow from it and from the field's type.
    """
    return field(
        default=default,
        metadata={"parameter": Parameter(label, doc, group, **rest)},  # type: ignore[arg-type]
    )


def words_of(hint: Any) -> tuple[str, ...]:
    """Return the words that a type accepts, alone or among other values."""
    kinds = (hint, *get_args(hint))
    return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
