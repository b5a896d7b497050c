"""Which spots of a block overlap, by their fits one by one, and how far each is from the next."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.columns import STDERR, STOP
from ..models.stopping import StopCondition
from .backend import Columns
from .block import Positions
from .cpu.layouts import SingleFits, SpotState
from .cpu.library import load
from .fit_job import FitJob
from .kernel_arguments import address
from .quality.flags import NOT_GOOD, Flag

#: In units of σ: spots that are nearer to each other than the first overlap, and how far neighbours
#: are looked for. Fits of spots together depend on no others that are farther than the third, and
#: so many pixels: twice how far their light counts, and how far they may move.
OVERLAP, _NEAR, _REACH, _PIXELS = 4.0, 10.0, 10.5, 3.5
#: A spot alone may be two if it is wider than the PSF by more than so many errors and this fraction
#: together: of 1000 photons, 995 of 1000 pairs 1.5 σ apart are, and 1 of 1500 single spots.
_ERRORS, _UNEVEN = 3.0, 0.04


class Singles(NamedTuple):
    """What fits of single spots show of the spots around them; one number for each position."""

    #: y and x, from which fits of spots together begin.
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


def singles_of(job: FitJob, positions: Positions, columns: Columns, sigma: float) -> Singles:
    """Return what fits of single spots show, without a look at the pixels."""
    settings = job.settings
    adds = not job.one_row_per_position
    kinds = {"y": "f8", "x": "f8", "flags": "u4", STOP: "u1"}
    names = [*kinds, "amplitude", "amplitude" + STDERR, "sigma", "sigma" + STDERR]
    own = {
        name: np.ascontiguousarray(columns[name], kinds.get(name, "f4"))
        for name in names
        if name in columns
    }
    at = {name: address(own.get(name)) for name in names}
    may_be_two = adds and "sigma" not in settings.fixed
    doubtful = Flag.ELONGATED | Flag.POOR_FIT | Flag.WIDE if adds else 0
    search = SingleFits(
        y=at["y"], x=at["x"], flags=at["flags"], stop=at[STOP], amplitude=at["amplitude"],
        amplitude_error=at["amplitude" + STDERR], sigma=at["sigma"] if may_be_two else 0,
        sigma_error=at["sigma" + STDERR],
        not_good=int(NOT_GOOD), left_out=int(Flag.SATURATED), doubtful=int(doubtful),
        invalid=int(StopCondition.INVALID), takes_all=adds and settings.neighbours == "joint",
        overlap=OVERLAP * sigma, psf_sigma=sigma, errors=_ERRORS, uneven=_UNEVEN * sigma,
    )  # fmt: skip
    return _searched(search, positions, sigma)


def distances(positions: Positions, sigma: float) -> NDArray[np.float32]:
    """Return the distance of each position to the nearest one of its frame; NaN if none is near.

    Examples
    --------
    >>> places = np.array([[3.0, 3.0], [3.0, 5.0], [30.0, 3.0]])
    >>> distances(Positions(places), 1.0)
    array([ 2.,  2., nan], dtype=float32)
    """
    return _searched(SingleFits(overlap=1.0), positions, sigma).distance


def _searched(search: SingleFits, positions: Positions, sigma: float) -> Singles:
    count = len(positions.places)
    places = np.ascontiguousarray(positions.places, float)
    frame = np.ascontiguousarray(positions.frames, np.int64)
    memory = np.empty((7, count), np.int64)
    found = Singles(
        np.empty((count, 2)), np.zeros(count, np.uint8), *np.empty((2, count), np.float32)
    )
    search.given, search.frame, search.count = address(places), address(frame), count
    search.near, search.reach = _NEAR * sigma, _REACH * sigma + _PIXELS
    at = map(address, memory[:6])
    search.ends, search.cell, search.spot, search.root, search.nearest, search.sorted = at
    search.places, search.state, search.distance, search.evidence = map(address, found)
    if not search.flags:
        search.state = 0
    load().functions.spotfit_find_overlaps(ctypes.byref(search))
    return found
