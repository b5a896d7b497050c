"""Find jumps of drift that are larger than the steps from segment to segment which are followed.

Parts of a movie are compared with all those before over a wide window: their images along y and x,
and along z what lies in each pixel. Images are folded, as pairs of spots of one molecule stay as
far apart as they are: large fields need no large images.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..engine.threads import available
from .overlap import WINDOW, Groups, Singles, start_drift, without_drift

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Side of a pixel in errors of a localisation, and most pixels along an axis.
_PIXEL, _MOST_PIXELS = 3.0, 512
#: Largest jump, in errors, and in pixels.
REACH = 100.0
_FAR = math.ceil(REACH / _PIXEL)
#: Pixels along each axis and bins along z of what is compared in depth; most spots of a part.
_COLUMNS, _BINS, _SPOTS = 256, 96, 4000
#: Parts of a movie that are compared with those before them.
_PARTS = 30
#: Least height of a peak over the noise, and over that near no shift.
_LEAST, _HIGHER = 8.0, 5.0


class _Images:
    """Images of parts of a movie along y and x."""

    def __init__(self, places: Singles) -> None:
        from scipy import fft  # here, as SciPy takes its time to import

        pixels = np.ptp(places, axis=1) / _PIXEL
        self.sizes = [
            min(fft.next_fast_len(int(one) + 2 + _FAR, real=True), _MOST_PIXELS) for one in pixels
        ]
        self.sum: NDArray[np.complex64] | float = 0.0

    def spectrum(self, places: Singles) -> NDArray[np.complex64]:
        """Return the spectrum of the image of some positions."""
        from scipy import fft  # here, as SciPy takes its time to import

        pixels = _pixels(places) % np.array(self.sizes)[:, np.newaxis]
        index = pixels[0] * self.sizes[1] + pixels[1]
        counts = np.bincount(index, minlength=self.sizes[0] * self.sizes[1])
        image = counts.reshape(self.sizes).astype(np.float32)
        found: NDArray[np.complex64] = fft.rfft2(image, workers=available())
        return found

    def shift(self, spectrum: NDArray[np.complex64]) -> Floats | None:
        """Return how far an image is shifted from those before it; see `_peak`."""
        from scipy import fft  # here, as SciPy takes its time to import

        found = fft.irfft2(np.conj(self.sum) * spectrum, self.sizes, workers=available())
        reach = np.arange(-_FAR, _FAR + 1)
        return _peak(found[np.ix_(reach, reach)].astype(float))


class _Depths:
    """What lies along z in each pixel along y and x."""

    def __init__(self) -> None:
        self.sum = np.zeros((_COLUMNS**2, _BINS), np.float32)

    def add(self, places: Singles) -> None:
        """Add some positions."""
        np.add.at(self.sum, self._bins(places), 1)

    def shift(self, places: Singles) -> Floats | None:
        """Return how far positions are shifted along z from those before them; see `_peak`."""
        column, depth = self._bins(places[:, :: -(-places.shape[1] // _SPOTS) or 1])
        shifted = (depth[:, np.newaxis] - np.arange(-_FAR, _FAR + 1)) % _BINS
        # By chance, there are as many as half of the field away.
        here, there = (
            self.sum[(column[:, np.newaxis] + apart) % _COLUMNS**2, shifted].sum(axis=0)
            for apart in (0, _COLUMNS * (_COLUMNS + 1) // 2)
        )
        return _peak((here - there).astype(float))

    @staticmethod
    def _bins(places: Singles) -> tuple[Integers, Integers]:
        y, x, z = _pixels(places)
        return (y % _COLUMNS) * _COLUMNS + x % _COLUMNS, z % _BINS


def _pixels(places: Singles) -> Integers:
    return np.floor(places / np.float32(_PIXEL)).astype(np.int64)


def _peak(scores: Floats) -> Floats | None:
    """Return the shift of the highest score in errors along each axis; None if that is noise.

    It is 0 where the highest peak is near that. The middle of the scores is that of no shift.
    """
    from scipy import ndimage  # here, as SciPy takes its time to import

    scores = ndimage.uniform_filter(scores, 3)
    middle = np.median(scores)
    noise = 1.4826 * float(np.median(np.abs(scores - middle)))
    # Of few pairs, most scores are equal; but these are counts, too.
    few = math.sqrt(max(float(middle), 3.0**-scores.ndim) / 3**scores.ndim)
    heights = (scores - middle) / max(noise, few)
    near = math.floor(WINDOW / _PIXEL)
    inside = float(heights[(slice(_FAR - near, _FAR + near + 1),) * scores.ndim].max())
    if heights.max() < _LEAST:
        return None
    if heights.max() < inside + _HIGHER:
        return np.zeros(scores.ndim)
    peak = np.unravel_index(heights.argmax(), heights.shape)
    around = tuple(slice(max(int(one) - 2, 0), int(one) + 3) for one in peak)
    weights = np.maximum(heights[around] - 0.3 * heights.max(), 0)
    centre = [float((weights * axis).sum() / weights.sum()) for axis in np.mgrid[around]]
    shift: Floats = (np.array(centre) - _FAR) * _PIXEL
    return shift


def has_jumps(places: Singles, segment: Groups, segments: int) -> bool:
    """Whether parts of a movie still are far from where those before them are.

    Parameters
    ----------
    places : ndarray of float32, shape (2 or 3, n)
        Positions along y, x and maybe z in units of their errors, without drift.
    segment : ndarray of int32, shape (n,)
        The segment of each, in rising order.
    segments : int
        Number of segments.
    """
    images, depths = _Images(places[:2]), _Depths() if len(places) > 2 else None
    parts = min(_PARTS, segments)
    part = segment.astype(np.int64) * parts // segments
    for number, own in enumerate(_split(places, part, parts)):
        spectrum = images.spectrum(own[:2])
        found = [images.shift(spectrum)] if number else []
        images.sum = images.sum + spectrum
        if depths:
            found += [depths.shift(own)] if number else []
            depths.add(own)
        if any(shift is not None and shift.any() for shift in found):
            return True
    return False


def jumps(places: Singles, segment: Groups, segments: int) -> Floats:
    """Return the drift of each segment along each axis as far as it is larger than a step.

    Parameters
    ----------
    places : ndarray of float32, shape (2 or 3, n)
        Positions in units of their errors.
    segment, segments
        As for :func:`has_jumps`.
    """
    images = _Images(places[:2])
    drift = np.zeros((segments, len(places)))
    now = np.zeros(2, np.float32)
    for number, own in enumerate(_split(places[:2], segment, segments)):
        spectrum = images.spectrum(own - now[:, np.newaxis])
        shift = images.shift(spectrum) if number else None
        if shift is not None and shift.any():
            now = (now + shift).astype(np.float32)
            spectrum = images.spectrum(own - now[:, np.newaxis])
        images.sum = images.sum + spectrum
        drift[number, :2] = now
    if len(places) > 2:
        in_plane = without_drift(places[:2], drift[:, :2], segment)
        still = without_drift(in_plane, start_drift(in_plane, segment, segments), segment)
        drift[:, 2] = _jumps_in_depth(np.concatenate([still, places[2:]]), segment, segments)
    return drift


def _jumps_in_depth(places: Singles, segment: Groups, segments: int) -> Floats:
    """Return the same along z, of positions without drift along y and x."""
    depths = _Depths()
    drift, now = np.zeros(segments), 0.0
    for number, own in enumerate(_split(places, segment, segments)):
        own = own - np.array([[0], [0], [now]], np.float32)
        shift = depths.shift(own) if number else None
        if shift is not None and shift.any():
            own[2] -= np.float32(shift[0])
            now += float(shift[0])
        depths.add(own)
        drift[number] = now
    return drift


def _split(places: Singles, part: NDArray[np.integer], parts: int) -> list[Singles]:
    """Return the positions of each part, whose numbers rise."""
    return np.split(places, np.searchsorted(part, np.arange(1, parts)), axis=1)
