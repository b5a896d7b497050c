"""Compute quantiles of a few numbers without NumPy's checks, which take longer than that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def quantiles(values: NDArray[Any], *shares: float) -> tuple[Numbers, ...]:
    """Return the numbers that a share of others lies below, of each row.

    Parameters
    ----------
    values : ndarray, shape (…, n)
        Finite numbers, one at least.
    *shares : float
        From 0 to 1.

    Examples
    --------
    >>> [float(one) for one in quantiles(np.array([3.0, 1.0, 2.0, 5.0]), 0.5, 1.0)]
    [2.5, 5.0]
    """
    last = values.shape[-1] - 1
    places = [share * last for share in shares]
    below = [min(int(place), max(last - 1, 0)) for place in places]
    wanted = {min(one + i, last) for one in below for i in (0, 1)}
    ordered = np.partition(values, sorted(wanted), -1)
    return tuple(
        ordered[..., low] + (ordered[..., min(low + 1, last)] - ordered[..., low]) * (place - low)
        for low, place in zip(below, places, strict=True)
    )


def median(values: NDArray[Any]) -> float:
    """Return the median of finite numbers, one at least.

    Examples
    --------
    >>> median(np.array([3.0, 1.0, 2.0]))
    2.0
    """
    return float(quantiles(values, 0.5)[0])
