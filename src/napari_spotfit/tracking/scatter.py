"""How far shifts really scatter, beside what their standard errors say."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Half of all normal deviates are within this; and how fast that share changes there, for a
#: factor that grows by e.
_HALF, _CHANGE = 0.6744897502, 0.4286498
#: What is thought at first counts as so many deviates; later, those before as so many.
_AT_FIRST, _MOST = 20, 4000


class Scatter:
    """The factor by which standard errors are too small or too large, learnt from deviates.

    The noise of one frame, whose camera nobody calibrated, may be told wrongly; the fiducials of
    many frames tell by how far they are apart. The median of the deviates is followed, which a few
    of them that are wrong do not draw.

    Attributes
    ----------
    factor : float
        What standard errors have to be multiplied by; 1 at first.

    Examples
    --------
    >>> scatter = Scatter()
    >>> rng = np.random.default_rng(1)
    >>> for _ in range(200):
    ...     scatter.learn(rng.normal(0.0, 2.0, 20))
    >>> round(scatter.factor, 1)
    2.0
    """

    def __init__(self) -> None:
        self.factor, self._known = 1.0, _AT_FIRST

    def learn(self, deviates: NDArray[np.float64]) -> None:
        """Learn from deviations over standard errors, which follow a normal distribution."""
        count = deviates.size
        if not count:
            return
        beyond = np.count_nonzero(np.abs(deviates) > _HALF * self.factor) / count
        self._known = min(self._known + count, _MOST)
        self.factor *= math.exp((beyond - 0.5) / _CHANGE * count / self._known)
