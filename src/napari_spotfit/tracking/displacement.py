"""Displacement of a sample, health of fiducials, and spectra of a record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.cpu import layouts
from ..models.bounds import number

Floats = NDArray[np.float64]

#: Approximate number of segments that a spectrum averages.
_PIECES = 8


class Health(IntEnum):
    """Why a fiducial is excluded: the first of several reasons.

    Examples
    --------
    >>> from napari_spotfit import Health
    >>> Health(3).name
    'SATURATED'
    """

    GOOD = layouts.Health.GOOD
    OUTSIDE = layouts.Health.OUTSIDE
    LOST = layouts.Health.LOST
    SATURATED = layouts.Health.SATURATED
    CROWDED = layouts.Health.CROWDED
    DIM = layouts.Health.DIM
    BRIGHT = layouts.Health.BRIGHT
    APART = layouts.Health.APART
    # The library knows no z.
    NO_Z = layouts.Health.APART + 1
    APART_Z = layouts.Health.APART + 2


#: Text for each reason.
WORDS = {
    Health.GOOD: "takes part",
    Health.OUTSIDE: "is at the frame's border or past it",
    Health.LOST: "is not found where it should be, and is searched for",
    Health.SATURATED: "is saturated",
    Health.CROWDED: "is too close to another",
    Health.DIM: "has lost light, as if it blinked",
    Health.BRIGHT: "has more light than before, as if another passed by",
    Health.APART: "has moved apart from the others",
    Health.NO_Z: "takes part in y and x only: z is at an end of the calibration or beyond, or not "
    "known",
    Health.APART_Z: "takes part in y and x only: it has moved apart from the others along z",
}

_NO_FIDUCIALS = np.empty(0, np.uint8)
_NO_POSITIONS = np.empty((0, 2))


@dataclass(frozen=True, slots=True)
class Displacement:
    """Displacement of a sample since the reference, in one frame.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    frame : int
        Number of the frame.
    time : float or None
        Time in seconds, as given to :meth:`Tracker.update`.
    y, x, z : float
        Displacement in pixels, along z in nm; NaN if unknown: z without a calibration as the model,
        and all without fiducials.
    y_stderr, x_stderr, z_stderr : float
        Standard errors in these units.
    rotation, rotation_stderr : float
        Rotation in degrees from x towards y; NaN unless fitted.
    scale, scale_stderr : float
        Magnification since the reference; NaN unless fitted.
    used, z_used : int
        Number of fiducials used, and of those for z.
    health : ndarray of uint8, shape (n,)
        :class:`Health` of each fiducial.
    positions : ndarray of float64, shape (n, 2)
        Positions of the fiducials, y and x in pixels; expected ones for those not found.
    problem : str
        Why the displacement is unusable; empty if it is usable.

    Examples
    --------
    >>> from napari_spotfit import Displacement, Health
    >>> moved = Displacement(7, y=0.2, x=-0.1, used=1, health=[Health.GOOD, Health.LOST])
    >>> moved.left_out
    {1: 'is not found where it should be, and is searched for'}
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
    z_used: int = 0
    health: NDArray[np.uint8] = field(default_factory=lambda: _NO_FIDUCIALS)
    positions: NDArray[np.float64] = field(default_factory=lambda: _NO_POSITIONS)
    problem: str = ""

    @property
    def left_out(self) -> dict[int, str]:
        """Reasons of excluded fiducials, by their numbers.

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
        Displacements at equal intervals; NaN is interpolated. A linear trend is subtracted from
        each segment.
    rate : float
        Values per second.

    Returns
    -------
    frequency : ndarray of float64
        Frequencies in hertz, without 0.
    density : ndarray of float64
        One-sided density in squared units per hertz: its integral is the variance.

    Raises
    ------
    ValueError
        If fewer than 8 values are finite, or the rate is not positive.

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
    """Return the Allan deviation of a record: how much successive means of a duration differ.

    While it falls with time, longer averaging helps; where it rises, drift dominates.

    Parameters
    ----------
    values : array, shape (n,)
        Displacements at equal intervals; NaN is interpolated.
    rate : float
        Values per second.

    Returns
    -------
    time : ndarray of float64
        Durations in seconds, of 1, 2, 4, … values.
    deviation : ndarray of float64
        Overlapping Allan deviation, in units of the values.

    Raises
    ------
    ValueError
        If fewer than 8 values are finite, or the rate is not positive.

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
    """Return values with gaps interpolated."""
    record = np.asarray(values, float)
    known = np.isfinite(record)
    if record.ndim != 1 or np.count_nonzero(known) < 8:
        raise ValueError(
            f"a record needs 8 finite values along one axis; got {np.count_nonzero(known)} in the "
            f"shape {record.shape}"
        )
    number("rate", rate, 0, above=True)
    at = np.arange(len(record))
    return np.asarray(np.interp(at, at[known], record[known]))
