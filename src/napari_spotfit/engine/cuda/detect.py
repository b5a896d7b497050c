"""Detection on the GPU: bright local maxima of the band-passed frames.

The twin of :mod:`napari_spotfit.engine.cpu.detect`. Only candidates leave the device,
and the few frames in which they lie on flat areas.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ..c_types import fields
from ..detection.band import Bands, make_bands
from ..detection.candidates import Candidates, joined, masks_of, nothing
from ..detection.detection_settings import MAXIMUM, DetectionSettings, make_detection_settings
from ..detection.nonmax_suppression import (
    Maxima,
    has_plateaus,
    in_order,
    merge_plateaus,
    one_per_spot,
)
from .compile import PIXEL_TYPES, as_argument, kernel

#: Memory on the device that a call takes beside the frames, for one frame at least.
_SCRATCH_BYTES = 256 << 20
#: Frames that are worked on at a time, however small they are.
_MOST_FRAMES = 4096
#: For one in so many pixels, a maximum is fetched before their number is known.
_PIXELS_PER_MAXIMUM = 1024

#: Threads of a block; for the noise of frames with larger samples than this, more.
_THREADS, _SMALL_SAMPLE, _MORE_THREADS = 256, 1 << 14, 1024
#: Pixels of a row that a warp filters; of a frame that a block searches for maxima, and
#: for bad pixels; into how many parts a frame is divided for the latter, at most; and of how
#: many segments the maxima are counted together.
_RUN, _SEGMENT, _PART, _MOST_PARTS, _GROUP = 128, 4096, 16384, 64, 256
#: Samples of a frame that its noise is estimated from, and steps of the estimate at most.
_SAMPLES, _MAX_STEPS = 4, 100

#: A launch does no more of its kernel's work than this, so that it is done in 10 ms on an
#: H200, and soon enough for Windows on a card that is twenty times slower: pixels that it
#: passes over, for the band-pass times the weights of its kernels, ...
_MOST_PIXELS = 1 << 28
#: ... and numbers that one block looks at.
_MOST_NUMBERS = 1 << 27

MACROS: dict[str, float | str] = {
    "THREADS": _THREADS, "MORE_THREADS": _MORE_THREADS, "RUN": _RUN, "SEGMENT": _SEGMENT,
    "GROUP": _GROUP,
}  # fmt: skip
#: The kernels in the order in which they run, with the threads of their blocks.
THREADS_OF = {
    "find_levels": (_THREADS,),
    "band_pass": (32, _THREADS // 32),
    "take_samples": (_THREADS,),
    "measure_deviations": (_THREADS,),
    "measure_large_deviations": (_MORE_THREADS,),
    "mark_maxima": (_THREADS,),
    "list_maxima": (_SEGMENT // 32,),
}
#: The arrays that kernels make, as the structure Work in kernels/cuda/detection.cu has them.
_ARRAYS = (
    "levels", "bad", "filtered", "samples", "deviations", "marks", "counts", "group_counts",
)  # fmt: skip


class Work(ctypes.Structure):
    """The kernels' argument, as kernels/cuda/detection.cu declares it."""

    _fields_ = (
        ("settings", DetectionSettings),
        *fields(f"pointer frames {' '.join(_ARRAYS)} maxima", "int parts room listed groups"),
    )


class Device(NamedTuple):
    """A memory with frames, and how to work there."""

    number: int
    #: Uninitialized bytes.
    allocate: Callable[[int], Any]
    address: Callable[[Any], int]
    #: A NumPy array from there, when all that was begun is done; and back.
    fetch: Callable[[Any], NDArray[Any]]
    put: Callable[[NDArray[Any]], Any]
    #: A kernel by its file, name and macros, as napari_spotfit.engine.cuda.compile has it.
    kernel: Callable[..., Callable[..., None]]


class _Plan(NamedTuple):
    """All that is the same for frames of one type and shape, and one σ."""

    #: Its arrays lie on the device.
    band: Bands
    #: By their names.
    kernels: dict[str, Callable[..., None]]
    #: Parts of a frame that are searched for bad pixels, room for a sample, and segments.
    parts: int
    room: int
    segments: int
    #: Bytes per frame of what the kernels make of it, in the order of ``_ARRAYS``.
    sizes: tuple[int, ...]


def detect(frames: Any, settings: Settings, mask: Any = None) -> Candidates:
    """Detect spots in frames on the current device.

    What a spot is, the CPU's twin says. All work is done on CuPy's current stream.

    Parameters
    ----------
    frames : cupy.ndarray, shape (n, Y, X)
        C-contiguous, on the current device; uint8, uint16, int16, float32 or float64.
    settings : Settings
        ``sigma``, ``threshold``, ``threshold_unit`` and ``min_distance``.
    mask : ndarray of bool, shape (Y, X) or (n, Y, X), optional
        Where to look for spots, of NumPy or CuPy. The noise is that of the whole frame
        all the same.

    Returns
    -------
    Candidates
        In NumPy arrays; they do not depend on the other frames.
    """
    import cupy

    return detect_on(_gpu(cupy.cuda.runtime.getDevice()), frames, settings, mask)


@lru_cache
def _gpu(number: int) -> Device:
    import cupy

    def put(array: NDArray[Any]) -> Any:
        there = cupy.asarray(array)
        cupy.cuda.get_current_stream().synchronize()  # other streams will read it, too
        return there

    return Device(
        number,
        lambda size: cupy.empty(size, np.uint8),
        lambda array: int(array.data.ptr),
        cupy.asnumpy,
        put,
        kernel,
    )


def detect_on(device: Device, frames: Any, settings: Settings, mask: Any = None) -> Candidates:
    """Detect spots in frames in the memory of a device."""
    masks = masks_of(mask, frames.shape)
    if frames.size == 0:
        return nothing()
    if masks is not None:
        masks = device.fetch(masks)
    plan = _plan(device, frames.dtype, frames.shape[1:], settings.sigma)
    step = min(max(_SCRATCH_BYTES // sum(plan.sizes), 1), _MOST_FRAMES)
    parts = []
    for first in range(0, len(frames), step):
        own = masks if masks is None or len(masks) == 1 else masks[first : first + step]
        part = _detect(device, plan, frames[first : first + step], own, settings)
        part.frame[:] += first
        parts.append(part)
    return joined(parts)


@lru_cache(maxsize=16)
def _plan(device: Device, dtype: np.dtype[Any], shape: tuple[int, int], sigma: float) -> _Plan:
    height, width = shape
    size = height * width
    if size >= 1 << 31:
        raise ValueError(f"frames must have fewer than 2³¹ pixels; got {height}×{width}")
    band = make_bands(sigma, shape)
    parts = min(-(-size // _PART), _MOST_PARTS) if dtype.kind == "f" else 1
    room, segments = (height // band.row_step + 1) * width, -(-size // _SEGMENT)
    sizes = (
        dtype.itemsize, 4 * parts, 4 * size, 4 * _SAMPLES * room, 8 * _SAMPLES,
        segments * _SEGMENT // 8, 4 * segments, 4 * -(-segments // _GROUP),
    )  # fmt: skip
    macros = MACROS | {"PIXEL": PIXEL_TYPES[dtype.str[1:]]}
    return _Plan(
        band._replace(
            narrow=device.put(band.narrow), wide=device.put(band.wide),
            gain_y=device.put(band.gain_y), gain_x=device.put(band.gain_x),
        ),
        {name: device.kernel("cuda/detection.cu", name, **macros) for name in THREADS_OF},
        parts, room, segments, sizes,
    )  # fmt: skip


def _detect(
    device: Device,
    plan: _Plan,
    frames: Any,
    masks: NDArray[np.bool_] | None,
    settings: Settings,
) -> Candidates:
    """Detect in so many frames that there is memory for all of them."""
    height = frames.shape[1]
    maxima = _maxima(device, plan, frames, settings)
    merged = has_plateaus(maxima)
    if merged:
        maxima = _merged(device, frames, maxima)
    return one_per_spot(maxima, masks, height, settings.min_distance, merged)


def _maxima(device: Device, plan: _Plan, frames: Any, settings: Settings) -> Maxima:
    """Return the maxima that stand out, in the order of frame, y and x."""
    n, (height, width) = len(frames), plan.band.shape
    offsets, end = [], 0
    for size in plan.sizes:
        offsets.append(end)
        end += -(-size * n // 256) * 256
    # The number of maxima comes first.
    listed = 1 + n * height * width // _PIXELS_PER_MAXIMUM
    scratch = device.allocate(end + MAXIMUM.itemsize * listed)
    base = device.address(scratch)
    work = Work(
        make_detection_settings(settings, plan.band, device.address),
        device.address(frames), *(base + offset for offset in offsets), base + end,
        plan.parts, plan.room, listed, -(-n * plan.segments // _GROUP),
    )  # fmt: skip
    _launch_all(plan, n, work)
    table = device.fetch(scratch[end:]).view(MAXIMUM)
    count = 1 + int(table["frame"][0])
    if count > listed:
        rest = device.allocate(MAXIMUM.itemsize * count)
        work.maxima, work.listed = device.address(rest), count
        _launch(plan, work, "list_maxima", n * plan.segments, n * plan.segments)
        table = device.fetch(rest).view(MAXIMUM)
    return table[1:count]


def _launch_all(plan: _Plan, n: int, work: Work) -> None:
    """Run the kernels on so many frames, one after the other."""
    height, width = plan.band.shape
    warps = _THREADS // 32
    _launch(plan, work, "find_levels", n * plan.parts, pixels=height * width // plan.parts)
    runs = -(-width // _RUN) * -(-height // warps)
    weights = len(plan.band.narrow) + len(plan.band.wide)
    _launch(plan, work, "band_pass", n * runs, pixels=_RUN * warps * weights)
    rows = -(-(height - plan.band.row_step // 2) // plan.band.row_step)
    _launch(plan, work, "take_samples", n * _SAMPLES * -(-rows // warps), pixels=width * warps)
    name = "measure_deviations" if plan.room <= _SMALL_SAMPLE else "measure_large_deviations"
    steps = max(min(_MOST_NUMBERS // plan.room, _MAX_STEPS), 1)
    for first in range(0, _MAX_STEPS, steps):
        rest = int(first == 0), min(steps, _MAX_STEPS - first)
        _launch(plan, work, name, n * _SAMPLES, *rest, pixels=plan.room * steps // 4)
    _launch(plan, work, "mark_maxima", n * plan.segments)
    _launch(plan, work, "list_maxima", n * plan.segments, n * plan.segments)


def _launch(
    plan: _Plan, work: Work, name: str, blocks: int, *rest: int, pixels: int = _SEGMENT
) -> None:
    """Run a kernel, in several launches where it takes long: a block passes over so many pixels."""
    # As plain bytes: CuPy would describe the fields of a structure anew for each launch.
    given = as_argument(work)
    share = max(_MOST_PIXELS // max(pixels, 1), 1)
    for first in range(0, blocks, share):
        numbers = (np.int32(number) for number in (first, *rest))
        count = min(share, blocks - first)
        plan.kernels[name]((count,), THREADS_OF[name], (given, *numbers))


def _merged(device: Device, frames: Any, maxima: Maxima) -> Maxima:
    """Make the maxima on a plateau one; frames without one stay on the device."""
    numbers = np.unique(maxima["frame"][maxima["on_flat_area"] != 0])
    there = np.isin(maxima["frame"], numbers)
    own = maxima[there]
    own["frame"] = np.searchsorted(numbers, own["frame"])
    own = merge_plateaus(own, np.stack([device.fetch(frames[int(i)]) for i in numbers]))
    own["frame"] = numbers[own["frame"]]
    return in_order(np.concatenate([maxima[~there], own]))
