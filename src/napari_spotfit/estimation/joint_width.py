"""Refine the width of spots whose light overlaps, by fits of all of them together.

Fits of single spots are too wide there, as some are of two. What is counted with too wide spots
would rather be narrower, and with too narrow ones wider, however many there are then: the width is
near the one that most would rather have, wider by what is not resolved. Where spots are so dim that
joint fits explain all that is there, it is that of the likeliest fit, in which each spot costs what
the data must gain by it. Bright ones would be too narrow so: if some were not found, narrow ones
are more, and leave less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Backend, Block, Columns, Positions
from ..engine.crowds import SPOT, Candidates, losses
from ..engine.detection_settings import score_for
from ..engine.fit_job import FitJob
from ..engine.joint_fits import LINKED, JointFitter
from ..engine.positions import link_positions
from ..engine.single_fits import OVERLAP

#: A width is found if spots would rather be wider or narrower by less than this fraction; it is
#: tried at most this many times, and changes by no more than the third at once.
_SETTLED, _TRIED, _LONGEST = 0.004, 6, 0.2
#: How far apart widths are whose likelihood is compared, as a fraction, and how many at most; and
#: the deviance over the number of pixels up to which all is explained.
_STEP, _MOST, _EXPLAINED = 0.06, 5, 1.1
#: The most that a crowd counts, in units of what most do: it may be a blob.
_TRIMMED = 3.0
#: In a crowded image this share of spots overlaps with others.
_CROWDED = 0.5
#: What spots of one width differ by, besides their errors.
_DIFFER = 0.01
#: Spots keep apart that have fewer neighbours in a ring near them, of these radii in σ, than this
#: share of what those in the ring around it let expect, this many pairs at least. In fewer pixels
#: than this, near ones are not resolved.
_NEAR, _AROUND, _OF_RANDOM, _FEWEST_PAIRS, _LEAST_PIXELS = (1.25, 2.0), 4.0, 0.17, 10, 1.4


class JointWidth(NamedTuple):
    """What joint fits say of the width of spots."""

    #: σ in pixels.
    sigma: float
    #: Whether spots are not at random places, but keep apart as packed beads do.
    are_apart: bool


def is_crowded(
    positions: Positions, shape: tuple[int, ...], sigma: float, threads: int | None
) -> bool:
    """Whether most spots in frames of a shape overlap with others."""
    group = link_positions(positions, OVERLAP * sigma, shape, threads)
    size = np.bincount(group, minlength=1)[group]
    return len(size) > 0 and bool((size > 1).mean() >= _CROWDED)


def joint_width(
    backend: Backend, job: FitJob, block: Block, positions: Positions, columns: Columns
) -> JointWidth:
    """Return the width that most spots of crowds would rather have, and how they lie.

    Parameters
    ----------
    backend : Backend
        What fits them.
    job : FitJob
        How to fit; its ``sigma`` is the width to refine.
    block : Block
        The pixels.
    positions : Positions
        Where spots were found.
    columns : Columns
        Their fits one by one.
    """
    assert job.sigma is not None
    points, frame = _points(job, block, positions, columns)
    every, crowds = np.ones(len(points), np.bool_), int(points["crowd"].max(initial=-1)) + 1

    def fitted(sigma: float, widest: float | None = None) -> NDArray[np.void]:
        fitter = JointFitter(backend, job, block, sigma, widest, finds_widths=False)
        own = points.copy()
        own["light"] /= fitter.scale.unit
        return fitter.fit(Candidates(own, frame), every, counts_spots=True)

    found = _wanted(fitted, job.sigma)
    spots = fitted(found)
    _, of_crowd = np.unique(spots["crowd"], return_index=True)
    deviance, pixels = (spots[name][of_crowd].sum() for name in ("deviance", "pixels"))
    frames = np.zeros(crowds, np.int64)
    frames[points["crowd"]] = frame
    are_apart = _are_apart(spots, frames[spots["crowd"]], found)
    if deviance > _EXPLAINED * pixels:
        return JointWidth(found, are_apart)
    cost = score_for(job.settings.false_spots, min(max(found, 0.5), 10.0)) ** 2 / 2
    likeliest = _likeliest(lambda sigma: losses(fitted(sigma, found), cost, crowds), found)
    return JointWidth(likeliest, are_apart)


def _are_apart(spots: NDArray[np.void], frame: NDArray[np.int64], sigma: float) -> bool:
    """Whether spots have fewer near neighbours than random places."""
    if not len(spots) or _NEAR[0] * sigma < _LEAST_PIXELS:
        return False
    from scipy.spatial import cKDTree  # takes longer to import than many fits

    far = 2 * _AROUND * (frame + 1) * (np.ptp(spots["y"]) + np.ptp(spots["x"]) + 1)
    tree = cKDTree(np.column_stack([spots["y"], spots["x"], far]) / sigma)
    closer, near, around = tree.count_neighbors(tree, [*_NEAR, _AROUND])
    areas = _NEAR[1] ** 2 - _NEAR[0] ** 2, _AROUND**2 - _NEAR[1] ** 2
    expected = (around - near) * areas[0] / areas[1]
    return bool(expected >= 2 * _FEWEST_PAIRS and near - closer < _OF_RANDOM * expected)


def _wanted(fitted: Callable[[float], NDArray[np.void]], sigma: float) -> float:
    """Return the width that most spots would rather have which are counted with it."""
    tried = [(math.log(sigma), _most(fitted(sigma)))]
    slope = -1.0
    while len(tried) < _TRIED and abs(tried[-1][1]) > _SETTLED:
        last, wider = tried[-1]
        own = last + min(max(-wider / slope, -_LONGEST), _LONGEST)
        tried.append((own, _most(fitted(math.exp(own)))))
        slope = min(max((tried[-1][1] - wider) / (own - last), -1.5), -0.5)
    last, wider = min(tried, key=lambda one: abs(one[1]))
    return math.exp(last - wider / slope)


def _most(spots: NDArray[np.void]) -> float:
    """Return by which fraction most spots would rather be wider than they are."""
    if not len(spots):
        return 0.0
    order = np.argsort(spots["wider"], kind="stable")
    weight = np.cumsum(1 / (spots["wider_error"][order] ** 2 + _DIFFER**2))
    return float(spots["wider"][order[np.searchsorted(weight, weight[-1] / 2)]])


def _likeliest(loss_with: Callable[[float], NDArray[np.float64]], first: float) -> float:
    """Return the width with which crowds are likeliest, near a first one."""
    seen: dict[int, NDArray[np.float64]] = {}

    def loss(k: int) -> NDArray[np.float64]:
        if k not in seen:
            seen[k] = loss_with(first * (1 + _STEP) ** k)
        return seen[k]

    def gain(k: int, other: int) -> float:
        """Return how much likelier the data are with another width."""
        each = loss(k) - loss(other)
        most = _TRIMMED * float(np.median(abs(each)))
        return float(np.clip(each, -most, most).sum())

    best, way = 0, -1
    while len(seen) < _MOST:
        if gain(best, best + way) > 0:
            best += way
        elif best or way > 0:
            break
        else:
            way = 1
    low, high = gain(best, best - 1), gain(best, best + 1)
    bend = -(low + high)
    shift = (high - low) / (2 * bend) if bend > 0 else 0.0
    return float(first * (1 + _STEP) ** (best + shift))


def _points(
    job: FitJob, block: Block, positions: Positions, columns: Columns
) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return where spots begin, their light in counts and their crowds, and the frame of each."""
    assert job.sigma is not None
    is_there = np.isfinite(columns["y"]) & (columns["photons"] > 0)
    places = np.column_stack([columns["y"], columns["x"]])[is_there]
    frame = positions.frames[is_there]
    points = np.zeros(len(places), SPOT)
    points["y"], points["x"] = places.T
    points["light"] = columns["photons"][is_there] * (job.settings.gain or 1.0)
    points["candidate"] = np.arange(len(points))
    linked = Positions(places, frame)
    points["crowd"] = link_positions(linked, LINKED * job.sigma, block.frame_shape, job.threads)
    return points, frame
