"""Find jumps of drift that are larger than the steps from segment to segment which are followed.

The images of segments are correlated over a wide window, in pixels of a few errors.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..engine.threads import available
from .overlap import WINDOW

Floats = NDArray[np.float64]

#: Side of a pixel in errors of a localisation, and most pixels along an axis.
_PIXEL, _MOST_PIXELS = 3.0, 1024
#: Largest jump, in errors.
REACH = 100.0
#: Parts of a movie that are compared with those before them.
_PARTS = 30
#: Least height of a peak over the noise, and over that near no shift.
_LEAST, _HIGHER = 8.0, 5.0


class _Images:
    """Images of parts of a movie, and their correlation with the sum of those before."""

    def __init__(self, places: Floats) -> None:
        from scipy import fft  # here, as SciPy takes its time to import

        self.side = max(_PIXEL, float(np.ptp(places, axis=1).max()) / _MOST_PIXELS)
        self.reach = math.ceil(REACH / self.side)
        low, high = places.min(axis=1), places.max(axis=1)
        self.low = low
        self.sizes = [
            fft.next_fast_len(int(one / self.side) + 2 + self.reach, real=True)
            for one in high - low
        ]
        near = np.abs(np.arange(-self.reach, self.reach + 1)) * self.side <= WINDOW
        near |= np.abs(np.arange(-self.reach, self.reach + 1)) <= 1
        self.near = near[:, np.newaxis] & near
        self.sum = np.zeros(self.sizes, np.float32)

    def image(self, places: Floats) -> NDArray[np.float32]:
        """Return the image of some positions; what leaves the field comes in on the other side."""
        pixels = np.floor((places - self.low[:, np.newaxis]) / self.side).astype(np.int64)
        index = (pixels[0] % self.sizes[0]) * self.sizes[1] + pixels[1] % self.sizes[1]
        counts = np.bincount(index, minlength=self.sizes[0] * self.sizes[1])
        return counts.reshape(self.sizes).astype(np.float32)

    def shift(self, image: NDArray[np.float32]) -> Floats | None:
        """Return how far an image is shifted from those before it; None if that is not seen.

        It is 0 where the highest peak is near that, and its position in errors otherwise.
        """
        from scipy import fft, ndimage  # here, as SciPy takes its time to import

        one, other = (fft.rfft2(each, workers=available()) for each in (self.sum, image))
        found = fft.irfft2(np.conj(one) * other, self.sizes, workers=available())
        reach = np.arange(-self.reach, self.reach + 1)
        scores = ndimage.uniform_filter(found[np.ix_(reach, reach)].astype(float), 3)
        middle = np.median(scores)
        noise = max(1.4826 * float(np.median(np.abs(scores - middle))), 1e-9)
        heights = (scores - middle) / noise
        inside = float(heights[self.near].max())
        if heights.max() < _LEAST:
            return None
        if heights.max() < inside + _HIGHER:
            return np.zeros(2)
        peak = np.array(np.unravel_index(heights.argmax(), heights.shape))
        around = tuple(slice(max(one - 2, 0), one + 3) for one in peak)
        weights = np.maximum(heights[around] - 0.3 * heights.max(), 0)
        centre = [
            float((weights * axis).sum() / weights.sum()) for axis in np.mgrid[around]
        ]  # fmt: skip
        shift: Floats = (np.array(centre) - self.reach) * self.side
        return shift


def has_jumps(places: Floats, segment: NDArray[np.int32], segments: int) -> bool:
    """Whether parts of a movie still are far from where those before them are.

    Parameters
    ----------
    places : ndarray of float64, shape (2 or more, n)
        Positions along y and x in units of their errors, without drift.
    segment : ndarray of int32, shape (n,)
        The segment of each.
    segments : int
        Number of segments.
    """
    images = _Images(places[:2])
    parts = min(_PARTS, segments)
    part = segment.astype(np.int64) * parts // segments
    for number in range(parts):
        image = images.image(places[:2, part == number])
        if number:
            shift = images.shift(image)
            if shift is not None and shift.any():
                return True
        images.sum += image
    return False


def jumps(places: Floats, segment: NDArray[np.int32], segments: int) -> Floats:
    """Return the drift of each segment along each axis as far as it is larger than a step.

    Parameters
    ----------
    places : ndarray of float64, shape (2 or 3, n)
        Positions in units of their errors.
    segment, segments
        As for :func:`has_jumps`.
    """
    images = _Images(places[:2])
    drift = np.zeros((segments, len(places)))
    now = np.zeros(2)
    for number in range(segments):
        own = places[:2, segment == number] - now[:, np.newaxis]
        image = images.image(own)
        shift = images.shift(image) if number else None
        if shift is not None and shift.any():
            now = now + shift
            image = images.image(own - shift[:, np.newaxis])
        images.sum += image
        drift[number, :2] = now
    return drift
