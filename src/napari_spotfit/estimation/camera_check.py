"""Compare what was said of the camera and of σ with what the fits show of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.flags import Flag
from ..images.arrays import to_host
from ..models.calibration import Calibration
from ..models.columns import STDERR
from ..models.measured_psf import MeasuredPsf
from ..results.spot_fits import SpotFits
from ..settings.noise_model import UNLIKE
from ..settings.settings import Settings, noise_of
from .noise_line import SIGMA_PER_MAD
from .psf_width import FALLBACK_SIGMA
from .spot_noise import light_left
from .width_check import WidthCheck

#: The share of good fits whose background may lie below 0; by how many standard errors a background
#: must do so to count; and the least number of such fits.
_DARK, _DARK_ERRORS, _LEAST_DARK = 0.05, 3.0, 3
#: Fits that show the photon noise, at least, and how many of its standard errors it must be off.
_LEAST_FITS, _SURE = 10, 3.0
#: An image shows its gain where that is this many times its standard error.
_SHOWN = 4.0
#: χ² of spots with fewer electrons is skewed: half of them have much less than its mean.
_FEWEST_ELECTRONS = 200.0
#: A spot's shape may be off by this fraction of its height, which is no noise.
_SHAPE = 0.05
#: Spots that go with their calibration are seldom less probable; the share of others at most; and
#: χ² per pixel by maximum likelihood of half of the spots, if they look like their PSF.
_IMPROBABLE, _UNLIKE_SPOTS, _UNLIKE_CHI = 1e-3, 0.5, 1.35
#: Of fewer fits than show a share, all must be unlike their calibration, this many at least.
_ALL_OF = 3
#: Fits of a part that are looked at, at most.
_MOST = 20_000


@dataclass
class CameraCheck:
    """What fits say of the camera, of fits that come in parts.

    Parameters
    ----------
    given : Settings
        Those before anything was estimated. If they hold a noise, as those of results do, there
        was a warning before.
    """

    given: Settings
    #: Good fits, and those whose background lies below 0.
    good: int = 0
    dark: int = 0
    #: Counts² per count that the light of single spots has, by fits: at least, and at most; and
    #: their light in counts.
    slopes: list[NDArray[np.float64]] = field(default_factory=list)
    settings: Settings | None = None
    #: Fits with z, and those whose widths do not go with their calibration.
    located: int = 0
    unlike: int = 0
    #: What they say of σ.
    width: WidthCheck = field(init=False)
    #: χ² per pixel of fits by maximum likelihood with a measured PSF.
    chi: list[NDArray[np.float64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.width = WidthCheck(self.given)

    def add(self, fits: SpotFits) -> None:
        """Look at some fits."""
        settings = fits.settings
        if self.given.noise is not None or settings is None:
            return
        self.width.add(fits)
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
        some = fits[::step].to_host()
        some = some[to_host(some.good)]
        self.settings = settings
        self.good += len(some)
        self.dark += int(np.count_nonzero(_is_below_0(some, settings)))
        if settings.gain is not None:
            self.slopes.append(_slopes(some))

    def doubts(self) -> str:
        """Return a warning of a gain, offset or σ that the fits contradict; nothing without."""
        return self._of_calibration() or self._of_gain() or self._of_offset() or self.width.doubts()

    def warn(self) -> None:
        """Warn the caller of doubts."""
        if doubts := self.doubts():
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
        found = np.concatenate([np.empty((3, 0)), *self.slopes], axis=1)
        noise = None if self.settings is None else noise_of(self.settings)
        if self.settings is None or noise is None or found.shape[1] < _LEAST_FITS:
            return ""
        shown, error = self.settings.known_noise.gain, self.settings.known_noise.slope_error
        if shown is not None and not 1 / UNLIKE < shown / noise.slope < UNLIKE:
            return ""  # by the image
        if shown is not None and error is not None and _SHOWN * error < shown:
            return ""  # the image, which knows no shape of spots, agrees
        least, most, light = np.median(found, axis=1)
        scatter = SIGMA_PER_MAD * np.median(np.abs(found[0] - least))
        unsure = _SURE * scatter * math.sqrt(np.pi / 2 / found.shape[1])
        too_noisy = least - unsure > noise.slope * UNLIKE
        too_calm = most + unsure < noise.slope / UNLIKE and light > _FEWEST_ELECTRONS * most
        if not (too_noisy or too_calm):
            return ""
        gain, over = self.settings.gain or 1.0, (least if too_noisy else most) / noise.slope
        return (
            f"the light of the fitted spots is {over:.2g} times as noisy as that of a camera of "
            f"gain {gain:.4g}: the gain is in counts per electron, not electrons per count, the "
            "offset is the counts without light, and the image should be as the camera took it. "
            f"The fits suggest a gain of {max(over, 0) * gain:.3g}; photons and standard errors go "
            "by the given one"
        )


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
    if settings.neighbours == "ignore":
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


def _slopes(good: SpotFits) -> NDArray[np.float64]:
    """Return the counts² per count that the light of each of some good fits has.

    It is what χ² has more than the noise of the pixels below the spot, over what of the spot's own
    noise the fit leaves; at least, if its shape is off, and at most. Last is its light in counts.
    """
    settings = good.settings
    nothing = np.empty((3, 0))
    if settings is None or settings.noise is None or settings.sigma is None:
        return nothing
    noise, camera = settings.noise, noise_of(settings)
    judged = settings.estimator == "lse" and settings.model == "gaussian"
    if camera is None or noise.is_filtered or not noise.blocks or not judged:
        return nothing
    columns, gain = good.columns, settings.gain or 1.0
    left, _ = light_left(settings.sigma, settings.roi_shape)
    light = columns["photons"].astype(float) * gain
    height = columns["amplitude"].astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        degrees = columns["chi_square"] / columns["reduced_chi_square"].astype(float)
    below = noise.variance(columns["background"] + settings.offset)
    slopes = (columns["chi_square"] - degrees * below) / (left * light)
    alone = (columns["flags"] & np.uint32(Flag.NEIGHBOUR | Flag.EDGE | Flag.BAD_PIXELS)) == 0
    if "group_size" in columns:  # χ² of a joint fit is that of all its spots
        alone &= columns["group_size"] == 1
    usable = alone & np.isfinite(slopes)
    of_shape = _SHAPE**2 / 2 / left * height
    # Where the image seems noisier than the camera, what was measured may be more than noise.
    expected = camera.variance(columns["background"] + settings.offset)
    spare = np.maximum(degrees * (below - expected), 0) / (left * light)
    return np.stack([slopes - of_shape, slopes + spare, light])[:, usable]


def warn_of_camera(given: Settings, fits: SpotFits) -> None:
    """Warn the caller of a gain or an offset that fits contradict."""
    check = CameraCheck(given)
    check.add(fits)
    check.warn()
