"""What the kernels of fits read and write, and where it lies."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.profiles import Profile
from ...results.columns import errors_of, numbers_per_fit, values_of
from ...settings.settings import Settings
from ..fit_settings import kernel_order, make_fit_settings

#: The kernel's arguments, as kernels/cuda/rois.h declares them: where the pixels are (frames,
#: height, width, corners, start, and two maps of pixels: values, and whether frames share them),
#: and where the results go (length, y, x, values, iterations, stop condition).
_ROIS = struct.Struct("QqqQQ" + 2 * "Qi4x")
_OUTPUT = struct.Struct("qQQQQQ")

#: What a pixel type is called in C++.
PIXEL_TYPES = {
    "u1": "unsigned char", "u2": "unsigned short", "i2": "short", "f4": "float", "f8": "double",
}  # fmt: skip

#: What kernels/profiles.cuh calls the models, for large ROIs.
_PROFILES = {
    ("gaussian", "sampled"): "GAUSSIAN", ("gaussian_elliptical", "sampled"): "GAUSSIAN",
    ("gaussian", "integrated"): "INTEGRATED", ("gaussian_elliptical", "integrated"): "INTEGRATED",
    ("gaussian_rotated", "sampled"): "ROTATED", ("lorentzian", "sampled"): "LORENTZIAN",
}  # fmt: skip


def model_macros(settings: Settings) -> dict[str, int | str]:
    """Return the compile-time numbers that describe the model."""
    profile = settings.profile
    held = (name in settings.fixed for name in kernel_order(profile))
    return {
        "PROFILE": "CUSTOM" if is_custom(profile) else _PROFILES[profile.name, settings.pixel],
        "SHAPE": len(profile.shape),
        "HELD": sum(fixed << place for place, fixed in enumerate(held)),
        "CANONICAL": _canonical(settings),
    }


def _canonical(settings: Settings) -> int:
    """Return what a turned Gaussian may be exchanged for: nothing, half a turn, its axes."""
    ours = set(settings.fixed) | set(settings.bounds)
    if "angle" in ours:
        return 0
    return 1 if ours & {"sigma_x", "sigma_y"} else 2


def is_custom(profile: Profile) -> bool:
    """Whether a profile is somebody's own."""
    return profile.expression is not None


def row_bytes(settings: Settings) -> int:
    """Return how many bytes of results a fit has."""
    return 16 + 4 * numbers_per_fit(settings) + 3


class PixelMap(NamedTuple):
    """Where one number for each pixel lies: of one frame for all of them, or of each its own."""

    address: int = 0
    shared: bool = True


class Results(NamedTuple):
    """Views of the results in one piece of memory, of NumPy or CuPy."""

    positions: Any  # (2, n): y and x
    values: Any  # (width, n)
    iterations: Any
    stop: Any

    @classmethod
    def within(cls, memory: Any, n: int, settings: Settings) -> Results:
        """Divide memory, ``row_bytes(settings) * n`` bytes of uint8."""
        values, iterations, stop = _ends(n, settings)
        return cls(
            memory[:values].view(np.float64).reshape(2, n),
            memory[values:iterations].view(np.float32).reshape(numbers_per_fit(settings), n),
            memory[iterations:stop].view(np.uint16),
            memory[stop : stop + n],
        )

    def columns(self, profile: Profile) -> dict[str, Any]:
        """Return the columns of SpotFits."""
        names = values_of(profile)
        columns = {"y": self.positions[0], "x": self.positions[1]}
        columns |= zip(names, self.values, strict=False)
        columns |= {"iterations": self.iterations, "stop_condition": self.stop}
        columns |= zip(errors_of(profile), self.values[len(names) :], strict=False)
        return columns


def _ends(n: int, settings: Settings) -> tuple[int, int, int]:
    """Return where the positions, the values and the iterations end."""
    values = 16 * n
    iterations = values + 4 * numbers_per_fit(settings) * n
    return values, iterations, iterations + 2 * n


def rois(
    frames: int, frame_shape: tuple[int, int], corners: int, start: int,
    planes: PixelMap, variance: PixelMap,
) -> NDArray[Any]:  # fmt: skip
    """Return the kernel's argument for what lies at these addresses; 0 for nothing."""
    return packed(_ROIS, frames, *frame_shape, corners, start, *planes, *variance)


def output(address: int, n: int, settings: Settings, first: int = 0) -> NDArray[Any]:
    """Return the kernel's argument for results at an address, laid out as Results.

    The kernel writes its first fit to row ``first``.
    """
    values, iterations, stop = (address + end for end in _ends(n, settings))
    return packed(
        _OUTPUT, n, address + 8 * first, address + 8 * (n + first), values + 4 * first,
        iterations + 2 * first, stop + first,
    )  # fmt: skip


@lru_cache(maxsize=64)
def fit_settings(settings: Settings, roi_shape: tuple[int, int]) -> NDArray[Any]:
    """Return the kernel's argument for where a fit stops and what it may reach."""
    numbers = bytes(make_fit_settings(settings, roi_shape))
    return np.ndarray((), np.dtype((np.void, len(numbers))), numbers)


def packed(kind: struct.Struct, *values: float) -> NDArray[Any]:
    """Return a structure as CuPy takes it as a kernel's argument.

    As mere bytes: through the fields of a structure CuPy looks at every launch.
    """
    return np.ndarray((), np.dtype((np.void, kind.size)), kind.pack(*values))
