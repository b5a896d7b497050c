"""Calibrate z from the widths of beads that an astigmatic lens makes elliptical."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..caller import warn_caller
from ..engine.depth import located
from ..images.camera import Camera
from ..localization.fit_spots import fit_spots
from ..models.astigmatism import AstigmatismCalibration, Bead, Level, Quality
from ..models.calibration import Calibration, Curve, unique_range
from ..models.columns import IN_PLANE, STDERR
from ..models.measured_psf import LEAST_PLANES as _PSF_PLANES
from ..models.measured_psf import MeasuredPsf
from ..settings.settings import Settings
from .bead_boxes import cut_beads
from .bead_fits import BeadFits, fit_beads
from .bead_stack import LEAST_PLANES, checked_heights, checked_stack, warn_one_sided
from .heights import FEW, WIDTHS, Alignment, no_beads, smooth_curve, wobble_of
from .measure_psf import MARGIN, Known, psf_of
from .registration import moved

Array = NDArray[np.float64]

#: The least common drift of beads that is warned of, in pixels.
_COMMON_DRIFT = 1.0
#: Background per pixel over light of the dimmest spots that are fitted; and the steps to there.
_DIMMEST, _DIMMER = 0.05, 4.0
#: Errors that are what they should be; and how many times they may be larger, and are known from.
_ALIKE_ERRORS, _LARGEST_RATIO, _LEAST_RATIOS = Curve("polynomial", (1.0,)), 5.0, 30
#: How often widths may go up and down, in ranges, where they are known to such a part; how far
#: planes may seem from their heights, in steps and standard errors.
_TURNS, _SURE, _STEPS, _ERRORS = 2.5, 0.2, 2.0, 6.0
#: Background per pixel over light from which on beads are too dim for spots of usual light.
_DIM = 0.006
#: The degree of splines along z; and the part of the light of all beads that shows each height.
_DEGREE, _SHOWN = 5, 0.5
#: Steps beside the range in which widths determine z: fits at its ends have a PSF on both sides.
_BESIDE = 5


def calibrate_astigmatism(
    stack: Any,
    dz: ArrayLike,
    *,
    beads: ArrayLike | None = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
) -> AstigmatismCalibration:
    """Measure the widths of beads against z, by which ``model=`` of fits then finds z.

    Beads are found on the maximum projection of the stack, and each is fitted in all planes, in
    one ROI, by maximum likelihood; with one angle for all if the lens is turned against the
    camera. Their heights are aligned, and one curve for each width is fitted: that of Huang et
    al. (2008) or, where it predicts widths better that were left out, a smoothing spline. Beads
    that differ from the others are left out; ``calibration.beads`` says of each why.

    z rises with the planes, and is 0 where spots are round. The range of the calibration is where
    the widths determine z.

    Parameters
    ----------
    stack : array, shape (planes, Y, X), or path
        Beads, sparse and not saturated, recorded in steps of 10 to 50 nm from below to above the
        focus.
    dz : float or array, shape (planes,)
        Distance of the planes in nm, or the height of each.
    beads : array, shape (n, 2), optional
        y and x of the beads to use, in pixels; by default those that are found.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    settings : Settings, optional
        The camera's numbers, what finds beads, and the ROI's size, which fits with the calibration
        then have; by default about 8 σ. ``voxel_size`` says how large a pixel is.

    Returns
    -------
    AstigmatismCalibration
        What ``model=…`` takes, with the quality of z and every bead.

    Raises
    ------
    TypeError, ValueError
        If stack or heights are not of the kind above, or if no bead can be used; the message
        says why, and what to do.

    Warns
    -----
    UserWarning
        If fewer than three beads are used, if all move together, or if planes seem to be at other
        heights than said.

    References
    ----------
    B. Huang, W. Wang, M. Bates and X. Zhuang, Three-dimensional super-resolution imaging by
    stochastic optical reconstruction microscopy, Science 319, 810 (2008).

    Examples
    --------
    >>> from napari_spotfit import Settings, calibrate_astigmatism, simulate_beads
    >>> lens = {"astigmatism": 0.1}
    >>> z = range(-500, 501, 25)
    >>> stack, truth = simulate_beads(z, (128, 128), count=9, seed=0, zernike=lens)
    >>> calibration = calibrate_astigmatism(stack, 25, settings=Settings(gain=1, offset=100))
    >>> sum(bead.used for bead in calibration.beads)
    9
    """
    given = settings or Settings()
    if not isinstance(given, Settings):
        raise TypeError(f"settings must be Settings(…); got {type(given).__name__}")
    if isinstance(given.model, Calibration):
        given = given.changed(model="gaussian", estimator="lse", roi_size=None, sigma=None)
    planes = checked_stack(stack)
    fits = fit_beads(planes, checked_heights(dz, len(planes), given), given, camera, beads)
    if not fits.used.any():
        raise ValueError(no_beads(fits))
    _check_order(fits)
    found = Alignment(fits)
    found.run()
    calibration = _calibration(found, given)
    _warn(found, calibration)
    return calibration


def _calibration(found: Alignment, given: Settings) -> AstigmatismCalibration:
    """Return the calibration, with the quality of z."""
    fits = found.fits
    # Beads have less background for their light in some planes than in others: as much in all.
    level = fits.level(found.inside & fits.used[:, None])
    fits.columns = fits.dimmed(level)
    found.take(fits.columns)
    found.curves = found.fitted(fits.used, found.curves.x.kind)
    (wobble_y, wobble_x), places, _ = wobble_of(found)
    photons = np.nan_to_num(fits.columns["photons"]).max(1)
    beads = tuple(
        Bead(float(y), float(x), float(zero), float(light), float(apart), not why, why or "used")
        for (y, x), zero, light, apart, why in zip(
            fits.places, found.zero, photons, found.residual, fits.reasons, strict=True
        )
    )
    voxel, curves = given.voxel_size, found.curves
    dimmer = [_dimmer(found, one, places) for one in _levels(level)]
    low, high = unique_range(curves.x, curves.y, found.low, found.high)
    for one in dimmer:
        low, high = unique_range(one.x, one.y, low, high)
    found.take(fits.columns)
    calibration = AstigmatismCalibration(
        curves.x, curves.y, low, high, level=level, dimmer=tuple(dimmer),
        angle=fits.angle, wobble_x=wobble_x, wobble_y=wobble_y,
        pixel_size=None if voxel is None else voxel[-1], roi_size=fits.settings.roi_shape,
        pixel=fits.settings.pixel, beads=beads, points=_mean_points(found),
    )  # fmt: skip
    return _with_image(found, _with_errors(found, calibration), places)


def _levels(level: float) -> list[float]:
    """Return the levels of spots dimmer than beads of a level."""
    count = max(math.ceil(math.log(_DIMMEST / level, _DIMMER)), 0)
    return [level * (_DIMMEST / level) ** (one / count) for one in range(1, count + 1)]


def _dimmer(found: Alignment, level: float, places: Array) -> Level:
    """Return the curves of the same beads at a higher level."""
    found.take(found.fits.dimmed(level))
    curves = found.fitted(found.fits.used, found.curves.x.kind, found.curves.smoothing)
    (wobble_y, wobble_x), *_ = wobble_of(found, places)
    return Level(level, curves.x, curves.y, wobble_x, wobble_y, _ALIKE_ERRORS)


def _mean_points(found: Alignment) -> tuple[tuple[float, ...], ...]:
    """Return z, both mean widths, and the number of beads, by steps of the stack."""
    rows = []
    inside, z = found.inside & found.fits.used[:, None], found.z
    number = np.rint(z / found.step)
    for one in np.unique(number[inside]):
        there = inside & (number == one)
        means = [z[there].mean(), *(widths[there].mean() for widths in found.widths)]
        rows.append(tuple(float(mean) for mean in (*means, there.sum())))
    return tuple(rows)


def _with_errors(found: Alignment, calibration: AstigmatismCalibration) -> AstigmatismCalibration:
    """Return the calibration with the errors that z has, of the beads and of dimmer spots."""
    z, errors, stderr = _errors_of_beads(found, calibration)
    rng, dimmer = np.random.default_rng(0), []
    for one in calibration.dimmer:
        columns = found.fits.dimmed(one.level, rng)
        located, own = _located(found, calibration, columns, np.arange(len(z)))
        dimmer.append(one._replace(excess=_excess(z, located - z, own)))
    return replace(
        calibration,
        excess=_excess(z, errors, stderr),
        dimmer=tuple(dimmer),
        quality=_quality(found, errors, stderr),
    )


def _located(
    found: Alignment, calibration: AstigmatismCalibration, columns: Mapping[str, Array], beads: Any
) -> tuple[Array, Array]:
    """Return z of beads in all planes, and its standard error; NaN beside the range."""
    settings = found.fits.settings
    own = {name: values[beads] for name, values in columns.items()}
    z, error, _ = located(own, calibration, settings, settings.roi_shape)
    return np.where(found.inside[beads], z, np.nan), error


def _excess(z: Array, errors: Array, stderr: Array) -> Curve:
    """Return how many times errors of z are their standard errors, against z."""
    ratio = errors / stderr
    known = np.isfinite(ratio)
    if known.sum() < _LEAST_RATIOS:
        return _ALIKE_ERRORS
    square = np.minimum(ratio[known] ** 2, _LARGEST_RATIO**2)
    curve, _ = smooth_curve(z[known], square, np.ones(len(square)))
    roots = np.sqrt(np.clip(curve.numbers, 1.0, _LARGEST_RATIO**2))
    return curve._replace(numbers=tuple(roots.tolist()))


def _errors_of_beads(
    found: Alignment, calibration: AstigmatismCalibration
) -> tuple[Array, Array, Array]:
    """Return z of beads, its errors by the curves of the others, and their standard errors."""
    fits, used = found.fits, found.fits.used
    errors, stderr = np.full(found.z.shape, np.nan), np.full(found.z.shape, np.nan)
    smoothing = found.curves.smoothing
    for bead in fits.numbers:
        others = used.copy()
        others[bead] = used.sum() == 1
        curves = found.fitted(others, calibration.x.kind, smoothing)
        ends = unique_range(curves.x, curves.y, found.low, found.high)
        own = replace(calibration, x=curves.x, y=curves.y, low=ends[0], high=ends[1], dimmer=())
        z, error = _located(found, own, fits.columns, bead)
        apart = z - found.z[bead]
        there = found.inside[bead] & np.isfinite(error)
        errors[bead, there] = (apart - np.median(apart[there]))[there]
        stderr[bead, there] = error[there]
    return found.z, errors, stderr


def _with_image(
    found: Alignment, calibration: AstigmatismCalibration, places: Array
) -> AstigmatismCalibration:
    """Return the calibration with the mean image of the beads, and the errors of z by it."""
    try:
        images = _BeadImages(found, places)
    except ValueError as why:
        warn_caller(
            f"the beads' image is not known ({why}): fits find z by widths alone, which scatters "
            "by a third more"
        )
        return calibration
    errors, stderr = np.full(found.z.shape, np.nan), np.full(found.z.shape, np.nan)
    for bead in images.beads:
        own = replace(calibration, psf=images.psf(bead if len(images.beads) > 1 else None))
        settings = found.fits.settings.changed(model=own, fixed={})
        fits = fit_spots(found.fits.rois(bead), settings=settings)
        there = found.inside[bead] & np.isfinite(fits.z_stderr)
        apart = np.where(there, fits.z - found.z[bead], np.nan)
        errors[bead], stderr[bead] = apart - np.nanmedian(apart), fits.z_stderr
    return replace(
        calibration,
        psf=images.psf(),
        unlike=_unlike(found.z, errors, stderr),
        quality=_quality(found, errors, stderr),
    )


class _BeadImages:
    """Beads moved to one place and to common heights.

    Parameters
    ----------
    found : Alignment
        The fits of the beads, with their heights.
    places : ndarray, shape (2, n)
        y and x of each bead at the height where it is round.

    Raises
    ------
    ValueError
        If no bead lies apart from the others and the edges as far as its image goes.
    """

    def __init__(self, found: Alignment, places: Array) -> None:
        fits, step = found.fits, found.step
        side = max(fits.settings.roi_shape) + 2 * MARGIN
        side += 1 - side % 2
        used = np.array(fits.numbers)
        cut = cut_beads(fits.planes, side, None, fits.settings, fits.places[used])
        first = np.ceil(found.low / step) - _BESIDE
        heights = step * np.arange(first, np.floor(found.high / step) + _BESIDE + 1)
        self.beads: list[int] = []
        images, light = [], []
        for box, middle in zip(cut.boxes, cut.middle, strict=True):
            apart = np.abs(places[:, used].T - middle).max(axis=1)
            bead = int(used[np.nanargmin(apart)])
            shift = places[:, bead] - middle
            images.append(_at(box, fits.z, found.zero[bead] + heights, shift))
            light.append(float(box.sum(axis=(1, 2)).max()))
            self.beads.append(bead)
        self._images, self._light = np.stack(images), np.array(light)
        there = np.isfinite(self._images[:, :, 0, 0])
        shown = np.flatnonzero(self._light @ there > _SHOWN * self._light.sum())
        kept = slice(shown[0], shown[-1] + 1) if len(shown) else slice(0)
        self._images, heights = self._images[:, kept], heights[kept]
        if len(heights) < _PSF_PLANES + 1 or not heights[0] <= 0 <= heights[-1]:
            raise ValueError("the beads have too few heights in common")
        voxel = fits.settings.voxel_size
        self._known = Known(step, -heights[0] / step, voxel and float(voxel[-1]), 1.0)

    def psf(self, without: int | None = None) -> MeasuredPsf:
        """Return the PSF of all beads, or without one."""
        kept = np.array([bead != without for bead in self.beads])
        images, light = self._images[kept], self._light[kept]
        there = np.isfinite(images[:, :, 0, 0])
        weights = light @ there
        mean = np.nan_to_num(images).sum(axis=0) / np.where(weights, weights, np.nan)[:, None, None]
        psf = psf_of(mean, self._known)
        middle = (images.shape[-1] - 1) / 2
        return replace(psf, y=middle, x=middle)


def _at(box: NDArray[np.float32], z: Array, heights: Array, shift: Array) -> Array:
    """Return a bead at heights, moved to the middle of its box; NaN where it was not recorded."""
    from scipy.interpolate import make_interp_spline  # here, as SciPy takes its time to import

    centred = moved(box, (0.0, *shift))
    values = np.asarray(make_interp_spline(z, centred, k=_DEGREE)(heights))
    values[(heights < z[0]) | (heights > z[-1])] = np.nan
    return values


def _unlike(z: Array, errors: Array, stderr: Array) -> Curve | None:
    """Return by how much errors of z are more than their standard errors, in nm, against z."""
    known = np.isfinite(errors)
    if known.sum() < _LEAST_RATIOS:
        return None
    limited = np.minimum(errors[known] ** 2, (_LARGEST_RATIO * stderr[known]) ** 2)
    curve, _ = smooth_curve(z[known], limited - stderr[known] ** 2, np.ones(known.sum()))
    return curve._replace(numbers=tuple(np.sqrt(np.maximum(curve.numbers, 0)).tolist()))


def _quality(found: Alignment, errors: Array, stderr: Array) -> Quality:
    """Return the errors of z by steps of the stack."""
    number = np.rint(found.z / found.step)
    there = np.isfinite(errors)
    bins = np.unique(number[there])
    rows = [(errors[there & (number == one)], stderr[there & (number == one)]) for one in bins]
    return Quality(
        tuple(float(one) for one in bins * found.step),
        tuple(float(own.mean()) for own, _ in rows),
        tuple(float(own.std(ddof=1)) if len(own) > 1 else 0.0 for own, _ in rows),
        tuple(float(np.sqrt((error**2).mean())) for _, error in rows),
    )


def _check_order(fits: BeadFits) -> None:
    """Check that widths do not jump from plane to plane.

    Planes of dim beads, and several coarse sweeps, do not show it.
    """
    turns = []
    for bead in fits.numbers:
        widths = [fits.columns[name][bead] for name in WIDTHS]
        noise = [fits.columns[name + STDERR][bead] / fits.columns[name][bead] for name in WIDTHS]
        ratio, error = np.log(widths[0] / widths[1]), np.hypot(*noise)
        known = np.isfinite(ratio) & (error < _SURE)
        if known.sum() >= LEAST_PLANES:
            ratio, error = ratio[known], error[known]
            jumps = np.abs(np.diff(ratio)) - 2 * np.hypot(error[1:], error[:-1])
            turns.append(np.maximum(jumps, 0).sum() / np.ptp(ratio))
    if turns and np.median(turns) > _TURNS:
        raise ValueError(
            "the widths of the beads jump from plane to plane: the planes are not in the order of "
            "their heights, or are several stacks. Order them: stack[numpy.argsort(z)]"
        )


def _warn(found: Alignment, calibration: AstigmatismCalibration) -> None:
    """Warn of what the calibration may suffer from."""
    fits = found.fits
    count, quality = int(fits.used.sum()), calibration.quality
    if count < FEW:
        why = f" ({fits.why()})" if fits.why() else ""
        warn_caller(
            f"the calibration is of {count} bead{'s' * (count > 1)} only{why}: how beads differ is "
            "not known. Record 10 to 50 that lie apart"
        )
    if calibration.level > _DIM:
        warn_caller(
            "the beads are dim on their background: how wide brighter spots are is not known, and "
            "their z may be off by some 10 nm. Record beads with ten times the light of spots"
        )
    warn_one_sided(calibration.low, calibration.high)
    ends = np.array([calibration.low, calibration.high])
    for axis, curve in zip(IN_PLANE, (calibration.wobble_y, calibration.wobble_x), strict=True):
        assert curve is not None
        drift = float(np.ptp(curve(ends)))
        if drift > _COMMON_DRIFT:
            warn_caller(
                f"all beads move together along {axis} by {drift:.1f} px from end to end. It is "
                "taken for a tilt of the light, and removed from the fits; if the stage drifted, "
                "record the stack again"
            )
    assert quality is not None
    error = np.array(quality.scatter) / np.sqrt(count) + 1e-9
    bias = np.array(quality.bias)
    wrong = np.abs(bias) > np.maximum(_ERRORS * error, _STEPS * found.step)
    if count >= FEW and wrong.any():
        worst = int(np.argmax(np.abs(bias) * wrong))
        warn_caller(
            f"{int(wrong.sum())} planes seem to be at other heights than said, the worst at "
            f"{quality.z[worst]:.0f} nm by {bias[worst]:.0f} nm: check their order, and give the "
            "height of each (dz)"
        )
