"""Tell the light of a crowd from filtered noise by the whole power spectrum of an image.

Fine detail of sharp or crowded spots is more than noise has, as that of a filtered image is less.
Spots at random places have a spectrum of one shape, that of their PSF, and a camera's noise lies
below it as a floor that is as high at all frequencies. A filter lowers the floor towards the
highest ones, where it has no more to hide behind: there it is seen whatever light there is, unless
spots are as sharp as pixels are. What they leave of the floor is then too little for light.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.reading import evenly_spread
from ..settings.noise_model import NoiseModel, Process
from .photon_transfer import MOST_SCATTER, FineDetail
from .small_frames import without_few_bad
from .spectral_width import Spectrum, gaussian_line, spectrum_of, without_hot_pixels

Numbers = NDArray[np.float64]

#: Side of the middle of frames that is looked at, and how many pixels in all.
_SIDE, _PIXELS = 256, 1 << 18
#: In frames of no more pixels bad ones are filled in with what leaves the least detail: the usual
#: value would be seen in the floor.
_SMALL = 1 << 12
#: The lowest frequency that counts: backgrounds and clusters have those below. Shorter sides than
#: the next number have too few of them.
_LOWEST, _LEAST_SIDE = 0.35, 24
#: No spots are sharper, so that pixels that are so are hot.
_SHARPEST = 0.55
#: The widths of spots, in pixels, and parts of the lowest power for the floor, that a fit may begin
#: with; the longest step of a logarithm, the one at which it rests, and the number of steps.
_WIDTHS, _PARTS = (0.5, 0.6, 0.7, 0.85, 1.1, 1.4, 1.8, 2.3, 3.0, 4.0), (1.0, 0.1, 0.01)
_LONGEST, _STILL, _STEPS = 0.5, 1e-3, 40
#: Number of cells along each axis in which the spectrum is compared with the model, and where these
#: are too small; and the least number of modes of one.
_CELLS, _MODES = (8, 4), 4.0
#: The variance of the mean power of frames that fade out as Hann's window, over that of as many
#: independent frequencies, along an axis.
_TAPERED = 35 / 18
#: The largest misfit of light of spots over a floor; the largest error of a floor that counts.
_WORST, _LEAST_KNOWN = 1.6, 0.5
#: By how much, besides how many errors, the floor may be that of filtered noise; the largest error
#: where this shows whether it is, of pixels that have no steps between values; and the widths from
#: which on it is seen.
_BLUR, _BLUR_ERRORS, _BLUR_KNOWN, _SEEN = 0.03, 2.0, 0.03, 0.75
#: Light of spots is more skewed than filtered noise: of .3 random ones per σ² by .7 and more. The
#: power of light over that of noise is about the photons of a spot.
_SKEWED, _PHOTONS = 0.4, (100.0, 3e5)
#: Counts per electron, in steps between values, of cameras; and what is taken where it is unknown.
_GAINS, _USUAL_GAIN = (0.2, 12.0), 2.0
#: Fine detail of wider spots has no light, and scatters as noise does.
_LIGHTLESS, _CHANCE_OF_SCATTER = 0.95, 0.6
#: Two measures of noise agree whose variances differ by no more than this factor.
_AGREES = 1.35
#: The least noise there is in the dark, as a part of that of the usual light.
_LEAST = 0.05
_TINY = float(np.finfo(float).tiny)


class WhiteFloor(NamedTuple):
    """The noise below the light of spots, by an image's spectrum."""

    #: Its variance, and the standard error of that, as a fraction.
    variance: float
    error: float
    #: σ of the spots, in pixels.
    sigma: float
    #: The mean square of how far cells of the spectrum are from the model, in standard errors.
    misfit: float
    #: The variance in pixels of a Gaussian filter that the noise has gone through, and its error.
    blur: float
    blur_error: float
    #: The mean power of the light at low frequencies.
    light: float
    #: The mean of the pixels, and the skewness of their distribution.
    mean: float
    skewness: float

    @property
    def is_white(self) -> bool:
        """Whether there is a floor below light of spots, that no filter has lowered."""
        if not (self.misfit < _WORST and self.skewness > _SKEWED):
            return False
        beyond = abs(self.blur) - _BLUR_ERRORS * self.blur_error
        return self.is_sharp or (not self.is_hidden and not beyond > _BLUR)

    @property
    def is_sharp(self) -> bool:
        """Whether light is so fine that hardly a frequency has nothing but noise."""
        return self.sigma < _SEEN

    @property
    def is_hidden(self) -> bool:
        """Whether the floor is unknown, as there is too much light at all frequencies."""
        return not self.error < _LEAST_KNOWN


class _Fit(NamedTuple):
    """The logarithms of floor, light and σ, and the filter's variance."""

    state: Numbers
    errors: Numbers
    misfit: float
    loss: float


class _Modes(NamedTuple):
    """Those modes that count, of a spectrum."""

    power: Numbers
    weight: Numbers
    square: Numbers
    counts: NDArray[np.bool_]
    y: Numbers
    x: Numbers

    @classmethod
    def of(cls, spectrum: Spectrum) -> _Modes:
        radius = np.hypot(spectrum.y[:, np.newaxis], spectrum.x)
        counts = radius > _LOWEST
        return cls(
            spectrum.power[counts], spectrum.modes[counts] / _TAPERED**2,
            np.square(radius[counts]), counts, spectrum.y, spectrum.x,
        )  # fmt: skip

    def light(self, sigma: float) -> tuple[Numbers, Numbers]:
        """Return the power of spots with a light of 1, and its derivative by ln σ."""
        (of_y, by_y), (of_x, by_x) = (
            gaussian_line(k, sigma, is_integrated=True) for k in (self.y, self.x)
        )
        wider = np.outer(by_y, of_x) + np.outer(of_y, by_x)
        return np.outer(of_y, of_x)[self.counts], wider[self.counts]


def noise_below_light(
    frames: NDArray[Any], noise: NoiseModel, detail: FineDetail
) -> NoiseModel | None:
    """Return a camera's noise below the light of a crowd; None where the image was filtered.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.
    noise : NoiseModel
        The line that fine detail has.
    detail : FineDetail
        What fine detail looks like.
    """
    floor = white_floor(frames)
    light = 0.0 if floor is None else floor.mean - detail.lowest
    if floor is None or not light > 0 or not floor.is_white:
        return None
    gain, error = floor.variance / light, 1.0
    if floor.is_hidden:
        gain, error = _USUAL_GAIN * detail.step, 2.0
    if not (gain > 0 and _PHOTONS[0] < floor.light / (gain * light) < _PHOTONS[1]):
        return None
    if detail.step:
        least, most = (limit * detail.step for limit in _GAINS)
        if not least < gain < most:
            return None
    elif floor.blur_error > _BLUR_KNOWN or floor.is_sharp:
        return None
    is_lightless = floor.sigma > _LIGHTLESS
    chance = _CHANCE_OF_SCATTER / math.sqrt(max(detail.blocks, 1))
    if is_lightless and detail.scatter > MOST_SCATTER + chance:
        return None
    white = replace(noise, correlation=1.0, blur=0.0, unfiltered=1.0, process=Process.NONE.value)
    by_line = float(white.variance(floor.mean)) / floor.variance
    if is_lightless and 1 / _AGREES < by_line < _AGREES:
        return white
    slope = min(noise.slope, gain) if noise.slope > 0 else gain
    intercept = gain * light - slope * floor.mean
    least = max(slope * detail.lowest + intercept, _LEAST * gain * light)
    return replace(
        white, slope=slope, intercept=intercept, least=least, slope_error=error * slope, uneven=1.0
    )


def white_floor(frames: NDArray[Any]) -> WhiteFloor | None:
    """Return the noise below the light of spots; None where the spectrum shows none.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.
    """
    pixels = _middle(frames)
    if min(pixels.shape[1:]) < _LEAST_SIDE:
        return None
    modes = _Modes.of(spectrum_of(without_hot_pixels(pixels, _SHARPEST), fading=2))
    if not modes.power.min() > 0:
        return None
    fit = _fitted(modes, _first(modes), has_blur=False)
    if fit is None:
        return None
    blurred = _fitted(modes, fit.state, has_blur=True)
    blur, error = (0.0, math.inf) if blurred is None else (blurred.state[3], blurred.errors[3])
    return WhiteFloor(
        math.exp(fit.state[0]), float(fit.errors[0]), math.exp(fit.state[2]), fit.misfit,
        float(blur), float(error), math.exp(fit.state[1]), float(pixels.mean()), _skewness(pixels),
    )  # fmt: skip


def _middle(frames: NDArray[Any]) -> Numbers:
    """Return the middle of some frames, with the median of each where pixels are bad."""
    for axis in (1, 2):
        first = max(frames.shape[axis] - _SIDE, 0) // 2
        frames = frames.take(range(first, first + min(frames.shape[axis], _SIDE)), axis)
    most = max(_PIXELS // max(math.prod(frames.shape[1:]), 1), 1)
    pixels = frames[evenly_spread(min(most, len(frames)), len(frames))].astype(np.float64)
    lost = ~np.isfinite(pixels)
    pixels = pixels[~lost.all(axis=(1, 2))]
    if lost.any() and pixels.size <= _SMALL:
        pixels, _ = without_few_bad(pixels)
    if lost.any() and len(pixels):
        pixels = np.where(
            np.isfinite(pixels), pixels, np.nanmedian(pixels, axis=(1, 2), keepdims=True)
        )
    return pixels if len(pixels) else np.zeros((1, 0, 0))


def _skewness(pixels: Numbers) -> float:
    away = pixels - pixels.mean()
    deviation = math.sqrt(float(np.mean(away**2)))
    return float(np.mean((away / deviation) ** 3)) if deviation > 0 else 0.0


def _first(modes: _Modes) -> Numbers:
    """Return a floor, a light and a width of spots that a fit may begin with."""
    is_high = modes.square > np.quantile(modes.square, 0.97)
    floor = float(np.average(modes.power[is_high], weights=modes.weight[is_high]))
    mean = float(np.average(modes.power, weights=modes.weight))
    best, least = np.zeros(4), math.inf
    for sigma in _WIDTHS:
        shape = modes.light(sigma)[0]
        for part in _PARTS:
            light = max(mean - part * floor, _TINY) / float(np.average(shape, weights=modes.weight))
            model = part * floor + light * shape
            loss = float(np.sum(modes.weight * (np.log(model) + modes.power / model)))
            if loss < least:
                best = np.array([math.log(part * floor), math.log(light), math.log(sigma), 0.0])
                least = loss
    return best


def _fitted(modes: _Modes, state: Numbers, *, has_blur: bool) -> _Fit | None:
    """Return the likeliest model of a spectrum by Levenberg and Marquardt; None without any."""
    free = 4 if has_blur else 3

    def model_at(state: Numbers) -> tuple[Numbers, Numbers, float]:
        floor = np.exp(state[0] - state[3] * modes.square)
        shape, wider = modes.light(math.exp(state[2]))
        light = math.exp(state[1])
        model = floor + light * shape
        slopes = np.stack([floor, light * shape, light * wider, -modes.square * floor][:free])
        loss = float(np.sum(modes.weight * (np.log(model) + modes.power / model)))
        return model, slopes / model, loss

    model, slopes, loss = model_at(state)
    damping = 1e-3
    for _ in range(_STEPS):
        matrix = (slopes * modes.weight) @ slopes.T
        down = (slopes * modes.weight) @ (modes.power / model - 1)
        try:
            step = np.linalg.solve(matrix + damping * np.diag(np.diag(matrix) + _TINY), down)
        except np.linalg.LinAlgError:
            return None
        step = np.clip(step, -_LONGEST, _LONGEST)
        trial = state.copy()
        trial[:free] += step
        is_better = False
        if abs(trial[2]) < math.log(20) and abs(trial[3]) < 4 and abs(trial[:2]).max() < 300:
            found = model_at(trial)
            is_better = found[2] < loss
        if is_better:
            state, (model, slopes, loss) = trial, found
            damping = max(damping / 10, 1e-9)
            if abs(step).max() < _STILL:
                break
        elif damping > 1e6:
            break
        else:
            damping *= 10
    matrix = (slopes * modes.weight) @ slopes.T
    try:
        errors = np.sqrt(np.maximum(np.diag(np.linalg.inv(matrix)), 0.0))
    except np.linalg.LinAlgError:
        return None
    return _Fit(state, errors, _misfit(modes, model), loss)


def _misfit(modes: _Modes, model: Numbers) -> float:
    """Return the mean square of how far cells of a spectrum are from the model."""
    for cells in _CELLS:
        cell = np.zeros(modes.counts.shape, np.int64)
        for axis, k in enumerate((modes.y, modes.x)):
            own = np.minimum((k * (cells / np.pi)).astype(np.int64), cells - 1)
            cell = cell * cells + np.expand_dims(own, 1 - axis)
        place = cell[modes.counts]
        found = np.bincount(place, modes.weight * modes.power / model, cells**2)
        count = np.bincount(place, modes.weight, cells**2)
        known = count > _MODES
        if known.any():
            away = (found[known] / count[known] - 1) * np.sqrt(count[known])
            return float(np.mean(np.square(away)))
    return math.inf
