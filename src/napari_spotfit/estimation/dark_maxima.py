"""Count what is as dark as spots are bright: light makes no such spots, but noise makes both.

Where noise is what the model says, hardly any minimum is deeper than the threshold of spots is
high. A filter or a denoiser that leaves more noise beside edges, or on bright cells, makes as many
of these as false spots, whatever it did to fine detail. Light has dark places, too: between the
spots of a crowd, beside a bright one, in textures as wide as the PSF. They are not as dark as what
is around is bright, or are gone in a narrower band.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu.backend import detect
from ..engine.detection_settings import score_for
from ..settings.fields import DEFAULT_FALSE_SPOTS
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from .band_noise import some_parts

Numbers = NDArray[np.float64]

#: The narrowest band in which dark maxima are looked for, in pixels of σ: in narrower ones a camera
#: has noisy pixels. And the width of the second band over that of the first, and at least.
_NARROWEST, _SECOND, _LEAST_SECOND = 1.2, 0.6, 0.7
#: What is around, over σ; noise is that of the brightest as far away as this, which borders have
#: not.
_AROUND, _AWAY = 1.6, 3.0
#: The least number of dark maxima, in all and in 10⁶ pixels.
_LEAST, _LEAST_DENSITY = 14, 200.0
#: The share of pixels that lie far below what is around, as beside edges, which may be dark maxima.
_OF_STEEP = 0.003
#: Noise of less than this share of how much light differs is that of calculation; along each axis,
#: every fourth pixel shows the light.
_LEAST_OF_LIGHT, _ONE_IN = 1e-3, 4
#: Side of the middle of a frame, which is looked at first.
_MIDDLE = 128
#: A dark maximum counts where no bright one is within this distance, in σ, and this many times as
#: high.
_BESIDE, _HIGHER = 5.0, 1.5
#: Of places on circles around a dark maximum, with these radii in σ, no larger share is darker yet.
_FAR, _ANGLES, _LOWER = (5.0, 8.0), 16, 0.25
#: The share of dark maxima that count, at least, and that of them in the second band: of usual
#: ones, and of those that noise between these times as strong explains, which light seldom has (of
#: fringes and meshes 1.25 times at most); and the number of bright ones in σ², from which on they
#: are a crowd.
_COUNT, _IN_SECOND, _CROWD = 0.6, (0.5, 0.08), 0.0085
_SELDOM_LIGHT = 1.35
#: Noise this many times that of fine detail is no camera's, and its variation is no light's.
_NO_CAMERA = 100.0
#: Noise is no more times as strong as this.
_MOST = 3.0
#: Where the sum of dark maxima's heights is more times that of bright ones, there are dark spots.
_DARK_SPOTS = 5.0
_UNIT = NoiseModel(0.0, 1.0, 1.0)
_TINY = float(np.finfo(float).tiny)


def times_as_strong(
    frames: NDArray[Any], noise: NoiseModel, sigma: float, steep: float = 0.0
) -> float:
    """Return how many times the model's deviation noise has, by dark maxima; 1 if it fits.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN in areas of constant value, and where pixels are bad.
    noise : NoiseModel
        Their noise, by brightness.
    sigma : float
        The PSF's width.
    steep : float, default 0
        The share of pixels that lie far below what is around, which edges have, too.

    Examples
    --------
    >>> white = np.random.default_rng(1).normal(50.0, 4.0, (1, 256, 256))
    >>> [round(times_as_strong(white, NoiseModel(0.0, v, v), 1.3), 1) for v in (16.0, 7.0)]
    [1.0, 1.4]
    """
    width = max(sigma, _NARROWEST)
    parts = [part for part in some_parts(frames) if min(part.shape) > 2 * _AWAY * width]
    pixels = sum(part.size for part in parts)
    if not parts or _has_none(parts[0], noise):
        return 1.0
    if _looks_right(parts[0], noise, width, _OF_STEEP * steep):
        return 1.0
    over = [_Part(part, noise, width) for part in parts]
    dark = [part.maxima(-1, width) for part in over]
    least = max(_LEAST, _LEAST_DENSITY * pixels / 1e6, _OF_STEEP * steep * pixels)
    found = sum(map(len, dark))
    if found < least:
        return 1.0
    bright = [part.maxima(1, width) for part in over]
    heights = [sum(float(own[:, 0].sum()) for own in both) for both in (dark, bright)]
    if heights[0] > _DARK_SPOTS * heights[1]:
        return 1.0
    may_be_light = noise.correlation < _NO_CAMERA
    if may_be_light and sum(map(len, bright)) * width**2 > _CROWD * pixels:
        return 1.0
    scores = np.concatenate([
        _not_beside(own, others, width) for own, others in zip(dark, bright, strict=True)
    ])  # fmt: skip
    if len(scores) < max(least, _COUNT * found):
        return 1.0
    allowed = 1 + round(DEFAULT_FALSE_SPOTS * pixels / 1e6)
    deepest = float(np.sort(scores)[-1 - allowed])
    times = max(deepest / score_for(DEFAULT_FALSE_SPOTS, width), 1.0)
    share = _IN_SECOND[_SELDOM_LIGHT < times < _MOST]
    if may_be_light and _second_band(over, width) < share * len(scores):
        return 1.0
    return min(times, _MOST)


def _second_band(parts: list[_Part], width: float) -> int:
    """Return the number of dark maxima in a narrower band, where light has less detail."""
    sigma = max(_SECOND * width, _LEAST_SECOND)
    found = [(part.maxima(-1, sigma), part.maxima(1, sigma)) for part in parts]
    return sum(len(_not_beside(dark, bright, width)) for dark, bright in found)


def _has_none(part: Numbers, noise: NoiseModel) -> bool:
    """Whether noise is next to nothing beside how light differs, as in a simulation without any."""
    some = part[::_ONE_IN, ::_ONE_IN]
    some = some[np.isfinite(some)]
    if not some.size:
        return True
    low, middle, high = np.quantile(some, (0.05, 0.5, 0.95))
    return math.sqrt(noise.variance(middle)) < _LEAST_OF_LIGHT * float(high - low)


def _looks_right(part: Numbers, noise: NoiseModel, width: float, steep: float) -> bool:
    """Whether the middle has not half as many dark maxima that count as there have to be."""
    y, x = (max(size - _MIDDLE, 0) // 2 for size in part.shape)
    pixels = part[y : y + _MIDDLE, x : x + _MIDDLE]
    middle, enough = _Part(pixels, noise, width), max(_LEAST_DENSITY / 1e6, steep) * pixels.size / 2
    dark = middle.maxima(-1, width)
    return len(dark) < enough or len(_not_beside(dark, middle.maxima(1, width), width)) < enough


class _Part:
    """A part of a frame, over the noise of the brightest pixels near each of its own."""

    def __init__(self, pixels: Numbers, noise: NoiseModel, width: float) -> None:
        from scipy import ndimage  # takes longer to import than a few fits

        known = np.isfinite(pixels)
        level = float(np.median(pixels[known])) if known.any() else 0.0
        whole = np.where(known, pixels - level, 0.0).astype(np.float32)
        rows, columns = (size // 2 for size in pixels.shape)
        pairs = whole[: 2 * rows].reshape(rows, 2, -1).sum(axis=1)
        halved = (pairs[:, : 2 * columns : 2] + pairs[:, 1::2][:, :columns]) / 4
        around = ndimage.gaussian_filter(halved, _AROUND * width / 2)
        brightest = ndimage.maximum_filter(around, 2 * math.ceil(_AWAY * width / 2) + 1)
        variance = np.maximum(noise.variance(brightest + level), _TINY)
        inverse = (1 / np.sqrt(variance)).astype(np.float32).repeat(2, axis=0).repeat(2, axis=1)
        more = [(0, size % 2) for size in pixels.shape]
        self._over_noise = whole * np.pad(inverse, more, mode="edge")
        self._over_noise[~known] = np.nan
        self._whole, self._width = whole, width

    def maxima(self, sign: float, sigma: float) -> Numbers:
        """Return score, y and x of what would be spots, or, with a sign of -1, are dark ones.

        Dark ones near a border do not count, nor those that are but darker than what is beside
        them.
        """
        settings = Settings(sigma=sigma, noise=_UNIT, threads=1, backend="cpu")
        found = detect((sign * self._over_noise)[np.newaxis], settings, texture=True)
        own = np.column_stack([found.score, found.y, found.x]).astype(np.float64)
        away = _AWAY * self._width if sign < 0 else 0.0
        last = np.array(self._over_noise.shape) - 1
        inside = (own[:, 1:] >= away) & (own[:, 1:] <= last - away)
        kept: Numbers = own[inside.all(axis=1)]
        return self._darker(kept) if sign < 0 else kept

    def _darker(self, dark: Numbers) -> Numbers:
        """Return those darker than most of what is farther away: the middle of a ring is not."""
        from scipy import ndimage  # as above

        if not len(dark):
            return dark
        smooth = ndimage.gaussian_filter(self._whole, self._width)
        angle = np.linspace(0, 2 * np.pi, _ANGLES, endpoint=False)
        circles = [
            radius * self._width * np.array([np.sin(angle), np.cos(angle)]) for radius in _FAR
        ]
        apart = np.rint(np.concatenate(circles, axis=1).T).astype(np.int64)
        places = dark[:, 1:].astype(np.int64)
        beside = places[:, np.newaxis] + apart
        inside = ((beside >= 0) & (beside < smooth.shape)).all(axis=2)
        y, x = np.where(inside[..., np.newaxis], beside, 0).transpose(2, 0, 1)
        lower = inside & (smooth[y, x] < smooth[tuple(places.T)][:, np.newaxis])
        kept: Numbers = dark[lower.sum(axis=1) <= _LOWER * inside.sum(axis=1)]
        return kept


def _not_beside(dark: Numbers, bright: Numbers, width: float) -> Numbers:
    """Return the scores of dark maxima that have no bright one beside them that is higher."""
    from scipy.spatial import cKDTree  # takes longer to import than a few fits

    if not (len(dark) and len(bright)):
        return dark[:, 0]
    near = cKDTree(bright[:, 1:]).query_ball_point(dark[:, 1:], _BESIDE * width)
    counts = [
        not (bright[others, 0] > _HIGHER * score).any()
        for score, others in zip(dark[:, 0], near, strict=True)
    ]
    scores: Numbers = dark[np.array(counts), 0]
    return scores
