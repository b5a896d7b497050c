"""Say so where hardly any fit is good, or most good ones are poor, if that is for the settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import RULES, Flag, main_reasons
from ..images.arrays import to_host
from ..models.columns import GROUP_SIZE, IN_PLANE
from ..models.estimators import StopCondition
from ..results.spot_fits import SpotFits
from ..settings.noise_model import excess_of
from ..settings.settings import Settings

#: Fits at least, and the share of good ones at most.
_LEAST_FITS, _GOOD = 30, 0.1
#: Good fits of spots that stand alone, at least, and which share of them are poor ones; and the
#: share where the noise is the image's own, or of all good ones that were fitted together where
#: most do not stand alone: light of neighbours is left in crowds, and texture is no spot.
_LEAST_GOOD, _MOST_POOR, _NEARLY_ALL_POOR = 20, 0.5, 0.85
#: Fits at least, the share of good ones at most, and of those that are wider than a given σ allows.
_FEW, _HARDLY_GOOD, _MOST_WIDE = 5, 0.2, 0.6
#: The read-out noise in photo-electrons that a camera may have without saying so.
_READ_OUT = 3.0
#: Reasons that lie in the settings; with others, as of noise and of lines, there may be no spots.
_BY_SETTINGS = (
    Flag.NOT_CONVERGED | Flag.AT_BOUND | Flag.BLOB | Flag.GROUP_NOT_SETTLED | Flag.ELONGATED
)
_INVALID = (
    "INVALID: too few pixels in their ROIs count, as of NaN, bad pixels and neighbours, or all of "
    "them have one value. Choose a larger ROI or a model of fewer parameters, or leave out what "
    "has no data"
)
_LONG = (
    'ELONGATED. Fit model="gaussian_elliptical" if spots are longer than wide; lines are no spots: '
    "exclude them, or subtract the local background to find spots on them"
)


def _by_read_out(fits: SpotFits) -> NDArray[np.bool_]:
    """Return which deviances a read-out noise may explain that was not given."""
    settings = fits.settings
    if settings is None or settings.variance is not None:
        return np.zeros(len(fits), bool)
    if settings.gain is None or not settings.estimator_kind.is_likelihood:
        return np.zeros(len(fits), bool)
    chi, background = (
        to_host(fits.columns[name]).astype(float) for name in ("reduced_chi_square", "background")
    )
    with np.errstate(invalid="ignore"):
        more = (chi / excess_of(settings.emccd) - 1) * background / settings.gain
        found: NDArray[np.bool_] = more < _READ_OUT**2
    return found


@dataclass
class VerdictCheck:
    """How many fits are good, and what is wrong with the others, of fits that come in parts."""

    fits: int = 0
    good: int = 0
    invalid: int = 0
    reasons: Counter[Flag] = field(default_factory=Counter)
    #: Good fits that are poor, those of spots that stand alone, and the poor ones of these.
    poor: int = 0
    alone: int = 0
    poor_alone: int = 0
    #: Fits of spots that do not.
    beside: int = 0
    #: Whether spots that overlap were fitted together.
    is_joint: bool = False
    #: The settings of the last ones.
    settings: Settings | None = None

    def add(self, fits: SpotFits) -> None:
        """Look at some fits."""
        is_good, flags = to_host(fits.good), to_host(fits.flags)
        good = int(is_good.sum())
        self.fits += len(fits)
        self.good += good
        self.settings = fits.settings
        if not self.good > _HARDLY_GOOD * self.fits:
            self.reasons.update(main_reasons(flags))
            self.invalid += int((fits.stop_condition == int(StopCondition.INVALID)).sum())
        poor = is_good & ((flags & int(Flag.POOR_FIT)) != 0) & ~_by_read_out(fits)
        alone = (flags & int(Flag.NEIGHBOUR)) == 0
        if GROUP_SIZE in fits.columns:
            self.is_joint = True
            alone &= to_host(fits.columns[GROUP_SIZE]) == 1
        self.beside += int(np.count_nonzero(~alone))
        alone &= is_good
        self.alone += int(alone.sum())
        self.poor += int(poor.sum())
        self.poor_alone += int((poor & alone).sum())

    def doubts(self) -> str:
        """Return a warning where hardly any fit is good; nothing otherwise."""
        if self.fits < _LEAST_FITS or self.good > _GOOD * self.fits or not self.reasons:
            return ""
        ((flag, count),) = self.reasons.most_common(1)
        if not flag & _BY_SETTINGS or count < self.fits / 2:
            return ""
        reason = f"{flag.name}. {RULES[flag].advice}"
        if flag == Flag.NOT_CONVERGED and self.invalid > count / 2:
            count, reason = self.invalid, _INVALID
        elif flag == Flag.ELONGATED:
            reason = _LONG
        return f"only {self.good:,} of {self.fits:,} fits are good, as {count:,} are {reason}"

    def wide_spots(self, given: Settings) -> str:
        """Return a warning where nearly all spots are far wider than the σ that was given."""
        wide = self.reasons[Flag.WIDE]
        is_few = self.fits < _FEW or self.good > _HARDLY_GOOD * self.fits
        if given.sigma is None or is_few or wide < _MOST_WIDE * self.fits:
            return ""
        return (
            f"{wide:,} of {self.fits:,} fits are wider than twice the σ that was given, "
            f"{given.sigma:.4g} px, and {self.good:,} are good: if these are spots, leave sigma "
            "empty, or give theirs, and a roi_size of 6 σ or none"
        )

    def poor_fits(self) -> str:
        """Return a warning where the residuals of most good fits exceed noise."""
        settings, poor, of_all = self.settings, self.poor_alone, self.alone
        # Planes of stacks may be corrected, and have other noise than the camera.
        if settings is None or settings.dimensions > len(IN_PLANE):
            return ""
        least = _NEARLY_ALL_POOR if settings.gain is None else _MOST_POOR
        if of_all < max(_LEAST_GOOD, self.good / 2) and self.is_joint:
            poor, of_all, least = self.poor, self.good, _NEARLY_ALL_POOR
        is_unsure = settings.gain is None and (
            self.beside > self.fits / 2 or of_all < max(_LEAST_FITS, self.fits / 2)
        )
        if is_unsure or of_all < _LEAST_GOOD or poor < least * of_all:
            return ""
        return (
            f"{poor:,} of {of_all:,} good fits are POOR_FIT: more than noise is left of their "
            f"spots, so that photons, widths and standard errors may be wrong. "
            f"{self._likely(settings)}"
        )

    def _likely(self, settings: Settings) -> str:
        """Say what is likely the reason why fits are poor."""
        causes = []
        fixed = [name for name in settings.fixed if name in settings.profile.widths]
        if fixed:
            given = ", ".join(f"{name}={settings.fixed[name]:.4g}" for name in fixed)
            causes.append(f"the fixed {given} is not that of the spots (leave it out of fixed)")
        if settings.gain is not None:
            causes.append(
                f"the camera has another gain than {settings.gain:.4g} counts per electron, or "
                "another offset or read-out variance (leave the gain empty if you do not know it)"
            )
        long = ', as they are longer than wide (try model="gaussian_elliptical"), or out of focus'
        shape = f"the spots do not look like the model {settings.profile.name}"
        causes.append(shape + long * (settings.profile.name == "gaussian"))
        return f"Likely {', or '.join(causes)}. The residuals show it"
