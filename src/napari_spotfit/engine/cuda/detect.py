"""Detection on the GPU: bright local maxima of the band-passed frames.

The twin of :mod:`napari_spotfit.engine.cpu.detect`. Only candidates leave the device,
and the few frames in which they lie on flat areas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings, parameters
from ..detection import band
from ..detection.band import Band, Layout, make_band
from ..detection.candidates import Candidates, joined, limits_from, masks_of, nothing
from ..detection.nonmax_suppression import Flat, Places, merge_plateaus, one_per_spot
from .compile import kernel
from .layout import PIXEL_TYPES

#: Memory on the device that a call takes beside the frames, for one frame at least.
_SCRATCH_BYTES = 256 << 20
#: Frames that are worked on at a time, however small they are.
_MOST_FRAMES = 4096
#: For one in so many pixels, a candidate is fetched before their number is known.
_PIXELS_PER_CANDIDATE = 1024

#: Threads of a block; for the noise of frames with larger samples than this, more.
_THREADS, _SMALL_SAMPLE, _MORE_THREADS = 256, 1 << 14, 1024
#: Pixels of a row that a warp filters; of a frame that a block searches for maxima, and
#: for bad pixels; and into how many parts a frame is divided for the latter, at most.
_RUN, _SEGMENT, _PART, _MOST_PARTS = 128, 4096, 16384, 64
#: Samples of a frame that its noise is estimated from.
_SPREADS = 4

#: The kernels' argument and a candidate, as kernels/detect.cuh declares them.
_WORK = np.dtype(
    [
        (name, "u8")
        for name in (
            "frames", "weights", "border", "levels", "bad", "filtered", "samples", "spreads",
            "marks", "counts", "candidates",
        )
    ]
    + [(name, "f4") for name in ("gain", "border_min", "least_score", "least_height")]
    + [
        (name, "i4")
        for name in (
            "height", "width", "parts", "narrow_radius", "radius", "row_step", "room", "fetched",
        )
    ],
    align=True,
)  # fmt: skip
#: As plain bytes: CuPy would describe the fields of a structure anew for each launch.
_BYTES = np.dtype((np.void, _WORK.itemsize))
_PLACE, _ON_FLAT_AREA, _HEIGHT = slice(3), 3, 4  # and then the score
_COLUMNS = 6
_ROW = 4 * _COLUMNS
_HIGHEST = float(np.finfo(np.float32).max)

#: The kernels in the order in which they run.
_KERNELS = (
    ("detect_filter.cu", "find_levels"),
    ("detect_filter.cu", "band_pass"),
    ("detect_noise.cu", "measure_spreads"),
    ("detect_maxima.cu", "mark_maxima"),
    ("detect_maxima.cu", "list_maxima"),
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

    shape: tuple[int, int]
    band: Band
    #: On the device: both halves of the kernels, and the band's border.
    weights: Any
    border: Any
    #: Parts of a frame that are searched for bad pixels, and room for a sample.
    parts: int
    room: int
    kernels: tuple[Callable[..., None], ...]
    #: How many blocks of how many threads each kernel needs for a frame.
    blocks: tuple[tuple[int, tuple[int, ...]], ...]
    #: Bytes per frame of what the kernels make of it, in the order of ``_WORK``.
    sizes: tuple[int, ...]


class _Found(NamedTuple):
    """Maxima in the order of frame, y and x."""

    places: Places
    heights: Flat
    scores: Flat

    def at(self, rows: NDArray[np.int64]) -> _Found:
        return _Found(self.places[rows], self.heights[rows], self.scores[rows])


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
    made = make_band(sigma, shape)
    weights = np.zeros((2, len(made.wide)), np.float32)
    weights[0, : len(made.narrow)], weights[1] = made.narrow, made.wide
    macros = _macros() | {"PIXEL": PIXEL_TYPES[dtype.str[1:]]}
    parts = min(-(-size // _PART), _MOST_PARTS) if dtype.kind == "f" else 1
    room, segments = (height // made.row_step + 1) * width, -(-size // _SEGMENT)
    warps = _THREADS // 32
    noise_threads = _THREADS if room <= _SMALL_SAMPLE else _MORE_THREADS
    blocks = (
        (parts, (_THREADS,)),
        (-(-width // _RUN) * -(-height // warps), (32, warps)),
        (_SPREADS, (noise_threads,)),
        (segments, (_THREADS,)),
        (segments, (_SEGMENT // 32,)),
    )
    # Of neighbours, one at most is a maximum.
    maxima = -(-height // 2) * -(-width // 2)
    sizes = (
        dtype.itemsize, 4 * parts, 4 * size, 4 * _SPREADS * room, 4 * _SPREADS,
        segments * _SEGMENT // 8, 4 * segments, _ROW * maxima,
    )  # fmt: skip
    return _Plan(
        shape, made, device.put(weights), device.put(made.border), parts, room,
        tuple(
            device.kernel(*name, **macros, THREADS=math.prod(threads))
            for name, (_, threads) in zip(_KERNELS, blocks, strict=True)
        ),
        blocks, sizes,
    )  # fmt: skip


@lru_cache
def _macros() -> dict[str, float]:
    """Return the compile-time numbers of the kernels, but for type of pixels and threads."""
    names = (
        "TOO_FAR", "LEVEL_SAMPLES", "LEAST_WEIGHT", "CLIP", "KEPT_VARIANCE", "TEXTURE",
        "WHITENESS", "SETTLED", "MAX_ITERATIONS", "HASTE", "FAR_HASTE", "LEAST_CHANGE",
        "LEAST_CONTRAST",
    )  # fmt: skip
    widest = parameters()["sigma"].maximum
    assert widest is not None
    return {name: getattr(band, name) for name in names} | {
        "MAX_RADIUS": band.kernel_radius(band.RATIO * widest),
        "RUN": _RUN,
        "SEGMENT": _SEGMENT,
        "SPREADS": _SPREADS,
    }


def _detect(
    device: Device,
    plan: _Plan,
    frames: Any,
    masks: NDArray[np.bool_] | None,
    settings: Settings,
) -> Candidates:
    """Detect in so many frames that there is memory for all of them."""
    n, (height, width), made = len(frames), plan.shape, plan.band
    offsets, end = [], 0
    for size in plan.sizes:
        offsets.append(end)
        end += -(-size * n // 256) * 256
    end += _ROW  # the number of candidates comes first
    some = min(1 + n * height * width // _PIXELS_PER_CANDIDATE, (end - offsets[-1]) // _ROW)
    scratch = device.allocate(end)
    base, limits = device.address(scratch), limits_from(settings)
    work = np.array(
        (
            device.address(frames), device.address(plan.weights), device.address(plan.border),
            *(base + offset for offset in offsets),
            made.gain, made.border_min, min(limits.score, _HIGHEST), min(limits.height, _HIGHEST),
            height, width, plan.parts,
            len(made.narrow) - 1, len(made.wide) - 1, made.row_step, plan.room, some,
        ),
        _WORK,
    ).view(_BYTES)  # fmt: skip
    for run, (blocks, threads) in zip(plan.kernels, plan.blocks, strict=True):
        run((n * blocks,), threads, (work,))

    table = device.fetch(scratch[offsets[-1] : offsets[-1] + _ROW * some])
    count = 1 + int(table[:4].view(np.int32)[0])
    if count > some:
        rest = scratch[offsets[-1] + _ROW * some : offsets[-1] + _ROW * count]
        table = np.concatenate([table, device.fetch(rest)])
    whole = table[_ROW : _ROW * count].view(np.int32).reshape(-1, _COLUMNS)
    columns = np.empty((3, len(whole)), np.int64)
    columns[:] = whole[:, _PLACE].T
    heights, scores = whole[:, _HEIGHT:].T.copy().view(np.float32)
    found = _Found(columns.T, heights, scores)
    on_plateau = whole[:, _ON_FLAT_AREA] != 0
    merged = bool(on_plateau.any())
    if merged:
        levels = device.fetch(scratch[: plan.sizes[0] * n]).view(frames.dtype)
        found = _merged(device, frames, levels, found, on_plateau)
    return one_per_spot(*found, masks, limits.distance, merged)


def _merged(
    device: Device, frames: Any, levels: NDArray[Any], found: _Found, on_plateau: NDArray[np.bool_]
) -> _Found:
    """Make the maxima on a plateau one; frames without one stay on the device."""
    found = _Found(np.ascontiguousarray(found.places), found.heights, found.scores)
    height, width = frames.shape[1:]
    layout = Layout(height, width, width)
    kept = np.ones(len(found.scores), bool)
    for frame in np.unique(found.places[on_plateau, 0]):
        image = _image(device.fetch(frames[frame]), levels[frame])
        low, high = np.searchsorted(found.places[:, 0], [frame, frame + 1])
        left = merge_plateaus(image, layout, frame, *(column[low:high] for column in found))
        kept[low + left : high] = False
    order = np.flatnonzero(kept)
    return found.at(order[np.lexsort(found.places[order].T[::-1])])


def _image(pixels: NDArray[Any], level: Any) -> Flat:
    """Return a frame less its level, bad pixels as 0, flat and in a row of its own."""
    kind = np.dtype(np.float64 if pixels.dtype == np.float64 else np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        image: Flat = np.subtract(pixels, level, dtype=kind).astype(np.float32)
    image[~(np.abs(image) < np.float32(band.TOO_FAR))] = 0
    return image.reshape(1, -1)
