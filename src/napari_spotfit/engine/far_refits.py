"""Fit spots once more without the light of others, as their fits know it.

Pixels are less by it, and as noisy as they were: to maximum likelihood, it is a variance, which
adds to data and model.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import like, to_host
from ..images.frames import inside
from ..images.pixel_calibration import Planes
from ..models.columns import IN_PLANE, STDERR, STOP
from ..models.estimators import StopCondition
from ..settings.settings import electrons_of, noise_of
from .backend import Backend, Block, Columns, Positions, corners_of
from .cpu.block_fits import CpuFitter
from .cpu.library import load
from .far_light import LEAST_ERRORS, ROUNDS, Pairs, Rows
from .fit_job import FitJob
from .flags import NOT_GOOD, Flag
from .kernel_arguments import roi_columns
from .verdicts import flags_from_columns


class FarRefits:
    """Fits of spots without the light of others, which may be fitted so, too.

    Parameters
    ----------
    backend, job, block, positions
        As :func:`.joint.fit_crowds` takes them.
    rows : Rows
        The spots as they were fitted, which are not changed.
    pairs : Pairs
        Which of them may be moved, and by which others.
    """

    def __init__(
        self, backend: Backend, job: FitJob, block: Block, positions: Positions, rows: Rows,
        pairs: Pairs,
    ) -> None:  # fmt: skip
        columns = rows.columns
        #: The rows that are fitted again, and their new columns, as far as fits make them.
        self._rows: NDArray[np.int64] = np.unique(pairs.moved)
        self._columns: Columns = {}
        self._backend, self._before = backend, columns
        self._moved, self._by = np.searchsorted(self._rows, pairs.moved), pairs.by
        self._is_good = np.ones(len(self._rows), np.bool_)
        #: The shape parameters and the height of all rows.
        self._known = {one.name: columns[one.column.name].astype(float) for one in job.model.shape}
        self._known["amplitude"] = columns["amplitude"].astype(float)
        frame = rows.frame[self._rows]
        rois = {name: columns[name][self._rows] for name in roi_columns(len(IN_PLANE))}
        corners = corners_of(rois, block, frame)
        #: The first pixel of each ROI in its frame.
        self._first = corners[:, 1:] + (block.first_row, 0)
        at = [one.reshape(-1, 1, 1) for one in corners.T]
        for axis, step in enumerate(np.indices(job.roi_shape)):
            at[1 + axis] = at[1 + axis] + step
        pixels = to_host(block.pixels[tuple(like(one, block.pixels) for one in at)])
        self._job = _of_cut_outs(job, pixels.dtype == np.float64)
        is_out = _excluded(job, block, positions, rows.position[self._rows]) | ~np.isfinite(pixels)
        level = columns["background"][self._rows] + job.settings.offset
        self._is_out = is_out
        self._pixels = np.where(is_out, level.reshape(-1, 1, 1), pixels.astype(float))
        estimator = job.settings.estimator_kind
        self._planes = _cut(block.planes, at, estimator.counted)
        self._planes[is_out] = estimator.excluded
        self._variances = _cut(block.variances, at, 0.0)

    def made(self) -> tuple[Columns, NDArray[np.int64]]:
        """Fit them; return all columns with the new fits, and which rows have these."""
        which = np.arange(len(self._rows))
        for _ in range(ROUNDS):
            self._fit(which)
            which = self._beside(which[self._have_changed()[which]])
            if not len(which):
                break
        changed, made = self._have_changed(), dict(self._before)
        for name in self._columns.keys() & made.keys():
            made[name] = made[name].copy()
            made[name][self._rows[changed]] = self._columns[name][changed]
        return made, self._rows[changed]

    def _fit(self, which: NDArray[np.int64]) -> None:
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
            [self._known[one.name][self._rows[which]] for one in job.model.shape]
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
        before = self._before["flags"][self._rows[which]]
        found["flags"] = before & ~np.uint32(Flag.POOR_FIT) | flags
        found[STOP] = self._before[STOP][self._rows[which]]  # as good ones have it
        if not self._columns:
            self._columns = {name: column.copy() for name, column in found.items()}
        for name, column in found.items():
            self._columns[name][which[good]] = column[good]
        for name, known in self._known.items():
            known[self._rows[which[good]]] = found[name][good]

    def _beside(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those whose light has come from some of them, which have new fits."""
        is_new = np.zeros(len(self._before["flags"]), np.bool_)
        is_new[self._rows[which]] = True
        found: NDArray[np.int64] = np.unique(self._moved[is_new[self._by]])
        return found[self._is_good[found]]

    def _have_changed(self) -> NDArray[np.bool_]:
        """Return which are good and some of whose numbers have changed by their errors."""
        is_moved = np.zeros(len(self._rows), np.bool_)
        for name in self._columns.keys() & self._before.keys():
            error = self._columns.get(name + STDERR)
            if error is not None:
                step = self._columns[name] - self._before[name][self._rows].astype(float)
                is_moved |= abs(step) > LEAST_ERRORS * error
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


def _cut(planes: Planes | None, at: list[NDArray[np.int64]], otherwise: float) -> NDArray[Any]:
    """Return what is known of the pixels of ROIs, whose frames, rows and columns are given."""
    shape = np.broadcast_shapes(*(one.shape for one in at))
    if planes is None:
        return np.full(shape, otherwise)
    values = planes.values
    frame = at[0] if len(values) > 1 else np.zeros_like(at[0])
    index = tuple(like(one, values) for one in (frame, *at[1:]))
    return np.array(to_host(values[index]), float)
