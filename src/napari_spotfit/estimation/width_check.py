"""Compare the σ that was given with that of spots that stand alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import NOT_GOOD, Flag
from ..models.columns import GROUP_SIZE, STDERR
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings
from .noise_line import SIGMA_PER_MAD

#: Spots at least, and the largest standard error of a width that counts, as a fraction of it: dim
#: spots are fitted too narrow.
_LEAST_FITS, _WORST = 10, 0.1
#: By which fraction, and how many standard errors, most widths must be off, and by which fraction
#: three quarters of them: where spots are out of focus, some are wider.
_OFF, _SURE = 0.1, 5.0
#: The share of spots that overlap from which on σ counts.
_CROWDED = 0.1
#: Where σ only finds spots and judges them, by which fraction three quarters of the widths must be
#: wider or narrower, and how far half of them may be from each other: short rods, and pairs that
#: are not resolved, are wider than points.
_FAR_WIDER, _FAR_NARROWER, _ALIKE = 0.35, 0.2, 0.15
#: The same where many spots agree as points do: of so many, half within this fraction of each
#: other, the median is off by the third fraction, and by so many errors.
_MANY, _AGREE, _SLIGHTLY, _SURELY = 30, 0.1, 0.06, 6.0
#: Fits of a part that are looked at, at most.
_MOST = 20_000
_DOUBTS = (NOT_GOOD | Flag.NEIGHBOUR | Flag.EDGE | Flag.POOR_FIT | Flag.BAD_PIXELS) & ~(
    Flag.WIDE | Flag.NARROW
)


@dataclass
class WidthCheck:
    """What fits say of the σ that was given, of fits that come in parts.

    Parameters
    ----------
    given : Settings
        Those before anything was estimated.
    """

    given: Settings
    #: The widths of good spots that stand alone.
    widths: list[NDArray[np.float64]] = field(default_factory=list)
    #: How many fits there are, and how many of them of spots that overlap.
    fits: int = 0
    overlapping: int = 0

    def add(self, fits: SpotFits) -> None:
        """Look at some fits."""
        given, columns = self.given, fits.columns
        if given.sigma is None:
            return
        needed = "sigma", "sigma" + STDERR
        if given.profile.name != "gaussian" or given.fixed or given.bounds:
            return
        if not all(name in columns for name in needed):
            return
        noise = None if fits.settings is None else fits.settings.noise
        if noise is not None and noise.is_filtered:  # spots are fitted one by one
            return
        step = -(-len(fits) // _MOST) or 1
        some = (fits[::step] if step > 1 else fits).to_host()
        width, error = (some.columns[name] for name in needed)
        size = some.columns.get(GROUP_SIZE, np.ones(len(some), np.int32))
        with np.errstate(invalid="ignore"):
            is_sure = error < _WORST * width
        self.fits += len(some)
        self.overlapping += int((size > 1).sum())
        alone = (size == 1) & ((some.flags & int(_DOUBTS)) == 0)
        self.widths.append(np.asarray(width[alone & is_sure], float))

    def doubts(self) -> str:
        """Return a warning of a σ that lone spots contradict; nothing without."""
        widths = np.concatenate(self.widths) if self.widths else np.empty(0)
        if len(widths) < _LEAST_FITS:
            return ""
        assert self.given.sigma is not None
        is_crowded = self.overlapping >= _CROWDED * self.fits
        low, middle, high = np.percentile(widths, [25, 50, 75]).tolist()
        scatter = SIGMA_PER_MAD * float(np.median(abs(widths - middle)))
        error = scatter * math.sqrt(math.pi / 2 / len(widths))
        unsure = _SURE * error
        wider, narrower = (_OFF, _OFF) if is_crowded else (_FAR_WIDER, _FAR_NARROWER)
        least = most = self.given.sigma
        if self.given.pixel == "sampled":
            most = math.sqrt(most**2 + 1 / 12)  # it may be that of the light
        agree = len(widths) >= _MANY and high - low < _AGREE * middle
        surely, slightly = _SURELY * error, _SLIGHTLY if agree else math.inf
        is_off = (
            middle - max(surely, slightly * most) > most
            or middle + max(surely, slightly * least) < least
        )
        is_wider = low > (1 + wider) * most and middle - unsure > most
        is_narrower = high < (1 - narrower) * least and middle + unsure < least
        may_be_points = is_crowded or high - low < _ALIKE * middle
        if not is_off and not ((is_wider or is_narrower) and may_be_points):
            return ""
        matters = (
            "where spots overlap, what is another width may be taken for more or fewer of them"
            if is_crowded
            else "spots are found, and fits are judged, by the given one"
        )
        return (
            f"σ was given as {self.given.sigma:.4g} px, and spots that stand alone have "
            f"{middle:.3g} px: {matters}. Give sigma={middle:.3g} if these are points, or leave it "
            "empty"
        )
