"""Compare the widths that were given with those of spots that stand alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import NOT_GOOD, Flag
from ..models.columns import GROUP_SIZE, STDERR
from ..results.spot_fits import SpotFits
from ..settings.bounds import roi_for
from ..settings.settings import Settings
from ..settings.validation import ROI_LARGEST
from .noise_line import SIGMA_PER_MAD

#: Spots at least, of images and of stacks, and the largest standard error of a width that counts,
#: as a fraction of it: dim spots are fitted too narrow.
_LEAST_FITS, _LEAST_IN_STACKS, _WORST = 10, 5, 0.1
#: By which fraction, and how many standard errors, most widths must be off, and by which fraction
#: three quarters of them: where spots are out of focus, some are wider.
_OFF, _SURE = 0.1, 5.0
#: The share of spots that overlap from which on σ counts.
_CROWDED = 0.1
#: Where σ only finds spots and judges them, by which fraction three quarters of the widths must be
#: wider or narrower, and how far half of them may be from each other: short rods, and pairs that
#: are not resolved, are wider than points.
_FAR_WIDER, _FAR_NARROWER, _ALIKE = 0.35, 0.2, 0.15
#: Where this many spots agree as points do, half within a fraction of each other, a median counts
#: that is off by the third number, a fraction, and by the last one, in errors.
_MANY, _AGREE, _SLIGHTLY, _SURELY = 30, 0.1, 0.06, 6.0
#: The least side of a ROI, in σ: of smaller ones, light is 0.3 to 2 times as much as there is.
_LEAST_ROI = 2.5
#: Fits of a part that are looked at, at most.
_MOST = 20_000
#: What speaks against a spot whose width counts.
WIDTH_DOUBTS = (NOT_GOOD | Flag.NEIGHBOUR | Flag.EDGE | Flag.POOR_FIT | Flag.BAD_PIXELS) & ~(
    Flag.WIDE | Flag.NARROW
)
#: The widths that models of spots in planes and in volumes have in common with the settings.
_GIVEN = {"gaussian": ("sigma",), "gaussian_3d": ("sigma", "sigma_z")}


def contradicted(
    widths: NDArray[np.float64],
    given: float,
    *,
    is_sampled: bool,
    limits: tuple[float, float] = (_OFF, _OFF),
    least: int = _LEAST_FITS,
    alike: float = math.inf,
    slightly: float = math.inf,
) -> float | None:
    """Return the width of most spots if it is surely not the one that was given.

    Parameters
    ----------
    widths : ndarray
        Those of spots that stand alone.
    given : float
        The one they are compared with.
    is_sampled : bool
        Whether the profile is sampled: the width given may be that of the light then.
    limits : (float, float)
        By which fractions three quarters must be wider, or narrower.
    least : int
        How many spots there must be at least.
    alike : float
        How far half of them may be from each other, as a fraction.
    slightly : float
        By which fraction the median is off at least where many spots agree as points do.
    """
    if len(widths) < least:
        return None
    low, middle, high = np.percentile(widths, [25, 50, 75]).tolist()
    scatter = SIGMA_PER_MAD * float(np.median(abs(widths - middle)))
    error = scatter * math.sqrt(math.pi / 2 / len(widths))
    unsure = _SURE * error
    wider, narrower = limits
    most = math.sqrt(given**2 + 1 / 12) if is_sampled else given
    if len(widths) >= _MANY and high - low < _AGREE * middle:
        off = max(middle - most, given - middle)
        if off > max(_SURELY * error, slightly * given):
            return float(middle)
    is_wider = low > (1 + wider) * most and middle - unsure > most
    is_narrower = high < (1 - narrower) * given and middle + unsure < given
    if not (is_wider or is_narrower) or not high - low < alike * middle:
        return None
    return float(middle)


@dataclass
class WidthCheck:
    """What fits say of the widths that were given, of fits that come in parts.

    Parameters
    ----------
    given : Settings
        Those before anything was estimated.
    """

    given: Settings
    #: The widths of good spots that stand alone, by their names.
    widths: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    #: How many fits there are, and how many of them of spots that overlap.
    fits: int = 0
    overlapping: int = 0

    def add(self, fits: SpotFits) -> None:
        """Look at some fits."""
        given, columns = self.given, fits.columns
        names = [
            name for name in _GIVEN.get(given.profile.name, ())
            if getattr(given, name) is not None and name in columns and name + STDERR in columns
        ]  # fmt: skip
        if not names or given.fixed or given.bounds:
            return
        noise = None if fits.settings is None else fits.settings.noise
        if noise is not None and noise.is_filtered:  # spots are fitted one by one
            return
        step = -(-len(fits) // _MOST) or 1
        some = (fits[::step] if step > 1 else fits).to_host()
        size = some.columns.get(GROUP_SIZE, np.ones(len(some), np.int32))
        self.fits += len(some)
        self.overlapping += int((size > 1).sum())
        for name in names:
            doubts = int(WIDTH_DOUBTS | (Flag.SIGMA_Z_HELD if name == "sigma_z" else Flag(0)))
            width, error = some.columns[name], some.columns[name + STDERR]
            with np.errstate(invalid="ignore"):
                usable = (error < _WORST * width) & (size == 1) & ((some.flags & doubts) == 0)
            self.widths.setdefault(name, []).append(np.asarray(width[usable], float))

    def doubts(self) -> str:
        """Return a warning of widths that lone spots contradict; nothing without."""
        return next(filter(None, map(self._doubts_of, self.widths)), "")

    def _doubts_of(self, name: str) -> str:
        is_crowded = self.overlapping >= _CROWDED * self.fits
        given = float(getattr(self.given, name))
        is_deep = len(self.given.profile.axes) > 2
        middle = contradicted(
            np.concatenate(self.widths[name]), given,
            is_sampled=self.given.pixel == "sampled",
            limits=(_OFF, _OFF) if is_crowded else (_FAR_WIDER, _FAR_NARROWER),
            least=_LEAST_IN_STACKS if is_deep else _LEAST_FITS,
            alike=math.inf if is_crowded else _ALIKE,
            slightly=math.inf if is_deep else _SLIGHTLY,
        )  # fmt: skip
        if middle is None:
            return ""
        matters = "spots are found, and fits are judged, by the given one"
        if is_crowded and not is_deep:
            matters = (
                "where spots overlap, what is another width may be taken for more or fewer of them"
            )
        elif name == "sigma_z":
            matters += ", and spots near an end of the stack have it"
        word, unit = ("σz", "planes") if name == "sigma_z" else ("σ", "px")
        return (
            f"{word} was given as {given:.4g} {unit}, and spots that stand alone have "
            f"{middle:.3g} {unit}: {matters}. Give {name}={middle:.3g} if these are points, or "
            "leave it empty"
        )


def small_roi(given: Settings, settings: Settings | None) -> str:
    """Return a warning of a ROI that was given and holds hardly half of a spot's width.

    Parameters
    ----------
    given, settings : Settings
        Those before anything was estimated, and those of the fits.
    """
    if given.roi_size is None or settings is None or settings.sigma is None:
        return ""
    sides, sigma = settings.roi_shape[-2:], settings.sigma
    is_gaussian = settings.profile.name in (*_GIVEN, "gaussian_elliptical")
    if not is_gaussian or "sigma" in settings.fixed or min(sides) >= _LEAST_ROI * sigma:
        return ""
    right = roi_for(sigma, (ROI_LARGEST, ROI_LARGEST))
    return (
        f"a ROI of {'×'.join(map(str, sides))} px is small for spots of σ {sigma:.3g} px: it has "
        f"too little of their slopes and background, and photons and widths may be wrong by half. "
        f"Leave roi_size empty, or give about {right}"
    )
