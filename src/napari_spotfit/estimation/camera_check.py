"""Compare what was said of the camera and of σ with what the fits show of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.flags import Flag, times
from ..models.calibration import Calibration
from ..models.columns import STDERR
from ..models.measured_psf import MeasuredPsf
from ..results.repeats import FrameRepeats
from ..results.spot_fits import SpotFits
from ..settings.noise_model import UNLIKE
from ..settings.settings import Settings, noise_of
from .noise_line import SIGMA_PER_MAD
from .psf_width import FALLBACK_SIGMA
from .residual_slope import Squares, deviance_parts, light_left, slope_of
from .verdict_check import VerdictCheck
from .width_check import WidthCheck, small_roi

#: The share of good fits whose background may lie below 0; by how many standard errors a background
#: must do so to count; and the least number of such fits.
_DARK, _DARK_ERRORS, _LEAST_DARK = 0.05, 3.0, 3
#: Spots that are fitted together and show their background, at most.
_MOST_TOGETHER = 5
#: Fits that show whether spots look like their PSF, at least; and how many of its standard errors
#: the photon noise must be off.
_LEAST_FITS, _SURE = 10, 3.0
#: An image shows its gain where that is this many times its standard error.
_SHOWN = 4.0
#: χ² of spots with fewer electrons is skewed: most of them have much less than its mean.
_FEWEST_ELECTRONS = 50.0
#: Photo-electrons below a spot, at least, whose deviance is judged.
_FEWEST_BELOW = 1.0
#: A spot's shape may be off by this fraction of its height, which is no noise.
_SHAPE = 0.04
#: Where an image is brighter than its offset, its noise says by how much it grows with light at
#: most, within this factor.
_MOST_OF_IMAGE = 1.1
#: Spots that go with their calibration are seldom less probable; the share of others at most; and
#: χ² per pixel by maximum likelihood of half of the spots, if they look like their PSF.
_IMPROBABLE, _UNLIKE_SPOTS, _UNLIKE_CHI = 1e-3, 0.5, 1.35
#: Of fewer fits than show a share, all must be unlike their calibration, this many at least.
_ALL_OF = 3
#: Between spots of less height, in deviations of a pixel, may be as many that are not found.
_DIM = 6.0
#: Fits of a part that are looked at, at most, and of all parts.
_MOST, _MOST_OF_ALL = 20_000, 100_000


class _Left(NamedTuple):
    """What fits of single spots leave in their residuals."""

    squares: Squares
    #: Above which counts the light of the background is counted.
    level: float
    #: Counts² per count of the light of each, with the noise of the image below it; how many of
    #: these the image has below it that no camera of the given gain has; and its light in counts.
    slopes: NDArray[np.float64]
    spare: NDArray[np.float64]
    light: NDArray[np.float64]


@dataclass
class CameraCheck:
    """What fits say of the camera, of fits that come in parts.

    Parameters
    ----------
    given : Settings
        Those before anything was estimated. If they hold a noise, as those of results do, there
        was a warning before.
    detected : bool
        Whether the spots were detected. At given places there may be none.
    """

    given: Settings
    detected: bool = True
    #: Good fits, and those whose background lies below 0.
    good: int = 0
    dark: int = 0
    #: What fits of single spots leave, of each part.
    left: list[_Left] = field(default_factory=list)
    settings: Settings | None = None
    #: Fits with z, and those whose widths do not go with their calibration.
    located: int = 0
    unlike: int = 0
    #: What they say of σ, and whether any are good.
    width: WidthCheck = field(init=False)
    verdicts: VerdictCheck = field(default_factory=VerdictCheck)
    #: Frames that are the same as those before.
    repeats: FrameRepeats = field(default_factory=FrameRepeats)
    #: χ² per pixel of fits by maximum likelihood with a measured PSF.
    chi: list[NDArray[np.float64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.width = WidthCheck(self.given)

    def add(self, fits: SpotFits) -> None:
        """Look at some fits."""
        self.repeats.add(fits)
        settings = fits.settings
        if self.given.noise is not None or settings is None:
            return
        self.width.add(fits)
        self.verdicts.add(fits)
        if isinstance(settings.model, Calibration) and "z_p_value" in fits:
            self._compare_widths(fits.to_host())
        elif isinstance(settings.model, MeasuredPsf):
            self._compare_images(fits.to_host(), settings)
        # Wide wings take the background down.
        if not settings.profile.name.startswith("gaussian"):
            return
        if settings.gain is None and not settings.offset:
            return
        step = -(-len(fits) // _MOST) or 1
        some = (fits[::step] if step > 1 else fits).to_host()
        good = some.good
        some = some if good.all() else some[good]
        self.settings = settings
        self.good += len(some)
        self.dark += int(np.count_nonzero(_is_below_0(some, settings)))
        enough = sum(len(one.light) for one in self.left) >= _MOST_OF_ALL
        if settings.gain is not None and not enough and (left := _left_by(some)) is not None:
            self.left.append(left)

    def doubts(self) -> str:
        """Return a warning of a gain, offset or σ that the fits contradict; nothing without."""
        of_camera = self._of_calibration() or self._of_gain() or self._of_offset()
        verdict = self.verdicts.doubts() if self.detected else ""
        verdict = verdict or self.verdicts.wide_spots(self.given)
        # Calibrations have a warning of their own.
        if not isinstance(self.given.model, Calibration) and not self._image_contradicts():
            verdict = verdict or self.verdicts.poor_fits()
        of_width = self.width.doubts() or small_roi(self.given, self.verdicts.settings)
        return of_camera or of_width or verdict

    def warn(self) -> None:
        """Warn the caller of doubts, and of frames that were stored twice."""
        for doubts in (self.doubts(), self.repeats.doubts()):
            if doubts:
                warn_caller(doubts)

    def _compare_widths(self, fits: SpotFits) -> None:
        """Count fits whose widths are improbable by the calibration."""
        known = fits.converged & ((fits.flags & int(Flag.WEAK | Flag.NEGATIVE)) == 0)
        beyond = (fits.flags & int(Flag.Z_AT_LIMIT)) != 0
        self.located += int(known.sum())
        self.unlike += int((known & (beyond | (fits.z_p_value < _IMPROBABLE))).sum())

    def _compare_images(self, fits: SpotFits, settings: Settings) -> None:
        """Count fits of single spots whose residual is more than noise, and those beyond."""
        doubtful = Flag.WEAK | Flag.NEGATIVE | Flag.NEIGHBOUR | Flag.EDGE | Flag.SATURATED
        known = fits.converged & ((fits.flags & int(doubtful)) == 0)
        if "group_size" in fits.columns:  # χ² of a joint fit is that of all its spots
            known &= fits.columns["group_size"] == 1
        beyond = fits.converged & ((fits.flags & int(Flag.Z_AT_LIMIT)) != 0)
        self.located += int((known | beyond).sum())
        self.unlike += int((beyond | (known & ((fits.flags & int(Flag.POOR_FIT)) != 0))).sum())
        if settings.gain is not None and settings.estimator_kind.is_likelihood:
            self.chi.append(np.asarray(fits.reduced_chi_square[known], float))

    def _of_calibration(self) -> str:
        chi = np.concatenate(self.chi) if self.chi else np.empty(0)
        poor = len(chi) >= _LEAST_FITS and float(np.median(chi)) > _UNLIKE_CHI
        few = self.located < _LEAST_FITS
        least = self.located if few else _UNLIKE_SPOTS * self.located
        if self.located < _ALL_OF or (self.unlike < least and (few or not poor)):
            return ""
        if isinstance(self.given.model, MeasuredPsf):
            return (
                "most spots do not look like the measured PSF at any z: they may lie beyond its "
                "range, it may be of another pixel size or lens, the image may be mirrored or "
                "turned against the beads', or the gain is another one; z is wrong then, even of "
                "good fits. Show a bead at both ends of z, and calibrate again with the camera as "
                "it is now"
            )
        return (
            f"the widths of {self.unlike / self.located:.0%} of the spots do not go with the "
            "calibration: it may be of another pixel size, lens or orientation of the camera, or "
            "the spots lie beyond its range. Show a bead at both ends of z, and calibrate again "
            "with the camera as it is now"
        )

    def _image_contradicts(self) -> bool:
        """Whether the image shows another gain, or may have: it was warned of before the fits.

        Where all noise of the camera is known, that of the image was compared with it.
        """
        settings = self.verdicts.settings
        camera = None if settings is None else noise_of(settings)
        if settings is None or camera is None or settings.gain is None or settings.noise is None:
            return False
        shown = settings.noise.gain
        if not settings.noise.blocks:
            return True
        return shown is not None and not 1 / UNLIKE < shown / camera.slope < UNLIKE

    def _of_offset(self) -> str:
        if self.settings is None or self.dark < max(_LEAST_DARK, _DARK * self.good):
            return ""
        known = self.settings.offset
        offset = f"offset={known:.4g}" if known else "the offset"
        return (
            f"{self.dark / self.good:.0%} of the good fits have a background below 0, which no "
            f"light has: {offset} is more than the counts that the camera has without light, or "
            "they differ from pixel to pixel. Measure it with the shutter closed; light and "
            "standard errors are wrong by it"
        )

    def _of_gain(self) -> str:
        settings, noise = self.settings, None if self.settings is None else noise_of(self.settings)
        if settings is None or noise is None or not self.left:
            return ""
        of_image = settings.known_noise
        shown, error = of_image.gain, of_image.slope_error
        if shown is not None and not 1 / UNLIKE < shown / noise.slope < UNLIKE:
            return ""  # by the image
        if shown is not None and error is not None and _SHOWN * error < shown:
            return ""  # the image, which knows no shape of spots, agrees
        found = self._contradicting(settings, noise.slope)
        if found is None:
            return ""
        gain, over = settings.gain or 1.0, found / noise.slope
        return (
            f"the light of the fitted spots is {times(over)} times as noisy as that of a camera of "
            f"gain {gain:.4g}: the gain is in counts per electron, not electrons per count, the "
            "offset is the counts without light, and the image should be as the camera took it. "
            f"The fits suggest a gain of {max(over, 0) * gain:.3g}; photons and standard errors go "
            "by the given one"
        )

    def _contradicting(self, settings: Settings, known: float) -> float | None:
        """Return by how much noise grows with light, if it is surely not by what is known.

        Spots have it by their residuals, each weighted by what it shows, if these scatter as noise
        does. Neighbours that are not resolved let them scatter more: then the usual one counts,
        if there is no other witness: neither the image, as it was measured before the fits, nor the
        usual one with the noise that is known where the image is as bright as most of it.
        """
        left, of_image = _joined(self.left), settings.known_noise
        own, by_image = left.squares, of_image.slope_of_spots or of_image.slope
        slope = slope_of(own, of_image.blocks, _SHAPE)
        usual, flat = float(np.median(left.slopes)), float(np.median(own.found / own.rise))
        scatter = SIGMA_PER_MAD * float(np.median(np.abs(left.slopes - usual)))
        enough = len(left.light) >= _LEAST_FITS
        error = scatter * math.sqrt(np.pi / 2 / len(left.light)) if enough else math.inf
        shape = _SHAPE**2 * float(np.median(own.overlap / own.own))
        spare, light = float(np.median(left.spare)), float(np.median(left.light))
        is_dim = float(np.median(own.height)) < _DIM * math.sqrt(own.dark)
        most = 0.0 if is_dim else _most_by_image(settings, left)
        for value, others, unsure, more in (
            (slope.value, (slope.value,), _SURE * slope.error, slope.shape),
            (usual, (by_image, flat), _SURE * error, shape),
        ):
            if min(value - more - unsure, *others, most) > known * UNLIKE:
                return value
            calm = value + spare
            # A deviance is calm where the image seems noisier than it is: the image shows itself.
            is_calm = not settings.estimator_kind.is_likelihood
            is_calm = is_calm and max(calm + unsure, *others) < known / UNLIKE
            if is_calm and light > _FEWEST_ELECTRONS * calm:
                return calm
        return None


def _is_below_0(good: SpotFits, settings: Settings) -> NDArray[np.bool_]:
    """Return which of some good fits have a background that is surely below 0.

    Light of neighbours, and a shape that is not the spot's, take the background down by about as
    much as they leave of pixels in the residual, more than noise does.
    """
    columns = good.columns
    background = columns["background"].astype(float)
    error = np.nan_to_num(columns.get(f"background{STDERR}", np.zeros(len(good))))
    unsure = _DARK_ERRORS * error
    usable = np.ones(len(good), bool)
    if "group_size" in columns:  # a large crowd has hardly any pixels without light
        usable = columns["group_size"] <= _MOST_TOGETHER
    elif settings.neighbours == "ignore":
        usable = (columns["flags"] & np.uint32(Flag.NEIGHBOUR)) == 0
    noise = noise_of(settings) or settings.noise
    if settings.estimator == "lse" and noise is not None:
        flat = len(settings.roi_shape) == 2
        sigma = settings.sigma or FALLBACK_SIGMA
        left = light_left(sigma, settings.roi_shape)[0] if flat else 0.5
        with np.errstate(invalid="ignore", divide="ignore"):
            light = left * columns["photons"].astype(float) * (settings.gain or 1.0)
            degrees = columns["chi_square"] / columns["reduced_chi_square"].astype(float)
            expected = noise.variance(np.maximum(background, 0.0) + settings.offset)
            expected = expected + noise.slope * light / degrees
            more = np.maximum(columns["reduced_chi_square"] - expected, 0.0)
        unsure = unsure + np.sqrt(np.nan_to_num(more))
    below: NDArray[np.bool_] = usable & (background < -unsure)
    return below


def _left_by(good: SpotFits) -> _Left | None:
    """Return what some good fits of single spots leave.

    None where it is not known what noise there is below spots.
    """
    settings = good.settings
    if settings is None or settings.noise is None or settings.sigma is None:
        return None
    noise, camera = settings.noise, noise_of(settings)
    by_likelihood = settings.estimator_kind.is_likelihood
    judged = (settings.estimator == "lse" or by_likelihood) and settings.model == "gaussian"
    if camera is None or noise.is_filtered or not noise.blocks or not judged:
        return None
    columns, gain = good.columns, settings.gain or 1.0
    usable = (columns["flags"] & np.uint32(Flag.NEIGHBOUR | Flag.EDGE | Flag.BAD_PIXELS)) == 0
    if "group_size" in columns:  # χ² of a joint fit is that of all its spots
        usable &= columns["group_size"] == 1
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = columns["chi_square"] / columns["reduced_chi_square"].astype(float)
    usable &= np.isfinite(degrees) & (columns["photons"] > 0)
    if by_likelihood:  # of fewer electrons, deviances are not those of normal noise
        electrons = columns["background"] / gain + (settings.variance or 0.0) / gain**2
        usable &= electrons >= _FEWEST_BELOW
    if not usable.any():
        return None
    chi_square, light, height, below, degrees = (
        values[usable].astype(float)
        for values in (columns["chi_square"], columns["photons"] * gain, columns["amplitude"],
                       columns["background"] + settings.offset, degrees)
    )  # fmt: skip
    left, overlap = light_left(settings.sigma, settings.roi_shape)
    overlapping = overlap * height * light
    if by_likelihood:
        slopes, own = _slopes_by_deviance(settings, chi_square, height, below, degrees)
        chi_square = degrees * noise.variance(below) + slopes * left * light
        overlapping = left * light * light / own  # what a wrong shape adds to the deviance
    if noise.level is None:
        level, dark = float(np.median(below)), noise.variance(below)
        rise = np.zeros(len(below))
    else:  # the noise of a flat image is known there alone
        level, dark = noise.level, noise.variance(noise.level)
        rise = degrees * (below - level)
    squares = Squares(
        chi_square - degrees * dark, left * light + rise, left * light, degrees,
        float(np.median(dark)), overlapping, height,
    )  # fmt: skip
    of_image = noise.variance(below)
    # Where the image seems noisier than the camera, what was measured may be more than noise.
    spare = degrees * np.maximum(of_image - camera.variance(below), 0)
    own = left * light
    slopes = (chi_square - degrees * of_image) / own
    return _Left(squares, level, slopes, spare / own, light)


def _slopes_by_deviance(
    settings: Settings,
    deviance: NDArray[np.float64],
    height: NDArray[np.float64],
    below: NDArray[np.float64],
    degrees: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how fast noise grows with light by the deviances of fits, in counts² per count.

    They are of what the image has below the spots, and of their light; the latter is returned, too,
    as it is of the given camera.
    """
    gain, sigma = settings.gain or 1.0, settings.sigma
    assert sigma is not None
    variance = gain * (below - settings.offset) + (settings.variance or 0.0)
    parts = deviance_parts(sigma, settings.roi_shape, gain * height / variance)
    share = degrees / (parts.below + parts.own)
    more = 1 + gain**2 / (6 * variance)
    of_image = more * settings.known_noise.variance(below) / variance
    own = share * parts.own
    slopes = gain * (deviance - share * parts.below * of_image) / own
    # The image may seem less noisy than it is below spots: no more than all deviance is of light.
    return np.minimum(slopes, gain * deviance / degrees), own


def _joined(parts: list[_Left]) -> _Left:
    """Return what the fits of all parts leave."""
    each = [one.squares for one in parts]
    columns = {
        name: np.concatenate([getattr(one, name) for one in each])
        for name in Squares._fields if name != "dark"
    }  # fmt: skip
    squares = Squares(**columns, dark=float(np.median([one.dark for one in each])))
    level = float(np.median([one.level for one in parts]))
    return _Left(squares, level, *(np.concatenate([one[k] for one in parts]) for k in (2, 3, 4)))


def _most_by_image(settings: Settings, left: _Left) -> float:
    """Return by how much noise grows with light at most: all noise of the image is that of light.

    Residuals have more where there are neighbours that are not resolved.
    """
    light = left.level - settings.offset
    return _MOST_OF_IMAGE * left.squares.dark / light if light > 0 else math.inf


def warn_of_camera(given: Settings, fits: SpotFits, *, detected: bool = True) -> None:
    """Warn the caller of a gain or an offset that fits contradict."""
    check = CameraCheck(given, detected)
    check.add(fits)
    check.warn()
