"""Fiducials of one field: where each belongs, how bright it is, and what a frame tells of them.

Which of them take part in a frame must not change the displacement: so each is measured from a
place of its own, which all that have taken part together have agreed about. The steps are the
library's, kernels/cpu/fiducials.cpp, as NumPy would take longer for them than the fits take.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu import layouts
from ..engine.cpu.library import load
from ..engine.kernel_arguments import address
from ..engine.quality.flags import Flag

Floats = NDArray[np.float64]

#: Fits that have found no spot.
NOT_FOUND = int(
    Flag.NOT_CONVERGED | Flag.NEGATIVE | Flag.WEAK | Flag.AT_BOUND | Flag.MOVED | Flag.DUPLICATE
    | Flag.WIDE | Flag.NARROW
)  # fmt: skip
#: Columns of fits, and their types.
_COLUMNS = {
    "y": np.float64, "x": np.float64, "y_stderr": np.float32, "x_stderr": np.float32,
    "photons": np.float32, "photons_stderr": np.float32, "flags": np.uint32,
}  # fmt: skip


class Fiducials:
    """Where fiducials belong, in pixels of the first frame, and what each frame tells.

    Parameters
    ----------
    places : ndarray of float64, shape (n, 2)
        y and x in the first frame.
    photons : ndarray of float64, shape (n,)
        Their light there; NaN where it is not known.
    found : ndarray of bool, shape (n,)
        Which have been found there.
    frame_shape : (int, int)
        Rows and columns of a frame.

    Attributes
    ----------
    places, photons : ndarray of float64
        Where each belongs, and its light.
    shift : ndarray of float64, shape (2,)
        The displacement along y and x, by which fits are looked for in the next frame.
    bent : ndarray of float64, shape (2, 2)
        By how much a place moves besides, by its way from the middle of all: as the field turns or
        grows.
    shifts, errors : ndarray of float64, shape (n, 2)
        By how much each has moved in the last frame, with standard errors.
    health : ndarray of uint8, shape (n,)
        :class:`Health` of each.
    candidates, taken : ndarray of bool, shape (n,)
        Which could count in the displacement, and which have.
    mean, mean_errors : ndarray of float64, shape (2,)
        The mean of the shifts of those that have, with its standard errors.
    positions : ndarray of float64, shape (n, 2)
        Where each was found, or should be.
    crowded : ndarray of bool, shape (n,)
        Which are too close to another one to be believed; whoever looks says so.
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
        """Return where the fiducials should be; the memory is used again."""
        self._functions.spotfit_expect_fiducials(self._by_reference)
        return self._expected

    def judge(self, columns: Mapping[str, Any], scatter: float) -> None:
        """Say by how much each has moved, how it is, and which are candidates.

        Parameters
        ----------
        columns : mapping of str to ndarray
            The fits of a frame at the places where they were expected.
        scatter : float
            What their standard errors have to be multiplied by.
        """
        if columns is not self._columns:
            self._take(columns)
        self._all.scatter = scatter
        self._functions.spotfit_judge_fiducials(self._by_reference)

    def move(self) -> int:
        """Find the mean of the candidates' shifts, less what they are bent; return of how many."""
        used: int = self._functions.spotfit_move_fiducials(self._by_reference)
        return used

    def learn(self, used: int, usual: float) -> int:
        """Learn from a frame where those taken belong, and say where all of them are.

        Parameters
        ----------
        used : int
            How many have been taken.
        usual : float
            By how much less than their errors these are usually away from their mean.

        Returns
        -------
        int
            How many of their two deviates each are larger than half of all should be.
        """
        self._functions.spotfit_learn_fiducials(self._by_reference, used, usual)
        return int(self._all.beyond)

    def _take(self, columns: Mapping[str, Any]) -> None:
        """Take the columns of fits; those that are a Fitter's own are the same in each frame."""
        if "y_stderr" not in columns:
            raise ValueError("a Tracker needs standard errors: errors=True")
        kept = [np.ascontiguousarray(columns[name], kind) for name, kind in _COLUMNS.items()]
        names = ("y", "x", "y_stderr", "x_stderr", "light", "light_stderr", "flags")
        for name, column in zip(names, kept, strict=True):
            setattr(self._all, name, address(column))
        same = all(one is columns[name] for name, one in zip(_COLUMNS, kept, strict=True))
        self._columns, self._kept = columns if same else None, kept
