"""Which spots are shown: ranges of features, and stop conditions that are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import StopCondition
from .columns import STOP, Units

if TYPE_CHECKING:
    import pandas as pd

#: The lower and the upper limit; None where the range is open.
Range = tuple[float | None, float | None]

#: The feature that is 1 for good fits, and its range that leaves the doubtful ones out.
GOOD = "good"
_GOOD_ONLY: Range = (1.0, None)

_NAMES = tuple(condition.name for condition in StopCondition)
_EXAMPLE = '{"ranges": {"sigma": [0.8, 1.9]}, "hidden": ["MAX_ITERATIONS"]}'


@dataclass(frozen=True)
class Filters:
    """Filters that a spot must pass, all of them, to be shown.

    Parameters
    ----------
    ranges : mapping of str to (low, high)
        Limits of features, in the features' own units; both belong to the range. None leaves an
        end open. A spot whose feature is NaN is not within any range.
    hidden : collection of str
        Names of the stop conditions that are left out.

    Raises
    ------
    ValueError
        If a limit is NaN, a range is empty or a stop condition does not exist.

    Examples
    --------
    >>> Filters({"sigma": (0.8, None)}, {"MAX_ITERATIONS"}).words()
    ['sigma ≥ 0.8', 'without MAX_ITERATIONS']
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    hidden: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        ranges = {name: (low, high) for name, (low, high) in self.ranges.items()}
        for name, (low, high) in ranges.items():
            _check_range(name, low, high)
        for name in self.hidden:
            if name not in _NAMES:
                raise ValueError(
                    f"{name!r} is no stop condition; “hidden” takes {', '.join(_NAMES)}"
                )
        kept = {name: limits for name, limits in ranges.items() if limits != (None, None)}
        object.__setattr__(self, "ranges", kept)
        object.__setattr__(self, "hidden", frozenset(self.hidden))

    def __bool__(self) -> bool:
        return bool(self.ranges or self.hidden)

    def mask(self, features: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which spots of a table pass all filters."""
        mask = np.ones(len(features), bool)
        for name, (low, high) in self.ranges.items():
            values = features[name].to_numpy()
            # As double precision: a limit is not rounded to the column's single precision.
            if low is not None:
                mask &= values >= np.float64(low)
            if high is not None:
                mask &= values <= np.float64(high)
        if self.hidden:
            stop = features[STOP].astype("category").cat
            # One more for the code -1, a spot without a condition.
            kept = np.array([name not in self.hidden for name in stop.categories] + [True])
            mask &= kept[stop.codes.to_numpy()]
        return mask

    def words(self, units: Units | None = None) -> list[str]:
        """Say in one short sentence per filter what is shown."""
        units = units or Units()
        words = [_sentence(name, limits, units) for name, limits in self.ranges.items()]
        return words + [f"without {name}" for name in _NAMES if name in self.hidden]

    def parts(self) -> list[Filters]:
        """Return every filter by itself, in the order of ``words``."""
        ranges = [Filters({name: limits}) for name, limits in self.ranges.items()]
        return ranges + [Filters(hidden={name}) for name in _NAMES if name in self.hidden]

    def without(self, other: Filters) -> Filters:
        """Return these filters but for those of another, whatever their limits."""
        ranges = {name: ends for name, ends in self.ranges.items() if name not in other.ranges}
        return Filters(ranges, frozenset(self.hidden) - frozenset(other.hidden))

    def with_range(self, name: str, low: float | None, high: float | None) -> Filters:
        """Return these filters with another range of one feature."""
        return Filters({**self.ranges, name: (low, high)}, self.hidden)

    def with_hidden(self, name: str, hidden: bool) -> Filters:
        """Return these filters with one stop condition left out, or not."""
        others = frozenset(self.hidden) - {name}
        return Filters(self.ranges, others | {name} if hidden else others)

    @property
    def good_only(self) -> bool:
        """Whether doubtful fits are left out."""
        return self.ranges.get(GOOD) == _GOOD_ONLY

    def with_good_only(self, only: bool) -> Filters:
        """Return these filters with doubtful fits left out, or not."""
        return self.with_range(GOOD, *(_GOOD_ONLY if only else (None, None)))

    def limited_to(self, features: Iterable[str]) -> Filters:
        """Return those of the filters whose features a table has."""
        names = set(features)
        ranges = {name: limits for name, limits in self.ranges.items() if name in names}
        return Filters(ranges, self.hidden if STOP in names else frozenset())

    def to_dict(self) -> dict[str, Any]:
        """Return the filters as plain values for JSON."""
        ranges = {name: list(limits) for name, limits in self.ranges.items()}
        return {"ranges": ranges, "hidden": sorted(self.hidden)}

    @staticmethod
    def from_dict(values: Any) -> Filters:
        """Return filters from what ``to_dict`` made.

        Raises
        ------
        ValueError
            If the values are something else; the message says what is accepted.
        """
        if not isinstance(values, dict) or not set(values) <= {"ranges", "hidden"}:
            raise ValueError(f"these are no filters of spots; filters look like {_EXAMPLE}")
        ranges, hidden = values.get("ranges", {}), values.get("hidden", [])
        if not isinstance(ranges, dict):
            raise ValueError(f"“ranges” must give limits by feature, as in {_EXAMPLE}")
        for name, limits in ranges.items():
            if not isinstance(limits, (list, tuple)) or len(limits) != 2:
                raise ValueError(
                    f"the range of {name!r} must be two limits [low, high], null where it is "
                    f"open; got {limits!r}"
                )
        words = isinstance(hidden, (list, tuple)) and all(isinstance(name, str) for name in hidden)
        if not words:
            raise ValueError(f"“hidden” must be a list of stop conditions; got {hidden!r}")
        return Filters({str(name): tuple(ends) for name, ends in ranges.items()}, hidden)


def write_filters(path: Path, filters: Filters) -> None:
    """Save filters as a JSON file."""
    text = json.dumps(filters.to_dict(), indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def read_filters(path: Path) -> Filters:
    """Read filters from a JSON file.

    Raises
    ------
    ValueError
        If the file is something else; the message says what is accepted.
    """
    try:
        return Filters.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"“{path.name}” cannot be loaded: {error}") from None


def _check_range(name: str, low: Any, high: Any) -> None:
    for limit in (low, high):
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if limit is not None and not (number and math.isfinite(limit)):
            raise ValueError(
                f"a limit of {name!r} must be a finite number, or nothing where the range is "
                f"open; got {limit!r}"
            )
    if low is not None and high is not None and low > high:
        raise ValueError(
            f"the lower limit of {name!r}, {low:g}, is above the upper one, {high:g}; swap them"
        )


def _sentence(name: str, limits: Range, units: Units) -> str:
    """Say one range in words: its limits as they are shown, with the unit."""
    if name == GOOD and limits == _GOOD_ONLY:
        return "good fits only"
    factor, unit = units.factor(name), units.unit(name)
    low, high = (None if limit is None else f"{limit * factor:.6g}" for limit in limits)
    if low is not None and high is not None:
        text = f"{low} ≤ {name} ≤ {high}"
    else:
        text = f"{name} ≤ {high}" if low is None else f"{name} ≥ {low}"
    return f"{text} {unit}".rstrip()
