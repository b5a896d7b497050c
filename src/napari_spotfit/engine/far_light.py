"""Tell which spots that do not overlap are moved by the light of bright ones around all the same.

A fit of a single spot leaves out the pixels that are nearer to others. In its own ones the light of
these is a slope, which moves it: by less than its error where all are dim, by ten where 10⁶ photons
are 5 σ away.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE
from .backend import Columns, Positions
from .cpu.layouts import SpotState
from .fit_job import FitJob
from .flags import NOT_GOOD
from .joint_fits import LINKED
from .positions import link_positions
from .single_fits import OVERLAP, Singles, chain_reach

#: By how much a spot is moved by another one as bright, in σ, at a distance in σ: measured with
#: spots of σ 1.3 px, 10⁴ to 10⁶ photons, where the border of its pixels is half of it away.
_MOVED, _AT = 0.0116, 5.0
#: The bit of a spot's state where that alone is why it is fitted with others.
IS_MOVED = 32
#: How many of its errors a spot is moved, at least.
_ERRORS = 1.25


def with_far_light(
    job: FitJob,
    positions: Positions,
    columns: Columns,
    singles: Singles,
    widths: NDArray[np.float64],
    shape: tuple[int, ...],
) -> tuple[Singles, bool]:
    """Return the same with spots as overlapping that light of others moves; whether any are.

    Parameters
    ----------
    job, positions, columns
        As :func:`.joint.fit_crowds` takes them.
    singles : Singles
        What fits of single spots show.
    widths : ndarray
        The spots' widths along each axis.
    shape : tuple of int
        That of a frame.
    """
    if len(widths) > len(IN_PLANE) or job.model.lattice is not None:
        return singles, False
    sigma, photons = float(widths.max()), columns["photons"]
    with np.errstate(invalid="ignore"):
        near = np.flatnonzero(singles.distance <= LINKED * sigma)
        near = near[photons[near] > 0]
    light, apart = photons[near].astype(float), singles.distance[near] / sigma
    # Most images have no pair that is as bright and as near.
    most = _share(np.maximum(apart, OVERLAP)) * light.max(initial=0.0)
    may_be = (most > _ERRORS * np.sqrt(light)) & (columns["flags"][near] & int(NOT_GOOD) == 0)
    if not may_be.any():
        return singles, False
    moved = _moved(singles.places[near], positions.frames[near], light, may_be, sigma)
    if not len(moved):
        return singles, False
    state, moved = singles.state.copy(), near[moved]
    moved = moved[(state[moved] & SpotState.OVERLAPS) == 0]
    if not len(moved):
        return singles, False
    state[moved] |= np.uint8(SpotState.OVERLAPS | IS_MOVED)
    frames = np.zeros(positions.frames[-1] + 1, np.bool_)
    frames[positions.frames[moved]] = True
    rows = np.flatnonzero(frames[positions.frames] & (state & SpotState.TAKES_PART != 0))
    linked = Positions(singles.places.take(rows, axis=0), positions.frames[rows])
    chain = link_positions(linked, np.full(2, chain_reach(sigma)), shape, job.threads)
    is_moved = np.zeros(len(chain), np.bool_)
    is_moved[chain[np.searchsorted(rows, moved)]] = True
    state[rows[is_moved[chain]]] |= np.uint8(SpotState.IS_CONCERNED)
    return singles._replace(state=state), True


def _share(apart: NDArray[Any] | float) -> NDArray[Any]:
    """Return by how much one is moved by another one as bright, in σ, at a distance in σ."""
    found: NDArray[Any] = _MOVED * np.exp((_AT**2 - np.square(apart)) / 8)
    return found


def _moved(
    places: NDArray[np.float64], frames: NDArray[np.int64], light: NDArray[np.float64],
    may_be: NDArray[np.bool_], sigma: float,
) -> NDArray[np.int64]:  # fmt: skip
    """Return those spots that another one moves which does not overlap, by more than some errors.

    ``may_be`` are those that can be by their own light and the nearest one.
    """
    from scipy.spatial import cKDTree  # takes longer to import than many fits

    at = np.column_stack([places, 2 * LINKED * sigma * (frames + 1)])
    victims = np.flatnonzero(may_be)
    # Dimmer ones do not move even the dimmest of these.
    least = _ERRORS * math.sqrt(float(light[victims].min())) / float(_share(OVERLAP))
    bright = np.flatnonzero(light > least)
    found = cKDTree(at[victims]).sparse_distance_matrix(
        cKDTree(at[bright]), LINKED * sigma, output_type="ndarray"
    )
    own, other, apart = victims[found["i"]], bright[found["j"]], found["v"] / sigma
    is_moved = (apart > OVERLAP) & (light[other] * _share(apart) > _ERRORS * np.sqrt(light[own]))
    return np.unique(own[is_moved])
