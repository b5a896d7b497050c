"""Hold a block of frames, and positions of spots in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.pixel_calibration import PixelCalibration, Planes
from ..settings.settings import Settings
from .flags import Flag
from .kernel_arguments import invalid_columns, roi_columns


class Highest(NamedTuple):
    """The largest pixel of a frame, when only a part of it is loaded."""

    #: That of the part, and what returns that of all.
    here: float
    of_all: Callable[[], float]


class Positions(NamedTuple):
    """Where spots are in a block of frames."""

    #: (z,) y and x of each in pixels of its frame, shape (n, axes).
    places: NDArray[np.float64]
    #: The frame of each by its place in the block, in rising order; None: all are in the first.
    frame: NDArray[np.int64] | None = None

    @property
    def frames(self) -> NDArray[np.int64]:
        """The frame of each."""
        return np.zeros(len(self.places), np.int64) if self.frame is None else self.frame


@dataclass(eq=False, slots=True)
class Block:
    """Frames, or cut-outs, with the weights, variances and masks of their pixels.

    Frames are planes (n, Y, X) or volumes (n, Z, Y, X).
    """

    #: As fits read them, corrected, NaN where they are bad; and as the camera took them.
    pixels: Any
    taken: Any
    #: Weights or variances, and read-out variances for the standard errors.
    planes: Planes | None = None
    variances: Planes | None = None
    #: Which pixels are bad, (1, …, Y, X) or (frames, …, Y, X).
    bad: Any = None
    #: Where to search for spots, and variances of pixels beside the noise that the search knows.
    mask: NDArray[np.bool_] | None = None
    noise_map: NDArray[np.float32] | None = None
    #: Maximum and level of the whole frame, where only some of its rows, or planes, are here.
    highest: Highest | None = None
    level: float | None = None
    #: Where only some of its rows, or planes, are at all: the first one, and how many there are.
    first_row: int = 0
    height: int | None = None
    #: The frames where a backend has put them.
    uploaded: Any = None

    @classmethod
    def of(cls, calibration: PixelCalibration, numbers: NDArray[np.int64], pixels: Any) -> Block:
        """Return frames of these numbers, corrected and calibrated.

        Bad pixels are NaN, so that neither spots nor hot pixels are found beside them.
        """
        return cls(
            calibration.corrected(numbers, pixels, mark_bad=True),
            pixels,
            calibration.planes(numbers, pixels),
            calibration.variances(numbers, pixels),
            calibration.bad_pixels(numbers),
        )

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Rows and columns of the whole frame, of a volume planes, rows and columns."""
        first, *others = self.pixels.shape[1:]
        return self.height or first, *others


def corners_of(
    columns: dict[str, NDArray[Any]], block: Block, frames: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return where in a block the ROIs of fits are: frame, and the first pixel along each axis."""
    roi = [columns[name] for name in roi_columns(block.pixels.ndim - 1)]
    corners = np.column_stack([frames, roi[0] - block.first_row, *roi[1:]])
    return corners[roi[0] >= 0]


def outside(count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of fits outside the image, which are INVALID."""
    columns = invalid_columns(count, settings)
    names = roi_columns(settings.dimensions)
    columns |= {name: np.full(count, -1, np.int32) for name in names}
    columns["flags"] = np.full(count, Flag.NOT_CONVERGED, np.uint32)
    return columns


def in_order(parts: list[NDArray[Any]], order: NDArray[np.int64]) -> NDArray[Any]:
    """Join parts whose rows are in the given order, and undo the order."""
    joined = np.concatenate(parts)
    result = np.empty_like(joined)
    result[order] = joined
    return result
