"""Frames and positions of an image, and the columns of its fits put together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.columns import invalid_columns
from ..engine.quality.flags import Flag
from ..images.frames import FrameReader, inside
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings
from ..settings.validation import ROI_MIN


def checked_reader(image: Any, settings: Settings) -> FrameReader:
    """Return the image's frames, or raise a ValueError if a ROI does not fit into one."""
    reader = FrameReader(image)
    rows, columns = (ROI_MIN + 1,) * 2 if settings.roi_size is None else settings.roi_shape
    if reader.frame_shape[0] < rows or reader.frame_shape[1] < columns:
        raise ValueError(
            f"the image ({reader.frame_shape[0]}×{reader.frame_shape[1]} px) is smaller than the "
            f"ROI ({rows}×{columns} px); choose a smaller ROI size (roi_size)"
        )
    return reader


def frame_numbers(places: NDArray[np.float64], reader: FrameReader) -> NDArray[np.int64]:
    """Return the frame number of each place, -1 for places outside the image."""
    there = inside(places, reader.shape)
    numbers = np.full(len(places), -1, np.int64)
    if reader.leading:
        last = np.array(reader.leading) - 1
        index = np.minimum(np.rint(places[there, :-2]).astype(np.int64), last)
        numbers[there] = np.ravel_multi_index(tuple(index.T), reader.leading)
    else:
        numbers[there] = 0
    return numbers


def outside(count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of fits outside the image, which are INVALID."""
    columns = invalid_columns(count, settings)
    columns |= {name: np.full(count, -1, np.int32) for name in ("roi_y", "roi_x")}
    columns["flags"] = np.full(count, Flag.NOT_CONVERGED, np.uint32)
    return columns


def in_order(parts: list[NDArray[Any]], order: NDArray[np.int64]) -> NDArray[Any]:
    """Join parts whose rows are in the given order, and undo the order."""
    joined = np.concatenate(parts)
    result = np.empty_like(joined)
    result[order] = joined
    return result


def leading_indices(numbers: NDArray[np.int64], reader: FrameReader) -> NDArray[np.int64]:
    """Return the indices along the leading axes, shape (n, number of leading axes)."""
    if not reader.leading:
        return np.empty((len(numbers), 0), np.int64)
    if len(reader.leading) == 1:
        return numbers[:, np.newaxis]
    return np.column_stack(np.unravel_index(numbers, reader.leading))


def collected(
    columns: dict[str, NDArray[Any]], index: NDArray[np.int64], settings: Settings
) -> SpotFits:
    """Put the index columns before the fitted ones: frame, or axis_0, axis_1, … and frame."""
    count = index.shape[1]
    if not count:
        return SpotFits(columns, (), settings)
    names = ["frame"] if count == 1 else [f"axis_{i}" for i in range(count)]
    leading = {name: np.ascontiguousarray(index[:, i]) for i, name in enumerate(names)}
    if count > 1:
        leading["frame"] = leading[names[-1]]
    return SpotFits(leading | columns, names, settings)
