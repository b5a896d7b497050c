"""Filter spots: by ranges of features, stop conditions, flags, and outlines in scatter plots."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import NOT_GOOD, RULES, Flag
from ..files.table import UnreadableFileError
from ..files.writing import unfinished
from ..models.columns import STOP
from ..models.estimators import STOP_NAMES, StopCondition
from ..results.formatting import Units
from ..untrusted import named

if TYPE_CHECKING:
    import pandas as pd

#: The lower and the upper limit; None where the range is open.
Range = tuple[float | None, float | None]

#: The feature that is 1 for good fits, and its range that leaves the doubtful ones out.
GOOD = "good"
_GOOD_ONLY: Range = (1.0, None)
#: The feature with one bit for each flag.
FLAGS = "flags"

#: The flags by rank, and those that make a fit doubtful.
_FLAGS = tuple(str(flag.name) for flag in RULES)
_NOT_CONVERGED = str(Flag.NOT_CONVERGED.name)
_REJECTING = frozenset(str(flag.name) for flag in RULES if flag & NOT_GOOD)
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
    flags : collection of str
        Names of the flags that must not be set.
    only : str
        Name of a flag that must be set; empty if none must.
    gates : collection of Gate
        Outlines in the planes of two features that a spot must lie in.

    Raises
    ------
    ValueError
        If a limit is NaN, a range is empty, or a stop condition or flag does not exist.

    Examples
    --------
    >>> Filters({"sigma": (0.8, None)}, {"MAX_ITERATIONS"}).in_words()
    'sigma ≥ 0.8; without “not converged: iterations used up”'
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    hidden: Collection[str] = frozenset()
    flags: Collection[str] = frozenset()
    only: str = ""
    gates: Collection[Gate] = ()

    def __post_init__(self) -> None:
        ranges = {name: (low, high) for name, (low, high) in self.ranges.items()}
        for name, (low, high) in ranges.items():
            _check_range(name, low, high)
        _check_names("hidden", "stop condition", self.hidden, STOP_NAMES)
        _check_names("flags", "flag", self.flags, _FLAGS)
        _check_names("only", "flag", (self.only,) if self.only else (), _FLAGS)
        kept = {name: limits for name, limits in ranges.items() if limits != (None, None)}
        object.__setattr__(self, "ranges", kept)
        object.__setattr__(self, "hidden", frozenset(self.hidden))
        object.__setattr__(self, "flags", frozenset(self.flags))
        object.__setattr__(self, "gates", tuple(self.gates))

    def __bool__(self) -> bool:
        return bool(self.ranges or self.gates or self.hidden or self.flags or self.only)

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
        for gate in self.gates:
            mask &= gate.within(*(features[name].to_numpy() for name in gate.features))
        if self.hidden:
            stop = features[STOP].astype("category").cat
            # One more for the code -1, a spot without a condition.
            kept = np.array([name not in self.hidden for name in stop.categories] + [True])
            mask &= kept[stop.codes.to_numpy()]
        if self.flags or self.only:
            bits = flag_bits(features[FLAGS].to_numpy())
            if self.flags:
                mask &= (bits & _bits(self.flags)) == 0
            if self.only:
                mask &= (bits & _bits((self.only,))) != 0
        return mask

    def words(self, units: Units | None = None) -> list[str]:
        """Return one short sentence per filter."""
        units = units or Units()
        words = [_sentence(name, limits, units) for name, limits in self.ranges.items()]
        words += [gate.words for gate in self.gates]
        if len(left := [n for n in STOP_NAMES if n not in self.hidden]) == 1:
            words += [f"only “{StopCondition[left[0]].words}”"]
        else:
            words += [f"without “{StopCondition[n].words}”" for n in STOP_NAMES if n in self.hidden]
        words += [f"without “{RULES[Flag[n]].word}”" for n in _FLAGS if n in self.flags]
        return words + ([f"only “{RULES[Flag[self.only]].word}”"] if self.only else [])

    def in_words(self, units: Units | None = None) -> str:
        """Return all filters in one line."""
        return "; ".join(self.words(units)) or "all spots"

    def parts(self) -> list[Filters]:
        """Return every filter by itself, in the order of ``words``."""
        parts = [Filters({name: limits}) for name, limits in self.ranges.items()]
        parts += [Filters(gates=[gate]) for gate in self.gates]
        if len(self.hidden) == len(STOP_NAMES) - 1:
            parts += [Filters(hidden=self.hidden)]
        else:
            parts += [Filters(hidden={name}) for name in STOP_NAMES if name in self.hidden]
        parts += [Filters(flags={name}) for name in _FLAGS if name in self.flags]
        return parts + ([Filters(only=self.only)] if self.only else [])

    def without(self, other: Filters) -> Filters:
        """Return these filters but for those of another, whatever their limits."""
        ranges = {name: ends for name, ends in self.ranges.items() if name not in other.ranges}
        gone = {gate.features for gate in other.gates}
        return Filters(
            ranges,
            frozenset(self.hidden) - frozenset(other.hidden),
            frozenset(self.flags) - frozenset(other.flags),
            "" if self.only == other.only else self.only,
            [gate for gate in self.gates if gate.features not in gone],
        )

    def difference(self, other: Filters) -> tuple[str, bool]:
        """Return what another choice changes, and whether a dragged handle may have done so."""
        names = {**self.ranges, **other.ranges}
        ranges = [name for name in names if self.ranges.get(name) != other.ranges.get(name)]
        dragged = len(ranges) == 1 and replace(self, ranges=other.ranges) == other
        return (f"the filter of {ranges[0]}", True) if dragged else ("the filters", False)

    def with_range(self, name: str, low: float | None, high: float | None) -> Filters:
        """Return these filters with another range of one feature."""
        return replace(self, ranges={**self.ranges, name: (low, high)})

    def gate(self, across: str, up: str) -> Gate | None:
        """Return the gate in the plane of two features, if there is one."""
        return next((gate for gate in self.gates if gate.features == (across, up)), None)

    def with_gate(self, gate: Gate) -> Filters:
        """Return these filters with a gate, instead of another one of the same features."""
        others = self.without(Filters(gates=[gate]))
        return replace(others, only=self.only, gates=(*others.gates, gate))

    def hides(self, name: str) -> bool:
        """Whether the fits of a stop condition or flag are left out."""
        if self.only:
            return name != self.only
        if name in STOP_NAMES:
            unsettled = not StopCondition[name].converged and self.hides(_NOT_CONVERGED)
            return name in self.hidden or unsettled
        return name in self.flags or (self.good_only and name in _REJECTING)

    def with_hidden(self, name: str, hidden: bool) -> Filters:
        """Return these filters with a stop condition or flag left out, or not."""
        if self.only:  # All others are left out: to show one more, that ends.
            return self if hidden and name != self.only else replace(self, only="")
        if name not in STOP_NAMES:
            return self._with_flag_hidden(name, hidden)
        chosen, left_out = self, frozenset(self.hidden) - {name}
        if not hidden and not StopCondition[name].converged and self.hides(_NOT_CONVERGED):
            chosen = self._with_flag_hidden(_NOT_CONVERGED, False)
            left_out |= {other.name for other in StopCondition if not other.converged} - {name}
        return replace(chosen, hidden=left_out | {name} if hidden else left_out)

    def _with_flag_hidden(self, name: str, hidden: bool) -> Filters:
        every = frozenset(self.flags) | (_REJECTING if self.good_only else frozenset())
        every = every | {name} if hidden else every - {name}
        # Hiding each reason for doubt is the same as showing good fits: one filter, not nine.
        good = every >= _REJECTING
        return replace(self.with_good_only(good), flags=every - _REJECTING if good else every)

    def with_all(self) -> Filters:
        """Return these filters with no stop condition or flag left out: the ranges."""
        plain = replace(self, hidden=frozenset(), flags=frozenset(), only="")
        return plain.with_good_only(False)

    def with_only(self, name: str) -> Filters:
        """Return the ranges, with nothing but the fits of one stop condition or flag."""
        if name in STOP_NAMES:
            return replace(self.with_all(), hidden=frozenset(STOP_NAMES) - {name})
        return replace(self.with_all(), only=name)

    @property
    def good_only(self) -> bool:
        """Whether doubtful fits are left out."""
        return self.ranges.get(GOOD) == _GOOD_ONLY

    def with_good_only(self, only: bool) -> Filters:
        """Return these filters with doubtful fits left out, or not."""
        if only == self.good_only:
            return self
        return self.with_range(GOOD, *(_GOOD_ONLY if only else (None, None)))

    def limited_to(self, features: Iterable[str]) -> Filters:
        """Return those of the filters whose features a table has."""
        names = set(features)
        ranges = {name: limits for name, limits in self.ranges.items() if name in names}
        known = replace(
            self, ranges=ranges, gates=[g for g in self.gates if names >= {*g.features}]
        )
        if STOP not in names:
            known = replace(known, hidden=frozenset())
        return known if FLAGS in names else replace(known, flags=frozenset(), only="")

    def to_dict(self) -> dict[str, Any]:
        """Return the filters as plain values for JSON."""
        ranges = {name: list(limits) for name, limits in self.ranges.items()}
        values: dict[str, Any] = {"ranges": ranges, "hidden": sorted(self.hidden)}
        # Only where there are some: without them, earlier versions read the filters, too.
        if self.flags:
            values["flags"] = sorted(self.flags)
        if self.only:
            values["only"] = self.only
        if self.gates:
            values["gates"] = [
                {"across": gate.across, "up": gate.up, "corners": [list(xy) for xy in gate.corners]}
                for gate in self.gates
            ]
        return values

    @staticmethod
    def from_dict(values: Any) -> Filters:
        """Return filters from what ``to_dict`` made.

        Raises
        ------
        ValueError
            If the values are something else; the message says what is accepted.
        """
        known = {"ranges", "hidden", "flags", "only", "gates"}
        if not isinstance(values, dict) or not set(values) <= known:
            raise ValueError(f"these are no filters of spots; filters look like {_EXAMPLE}")
        ranges, only = values.get("ranges", {}), values.get("only", "")
        if not isinstance(ranges, dict):
            raise ValueError(f"“ranges” must give limits by feature, as in {_EXAMPLE}")
        for name, limits in ranges.items():
            if not isinstance(limits, (list, tuple)) or len(limits) != 2:
                raise ValueError(
                    f"the range of {name!r} must be two limits [low, high], null where it is "
                    f"open; got {limits!r}"
                )
        hidden = _names(values, "hidden", "stop conditions")
        flags = _names(values, "flags", "flags")
        if not isinstance(only, str):
            raise ValueError(f"“only” must be the name of a flag; got {only!r}")
        ends = {str(name): (low, high) for name, (low, high) in ranges.items()}
        gates = values.get("gates", [])
        if not isinstance(gates, (list, tuple)):
            raise ValueError(f"“gates” must be a list; got {gates!r}")
        return Filters(ends, hidden, flags, only, [gate_from_dict(gate) for gate in gates])


def write_filters(path: Path, filters: Filters) -> None:
    """Save filters as a JSON file."""
    text = json.dumps(filters.to_dict(), indent=2, ensure_ascii=False)
    with unfinished(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_filters(path: Path) -> Filters:
    """Read filters from a JSON file.

    Raises
    ------
    ValueError
        If the file is something else; the message says what is accepted.
    """
    with named(f"“{path.name}” cannot be loaded", UnreadableFileError, (ValueError,)):
        return Filters.from_dict(json.loads(path.read_text(encoding="utf-8")))


def flag_bits(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Return flags as whole numbers from a layer's column, which holds floats."""
    if values.dtype.kind == "f":
        values = np.nan_to_num(values)
    return values.astype(np.uint32)


def _bits(names: Iterable[str]) -> np.uint32:
    return np.uint32(sum(int(Flag[name]) for name in names))


def _names(values: Mapping[str, Any], key: str, kind: str) -> list[str]:
    names = values.get(key, [])
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"“{key}” must be a list of {kind}; got {names!r}")
    return list(names)


def _check_names(key: str, kind: str, names: Iterable[str], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no {kind}; “{key}” takes {', '.join(known)}")


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
    """Return one range in words: its limits as they are shown, with the unit."""
    if name == GOOD and limits == _GOOD_ONLY:
        return "good fits only"
    factor, unit = units.factor(name), units.unit(name)
    name = units.names.get(name, name)
    low, high = (None if limit is None else f"{limit * factor:.6g}" for limit in limits)
    if low is not None and high is not None:
        text = f"{low} ≤ {name} ≤ {high}"
    else:
        text = f"{name} ≤ {high}" if low is None else f"{name} ≥ {low}"
    return f"{text} {unit}".rstrip()


_GATE_EXAMPLE = '{"across": "sigma", "up": "photons", "corners": [[1, 0], [2, 0], [2, 900]]}'


@dataclass(frozen=True)
class Gate:
    """A closed outline, drawn with a lasso.

    Parameters
    ----------
    across, up : str
        The features along the two axes.
    corners : sequence of (float, float)
        The outline's corners, in the features' own units.

    Raises
    ------
    ValueError
        If there are fewer than three corners, or not of two finite numbers each.

    Examples
    --------
    >>> gate = Gate("sigma", "photons", [(1, 0), (2, 0), (2, 900)])
    >>> gate.within(np.array([1.5, 1.5]), np.array([100.0, 800.0]))
    array([ True, False])
    """

    across: str
    up: str
    corners: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        corners = tuple((float(x), float(y)) for x, y in self.corners)
        if len(corners) < 3 or not all(math.isfinite(value) for xy in corners for value in xy):
            raise ValueError("a gate must have at least three corners of two finite numbers")
        object.__setattr__(self, "corners", corners)

    @property
    def features(self) -> tuple[str, str]:
        """The two features."""
        return self.across, self.up

    @property
    def words(self) -> str:
        """What is shown, in a few words."""
        return f"within the lasso of {self.across} and {self.up}"

    def within(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which places lie within the outline; where it crosses itself, every other part.

        A place that is NaN lies outside.
        """
        low, high = np.min(self.corners, axis=0), np.max(self.corners, axis=0)
        x, y = np.asarray(x, float), np.asarray(y, float)
        result = np.zeros(len(x), bool)
        near = np.flatnonzero((x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1]))
        rows = near[np.argsort(y[near], kind="stable")]
        x, y = x[rows], y[rows]
        inside = np.zeros(len(rows), bool)
        # An edge flips the points on its left; sorted by y, few of them have to be compared.
        for (x0, y0), (x1, y1) in zip(
            self.corners, (*self.corners[1:], self.corners[0]), strict=True
        ):
            if y0 != y1:
                beside = slice(*np.searchsorted(y, (min(y0, y1), max(y0, y1))))
                inside[beside] ^= x[beside] < x0 + (y[beside] - y0) * ((x1 - x0) / (y1 - y0))
        result[rows] = inside
        return result


def gate_from_dict(values: Any) -> Gate:
    """Return a gate from plain values.

    Raises
    ------
    ValueError
        If the values are something else; the message says what is accepted.
    """
    try:
        return Gate(str(values["across"]), str(values["up"]), values["corners"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"a gate looks like {_GATE_EXAMPLE}; got {values!r}") from None
