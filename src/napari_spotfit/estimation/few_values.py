"""Tell blank images of hardly any noise, whose pixels have two or three values, from filtered ones.

Where noise is a third of a step between values, most pixels are equal, and what few are not look
like nothing else: their fine detail is that of single points. Of a camera, each is by itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How many steps the values of nearly all pixels span, at most, and what share these are.
_STEPS, _NEARLY_ALL = 3.5, (5e-4, 1 - 5e-4)
#: How far apart pixels are compared, and how many deviations of chance they may have in common.
_APART, _CHANCE = ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2)), 3.5
#: Side of the part that is looked at.
_SIDE = 256


def has_few_independent_values(frame: NDArray[Any], step: float) -> bool:
    """Whether pixels have few values, and none goes by those around.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.
    step : float
        The step between values; 0 if there is none.

    Examples
    --------
    >>> from scipy import ndimage
    >>> blank = np.random.default_rng(1).normal(100, 0.25, (96, 96))
    >>> smooth = ndimage.gaussian_filter(4 * blank, 1)
    >>> [has_few_independent_values(np.rint(image), 1.0) for image in (blank, smooth)]
    [True, False]
    """
    y, x = (max(size - _SIDE, 0) // 2 for size in frame.shape)
    part = frame[y : y + _SIDE, x : x + _SIDE].astype(np.float64)
    known = np.isfinite(part)
    if not step or not known.any():
        return False
    low, high = np.quantile(part[known], _NEARLY_ALL)
    if not 0 < high - low < _STEPS * step:
        return False
    away = np.where(known, np.clip(part, low, high) - part[known].mean(), 0.0)
    variance = float(np.mean(away**2))
    rows, columns = away.shape
    for down, right in _APART:
        for own in (away, away[:, ::-1]):
            pairs = own[down:, right:] * own[: rows - down, : columns - right]
            if abs(float(pairs.mean())) > _CHANCE * variance / math.sqrt(max(pairs.size, 1)):
                return False
    return True
