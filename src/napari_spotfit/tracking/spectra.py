"""What a record of displacements is made of: its power spectrum and its Allan deviation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

#: A spectrum is the mean of about so many pieces of the record.
_PIECES = 8


def power_spectrum(values: ArrayLike, rate: float) -> tuple[Floats, Floats]:
    """Return the power spectral density of a record, by Welch's method.

    Parameters
    ----------
    values : array, shape (n,)
        Displacements at equal times; what is NaN is interpolated. Their line of best fit is taken
        off, of each piece.
    rate : float
        Values a second.

    Returns
    -------
    frequency : ndarray of float64
        Hertz, without 0.
    density : ndarray of float64
        Square of the values' unit per hertz, one-sided: its integral is the variance.

    Raises
    ------
    ValueError
        If fewer than 8 values are finite, or the rate is not above 0.

    Examples
    --------
    >>> times = np.arange(1000) / 100
    >>> frequency, density = power_spectrum(np.sin(2 * np.pi * 20 * times), rate=100)
    >>> round(float(frequency[density.argmax()]))
    20
    """
    from scipy.signal import welch

    record = _record(values, rate)
    length = min(max(2 * len(record) // (_PIECES + 1), 8), len(record))
    frequency, density = welch(record, fs=rate, nperseg=length, detrend="linear")
    return frequency[1:], density[1:]


def allan_deviation(values: ArrayLike, rate: float) -> tuple[Floats, Floats]:
    """Return how much means over a time differ from the means over the time after.

    Where it falls, averaging longer helps; where it rises, the sample drifts meanwhile.

    Parameters
    ----------
    values : array, shape (n,)
        Displacements at equal times; what is NaN is interpolated.
    rate : float
        Values a second.

    Returns
    -------
    time : ndarray of float64
        Seconds of a mean: 1, 2, 4, … values.
    deviation : ndarray of float64
        Overlapping Allan deviation, in the values' unit.

    Raises
    ------
    ValueError
        If fewer than 8 values are finite, or the rate is not above 0.

    Examples
    --------
    >>> time, deviation = allan_deviation(np.arange(64.0), rate=1.0)  # a steady drift
    >>> time.tolist(), (deviation / time).round(3).tolist()
    ([1.0, 2.0, 4.0, 8.0, 16.0], [0.707, 0.707, 0.707, 0.707, 0.707])
    """
    record = _record(values, rate)
    sums = np.concatenate([[0.0], np.cumsum(record - record.mean())])
    counts = 2 ** np.arange(int(math.log2(len(record) / 3)) + 1)
    deviations = []
    for count in counts:
        means = (sums[count:] - sums[:-count]) / count
        steps = means[count:] - means[:-count]
        deviations.append(math.sqrt(0.5 * np.mean(steps**2)))
    return counts / rate, np.array(deviations)


def _record(values: ArrayLike, rate: float) -> Floats:
    """Return values without gaps."""
    record = np.asarray(values, float)
    known = np.isfinite(record)
    if record.ndim != 1 or np.count_nonzero(known) < 8:
        raise ValueError(
            f"a record needs 8 finite values along one axis; got {np.count_nonzero(known)} in the "
            f"shape {record.shape}"
        )
    if not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be above 0; got {rate!r}")
    at = np.arange(len(record))
    return np.asarray(np.interp(at, at[known], record[known]))
