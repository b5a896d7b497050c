"""Choose among the widths of fits those of single spots: pairs taken for one are wider."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: The least number of spots, and how often those of one width are chosen again.
TOO_FEW, _ROUNDS = 3, 5
#: Fits that are this many standard errors wider or narrower than most are of several spots, or of
#: none; fits of spots with one width differ by this fraction besides.
_FARTHEST, _DIFFER = 2.0, 0.03
#: Two spots above each other that are taken for one are wider than each by this factor at most.
#: Single ones are known from these if they are this share of as many at least, and their least
#: number.
_TWO, _OFTEN, _GROUP = 1.8, 0.4, 6


def of_one_width(sigma: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return those widths that noise explains around what is most frequent.

    Two spots that were taken for one are wider, so that the median of all is too high.
    """
    ordered = np.sort(sigma)
    half = len(ordered) // 2
    first = int(np.argmin(ordered[half:] - ordered[: len(ordered) - half]))
    near = ordered[first : first + half + 1]
    reach = _FARTHEST * math.hypot(float(np.median(error)), _DIFFER)
    for _ in range(_ROUNDS):
        if len(near):  # of two widths, that between them may be none
            near = ordered[abs(ordered / np.median(near) - 1) <= reach]
    return near


def of_single_spots(
    near: NDArray[np.float64], sigma: NDArray[np.float64], error: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the most frequent widths or, if they are those of pairs, the widths of single spots.

    Of two spots above each other nothing but their width along z shows that they are two.
    """
    if len(near) < TOO_FEW:
        return near
    middle = float(np.median(near))
    rows = (sigma < near.min()) & (sigma > middle / _TWO)
    narrow = of_one_width(sigma[rows], error[rows]) if rows.sum() >= TOO_FEW else near[:0]
    apart = _FARTHEST * math.hypot(float(np.median(error)), _DIFFER)
    is_group = len(narrow) >= max(_OFTEN * len(near), _GROUP)
    return narrow if is_group and np.median(narrow) < middle * (1 - 1.5 * apart) else near
