"""Measure the PSF of a microscope on a z-stack of beads."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..caller import warn_caller
from ..images.camera import Camera
from ..localization.fit_spots import fit_spots
from ..models.lattice import spline_coefficients
from ..models.measured_psf import (
    LEAST_PLANES,
    ROI_OF_BOUND,
    MeasuredPsf,
    PsfBead,
    share_mirrored,
)
from ..models.number_checks import number
from ..settings.settings import Settings
from .bead_boxes import BeadBoxes, cut_beads
from .bead_stack import checked_heights, checked_stack, warn_one_sided
from .registration import align, moved, outliers

Array = NDArray[np.float64]

#: Planes whose light is compared, a quarter of the stack from each end, where coma moves it less;
#: and how far it may move, in pixels.
_PLANES, _MOST_DRIFT = 3, 1.5

#: Pixels of the PSF beyond the ROI on each side.
MARGIN = 4
#: Fewer beads do not show how they differ.
_FEW = 3
#: How much distances of planes may differ, as a part of them.
_UNEVEN = 0.1
#: Planes around the reference plane whose light is 1 on average.
_CENTRAL = 3
#: Part of the highest value from which on voxels show how smooth the PSF is along z.
_BRIGHT = 0.05
#: A dim spot, and the share of such spots in another plane that is warned of.
_PHOTONS, _BACKGROUND, _MIRRORED = 500, 10, 0.05
#: Beads are far from the others by this part of the planes, with this part of the light at most.
_FAR, _LITTLE = 0.25, 0.4
#: The part of the range by which z of beads is off where it is lost.
_LOST = 0.1
_SMOOTHINGS = np.logspace(-4, 6, 61)


def calibrate_psf(
    stack: Any,
    dz: ArrayLike,
    *,
    beads: ArrayLike | None = None,
    reference: float | None = None,
    index_factor: float = 1.0,
    camera: Camera | None = None,
    settings: Settings | None = None,
) -> MeasuredPsf:
    """Measure the PSF of a microscope on a z-stack of beads.

    Beads are found in the maximum projection, cut out, registered in three dimensions to a
    fraction of a voxel, and averaged; along z the average is made smooth as far as it shows more
    than noise.

    Parameters
    ----------
    stack : array, shape (planes, rows, columns), or path
        Sparse beads, one plane after the other, in steps of 10 to 100 nm from below to above the
        focus.
    dz : float or array
        Distance of two planes in nm, or the height of each plane.
    beads : array, shape (n, 2), optional
        y and x of the beads to use, in pixels; by default those that are found.
    reference : float, optional
        The plane where z is to be 0, counted from the first one; by default the sharpest one.
    index_factor : float
        What a nm of the stage is in the sample, for z and its error; see
        :class:`~napari_spotfit.MeasuredPsf`.
    camera : Camera, optional
        Offset and gain, of all pixels or of each.
    settings : Settings, optional
        The camera's numbers, what finds beads, and the size of the ROIs that are to be fitted, by
        default 13 px: the PSF is measured 4 px beyond. ``voxel_size`` says how large a pixel is.

    Returns
    -------
    MeasuredPsf
        What ``model=…`` takes, with what became of every bead.

    Raises
    ------
    ValueError
        If the stack or dz are not what is needed, or no bead can be used; the message says why.

    Warns
    -----
    UserWarning
        If fewer than three beads are used, beads move together, the stack is of one side of the
        focus, or the PSF is alike on both.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import calibrate_psf, simulate_beads
    >>> z = np.arange(-600, 601, 100)
    >>> stack, truth = simulate_beads(z, count=9, zernike={"astigmatism": 0.1}, seed=0)
    >>> psf = calibrate_psf(stack, 100)
    >>> psf.dz, int(psf.bead_count.max())
    (100.0, 9)
    """
    settings = settings or Settings()
    index_factor = number("index_factor", index_factor, 0, above=True)
    planes = checked_stack(stack)
    step = _step_of(checked_heights(dz, len(planes), settings))
    roi_size = ROI_OF_BOUND if settings.roi_size is None else max(settings.roi_shape)
    cut = cut_beads(planes, roi_size + 2 * MARGIN, camera, settings, beads)
    registered = _registered(cut, step)
    sharpest = _focus(registered.mean)
    focus = sharpest if reference is None else reference - registered.first
    if not 0 <= focus <= len(registered.mean) - 1:
        last = registered.first + len(registered.mean) - 1
        raise ValueError(
            f"reference must be a plane that all beads have, {registered.first} to {last}; "
            f"got {reference:g}"
        )
    pixel_size = None if settings.voxel_size is None else float(settings.voxel_size[-1])
    known = Known(step, focus, pixel_size, index_factor)
    psf = psf_of(registered.mean, known)
    bias, scatter = _quality(cut, registered, known, roi_size, has_gain=settings.gain is not None)
    count, light = len(registered.shifts), registered.weights.sum()
    below, above = sharpest * psf.nm_per_plane, (len(registered.mean) - 1) * psf.nm_per_plane
    warn_one_sided(-below, above - below)
    psf = replace(
        psf, bead_count=np.full(len(registered.mean), count),
        bead_photons=light * psf.voxels.sum(axis=(1, 2)), z_bias=bias, z_scatter=scatter,
        beads=tuple(registered.beads),
    )  # fmt: skip
    _warn(psf, count, _drift_of(registered.mean), registered.first)
    return psf


def _warn(psf: MeasuredPsf, count: int, drift: float, first: int) -> None:
    """Warn the caller of what makes z wrong, or its error unknown."""
    if count < _FEW:
        warn_caller(
            f"the PSF rests on {count} bead{'s' * (count > 1)}, so that how beads differ is not "
            f"known; use at least {_FEW}, and as many as there are"
        )
    if drift > _MOST_DRIFT:
        warn_caller(
            f"all beads move together by {drift:.1f} px through the stack. It is taken for the "
            "shape of the PSF; if the stage drifted, record the stack again"
        )
    if psf.z_bias is not None and _warn_of_ends(psf, first):
        return
    mirrored = share_mirrored(psf, _PHOTONS, _BACKGROUND)
    if mirrored > _MIRRORED:
        warn_caller(
            f"the PSF is alike above and below the focus: at least {mirrored:.0%} of spots with "
            f"{_PHOTONS} photons on a background of {_BACKGROUND} will be given a z on the wrong "
            "side, and no flag shows it. Use a cylindrical lens or an engineered PSF, or a stack "
            "and a sample that lie on one side of the focus"
        )


def _warn_of_ends(psf: MeasuredPsf, first: int) -> bool:
    """Warn the caller if beads are not given their z at the ends of the stack, and only there."""
    assert psf.z_bias is not None
    assert psf.z_scatter is not None
    error = np.hypot(psf.z_bias, psf.z_scatter)
    lost = np.flatnonzero(error > _LOST * (psf.range[1] - psf.range[0]))
    low = int(lost[lost < psf.plane].max(initial=-1)) + 1
    high = int(lost[lost > psf.plane].min(initial=len(error)))
    if not len(lost) or high - low < len(error) / 2:
        return False
    warn_caller(
        f"far from the focus, z is lost: in plane {first + int(np.nanargmax(error))}, that of the "
        f"beads themselves is off by {np.nanmax(error):.0f} nm by the PSF of the others. Give the "
        f"planes between, stack[{first + low}:{first + high}], or beads with more light and a "
        "larger roi_size"
    )
    return True


def _drift_of(mean: NDArray[Any]) -> float:
    """Return how far the middle of the light moves within half of the stack, in pixels."""
    middles, quarter = [], len(mean) // 4
    for first in (quarter, max(len(mean) - quarter - _PLANES, 0)):
        light = mean[first : first + _PLANES].mean(axis=0).astype(float)
        light[light < light.max() / 2] = 0
        middles.append(
            np.array([(light * at).sum() for at in np.indices(light.shape)]) / light.sum()
        )
    return float(np.linalg.norm(middles[1] - middles[0]))


def _step_of(heights: Array) -> float:
    """Return the distance of planes, or raise an error unless it is the same for all."""
    rises = np.diff(heights)
    step = float(rises.mean())
    if np.abs(rises - step).max() > _UNEVEN * step:
        raise ValueError(
            f"the planes must be at even distances; got {rises.min():g} to {rises.max():g} nm. "
            "Record evenly spaced planes, or give the mean distance if the heights only jitter"
        )
    return step


class Known(NamedTuple):
    """What a PSF is made of besides its voxels."""

    dz: float
    plane: float
    pixel_size: float | None
    index_factor: float


class _Registered(NamedTuple):
    """Beads moved to one place, in the planes that all of them have."""

    beads: list[PsfBead]
    #: Of those that are used: which boxes, (z, y, x), their light, and their voxels.
    boxes: NDArray[np.int64]
    shifts: Array
    weights: Array
    aligned: Array
    mean: Array
    #: The plane of the stack that the first one is.
    first: int


def _registered(cut: BeadBoxes, step: float) -> _Registered:
    """Register beads and leave out those that differ from the others."""
    shifts = align(cut.boxes)
    weights = cut.boxes.sum(axis=(2, 3)).max(axis=1).astype(float)
    moved_boxes = np.stack(
        [moved(box, shift) for box, shift in zip(cut.boxes, shifts, strict=True)]
    )
    far = _far(shifts[:, 0], weights, cut.boxes.shape[1])
    out, before = far.copy(), None
    # Those that are left out may have left few planes to all.
    while before != (planes := _common_planes(shifts[~out, 0], cut.boxes.shape[1])):
        first, last = before = planes
        aligned = moved_boxes[:, first : last + 1]
        out[~out] = outliers(aligned[~out], weights[~out])
    beads = list(cut.beads)
    for i, shift, is_out, is_far in zip(cut.used, shifts, out, far, strict=True):
        beads[i] = beads[i]._replace(z=step * float(shift[0]))
        if is_out:
            reason = "another shape than the other beads have"
            if is_far:
                reason = "at another height: it has few planes in common with the others"
            beads[i] = beads[i]._replace(used=False, reason=reason)
    kept = np.flatnonzero(~out)
    mean = aligned[kept].sum(axis=0) / weights[kept].sum()
    return _Registered(beads, kept, shifts[kept], weights[kept], aligned[kept], mean, first)


def _far(shifts: Array, light: Array, planes: int) -> NDArray[np.bool_]:
    """Return which beads are so far from where most of the light is that few planes are common."""
    order = np.argsort(shifts)
    total = np.cumsum(light[order])
    middle = shifts[order][np.searchsorted(total, total[-1] / 2)]
    far: NDArray[np.bool_] = np.abs(shifts - middle) > _FAR * planes
    # A sample that is not level is another matter.
    return far if light[far].sum() < _LITTLE * light.sum() else np.zeros(len(far), bool)


def _common_planes(shifts: Array, planes: int) -> tuple[int, int]:
    """Return the first and the last plane that beads of such shifts along z have in common."""
    first = max(math.ceil(-shifts.min()), 0)
    last = min(math.floor(planes - 1 - shifts.max()), planes - 1)
    if last - first + 1 < LEAST_PLANES + 1:
        raise ValueError(
            f"the beads are at heights that differ by {np.ptp(shifts):.0f} of {planes} planes: too "
            "few planes are common to all. Level the sample, record a longer stack, or choose a "
            "part of the image"
        )
    return first, last


def _focus(mean: Array) -> float:
    """Return where along z the light is in the fewest pixels, between planes."""
    sharp = (mean**2).sum(axis=(1, 2))
    top = int(sharp.argmax())
    if not 0 < top < len(sharp) - 1:
        return float(top)
    before, middle, after = sharp[top - 1 : top + 2]
    return float(top + 0.5 * (before - after) / (before - 2 * middle + after))


def psf_of(mean: Array, known: Known) -> MeasuredPsf:
    """Return the PSF of the mean of beads: smooth along z, with the light of a spot of 1."""
    smooth = _smooth(mean)
    center = round(known.plane)
    central = smooth[max(center - _CENTRAL // 2, 0) : center + _CENTRAL // 2 + 1]
    values = smooth / central.sum(axis=(1, 2)).mean()
    middle = fit_spots(values[[center]] * 1e4, model="gaussian", errors=False, backend="cpu")
    side = values.shape[1]
    y, x = (float(np.clip(at, 1, side - 2)) for at in (middle.y[0], middle.x[0]))
    if not math.isfinite(y + x):
        y = x = (side - 1) / 2
    return MeasuredPsf(
        spline_coefficients(values), known.dz, known.plane, y, x, known.pixel_size,
        known.index_factor,
    )  # fmt: skip


def _smooth(mean: Array) -> Array:
    """Return what is smooth along z as far as generalised cross-validation says.

    What is penalised is the third difference, which a peak has little of.
    """
    count = len(mean)
    roughness, modes = _modes(count)
    voxels = mean.reshape(count, -1)
    amplitudes = modes.T @ voxels
    bright = voxels.max(axis=0) > _BRIGHT * voxels.max()
    power = (amplitudes[:, bright] ** 2).sum(axis=1)
    kept = 1 / (1 + _SMOOTHINGS[:, None] * np.maximum(roughness, 0))
    scores = ((1 - kept) ** 2 @ power) / (count - kept.sum(axis=1)) ** 2
    best = kept[scores.argmin()]
    return np.asarray(modes @ (best[:, None] * amplitudes)).reshape(mean.shape)


@cache
def _modes(count: int) -> tuple[Array, Array]:
    """Return how rough the modes of a number of planes are, and the modes."""
    difference = np.diff(np.eye(count), n=3, axis=0)
    roughness, modes = np.linalg.eigh(difference.T @ difference)
    return roughness, modes


def _quality(
    cut: BeadBoxes, registered: _Registered, known: Known, roi_size: int, *, has_gain: bool
) -> tuple[Array | None, Array | None]:
    """Return bias and scatter of z by planes, each bead fitted with the PSF of the others."""
    count, planes = len(registered.shifts), len(registered.mean)
    if count < 2:
        return None, None
    total, light = registered.aligned.sum(axis=0), registered.weights.sum()
    errors = np.full((count, planes), np.nan)
    half = cut.boxes.shape[-1] // 2
    for i, (box, shift) in enumerate(zip(registered.boxes, registered.shifts, strict=True)):
        others = (total - registered.aligned[i]) / (light - registered.weights[i])
        psf = psf_of(others, known)
        middle = half + np.rint(shift[1:]).astype(int)
        low = np.clip(middle - roi_size // 2, 0, 2 * half + 1 - roi_size)
        spots = (
            cut.boxes[box][:, low[0] : low[0] + roi_size, low[1] : low[1] + roi_size]
            + max(cut.background[box], 0) * has_gain
        )
        own = np.arange(planes) + registered.first + shift[0]
        there = np.rint(own).astype(int)
        fits = fit_spots(
            spots[np.clip(there, 0, len(spots) - 1)], model=psf, errors=False, backend="cpu",
            estimator="mle" if has_gain else "lse", gain=1.0 if has_gain else None,
        )  # fmt: skip
        true = (there - own + np.arange(planes) - known.plane) * psf.nm_per_plane
        inside = (fits.z > psf.range[0]) & (fits.z < psf.range[1])
        errors[i] = np.where(inside, fits.z - true, np.nan)
    few = np.isfinite(errors).sum(axis=0) < 2
    errors[:, few] = 0
    bias, scatter = np.nanmean(errors, axis=0), np.nanstd(errors, axis=0, ddof=1)
    bias[few] = scatter[few] = np.nan
    return bias, scatter
