"""Say so where hardly any fit is good, if that is for the settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..engine.flags import RULES, Flag, main_reasons
from ..images.arrays import to_host
from ..models.estimators import StopCondition
from ..results.spot_fits import SpotFits

#: Fits at least, and the share of good ones at most.
_LEAST_FITS, _GOOD = 30, 0.1
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


@dataclass
class VerdictCheck:
    """How many fits are good, and what is wrong with the others, of fits that come in parts."""

    fits: int = 0
    good: int = 0
    invalid: int = 0
    reasons: Counter[Flag] = field(default_factory=Counter)

    def add(self, fits: SpotFits) -> None:
        """Look at some fits."""
        good = int(fits.good.sum())
        self.fits += len(fits)
        self.good += good
        if not self.good > _GOOD * self.fits:
            self.reasons.update(main_reasons(to_host(fits.flags)))
            self.invalid += int((fits.stop_condition == int(StopCondition.INVALID)).sum())

    def doubts(self) -> str:
        """Return a warning where hardly any fit is good; nothing otherwise."""
        if self.fits < _LEAST_FITS or self.good > _GOOD * self.fits:
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
