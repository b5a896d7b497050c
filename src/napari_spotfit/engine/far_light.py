"""Fit spots that stand alone once more, without the light of bright ones some widths away.

A fit of a single spot leaves out the pixels that are nearer to others. In its own ones, the light
of these is a slope, which moves it: by less than its error where all are dim, by twelve where there
are 10⁶ photons 5 σ away. It is known from the fits of the others. So pixels are less by it, and as
noisy as they were: to maximum likelihood, it is a variance, which adds to data and model.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import like, to_host
from ..images.frames import inside
from ..images.pixel_calibration import Planes
from ..models.columns import IN_PLANE, STDERR, STOP
from ..models.estimators import StopCondition
from ..settings.settings import Settings, electrons_of, noise_of
from .backend import Backend, Block, Columns, Positions, corners_of
from .cpu.block_fits import CpuFitter
from .cpu.library import load
from .fit_job import FitJob
from .flags import NOT_GOOD, Flag
from .joint_fits import Scale, joint_noise
from .kernel_arguments import roi_columns
from .single_fits import OVERLAP
from .verdicts import flags_from_columns

#: How far light counts here, in σ: at 8 σ, that of 10⁶ photons moves spots of 10³; and how often
#: spots are fitted at most, each time without the light of others as it is known by then.
FAR, ROUNDS = 8.0, 3
#: How many of its errors a spot may be moved by, at least, to be fitted again, and a number of it
#: changes, to have the new fit: of 1000 photons, only spots that are nearly a crowd.
_ERRORS = 1.5
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
    """Where the rows of a block are, after joint fits."""

    #: The position, the frame and the place of each, in pixels; and which are fits of one spot.
    position: NDArray[np.int64]
    frame: NDArray[np.int64]
    places: NDArray[np.float64]
    is_single: NDArray[np.bool_]


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


def far_pairs(
    job: FitJob,
    rows: Rows,
    columns: Columns,
    distance: NDArray[np.float32],
    widths: NDArray[np.float64],
) -> Pairs | None:
    """Return which spots may be moved by light of which others, None if there are none.

    Parameters
    ----------
    job : FitJob
        How they were fitted.
    rows, columns
        Where they are, and the columns of their fits.
    distance : ndarray
        How far the next one is, in pixels.
    widths : ndarray
        Their widths along each axis.
    """
    if len(widths) > len(IN_PLANE) or job.model.lattice is not None:
        return None
    sigma, photons = float(widths.max()), columns["photons"]
    with np.errstate(invalid="ignore"):
        reach = _farthest(job, photons, sigma) * sigma
        near = (distance > OVERLAP * sigma) & (distance <= reach) & rows.is_single
    own = np.flatnonzero(near)
    own = own[_has_light(columns, own)]
    if not len(own):  # as in many sparse blocks
        return None
    light = photons.astype(float)
    error, dark = _errors_and_darkness(job, columns, own, sigma)
    least = _ERRORS * error * light[own]
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


def without_far_light(
    backend: Backend,
    job: FitJob,
    block: Block,
    positions: Positions,
    rows: Rows,
    columns: Columns,
    pairs: Pairs,
) -> tuple[Columns, NDArray[np.int64]]:
    """Return columns with new fits of the spots that are moved by light of others, and which.

    Parameters
    ----------
    backend, job, block, positions
        As :func:`.joint.fit_crowds` takes them.
    rows, columns
        Where the spots are, and the columns of their fits, which are not changed.
    pairs : Pairs
        Which spots may be moved, and by which others.
    """
    fits = _Refits(backend, job, block, positions, rows, columns, pairs)
    which = np.arange(len(fits.rows))
    for _ in range(ROUNDS):
        fits.fit(which)
        which = fits.beside(which[fits.have_changed()[which]])
        if not len(which):
            break
    changed = fits.have_changed()
    made = dict(columns)
    for name in fits.columns.keys() & columns.keys():
        made[name] = columns[name].copy()
        made[name][fits.rows[changed]] = fits.columns[name][changed]
    return made, fits.rows[changed]


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
    least = _ERRORS * dimmest / math.sqrt(dimmest * _electrons_per_photon(job))
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


@lru_cache(maxsize=16)
def _of_cut_outs(job: FitJob, is_double: bool) -> FitJob:
    """Return the job of ROIs that are cut out."""
    settings = job.settings if job.settings.errors else job.settings.changed(errors=True)
    kind = np.float64 if is_double else np.float32
    return FitJob.of_spots(settings, job.roi_shape, np.dtype(kind))


def _excluded(
    job: FitJob, block: Block, positions: Positions, which: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which pixels of the ROIs around some positions are excluded from their fits."""
    frames = positions.frames
    has_some = np.zeros(int(frames[-1]) + 1, np.bool_)
    has_some[frames[which]] = True
    there = np.flatnonzero(has_some[frames])
    there = there[inside(positions.places.take(there, axis=0), block.frame_shape)]
    own = Positions(positions.places.take(there, axis=0), frames[there])
    reasons = CpuFitter(load(), job).reasons(block, own, np.searchsorted(there, which))
    found: NDArray[np.bool_] = reasons != 0
    return found


class _Refits:
    """Fits of spots without the light of others, which may be fitted so, too."""

    def __init__(
        self,
        backend: Backend,
        job: FitJob,
        block: Block,
        positions: Positions,
        rows: Rows,
        columns: Columns,
        pairs: Pairs,
    ) -> None:
        #: The rows that are fitted again, and their new columns, as far as fits make them.
        self.rows: NDArray[np.int64] = np.unique(pairs.moved)
        self.columns: Columns = {}
        self._backend, self._before = backend, columns
        self._moved, self._by = np.searchsorted(self.rows, pairs.moved), pairs.by
        self._is_good = np.ones(len(self.rows), np.bool_)
        #: The shape parameters and the height of all rows.
        self._known = {one.name: columns[one.column.name].astype(float) for one in job.model.shape}
        self._known["amplitude"] = columns["amplitude"].astype(float)
        frame = rows.frame[self.rows]
        rois = {name: columns[name][self.rows] for name in roi_columns(len(IN_PLANE))}
        corners = corners_of(rois, block, frame)
        #: The first pixel of each ROI in its frame.
        self._first = corners[:, 1:] + (block.first_row, 0)
        at = [one.reshape(-1, 1, 1) for one in corners.T]
        for axis, step in enumerate(np.indices(job.roi_shape)):
            at[1 + axis] = at[1 + axis] + step
        pixels = to_host(block.pixels[tuple(like(one, block.pixels) for one in at)])
        self._job = _of_cut_outs(job, pixels.dtype == np.float64)
        is_out = _excluded(job, block, positions, rows.position[self.rows]) | ~np.isfinite(pixels)
        level = columns["background"][self.rows] + job.settings.offset
        self._is_out = is_out
        self._pixels = np.where(is_out, level.reshape(-1, 1, 1), pixels.astype(float))
        estimator = job.settings.estimator_kind
        self._planes = _cut(block.planes, at, estimator.counted)
        self._planes[is_out] = estimator.excluded
        self._variances = _cut(block.variances, at, 0.0)

    def fit(self, which: NDArray[np.int64]) -> None:
        """Fit some of them, without the light of others as it is known now."""
        job, settings, light = self._job, self._job.settings, self._light()[which]
        light[self._is_out[which]] = 0
        pixels = (self._pixels[which] - light).astype(job.pixel_type)
        planes, noise, variances = self._planes[which], noise_of(settings), None
        if settings.estimator_kind.is_likelihood:
            planes = planes + light / electrons_of(settings).gain
        elif noise is not None:
            excess = self._variances[which] + noise.slope * noise.correlation**2 * light
            variances = Planes(excess.astype(np.float32))
        block = Block(pixels, pixels, Planes(planes.astype(np.float32)), variances)
        start = np.column_stack(
            [self._known[one.name][self.rows[which]] for one in job.model.shape]
        )
        start[:, : len(IN_PLANE)] -= self._first[which]
        found = self._backend.fit(job, block, None, start.astype(np.float32))
        flags = flags_from_columns(found, settings, job.roi_shape)
        # In single precision, the likelihood of bright spots often ends in a step up that is more
        # than counts as none: they are at their minimum all the same.
        flags[found[STOP] == StopCondition.NO_DECREASE] &= ~np.uint32(Flag.NOT_CONVERGED)
        moved = np.hypot(*(found[axis] - start[:, k] for k, axis in enumerate(IN_PLANE)))
        good = (flags & int(NOT_GOOD) == 0) & (moved <= start[:, len(IN_PLANE)])
        self._is_good[which] &= good
        for k, axis in enumerate(IN_PLANE):
            found[axis] = found[axis] + self._first[which, k]
        before = self._before["flags"][self.rows[which]]
        found["flags"] = before & ~np.uint32(Flag.POOR_FIT) | flags
        found[STOP] = self._before[STOP][self.rows[which]]  # as good ones have it
        if not self.columns:
            self.columns = {name: column.copy() for name, column in found.items()}
        for name, column in found.items():
            self.columns[name][which[good]] = column[good]
        for name, known in self._known.items():
            known[self.rows[which[good]]] = found[name][good]

    def beside(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those whose light has come from some of them, which have new fits."""
        is_new = np.zeros(len(self._before["flags"]), np.bool_)
        is_new[self.rows[which]] = True
        found: NDArray[np.int64] = np.unique(self._moved[is_new[self._by]])
        return found[self._is_good[found]]

    def have_changed(self) -> NDArray[np.bool_]:
        """Return which are good and some of whose numbers have changed by their errors."""
        is_moved = np.zeros(len(self.rows), np.bool_)
        for name in self.columns.keys() & self._before.keys():
            error = self.columns.get(name + STDERR)
            if error is not None:
                step = self.columns[name] - self._before[name][self.rows].astype(float)
                is_moved |= abs(step) > _ERRORS * error
        return is_moved & self._is_good

    def _light(self) -> NDArray[np.float64]:
        """Return the light of others in the pixels of each, in counts."""
        one = (-1, 1, 1)
        values: dict[str, Any] = {
            name: known[self._by].reshape(one) for name, known in self._known.items()
        }
        first, (height, width) = self._first[self._moved], self._job.roi_shape
        places = (
            first[:, 0].reshape(one) + np.arange(height).reshape(-1, 1),
            first[:, 1].reshape(one) + np.arange(width),
        )
        model, pixel = self._job.model, self._job.settings.pixel
        total = np.zeros(self._pixels.shape)
        np.add.at(total, self._moved, model.evaluate(places, values | {"background": 0.0}, pixel))
        return total


def _cut(planes: Planes | None, at: list[NDArray[np.int64]], otherwise: float) -> NDArray[Any]:
    """Return what is known of the pixels of ROIs, whose frames, rows and columns are given."""
    shape = np.broadcast_shapes(*(one.shape for one in at))
    if planes is None:
        return np.full(shape, otherwise)
    values = planes.values
    frame = at[0] if len(values) > 1 else np.zeros_like(at[0])
    index = tuple(like(one, values) for one in (frame, *at[1:]))
    return np.array(to_host(values[index]), float)
