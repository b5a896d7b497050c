"""The field that most fits are in, without those that are far from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..models.columns import IN_PLANE

Integers = NDArray[np.int64]

#: Quantiles between which the field is.
_FIELD = (0.01, 0.99)


def in_field(columns: Mapping[str, NDArray[Any]], rows: Integers) -> Integers:
    """Return rows without those far from the field of all others, and warn of them.

    The field is that of 98 % of the rows, and as much around it.
    """
    if not len(rows):
        return rows
    places = [taken(columns[axis], rows) for axis in IN_PLANE]
    if all(map(_fills_its_thirds, places)):
        return rows
    low, high = np.quantile(places, _FIELD, axis=1)[..., np.newaxis]
    margin = (high - low).max()
    outside = ((places < low - margin) | (places > high + margin)).any(axis=0)
    if margin > 0 and outside.any():
        warn_caller(
            f"{np.count_nonzero(outside)} of {len(rows)} fits are far outside of the field of all "
            "others, and left out"
        )
        rows = np.compress(~outside, rows)
    return rows


def taken(values: NDArray[Any], rows: Integers) -> NDArray[Any]:
    """Return the values of rows that rise; the values themselves if these are all."""
    return values if len(rows) == len(values) else values[rows]


def _fills_its_thirds(places: NDArray[Any]) -> bool:
    """Whether each outer third of positions has enough that none is far from the field.

    Both quantiles are in these thirds then, and so no farther from the ends than from each other.
    That is found much sooner than the quantiles are.
    """
    low, high = float(places.min()), float(places.max())
    third, least = (high - low) / 3, _FIELD[0] * len(places) + 2
    return bool(
        np.count_nonzero(places < low + third) > least
        and np.count_nonzero(places > high - third) > least
    )
