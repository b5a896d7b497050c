"""Keep the ROIs of the brightest spots of a run, to look at them again at its end."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: How many ROIs are kept.
MOST = 200


class BrightRois:
    """The brightest of all ROIs that were offered, the brightest first.

    Threads: any number may offer ROIs.

    Examples
    --------
    >>> bright = BrightRois()
    >>> frame = np.arange(100.0).reshape(10, 10)
    >>> bright.offer(np.array([5.0, np.nan, 8.0]), lambda rows: frame[rows, :4].reshape(-1, 2, 2))
    >>> bright.rois[:, 0, 0]
    array([20.,  0.])
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._light = np.empty(0)
        self._rois: NDArray[Any] = np.empty((0, 1, 1))

    @property
    def rois(self) -> NDArray[Any]:
        """The ROIs, shape (n, rows, columns)."""
        return self._rois

    @property
    def light(self) -> NDArray[np.float64]:
        """How bright each is."""
        return self._light

    def offer(
        self, light: NDArray[np.float64], rois: Callable[[NDArray[np.int64]], NDArray[Any]]
    ) -> None:
        """Keep the ROIs that are among the brightest until now.

        Parameters
        ----------
        light : ndarray, shape (n,)
            How bright each is; those of NaN are left out.
        rois : callable
            Called with the numbers of ROIs, returns a copy of their pixels.
        """
        with self._lock:
            least = self._light[-1] if len(self._light) == MOST else -np.inf
            rows = np.flatnonzero(light > least)
            rows = rows[np.argsort(-light[rows], kind="stable")[:MOST]]
            if not len(rows):
                return
            known, pixels = np.concatenate([self._light, light[rows]]), rois(rows)
            best = np.argsort(-known, kind="stable")[:MOST]
            own = np.concatenate([self._rois, pixels]) if len(self._rois) else pixels
            self._light, self._rois = known[best], own[best]
