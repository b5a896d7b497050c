"""Tell which spots that stand alone are moved by the light of bright ones some widths away.

A fit of a single spot leaves out the pixels that are nearer to others. In its own ones, the light
of these is a slope, which moves it: by less than its error where all are dim, by twelve where there
are 10⁶ photons 5 σ away. It is known from the fits of the others (:mod:`.far_refits`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.columns import DISTANCE, IN_PLANE
from ..settings.settings import Settings
from .backend import Columns
from .fit_job import FitJob
from .flags import NOT_GOOD
from .joint_fits import Scale, joint_noise
from .single_fits import OVERLAP

#: How far light counts here, in σ: at 8 σ, that of 10⁶ photons moves spots of 10³; and how often
#: spots are fitted at most, each time without the light of others as it is known by then.
FAR, ROUNDS = 8.0, 3
#: How many of its errors a spot may be moved by, at least, to be fitted again, and a number of it
#: changes, to have the new fit: of 1000 photons, only spots that are nearly a crowd.
LEAST_ERRORS = 1.5
#: By how much one of two spots as bright may move the other one: in σ, at 5 σ and with σ of many
#: pixels; the squared distance in σ² by which that is e times less; and what is added where few
#: pixels share the light, times 1/σ² in pixels. Measured with σ of 0.65 to 2.5 px, no noise and no
#: background, which makes likelihood like least squares: 1.5 times the mean over all directions and
#: places in a pixel. Of the largest shifts, these are 0.7.
_OF_LIKELIHOOD, _OF_SQUARES, _FEW_PIXELS = (0.017, 8.0), (0.004, 5.0), 1.0
#: More than distances are rounded by; the height of spots on no background.
_ROUNDED, _DARK = 1.001, 1e6
#: Steps of distances that are looked at, in σ.
_STEP = 0.25


class Rows(NamedTuple):
    """The rows of a block after joint fits, and where they are."""

    #: The position, the frame and the place of each, in pixels; and which are fits of one spot.
    position: NDArray[np.int64]
    frame: NDArray[np.int64]
    places: NDArray[np.float64]
    is_single: NDArray[np.bool_]
    #: The columns of their fits.
    columns: Columns


class Pairs(NamedTuple):
    """Rows of spots that may be moved, each with those of others that may move it."""

    moved: NDArray[np.int64]
    by: NDArray[np.int64]


def far_reach(settings: Settings) -> int:
    """Return how many pixels away the spots are, at most, by whose light others are fitted again.

    Examples
    --------
    >>> far_reach(Settings(sigma=1.3)), far_reach(Settings(sigma=1.3, neighbours="exclude"))
    (32, 0)
    """
    is_joint = settings.neighbours in ("joint", "auto") and settings.dimensions == len(IN_PLANE)
    return math.ceil(ROUNDS * FAR * settings.known_sigma) if is_joint else 0


def far_pairs(job: FitJob, rows: Rows, widths: NDArray[np.float64]) -> Pairs | None:
    """Return which spots may be moved by whose light, None if there are none.

    Parameters
    ----------
    job : FitJob
        How they were fitted.
    rows : Rows
        Those of a block.
    widths : ndarray
        Their widths along each axis.
    """
    if len(widths) > len(IN_PLANE) or job.model.lattice is not None:
        return None
    columns, sigma = rows.columns, float(widths.max())
    photons, distance = columns["photons"], columns[DISTANCE]
    with np.errstate(invalid="ignore"):
        reach = _farthest(job, photons, sigma) * sigma
        near = (distance > OVERLAP * sigma) & (distance <= reach) & rows.is_single
    own = np.flatnonzero(near)
    own = own[_has_light(columns, own)]
    if not len(own):  # as in many sparse blocks
        return None
    light = photons.astype(float)
    error, dark = _errors_and_darkness(job, columns, own, sigma)
    least = LEAST_ERRORS * error * light[own]
    # What depends on other frames of the block may only be too much.
    most = _most_moved(distance[own] / sigma, sigma, dark) * (np.nanmax(light) * _ROUNDED)
    own, least, dark = (one[most > least] for one in (own, least, dark))
    if not len(own):
        return None
    from scipy.spatial import cKDTree  # takes longer to import than many fits

    ever = float(_most_moved(OVERLAP, sigma, dark.max())) * _ROUNDED
    has_own = np.zeros(int(rows.frame[-1]) + 1, np.bool_)
    has_own[rows.frame[own]] = True
    others = np.flatnonzero((light * ever > least.min()) & has_own[rows.frame])
    others = others[_has_light(columns, others)]
    # Light is added in this order, which depends on nothing but places.
    others = others[np.lexsort([*rows.places[others].T[::-1], rows.frame[others]])]
    trees = (
        cKDTree(np.column_stack([rows.places[some], 2 * FAR * sigma * rows.frame[some]]))
        for some in (own, others)
    )
    found = next(trees).sparse_distance_matrix(next(trees), FAR * sigma, output_type="ndarray")
    found = found[own[found["i"]] != others[found["j"]]]
    i, j = found["i"], found["j"]
    moves, largest = light[others[j]] * _most_moved(found["v"] / sigma, sigma, dark[i]), 0 * least
    np.maximum.at(largest, i, moves)
    kept = (largest > least)[i]
    order = np.lexsort([j[kept], i[kept]])
    return Pairs(own[i[kept][order]], others[j[kept][order]]) if len(order) else None


def _has_light(columns: Columns, which: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of some rows are good spots, so that their light is known."""
    good = columns["flags"][which] & int(NOT_GOOD) == 0
    found: NDArray[np.bool_] = good & (columns["photons"][which] > 0)
    return found


def _most_moved(apart: Any, sigma: float, darkness: Any) -> NDArray[np.float64]:
    """Return by how much one is moved by another one as bright at most, in σ, at distances in σ.

    ``darkness`` is the height of the one over its background; 0 for least squares.
    """
    squares, likelihood = (
        share * (1 + _FEW_PIXELS / sigma**2) * np.exp((25 - np.square(apart)) / by)
        for share, by in (_OF_SQUARES, _OF_LIKELIHOOD)
    )
    # Of the light halfway between both, which weighs by its inverse.
    own = darkness * np.exp(-np.square(apart) / 8)
    return np.asarray(squares + np.maximum(likelihood - squares, 0) * own / (1 + own), float)


def _farthest(job: FitJob, photons: NDArray[Any], sigma: float) -> float:
    """Return how far, in σ, the brightest spot can be from the dimmest one to move it, or more."""
    light = photons[photons > 0]
    if not len(light):
        return 0.0
    apart = np.arange(OVERLAP, FAR, _STEP)
    dark = _DARK if job.settings.estimator_kind.is_likelihood else 0.0
    dimmest, brightest = float(light.min()), float(light.max())
    # At least by the error of a spot on no background.
    least = LEAST_ERRORS * dimmest / math.sqrt(dimmest * _electrons_per_photon(job))
    is_moved = _most_moved(apart, sigma, dark) * (brightest * _ROUNDED) > least
    return float(apart[is_moved].max(initial=0.0)) + _STEP


def _electrons_per_photon(job: FitJob) -> float:
    """Return how many photo-electrons a photon of the results is, by the noise."""
    noise = joint_noise(job)
    assert noise is not None
    return (job.settings.gain or 1.0) / Scale.of(noise).unit


def _errors_and_darkness(
    job: FitJob, columns: Columns, which: NDArray[np.int64], sigma: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the errors of places of some rows, in σ, and how high they are over their background.

    The formula is that of Rieger and Stallinga (2014). Heights are those by which fits weigh.
    """
    noise, settings = joint_noise(job), job.settings
    assert noise is not None
    scale = Scale.of(noise)
    light = columns["photons"][which] * _electrons_per_photon(job)
    level = (columns["background"][which] + settings.offset) / scale.unit + scale.shift
    tau = 2 * math.pi * sigma**2 * np.maximum(level, scale.least) / light
    variance = (1 + 4 * tau + np.sqrt(2 * tau / (1 + 4 * tau))) / light
    with np.errstate(divide="ignore"):
        height = 1 / tau if settings.estimator_kind.is_likelihood else np.zeros(len(which))
    return np.sqrt(variance), np.minimum(height, _DARK)
