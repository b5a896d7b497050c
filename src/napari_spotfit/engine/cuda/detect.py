"""Detect spots on the GPU: maxima of both bands, and which of them are separate spots.

GPU version of :mod:`napari_spotfit.engine.cpu.backend`. Only maxima are downloaded, and the few
frames with maxima on plateaus.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...settings.settings import Settings
from ..bands import Bands, make_bands
from ..candidates import (
    Candidates,
    Maxima,
    choose_spots,
    in_order,
    joined,
    masks_of,
    merge_plateaus,
    nothing,
)
from ..cpu.layouts import MAX_RADIUS, DetectionSettings, DetectionWork, Extremum, Strip
from ..detection_settings import LIMITS, MAXIMUM, make_detection_settings
from .compile import PIXEL_TYPES, Device, current_device

#: Device memory of a call besides the frames, at least for one strip of one frame; of it, memory of
#: filtered pixels for a strip of rows, and for several frames.
_SCRATCH_BYTES, _STRIP_BYTES, _FRAMES_BYTES = 448 << 20, 64 << 20, 128 << 20
#: Largest number of frames at a time.
_MOST_FRAMES = 4096
#: Initial memory for maxima: one per this many pixels, and a minimum.
_PIXELS_PER_MAXIMUM, _LEAST_ROOM = 32, 256
#: Maxima to download before their number is known, relative to the last call.
_LIKELY = 1.1

#: Threads of a block and of a warp; pixels of a row that a warp filters; rows of 32 columns that it
#: searches for odd pixels.
_THREADS, _WARP, _RUN, ODD_ROWS = 256, 32, 256, 8
#: Pixels of a row that a warp filters in wide frames: with borders, two rounds of its threads.
_RUN_OF_WIDE = 224
#: Filtered pixels of a strip: two bands, and the mean.
_PLANES = 3
#: Bytes of words.
_WORD = 4
#: Largest number of blocks that process the maxima of a strip.
_MOST_BLOCKS = 1 << 9
#: Approximate number of steps to find neighbours of a maximum in a row.
_STEPS_OF_ROW = 16
#: Number of cached lists of launches, for blocks of different lengths.
_MOST_KINDS = 16
#: Largest work of a launch in pixels (for the filter times its weights): 10 ms on an H200, and
#: within the time limit of Windows on a GPU that is twenty times slower.
_MOST_PIXELS = 1 << 28

MACROS: dict[str, float | str] = {"THREADS": _THREADS, "RUN": _RUN, "ODD_ROWS": ODD_ROWS}
#: The kernels in order, with threads per block.
THREADS_OF = {
    "find_levels": _THREADS,
    "find_odd_pixels": _THREADS,
    "filter_strip": _THREADS,
    "find_maxima": _THREADS,
    "keep_spots": _THREADS,
    "count_maxima": _THREADS,
    "start_groups": _WARP,
    "order_maxima": _THREADS,
    "join_bands": _THREADS,
    "find_crowded": _THREADS,
}
#: Arrays of the kernels, members of DetectionWork.
_ARRAYS = (
    "count", "highest_count", "marks", "ordered", "maxima", "levels", "limits", "odd", "found",
    "row_starts", "group_starts", "planes", "high", "highest",
)  # fmt: skip
#: Number of the last of them, which belong to a strip.
_OF_STRIP = 3


class _Launch(NamedTuple):
    """A launch of a kernel for one or all strips."""

    strip: Strip
    kernel: Any
    grid: tuple[int]
    block: tuple[int]
    #: Number of its first block if the kernel is divided into several launches, else None.
    first: np.int32 | None


class _Plan(NamedTuple):
    """What frames of one type and shape share for a σ."""

    #: Filters, with arrays on the device.
    bands: Bands
    #: Kernels by name.
    kernels: dict[str, Any]
    #: Weights of the filters for the kernels.
    weights: Any
    #: Bytes of a pixel.
    pixel: int
    #: Number of words with one bit per pixel of a row.
    words: int
    #: Number of maxima per frame in the last call, to predict the next.
    latest: list[float]
    #: Launches by number of frames, room for maxima, and distance.
    launches: dict[tuple[int, int, float], list[_Launch]]

    @property
    def reach(self) -> int:
        """Number of rows above and below that are compared with a maximum."""
        return self.bands.step

    @property
    def run(self) -> int:
        """Number of pixels of a row that a warp filters."""
        return _RUN if self.bands.shape[1] <= _RUN else _RUN_OF_WIDE

    def strips(self, n: int) -> Iterator[Strip]:
        """Yield the strips in which n frames are filtered and searched."""
        height, width = self.bands.shape
        rows = max(_STRIP_BYTES // (_WORD * _PLANES * width), 1)
        if rows >= height:
            share = max(_FRAMES_BYTES // (_WORD * _PLANES * width * height), 1)
            for frame in range(0, n, share):
                yield Strip(frame, min(share, n - frame), 0, height, 0, height)
            return
        rows = max(rows - 2 * self.reach, 1)
        for frame in range(n):
            for y in range(0, height, rows):
                last = min(y + rows, height)
                yield Strip(
                    frame, 1, max(y - self.reach, 0), min(last + self.reach, height), y, last
                )

    def most_highest(self, strip: Strip) -> int:
        """Return the largest possible number of maxima of a strip: none are adjacent."""
        rows, columns = int(strip.last - strip.first), self.bands.shape[1]
        return Extremum.EXTREMA * int(strip.frames) * ((rows + 1) // 2) * ((columns + 1) // 2)

    def sizes(self, n: int, room: int) -> tuple[int, ...]:
        """Return the sizes of the arrays for n frames in bytes, in the order of ``_ARRAYS``."""
        height, width = self.bands.shape
        bits = _WORD * n * height * self.words
        rows = max(strip.frames * (strip.y1 - strip.y0) for strip in self.strips(n))
        groups = n * height // _WARP + 1
        return (
            _WORD, _WORD, room, MAXIMUM.itemsize * room, MAXIMUM.itemsize * room, self.pixel * n,
            LIMITS * n, bits, Extremum.EXTREMA * bits, _WORD * _WARP * groups, _WORD * groups,
            _WORD * _PLANES * rows * width, _WORD * rows * self.words,
            _WORD * max(map(self.most_highest, self.strips(n))),
        )  # fmt: skip


def detect(
    frames: Any,
    settings: Settings,
    mask: Any = None,
    variance_map: Any = None,
    *,
    level: float | None = None,
    depth: int | None = None,
) -> Candidates:
    """Detect spots in frames on the current device.

    GPU version of the CPU's detection. All work is done on CuPy's current stream.

    Parameters
    ----------
    frames : cupy.ndarray, shape (n, Y, X), or volumes (n, Z, Y, X)
        C-contiguous, on the current device; uint8, uint16, int16, float32 or float64.
    settings : Settings
        ``sigma``, ``false_spots``, ``threshold``, ``noise`` and ``min_distance``.
    mask : ndarray of bool, shape (Y, X) or (n, Y, X), optional
        Where to search for spots, of NumPy or CuPy.
    variance_map : ndarray of float32, shape (Y, X), optional
        Variances of pixels in addition to the settings' noise, of NumPy or CuPy.
    level : float, optional
        Level of the whole frame, if these are parts of it.
    depth : int, optional
        Planes of the whole volume, where only some of them are given.

    Returns
    -------
    Candidates
        In NumPy arrays; those of a frame do not depend on other frames.
    """
    return detect_on(current_device(), frames, settings, mask, variance_map, level, depth)


def detect_on(
    device: Device,
    frames: Any,
    settings: Settings,
    mask: Any = None,
    variance_map: Any = None,
    level: float | None = None,
    depth: int | None = None,
) -> Candidates:
    """Detect spots in frames on a device."""
    masks = masks_of(mask, frames.shape)
    if frames.size == 0:
        return nothing(frames.ndim - 1)
    if masks is not None:
        masks = to_host(masks)
    if variance_map is not None:
        variance_map = device.put(variance_map)
    if frames.ndim > 3:
        from .detect_volumes import detect_volumes

        return detect_volumes(device, frames, settings, masks, variance_map, level, depth)
    plan, made = _plan_and_settings(device, frames.dtype, frames.shape[1:], settings)
    if variance_map is not None or level is not None:
        made = make_detection_settings(
            settings, plan.bands, device.address, variance_map=variance_map, level=level
        )
    step = _frames_at_a_time(plan)
    parts = []
    for first in range(0, len(frames), step):
        own = masks if masks is None or len(masks) == 1 else masks[first : first + step]
        there = frames[first : first + step]
        maxima = _maxima(device, plan, there, made, settings.min_distance)
        part = choose_spots(
            maxima, made, own, settings.min_distance,
            partial(_merged, device, there, level),
        )  # fmt: skip
        if first:
            part.frame[:] += first
        parts.append(part)
    return joined(parts)


@lru_cache(maxsize=16)
def _plan_and_settings(
    device: Device, dtype: np.dtype[Any], shape: tuple[int, int], settings: Settings
) -> tuple[_Plan, DetectionSettings]:
    """Return the plan for blocks of frames, and the kernels' settings, both read-only."""
    plan = _plan(device, dtype, shape, settings.known_sigma)
    return plan, make_detection_settings(settings, plan.bands, device.address)


@lru_cache(maxsize=16)
def _plan(device: Device, dtype: np.dtype[Any], shape: tuple[int, int], sigma: float) -> _Plan:
    height, width = shape
    if height * width >= 1 << 31:
        raise ValueError(f"frames must have fewer than 2³¹ pixels; got {height}×{width}")
    bands = make_bands(sigma, shape)
    wide, narrow = (
        band._replace(gain_y=device.put(band.gain_y), gain_x=device.put(band.gain_x))
        for band in bands.bands
    )
    macros = MACROS | {"PIXEL": PIXEL_TYPES[dtype.str[1:]]}
    return _Plan(
        bands._replace(
            kernels=tuple(device.put(half) for half in bands.kernels), bands=(wide, narrow)
        ),
        {name: device.kernel("cuda/detection.cu", name, **macros) for name in THREADS_OF},
        _weights_of(bands), dtype.itemsize, -(-width // _WARP), [0.0], {},
    )  # fmt: skip


def _weights_of(bands: Bands) -> Any:
    """Return the weights of the filters for the kernels."""
    weights = np.zeros((len(bands.kernels), MAX_RADIUS + 1), np.float32)
    for row, half in zip(weights, bands.kernels, strict=True):
        row[: len(half)] = half
    return type(DetectionWork().weights).from_buffer_copy(weights.tobytes())


def _frames_at_a_time(plan: _Plan) -> int:
    """Return the number of frames for which there is memory."""
    height, width = plan.bands.shape
    room = height * width // _PIXELS_PER_MAXIMUM
    least = sum(plan.sizes(1, room))
    planes = min(_FRAMES_BYTES, _SCRATCH_BYTES)
    each = least - sum(plan.sizes(1, room)[-_OF_STRIP:])
    return min(max((_SCRATCH_BYTES - planes) // each, 1), _MOST_FRAMES)


def _maxima(
    device: Device, plan: _Plan, frames: Any, settings: DetectionSettings, distance: float
) -> Maxima:
    """Return the maxima with marks, sorted by frame, y and x."""
    room = max(frames.size // _PIXELS_PER_MAXIMUM, _LEAST_ROOM)
    while True:
        offsets, end = {}, 0
        for name, size in zip(_ARRAYS, plan.sizes(len(frames), room), strict=True):
            offsets[name] = end
            end += -(-size // 256) * 256
        scratch = device.allocate(end)
        base = device.address(scratch)
        work = DetectionWork(
            settings=settings, frames=device.address(frames), distance=distance,
            number=len(frames), words=plan.words, room=room, run=plan.run, weights=plan.weights,
            **{name: base + offset for name, offset in offsets.items()},
        )  # fmt: skip
        commands = device.commands()
        _launch_all(plan, work, commands)
        found = commands.download(scratch[:_WORD])
        # A wait takes longer than downloading a few maxima too many.
        maxima = scratch[offsets["maxima"] :][: MAXIMUM.itemsize * room]
        likely = min(math.ceil(_LIKELY * plan.latest[0] * len(frames)), room)
        here: NDArray[Any] = commands.download(maxima[: MAXIMUM.itemsize * likely])
        commands.run()
        count = int(found.view(np.int32)[0])
        if count <= room:
            break
        # Free this memory before allocating more.
        room, scratch, maxima, commands = count, None, None, None
    plan.latest[0] = count / len(frames)
    if count > likely:
        here = device.download(maxima[: MAXIMUM.itemsize * count])
    return here[: MAXIMUM.itemsize * count].view(MAXIMUM)


def _launch_all(plan: _Plan, work: DetectionWork, commands: Any) -> None:
    """Add the launches of all kernels to the commands."""
    kind = work.number, work.room, work.distance
    launches = plan.launches.get(kind)
    if launches is None:
        if len(plan.launches) >= _MOST_KINDS:
            plan.launches.clear()
        launches = plan.launches[kind] = list(_launches(plan, *kind))
    strip: Strip | None = None
    given = b""
    for one in launches:
        if one.strip is not strip:
            work.strip = strip = one.strip
            given = bytes(work)
        first = () if one.first is None else (one.first,)
        commands.launch(one.kernel, one.grid, one.block, (given, *first))


def _launches(plan: _Plan, n: int, room: int, distance: float) -> Iterator[_Launch]:
    """Yield the launches for n frames, with room for a number of maxima."""
    height, width = plan.bands.shape
    strips = list(plan.strips(n))
    whole = partial(_split, plan, strips[0])
    yield from whole("find_levels", n, _WARP)
    words = n * -(-height // ODD_ROWS) * plan.words
    yield from whole("find_odd_pixels", words, _WARP * ODD_ROWS)
    weights = sum(map(len, plan.bands.kernels))
    for strip in strips:
        rows = strip.frames * (strip.y1 - strip.y0)
        warps = rows * -(-width // plan.run)
        yield from _split(plan, strip, "filter_strip", warps, plan.run * weights)
        words = strip.frames * (strip.last - strip.first) * plan.words
        yield from _split(plan, strip, "find_maxima", -(-words // _WARP), _WARP * _WARP)
        blocks = min(-(-plan.most_highest(strip) // _THREADS), _MOST_BLOCKS)
        yield _Launch(strip, plan.kernels["keep_spots"], (blocks,), (_THREADS,), None)
    yield from whole("count_maxima", n * height // _WARP + 1, 4 * width)
    yield from whole("start_groups", 1, 1)
    warps = -(-room // _WARP)
    for name in ("order_maxima", "join_bands"):
        yield from whole(name, warps, 2 * width)
    rows = 2 * min(int(distance) + 1, height) + 1
    yield from whole("find_crowded", warps, _WARP * _STEPS_OF_ROW * rows)


def _split(plan: _Plan, strip: Strip, name: str, warps: int, pixels: int) -> Iterator[_Launch]:
    """Divide a kernel into several launches if it takes long; `pixels` is the work of a warp."""
    threads = THREADS_OF[name]
    own = threads // _WARP
    blocks = -(-warps // own)
    share = max(_MOST_PIXELS // (own * pixels), 1)
    for first in range(0, blocks, share):
        grid = (min(share, blocks - first),)
        yield _Launch(strip, plan.kernels[name], grid, (threads,), np.int32(first))


def _merged(device: Device, frames: Any, level: float | None, maxima: Maxima) -> Maxima:
    """Merge the maxima on each plateau; only frames with one are downloaded."""
    numbers = np.unique(maxima["frame"][maxima["on_flat_area"] != 0])
    there = np.isin(maxima["frame"], numbers)
    own = maxima.compress(there)
    own["frame"] = np.searchsorted(numbers, own["frame"])
    pixels = np.stack([device.download(frames[int(i)]) for i in numbers])
    own = merge_plateaus(own, pixels, level)
    own["frame"] = numbers[own["frame"]]
    return in_order(np.concatenate([maxima.compress(~there), own]))
