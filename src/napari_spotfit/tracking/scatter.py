"""How far shifts really scatter, beside what their standard errors say."""

from __future__ import annotations

import math

#: How fast the share of normal deviates that are within the half of all changes there, for a factor
#: that grows by e.
_CHANGE = 0.4286498
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
    >>> import numpy as np
    >>> scatter, rng = Scatter(), np.random.default_rng(1)
    >>> for _ in range(200):
    ...     deviates = rng.normal(0.0, 2.0, 20) / scatter.factor
    ...     scatter.learn(np.count_nonzero(abs(deviates) > 0.6744897502), 20)
    >>> round(scatter.factor, 1)
    2.0
    """

    def __init__(self) -> None:
        self.factor, self._known = 1.0, _AT_FIRST

    def learn(self, beyond: int, count: int) -> None:
        """Learn of how many deviates, as the factor has them by now, half should be larger.

        Parameters
        ----------
        beyond : int
            How many are larger than half of all normal deviates.
        count : int
            How many there are.
        """
        if not count:
            return
        self._known = min(self._known + count, _MOST)
        self.factor *= math.exp((beyond / count - 0.5) / _CHANGE * count / self._known)
