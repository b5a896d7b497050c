"""Detection on the GPU: maxima of both bands of frames, and which are spots of their own.

The twin of :mod:`napari_spotfit.engine.cpu.detect`. Only maxima leave the device, and the few
frames in which they lie on flat areas.
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
from ..cpu.layouts import MAX_RADIUS, BandNumber, DetectionSettings, DetectionWork, Strip
from ..detection.band import Bands, make_bands
from ..detection.candidates import (
    Candidates,
    Maxima,
    choose_spots,
    in_order,
    joined,
    masks_of,
    merge_plateaus,
    nothing,
)
from ..detection.detection_settings import MAXIMUM, make_detection_settings
from .compile import PIXEL_TYPES
from .device import Device, current_device

#: Memory on the device that a call takes beside the frames, for one frame and one strip of it at
#: least, and how much of it the filtered pixels of a strip take: of some rows, of several frames.
_SCRATCH_BYTES, _STRIP_BYTES, _FRAMES_BYTES = 448 << 20, 64 << 20, 128 << 20
#: Frames that are worked on at a time, however small they are.
_MOST_FRAMES = 4096
#: There is room for a maximum in so many pixels, and for a few, before their number is known.
_PIXELS_PER_MAXIMUM, _LEAST_ROOM = 32, 256
#: So many times as many maxima as there were the last time come before their number is known.
_LIKELY = 1.1

#: Threads of a block and of a warp; pixels of a row that a warp filters; rows of a word's columns
#: in which it looks for odd pixels.
_THREADS, _WARP, _RUN, _ODD_ROWS = 256, 32, 256, 8
#: Pixels of a row that a warp filters of wide frames: with those beside, two rounds of its threads.
_RUN_OF_WIDE = 224
#: Filtered pixels of a strip: two bands, and the mean.
_PLANES = 3
#: Bytes of a frame's limits, and of words and numbers.
_LIMITS, _WORD = 28, 4
#: Blocks that look at the maxima of a strip, however many there are.
_MOST_BLOCKS = 1 << 9
#: About how many steps it takes to find the maxima of a row that are close to one.
_STEPS_OF_ROW = 16
#: So many lists of launches are kept, for blocks of different lengths.
_MOST_KINDS = 16
#: A launch does no more of its kernel's work than this, so that it is done in 10 ms on an H200, and
#: soon enough for Windows on a card that is twenty times slower: pixels that it passes over, for
#: the filter times the weights of its kernels.
_MOST_PIXELS = 1 << 28

MACROS: dict[str, float | str] = {"THREADS": _THREADS, "RUN": _RUN, "ODD_ROWS": _ODD_ROWS}
#: The kernels in the order in which they run, with the threads of their blocks.
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
#: The arrays that kernels make, members of DetectionWork.
_ARRAYS = (
    "count", "highest_count", "marks", "ordered", "maxima", "levels", "limits", "odd", "found",
    "row_starts", "group_starts", "planes", "high", "highest",
)  # fmt: skip
#: The last of them are a strip's.
_OF_STRIP = 3


class _Launch(NamedTuple):
    """A launch of a kernel for a strip, or for all of them."""

    strip: Strip
    kernel: Any
    grid: tuple[int]
    block: tuple[int]
    #: The first of the kernel's blocks that it is; None where there is no other.
    first: np.int32 | None


class _Plan(NamedTuple):
    """All that is the same for frames of one type and shape, and one σ."""

    #: Their arrays lie on the device.
    bands: Bands
    #: By their names.
    kernels: dict[str, Any]
    #: Of the kernels.
    weights: Any
    #: Bytes of a pixel.
    pixel: int
    #: With a bit for each pixel of a row.
    words: int
    #: How many maxima of a frame there were the last time: as many, and some, come unasked.
    latest: list[float]
    #: What is launched, by the number of frames, the room for maxima and their distance.
    launches: dict[tuple[int, int, float], list[_Launch]]

    @property
    def reach(self) -> int:
        """How many rows above and below are compared with a maximum."""
        return self.bands.step

    @property
    def run(self) -> int:
        """How many pixels of a row a warp filters."""
        return _RUN if self.bands.shape[1] <= _RUN else _RUN_OF_WIDE

    def strips(self, n: int) -> Iterator[Strip]:
        """Yield the parts in which so many frames are filtered and searched."""
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
        """Return how many maxima a strip may have in both bands: none lies beside another."""
        rows, columns = int(strip.last - strip.first), self.bands.shape[1]
        return BandNumber.BANDS * int(strip.frames) * ((rows + 1) // 2) * ((columns + 1) // 2)

    def sizes(self, n: int, room: int) -> tuple[int, ...]:
        """Return the bytes of what kernels make of so many frames, in the order of ``_ARRAYS``."""
        height, width = self.bands.shape
        bits = _WORD * n * height * self.words
        rows = max(strip.frames * (strip.y1 - strip.y0) for strip in self.strips(n))
        groups = n * height // _WARP + 1
        return (
            _WORD, _WORD, room, MAXIMUM.itemsize * room, MAXIMUM.itemsize * room, self.pixel * n,
            _LIMITS * n, bits, BandNumber.BANDS * bits, _WORD * _WARP * groups, _WORD * groups,
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
) -> Candidates:
    """Detect spots in frames on the current device.

    What a spot is, the CPU's twin says. All work is done on CuPy's current stream.

    Parameters
    ----------
    frames : cupy.ndarray, shape (n, Y, X)
        C-contiguous, on the current device; uint8, uint16, int16, float32 or float64.
    settings : Settings
        ``sigma``, ``false_spots``, ``threshold``, ``noise`` and ``min_distance``.
    mask : ndarray of bool, shape (Y, X) or (n, Y, X), optional
        Where to look for spots, of NumPy or CuPy.
    variance_map : ndarray of float32, shape (Y, X), optional
        Variances of all pixels beside the settings' noise, of NumPy or CuPy.
    level : float, optional
        That of a frame of which the frames are parts.

    Returns
    -------
    Candidates
        In NumPy arrays; they do not depend on the other frames.
    """
    return detect_on(current_device(), frames, settings, mask, variance_map, level)


def detect_on(
    device: Device,
    frames: Any,
    settings: Settings,
    mask: Any = None,
    variance_map: Any = None,
    level: float | None = None,
) -> Candidates:
    """Detect spots in frames in the memory of a device."""
    masks = masks_of(mask, frames.shape)
    if frames.size == 0:
        return nothing()
    if masks is not None:
        masks = to_host(masks)
    if variance_map is not None:
        variance_map = device.put(variance_map)
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
    """Return what is the same for blocks of frames, and the kernels' settings, read-only."""
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
    """Return the weights of the filters as the kernels take them."""
    weights = np.zeros((len(bands.kernels), MAX_RADIUS + 1), np.float32)
    for row, half in zip(weights, bands.kernels, strict=True):
        row[: len(half)] = half
    return type(DetectionWork().weights).from_buffer_copy(weights.tobytes())


def _frames_at_a_time(plan: _Plan) -> int:
    """Return how many frames there is memory for, and numbers of rows and words."""
    height, width = plan.bands.shape
    room = height * width // _PIXELS_PER_MAXIMUM
    least = sum(plan.sizes(1, room))
    planes = min(_FRAMES_BYTES, _SCRATCH_BYTES)
    each = least - sum(plan.sizes(1, room)[-_OF_STRIP:])
    return min(max((_SCRATCH_BYTES - planes) // each, 1), _MOST_FRAMES)


def _maxima(
    device: Device, plan: _Plan, frames: Any, settings: DetectionSettings, distance: float
) -> Maxima:
    """Return the maxima, marked, in the order of frame, y and x."""
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
        orders = device.orders()
        _launch_all(plan, work, orders)
        found = orders.fetch(scratch[:_WORD])
        # Each wait takes longer than a few maxima too many.
        maxima = scratch[offsets["maxima"] :][: MAXIMUM.itemsize * room]
        likely = min(math.ceil(_LIKELY * plan.latest[0] * len(frames)), room)
        here: NDArray[Any] = orders.fetch(maxima[: MAXIMUM.itemsize * likely])
        orders.carry_out()
        count = int(found.view(np.int32)[0])
        if count <= room:
            break
        # Before there is memory for all of them, the other goes.
        room, scratch, maxima, orders = count, None, None, None
    plan.latest[0] = count / len(frames)
    if count > likely:
        here = device.fetch(maxima[: MAXIMUM.itemsize * count])
    return here[: MAXIMUM.itemsize * count].view(MAXIMUM)


def _launch_all(plan: _Plan, work: DetectionWork, orders: Any) -> None:
    """Let the kernels run, one after the other."""
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
        orders.launch(one.kernel, one.grid, one.block, (given, *first))


def _launches(plan: _Plan, n: int, room: int, distance: float) -> Iterator[_Launch]:
    """Yield what is launched for n frames, with room for so many maxima."""
    height, width = plan.bands.shape
    strips = list(plan.strips(n))
    whole = partial(_split, plan, strips[0])
    yield from whole("find_levels", n, _WARP)
    words = n * -(-height // _ODD_ROWS) * plan.words
    yield from whole("find_odd_pixels", words, _WARP * _ODD_ROWS)
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
    """Yield several launches where a kernel takes long: a warp passes over so many pixels."""
    threads = THREADS_OF[name]
    own = threads // _WARP
    blocks = -(-warps // own)
    share = max(_MOST_PIXELS // (own * pixels), 1)
    for first in range(0, blocks, share):
        grid = (min(share, blocks - first),)
        yield _Launch(strip, plan.kernels[name], grid, (threads,), np.int32(first))


def _merged(device: Device, frames: Any, level: float | None, maxima: Maxima) -> Maxima:
    """Make the maxima on a plateau one; frames without one stay on the device."""
    numbers = np.unique(maxima["frame"][maxima["on_flat_area"] != 0])
    there = np.isin(maxima["frame"], numbers)
    own = maxima.compress(there)
    own["frame"] = np.searchsorted(numbers, own["frame"])
    pixels = np.stack([device.fetch(frames[int(i)]) for i in numbers])
    own = merge_plateaus(own, pixels, level)
    own["frame"] = numbers[own["frame"]]
    return in_order(np.concatenate([maxima.compress(~there), own]))
