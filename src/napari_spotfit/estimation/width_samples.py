"""Take parts of frames in which the width of spots is looked for: a small one, and larger ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from ..images.frames import FrameReader, inside
from ..images.pixel_calibration import PixelCalibration
from ..images.reading import without_damage
from .frame_sample import frames_of_each_kind

#: Pixels that are searched: at a glance, and more where these have too few spots; of volumes so
#: many times as many, as a spot has some planes.
_PIXELS, _VOXELS = (1 << 18, 1 << 20, 1 << 22), 16


class Sample(NamedTuple):
    """Frames, or a part of them, in the host's memory; all as one camera would have taken them."""

    pixels: NDArray[Any]
    bad: NDArray[np.bool_] | None
    #: Where to search.
    mask: NDArray[np.bool_] | None
    #: Frame of the spots and their positions in it, if they are known.
    places: NDArray[np.float64] | None
    #: Whether it is the first and there are more.
    is_glance: bool


def samples(
    reader: FrameReader,
    calibration: PixelCalibration,
    chosen: NDArray[np.int64],
    *,
    read_mask: Callable[[NDArray[np.int64]], Any] | None = None,
    places: NDArray[np.float64] | None = None,
) -> Iterator[Sample]:
    """Yield samples to estimate the width from: a small one and, if asked for, a larger one.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        What is known of its pixels.
    chosen : ndarray of int
        Numbers of the frames to choose from.
    read_mask : callable, optional
        Returns where to search in frames of these numbers.
    places : ndarray, shape (n, 1 + axes), optional
        Number of the frame, and the position in it, of spots; what is looked at lies around their
        middle.
    """
    shape = np.array(reader.frame_shape)
    middle = (shape - 1) / 2 if places is None else np.median(places[:, 1:], axis=0)
    of_each = [pixels if len(shape) == 2 else _VOXELS * pixels for pixels in _PIXELS]
    each = [_frames_and_size(pixels, shape, len(chosen)) for pixels in of_each]
    parts = {int(count * size.prod()): (count, size) for count, size in each}
    least, most = min(parts), max(parts)
    for pixels in sorted(parts) if len(chosen) else ():
        count, size = parts[pixels]
        numbers = frames_of_each_kind(reader, chosen, count)
        corner = np.clip(np.rint(middle - (size - 1) / 2).astype(int), 0, shape - size)
        part = tuple(map(slice, corner.tolist(), (corner + size).tolist()))
        window = (..., *part)
        if reader.in_tiles:
            numbers, there = without_damage(partial(reader.read_part, part=part), numbers)
            there = calibration.corrected(numbers, there, part=part)
        else:
            numbers, there = without_damage(reader.read_to_host, numbers)
            there = _part(calibration.corrected(numbers, there), window)
        bad = calibration.bad_pixels(numbers)
        yield Sample(
            there,
            None if bad is None else _part(bad, window),
            None if read_mask is None else _part(read_mask(numbers), window),
            None if places is None else _in_part(places, numbers, corner, size),
            pixels == least < most,
        )


def glance_frames(reader: FrameReader) -> NDArray[np.int64]:
    """Return the numbers of the frames that are looked at first, of all."""
    count, _ = _frames_and_size(_PIXELS[0], np.array(reader.frame_shape), reader.count)
    return frames_of_each_kind(reader, np.arange(reader.count), count)


def _frames_and_size(
    pixels: int, shape: NDArray[np.int64], count: int
) -> tuple[int, NDArray[np.int64]]:
    """Return how many frames are looked at, and how much of each: all planes of it."""
    plane, in_each = shape[-2:], max(pixels // max(math.prod(shape[:-2]), 1), 1)
    part = np.minimum(plane, max(math.isqrt(in_each), in_each // max(plane.max(), 1)))
    size = np.concatenate([shape[:-2], part])
    return min(max(pixels // max(size.prod(), 1), 1), count), size


def _part(values: Any, window: tuple[Any, ...]) -> NDArray[Any]:
    return np.ascontiguousarray(to_host(values[window]))


def _in_part(
    places: NDArray[np.float64],
    numbers: NDArray[np.int64],
    corner: NDArray[Any],
    size: NDArray[Any],
) -> NDArray[np.float64]:
    """Return the places in a part of some frames, counted from there."""
    at = places[:, 1:] - corner
    rows = np.isin(places[:, 0], numbers) & inside(at, size)
    frame = np.searchsorted(numbers, places[rows, 0])
    order = np.argsort(frame, kind="stable")
    return np.column_stack([frame, at[rows]])[order]
