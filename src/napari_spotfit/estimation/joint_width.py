"""Refine the width of spots whose light overlaps, by fits of all of them together.

Fits of single spots are too wide there, as some are of two. Too wide spots are too few, and too
narrow ones too many, for what they explain: the width is that of the likeliest fit, in which each
spot costs what the data must gain by it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Backend, Block, Columns, Positions
from ..engine.crowds import SPOT, Candidates
from ..engine.detection_settings import score_for
from ..engine.fit_job import FitJob
from ..engine.joint_fits import LINKED, JointFitter
from ..engine.positions import link_positions
from ..engine.single_fits import OVERLAP

#: How far apart widths are that are compared, as a fraction, and how many at most.
_STEP, _MOST = 0.06, 8
#: In a crowded image this share of spots overlaps with others.
_CROWDED = 0.5
#: The most that a crowd counts, in units of what most do: it may be a blob.
_TRIMMED = 3.0


def is_crowded(
    positions: Positions, shape: tuple[int, ...], sigma: float, threads: int | None
) -> bool:
    """Whether most spots in frames of a shape overlap with others."""
    group = link_positions(positions, OVERLAP * sigma, shape, threads)
    size = np.bincount(group, minlength=1)[group]
    return len(size) > 0 and bool((size > 1).mean() >= _CROWDED)


def joint_width(
    backend: Backend, job: FitJob, block: Block, positions: Positions, columns: Columns
) -> float:
    """Return the width with which crowds of spots are likeliest.

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
    first, (points, frame) = job.sigma, _points(job, block, positions, columns)
    cost = score_for(job.settings.false_spots, min(max(first, 0.5), 10.0)) ** 2 / 2
    seen: dict[int, NDArray[np.float64]] = {}

    def loss(k: int) -> NDArray[np.float64]:
        if k not in seen:
            fitter = JointFitter(backend, job, block, first * (1 + _STEP) ** k, widest=first)
            own = points.copy()
            own["light"] /= fitter.scale.unit
            every = np.ones(len(own), np.bool_)
            seen[k] = fitter.loss(Candidates(own, frame), every, cost)
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
