"""Select the backend that runs the fits.

With ``backend="auto"``, one rule decides on any machine. Data in a GPU's memory are processed on
the GPU; data on the host, if one core would take longer than the start of a GPU run. The numbers
are those of an NVIDIA H200 and an Intel Xeon with 32 cores, 2026-11-23 (docs/performance.md).

What a backend needs is imported when it is chosen: the first fit on the CPU waits for nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..models.astigmatism import AstigmatismCalibration
from ..models.columns import IN_PLANE
from ..settings.settings import Settings
from ..settings.validation import ROI_MAX
from . import threads
from .backend import Backend, BackendUnavailableError, Load
from .fit_job import GPU_VOXELS

if TYPE_CHECKING:
    from .cuda.devices import Gpu

#: Nanoseconds of a core for a fit: for each, and for each of its pixels.
#: Sums along the axes (separable models, least squares); sums over the pixels (all others).
_SEPARABLE, _PIXELWISE = (130.0, 1.1), (0.0, 9.0)
#: CPU time in nanoseconds above which a GPU launch pays off: of fits of cut-outs and at
#: places.
_LEAST_CPU_TIME = 110_000.0
#: Pixels of large ROIs, one by one, for which it is, and pixels that are searched for spots.
_LARGE_PIXELS, _SEARCHED_PIXELS = 81_000, 1 << 18


def gpu_pays_off_for_fits(
    settings: Settings, count: int, roi_shape: tuple[int, ...], *, weighted: bool = False
) -> bool:
    """Whether a GPU pays off for fits of ROIs in the host's memory.

    Parameters
    ----------
    settings : Settings
        The model and the estimator count here.
    count : int
        How many fits are to come.
    roi_shape : tuple of int
        Pixels of the ROIs along each axis.
    weighted : bool
        Whether pixels have weights, or some are bad.

    Examples
    --------
    >>> [gpu_pays_off_for_fits(Settings(), count, (9, 9)) for count in (100, 1000)]
    [False, True]
    """
    pixels = math.prod(roi_shape)
    if len(roi_shape) > 2 and pixels > GPU_VOXELS:
        return False
    if max(roi_shape) > ROI_MAX:
        return count * pixels >= _LARGE_PIXELS
    is_fast = settings.profile.separable and settings.estimator_kind.is_separable and not weighted
    each, per_pixel = _SEPARABLE if is_fast else _PIXELWISE
    return count * (each + per_pixel * pixels) >= _LEAST_CPU_TIME


def gpu_pays_off_for_search(pixels: int) -> bool:
    """Whether a GPU pays off to detect spots in this many pixels of the host.

    Examples
    --------
    >>> gpu_pays_off_for_search(256 * 256), gpu_pays_off_for_search(4 * 256 * 256)
    (False, True)
    """
    return pixels >= _SEARCHED_PIXELS


#: Bytes of a block of frames. One that goes to a GPU holds the interpreter's lock for 4 ms in all,
#: whether it has one frame or a thousand.
_GPU_BYTES = 128 << 20
#: Blocks that are on their way to, on and from GPUs at the same time, and of each at least: more
#: only wait for the interpreter.
_GPU_WORKERS, _WORKERS_OF_EACH = 8, 3
#: Larger blocks wait for it less often, and with more of them each core has something to copy: how
#: many for each GPU at most, and its memory that each takes, of half of what is free.
_LARGE_GPU_BYTES, _MOST_WORKERS, _BYTES_OF_WORKER = 256 << 20, 24, 800 << 20


class Description(NamedTuple):
    """What would run the fits, in words; as a string, its name."""

    #: Such as 'NVIDIA H200' or 'CPU (2 threads)'.
    name: str
    #: Why it is no GPU, and what to do about it; nothing where the CPU was asked for.
    reason: str = ""
    #: How many GPUs there are to choose from.
    gpus: int = 0
    #: Of a CPU, the library's version and instruction set, or why there is none.
    library: str = ""

    def __str__(self) -> str:
        return self.name


def select_backend(settings: Settings, use_gpu: bool = True) -> Backend:
    """Return the backend that the settings ask for, for one run; with an astigmatic z, if so.

    Parameters
    ----------
    settings : Settings
        ``backend``, ``devices``, ``threads`` and the model count here.
    use_gpu : bool
        Whether "auto" takes a GPU where there is one, see :func:`gpu_pays_off_for_fits`.

    Raises
    ------
    BackendUnavailableError
        If the settings ask for CUDA and there is no GPU to be used.
    """
    backend = _of_widths(settings, use_gpu)
    if isinstance(settings.model, AstigmatismCalibration):
        from .depth import DepthBackend

        return DepthBackend(backend)
    return backend


def _of_widths(settings: Settings, use_gpu: bool) -> Backend:
    use_gpu = use_gpu and _has_room_on_gpu(settings)
    if settings.backend == "cpu" or (settings.backend == "auto" and not use_gpu):
        return _cpu(settings)
    from .cuda import devices
    from .fallback import Fallback

    try:
        gpus = devices.usable(settings.devices)
    except BackendUnavailableError:
        if settings.backend == "cuda":
            raise
        return _cpu(settings)

    def without(lost: Collection[int]) -> Backend | None:
        left = tuple(gpu for gpu in gpus if gpu.number not in lost)
        return _cuda(left) if left else None

    return Fallback(_cuda(gpus), lambda: _cpu(settings), without)


def _has_room_on_gpu(settings: Settings) -> bool:
    """Whether GPUs have room for the ROIs, as far as their size is known."""
    if settings.roi_size is None or settings.dimensions == len(IN_PLANE):
        return True
    return math.prod(settings.roi_shape) <= GPU_VOXELS


@lru_cache(maxsize=64)
def _recorded(settings: Settings, kind: str) -> Settings:
    return settings.changed(backend=kind)


def recorded(settings: Settings, backend: Backend) -> Settings:
    """Return the settings of results, with the backend that "auto" selected."""
    return _recorded(settings, backend.kind) if settings.backend == "auto" else settings


def usable_here(settings: Settings) -> Settings:
    """Return settings that can be run here: a GPU's results may be opened where there is none."""
    if settings.backend != "cuda":
        return settings
    from .cuda import devices

    try:
        devices.usable(settings.devices)
    except BackendUnavailableError:
        return settings.changed(backend="auto")
    return settings


def describe(settings: Settings) -> Description:
    """Say what would run the fits, and if that is no GPU, why."""
    if settings.backend == "cpu":
        return Description(_cpu(settings).name, library=_library())
    from .cuda import devices

    try:
        return Description(devices.names(devices.usable(settings.devices)), "", devices.count())
    except BackendUnavailableError as error:
        if settings.backend == "cuda":
            return Description("no GPU", str(error), devices.count())
        return Description(_cpu(settings).name, str(error), devices.count(), _library())


def _long_movies(gpus: tuple[Gpu, ...]) -> Load | None:
    """Return what keeps GPUs busier, where cores and memory are enough."""
    from .cuda import devices

    room = sum(devices.free_memory(gpu.number) // 2 // _BYTES_OF_WORKER for gpu in gpus)
    workers = min(threads.available(), room, _MOST_WORKERS * len(gpus))
    return Load(1, _LARGE_GPU_BYTES, workers) if workers > _GPU_WORKERS else None


def _cpu(settings: Settings) -> Backend:
    return _cpu_of(_threads(settings))


@lru_cache(maxsize=16)
def _cpu_of(count: int) -> Backend:
    from .cpu.backend import Cpu

    return Cpu(count)


def _library() -> str:
    from .cpu import library

    try:
        return library.load().description
    except (ImportError, ValueError) as error:
        return str(error)


def _threads(settings: Settings) -> int:
    return settings.threads or threads.available()


@lru_cache(maxsize=16)
def _cuda(gpus: tuple[Gpu, ...]) -> Backend:
    from .cuda import devices
    from .cuda.backend import Gpus

    workers = max(_GPU_WORKERS, _WORKERS_OF_EACH * len(gpus))
    return Gpus(
        [gpu.number for gpu in gpus], devices.names(gpus),
        Load(1, _GPU_BYTES, workers), _long_movies(gpus),
    )  # fmt: skip
