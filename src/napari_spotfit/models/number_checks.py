"""Check numbers that users give: finite, whole, in range, rising; and names of parameters."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

#: The largest number of single precision, in which fits compute.
LARGEST = 3.4028234663852886e38
#: Sides of pixels and distances of planes in nm: the least and the largest that are plausible.
SHORTEST_NM, LONGEST_NM = 1.0, 1e5
#: Characters of a value in a message.
LONGEST_SHOWN = 80

Bounds = tuple[float | None, float | None]


def as_float(value: SupportsFloat) -> float:
    """Return a number in double precision, infinite where it is too large for that."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def is_array(value: Any) -> bool:
    """Whether a value is an array of any library, with axes; layers have a dtype, but no shape."""
    return hasattr(value, "dtype") and len(getattr(value, "shape", ())) > 0


def shown(value: Any) -> str:
    """Return a value as messages show it: of an array what it is, of long texts the beginning."""
    if is_array(value):
        return f"an array of {value.dtype}, shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def finite(what: str, value: Any, accepted: str = "a finite number or None") -> float | None:
    """Return a finite number, or None as it is.

    Raises
    ------
    TypeError, ValueError
        If it is anything else; the message says what is accepted.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be {accepted}; got {shown(value)}")
    number = as_float(value)
    if not abs(number) <= LARGEST:
        raise ValueError(f"{what} must be {accepted}; got {shown(value)}")
    return number


def number(
    what: str, value: Any, lowest: float = -math.inf, *, above: bool = False, unit: str = ""
) -> float:
    """Return a finite number that is not below the lowest, or with ``above`` only above it.

    Raises
    ------
    TypeError, ValueError
        If it is anything else; the message says what is accepted.
    """
    accepted = f"a finite number of {unit}" if unit else "a finite number"
    if lowest > -math.inf:
        accepted += f" {'above' if above else 'from'} {lowest:g}"
    given = finite(what, value, accepted)
    if given is None:
        raise TypeError(f"{what} must be {accepted}; got None")
    if given < lowest or (above and given == lowest):
        raise ValueError(f"{what} must be {accepted}; got {shown(value)}")
    return given


def nanometres(what: str, value: Any) -> float:
    """Return the side of a pixel, or the distance of planes, in nm.

    Raises
    ------
    TypeError, ValueError
        If it is no plausible length in nm, as one in µm or m.

    Examples
    --------
    >>> nanometres("pixel_size", 108)
    108.0
    """
    given = number(what, value, 0, above=True)
    if not is_plausible_nm(given):
        raise ValueError(
            f"{what} must be from {SHORTEST_NM:g} to {LONGEST_NM:.0f} nm; got {shown(value)}: it "
            "is in nm, 0.1 µm is 100"
        )
    return given


def is_plausible_nm(value: float) -> bool:
    """Whether a number may be the side of a pixel, or the distance of planes, in nm."""
    return SHORTEST_NM <= value <= LONGEST_NM


def whole(what: str, value: Any, lowest: int = 0) -> int:
    """Return a whole number that is not below the lowest.

    Raises
    ------
    TypeError, ValueError
        If it is anything else; the message says what is accepted.
    """
    accepted = f"a whole number from {lowest}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{what} must be {accepted}; got {shown(value)}")
    if value < lowest:
        raise ValueError(f"{what} must be {accepted}; got {shown(value)}")
    return int(value)


def one_of(what: str, value: Any, words: Sequence[str]) -> None:
    """Raise a ValueError, which lists what is accepted, if a value is none of the words."""
    if not isinstance(value, str) or value not in words:
        *others, last = map(repr, words)
        raise ValueError(f"{what} must be {', '.join(others)} or {last}; got {shown(value)}")


def as_numbers(what: str, values: Any) -> NDArray[np.float64]:
    """Return an array of numbers in double precision; a TypeError if they are none."""
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{what} must be numbers; got {shown(values)}") from None


def rising(what: str, ends: Any) -> Bounds:
    """Return a lower and an upper bound, None for an open end.

    Raises
    ------
    TypeError, ValueError
        If they are no two finite numbers, or do not rise.
    """
    if isinstance(ends, str) or not isinstance(ends, Sequence) or len(ends) != 2:
        raise TypeError(f"{what} must be (lowest, highest); got {shown(ends)}")
    low, high = (finite(what, end) for end in ends)
    if low is not None and high is not None and low >= high:
        raise ValueError(f"{what} must rise; got {low:g} and {high:g}")
    return low, high


def check_names(setting: str, given: Iterable[str], what: str, names: Sequence[str]) -> None:
    """Check that a setting names known parameters only; ``what`` describes these."""
    for name in given:
        if name not in names:
            raise ValueError(f"{setting} must name {what}, {', '.join(names)}; got {name!r}")


def is_wrong(name: str, values: Any) -> Any:
    """Return where a camera's values, an array or one of NumPy's numbers, are out of range."""
    lowest = {"offset": values > -math.inf, "gain": values > 0}.get(name, values >= 0)
    return ~(lowest & (values < math.inf))


def accepted(name: str) -> str:
    """Return in words what the values of a camera's quantity must be."""
    if name == "offset":
        return "finite"
    return "finite and above 0" if name == "gain" else "finite and not negative"
