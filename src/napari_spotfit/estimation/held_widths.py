"""Compare widths that fits cannot change with those that spots have in fits which can.

A width that is fixed, or that of stacks so thin that all fits hold it, contradicts no fit: photons
are wrong by it, and the fits look good. A few spots are fitted with free widths instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.fit_job import FitJob
from ..engine.flags import HELD_PLANES, Flag
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration
from ..models.columns import STDERR
from ..settings.settings import Settings
from .psf_width import FALLBACK_SIGMA, FALLBACK_SIGMA_Z
from .width_check import WIDTH_DOUBTS, contradicted
from .width_samples import Sample, samples
from .width_search import WidthSearch

#: Models whose widths are those along the axes.
_MODELS = ("gaussian", "gaussian_elliptical", "gaussian_3d", "gaussian_3d_elliptical")
#: The largest standard error of a width that counts, as a fraction of it; spots at least, and
#: enough of them.
_WORST, _LEAST, _ENOUGH = 0.1, 10, 30
#: By which fractions most spots must be wider, and narrower; the first in a crowd, where spots that
#: are fitted one by one are wider; and the share of spots with neighbours that makes one.
_WIDER, _NARROWER, _WIDER_IN_CROWDS, _CROWDED = 0.12, 0.1, 0.45, 0.5
#: How far half of the widths may be from each other, as a fraction.
_ALIKE = 0.2


class _FreeFits(WidthSearch):
    """Fits of the spots in a sample with no width fixed or held."""

    def __init__(self, sample: Sample, calibration: PixelCalibration) -> None:
        super().__init__(sample, calibration, None)
        self._settings = self._settings.changed(model=self._known.model)

    def widths(self, name: str) -> tuple[NDArray[np.float64], float]:
        """Return the widths of single spots, and the share of spots that have neighbours."""
        known = self._known
        sigma = known.sigma or FALLBACK_SIGMA
        sigma_z = known.sigma_z or FALLBACK_SIGMA_Z if known.dimensions > 2 else None
        fits, real = self._fits(sigma, sigma_z)
        width, error = fits[name].astype(float), fits[name + STDERR].astype(float)
        alone = real & ((fits["flags"] & int(WIDTH_DOUBTS)) == 0)
        with np.errstate(invalid="ignore"):
            usable = alone & (error < _WORST * width)
        neighbours = (fits["flags"] & int(Flag.NEIGHBOUR)) != 0
        return width[usable], float(neighbours.mean()) if len(neighbours) else 0.0

    def _job(self, calibration: PixelCalibration) -> FitJob:
        job = super()._job(calibration)
        return job if job.sigma_z is None else replace(job, sigma_z=None)


def held_widths(given: Settings, depth: int | None) -> Mapping[str, float]:
    """Return the widths that most fits cannot change.

    Parameters
    ----------
    given : Settings
        Those before anything was estimated.
    depth : int or None
        The planes of a stack.

    Examples
    --------
    >>> held_widths(Settings(fixed={"sigma": 1.5}), None)
    {'sigma': 1.5}
    >>> held_widths(Settings(model="gaussian_3d", sigma_z=5), 24)
    {'sigma_z': 5.0}
    """
    if given.profile.name not in _MODELS:
        return {}
    fixed = {name: given.fixed.get(name) for name in given.profile.widths}
    found = {name: value for name, value in fixed.items() if value is not None}
    sigma_z = given.sigma_z
    is_thin = depth is not None and sigma_z is not None and depth <= 2 * HELD_PLANES * sigma_z
    if sigma_z is not None and is_thin and "sigma_z" not in found:
        found["sigma_z"] = sigma_z
    return found


def held_width_doubts(
    reader: FrameReader,
    calibration: PixelCalibration,
    given: Settings,
    places: NDArray[np.float64] | None = None,
) -> str:
    """Return a warning of widths that were fixed, or are held, and that the spots do not have.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        Its pixels, with all that was estimated.
    given : Settings
        Those before anything was estimated. If they hold a noise, as those of results do, there
        was a warning before.
    places : ndarray, shape (n, 1 + axes), optional
        Number of the frame, and the position in it, of the spots.
    """
    settings, shape = calibration.settings, reader.frame_shape
    names = held_widths(given, shape[0] if len(shape) > 2 else None)
    noise = settings.noise
    if given.noise is not None or not names or (noise is not None and noise.is_filtered):
        return ""
    if places is not None and not len(places):
        return ""
    numbers = np.arange(reader.count) if reader.held is None else np.array([reader.held])
    if places is not None:
        numbers = np.unique(places[:, 0]).astype(np.int64)
    widths: Mapping[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    crowded = 0.0
    for sample in samples(reader, calibration, numbers, places=places):
        search = _FreeFits(sample, calibration)
        for name in names:
            own, crowded = search.widths(name)
            widths[name].append(own)
        if all(len(own[-1]) >= _ENOUGH for own in widths.values()):
            break
    wider = _WIDER if crowded < _CROWDED else _WIDER_IN_CROWDS
    for name, value in names.items():
        best = max(widths[name], key=len, default=np.empty(0))
        middle = contradicted(
            best, value, is_sampled=given.pixel == "sampled", limits=(wider, _NARROWER),
            least=_LEAST, alike=_ALIKE,
        )  # fmt: skip
        if middle is not None:
            return _in_words(name, value, middle, is_fixed=name in given.fixed)
    return ""


def warn_of_held_widths(
    reader: FrameReader,
    calibration: PixelCalibration,
    given: Settings,
    places: NDArray[np.float64] | None = None,
) -> None:
    """Warn the caller of doubts about widths that fits cannot change."""
    if doubts := held_width_doubts(reader, calibration, given, places):
        warn_caller(doubts)


def _in_words(name: str, value: float, middle: float, *, is_fixed: bool) -> str:
    unit = "planes" if name == "sigma_z" else "px"
    what = f"fixed at {value:.4g} {unit}" if is_fixed else f"given as {value:.4g} {unit}"
    why = "" if is_fixed else ", which spots near an end of the stack have, here most of them"
    give = f"Fix {name} at {middle:.3g}" if is_fixed else f"Give {name}={middle:.3g}"
    leave = f"leave {name} out of fixed" if is_fixed else "leave it empty"
    more = f"{abs(middle / value - 1):.0%} {'wider' if middle > value else 'narrower'}"
    return (
        f"{name} was {what}{why}, and the spots have {middle:.3g} {unit} where it is free, {more}: "
        f"photons and standard errors are wrong by it. {give}, or {leave}"
    )
