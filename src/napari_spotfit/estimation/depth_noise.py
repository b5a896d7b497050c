"""Measure whether the noise of a stack's planes is independent, as a camera's is.

Stacks that were filtered, interpolated or deconvolved along z have noise that is stronger where it
is as deep as spots. The finest detail of planes, which no spot has, shows it.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..engine.detection.bands import along_z_noise
from ..images.arrays import to_host
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration
from ..images.reading import evenly_spread, without_damage

Array = NDArray[np.float64]

#: How many neighbouring planes are compared, at how many depths, and the longest side of their
#: parts.
_PLANES, _PLACES, _SIDE = 6, 3, 512
#: A correlation of neighbouring planes below this is chance, or a camera's fixed pattern.
_LEAST = 0.1


def depth_correlation(
    reader: FrameReader, calibration: PixelCalibration, numbers: NDArray[np.int64], sigma: float
) -> float:
    """Return the noise of spots in a stack over that of planes that are independent."""
    depth, *plane = reader.frame_shape
    count = min(_PLANES, depth)
    sigma_z = calibration.settings.sigma_z
    if count < 2 or sigma_z is None or not len(numbers):
        return 1.0
    middle = tuple(slice((n - min(n, _SIDE)) // 2, (n + min(n, _SIDE)) // 2) for n in plane)
    found = []
    for first in np.unique(evenly_spread(_PLACES, depth - count + 1)).tolist():
        part = (slice(first, first + count), *middle)
        read = partial(reader.read_part, part=part)
        own, pixels = without_damage(read, numbers[:1])
        corrected = calibration.corrected(own, pixels, mark_bad=True, part=part)
        found.append(_correlations(to_host(corrected)[0].astype(float)))
    usual = np.median(np.array(found), axis=0)
    if not usual[1] > _LEAST:
        return 1.0
    return max(along_z_noise(sigma, sigma_z, usual), 1.0)


def _correlations(planes: Array) -> Array:
    """Return how the finest detail of a plane correlates with that of the next ones, from 1 on.

    By their signs: hot pixels count as others do.
    """
    for axis in (1, 2):
        planes = np.diff(planes, 2, axis)
    signs = np.sign(planes)
    found = [1.0]
    for away in range(1, len(signs)):
        both = signs[away:] * signs[:-away]
        known = np.isfinite(both) & (both != 0)
        mean = float(both[known].mean()) if known.any() else 0.0
        found.append(math.sin(math.pi / 2 * mean))
    return np.array(found)
