"""Find jumps of drift that are larger than the steps from segment to segment which are followed.

Parts of a movie are compared with all those before over a wide window: their images along y and x,
and along z what lies in each pixel. Images are folded, as pairs of spots of one molecule stay as
far apart as they are: large fields need no large images.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.threads import available
from .drift_overlap import WINDOW, Groups, Singles, start_drift, without_drift

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Spectra = NDArray[np.complex64]

#: Side of a pixel in errors of a localisation, and most pixels along an axis: to see whether there
#: are jumps, and to find them.
_PIXEL, _FEW_PIXELS, _MOST_PIXELS = 3.0, 144, 1024
#: Largest jump, in errors, and in pixels.
REACH = 100.0
_FAR = math.ceil(REACH / _PIXEL)
#: Pixels along each axis and bins along z of what is compared in depth; most spots of a part.
_COLUMNS, _BINS, _SPOTS = 256, 96, 4000
#: Positions whose pixels are found at once.
_AT_ONCE = 1 << 20
#: Parts of a movie that are compared with those before them.
_PARTS = 30
#: Least height of a peak over the noise, and over that near no shift.
_LEAST, _HIGHER = 8.0, 5.0


class _Images:
    """Images of parts of a movie along y and x."""

    def __init__(self, places: Singles, most: int) -> None:
        from scipy import fft  # here, as SciPy takes its time to import

        pixels = np.ptp(places, axis=1) / _PIXEL
        self.sizes = [
            min(fft.next_fast_len(int(one) + 2 + _FAR, real=True), most) for one in pixels
        ]

    def spectra(self, places: Singles, part: Groups | int, parts: int) -> Spectra:
        """Return the spectra of the images of some parts."""
        from scipy import fft  # here, as SciPy takes its time to import

        counts = np.zeros(parts * self.sizes[0] * self.sizes[1], np.int64)
        for first in range(0, places.shape[1], _AT_ONCE):
            own = slice(first, first + _AT_ONCE)
            down, across = (
                _pixels(axis[own]) % size for axis, size in zip(places, self.sizes, strict=True)
            )
            image = part if isinstance(part, int) else part[own]
            index = (image * self.sizes[0] + down) * self.sizes[1] + across
            counts += np.bincount(index, minlength=len(counts))
        images = counts.reshape(parts, *self.sizes).astype(np.float32)
        found: Spectra = fft.rfft2(images, workers=available())
        return found

    def shifts(self, before: Spectra | float, spectra: Spectra) -> Floats:
        """Return how far images are shifted from others; see `_peaks`."""
        from scipy import fft  # here, as SciPy takes its time to import

        found = fft.irfft2(np.conj(before) * spectra, self.sizes, workers=available())
        reach = np.arange(-_FAR, _FAR + 1)
        return _peaks(found[:, reach[:, np.newaxis], reach])


class _Depths:
    """What lies along z in each pixel along y and x."""

    def __init__(self) -> None:
        self._counts = np.zeros((_COLUMNS**2, _BINS), np.float32)

    def add(self, places: Singles) -> None:
        """Add some positions."""
        np.add.at(self._counts, self._bins(places), 1)

    def shift(self, places: Singles) -> float:
        """Return how far positions are shifted along z from those before them; see `_peaks`."""
        column, depth = self._bins(places[:, :: -(-places.shape[1] // _SPOTS) or 1])
        shifted = (depth[:, np.newaxis] - np.arange(-_FAR, _FAR + 1)) % _BINS
        # By chance, there are as many as half of the field away.
        here, there = (
            self._counts[(column[:, np.newaxis] + apart) % _COLUMNS**2, shifted].sum(axis=0)
            for apart in (0, _COLUMNS * (_COLUMNS + 1) // 2)
        )
        return float(_peaks((here - there)[np.newaxis])[0, 0])

    @staticmethod
    def _bins(places: Singles) -> tuple[Integers, Integers]:
        y, x, z = _pixels(places)
        return (y % _COLUMNS) * _COLUMNS + x % _COLUMNS, z % _BINS


def _pixels(places: Singles) -> Integers:
    pixels: Integers = np.floor(places / np.float32(_PIXEL)).astype(np.int64)
    return pixels


def _peaks(scores: NDArray[np.float32]) -> Floats:
    """Return the shift of each part's highest score along each axis in errors; NaN if it is noise.

    It is 0 where the highest peak is near that. The middle of the scores is that of no shift.
    """
    from scipy import ndimage  # here, as SciPy takes its time to import

    axes = scores.ndim - 1
    scores = ndimage.uniform_filter(scores, (0, *[3] * axes))
    flat = scores.reshape(len(scores), -1)
    middle = np.median(flat, axis=1, keepdims=True)
    noise = 1.4826 * np.median(np.abs(flat - middle), axis=1, keepdims=True)
    # Of few pairs, most scores are equal; but these are counts, too.
    few = np.sqrt(np.maximum(middle, 3.0**-axes) / 3**axes)
    heights = ((flat - middle) / np.maximum(noise, few)).reshape(scores.shape)
    near = slice(_FAR - math.floor(WINDOW / _PIXEL), _FAR + math.floor(WINDOW / _PIXEL) + 1)
    return np.stack([_peak(own, float(own[(near,) * axes].max())) for own in heights])


def _peak(heights: NDArray[np.float32], inside: float) -> Floats:
    """Return the same for one part, and its largest height near no shift."""
    highest = float(heights.max())
    if highest < _LEAST:
        return np.full(heights.ndim, np.nan)
    if highest < inside + _HIGHER:
        return np.zeros(heights.ndim)
    peak = np.unravel_index(heights.argmax(), heights.shape)
    around = tuple(
        slice(max(int(one) - 2, 0), min(int(one) + 3, size))
        for one, size in zip(peak, heights.shape, strict=True)
    )
    weights = np.maximum(heights[around] - 0.3 * highest, 0)
    centre = [float((weights * axis).sum() / weights.sum()) for axis in np.mgrid[around]]
    shift: Floats = (np.array(centre) - _FAR) * _PIXEL
    return shift


def has_jumps(places: Singles, segment: Groups, segments: int) -> bool:
    """Whether parts of a movie still are far from where those before or after them are.

    Parameters
    ----------
    places : ndarray of float32, shape (2 or 3, n)
        Positions along y, x and maybe z in units of their errors, without drift.
    segment : ndarray of int32, shape (n,)
        The segment of each, in rising order.
    segments : int
        Number of segments.
    """
    parts = min(_PARTS, segments)
    part = (np.arange(segments) * parts // segments).astype(np.int32)[segment]
    images = _Images(places[:2], _FEW_PIXELS)
    spectra = images.spectra(places[:2], part, parts)
    # With those before or after, whichever are more.
    others = np.cumsum(spectra, axis=0)
    others[: parts // 2] = others[-1] - others[: parts // 2]
    others[parts // 2 :] -= spectra[parts // 2 :]
    shifts = images.shifts(others, spectra)
    if (np.nan_to_num(shifts) != 0).any():
        return True
    return len(places) > 2 and bool(_jumps_in_depth(places, part, parts).any())


def jumps(places: Singles, segment: Groups, segments: int) -> Floats:
    """Return the drift of each segment along each axis as far as it is larger than a step.

    Parameters
    ----------
    places : ndarray of float32, shape (2 or 3, n)
        Positions in units of their errors.
    segment, segments
        As for :func:`has_jumps`.
    """
    images = _Images(places[:2], _MOST_PIXELS)
    drift = np.zeros((segments, len(places)))
    now = np.zeros(2, np.float32)
    before: Spectra | float = 0.0
    for number, own in enumerate(_split(places[:2], segment, segments)):
        spectrum = images.spectra(own - now[:, np.newaxis], 0, 1)
        shift = np.nan_to_num(images.shifts(before, spectrum)[0] if number else np.zeros(2))
        if shift.any():
            now = (now + shift).astype(np.float32)
            spectrum = images.spectra(own - now[:, np.newaxis], 0, 1)
        before = before + spectrum
        drift[number, :2] = now
    if len(places) > 2:
        in_plane = without_drift(places[:2], drift[:, :2], segment)
        still = without_drift(in_plane, start_drift(in_plane, segment, segments), segment)
        drift[:, 2] = _jumps_in_depth(np.concatenate([still, places[2:]]), segment, segments)
    return drift


def _jumps_in_depth(places: Singles, part: NDArray[Any], parts: int) -> Floats:
    """Return the same along z, of positions without drift along y and x."""
    depths = _Depths()
    drift, now = np.zeros(parts), 0.0
    for number, own in enumerate(_split(places, part, parts)):
        own = own - np.array([[0], [0], [now]], np.float32)
        shift = np.nan_to_num(depths.shift(own) if number else 0.0)
        if shift:
            own[2] -= np.float32(shift)
            now += shift
        depths.add(own)
        drift[number] = now
    return drift


def _split(places: Singles, part: NDArray[Any], parts: int) -> list[Singles]:
    """Return the positions of each part, whose numbers rise."""
    return np.split(places, np.searchsorted(part, np.arange(1, parts)), axis=1)
