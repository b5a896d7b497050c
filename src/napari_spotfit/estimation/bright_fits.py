"""Fit the bright spots of some frames, whose residuals say how fast noise grows with light.

Spots are fitted as round ones, and as elongated ones, too, where the residuals have a shape that is
the same after half a turn: of spots 1.15 times as long as wide it would be half of the noise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Block, Columns, Positions
from ..engine.fit_job import FitJob
from ..engine.flags import NOT_GOOD, Flag
from ..engine.positions import link_positions
from ..engine.select import select_backend
from ..images.pixel_calibration import PixelCalibration
from ..models.profiles import GAUSSIAN
from ..settings.bounds import roi_for
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from .noise_line import median, quantiles
from .residual_slope import LEAST_ELECTRONS, LEAST_SPOTS, Squares, light_left

Numbers = NDArray[np.float64]

#: The models of spots that are not round, and whether light is averaged over pixels in them.
_ELONGATED = {"gaussian_elliptical": "integrated", "gaussian_rotated": "sampled"}
#: What speaks against a spot. A poor fit is one by the noise that is asked for.
_DOUBTFUL = (NOT_GOOD & ~Flag.POOR_FIT) | Flag.EDGE
#: With more than this share of bad pixels, spots count that have some beside their highest one.
_MANY_BAD = 0.2
#: Least height of spots in deviations of a pixel; most bright pixels that are looked at. Of unknown
#: noise, spots are as high as this part of this quantile of bright pixels.
_BRIGHT, _MOST_BRIGHT, _OF_BRIGHT, _MOST = 6.0, 1 << 15, 0.1, 0.99
#: How many σ the light of a spot reaches: that of a neighbour must not reach the ROI.
_REACH = 3.0
#: The usual σ, in pixels.
_WIDTH = 1.3
#: The variance of places in a pixel, along one axis.
_OF_PIXEL = 1 / 12
#: Of how many spots residuals are looked at; the sum of the squares of the weights of their finest
#: detail.
_LOOKED_AT, _OF_FINE = 500, 36.0
#: By how many spots they are elongated or round, and which share of them is usable at least: in
#: crowds, pairs that are not resolved look elongated, and say little of noise.
_SHAPES_OF, _USABLE = 128, 0.5
#: What a few spots leave is their shape, and no noise, where its finest detail has less than this
#: part of all of it: of one spot's noise it is 0.5 to 2, of spots of 20,000 photons that are 1.2
#: times as long as wide 0.1 to 0.2, fitted as round ones.
_OF_SHAPE = 0.35
#: The strength of residuals that are the same after half a turn, over that of a third and a fourth
#: of one, as noise has it: the median of a distribution F with 2 and 4 degrees of freedom, the
#: error of one spot's, and from how many errors on spots are elongated.
_USUAL, _OF_ONE, _SURELY = 0.83, 1.41, 4.0


class BrightFits(NamedTuple):
    """Fits of bright spots in frames, which count, and which have no other in reach."""

    frames: NDArray[Any]
    positions: Positions
    columns: Columns
    usable: NDArray[np.bool_]
    alone: NDArray[np.bool_]
    settings: Settings

    @property
    def are_round(self) -> bool:
        """Whether the model is round."""
        return self.settings.profile is GAUSSIAN

    def finest_detail(self, step: float) -> float:
        """Return the variance of the finest detail of residuals over that of all of it.

        It is 1 of independent pixels. That of rounding to steps does not count.
        """
        left = self._residuals().left
        fine = np.diff(np.diff(left, 2, axis=1), 2, axis=2)
        rounded = step**2 / 12
        white = np.mean(fine**2, (1, 2)) / _OF_FINE - rounded
        every = np.maximum(np.mean(left[:, 1:-1, 1:-1] ** 2, (1, 2)) - rounded, rounded)
        return median(white / every) if len(left) else 0.0

    def share_of_noise(self, step: float) -> float:
        """Return how much of the residuals of a few spots alone is noise, and not their shape."""
        white = self.finest_detail(step) if self.alone[self.usable].all() else 0.0
        return white if 0 < white < _OF_SHAPE else 1.0

    def are_elongated(self) -> bool:
        """Whether round fits leave more that is the same after half a turn than noise does."""
        if not np.count_nonzero(self.usable) > _USABLE * len(self.usable):
            return False
        left, y, x, square = self._residuals(_SHAPES_OF)
        if len(left) < LEAST_SPOTS:
            return False
        radial = (y**2 + x**2) * np.exp(-(y**2 + x**2) / (2 * square)) * left
        turn = np.arctan2(y, x)
        half, third, fourth = (
            np.square(abs(np.sum(radial * np.exp(1j * k * turn), axis=(1, 2)))) for k in (2, 3, 4)
        )
        share = median(2 * half / (third + fourth))
        return share > _USUAL + _SURELY * _OF_ONE / math.sqrt(len(left))

    def left_over(self, level: float) -> float:
        """Return the squares that fits leave over those of light as noisy as that of photons."""
        squares = squares_of(self, level, 0.0)
        return median(squares.found / squares.rise) if len(squares.found) else math.inf

    def _residuals(self, most: int = _LOOKED_AT) -> _Residuals:
        sides, shape = np.array(self.settings.roi_shape), np.array(self.frames.shape[1:])
        at = self.positions.places.astype(int)
        inside = np.all((at >= sides // 2) & (at < shape - sides // 2), axis=1)
        own = np.flatnonzero(self.usable & inside)[:most]
        roi = (
            np.indices(self.settings.roi_shape)[:, np.newaxis]
            - (sides // 2)[:, np.newaxis, np.newaxis, np.newaxis]
        )
        y, x = at[own].T[..., np.newaxis, np.newaxis] + roi
        of = {name: column[own].astype(float)[:, np.newaxis, np.newaxis]
              for name, column in self.columns.items()}  # fmt: skip
        down, right = y - of["y"], x - of["x"]
        if self.are_round:
            square = of["sigma"] ** 2 + _OF_PIXEL
            profile = np.exp(-(down**2 + right**2) / (2 * square))
            model = of["photons"] / (2 * math.pi * square) * profile + of["background"]
        else:
            square = of["sigma_x"] * of["sigma_y"]
            model = self.settings.profile.evaluate((y, x), of, self.settings.pixel)
        left = self.frames[self.positions.frames[own][:, np.newaxis, np.newaxis], y, x] - model
        return _Residuals(left, down, right, square)


class _Residuals(NamedTuple):
    """What fits leave in ROIs, how far their pixels are from the spot, and its variance."""

    left: Numbers
    y: Numbers
    x: Numbers
    square: Numbers


def bright_fits(
    frames: NDArray[Any], settings: Settings, noise: NoiseModel | None, level: float
) -> BrightFits:
    """Return fits of the spots in frames, round or elongated, as they are."""
    shape, sigma = (frames.shape[1], frames.shape[2]), _usual_width(settings.known_sigma)
    own = Settings(
        sigma=sigma, roi_size=roi_for(sigma, shape),
        pixel="integrated", noise=noise, threads=settings.threads, backend="cpu",
    )  # fmt: skip
    if noise is None:
        above = frames[frames > level]
        height = _OF_BRIGHT * (float(quantiles(above, _MOST)[0]) - level) if above.size else 0.0
    else:
        dark = dark_variance(noise, level)
        height = max(_BRIGHT * math.sqrt(dark), LEAST_ELECTRONS * noise.slope)
    positions, alone = _bright_spots(frames, level + height, own)
    fits = _fitted(frames, positions, alone, own)
    if not fits.are_elongated():
        return fits
    elongated = (
        _fitted(frames, positions, alone, own.changed(model=model, pixel=pixel))
        for model, pixel in _ELONGATED.items()
    )
    return min((fits, *elongated), key=lambda one: one.left_over(level))


def _fitted(
    frames: NDArray[Any], positions: Positions, alone: NDArray[np.bool_], settings: Settings
) -> BrightFits:
    calibration = PixelCalibration(frames.shape, settings)
    columns = select_backend(settings).fit(
        FitJob.of(calibration, frames.dtype),
        Block.of(calibration, np.arange(len(frames)), frames),
        positions,
    )
    with np.errstate(invalid="ignore"):
        usable = (columns["flags"] & int(_DOUBTFUL)) == 0
        usable &= alone & (columns["reduced_chi_square"] > 0)
    return BrightFits(frames, positions, columns, usable, alone, settings)


def squares_of(fits: BrightFits, level: float, dark: float) -> Squares:
    """Return what fits leave."""
    names = ("chi_square", "reduced_chi_square", "photons", "amplitude", "background")
    chi_square, reduced, light, height, below = (
        fits.columns[name][fits.usable].astype(np.float64) for name in names
    )
    left, overlap = light_left(
        fits.settings.known_sigma, fits.settings.roi_shape, fits.settings.profile.name
    )
    degrees = chi_square / reduced
    return Squares(
        chi_square - degrees * dark,
        left * light + degrees * (below - level), left * light, degrees, dark,
        overlap * height * light, height,
    )  # fmt: skip


def dark_variance(noise: NoiseModel, level: float) -> float:
    """Return the variance at a brightness."""
    return max(noise.slope * level + noise.intercept, noise.least)


def _usual_width(sigma: float) -> float:
    """Return the nearest of a few widths: σ as given or as estimated then has the same noise."""
    return float(np.clip(_WIDTH * 2 ** (round(4 * math.log2(sigma / _WIDTH)) / 4), 0.5, 10))


def _bright_spots(
    frames: NDArray[Any], least: float, settings: Settings
) -> tuple[Positions, NDArray[np.bool_]]:
    """Return the highest pixels of what is brighter than a value, and which stand alone."""
    rows, columns = frames.shape[1:]
    if frames.dtype.kind in "iu":
        ends = np.iinfo(frames.dtype)
        least = frames.dtype.type(min(max(math.floor(least), ends.min), ends.max))
    flat = frames.reshape(-1)
    if frames.dtype.kind == "f" and np.mean(np.isnan(flat)) > _MANY_BAD:
        flat = np.where(np.isnan(flat), -math.inf, flat)  # few spots have no bad pixel beside them
    at = np.flatnonzero(flat > least)[:_MOST_BRIGHT]
    y, x = at // columns % rows, at % columns
    at = at[(y > 0) & (y < rows - 1) & (x > 0) & (x < columns - 1)]
    for beside in (1, columns - 1, columns, columns + 1):
        at = at[(flat[at] > flat[at - beside]) & (flat[at] >= flat[at + beside])]
    # Noise makes several maxima of wide spots.
    of_one = link_positions(_positions(at, frames.shape), 2 * settings.known_sigma, (rows, columns))
    order = np.lexsort((-flat[at].astype(np.float64), of_one))
    first = np.ones(len(at), bool)
    first[1:] = np.diff(of_one[order]) > 0
    found = _positions(np.sort(at[order[first]]), frames.shape)
    reach = np.array(settings.roi_shape) / 2 + _REACH * settings.known_sigma
    group = link_positions(found, reach, (rows, columns))
    return found, np.bincount(group)[group] == 1


def _positions(at: NDArray[np.int64], shape: tuple[int, ...]) -> Positions:
    frame, y, x = np.unravel_index(at, shape)
    return Positions(np.column_stack([y, x]).astype(np.float64), frame)
