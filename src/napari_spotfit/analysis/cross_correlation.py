"""Find the drift between parts of a movie by redundant cross-correlation of their images (RCC)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..engine.threads import available

Floats = NDArray[np.float64]

#: Side of a rendered pixel in errors of a localisation, and most pixels along an axis.
_PIXEL, _MOST_PIXELS = 1.0, 2048
#: Pixels around zero in which the peak is searched, and that are averaged for it.
_REACH, _BOX = 60, 2
#: Steps to the centre of the peak, and width of the pixels that count.
_STEPS, _WIDTH = 20, 2.5
#: Reweightings of pairs, and the width of Cauchy's weight in units of the scatter.
_ROUNDS, _CAUCHY = 5, 3.0
#: Median absolute deviate of a normal distribution.
_MAD = 0.6745


def correlated_drift(
    places: NDArray[np.float32], segment: NDArray[np.int32], segments: int
) -> Floats:
    """Return the drift of each segment along y and x.

    The shift of every pair of segments is measured, and the drift is what agrees best with all:
    pairs that deviate have less weight.

    Parameters
    ----------
    places : ndarray of float32, shape (2, n)
        Positions along y and x in units of their errors.
    segment : ndarray of int32, shape (n,)
        The segment of each.
    segments : int
        Number of segments.
    """
    from scipy import fft  # here, as SciPy takes its time to import

    places = places - places.min(axis=1, keepdims=True)
    side = max(_PIXEL, float(places.max()) / _MOST_PIXELS)
    pixels = (places / side).astype(np.int64)
    sizes = [fft.next_fast_len(int(axis.max()) + 1 + 2 * _REACH, real=True) for axis in pixels]
    index = pixels[0] * sizes[1] + pixels[1]
    spectra = []
    for number in range(segments):
        counts = np.bincount(index[segment == number], minlength=sizes[0] * sizes[1])
        image = counts.reshape(sizes).astype(np.float32)
        spectra.append(fft.rfft2(image, workers=available()))
    pairs = list(combinations(range(segments), 2))
    shifts = np.array([_shift(spectra[a], spectra[b], sizes) for a, b in pairs]) * side
    design = np.zeros((len(pairs), segments))
    rows = np.arange(len(pairs))
    design[rows, [a for a, _ in pairs]], design[rows, [b for _, b in pairs]] = -1, 1
    return np.stack([_agreeing(design, axis) for axis in shifts.T], axis=1)


def _shift(one: NDArray[np.complex64], other: NDArray[np.complex64], sizes: list[int]) -> Floats:
    """Return by how many pixels the other segment is shifted."""
    from scipy import fft, ndimage  # here, as SciPy takes its time to import

    reach = np.arange(-_REACH, _REACH + 1)
    # Only rows near the middle are transformed along x.
    rows = fft.ifft(np.conj(one) * other, axis=0, overwrite_x=True, workers=available())[reach]
    found = fft.irfft(rows, sizes[1], axis=1, workers=available())
    near = found[:, reach].astype(float)
    near -= np.median(near)
    smooth = ndimage.uniform_filter(near, 2 * _BOX + 1, mode="nearest")
    peak = np.array(np.unravel_index(smooth.argmax(), smooth.shape)) - float(_REACH)
    y, x = reach[:, np.newaxis], reach[np.newaxis, :]
    for _ in range(_STEPS):
        weights = near * np.exp(-((y - peak[0]) ** 2 + (x - peak[1]) ** 2) / (2 * _WIDTH**2))
        total = weights.sum()
        if total <= 0:
            break
        peak = np.array([(weights * y).sum(), (weights * x).sum()]) / total
    return peak


def _agreeing(design: Floats, shifts: Floats) -> Floats:
    """Return what the shifts of pairs are differences of, its mean 0."""
    weights = np.ones(len(shifts))
    for _ in range(_ROUNDS):
        normal = design.T @ (weights[:, np.newaxis] * design)
        found: Floats = np.linalg.pinv(normal) @ (design.T @ (weights * shifts))
        residuals = shifts - design @ found
        scatter = max(float(np.median(np.abs(residuals))) / _MAD, 1e-9)
        weights = 1 / (1 + (residuals / (_CAUCHY * scatter)) ** 2)
    return found
