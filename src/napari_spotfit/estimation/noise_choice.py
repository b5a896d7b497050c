"""Decide what the noise is where fine detail does not look like a camera's, and why it does not.

Calm pixels separate sharp spots from filters there, and there is the band that spots are looked for
in: where its noise is other than that of fine detail, it counts, by brightness.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.filtered_noise import light_of
from ..settings.noise_model import SURE, NoiseModel, Process
from .band_noise import (
    USUAL_SHARE,
    WORSE_SHARE,
    BandAreas,
    BandNoise,
    some_parts,
)
from .band_passed import is_band_passed
from .calm_pixels import CalmNoise, calm_noise
from .denoised import looks_denoised
from .photon_transfer import MOST_SCATTER, FineDetail
from .pixel_values import (
    is_cut_off,
    is_rounded_away,
    mosaic_period,
    times_enlarged,
    usual_is_lowest,
)
from .raw_detail import (
    ALIKE,
    FEW_BLOCKS,
    TAIL_OF_NOISE,
    WHITE,
    is_all_noise,
    is_amplified,
    is_surely_blue,
    is_usual,
)

Numbers = NDArray[np.float64]

#: Sharp spots have at least this many times as much detail along one axis as along both; calm
#: pixels count where they have less than this share of the variance that fine detail says.
_SHARP, _CALMER = 1.5, 0.8
#: Beside spots of σ 0.6 px and more, the logarithm of fine detail scatters by more than this only
#: where there is many times as much along one axis as along both (10⁵ photons: 1.96, 27 times).
_PATCHY, _PATCHES, _NOT_WHITE = 1.1, 6.0, 1.2
#: With this ratio there is so little fine detail that how it scatters shows nothing.
_NOTHING_FINE = 100.0
#: Rounding shows nothing where noise has this deviation, in steps between values, or more.
_STEPS = 0.5
#: Noise of fewer steps than this is mostly that of few counts, or of rounding.
_IN_STEPS = 0.8
#: A filter with less than this ratio of detail along one axis to that along both leaves at least
#: one part in this many of the noise in fine detail.
_WEAK, _MOST_OF_WEAK = 2.5, 12.0
#: Denoised calm pixels have less than one part in this many of the band's variance.
_BESIDE_DENOISED = 4.0
_TINY = float(np.finfo(float).tiny)
#: The deviation in the band of spots over the usual light, from which on it is no noise: of crowds
#: of 3 to 12 spots in 100 px² it is 1.4 and more, of blurred noise 1.1 and less.
_MORE_THAN_LIGHT = 1.2
#: Blurred noise of a photon in a pixel or less has more than this. In the band it has more variance
#: than this over calm pixels (1.6 and more); beside spots it is 1.3 times at most. Calm pixels
#: have no noise of their own where the usual one is closer to the darkest, in deviations.
_FEW_PHOTONS, _BESIDE_PHOTONS, _IN_THE_DARK = 0.9, 1.5, 0.2
#: As wide as this, over the PSF, the light of these crowds seems to be: 0.93 to 1.16 times; that of
#: crowds that were blurred is 0.69 to 0.83 times as wide. With less than this variance in steps
#: between values, or less noise than this many times what spots have along both axes, it may be
#: that of a filter.
_AS_WIDE, _ROUNDED, _MORE_THAN_SPOTS = (0.87, 1.3), 0.25, 1.25
#: The light of spots has more variance than fine detail, and varies by more than the usual light:
#: the product of both is 120 and more, and 83 and less of single photons that were blurred.
_MORE_THAN_FINE = 100.0
#: Photons of the usual light in a pixel, at most: ten frames of full wells have no more.
_MOST_PHOTONS = 1e6
#: Rounding has a variance of 1/12 in steps between values; so much of it does not count.
_OF_STEPS = 0.125
#: The variance of single photons grows by a step between values, within this factor.
_OF_A_PHOTON = 1.5
#: Two measures agree whose variances differ by no more than this; from there on it is warned of.
_AGREES, _WARNS = 1.35, 2.0
#: What is cut off has this many times the noise that the tail of its maxima shows.
_SURELY = 1.1
#: Denoisers leave noise whose maxima and minima are up to the second number of times as high as
#: those of normal noise, where that is more than the first: what is higher are edges and spots.
_HEAVY, _MOST_WORSE = 1.35, 4.0
#: Where spots widen the scatter, low maxima show by how much, and count with this power.
_OF_LOW = 0.75
#: Sets of areas differ by more than this where noise does not grow with light as fine detail says.
_ONE_LINE = 1.6
#: Where a part of the variance is left of the least of all sets, below the darkest.
_LEAST_LEFT = 0.5
#: Brightness shows a slope where it differs by this many deviations of a pixel.
_TELLS_SLOPE = 1.0


def chosen_noise(
    frames: NDArray[Any],
    sigma: float,
    noise: NoiseModel,
    detail: FineDetail,
    scatter: float,
) -> NoiseModel:
    """Return the noise of frames whose fine detail is not that of white noise.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN in areas of constant value, and where pixels are bad.
    sigma : float
        The PSF's width.
    noise : NoiseModel
        That of fine detail and its spectrum.
    detail : FineDetail
        What fine detail looks like.
    scatter : float
        The deviation in the band over that of white noise.
    """
    parts = some_parts(frames)
    counts_photons = _grows_by_steps(noise, detail)
    is_bare = usual_is_lowest(parts[0])
    # Most pixels without any: single photons scatter like nothing else.
    if counts_photons and is_bare:
        return noise
    areas = BandAreas(parts, sigma)
    found = _chosen(parts, areas, noise, detail, scatter, (counts_photons, is_bare))
    if found.is_filtered and not found.process and is_band_passed(areas):
        return replace(found, process=Process.FILTERED)
    return found


def _chosen(
    parts: list[Numbers],
    areas: BandAreas,
    noise: NoiseModel,
    detail: FineDetail,
    scatter: float,
    of_photons: tuple[bool, bool],
) -> NoiseModel:
    """Return the noise by what the band, calm pixels and pixel values show.

    Parts are those of frames; whether their counts are photons, and most pixels have none.
    """
    counts_photons, is_bare = of_photons
    is_explained = counts_photons or _has_none_in_the_dark(noise, detail)
    process = _process(parts[0], detail, may_be_cut=not is_explained)
    calm = calm_noise(parts) if process is Process.NONE else None
    is_white = calm is not None and calm.is_white and _is_no_rounding(calm, detail)
    ratio = float(np.median(calm.variance / noise.variance(calm.level))) if calm else math.nan
    band = areas.noise()
    is_less = calm is not None and is_white and _is_less_than_noise(calm, band, parts, detail)
    fine = replace(noise, correlation=1.0)
    is_all = band is not None and is_all_noise(areas, band, fine, detail)
    is_blue = is_surely_blue(detail)
    is_white = is_white and not (is_less or is_all or is_blue or is_amplified(areas, band, fine))
    is_between = is_white and min(detail.along) > _SHARP and ratio < _CALMER
    depends = (
        process is Process.NONE
        and not is_bare
        and (
            _is_patchy(detail, calm)
            or (not is_usual(scatter) and looks_denoised(parts, noise, detail, areas))
        )
    )
    if calm is not None and is_between and not depends:
        return _between_sharp_spots(noise, calm, detail)
    if depends:
        return _denoised(noise, areas, detail)
    if is_blue and process is Process.NONE:
        process = Process.FILTERED
    if calm is not None and is_white:
        # What is coarser than that are spots.
        white = replace(noise, correlation=1.0) if calm.is_surely_white else noise
        if _CALMER <= ratio <= 1 / _CALMER:
            return white
        noise = white
    is_denoised = _is_shown(detail) and detail.scatter > MOST_SCATTER and not is_white
    band = areas.noise(WORSE_SHARE if is_denoised else USUAL_SHARE)
    if band is None:
        return replace(noise, process=process)
    is_smooth = calm is not None and min(calm.along) > _SHARP and math.isinf(min(detail.along))
    is_rounded = is_smooth and band.tail > _WARNS and not is_bare
    is_coarse = min(detail.along) > WHITE[1] and not is_white
    over_light = _over_light(band, detail, parts)
    if process is Process.NONE and is_coarse and over_light > _MORE_THAN_LIGHT and not is_all:
        is_higher = areas.contrast()[1] > ALIKE[1]
        if is_higher and _is_light_of_spots(noise, band, detail, areas.sigma, over_light):
            return replace(noise, correlation=1.0, slope_error=noise.slope)
        process = Process.FILTERED
    may_be_crowd = process is not Process.CUT and not (
        is_rounded and is_rounded_away(parts[0], detail.step)
    )
    if may_be_crowd and _is_crowd(noise, band, detail):
        return replace(noise, process=process)
    # Where half of the noise is cut off, or smooth noise is rounded to whole numbers, what is left
    # stands out the more. Elsewhere spots widen the scatter, the lowest maxima lie between them.
    if process is Process.CUT or is_rounded:
        worse = _SURELY * max(band.tail, 1.0)
    else:
        worse = _between_spots(band)
    changed, times = _by_band(
        noise,
        band,
        worse,
        may_be_less=process is Process.MOSAIC,
        by_band_alone=process is Process.CUT,
    )
    # Few counts, and rounded ones, scatter like nothing else.
    usual = float(np.median(changed.variance(band.level)))
    if process is Process.NONE and usual > (_IN_STEPS * detail.step) ** 2:
        is_of_photons = is_coarse and over_light > _FEW_PHOTONS
        differs = times > _WARNS or (is_of_photons and (is_less or band.tail > _WARNS))
        process = _by_noise(band, is_denoised=is_denoised, differs=differs)
    return replace(changed, process=process)


def _is_shown(detail: FineDetail) -> bool:
    """Whether there is so much fine detail that its scatter shows something."""
    return detail.blocks >= FEW_BLOCKS and min(detail.along) < _NOTHING_FINE


def _is_patchy(detail: FineDetail, calm: CalmNoise | None) -> bool:
    """Whether blocks that are as bright as others lack their noise, and it is not sharp spots.

    Between these pixels are calm, and white.
    """
    if not _is_shown(detail) or calm is None or not detail.scatter > _PATCHY:
        return False
    return min(calm.along) > (_NOT_WHITE if min(detail.along) < _PATCHES else _SHARP)


def _denoised(noise: NoiseModel, areas: BandAreas, detail: FineDetail) -> NoiseModel:
    """Return the noise of a denoised image: that of the band, where more of it is left."""
    is_uneven = _is_shown(detail) and detail.scatter > MOST_SCATTER
    band = areas.noise(WORSE_SHARE if is_uneven else USUAL_SHARE)
    if band is None:
        return replace(noise, process=Process.DENOISED)
    tail = min(band.depth, band.tail)
    # What rounding leaves of smooth noise stands out the more.
    most = _MOST_WORSE if math.isfinite(min(detail.along)) else math.inf
    worse = min(_SURELY * tail, most) if tail > _HEAVY else _between_spots(band)
    changed, _ = _by_band(noise, band, worse, may_be_less=False, by_band_alone=False)
    process = Process.DECONVOLVED if band.has_one_frequency else Process.DENOISED
    return replace(changed, process=process)


def _between_spots(band: BandNoise) -> float:
    """Return the share of the band's deviation that is noise, by the lowest maxima."""
    return math.pow(min(max(band.low, 0.0), 1.0), _OF_LOW)


def _over_light(band: BandNoise, detail: FineDetail, parts: list[Numbers]) -> float:
    """Return the deviation in the band over the usual light; of noise it is below 1.

    Noise of less than a photon in a pixel has more.
    """
    known = np.concatenate([part[np.isfinite(part)] for part in parts])
    light = float(np.median(known)) - detail.lowest
    return math.sqrt(float(np.median(band.variance))) / light if light > 0 else 0.0


def _is_less_than_noise(
    calm: CalmNoise, band: BandNoise | None, parts: list[Numbers], detail: FineDetail
) -> bool:
    """Whether calm pixels lie between blurred photons, or were denoised, and have no noise.

    Beside spots the band has as much noise, or shows that there are spots. Where calm pixels are
    hardly brighter than the darkest, only counts have noise.
    """
    variance = float(np.median(calm.variance))
    is_count = 0 < detail.step**2 < variance
    if not is_count and (
        float(np.median(calm.level)) - detail.lowest < _IN_THE_DARK * math.sqrt(variance)
    ):
        return True
    if band is None or not band.is_noise:
        return False
    times = float(np.median(band.variance)) / variance
    is_denoised = detail.scatter > MOST_SCATTER and times > _BESIDE_DENOISED
    return is_denoised or (
        times > _BESIDE_PHOTONS and _over_light(band, detail, parts) > _FEW_PHOTONS
    )


def _is_light_of_spots(
    noise: NoiseModel, band: BandNoise, detail: FineDetail, sigma: float, over_light: float
) -> bool:
    """Whether what is coarser than white noise is light as wide as the PSF.

    Beside what it is in the band, it is as fine along one axis as spots are; and along both axes
    there is noise of counts, or more than spots have.
    """
    fine = float(np.median(noise.variance(band.level))) / noise.correlation**2
    light = max(float(np.median(band.variance)) - fine, _TINY)
    along = fine * (math.sqrt(math.prod(detail.along)) - 1)
    width, of_light = light_of(along / light, sigma)
    is_counts = 0 < _ROUNDED * detail.step**2 < fine and not band.is_noise
    shows_noise = is_counts or fine - _OF_STEPS * detail.step**2 > (
        _MORE_THAN_SPOTS * of_light * light
    )
    if light > _MOST_PHOTONS * over_light**2 * fine:
        return False
    is_light = shows_noise and light * over_light > _MORE_THAN_FINE * fine
    return is_light and _AS_WIDE[0] < width / sigma < _AS_WIDE[1]


def _is_crowd(noise: NoiseModel, band: BandNoise, detail: FineDetail) -> bool:
    """Whether most maxima are spots, so that the band shows nothing.

    No weak filter leaves so much less noise in fine detail than bright crowds have in the band.
    """
    if min(detail.along) < WHITE[0]:
        return False
    times = float(np.median(band.variance / np.maximum(noise.variance(band.level), _TINY)))
    is_bright = min(detail.along) < _WEAK and times > _MOST_OF_WEAK**2
    return not band.is_noise or (is_bright and band.tail > TAIL_OF_NOISE)


def _is_no_rounding(calm: CalmNoise, detail: FineDetail) -> bool:
    """Whether calm pixels have more than the noise of rounding, which is white after any filter."""
    return float(np.median(calm.variance)) > (_STEPS * detail.step) ** 2


def _between_sharp_spots(noise: NoiseModel, calm: CalmNoise, detail: FineDetail) -> NoiseModel:
    """Return the noise of calm pixels, where fine detail has that of spots."""
    slope, level, variance = _line(calm.level, calm.variance)
    if not slope > 0:
        # Light has noise; no light is below the lowest pixel.
        slope = variance / max(level - detail.lowest, math.sqrt(variance))
    # Sharp spots add to the slope of fine detail.
    slope = min(slope, noise.slope)
    least = min(float(calm.variance.min()), variance) * _LEAST_LEFT
    return NoiseModel(slope, variance - slope * level, least, blocks=noise.blocks)


def _by_band(
    noise: NoiseModel, band: BandNoise, worse: float, *, may_be_less: bool, by_band_alone: bool
) -> tuple[NoiseModel, float]:
    """Return the noise that the band has, and how many times as much variance it has.

    Parameters
    ----------
    noise : NoiseModel
        That of fine detail.
    band : BandNoise
        That of the band.
    worse : float
        By how many times higher maxima are than its deviation implies.
    may_be_less : bool
        Whether noise may be less than fine detail says.
    by_band_alone : bool
        Whether the band alone shows how it grows with light.
    """
    ratio = band.variance / np.maximum(noise.variance(band.level), _TINY) * worse**2
    if not may_be_less:
        ratio = np.maximum(ratio, 1.0)
    low, high = float(ratio.min()), float(ratio.max())
    if high < _AGREES and low > 1 / _AGREES and not by_band_alone:
        return noise, 1.0
    if high / low < _ONE_LINE and not by_band_alone:
        return replace(noise, correlation=noise.correlation * math.sqrt(high)), high
    variances = ratio * noise.variance(band.level)
    slope, level, variance = _line(band.level, variances)
    if slope == 0 and not by_band_alone and noise.slope_error is not None:
        # The band shows no slope: light is at least as noisy as fine detail says.
        slope = noise.slope
    intercept, least = variance - slope * level, _LEAST_LEFT * float(variances.min())
    line = np.maximum(slope * band.level + intercept, least)
    most = max(float((variances / line).max()), 1.0)  # the worse counts
    # How strong noise looks in its finest detail.
    fine = float(np.median(line / np.maximum(noise.variance(band.level), _TINY)))
    factor = noise.correlation * math.sqrt(most * fine)
    scale = most / factor**2
    return replace(
        noise, slope=slope * scale, intercept=intercept * scale, least=least * scale,
        correlation=factor, slope_error=None,
    ), high  # fmt: skip


def _line(level: Numbers, variance: Numbers) -> tuple[float, float, float]:
    """Return a line that does not fall: its slope, a brightness in its middle, and the value there.

    It is flat where brightness hardly differs.
    """
    weight = 1 / np.square(variance)
    middle = float(np.average(level, weights=weight))
    value = float(np.average(variance, weights=weight))
    away = level - middle
    if np.ptp(level) < _TELLS_SLOPE * math.sqrt(float(np.median(variance))):
        return 0.0, middle, float(np.median(variance))
    slope = float(np.sum(weight * away * variance) / np.sum(weight * away * away))
    return max(slope, 0.0), middle, value


def _by_noise(band: BandNoise, *, is_denoised: bool, differs: bool) -> Process:
    """Return what was probably done to an image, as far as its noise shows."""
    if band.has_one_frequency:
        return Process.DECONVOLVED
    if is_denoised:
        return Process.DENOISED
    return Process.FILTERED if differs else Process.NONE


def _process(frame: NDArray[np.float64], detail: FineDetail, *, may_be_cut: bool) -> Process:
    """Return what was probably done to an image, as far as its values alone show."""
    if times_enlarged(frame) > 1:
        return Process.ENLARGED
    if may_be_cut and is_cut_off(frame, detail.step, is_smooth=min(detail.along) > _WEAK):
        return Process.CUT
    return Process.NONE if mosaic_period(frame) is None else Process.MOSAIC


def _has_none_in_the_dark(noise: NoiseModel, detail: FineDetail) -> bool:
    """Whether independent noise is less than a step, or a photon, at the lowest value.

    It is natural then that many pixels have that value: what is cut off is noise.
    """
    is_white = all(WHITE[0] <= ratio <= WHITE[1] for ratio in detail.along)
    least = noise.slope * detail.lowest + noise.intercept
    return is_white and least < max(_IN_STEPS * detail.step, _IN_STEPS * noise.slope) ** 2


def _grows_by_steps(noise: NoiseModel, detail: FineDetail) -> bool:
    """Whether the variance grows with light by about the step between values: each is a photon."""
    if noise.slope_error is None or not noise.slope > SURE * noise.slope_error:
        return False
    return 1 / _OF_A_PHOTON < noise.slope / max(detail.step, _TINY) < _OF_A_PHOTON
