"""Compare the orientation of the camera with that of a calibration, by the brightest spots.

A camera that is transposed, flipped or rotated against the beads' gives spots that the calibration
fits at a wrong height. The brightest spots of a run are fitted once more in each of the eight
orientations, and their likelihoods say whether another one suits better. They are compared by their
image where the calibration has that of the beads, and else by their widths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.backend import Block
from ..engine.fit_job import FitJob
from ..engine.flags import Flag
from ..engine.select import select_backend
from ..images.arrays import to_host, to_native
from ..images.bright_rois import MOST
from ..images.pixel_calibration import PixelCalibration
from ..models.astigmatism import AstigmatismCalibration
from ..models.calibration import ORIENTATIONS
from ..models.columns import DISTANCE, IN_PLANE
from ..models.measured_psf import MeasuredPsf
from ..settings.settings import Settings

Array = NDArray[np.float64]

#: Spots that are looked at first, then, and at last, and by how many standard errors all may be
#: better than these: the brightest are often two. And the fewest that decide.
_LOOKS, _FEWEST = ((8, 2.0), (24, 0.5), (72, 0.25), (MOST, 0.0)), 5
#: The middle of a ROI, as a part of its side, that the first look is at: it takes a third of the
#: time, and shows where another orientation is out of the question.
_MIDDLE = 2 / 3
#: By how much twice the logarithm of the likelihood is greater, at least, where another orientation
#: suits better; by how many standard errors of its sum over the spots; and by which part of it
#: those differ that look the same. No spot counts more than the last: it may be two.
_BETTER, _SURE, _SAME, _OF_ONE = 20.0, 4.5, 0.2, 10.0
#: Flags of fits that say nothing of the orientation.
_USELESS = (
    Flag.NOT_CONVERGED | Flag.WEAK | Flag.NEGATIVE | Flag.EDGE | Flag.SATURATED | Flag.BAD_PIXELS
    | Flag.Z_AT_LIMIT | Flag.BLOB | Flag.NEIGHBOUR
)  # fmt: skip
#: Spots stand alone that have no other one within this part of the side of their ROI: light of
#: others, which the fits in other orientations do not know, is that of another orientation.
_ALONE = 0.85
#: Fewer cut-outs take less time than to look at them again.
_MANY = 5000
#: The least probability of widths that counts.
_LEAST = 1e-12


def offer_rois(
    calibration: PixelCalibration, block: Block, frames: NDArray[np.int64], columns: Any
) -> None:
    """Keep ROIs of the brightest lone spots for :func:`warn_of_orientation`, if fits find z.

    Parameters
    ----------
    calibration : PixelCalibration
        That of the run.
    block : Block
        The frames.
    frames : ndarray of int
        The frame of each fit by its place in the block.
    columns : mapping of str to array
        The fits.
    """
    if calibration.bright is None:
        return
    flags, light = (to_host(columns[name]) for name in ("flags", "photons"))
    usable = (flags & int(_USELESS)) == 0
    if DISTANCE in columns:  # NaN if there is none
        usable &= ~(to_host(columns[DISTANCE]) < _ALONE * max(calibration.settings.roi_shape))
    light = np.where(usable, light, np.nan)
    rows, along = (np.arange(side) for side in calibration.settings.roi_shape)
    y, x = (to_host(columns[f"roi_{axis}"]) for axis in IN_PLANE)
    y = y - block.first_row

    def rois(of: NDArray[np.int64]) -> NDArray[Any]:
        frame, first_y, first_x = (one[of, None, None] for one in (frames, y, x))
        pixels: NDArray[Any] = to_host(
            block.pixels[frame, first_y + rows[:, None], first_x + along]
        )
        return pixels

    calibration.bright.offer(light, rois)


def check_cut_outs(
    calibration: PixelCalibration, spots: Any, columns: Any, flags: NDArray[np.uint32]
) -> None:
    """Do what :func:`warn_of_orientation` does, of cut-outs and their fits."""
    if calibration.bright is None or len(flags) < _MANY:
        return
    light = np.where((flags & int(_USELESS)) == 0, to_host(columns["photons"]), np.nan)

    def rois(of: NDArray[np.int64]) -> NDArray[Any]:
        numbers = of if calibration.by_frame else np.zeros(len(of), np.int64)
        pixels: NDArray[Any] = calibration.corrected(numbers, to_native(to_host(spots[of])))
        return pixels

    calibration.bright.offer(light, rois)
    warn_of_orientation(calibration)


def warn_of_orientation(calibration: PixelCalibration) -> None:
    """Warn the caller if the brightest spots look like those of another camera orientation."""
    if calibration.bright is None:
        return
    rois, settings = calibration.bright.rois, calibration.fitted
    kind = "psf" if isinstance(settings.model, MeasuredPsf) else "calibration"
    if isinstance(settings.model, AstigmatismCalibration) and settings.model.psf is not None:
        settings = settings.changed(model=settings.model.psf, pixel="sampled")
    rois = rois[np.isfinite(rois).all(axis=(1, 2))]  # without bad pixels
    if isinstance(settings.model, MeasuredPsf):  # whatever is exchanged is a square
        side = min(rois.shape[1:])
        top, left = ((size - side) // 2 for size in rois.shape[1:])
        rois = rois[:, top : top + side, left : left + side]
    if len(rois) < _FEWEST or {*IN_PLANE} & {*settings.fixed, *settings.bounds}:
        return
    better = better_orientations(rois, settings)
    if better:
        words = " or ".join(name.replace("_", " ") for name in better)
        alike = " (these look the same)" * (len(better) > 1)
        warn_caller(
            f"the brightest spots look as if the image were {words} against the beads'{alike}: z "
            "is wrong then, even of good fits. If the camera was turned since, fit with "
            f"model={kind}.oriented({better[0]!r}){', or what it was' * (len(better) > 1)}; or "
            "calibrate again with the camera as it is now"
        )


def better_orientations(rois: NDArray[Any], settings: Settings) -> list[str]:
    """Return the orientations in which spots are far more likely than as they are.

    There are several if they look the same.

    Parameters
    ----------
    rois : ndarray, shape (n, rows, columns)
        Corrected cut-outs of spots, the brightest first.
    settings : Settings
        Those of the fits, with the calibration as their model.
    """
    square = rois.shape[1] == rois.shape[2]
    names = [name for name, one in ORIENTATIONS.items() if square or not one.exchanged][1:]
    cut = [round(side * (1 - _MIDDLE) / 2) for side in rois.shape[1:]]
    middle = rois[:, cut[0] : rois.shape[1] - cut[0], cut[1] : rois.shape[2] - cut[1]]
    seen, known = 0, np.empty((0, len(names)))
    for look, (count, luck) in enumerate(_LOOKS):
        if not look and count < len(rois) and isinstance(settings.model, MeasuredPsf):
            gains = _gains(middle[:count], names, settings)
        else:
            gains = known = np.concatenate([known, _gains(rois[seen:count], names, settings)])
            seen = count
        if len(gains) < _FEWEST:
            return []
        total, unsure = _sum(gains)
        # What all spots may come to, if things go well.
        times = len(rois) / len(gains)
        needed = np.maximum(_BETTER, _SURE * np.sqrt(times) * unsure)
        likely = times * (total + luck * unsure) > needed
        names = [name for name, one in zip(names, likely, strict=True) if one]
        if not names:
            return []
        if count >= len(rois):
            break
        known = known[:, likely]
    total, unsure, gains = total[likely], unsure[likely], gains[:, likely]
    best = int(np.argmax(np.where(total > np.maximum(_BETTER, _SURE * unsure), gains.sum(0), 0)))
    if total[best] <= max(_BETTER, _SURE * unsure[best]):
        return []
    behind, unsure = _sum(gains[:, [best]] - gains)
    same = behind <= np.maximum(_SAME * total[best], _SURE * unsure)
    return [name for name, one in zip(names, same, strict=True) if one]


def _sum(gains: Array) -> tuple[Array, Array]:
    """Return sums over spots, none of which decides alone, and their standard errors."""
    limited = np.clip(gains, -_OF_ONE, _OF_ONE)
    return limited.sum(axis=0), np.sqrt(len(gains)) * limited.std(axis=0)


def _gains(rois: NDArray[Any], names: list[str], settings: Settings) -> Array:
    """Return how much more likely each spot is in each orientation, as :func:`_misfit` has it."""
    turned = [rois, *(ORIENTATIONS[name].inverse.of(rois) for name in names)]
    misfit = _misfit(np.concatenate(turned), settings).reshape(-1, len(rois))
    gains: Array = (misfit[0] - misfit[1:]).T
    return gains[np.isfinite(gains).all(axis=1)]


def _misfit(rois: NDArray[Any], settings: Settings) -> Array:
    """Return minus twice the logarithm of the likelihood of each spot's best fit, but a constant.

    Noise is what the fit leaves: it may be another one than was said.
    """
    pixels = np.ascontiguousarray(rois)
    by_image = isinstance(settings.model, MeasuredPsf)
    settings = settings.changed(backend="cpu", errors=not by_image)
    if by_image:  # least squares are faster, and decide as well
        settings = settings.changed(estimator="lse", variance=None, min_delta=1e-4)
    calibration = PixelCalibration(pixels.shape, settings)
    first = np.arange(1)
    planes, variances = calibration.planes(first, pixels), calibration.variances(first, pixels)
    job = FitJob.of_spots(calibration.fitted, pixels.shape[1:], pixels.dtype)
    block = Block(pixels, pixels, planes, variances)
    found = select_backend(calibration.settings).fit(job, block, None)
    with np.errstate(invalid="ignore", divide="ignore"):
        misfit: Array = pixels[0].size * np.log(found["chi_square"].astype(float))
        if not by_image:
            from scipy.special import erfcinv  # here, as SciPy takes its time to import

            misfit += 2 * erfcinv(np.clip(found["z_p_value"].astype(float), _LEAST, 1)) ** 2
    return misfit
