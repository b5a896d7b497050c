"""Frames and positions of an image, and the columns of its fits put together."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.backend import Backend
from ..engine.block import Block, Positions, corners_of
from ..engine.fit_job import FitJob
from ..images.arrays import as_array, check_real, to_host
from ..images.frames import FrameReader, inside
from ..images.pixel_calibration import PixelCalibration
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


def fit_in(
    backend: Backend,
    job: FitJob,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    pixels: Any,
    positions: Positions,
) -> dict[str, NDArray[Any]]:
    """Fit at positions in frames of these numbers."""
    block = Block.of(calibration, numbers, pixels)
    columns = backend.fit(job, block, positions)
    check_counts(calibration, block, positions, columns)
    return columns


def check_counts(
    calibration: PixelCalibration,
    block: Block,
    positions: Positions,
    columns: dict[str, NDArray[Any]],
) -> None:
    """Check once for a run that the counts of some of the ROIs can be those of photons."""
    if calibration.counts_are_open:
        calibration.check_counts(block.pixels, corners_of(columns, block, positions))


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


def checked_places(centers: ArrayLike, axes: int) -> NDArray[np.float64]:
    """Return places in an image of so many axes, or raise an error that says what is accepted."""
    places = to_host(as_array(centers))
    if places.dtype == np.float64 and places.ndim == 2 and places.shape[1] == axes:
        known: NDArray[np.float64] = places
        return known
    if places.shape == (0,):
        places = np.empty((0, axes))
    if places.dtype == object:  # numbers, perhaps, as of a table whose columns have several types
        with contextlib.suppress(TypeError, ValueError):
            places = places.astype(float)
    check_real(places.dtype, "centers")
    if places.ndim != 2 or places.shape[1] != axes:
        raise ValueError(
            f"centers must have the shape (n, {axes}), one column per axis of the image; "
            f"got {places.shape}"
        )
    return np.asarray(places, float)
