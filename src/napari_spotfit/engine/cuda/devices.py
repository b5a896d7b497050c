"""Which GPUs can be used here, or why none can.

CuPy is imported, and the driver asked, when a GPU is first looked for.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from ..errors import BackendUnavailableError
from . import reasons

#: All names under which CuPy is installed.
_PACKAGES = (
    "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x",
    "cupy-rocm-7-0", "cupy-rocm-7-1", "amd-cupy",
)  # fmt: skip
#: For so many seconds a look at a GPU's free memory counts, as the look takes time too.
_LOOK_AGAIN = 1.0


class Gpu(NamedTuple):
    """A GPU that CUDA shows to this process."""

    #: CUDA's number of it.
    number: int
    name: str
    #: Its compute capability, such as (9, 0).
    capability: tuple[int, int]


def usable(which: Literal["one", "all"] = "one") -> tuple[Gpu, ...]:
    """Return the GPUs to be used: the current CUDA device, or all that can be used.

    Raises
    ------
    BackendUnavailableError
        If there is none; the message says why, and what to do about it.
    """
    gpus = _visible()
    if which == "one":
        gpus = (gpus[_current()],)
    against = {gpu: _reason_against(gpu) for gpu in gpus}
    good = tuple(gpu for gpu in gpus if not against[gpu])
    if not good:
        raise BackendUnavailableError("\n".join(dict.fromkeys(against.values())))
    return good


def count() -> int:
    """Return how many GPUs are new enough, whether their memory is free or not."""
    try:
        return sum(gpu.capability >= reasons.OLDEST for gpu in _visible())
    except BackendUnavailableError:
        return 0


def names(gpus: Sequence[Gpu]) -> str:
    """Return what GPUs are called together, such as '2 × NVIDIA H200'."""
    numbers = Counter(gpu.name for gpu in gpus)
    return " + ".join(f"{n} × {name}" if n > 1 else name for name, n in numbers.items())


def _visible() -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA shows, old ones and full ones too, or raise."""
    if reasons.hides_all(os.environ.get("CUDA_VISIBLE_DEVICES")):
        raise BackendUnavailableError(reasons.hidden(_computer(0)))
    found = _probed()
    if isinstance(found, str):
        raise BackendUnavailableError(found)
    return found


@lru_cache(maxsize=1)
def _probed() -> tuple[Gpu, ...] | str:
    """Return the GPUs, or why there are none. What cannot change is found out once."""
    if not _driver():
        return reasons.no_driver(_computer(0))
    # What it warns of (several CuPy packages at once) is said in our own sentences.
    warnings.filterwarnings("ignore", module=r"cupy\._environment")
    try:
        import cupy

        runtime = cupy.cuda.runtime
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            # Raised, so that it is not kept: CuPy may be installed meanwhile.
            raise BackendUnavailableError(reasons.not_installed(_computer(0))) from None
        return reasons.not_importable(_computer(0), error)
    except Exception as error:
        return reasons.not_importable(_computer(0), error)
    computer = _computer(0 if runtime.is_hip else runtime.runtimeGetVersion())
    if runtime.is_hip:
        return reasons.not_cuda(computer)
    try:
        gpus = tuple(_gpu(runtime, number) for number in range(runtime.getDeviceCount()))
    except runtime.CUDARuntimeError as error:
        return reasons.failed(computer, error.status, str(error))
    problem = compiler_problem()
    return gpus if problem is None else reasons.no_compiler(computer, problem)


def _current() -> int:
    from cupy.cuda import runtime

    try:
        return int(runtime.getDevice())
    except runtime.CUDARuntimeError as error:
        raise BackendUnavailableError(_reason(error)) from error


def _gpu(runtime: Any, number: int) -> Gpu:
    about = runtime.getDeviceProperties(number)
    return Gpu(number, about["name"].decode(), (about["major"], about["minor"]))


def compiler_problem() -> Exception | None:
    """Return why NVRTC cannot be loaded, or None."""
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except Exception as error:
        return error
    return None


def _reason_against(gpu: Gpu) -> str:
    """Return why a GPU cannot be used now; nothing if it can."""
    if gpu.capability < reasons.OLDEST:
        return reasons.too_old(gpu.name, gpu.capability)
    from cupy.cuda import runtime

    try:
        free = free_memory(gpu.number)
    except runtime.CUDARuntimeError as error:
        return _reason(error)
    return reasons.no_memory(gpu.name, free) if free < reasons.LEAST_MEMORY else ""


def _reason(error: Any) -> str:
    """Explain a CUDARuntimeError."""
    from cupy.cuda import runtime

    return reasons.failed(_computer(runtime.runtimeGetVersion()), error.status, str(error))


def free_memory(number: int) -> int:
    """Return a GPU's free bytes, with those that CuPy keeps for this process."""
    return _free_memory(number, int(time.monotonic() / _LOOK_AGAIN))


@lru_cache(maxsize=64)
def _free_memory(number: int, moment: int) -> int:
    import cupy

    with cupy.cuda.Device(number):
        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free + cupy.get_default_memory_pool().free_bytes())


def _computer(cupy: int) -> reasons.Computer:
    """Return what the reasons are made of, with the CUDA that CuPy was built for."""
    return reasons.Computer(
        platform=sys.platform,
        driver=_driver(),
        cupy=cupy,
        packages=tuple(name for name in _PACKAGES if _is_installed(name)),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _is_installed(package: str) -> bool:
    from importlib import metadata  # as slow to import as the rest of the package

    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@lru_cache(maxsize=1)
def _driver() -> int:
    """Return the newest CUDA that NVIDIA's driver runs, 12040 for 12.4; 0 without it."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value
