"""Where fits in large ROIs begin.

Pixels are averaged in cells, few enough to be looked at in no time and many enough to
show the spot; where it is small, once more around it. The spot is what stands out above
exp(-½) of its height around the highest cell. From its area A follows σ = √(A/π), as in
Fit2DGaussian's rule; from its second moments, the axes of an elliptical one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from ...models.profiles import GAUSSIAN_ROTATED, Profile
from .image import Array, Bins, Image

#: Cells along the longer side at most, and how many the spot must have.
_CELLS, _ENOUGH = 64, 80
#: Around a small spot, so many of its σ are looked at again, at least so many pixels.
_SIGMAS, _LEAST = 5.0, 12

_WITHIN_SIGMA = math.exp(-0.5)
#: Second moment over σ² of a Gaussian's part above that level, less the level.
_MOMENT = (1 - 1.625 * _WITHIN_SIGMA) / (1 - 1.5 * _WITHIN_SIGMA)
#: Widths of a rotated model begin this far apart at least: of a circle all angles are equal.
_RATIO = 1.1


class Look(NamedTuple):
    """The spot as it shows at first sight, in pixels."""

    y: float
    x: float
    sigma: float
    #: Standard deviations along the long and the short axis, and the angle from x to the
    #: long one.
    long: float
    short: float
    angle: float


def first_bins(image: Image, shape: tuple[int, int]) -> tuple[Bins, int]:
    """Return the whole image in cells, and a cell's side in pixels."""
    cell = -(-max(shape) // _CELLS)
    return image.bins(0, 0, cell, -(-shape[0] // cell), -(-shape[1] // cell)), cell


def look(image: Image, shape: tuple[int, int], bins: Bins, cell: int) -> Look:
    """Return where the spot is and how wide, from the image in cells, and more of it."""
    top, left, side = 0, 0, max(shape)
    while True:
        seen, cells = _seen(bins, top, left, cell)
        if cell == 1 or cells >= _ENOUGH:
            return seen
        reach = max(math.ceil(_SIGMAS * seen.sigma), _LEAST)
        top, left = max(int(seen.y) - reach, 0), max(int(seen.x) - reach, 0)
        rows, columns = min(2 * reach, shape[0] - top), min(2 * reach, shape[1] - left)
        if max(rows, columns) >= side:
            return seen
        side = max(rows, columns)
        cell = -(-side // _CELLS)
        bins = image.bins(top, left, cell, -(-rows // cell), -(-columns // cell))


def _seen(bins: Bins, top: int, left: int, cell: int) -> tuple[Look, int]:
    """Return what is seen in a part of the image, and in how many cells."""
    lowest = bins.mean[bins.pixels > 0].min(initial=np.inf)
    smooth = ndimage.uniform_filter(np.where(bins.pixels > 0, bins.mean, lowest), 3, mode="nearest")
    low, high = smooth.min(), smooth.max()
    above = smooth - (low + (high - low) * _WITHIN_SIGMA)
    labels, _ = ndimage.label(above > 0)
    spot = labels == labels[np.unravel_index(np.argmax(smooth), smooth.shape)]
    y, x = np.nonzero(spot)
    weight = above[spot] / above[spot].sum()
    y_mean, x_mean = weight @ y, weight @ x
    yy, xx = weight @ (y - y_mean) ** 2, weight @ (x - x_mean) ** 2
    xy = weight @ ((y - y_mean) * (x - x_mean))
    middle, apart = (yy + xx) / 2, math.hypot((xx - yy) / 2, xy)
    # A cell has a second moment of its own.
    long, short = (
        cell * math.sqrt(max(moment, 1 / 12) / _MOMENT)
        for moment in (middle + apart, middle - apart)
    )
    half = (cell - 1) / 2
    sigma = cell * math.sqrt(len(y) / math.pi)
    angle = math.atan2(2 * xy, xx - yy) / 2
    return Look(
        top + cell * y_mean + half, left + cell * x_mean + half, sigma, long, short, angle
    ), len(y)


def start_values(profile: Profile, seen: Look, given: Array) -> Array:
    """Return start values in the order of the kernels, angles in radians.

    Parameters
    ----------
    profile : Profile
        The model.
    seen : Look
        The spot at first sight.
    given : ndarray, shape (K,)
        The caller's own values in the same order; NaN where there are none.
    """
    own = [seen.x, seen.y]
    own += [p.start[0] + p.start[1] * seen.sigma for p in profile.shape[2:]]
    start = np.where(np.isnan(given), own, given)
    if profile == GAUSSIAN_ROTATED:
        start[2:] = _turned(seen, given[2:])
    return start


def _turned(seen: Look, given: Array) -> list[float]:
    """Return σx, σy and the angle: never a circle, of which all angles are equal."""
    long, short, turn = seen.long, seen.short, seen.angle
    if long < _RATIO * short:
        mean = math.sqrt(long * short)
        long, short = mean * math.sqrt(_RATIO), mean / math.sqrt(_RATIO)
    sigma_x, sigma_y, angle = (float(value) for value in given)
    if sigma_x == sigma_y:  # the caller's angle says nothing
        scale = sigma_x / math.sqrt(long * short)
        long, short, sigma_x, sigma_y, angle = scale * long, scale * short, *[math.nan] * 3
    if math.isnan(angle):
        # Of the two axes the one next to x, unless the caller says which is longer.
        swap = sigma_x < sigma_y or (not sigma_x > sigma_y and abs(turn) > math.pi / 4)
        angle = turn - math.copysign(math.pi / 2, turn) if swap else turn
    between = angle - turn
    own_x = math.hypot(long * math.cos(between), short * math.sin(between))
    own_y = math.hypot(long * math.sin(between), short * math.cos(between))
    return [
        own_x if math.isnan(sigma_x) else sigma_x,
        own_y if math.isnan(sigma_y) else sigma_y,
        angle,
    ]
