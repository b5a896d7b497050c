"""Fit the spots of crowds together: a spot's neighbours are part of its model.

First each spot is fitted by itself, without the pixels of its neighbours. Spots that stand alone
keep these fits; those of a crowd are where the joint fit begins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models.columns import DISTANCE, EVIDENCE, GROUP, IN_PLANE
from .backend import Backend, Block, Columns, Positions
from .cpu.layouts import SpotState
from .crowd_parts import fit_in_parts, parts_of_crowds
from .far_light import Rows, far_pairs
from .far_refits import FarRefits
from .fit_job import FitJob
from .fitted_crowds import FittedCrowds
from .joint_fits import Scale, are_alike, has_variances, joint_noise
from .joint_suited import psf_widths, unsuited, wanting
from .lone_fits import singles_and_change
from .noise_maxima import noise_maxima
from .positions import POSITION
from .single_fits import Singles, distances, singles_of
from .uneven_planes import uneven_volumes

#: A width that is taken where none can be estimated.
_ANY_WIDTH = 1.3
#: Columns beside those of fits: where each row is, and whether it has the fit of one spot.
_PLACE, _IS_SINGLE = "its place", "is single"


def takes_joint_fits(job: FitJob, block: Block) -> bool:
    """Whether spots of a job are fitted together; by ``"auto"`` only where they can be.

    Raises
    ------
    ValueError
        If it was asked for and cannot be done; the message says what is accepted.
    """
    settings = job.settings
    if settings.neighbours not in ("joint", "auto"):
        return False
    wrong = wanting(job)
    if not (wrong or are_alike(block) or has_variances(job, block)):
        wrong = "images without a map of weights"
    if wrong and settings.neighbours == "joint":
        raise ValueError(
            f"neighbours='joint' needs {wrong}. Choose neighbours='exclude', or 'auto', which fits "
            "spots together where it can"
        )
    return not wrong


def has_groups(job: FitJob) -> bool:
    """Whether rows have the columns of groups, whatever the image is like and is found in it."""
    return job.settings.neighbours in ("joint", "auto") and not unsuited(job)


def fit_crowds(
    backend: Backend, job: FitJob, block: Block, positions: Positions, columns: Columns
) -> Columns:
    """Return the columns of :meth:`.Backend.fit`, with the spots of crowds fitted together."""
    if not has_groups(job):
        takes_joint_fits(job, block)  # an error, if they were asked for
        return columns
    if not (len(positions.places) and takes_joint_fits(job, block)):
        return columns | alone(job, positions, columns)
    widths = np.array([width for _, width in psf_widths(job)], float)
    singles, may_change = singles_and_change(backend, job, block, positions, columns, widths)
    single = columns | {GROUP: np.arange(len(positions.places)), EVIDENCE: singles.evidence}
    if not may_change:
        made = _unchanged(job, positions, single, singles, widths)
        return _without_far_light(backend, job, block, widths, positions, made)
    is_noise = noise_maxima(job, positions, widths, block.frame_shape[0])
    takes_part = (singles.state & SpotState.IS_CONCERNED != 0) & ~is_noise
    noise = joint_noise(job)
    if job.settings.neighbours == "auto" and len(widths) > len(IN_PLANE) and noise is not None:
        is_even = ~uneven_volumes(block, Scale.of(noise))[positions.frames]
        takes_part, is_noise = takes_part & is_even, is_noise & is_even
    # By themselves, joint fits would drop those that overlap with others.
    is_dropped = is_noise & (singles.state & SpotState.OVERLAPS != 0)
    # A GPU fits all crowds at once.
    workers = job.threads if backend.kind == "cpu" else 1
    parts = parts_of_crowds(positions, takes_part, workers)
    if len(parts) > 1:
        job = job.by_one_thread()

    def fit(part: slice) -> Columns:
        own = Positions(positions.places[part], positions.frames[part])
        made = _fit_part(
            backend, job, block, widths, own, {name: one[part] for name, one in single.items()},
            singles.rows(part), takes_part[part], is_dropped[part],
        )  # fmt: skip
        return _without_far_light(backend, job, block, widths, own, made)

    return fit_in_parts(fit, parts, workers)


def _unchanged(
    job: FitJob, positions: Positions, single: Columns, singles: Singles, widths: ArrayLike
) -> Columns:
    """Return the columns of spots that all keep their own fits."""
    is_single = np.ones(len(positions.places), np.bool_)
    own = {_PLACE: singles.places, _IS_SINGLE: is_single}
    return single | _distances_of(job, positions, singles, widths) | own


def _without_far_light(
    backend: Backend, job: FitJob, block: Block, widths: NDArray[np.float64],
    positions: Positions, columns: Columns,
) -> Columns:  # fmt: skip
    """Return the columns of rows, those fitted again that light of others moves."""
    places, is_single = columns.pop(_PLACE), columns.pop(_IS_SINGLE)
    position = columns.get(POSITION, np.arange(len(places)))
    frame = positions.frames[position]
    rows = Rows(position, frame, places, is_single, columns)
    pairs = far_pairs(job, rows, widths)
    if pairs is None:
        return columns
    made, changed = FarRefits(backend, job, block, positions, rows, pairs).made()
    if not len(changed):
        return columns
    places = places.copy()
    places[changed] = np.column_stack([made[axis][changed] for axis in job.axes])
    own = {name: column[changed] for name, column in made.items()}
    spots = Positions(places[changed], frame[changed])
    made[EVIDENCE] = columns[EVIDENCE].copy()
    made[EVIDENCE][changed] = singles_of(job, spots, own, widths).evidence
    there = np.isin(frame, frame[changed])
    made[DISTANCE] = columns[DISTANCE].copy()
    made[DISTANCE][there] = distances(Positions(places[there], frame[there]), widths, job.threads)
    return made


def _fit_part(
    backend: Backend, job: FitJob, block: Block, widths: NDArray[np.float64],
    positions: Positions, single: Columns, singles: Singles, takes_part: NDArray[np.bool_],
    is_dropped: NDArray[np.bool_],
) -> Columns:  # fmt: skip
    """Return the columns of some positions, all those of their frames."""
    rows, dropped = np.flatnonzero(takes_part), np.flatnonzero(is_dropped)
    own = Positions(positions.places.take(rows, axis=0), positions.frames[rows])
    names = ("flags", "photons", *(("z",) if job.model.lattice is not None else ()))
    fits = {name: single[name][rows] for name in names}
    crowds = FittedCrowds(backend, job, block, widths, own, fits, singles.rows(rows))
    if not len(dropped) and crowds.are_as_before():
        return _unchanged(job, positions, single, singles, widths)
    if job.one_row_per_position:
        spots, at = crowds.fit_in_place(), rows
        position = np.arange(len(positions.places))
        made = {name: column.copy() for name, column in single.items()}
        made[GROUP][rows] = rows[spots.group]
    else:
        spots = crowds.fit()
        others = np.flatnonzero(~(takes_part | is_dropped))
        # Each group is where the first of its positions is, or was.
        order = np.argsort(np.concatenate([others, rows[spots.first]]), kind="stable")
        position = np.concatenate([others, rows[spots.position]])[order]
        at = np.empty(len(order), np.int64)
        at[order] = np.arange(len(order))
        at = at[len(others) :]
        made = {name: column[position] for name, column in single.items()} | {POSITION: position}
        group = np.concatenate([others, len(single[GROUP]) + spots.group])[order]
        made[GROUP] = np.cumsum(np.diff(group, prepend=group[:1]) != 0)
    joint = at[spots.joint]
    for name, values in spots.columns.items():
        made[name][joint] = values
    places, frame = singles.places.take(position, axis=0), positions.frames[position]
    places[at] = spots.places
    is_changed = np.zeros(positions.frames[-1] + 1, np.bool_)
    is_changed[frame[at]] = is_changed[positions.frames[dropped]] = True
    changed = is_changed[frame]
    known = _distances_of(job, positions, singles, widths)[DISTANCE][position]
    known[changed] = distances(
        Positions(places[changed], frame[changed]), widths, job.threads,
        job.settings.pixels_per_plane,
    )  # fmt: skip
    is_single = np.ones(len(position), np.bool_)
    is_single[joint] = False
    return made | {DISTANCE: known, _PLACE: places, _IS_SINGLE: is_single}


def _distances_of(
    job: FitJob, positions: Positions, singles: Singles, widths: ArrayLike
) -> dict[str, NDArray[np.float32]]:
    """Return the column of distances of single spots: in volumes by the voxel size, if known."""
    scale = job.settings.pixels_per_plane
    if scale is None:
        return {DISTANCE: singles.distance}
    places = Positions(singles.places, positions.frames)
    return {DISTANCE: distances(places, widths, job.threads, scale)}


def alone(job: FitJob, positions: Positions, columns: Columns) -> Columns:
    """Return the columns of groups of spots that are all fitted by themselves."""
    widths = [width or _ANY_WIDTH for _, width in psf_widths(job)]
    singles = singles_of(job, positions, columns, widths)
    group = np.arange(len(positions.places))
    of_all = _distances_of(job, positions, singles, widths)
    return {GROUP: group, EVIDENCE: singles.evidence} | of_all
