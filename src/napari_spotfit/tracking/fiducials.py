"""Find fiducials in a field, follow them from frame to frame, and find them after a jump.

The displacement must not depend on which fiducials are used in a frame. So each is measured from
its own reference position, which is consistent with the others. The steps are in the library,
kernels/cpu/fiducials.cpp, as NumPy would take longer than the fits.
"""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu import layouts
from ..engine.cpu.library import load
from ..engine.flags import Flag
from ..engine.kernel_arguments import address
from ..localization.localize import localize
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings

Floats = NDArray[np.float64]

#: Flags of fits that found no spot.
NOT_FOUND = int(
    Flag.NOT_CONVERGED | Flag.NEGATIVE | Flag.WEAK | Flag.AT_BOUND | Flag.MOVED | Flag.DUPLICATE
    | Flag.WIDE | Flag.NARROW
)  # fmt: skip
#: Columns of fits that the library reads, and their types.
_COLUMNS = {
    "y": np.float64, "x": np.float64, "y_stderr": np.float32, "x_stderr": np.float32,
    "photons": np.float32, "photons_stderr": np.float32, "flags": np.uint32,
}  # fmt: skip
#: Largest number of fiducials, and their least light relative to the brightest tenth.
_MOST_FIDUCIALS, _LEAST_LIGHT = 50, 0.25
#: Least number and fraction of fiducials that must agree after a jump, and the tolerance in pixels.
_AGREE, _AGREEING_SHARE, _NEAR = 2, 0.3, 2.0
#: Number of brightest spots per fiducial that are compared after a jump.
_SPOTS = 4

_DOUBTFUL = Flag.EDGE | Flag.SATURATED | Flag.NEIGHBOUR
#: Half of all normal deviates are within this, the upper quartile z of the normal distribution.
HALF_OF_DEVIATES = 0.6744897502
#: Change of the fraction of normal deviates below the median, per logarithm of their scale: twice z
#: times the normal density there.
_CHANGE = 0.4286498
#: Weight of the initial factor, and largest weight of earlier deviates, in deviates.
_AT_FIRST, _MOST_KNOWN = 20, 4000


class Fiducials:
    """Reference positions of fiducials, in pixels of the first frame, and their state in a frame.

    Parameters
    ----------
    places : ndarray of float64, shape (n, 2)
        Positions y and x in the first frame.
    photons : ndarray of float64, shape (n,)
        Photons there; NaN if unknown.
    found : ndarray of bool, shape (n,)
        Which were found there.
    frame_shape : (int, int)
        Rows and columns of a frame.

    Attributes
    ----------
    places, photons : ndarray of float64
        Reference positions and photons.
    shift : ndarray of float64, shape (2,)
        The displacement along y and x, added to expected positions in the next frame.
    bent : ndarray of float64, shape (2, 2)
        Additional shift per distance from the centre, by rotation or magnification of the field.
    shifts, errors : ndarray of float64, shape (n, 2)
        Shifts in the last frame, with standard errors.
    health : ndarray of uint8, shape (n,)
        :class:`Health` of each.
    candidates, taken : ndarray of bool, shape (n,)
        Which fiducials could be used for the displacement, and which were used.
    mean, mean_errors : ndarray of float64, shape (2,)
        The mean shift of those used, with its standard errors.
    positions : ndarray of float64, shape (n, 2)
        Positions found, or else expected.
    crowded : ndarray of bool, shape (n,)
        Which are too close to another one; set by the tracker.
    """

    def __init__(
        self,
        places: Floats,
        photons: Floats,
        found: NDArray[np.bool_],
        frame_shape: tuple[int, int],
    ) -> None:
        count = len(places)
        self.places, self.photons = np.array(places, float), np.array(photons, float)
        self._found_once = np.array(found, bool)
        self._frames, self._odd_frames = np.ones(count), np.zeros(count, np.int64)
        self._expected, self.positions, self.shifts, self._unbent, self.errors = (
            np.zeros((count, 2)) for _ in range(5)
        )
        self._expected[:] = places
        self.health = np.zeros(count, np.uint8)
        self.crowded, self.candidates, self.taken = (np.zeros(count, bool) for _ in range(3))
        self._work = np.empty(count)
        memory = (
            self.places, self.photons, self._frames, self._odd_frames, self._found_once,
            self.crowded,
        )  # fmt: skip
        made = (
            self._expected, self.positions, self.shifts, self._unbent, self.errors, self._work,
            self.health, self.candidates, self.taken,
        )  # fmt: skip
        self._all = layouts.Fiducials(
            count, *map(address, memory), (), (), 1.0, *map(float, frame_shape),
            NOT_FOUND, int(Flag.SATURATED), *[0] * len(_COLUMNS), *map(address, made),
        )  # fmt: skip
        self.shift, self.mean, self.mean_errors = (
            np.ctypeslib.as_array(getattr(self._all, name))
            for name in ("shift", "mean", "mean_errors")
        )
        self.bent = np.ctypeslib.as_array(self._all.bent).reshape(2, 2)
        self._columns: Mapping[str, Any] | None = None
        self._kept: list[NDArray[Any]] = []
        self._functions, self._by_reference = load().functions, ctypes.byref(self._all)

    def expected(self) -> Floats:
        """Return the expected positions, in an array that is reused."""
        self._functions.spotfit_expect_fiducials(self._by_reference)
        return self._expected

    def judge(self, columns: Mapping[str, Any], scatter: float) -> None:
        """Compute shift and health of each fiducial, and select candidates.

        Parameters
        ----------
        columns : mapping of str to ndarray
            The fits of a frame at the expected positions.
        scatter : float
            Factor for their standard errors.
        """
        if columns is not self._columns:
            self._take(columns)
        self._all.scatter = scatter
        self._functions.spotfit_judge_fiducials(self._by_reference)

    def move(self) -> int:
        """Average the candidates' shifts, less `bent`; return the number used."""
        used: int = self._functions.spotfit_move_fiducials(self._by_reference)
        return used

    def learn(self, used: int, usual: float) -> int:
        """Update the reference positions of fiducials used, and the positions of all.

        Parameters
        ----------
        used : int
            Number of fiducials used.
        usual : float
            Expected ratio of the scatter around the mean to the standard errors.

        Returns
        -------
        int
            Number of deviates, two per fiducial, above the expected median.
        """
        self._functions.spotfit_learn_fiducials(self._by_reference, used, usual)
        return int(self._all.beyond)

    def _take(self, columns: Mapping[str, Any]) -> None:
        """Pass the columns of fits to the library, unless they are the same arrays as before."""
        if "y_stderr" not in columns:
            raise ValueError("a Tracker needs standard errors: errors=True")
        kept = [np.ascontiguousarray(columns[name], kind) for name, kind in _COLUMNS.items()]
        names = ("y", "x", "y_stderr", "x_stderr", "light", "light_stderr", "flags")
        for name, column in zip(names, kept, strict=True):
            setattr(self._all, name, address(column))
        same = all(one is columns[name] for name, one in zip(_COLUMNS, kept, strict=True))
        self._columns, self._kept = columns if same else None, kept


def closer_than(distance: float, places: Floats) -> NDArray[np.bool_]:
    """Return which positions are closer than a distance to another one.

    Examples
    --------
    >>> closer_than(2.0, np.array([[0.0, 5.0], [9.0, 9.0], [1.0, 6.0]]))
    array([ True, False,  True])
    """
    order = np.argsort(places[:, 0])
    y, x = places[order].T
    close = np.zeros(len(places), bool)
    # Sorted by y, compare each with its 1st, 2nd, … successor, while any are close in y.
    for step in range(1, len(places)):
        dy = y[step:] - y[:-step]
        if dy.min() >= distance:
            break
        pairs = dy**2 + (x[step:] - x[:-step]) ** 2 < distance**2
        close[step:] |= pairs
        close[:-step] |= pairs
    found = np.empty_like(close)
    found[order] = close
    return found


def find_fiducials(frame: Any, settings: Settings) -> SpotFits:
    """Return bright, isolated spots of a frame, as fiducials are.

    Parameters
    ----------
    frame : array, shape (Y, X)
        The frame.
    settings : Settings
        Settings of detection and fit.

    Returns
    -------
    SpotFits
        Good fits, the brightest first.

    Raises
    ------
    ValueError
        If there are none.
    """
    fits = localize(frame, settings=settings)
    light = np.where(fits.good & ((fits.flags & int(_DOUBTFUL)) == 0), fits.photons, 0.0)
    if not light.any():
        raise ValueError(
            f"no fiducials are found: of {len(fits)} spots in this frame none is good, isolated, "
            "away from the border and not saturated; pass their positions"
        )
    bright = np.quantile(light[light > 0], 0.9)
    order = np.argsort(-light, kind="stable")
    chosen = order[light[order] >= _LEAST_LIGHT * bright][:_MOST_FIDUCIALS]
    return fits[chosen]


def shift_after_jump(frame: Any, references: Floats, settings: Settings) -> Floats | None:
    """Return the common shift of all fiducials, within a pixel or two; None if none is found.

    Of all differences between a spot and a fiducial, those of the right pairs agree.

    Parameters
    ----------
    frame : array, shape (Y, X)
        The frame after the jump.
    references : ndarray of float64, shape (n, 2)
        Positions of the fiducials before, y and x.
    settings : Settings
        Settings of detection.
    """
    with warnings.catch_warnings():
        # So do beads that are beyond a calibration's range.
        warnings.filterwarnings("ignore", "the brightest spots look as if the image were")
        fits = localize(frame, settings=settings)
    fits = fits[fits.good]
    if not len(fits):
        return None
    brightest = np.argsort(-fits.photons, kind="stable")[: _SPOTS * len(references)]
    places = fits.points()[brightest]
    if len(references) == 1:
        return np.asarray(places[0] - references[0])
    differences = (places[np.newaxis] - references[:, np.newaxis]).reshape(-1, 2)
    own = np.repeat(np.arange(len(references)), len(places))
    near = _most_alike(differences)
    # Count each fiducial once.
    if len(np.unique(own[near])) < max(_AGREE, _AGREEING_SHARE * len(references)):
        return None
    return np.asarray(np.median(differences[near], axis=0))


def _most_alike(differences: Floats) -> NDArray[np.bool_]:
    """Return which differences lie in the densest cell of a histogram."""
    cells = np.floor(differences / _NEAR).astype(np.int64)
    cells -= cells.min(axis=0)
    counts = np.zeros(cells.max(axis=0) + 2, np.int64)
    np.add.at(counts, tuple(cells.T), 1)
    # Cells overlap by half, so that a border does not divide a peak.
    both = counts[:-1, :-1] + counts[1:, :-1] + counts[:-1, 1:] + counts[1:, 1:]
    best = np.array(np.unravel_index(np.argmax(both), both.shape))
    within = ((cells >= best) & (cells <= best + 1)).all(axis=1)
    middle = np.median(differences[within], axis=0)
    return np.asarray((np.abs(differences - middle) <= _NEAR).all(axis=1))


class Scatter:
    """Learns from deviates the factor by which standard errors are wrong.

    Without a calibrated camera, the noise estimate of one frame may be wrong; the scatter of
    fiducials over many frames corrects it. The factor follows the median of the deviates, which is
    robust against outliers.

    Attributes
    ----------
    factor : float
        Factor for standard errors; initially 1.

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
        """Update the factor from the deviates of a frame, half of which should exceed the median.

        Parameters
        ----------
        beyond : int
            Number of deviates above the median of normal ones.
        count : int
            Number of deviates.
        """
        if not count:
            return
        self._known = min(self._known + count, _MOST_KNOWN)
        self.factor *= math.exp((beyond / count - 0.5) / _CHANGE * count / self._known)
