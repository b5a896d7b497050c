"""What the kernels of fits read and write on every machine, as kernels/layouts/rois.h has it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.pixel_calibration import Planes
from ..models.profiles import Profile
from ..settings.settings import Settings
from .columns import errors_of, numbers_per_fit, values_of
from .cpu.layouts import FitResults, PixelMap, PixelType, RoiShape

#: Types of pixels by their numbers.
PIXEL_TYPES = {
    "u1": PixelType.UINT8, "u2": PixelType.UINT16, "i2": PixelType.INT16,
    "f4": PixelType.FLOAT32, "f8": PixelType.FLOAT64,
}  # fmt: skip


def pixel_map(planes: Planes | None) -> PixelMap:
    """Return what is known of the pixels, whose memory must outlast it."""
    if planes is None:
        return PixelMap()
    return PixelMap(address(planes.values), len(planes.values) == 1)


def fit_results(memory: int, n: int, settings: Settings, first: int = 0) -> FitResults:
    """Return where the results of fits go, from one of n on, laid out as Results."""
    values, iterations, stop = (memory + end for end in _ends(n, settings))
    return FitResults(
        n, memory + 8 * first, values + 4 * first, iterations + 2 * first, stop + first
    )


def frame_sizes(shape: tuple[int, ...]) -> dict[str, int]:
    """Return the sizes of frames as the members of a RoiSource; planes have a depth of 1."""
    return dict(zip(("width", "height", "depth"), (*reversed(shape), 1), strict=False))


def shape_of_roi(sides: tuple[int, ...]) -> RoiShape:
    """Return the pixels of a ROI along its axes; one of a plane has a depth of 1."""
    return RoiShape(*(1,) * (3 - len(sides)), *sides)


class Results(NamedTuple):
    """Views of the results in one piece of memory, of NumPy or CuPy."""

    positions: Any  # (axes, n), in the order of the array
    values: Any  # (width, n)
    iterations: Any
    stop_condition: Any

    @classmethod
    def within(cls, memory: Any, n: int, settings: Settings) -> Results:
        """Divide memory, ``row_bytes(settings) * n`` bytes of uint8."""
        values, iterations, stop = _ends(n, settings)
        return cls(
            memory[:values].view(np.float64).reshape(len(settings.profile.axes), n),
            memory[values:iterations].view(np.float32).reshape(numbers_per_fit(settings), n),
            memory[iterations:stop].view(np.uint16),
            memory[stop : stop + n],
        )

    def columns(self, profile: Profile) -> dict[str, Any]:
        """Return the columns of SpotFits."""
        names, values = values_of(profile), list(self.values)
        columns = dict(zip(profile.axes, self.positions, strict=True))
        columns |= zip(names, values, strict=False)
        columns |= {"iterations": self.iterations, "stop_condition": self.stop_condition}
        columns |= zip(errors_of(profile), values[len(names) :], strict=False)
        return columns


def row_bytes(settings: Settings) -> int:
    """Return how many bytes of results a fit has."""
    return 8 * len(settings.profile.axes) + 4 * numbers_per_fit(settings) + 3


def sizes_of_results(settings: Settings) -> NDArray[np.int64]:
    """Return the bytes of each of a fit's results, in the order in which Results has them."""
    axes = len(settings.profile.axes)
    return np.array([*axes * [8], *numbers_per_fit(settings) * [4], 2, 1])


def _ends(n: int, settings: Settings) -> tuple[int, int, int]:
    """Return where the positions, the values and the iterations end."""
    values = 8 * len(settings.profile.axes) * n
    iterations = values + 4 * numbers_per_fit(settings) * n
    return values, iterations, iterations + 2 * n


def address(array: Any) -> int:
    """Return where an array of NumPy or CuPy begins, 0 without one."""
    if array is None:
        return 0
    if isinstance(array, np.ndarray):
        try:  # array.ctypes takes several times as long
            buffer: Any = array
            return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        except (TypeError, ValueError):  # nothing in it, read-only, or not in one piece
            return array.ctypes.data
    there: int = array.data.ptr
    return there
