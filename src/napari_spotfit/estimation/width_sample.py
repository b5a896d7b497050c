"""What is looked at for the width of an image's spots: a few frames, or a part of them."""

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
from ..images.reading import evenly_spread, without_damage

#: Pixels that are looked at: at a glance, and more of them where these tell too little.
_PIXELS = (1 << 18, 1 << 20, 1 << 22)


class Sample(NamedTuple):
    """Frames, or a part of them, in the host's memory; all as one camera would have taken them."""

    pixels: NDArray[Any]
    bad: NDArray[np.bool_] | None
    #: Where to search.
    mask: NDArray[np.bool_] | None
    #: Frame, y and x of the spots, if they are known.
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
    """Yield what is looked at for the width: a little and, if that is asked for, more.

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
    places : ndarray, shape (n, 3), optional
        Number of the frame, y and x of spots; what is looked at lies around their middle.
    """
    shape = np.array(reader.frame_shape)
    middle = (shape - 1) / 2 if places is None else np.median(places[:, 1:], axis=0)
    each = [_frames_and_size(pixels, shape, len(chosen)) for pixels in _PIXELS]
    parts = {int(count * size.prod()): (count, size) for count, size in each}
    least, most = min(parts), max(parts)
    for pixels in sorted(parts) if len(chosen) else ():
        count, size = parts[pixels]
        numbers = chosen[evenly_spread(count, len(chosen))]
        corner = np.clip(np.rint(middle - (size - 1) / 2).astype(int), 0, shape - size)
        rows, columns = (
            slice(n, n + m) for n, m in zip(corner.tolist(), size.tolist(), strict=True)
        )
        window = (..., rows, columns)
        if reader.in_tiles:
            part = rows, columns
            numbers, there = without_damage(partial(reader.read_part, part=part), numbers)
            there = calibration.corrected(numbers, there, part=part)
        else:
            numbers, there = without_damage(reader.read_here, numbers)
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
    return evenly_spread(count, reader.count)


def _frames_and_size(
    pixels: int, shape: NDArray[np.int64], count: int
) -> tuple[int, NDArray[np.int64]]:
    """Return how many of so many frames are looked at, and how much of each."""
    size = np.minimum(shape, max(math.isqrt(pixels), pixels // max(shape.max(), 1)))
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
