"""Numbers of fits as text: with standard errors, in powers of ten, in the units of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..models.columns import describe

#: What stands for a number that there is not.
MISSING = "–"
#: Narrow space that does not break, between thousands.
_THIN = "\u202f"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Powers of ten outside which a number is written with one.
_LOWEST, _HIGHEST = -3, 7
#: Digits of a standard error, of a number without one, and of a table's.
_OF_ERROR, _OF_NUMBER, _OF_TABLE = 2, 5, 4


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


class PixelSize(NamedTuple):
    """Height and width of an image's pixels in a physical unit."""

    y: float
    x: float
    unit: str

    def factor(self, column: str) -> float | None:
        """Return what turns a column from pixels into the unit.

        None for columns that are not in pixels, and for those along neither axis where
        pixels are not square.
        """
        known = describe(column)
        if known.unit != "px" or known.group == "other":
            return None
        # An ellipse may be rotated: its widths are along no axis of the image.
        if known.axis and known.group != "shape":
            return self.y if known.axis == "y" else self.x
        return self.y if math.isclose(self.y, self.x, rel_tol=1e-6) else None


@dataclass(frozen=True)
class Units:
    """The units in which the numbers of a table are shown.

    Parameters
    ----------
    of : mapping of str to str
        The columns' own units.
    pixel : PixelSize, optional
        Turns pixels into a physical unit; pixels are shown without.
    names : mapping of str to str
        How columns are called where that is not by their names.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    pixel: PixelSize | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def factor(self, name: str) -> float:
        """Return what a column is multiplied by before it is shown."""
        factor = None if self.pixel is None else self.pixel.factor(name)
        return 1.0 if factor is None else factor

    def unit(self, name: str) -> str:
        """Return the unit in which a column is shown; nothing if it has none."""
        if self.pixel is not None and self.pixel.factor(name) is not None:
            return self.pixel.unit
        unit = self.of.get(name, "")
        # Photons are counted in photons: once is enough.
        return "" if unit == name else unit

    def title(self, name: str) -> str:
        """Return a column's name with its unit, such as ``sigma [px]``."""
        unit, name = self.unit(name), self.names.get(name, name)
        return f"{name} [{unit}]" if unit else name
