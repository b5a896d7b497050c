"""Tell the light of spots on a lattice, which is of one frequency, from noise of one frequency.

As deconvolution leaves it, noise repeats over a few periods; a lattice does so all over the frame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The least correlation of places that are this part of the frame apart along both axes, so often
#: as much as a period apart at least.
_ALIKE, _APART, _PERIODS = 0.3, (1 / 3, 2 / 3), 6
#: The longest period in pixels; what is coarser is light and shade.
_LONGEST = 8


def has_lattice(frame: NDArray[Any]) -> bool:
    """Whether a frame repeats along both axes, and does so from one side to the other.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.

    Examples
    --------
    >>> rng, places = np.random.default_rng(1), np.indices((96, 96)) * 2 * np.pi / 5
    >>> light = 40 * np.exp(2 * np.cos(places)).prod(axis=0) + 20
    >>> has_lattice(rng.poisson(light)), has_lattice(rng.permuted(rng.poisson(light)))
    (True, False)
    """
    if min(frame.shape) < _PERIODS * _LONGEST:
        return False
    known = np.isfinite(frame)
    if not known.all():
        frame = np.where(known, frame, np.mean(frame[known]) if known.any() else 0.0)
    fine = frame.astype(float)
    for axis in (0, 1):
        fine = fine - _smoothed(fine, axis)
    return all(_repeats(own) for own in (fine, fine.T))


def _smoothed(frame: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return running means over the longest period along an axis."""
    from scipy.ndimage import uniform_filter1d  # takes longer to import than a few fits

    means: NDArray[np.float64] = uniform_filter1d(frame, _LONGEST + 1, axis)
    return means


def _repeats(rows: NDArray[np.float64]) -> bool:
    """Whether rows that are a third of the frame or more apart are alike."""
    size = len(rows)
    power = np.square(abs(np.fft.rfft(rows, 2 * size, axis=0))).sum(axis=1)
    products = np.fft.irfft(power)[:size] / np.arange(size, 0, -1)
    low, high = (math.ceil(part * size) for part in _APART)
    return bool(products[low:high].max() > _ALIKE * products[0] > 0)
