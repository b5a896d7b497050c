"""How separable fits are laid out over a GPU's threads, and what kernels read and write."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.profiles import MODELS, Profile
from ...results.columns import errors_of, numbers_per_fit, values_of
from ...settings.settings import Settings
from ..limits import kernel_order, make_limits

#: The kernel's arguments, as kernels/rois.cuh, results.cuh and search.cuh declare them:
#: where the pixels are (frames, height, width, corners, start), ...
_ROIS = struct.Struct("QqqQQ")
#: ... where the results go (length, y, x, values, iterations, stop, errors), ...
_OUTPUT = struct.Struct("qQQQQQi4x")
#: ... and what is known of the camera (offset, gain, gain known).
_CAMERA = struct.Struct("2fi")

#: What a pixel type is called in C++.
PIXEL_TYPES = {
    "u1": "unsigned char", "u2": "unsigned short", "i2": "short", "f4": "float", "f8": "double",
}  # fmt: skip

#: What kernels/profiles.cuh calls the models.
_PROFILES = {
    ("gaussian", "sampled"): "GAUSSIAN", ("gaussian_elliptical", "sampled"): "GAUSSIAN",
    ("gaussian", "integrated"): "INTEGRATED", ("gaussian_elliptical", "integrated"): "INTEGRATED",
    ("gaussian_rotated", "sampled"): "ROTATED", ("lorentzian", "sampled"): "LORENTZIAN",
}  # fmt: skip

#: How many of a warp's 32 lanes must have finished before they take new fits together:
#: taking costs about as much as one iteration of all.
_REFILL = 24
#: How many fits a lane gets one after the other, at most, in ROIs of so many pixels. With
#: more, the code of iterating and that of taking new fits drive each other out of the
#: cache for instructions: then a warp takes fits once.
_ROUNDS, _ROUNDS_PIXELS = 16, 64
#: Warps that a multiprocessor gets before lanes get more than one fit.
_WARPS_FIRST = 24

#: Shared memory that a block may use on every GPU.
SHARED_BYTES = 48 << 10

#: Numbers that a thread can keep in its registers: its own pixels, three profile values
#: for each of its columns and one for each of its rows.
_REGISTERS = 184
#: Ways to share a fit between threads, along x and y; fewest first.
_SHARED = ((1, 1), (1, 2), (2, 2), (2, 4))


#: How many blocks of few registers a multiprocessor is to hold, by their numbers: 8 blocks
#: leave a thread 128 registers, 6 blocks 168; other kernels get all that they ask for.
_BLOCKS = ((60, 8), (117, 6))
#: What finding pixels in frames takes, in such numbers, and what a model does that is not the
#: round, sampled Gaussian.
_GATHER_NUMBERS, _MODEL_NUMBERS = 24, 24


class Lanes(NamedTuple):
    """Threads that share a fit, along the ROI's columns and rows."""

    x: int
    y: int


@lru_cache(maxsize=1024)
def lanes(rows: int, columns: int) -> Lanes:
    """Return the fewest threads per fit that keep all of a ROI in their registers.

    Examples
    --------
    >>> lanes(9, 9)
    Lanes(x=1, y=1)
    >>> lanes(32, 32)
    Lanes(x=2, y=4)
    """
    for x, y in _SHARED:
        shared = Lanes(x, y)
        if _numbers(rows, columns, shared) <= _REGISTERS:
            break
    return shared


def _numbers(rows: int, columns: int, shared: Lanes) -> int:
    """Return how many pixels and profile values a thread keeps."""
    own_rows, own_columns = -(-rows // shared.y), -(-columns // shared.x)
    return own_rows * own_columns + 3 * own_columns + own_rows


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
    return MODELS.get(profile.name) != profile


def macros(
    roi_shape: tuple[int, int], pixel: np.dtype[Any], gather: bool, settings: Settings
) -> dict[str, int | str]:
    """Return the compile-time numbers of ``kernels/fit.cu``."""
    rows, columns = roi_shape
    shared = lanes(rows, columns)
    model = model_macros(settings)
    plain = model["PROFILE"] == "GAUSSIAN" and model["SHAPE"] == 3
    numbers = _numbers(rows, columns, shared) + (_GATHER_NUMBERS if gather else 0)
    numbers += 0 if plain else _MODEL_NUMBERS
    blocks = next((blocks for most, blocks in _BLOCKS if numbers <= most), 1)
    return model | {
        "ROWS": rows, "COLUMNS": columns, "LANES_X": shared.x, "LANES_Y": shared.y,
        "PIXEL": PIXEL_TYPES[pixel.str[1:]], "GATHER": int(gather),
        "WARPS": warps_per_block(roi_shape, pixel, settings), "BLOCKS": blocks, "REFILL": _REFILL,
    }  # fmt: skip


def kept_numbers(shape: int, parameters: int) -> int:
    """Return how many numbers a lane keeps of its fit.

    They are the best point with its normal equations, and the pixels' unit and level.
    """
    return shape + 2 + parameters * (parameters + 1) // 2 + parameters + 2


def warps_per_block(roi_shape: tuple[int, int], pixel: np.dtype[Any], settings: Settings) -> int:
    """Return how many warps of a block the shared memory of any GPU has room for.

    A warp keeps one ROI per fit at hand, whole words of 4 bytes for each of its rows, and
    some numbers for each of its lanes, however many share a fit.
    """
    rows, columns = roi_shape
    shared = lanes(rows, columns)
    shape = len(settings.profile.shape)
    # A row of small pixels may begin within a word; beside its pixels a fit has start
    # values and an address.
    words = rows * (-(-columns * pixel.itemsize // 4) + (pixel.itemsize < 4)) + shape + 3
    kept = kept_numbers(shape, shape)
    warp_bytes = 4 * (words * 32 // (shared.x * shared.y) + kept * 32)
    return 2 if 2 * warp_bytes <= SHARED_BYTES else 1


def rounds(n: int, groups: int, pixels: int, multiprocessors: int) -> int:
    """Return how many fits a lane gets one after the other: with few fits, rather more lanes."""
    most = _ROUNDS if pixels <= _ROUNDS_PIXELS else 1
    return min(max(n // (groups * _WARPS_FIRST * multiprocessors), 1), most)


def row_bytes(settings: Settings) -> int:
    """Return how many bytes of results a fit has."""
    return 16 + 4 * numbers_per_fit(settings) + 3


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


def rois(frames: int, frame_shape: tuple[int, int], corners: int, start: int) -> NDArray[Any]:
    """Return the kernel's argument for what lies at these addresses; 0 for nothing."""
    return packed(_ROIS, frames, *frame_shape, corners, start)


def output(address: int, n: int, settings: Settings, first: int = 0) -> NDArray[Any]:
    """Return the kernel's argument for results at an address, laid out as Results.

    The kernel writes its first fit to row ``first``.
    """
    values, iterations, stop = (address + end for end in _ends(n, settings))
    return packed(
        _OUTPUT, n, address + 8 * first, address + 8 * (n + first), values + 4 * first,
        iterations + 2 * first, stop + first, settings.errors,
    )  # fmt: skip


@lru_cache(maxsize=16)
def limits(settings: Settings, roi_shape: tuple[int, int], level: float = 0.0) -> NDArray[Any]:
    """Return the kernel's argument for where a fit stops and what it may reach.

    Angles are in radians there; the background counts from ``level``.
    """
    given = make_limits(settings, roi_shape)
    turn = [
        math.radians(1) if name == "angle" and not is_custom(settings.profile) else 1.0
        for name in kernel_order(settings.profile)
    ]
    kind = struct.Struct(f"{8 + 2 * len(turn)}fi")
    return packed(
        kind, given.max_iterations, given.max_error, given.min_delta, given.min_step,
        *(low * unit for low, unit in zip(given.low, turn, strict=True)),
        *(high * unit for high, unit in zip(given.high, turn, strict=True)),
        given.amplitude_min, given.amplitude_max,
        given.background_min - level, given.background_max - level, given.bounded_amplitudes,
    )  # fmt: skip


@lru_cache(maxsize=16)
def camera(settings: Settings) -> NDArray[Any]:
    """Return what is known of the camera."""
    return packed(_CAMERA, settings.offset, settings.gain or 1.0, settings.gain is not None)


def packed(kind: struct.Struct, *values: float) -> NDArray[Any]:
    """Return a structure as CuPy takes it as a kernel's argument.

    As mere bytes: through the fields of a structure CuPy looks at every launch.
    """
    return np.ndarray((), np.dtype((np.void, kind.size)), kind.pack(*values))
