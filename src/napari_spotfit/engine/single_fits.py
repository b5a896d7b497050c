"""Which spots of a block overlap, by their fits one by one, and how far each is from the next."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models.columns import STDERR, STOP
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
#: Positions of one thread's share.
_SHARE = 1 << 12


class Singles(NamedTuple):
    """What fits of single spots show of the spots around them; one number for each position."""

    #: Where fits of spots together begin.
    places: NDArray[np.float64]
    #: Bits of :class:`~.layouts.SpotState`.
    state: NDArray[np.uint8]
    #: To the nearest other position, in pixels, NaN if none is near.
    distance: NDArray[np.float32]
    #: The logarithm of how much likelier the data are with the spot.
    evidence: NDArray[np.float32]

    def rows(self, which: NDArray[np.int64]) -> Singles:
        """Return those of some positions."""
        places, state, distance, evidence = self
        return Singles(places[which], state[which], distance[which], evidence[which])

    @property
    def concerned(self) -> NDArray[np.int64]:
        """Those that fits of spots together concern."""
        return np.flatnonzero(self.state & SpotState.IS_CONCERNED)


def singles_of(job: FitJob, positions: Positions, columns: Columns, sigma: ArrayLike) -> Singles:
    """Return what fits of single spots show, without a look at the pixels.

    ``sigma`` is their width, or one for each axis.
    """
    settings = job.settings
    adds = not job.one_row_per_position
    kinds = {**dict.fromkeys(job.axes, "f8"), "flags": "u4", STOP: "u1"}
    names = [*kinds, "amplitude", "amplitude" + STDERR, "sigma", "sigma" + STDERR]
    own = {
        name: np.ascontiguousarray(columns[name], kinds.get(name, "f4"))
        for name in names
        if name in columns
    }
    at = {name: address(own.get(name)) for name in names}
    may_be_two = adds and "sigma" not in settings.fixed
    fitted = [at[axis] or 0 for axis in job.axes]
    doubtful = Flag.ELONGATED | Flag.POOR_FIT | Flag.WIDE if adds else 0
    search = SingleFits(
        fitted=(*fitted, *[0] * (3 - len(fitted))), flags=at["flags"], stop=at[STOP],
        amplitude=at["amplitude"], amplitude_error=at["amplitude" + STDERR],
        sigma=(at["sigma"] or 0) if may_be_two else 0, sigma_error=at["sigma" + STDERR],
        not_good=int(NOT_GOOD), left_out=int(Flag.SATURATED), doubtful=int(doubtful),
        invalid=int(StopCondition.INVALID), takes_all=adds and settings.neighbours == "joint",
        psf_sigma=float(np.ravel(sigma)[-1]), errors=_ERRORS,
        uneven=_UNEVEN * float(np.ravel(sigma)[-1]),
    )  # fmt: skip
    reach = _REACH if job.model.lattice is None else _REACH_OF_PSF
    return _searched(search, positions, sigma, job.threads, overlap_of(job), reach)


def overlap_of(job: FitJob) -> float:
    """Return the distance below which spots overlap, in σ."""
    return OVERLAP if job.model.lattice is None else _OVERLAP_OF_PSF


def distances(
    positions: Positions, sigma: ArrayLike, workers: int | None = None
) -> NDArray[np.float32]:
    """Return the distance of each position to the nearest one of its frame; NaN if none is near.

    Planes are as far apart as spots are longer along z than along x.

    Examples
    --------
    >>> places = np.array([[3.0, 3.0], [3.0, 5.0], [30.0, 3.0]])
    >>> distances(Positions(places), 1.0)
    array([ 2.,  2., nan], dtype=float32)
    """
    return _searched(SingleFits(), positions, sigma, workers).distance


def _searched(
    search: SingleFits, positions: Positions, sigma: ArrayLike, workers: int | None,
    overlap: float = OVERLAP, reach: float = _REACH,
) -> Singles:  # fmt: skip
    count, axes = positions.places.shape
    widths = np.broadcast_to(np.asarray(sigma, float), axes)
    in_plane, rest = widths[-2:], [1.0] * (3 - axes)
    planes = [widths[0] / widths[-1]] if axes > len(in_plane) else []
    places = np.ascontiguousarray(positions.places, float)
    frame = np.ascontiguousarray(positions.frames, np.int64)
    found = Singles(
        np.empty((count, axes)), np.zeros(count, np.uint8), *np.empty((2, count), np.float32)
    )
    search.given, search.frame, search.count = address(places), address(frame), count
    search.axes, search.pixels = axes, (*planes, 1.0, 1.0, *rest)
    search.overlap = (*(overlap * widths).tolist(), *rest)
    widest = float(in_plane.max())
    search.farthest, search.near, search.reach = (
        overlap * widest, _NEAR * widest, reach * widest + _PIXELS,
    )  # fmt: skip
    search.places, search.state, search.distance, search.evidence = map(address, found)
    if not search.flags:
        search.state = 0
    largest = np.bincount(frame).max(initial=0)

    def work(begin: int, end: int) -> None:
        own, memory = SingleFits.from_buffer_copy(search), np.empty((5 + axes, largest), np.int64)
        at = map(address, [*memory[:5], memory[5:]])
        own.ends, own.cell, own.spot, own.root, own.nearest, own.sorted = at
        load().functions.spotfit_find_overlaps(ctypes.byref(own), begin, end)

    threads.in_pieces(work, count, _SHARE, workers)
    return found
