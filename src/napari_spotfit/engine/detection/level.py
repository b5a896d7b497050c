"""The level that a frame counts from: the median of some pixels, as kernels/detection.h has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.reading import evenly_spread

_SAMPLES = 63


def level_places(pixels: int) -> NDArray[np.int64]:
    """Return which pixels of a frame tell its level."""
    return evenly_spread(_SAMPLES, pixels)


def level_of(sample: NDArray[Any]) -> float:
    """Return the level that they tell: one of them, the upper of two in the middle.

    Examples
    --------
    >>> level_of(np.array([4.0, 1.0, np.nan, 3.0, 2.0]))
    3.0
    """
    good = np.sort(sample[np.isfinite(sample)])
    return float(good[len(good) // 2]) if len(good) else 0.0
