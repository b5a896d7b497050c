"""Displacement of a sample, also along z, health of fiducials, and spectra of a record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.cpu import layouts
from ..engine.flags import Flag
from ..models.number_checks import as_numbers, number
from .fiducials import HALF_OF_DEVIATES, Scatter

Floats = NDArray[np.float64]

#: Approximate number of segments that a spectrum averages.
_PIECES = 8
_CHI = "reduced_chi_square"

#: Fiducials count within this many standard errors, or scaled median absolute deviations, of the
#: median of all (1.4826 of them are a standard deviation of normal deviates); of two, each has to
#: agree with the other.
_WITHIN, _DEVIATION = 4.0, 1.4826
#: Standard deviations of χ² beyond which the error of the mean grows with it.
_MOST_CHI = 3.0
#: Most frames that a reference is the mean over; and frames of the usual light and χ².
_FRAMES, _USUAL_FRAMES = 1000, 30
#: The least light, and the highest χ² of a poor fit, in units of the usual ones, with which z of a
#: fiducial is believed: far beyond the range, images look like dim ones within it.
_LEAST_LIGHT, _MOST_USUAL_CHI = 0.4, 2.0
#: The part of the range by which z may change in a frame; the nm within which the next frame has to
#: agree with a larger change; and the frames after which z that has not come back by the limit it
#: left by is believed.
_JUMP, _AGREE, _PATIENCE = 0.25, 100.0, 30


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
    record = as_numbers("values", values)
    known = np.isfinite(record)
    if record.ndim != 1 or np.count_nonzero(known) < 8:
        raise ValueError(
            f"a record needs 8 finite values along one axis; got {np.count_nonzero(known)} in the "
            f"shape {record.shape}"
        )
    number("rate", rate, 0, above=True)
    at = np.arange(len(record))
    return np.asarray(np.interp(at, at[known], record[known]))


class Rise(NamedTuple):
    """The displacement along z in nm, its standard error, and how many fiducials were used."""

    z: float = math.nan
    error: float = math.nan
    used: int = 0


class _Course(NamedTuple):
    """What is known of z from earlier frames."""

    #: The last rise; by which limit z left the range, -1 or 1; the frames for which it has seemed
    #: back elsewhere; and the rise after a jump that nothing confirms yet.
    rise: float = 0.0
    side: int = 0
    waited: int = 0
    jumped: float = math.nan


class Heights:
    """References of fiducials along z, in nm.

    Parameters
    ----------
    count : int
        Number of fiducials.
    ends : (float, float), optional
        The calibration's range of z; without it, any change of z is believed.

    Attributes
    ----------
    references : ndarray of float64, shape (count,)
        z of each in the first frame; NaN where it is not known yet.
    jitter : float
        Common scatter beside the errors of the fits.

    Examples
    --------
    >>> heights, health = Heights(3), np.zeros(3, np.uint8)
    >>> fits = {"z": np.array([9.0, 80.0, -50.0]), "z_stderr": np.full(3, 2.0)}
    >>> heights.measure(fits | {"flags": np.zeros(3, np.uint32)}, health, 1.0).z
    0.0
    >>> fits["z"] = fits["z"] + [5.0, 7.0, 300.0]
    >>> heights.measure(fits | {"flags": np.zeros(3, np.uint32)}, health, 1.0).z, health.tolist()
    (6.0, [0, 0, 9])
    """

    def __init__(self, count: int, ends: tuple[float, float] | None = None) -> None:
        self.references, self.jitter = np.full(count, math.nan), 0.0
        self._usual = {name: np.full(count, math.nan) for name in ("photons", _CHI)}
        self._fits_well, self._ends = np.zeros(count, bool), ends
        self._course = self._course_before = _Course()
        self._frames = np.ones(count)
        self._scatter = Scatter()

    def measure(
        self,
        columns: Mapping[str, Any],
        health: NDArray[np.uint8],
        scatter: float,
        *,
        again: bool = False,
    ) -> Rise:
        """Return the displacement in a frame, and learn from it.

        Parameters
        ----------
        columns : mapping of str to ndarray
            The fits of the fiducials.
        health : ndarray of uint8
            :class:`Health` of each by y and x; those that are good, but not along z, are marked.
        scatter : float
            Factor for standard errors.
        again : bool
            Whether these are other fits of the same frame.
        """
        if again:
            self._course = self._course_before
        self._course_before = self._course
        good = health == Health.GOOD
        z, errors = (np.asarray(columns[name], float) for name in ("z", "z_stderr"))
        limited = (columns["flags"] & int(Flag.Z_AT_LIMIT)) != 0
        alike = self._are_as_usual(columns)
        known = good & ~limited & np.isfinite(z) & (errors > 0) & alike
        health[good & ~known] = Health.NO_Z
        # Where half lie beyond the range, noise decides which ones still lie within: all too low.
        if 2 * np.count_nonzero(good & limited) >= np.count_nonzero(good):
            self._leave(z[good & limited & alike])
            return Rise()
        if not np.isfinite(self.references).any():
            self.references[known] = z[known]
        shifts, own = z - self.references, (scatter * errors) ** 2
        variances = own + self.jitter**2
        candidates = known & np.isfinite(shifts)
        taken = candidates & _near(shifts, variances, candidates)
        health[candidates & ~taken] = Health.APART_Z
        used = int(np.count_nonzero(taken))
        if not used:
            return Rise()
        weights = 1 / variances[taken]
        mean, least = float(np.average(shifts[taken], weights=weights)), float(1 / weights.sum())
        if not self._is_believed(mean, float(np.median(z[taken]))):
            health[taken] = Health.NO_Z
            return Rise()
        free = used - 1
        squares = (shifts[taken] - mean) ** 2
        chi = float((squares * weights).sum()) / free if free else 1.0
        if chi < 1 + _MOST_CHI * math.sqrt(2 / max(free, 1)):
            chi = 1.0
        self._learn(z - mean, known & (taken | np.isnan(shifts)))
        self._learn_usual(columns, taken)
        if free:
            self._learn_jitter(squares, own[taken], free / used)
        return Rise(mean, math.sqrt(chi * least), used)

    def _are_as_usual(self, columns: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which fits have about the light and χ² that they have within the range."""
        alike = np.ones(len(self.references), bool)
        if "photons" in columns:
            alike &= ~(columns["photons"] < _LEAST_LIGHT * self._usual["photons"])
        if _CHI in columns:
            poor = self._fits_well & ((columns["flags"] & int(Flag.POOR_FIT)) != 0)
            alike &= ~(poor & (columns[_CHI] > _MOST_USUAL_CHI * self._usual[_CHI]))
        return alike

    def _leave(self, z: Floats) -> None:
        """Note by which limit fiducials leave the range."""
        side = self._course.side
        if len(z) and not side and self._ends is not None:
            side = 1 if np.median(z) > sum(self._ends) / 2 else -1
        self._course = self._course._replace(side=side, waited=0, jumped=math.nan)

    def _is_believed(self, rise: float, z: float) -> bool:
        """Whether z, and how much it has changed, follow from what was before."""
        if self._ends is None:
            return True
        course, (low, high) = self._course, self._ends
        if course.side * (z - (low + high) / 2) < 0 and course.waited < _PATIENCE:
            self._course = course._replace(waited=course.waited + 1)
            return False
        jumps = not course.side and abs(rise - course.rise) > _JUMP * (high - low)
        if jumps and not abs(rise - course.jumped) < _AGREE:
            self._course = course._replace(jumped=rise)
            return False
        self._course = _Course(rise)
        return True

    def _learn_usual(self, columns: Mapping[str, Any], taken: NDArray[np.bool_]) -> None:
        """Follow light and χ² of fiducials whose z is believed."""
        for name in self._usual.keys() & columns.keys():
            usual, now = self._usual[name], np.asarray(columns[name], float)
            new = taken & np.isnan(usual)
            usual[new] = now[new]
            usual[taken] += (now - usual)[taken] / _USUAL_FRAMES
            if name == _CHI:
                self._fits_well[new] = ((columns["flags"] & int(Flag.POOR_FIT)) == 0)[new]

    def _learn(self, places: Floats, which: NDArray[np.bool_]) -> None:
        """Improve the references; one that is seen for the first time belongs where it is."""
        new = which & np.isnan(self.references)
        self.references[new], self._frames[new] = places[new], 0
        frames = np.minimum(self._frames[which] + 1, _FRAMES)
        self.references[which] += (places - self.references)[which] / frames
        self._frames[which] = frames

    def _learn_jitter(self, squares: Floats, own: Floats, free: float) -> None:
        """Follow the median deviate: what the errors of the fits do not explain is jitter."""
        variances = (own + self.jitter**2) * free
        beyond = int(np.count_nonzero(squares > HALF_OF_DEVIATES**2 * variances))
        before = self._scatter.factor
        self._scatter.learn(beyond, len(own))
        usual = float(np.median(own))
        total = (usual + self.jitter**2) * (self._scatter.factor / before) ** 2
        self.jitter = math.sqrt(max(total - usual, 0.0))


def _near(shifts: Floats, variances: Floats, candidates: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which shifts lie near the median of the candidates."""
    if not candidates.any():
        return candidates
    away = np.abs(shifts - np.median(shifts[candidates]))
    allowed = _WITHIN * np.sqrt(variances)
    if np.count_nonzero(candidates) > 2:
        allowed = np.maximum(allowed, _WITHIN * _DEVIATION * np.median(away[candidates]))
    return np.asarray(away <= allowed)
