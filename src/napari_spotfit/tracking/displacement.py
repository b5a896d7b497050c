"""The displacement of a sample, the health of each fiducial, and the spectra of a record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.cpu import layouts

Floats = NDArray[np.float64]

#: Number of pieces of the record that a spectrum averages, about.
_PIECES = 8


class Health(IntEnum):
    """Why a fiducial is excluded; of several reasons, the first."""

    GOOD = layouts.Health.GOOD
    OUTSIDE = layouts.Health.OUTSIDE
    LOST = layouts.Health.LOST
    SATURATED = layouts.Health.SATURATED
    CROWDED = layouts.Health.CROWDED
    DIM = layouts.Health.DIM
    BRIGHT = layouts.Health.BRIGHT
    APART = layouts.Health.APART


#: The words for each.
WORDS = {
    Health.GOOD: "takes part",
    Health.OUTSIDE: "is at the frame's border or past it",
    Health.LOST: "is not found where it should be, and is searched for",
    Health.SATURATED: "is saturated",
    Health.CROWDED: "is too close to another",
    Health.DIM: "has lost light, as if it blinked",
    Health.BRIGHT: "has more light than before, as if another passed by",
    Health.APART: "has moved apart from the others",
}

_NO_FIDUCIALS = np.empty(0, np.uint8)
_NO_POSITIONS = np.empty((0, 2))


@dataclass(frozen=True, slots=True)
class Displacement:
    """Displacement of a sample since the reference, in one frame.

    Threads: it does not change, so that any number may use one.

    Attributes
    ----------
    frame : int
        How many frames came before.
    time : float or None
        Seconds, as given to :meth:`Tracker.update`.
    y, x, z : float
        Displacement in pixels, NaN where it is not known: z without a calibrated model, and all
        of them where no fiducial took part.
    y_stderr, x_stderr, z_stderr : float
        Standard errors of these, in pixels.
    rotation, rotation_stderr : float
        Degrees from x towards y; NaN unless it was asked for.
    scale, scale_stderr : float
        Magnification since the reference; NaN unless it was asked for.
    used : int
        How many fiducials took part.
    health : ndarray of uint8, shape (n,)
        :class:`Health` of each fiducial.
    positions : ndarray of float64, shape (n, 2)
        Where each one was found, y and x in pixels; where it should be if it was not.
    problem : str
        Why nothing should be concluded from this frame; empty if something may.
    """

    frame: int
    time: float | None = None
    y: float = math.nan
    x: float = math.nan
    z: float = math.nan
    y_stderr: float = math.nan
    x_stderr: float = math.nan
    z_stderr: float = math.nan
    rotation: float = math.nan
    rotation_stderr: float = math.nan
    scale: float = math.nan
    scale_stderr: float = math.nan
    used: int = 0
    health: NDArray[np.uint8] = field(default_factory=lambda: _NO_FIDUCIALS)
    positions: NDArray[np.float64] = field(default_factory=lambda: _NO_POSITIONS)
    problem: str = ""

    @property
    def left_out(self) -> dict[int, str]:
        """Which fiducials took no part, by their numbers, and why.

        Examples
        --------
        >>> Displacement(0, health=np.array([0, 5], np.uint8)).left_out
        {1: 'has lost light, as if it blinked'}
        """
        return {int(i): WORDS[Health(self.health[i])] for i in np.flatnonzero(self.health)}


def power_spectrum(values: ArrayLike, rate: float) -> tuple[Floats, Floats]:
    """Return the power spectral density of a record, by Welch's method.

    Parameters
    ----------
    values : array, shape (n,)
        Displacements at equal times; what is NaN is interpolated. The line of best fit of
        each piece is subtracted.
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
