"""Search the whole field for how far molecules of one piece of a movie are from those of another.

The images of both are correlated over all shifts at which they still overlap. A shift counts if
its peak is far above what shifts by chance have, and above the next one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..engine.threads import available

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]

#: Least side of a pixel in errors of a localisation, and most pixels along an axis.
_PIXEL, _MOST_PIXELS = 3.0, 3072
#: Side of the peak and of its surroundings in pixels.
_PEAK, _AROUND = 3, 15
#: Least height of a peak over the noise, over the next one, and in pairs.
_LEAST, _NEXT, _PAIRS = 9.0, 1.6, 6.0
#: Least share of a field in which both images lie on each other.
_OVERLAP = 0.05
#: Localisations from which a shift is known well, and steps to it.
_SETTLING, _STEPS = 5000, 20
#: Distance from a molecule within which a localisation is of it, in errors.
_SAME = 3.5


def shift_between(one: Singles, other: Singles) -> Floats | None:
    """Return how far positions are shifted along each axis, None if no shift stands out.

    Parameters
    ----------
    one, other : ndarray of float32, shape (2 or 3, n)
        Positions in units of their errors; the shift is that of `other` from `one`.
    """
    from scipy import fft, ndimage  # here, as SciPy takes its time to import

    low = np.minimum(one[:2].min(axis=1), other[:2].min(axis=1))
    extent = np.maximum(one[:2].max(axis=1), other[:2].max(axis=1)) - low
    side = max(_PIXEL, 2 * float(extent.max()) / _MOST_PIXELS)
    sizes = [fft.next_fast_len(2 * (int(along / side) + 2), real=True) for along in extent]
    spectra = []
    for places in (one, other):
        down, across = ((places[:2] - low[:, np.newaxis]) / np.float32(side)).astype(np.int64)
        image = np.bincount(down * sizes[1] + across, minlength=sizes[0] * sizes[1])
        # Molecules that are seen often count little more than others.
        image = np.sqrt(image.reshape(sizes), dtype=np.float32)
        spectra.append(fft.rfft2(image, workers=available()))
    pairs = fft.irfft2(np.conj(spectra[0]) * spectra[1], sizes, workers=available())
    peaks = ndimage.uniform_filter(pairs, _PEAK, mode="wrap") * _PEAK**2
    level = ndimage.uniform_filter(pairs, _AROUND, mode="wrap") * _PEAK**2
    level = np.maximum((level * _AROUND**2 - peaks * _PEAK**2) / (_AROUND**2 - _PEAK**2), 0)
    heights = (peaks - level) / np.sqrt(np.maximum(level, 1))
    usual = heights[level > _OVERLAP * level.max()]
    noise = max(1.4826 * float(np.median(np.abs(usual - np.median(usual)))), 1.0)
    highest = np.unravel_index(heights.argmax(), heights.shape)
    height, more = float(heights[highest]), float((peaks - level)[highest])
    reach = [np.arange(-_AROUND // 2, _AROUND // 2 + 1) + int(place) for place in highest]
    around = np.ix_(*(along % size for along, size in zip(reach, sizes, strict=True)))
    rest = heights.copy()
    rest[around] = 0
    if height < max(_LEAST * noise, _NEXT * float(rest.max())) or more < _PAIRS:
        return None
    near = np.maximum(heights[around] - height / 2, 0)
    centre = [
        float((near.sum(axis=1 - axis) * along).sum() / near.sum())
        for axis, along in enumerate(reach)
    ]
    shift = [
        (along - size if along > size / 2 else along) * side
        for along, size in zip(centre, sizes, strict=True)
    ]
    if len(one) > 2:
        depth = _depth_between(one, other - np.array([*shift, 0.0], np.float32)[:, np.newaxis])
        if depth is None:
            return None
        shift.append(depth)
    return _settled(one, other, np.array(shift))


def _settled(one: Singles, other: Singles, shift: Floats) -> Floats:
    """Return a shift moved to the middle of the differences around it."""
    from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

    thin = slice(None, None, max(other.shape[1] // _SETTLING, 1))
    moved = other[:, thin] - shift[:, np.newaxis].astype(np.float32)
    trees = [cKDTree(np.ascontiguousarray(places.T, float)) for places in (one, moved)]
    near = trees[1].sparse_distance_matrix(trees[0], 2 * _SAME, output_type="ndarray")
    apart = (moved[:, near["i"]] - one[:, near["j"]]).astype(float)
    centre = np.zeros(len(shift))
    for _ in range(_STEPS):
        off = apart - centre[:, np.newaxis]
        weight = np.exp(-np.square(off).sum(axis=0) / (_SAME**2))
        if weight.sum() > 0:
            centre = centre + off @ weight / weight.sum()
    settled: Floats = shift + centre
    return settled


def _depth_between(one: Singles, other: Singles) -> float | None:
    """Return how far others are shifted along z, of positions that are not along y and x."""
    from scipy.spatial import cKDTree

    trees = [cKDTree(np.ascontiguousarray(places[:2].T, float)) for places in (one, other)]
    near = trees[0].sparse_distance_matrix(trees[1], _SAME, output_type="ndarray")
    apart = other[2][near["j"]] - one[2][near["i"]]
    if not len(apart):
        return None
    low = float(apart.min())
    counts = np.bincount(((apart - low) / _PIXEL).astype(np.int64), minlength=3).astype(float)
    sums = np.convolve(counts, np.ones(3), "same")
    peak = int(sums.argmax())
    middle = low + (peak + 0.5) * _PIXEL
    own = apart[np.abs(apart - middle) < 2 * _PIXEL]
    if len(own) < _PAIRS:
        return None
    return float(np.median(own))


def jump_frame(still: Singles, frame: Integers, known: Singles, shift: Floats) -> int:
    """Return in which frame a sample jumps, of localisations around it.

    Parameters
    ----------
    still : ndarray of float32, shape (axes, n)
        Their positions, in the order of frames, less drift as it is before the jump.
    frame : ndarray of int64
        The frame of each.
    known : ndarray of float32, shape (axes, m)
        Positions without drift and jump of what is seen long before and after.
    shift : ndarray of float64
        The jump.
    """
    from scipy.spatial import cKDTree

    tree = cKDTree(np.ascontiguousarray(known.T, float))
    before, after = (
        tree.query_ball_point(np.ascontiguousarray(places.T, float), _SAME, return_length=True)
        for places in (still, still - shift[:, np.newaxis].astype(np.float32))
    )
    gain = np.append(0, np.cumsum(np.minimum(before, 3) - np.minimum(after, 3)))
    ends = np.concatenate([[0], np.flatnonzero(np.diff(frame)) + 1, [len(frame)]])
    best = int(ends[gain[ends].argmax()])
    return int(frame[best]) if best < len(frame) else int(frame[-1]) + 1
