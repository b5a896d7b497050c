"""Beads of a z-stack as Gaussians: found on its maximum projection, and fitted in every plane."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.flags import Flag
from ..images.camera import Camera
from ..images.pixel_calibration import PixelCalibration
from ..localization.centers import checked_places
from ..localization.detect_spots import detect_spots
from ..localization.fit_at import fit_at
from ..localization.fit_spots import fit_spots
from ..localization.localize import localize
from ..models.columns import IN_PLANE, STDERR
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings, electrons_of
from .bead_stack import cut_off, rough_models, why_left_out

Array = NDArray[np.float64]

#: The ROI's side in widths of a bead's maximum projection; and the least and largest.
_ROI_WIDTHS, _ROI_LEAST, _ROI_MOST = 9.0, 9, 31
#: A neighbour counts from this part of a bead's height on, and beads from this part of the median.
_NEIGHBOUR, _DIM = 0.2, 0.2
#: The filter that finds beads, and their least distance, in widths.
_SMOOTH, _APART = 1.5, 3.0
#: Lens angles below this many degrees, or standard errors, are none; and the least ratio of widths
#: that shows one.
_LEAST_ANGLE, _ANGLE_ERRORS, _LEAST_RATIO = 1.0, 4.0, 1.15
#: Flags of fits that say nothing of the widths.
_SPOILT = (
    Flag.NOT_CONVERGED | Flag.AT_BOUND | Flag.WEAK | Flag.NEGATIVE | Flag.MOVED | Flag.SATURATED
)
#: The least background over light that differs from none.
_LEAST_LEVEL = 1e-6
#: The part of the beads and planes that has no more of it than the least level of a calibration.
_MOST = 0.9


@dataclass
class BeadFits:
    """Fits of beads in all planes of a stack: arrays of (beads, planes), NaN where not usable."""

    z: Array
    #: Where the beads are in the maximum projection, (beads, 2).
    places: Array
    #: Those of the fits, and the stack with the camera's maps applied.
    settings: Settings
    planes: NDArray[Any]
    angle: float = 0.0
    columns: dict[str, Array] = field(default_factory=dict)
    #: Why a bead is not used; nothing for those that are.
    reasons: list[str] = field(default_factory=list)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which beads are used."""
        return np.array([not reason for reason in self.reasons], bool)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the beads that are used."""
        return [bead for bead, reason in enumerate(self.reasons) if not reason]

    def reject(self, bead: int, reason: str) -> None:
        """Leave a bead out, for the first of its reasons."""
        self.reasons[bead] = self.reasons[bead] or reason

    def level(self, inside: NDArray[np.bool_]) -> float:
        """Return the background per pixel over the light that most beads in planes are below."""
        light, background = self._light()
        return max(float(np.quantile((background / light)[inside], _MOST)), _LEAST_LEVEL)

    def _light(self) -> tuple[Array, Array]:
        """Return the light of each bead in each plane, and the background per pixel, in counts."""
        light = self.columns["photons"] * (self.settings.gain or 1.0)
        return light, np.maximum(self.columns["background"], 0)

    def dimmed(self, level: float, rng: np.random.Generator | None = None) -> dict[str, Array]:
        """Return fits of the beads on so much background that they are of a higher level.

        Maximum likelihood weighs their pixels as those of dim spots then, without their noise. With
        a generator, they are dimmed instead: each electron is kept by chance, so that the fits
        scatter as those of dim spots do.
        """
        used, columns = np.flatnonzero(self.used), self.columns
        light, background = (np.nan_to_num(one[used])[..., None, None] for one in self._light())
        sides, count = self.settings.roi_shape, len(self.planes)
        rois = np.stack([self.rois(int(bead)) for bead in used]).astype(np.float32)
        if rng is None:
            rois += np.maximum(level * light - background, 0).astype(np.float32)
        else:
            electron, dark = electrons_of(self.settings).gain, self.settings.offset
            kept = np.clip(background / np.maximum(level * light, 1e-9), 0, 1)
            electrons = np.rint(np.maximum(rois - dark, 0) / electron).astype(np.int64)
            dimmed = rng.binomial(electrons, kept)
            dimmed += rng.poisson(np.maximum((1 - kept) * background / electron, 0), rois.shape)
            rois = (dark + electron * dimmed).astype(np.float32)
        found = fit_spots(rois.reshape(-1, *sides), settings=self.settings)
        fits = {}
        for name in columns:
            values = found.columns[name].astype(float).reshape(len(used), count)
            full = np.full(columns[name].shape, np.nan)
            full[used] = np.where(np.isfinite(columns["photons"][used]), values, np.nan)
            fits[name] = full
        for axis, first in zip(IN_PLANE, self._corners[used].T, strict=True):
            fits[axis][used] += first[:, None]
        return fits

    def rois(self, bead: int) -> NDArray[Any]:
        """Return the ROI of a bead in all planes."""
        y, x = self._corners[bead]
        rows, columns = self.settings.roi_shape
        return self.planes[:, y : y + rows, x : x + columns]

    @property
    def _corners(self) -> NDArray[np.int64]:
        """The first pixel of each bead's ROI."""
        half = np.array(self.settings.roi_shape) // 2
        corners: NDArray[np.int64] = np.rint(self.places).astype(np.int64) - half
        return corners

    def why(self) -> str:
        """Return in words how many beads were left out, and why."""
        return why_left_out(self.reasons, self.places)


def fit_beads(
    planes: NDArray[Any],
    z: Array,
    settings: Settings,
    camera: Camera | None,
    beads: ArrayLike | None,
) -> BeadFits:
    """Find beads on the maximum projection, and fit each in all planes, in one ROI.

    The model is the elliptical Gaussian by maximum likelihood, rotated by one angle for all if the
    lens is.
    """
    plain = settings.changed(model="gaussian", estimator="lse", neighbours="exclude")
    chosen = None if beads is None else checked_places(beads, 2)
    recorded = planes
    if camera is not None:
        known = PixelCalibration(planes.shape, settings, camera=camera)
        planes, settings = known.corrected(np.arange(len(planes)), planes), known.fitted
    projection = planes.max(axis=0)
    found, places = bead_places(projection, plain, chosen)
    width = _width_of(found)
    roi = settings.roi_size
    if roi is None:
        side = int(np.clip(_ROI_WIDTHS * width, _ROI_LEAST, min(_ROI_MOST, *projection.shape)))
        roi = side - 1 + side % 2
    fits_of = settings.changed(
        model="gaussian_elliptical", estimator="mle", roi_size=roi, sigma=round(width, 3),
        errors=True, neighbours="exclude",
    )  # fmt: skip
    fits = BeadFits(z, places, fits_of, planes, reasons=[""] * len(places))
    _reject_by_places(fits, found.amplitude.astype(float), projection.shape)
    if beads is not None:  # chosen by hand
        fits.reasons = [why if why.startswith("at the edge") else "" for why in fits.reasons]
    _reject_cut_off(fits, recorded)
    _fit(fits)
    return fits


def bead_places(
    projection: NDArray[Any], settings: Settings, chosen: Array | None = None
) -> tuple[SpotFits, Array]:
    """Return fits of the beads in a maximum projection, and their places.

    Of one bead, aberrations may make several maxima near each other: they are one.
    """
    with warnings.catch_warnings():
        # Maxima of many planes have other noise than the camera; its warnings come with the planes.
        warnings.simplefilter("ignore")
        if chosen is None:
            width = _width_of(localize(projection, settings=settings))
            wide = settings.changed(sigma=_SMOOTH * width, min_distance=_APART * width)
            chosen = detect_spots(projection, settings=wide).astype(float)
        return fit_at(projection, chosen, settings=settings), chosen


def _width_of(found: SpotFits) -> float:
    """Return the usual width of fits in pixels."""
    bright = found[found.amplitude > 0]
    bright = bright[bright.amplitude > np.median(bright.amplitude) / 2] if len(bright) else bright
    return float(np.clip(np.median(bright.sigma), 0.5, 6.0)) if len(bright) else 1.3


def _reject_by_places(fits: BeadFits, height: Array, shape: tuple[int, ...]) -> None:
    """Leave out beads at the edge, near others, and dim specks."""
    half = np.array(fits.settings.roi_shape) // 2
    pixel = np.rint(fits.places)
    inside = np.all((pixel >= half) & (pixel + half < shape), axis=1)
    usual = np.median(height) if len(height) else 0.0
    for bead, place in enumerate(fits.places):
        near = (np.abs(fits.places - place) < 2 * half + 1).all(axis=1)
        near[bead] = False
        if not inside[bead]:
            fits.reject(bead, "at the edge: its ROI is not all in the image")
        elif height[bead] < _DIM * usual:
            fits.reject(bead, "dim: less than a fifth as high as the others")
        elif (near & (height > _NEIGHBOUR * height[bead])).any():
            fits.reject(bead, "overlapping: another bead is in its ROI or beside it")


def _reject_cut_off(fits: BeadFits, recorded: NDArray[Any]) -> None:
    """Leave out beads whose pixels have the camera's highest value, before its maps are applied."""
    sides, used = fits.settings.roi_shape, fits.numbers
    corners = np.rint(fits.places).astype(int) - np.array(sides) // 2
    boxes = [recorded[:, y : y + sides[0], x : x + sides[1]] for y, x in corners[used]]
    for bead, is_cut in zip(used, cut_off(boxes), strict=True):
        if is_cut:
            fits.reject(bead, "saturated: its highest pixels all have the same value")


def _fit(fits: BeadFits) -> None:
    """Fit the beads that are left in all planes."""
    used = np.flatnonzero(fits.used)
    planes, count = fits.planes, len(fits.planes)
    names = ["y", "x", "sigma_x", "sigma_y", "photons", "amplitude", "background"]
    names += [name + STDERR for name in names]
    fits.columns = {name: np.full((len(fits.places), count), np.nan) for name in names}
    if not len(used):
        return
    at = np.column_stack(
        [np.repeat(np.arange(count), len(used)), np.tile(np.rint(fits.places[used]), (count, 1))]
    )
    fits.angle = _lens_angle(fits, at)
    model = "gaussian_rotated" if fits.angle else "gaussian_elliptical"
    fixed = {"angle": fits.angle} if fits.angle else {}
    settings = fits.settings.changed(model=model, fixed=fixed)
    with rough_models():
        found = fit_at(planes, at, settings=settings)
    assert found.settings is not None
    fits.settings = found.settings  # with the noise
    usable = ((found.flags & int(_SPOILT)) == 0).reshape(count, -1).T
    for name in names:
        values = found.columns[name].astype(float).reshape(count, -1).T
        fits.columns[name][used] = np.where(usable, values, np.nan)
    saturated = ((found.flags & int(Flag.SATURATED)) != 0).reshape(count, -1).T
    for bead, own in zip(fits.numbers, saturated, strict=True):
        if own.any():
            fits.reject(bead, f"saturated: in {own.sum()} of {count} planes")


def _lens_angle(fits: BeadFits, at: Array) -> float:
    """Return the angle of the lens in degrees, of at most 45; 0 unless it is sure to be turned."""
    turned = fits.settings.changed(model="gaussian_rotated")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit_at(fits.planes, at, settings=turned)
    ratio = np.abs(np.log(found.sigma_x / found.sigma_y))
    shows = ((found.flags & int(_SPOILT)) == 0) & (ratio > np.log(_LEAST_RATIO))
    # Both axes are alike: an angle is one of a quarter of a turn.
    turns = np.where(shows, ratio * np.exp(4j * np.radians(found.angle)), 0)
    by_bead = np.nan_to_num(turns).reshape(len(fits.planes), -1).sum(0)
    mean = by_bead.sum()
    if not abs(mean):
        return 0.0
    across = (by_bead * np.conj(mean) / abs(mean)).imag
    error = np.degrees(np.sqrt(np.sum(across**2)) / abs(mean)) / 4
    angle = float(np.degrees(np.angle(mean)) / 4)
    sure = abs(angle) > max(_LEAST_ANGLE, _ANGLE_ERRORS * error)
    return round(angle, 2) if sure else 0.0
