"""Find usable GPUs, or the reason why there are none.

CuPy is imported, and the driver called, on first use.
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

#: Names of CuPy's packages.
_PACKAGES = (
    "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x",
    "cupy-rocm-7-0", "cupy-rocm-7-1", "amd-cupy",
)  # fmt: skip
#: Seconds for which a GPU's free memory is cached, as asking takes time.
_LOOK_AGAIN = 1.0


class Gpu(NamedTuple):
    """A GPU that CUDA shows to this process."""

    #: CUDA's device number.
    number: int
    name: str
    #: Its compute capability, such as (9, 0).
    capability: tuple[int, int]


def usable(which: Literal["one", "all"] = "one") -> tuple[Gpu, ...]:
    """Return the current CUDA device, or all usable GPUs.

    Raises
    ------
    BackendUnavailableError
        If there is none; the message says why, and what to do.
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
    """Return the number of GPUs that are new enough, with or without free memory."""
    try:
        return sum(gpu.capability >= reasons.OLDEST for gpu in _visible())
    except BackendUnavailableError:
        return 0


def names(gpus: Sequence[Gpu]) -> str:
    """Return the names of GPUs as text, such as '2 × NVIDIA H200'."""
    numbers = Counter(gpu.name for gpu in gpus)
    return " + ".join(f"{n} × {name}" if n > 1 else name for name, n in numbers.items())


def _visible() -> tuple[Gpu, ...]:
    """Return all visible GPUs, even old and full ones, or raise an error."""
    if reasons.hides_all(os.environ.get("CUDA_VISIBLE_DEVICES")):
        raise BackendUnavailableError(reasons.hidden(_computer(0)))
    found = _probed()
    if isinstance(found, str):
        raise BackendUnavailableError(found)
    return found


@lru_cache(maxsize=1)
def _probed() -> tuple[Gpu, ...] | str:
    """Return the visible GPUs, or why there are none; cached unless it can change."""
    if not _driver():
        return reasons.no_driver(_computer(0))
    # Our own message says the same as its warning of several CuPy packages.
    warnings.filterwarnings("ignore", module=r"cupy\._environment")
    try:
        import cupy

        runtime = cupy.cuda.runtime
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            # An exception is not cached: CuPy may be installed later.
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
    """Return why a GPU cannot be used now; empty if it can."""
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
    """Return a GPU's free bytes, including those that CuPy caches for this process."""
    return _free_memory(number, int(time.monotonic() / _LOOK_AGAIN))


@lru_cache(maxsize=64)
def _free_memory(number: int, moment: int) -> int:
    import cupy

    with cupy.cuda.Device(number):
        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free + cupy.get_default_memory_pool().free_bytes())


def _computer(cupy: int) -> reasons.Computer:
    """Return the state of the computer, with the CUDA version of CuPy."""
    return reasons.Computer(
        platform=sys.platform,
        driver=_driver(),
        cupy=cupy,
        packages=tuple(name for name in _PACKAGES if _is_installed(name)),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _is_installed(package: str) -> bool:
    from importlib import metadata  # slow to import

    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@lru_cache(maxsize=1)
def _driver() -> int:
    """Return the newest CUDA version of NVIDIA's driver, 12040 for 12.4; 0 without one."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value
