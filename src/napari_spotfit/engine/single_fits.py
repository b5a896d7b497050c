"""Which spots of a block overlap, by their fits one by one, and how far each is from the next."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models.columns import IN_PLANE, STDERR, STOP
from ..models.estimators import StopCondition
from . import threads
from .backend import Columns, Positions
from .cpu.layouts import SingleFits, SpotState
from .cpu.library import load
from .fit_job import FitJob
from .flags import NOT_GOOD, Flag
from .kernel_arguments import address

#: In units of σ: spots that are nearer to each other than the first overlap, and how far neighbours
#: are looked for. Fits of spots together depend on no others that are farther than the third, and
#: the fourth in pixels: twice how far their light counts, and how far they may move.
OVERLAP, _NEAR, _REACH, _PIXELS = 4.0, 10.0, 10.5, 3.5
#: The first and the third of measured PSFs, which are wider out of focus.
_OVERLAP_OF_PSF, _REACH_OF_PSF = 6.5, 14.5
#: A spot alone may be two if it is wider than the PSF by more than these errors and this fraction
#: together: of 1000 photons, 995 of 1000 pairs 1.5 σ apart are, and 1 of 1500 single spots.
_ERRORS, _UNEVEN = 3.0, 0.04
#: The columns of fits that are read, and their types; those of the first have errors.
_SINGLE: Final = ("amplitude", "sigma", "sigma_z")
_READ: Final = {
    **dict.fromkeys(("z", "y", "x"), "f8"), "flags": "u4", STOP: "u1",
    **dict.fromkeys((one + more for one in _SINGLE for more in ("", STDERR)), "f4"),
}  # fmt: skip
#: Positions of one thread's share: to hand one over takes as long as 4000.
_SHARE = 1 << 13


class Singles(NamedTuple):
    """What fits of single spots show of the spots around them; one number for each position."""

    #: Where fits of spots together begin.
    places: NDArray[np.float64]
    #: Bits of :class:`~.layouts.SpotState`.
    state: NDArray[np.uint8]
    #: To the nearest other position, in pixels with planes as :func:`distances` has them by
    #: default, NaN if none is near.
    distance: NDArray[np.float32]
    #: The logarithm of how much likelier the data are with the spot.
    evidence: NDArray[np.float32]

    def rows(self, which: NDArray[np.int64] | slice) -> Singles:
        """Return those of some positions."""
        places, state, distance, evidence = self
        # NumPy takes rows by their numbers in a tenth of the time that it takes to index them.
        rows = places[which] if isinstance(which, slice) else places.take(which, axis=0)
        return Singles(rows, state[which], distance[which], evidence[which])

    @property
    def concerned(self) -> NDArray[np.int64]:
        """Those that fits of spots together concern."""
        return np.flatnonzero(self.state & SpotState.IS_CONCERNED)


def singles_of(job: FitJob, positions: Positions, columns: Columns, sigma: ArrayLike) -> Singles:
    """Return what fits of single spots show, without a look at the pixels.

    ``sigma`` is their width, or one for each axis.
    """
    search, found, _kept = asked_of(job, positions, columns, sigma)
    return _searched(search, positions, found, job.threads)


def asked_of(
    job: FitJob, positions: Positions, columns: Columns, sigma: ArrayLike
) -> tuple[SingleFits, Singles, Any]:
    """Return what the library is asked, but for memory, what it fills in, and what it reads."""
    search = SingleFits.from_buffer_copy(_asked(job, _along_axes(sigma, positions)))
    own = {
        name: np.ascontiguousarray(columns[name], kind)
        for name, kind in _READ.items()
        if name in columns
    }
    at = {name: address(column) for name, column in own.items()}
    search.fitted = tuple(at[axis] for axis in job.axes)
    search.flags, search.stop = at["flags"], at[STOP]
    search.amplitude, search.amplitude_error = at["amplitude"], at.get("amplitude" + STDERR)
    for name in ("sigma", "sigma_z"):
        if not job.one_row_per_position and name not in job.settings.fixed:
            setattr(search, name, at.get(name))
        setattr(search, name + "_error", at.get(name + STDERR))
    found, kept = _with_positions(search, positions)
    return search, found, (own, kept)


@lru_cache(maxsize=64)
def _asked(job: FitJob, widths: tuple[float, ...]) -> SingleFits:
    """Return what is asked of fits of a job; it is shared."""
    adds = not job.one_row_per_position
    reach = _REACH if job.model.lattice is None else _REACH_OF_PSF
    doubtful = Flag.ELONGATED | Flag.POOR_FIT | Flag.WIDE if adds else 0
    search = _around(widths, overlap_of(job), reach)
    search.not_good, search.left_out = int(NOT_GOOD), int(Flag.SATURATED)
    search.doubtful, search.invalid = int(doubtful), int(StopCondition.INVALID)
    search.takes_invalid = adds
    search.takes_all = adds and job.settings.neighbours == "joint"
    search.psf_sigma, search.errors, search.uneven = widths[-1], _ERRORS, _UNEVEN
    search.psf_sigma_z = widths[0]
    return search


def overlap_of(job: FitJob) -> float:
    """Return the distance below which spots overlap, in σ."""
    return OVERLAP if job.model.lattice is None else _OVERLAP_OF_PSF


def distances(
    positions: Positions,
    sigma: ArrayLike,
    workers: int | None = None,
    pixels_per_plane: float | None = None,
) -> NDArray[np.float32]:
    """Return the distance of each position to the nearest one of its frame; NaN if none is near.

    If it is unknown how far apart planes are, they are stretched until spots are round.

    Examples
    --------
    >>> places = np.array([[3.0, 3.0], [3.0, 5.0], [30.0, 3.0]])
    >>> distances(Positions(places), 1.0)
    array([ 2.,  2., nan], dtype=float32)
    """
    search = _around(_along_axes(sigma, positions), OVERLAP, _REACH)
    if pixels_per_plane is not None:
        search.pixels = (1 / pixels_per_plane, 1.0, 1.0)
    found, _kept = _with_positions(search, positions)
    return _searched(search, positions, found, workers).distance


def _along_axes(sigma: ArrayLike, positions: Positions) -> tuple[float, ...]:
    widths = np.ravel(sigma).tolist()
    return tuple(widths * positions.places.shape[1] if len(widths) == 1 else widths)


def _around(widths: tuple[float, ...], overlap: float, reach: float) -> SingleFits:
    """Return what is asked of the spots around each."""
    widest, rest = max(widths[-2:]), [1.0] * (3 - len(widths))
    planes = [widths[0] / widths[-1]] if len(widths) > len(IN_PLANE) else []
    return SingleFits(
        axes=len(widths), pixels=(*planes, 1.0, 1.0, *rest),
        overlap=(*[overlap * width for width in widths], *rest),
        farthest=overlap * widest, near=_NEAR * widest, reach=reach * widest + _PIXELS,
    )  # fmt: skip


def _with_positions(search: SingleFits, positions: Positions) -> tuple[Singles, Any]:
    """Say where positions are; return what is filled in, and what is read."""
    count, axes = positions.places.shape
    places = np.ascontiguousarray(positions.places, float)
    frame = np.ascontiguousarray(positions.frames, np.int64)
    found = Singles(
        np.empty((count, axes)), np.zeros(count, np.uint8), *np.empty((2, count), np.float32)
    )
    search.given, search.frame, search.count = address(places), address(frame), count
    search.places, search.state, search.distance, search.evidence = map(address, found)
    return found, (places, frame)


def _searched(
    search: SingleFits, positions: Positions, found: Singles, workers: int | None
) -> Singles:
    count, axes = positions.places.shape
    if not search.flags:
        search.state = 0
    largest = np.bincount(positions.frames).max(initial=0)

    def work(begin: int, end: int) -> None:
        own, memory = SingleFits.from_buffer_copy(search), np.empty((5 + axes, largest), np.int64)
        at = map(address, [*memory[:5], memory[5:]])
        own.ends, own.cell, own.spot, own.root, own.nearest, own.sorted = at
        load().functions.spotfit_find_overlaps(ctypes.byref(own), begin, end)

    threads.in_pieces(work, count, _SHARE, workers)
    return found
