"""The columns of spots that were fitted together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.calibration import Calibration
from ..models.columns import STDERR, STOP
from ..models.estimators import StopCondition
from .backend import Columns, Positions
from .cpu.layouts import HOT_PIXEL, PADDING_PIXEL, SATURATED_PIXEL
from .fit_job import FitJob
from .flags import LEAST_ERRORS, Flag
from .joint_fits import JointFitter
from .positions import link_positions
from .verdicts import depth_flags

#: How many times the deviance that noise explains that of a blob is.
BLOB = 1.5
#: Light counts as far as this, in units of σ: spots are wrong that are as near to a wrong one.
_BESIDE = 4.5
#: Points of something extended are as near to the next ones.
_NEXT = 2.0
#: Parts of a crowd are extended where the shares of spots that would rather be wider, by this many
#: of their errors, add up to so much within _BESIDE. Hidden spots that are nearer to them than the
#: third, in units of σ, belong to them, and so on for some steps. They are less than a share of
#: their crowd, which has been looked at as a whole.
_BLURRED, _MANY, _PART, _STEPS, _WHOLE = 3.0, 2.25, 3.0, 2, 0.75
#: The part of a measured PSF's range beside its ends, as kernels/verdict.h has it.
_LAST = 0.05
#: Of the 3×3 pixels in a spot's middle, how many must be saturated.
_FULL = 2
#: How far spots that moved together may be off the PSF's width, as a fraction and in its errors.
#: Edges and uneven light are made up of points only as they are, too wide.
_OFF, _SURE = 0.25, 2.0


def columns_of(
    fitter: JointFitter,
    job: FitJob,
    shape: tuple[int, ...],
    spots: NDArray[np.void],
    frame: NDArray[np.int64],
    flags: NDArray[Any],
) -> Columns:
    """Return the columns of spots that were fitted together.

    Parameters
    ----------
    fitter : JointFitter
        What fitted them.
    job : FitJob
        How.
    shape : tuple of int
        That of a frame.
    spots : ndarray of SPOT
        The spots.
    frame : ndarray of int
        The frame of each.
    flags : ndarray of int
        Those of the positions that they began at.
    """
    settings, (unit, shift, _) = job.settings, fitter.scale
    axes = job.axes
    widths = [
        width * spots["widened_z" if axis == "z" else "widened"]
        for axis, width in zip(axes, fitter.widths, strict=True)
    ]
    spread = (2 * math.pi) ** (len(axes) / 2) * math.prod(widths)
    places = axes
    if fitter.psf is not None:
        spread, places = 1 / fitter.psf.height, (*axes, "z")
    per_photon = unit / (settings.gain or 1.0)
    parameters = len(places) + 1
    degrees = np.maximum(spots["pixels"] - parameters * spots["spots"] - 1, 1)
    chi = spots["squares"] * unit**2
    if settings.estimator_kind.is_likelihood:
        chi = spots["deviance"]
    columns: Columns = {
        **widths_by_name(job, widths),
        **{axis: spots[axis] for axis in places},
        "amplitude": spots["light"] * unit / spread,
        "background": (spots["background"] - shift) * unit - settings.offset,
        "photons": spots["light"] * per_photon,
        "chi_square": chi, "reduced_chi_square": chi / degrees,
        "iterations": np.minimum(spots["iterations"], np.iinfo(np.uint16).max),
        STOP: np.where(
            spots["is_settled"] != 0, StopCondition.MIN_DELTA, StopCondition.MAX_ITERATIONS
        ),
    }  # fmt: skip
    if settings.errors:
        errors = {
            **dict.fromkeys(job.model.widths, np.nan),
            **{axis: spots[f"{axis}_error"] for axis in places},
            "amplitude": spots["light_error"] * unit / spread,
            "background": spots["background_error"] * unit,
            "photons": spots["light_error"] * per_photon,
        }  # fmt: skip
        columns |= {name + STDERR: values for name, values in errors.items()}
    for axis, side, size in zip(axes, job.roi_shape, shape, strict=True):
        middle = np.rint(spots[axis]).astype(np.int64) - side // 2
        columns[f"roi_{axis}"] = np.clip(middle, 0, size - side)
    inside = {
        axis: np.minimum(spots[axis] + 0.5, size - 0.5 - spots[axis])
        for axis, size in zip(axes, shape, strict=True)
    }
    is_at_edge = np.any([inside[a] < s for a, s in zip(axes, fitter.widths, strict=True)], axis=0)
    is_outside = inside.get("z", np.ones(len(spots))) <= 0
    scaled = [spots[axis] / width for axis, width in zip(axes, fitter.widths, strict=True)]
    apart = np.column_stack([*scaled, frame * (2 * _BESIDE)])
    flags = flags | _flags_of_pixels(fitter, spots, frame, axes)
    found = _flags_of(spots, apart, flags, is_at_edge, is_outside, job.threads)
    if not settings.fixed.keys().isdisjoint(settings.profile.widths):
        found &= ~np.uint32(Flag.WIDE | Flag.NARROW)  # as it was asked for
    found |= depth_flags(columns, settings)
    if fitter.psf is not None:
        found |= _beside_ends(columns, job, spots, frame, found)
    return columns | {"flags": found}


def is_weak(spots: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which spots the data hardly need beside the others of their crowd."""
    weak: NDArray[np.bool_] = ~(spots["evidence"] > LEAST_ERRORS**2 / 2)
    return weak


def widths_by_name(job: FitJob, widths: Sequence[Any]) -> dict[str, Any]:
    """Return the parameters of a model that are widths, given those along each axis."""
    along = {f"sigma_{axis}": width for axis, width in zip(job.axes, widths, strict=True)}
    return {name: along.get(name, widths[-1]) for name in job.model.widths}


def _flags_of_pixels(
    fitter: JointFitter, spots: NDArray[np.void], frame: NDArray[np.int64], axes: Sequence[str]
) -> NDArray[np.uint32]:
    """Return the flags of spots in whose middle pixels are left out, as single fits have them."""
    flags = np.zeros(len(spots), np.uint32)
    places = np.column_stack([frame, *(np.rint(spots[axis]) for axis in axes)]).astype(np.int64)
    flags[fitter.missing_around(places).any(axis=1)] |= np.uint32(Flag.BAD_PIXELS)
    if not len(fitter.lost):
        return flags
    is_full = fitter.lost_around(places, SATURATED_PIXEL)
    is_bad = fitter.lost_around(places, HOT_PIXEL | PADDING_PIXEL)
    flags[is_full[:, 4] & (is_full.sum(axis=1) >= _FULL)] |= np.uint32(Flag.SATURATED)
    flags[is_bad.any(axis=1)] |= np.uint32(Flag.BAD_PIXELS)
    return flags


def _flags_of(
    spots: NDArray[np.void],
    places: NDArray[np.float64],
    before: NDArray[Any],
    is_at_edge: NDArray[np.bool_],
    is_outside: NDArray[np.bool_],
    workers: int | None,
) -> NDArray[Any]:
    """Return what may be wrong with spots that were fitted together."""
    kept = Flag.BAD_PIXELS | Flag.SATURATED | Flag.ELONGATED | Flag.BLOB
    flags: NDArray[Any] = before & np.uint32(kept)
    wider = np.where(abs(spots["wider"]) > _SURE * spots["wider_error"], spots["wider"], 0.0)
    moves = spots["is_settled"] == 0

    def near(found: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return _with_near_ones(found, spots["candidate"] < 0, places, workers)

    of_crowd = np.bincount(spots["crowd"], moves) > np.bincount(spots["crowd"]) / 2
    for flag, where in (
        (Flag.EDGE, is_at_edge),
        (Flag.OUTSIDE_STACK, is_outside),
        (Flag.WIDE, wider > _OFF),
        (Flag.NARROW, wider < -_OFF),
        (Flag.WEAK, is_weak(spots)),
        (Flag.GROUP_NOT_SETTLED, moves | of_crowd[spots["crowd"]]),
        (Flag.BLOB, near(unexplained(spots, BLOB) | (before & int(Flag.BLOB) != 0))),
        (Flag.BLOB, _extended(spots, places)),
        (Flag.POOR_FIT, near(unexplained(spots, 1.0))),
    ):
        if where.any():
            flags |= np.where(where, np.uint32(flag), np.uint32(0))
    return flags


def _beside_ends(
    columns: Columns, job: FitJob, spots: NDArray[np.void], frame: NDArray[np.int64],
    flags: NDArray[Any],
) -> NDArray[np.uint32]:  # fmt: skip
    """Return the flags of parts of spots that are beyond a measured PSF's range.

    What is in the ROI of a spot that ended at an end of the range, is near the same end, as in fits
    of single spots, or was hidden by it and is dimmer, makes up what the PSF does not explain.
    """
    found = np.zeros(len(spots), np.uint32)
    at_end = np.flatnonzero(flags & int(Flag.Z_AT_LIMIT))
    limits = job.settings.model.range if isinstance(job.settings.model, Calibration) else None
    if not len(at_end) or limits is None:
        return found
    from scipy.spatial import cKDTree  # takes longer to import than many fits

    halves = [side / 2 for side in job.roi_shape]
    scaled = [spots[axis] / half for axis, half in zip(job.axes, halves, strict=True)]
    places = np.column_stack([*scaled, 3.0 * frame])
    near = cKDTree(places[at_end]).query_ball_point(places, 1.0, p=np.inf)
    z, (low, high) = np.asarray(columns["z"], float), limits
    last = _LAST * (high - low)
    for i, others in enumerate(near):
        ends = at_end[others]
        is_twin = ((z[i] < low + last) & (z[ends] <= low)) | (
            (z[i] > high - last) & (z[ends] >= high)
        )
        is_part = (spots["candidate"][i] < 0) & (spots["light"][ends] > spots["light"][i])
        if (is_twin | is_part).any():
            found[i] = np.uint32(Flag.Z_AT_LIMIT)
    return found


def unexplained(spots: NDArray[np.void], times: float = BLOB) -> NDArray[np.bool_]:
    """Return which spots several times the tolerated deviance does not explain.

    Where that is so of a crowd, it is of all its spots, unless the others are explained without
    those whose own pixels are not: a hot pixel does not spoil a crowd.
    """
    one, own = spots["crowd"], spots["own_tolerated"]
    found: NDArray[np.bool_] = spots["deviance"] > times * spots["tolerated"]
    if not found.any():
        return found
    is_odd = found & (spots["own_deviance"] > times * own)
    left = np.bincount(one, np.where(is_odd, 0.0, spots["own_deviance"]))
    part = np.bincount(one, np.where(is_odd, 0.0, own)) / np.maximum(np.bincount(one, own), 1.0)
    is_any = np.bincount(one, is_odd) > 0
    are_others = ~is_any[one] | (left[one] > times * spots["tolerated"] * part[one])
    found &= is_odd | are_others
    return found


def _extended(spots: NDArray[np.void], places: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which spots make up something extended that is a part of their crowd.

    ``places`` are as those of :func:`_with_near_ones`.
    """
    is_sure = spots["blurred"] > _BLURRED * spots["blurred_error"]
    found = np.zeros(len(spots), np.bool_)
    if spots["blurred"][is_sure].sum() <= _MANY:
        return found
    from scipy.spatial import cKDTree  # as above

    which = np.flatnonzero(is_sure)
    near = cKDTree(places[which]).query_pairs(_BESIDE, output_type="ndarray")
    share = np.minimum(spots["blurred"][which], 1.0)
    total = share.copy()
    for one, other in (near.T, near.T[::-1]):
        np.add.at(total, one, share[other])
    found[which[total > _MANY]] = True
    for _ in range(_STEPS if found.any() else 0):
        far, _ = cKDTree(places[found]).query(places, distance_upper_bound=_PART)
        found |= np.isfinite(far) & (spots["candidate"] < 0)
    crowd = spots["crowd"]
    is_part = np.bincount(crowd, found) < _WHOLE * np.bincount(crowd)
    found &= is_part[crowd]
    return found


def _with_near_ones(
    found: NDArray[np.bool_],
    is_hidden: NDArray[np.bool_],
    places: NDArray[np.float64],
    workers: int | None,
) -> NDArray[np.bool_]:
    """Return some spots, hidden ones that follow each other from these, and all beside them.

    Parameters
    ----------
    found, is_hidden : ndarray of bool, shape (n,)
        The spots, and which are hidden.
    places : ndarray, shape (n, axes + 1)
        Their places in units of the PSF's widths; frames are far from each other.
    workers : int or None
        How many threads link them.
    """
    if found.all() or not found.any():
        return found
    from scipy.spatial import cKDTree  # takes longer to import than many fits

    which = np.flatnonzero(found | is_hidden)
    which = which[np.argsort(places[which, -1], kind="stable")]
    frame = (places[which, -1] / (2 * _BESIDE)).astype(np.int64)
    there = places[which, :-1] - places[which, :-1].min(axis=0)
    shape = tuple(there.max(axis=0).astype(int) + 2)
    thing = link_positions(Positions(there, frame), _NEXT, shape, workers)
    own = which[(np.bincount(thing, found[which]) > 0)[thing]]
    tree = cKDTree(places[own])
    far, _ = tree.query(places, distance_upper_bound=_BESIDE, workers=workers or 1)
    near: NDArray[np.bool_] = np.isfinite(far)
    return near
