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

from ..backend import BackendUnavailableError

#: Names of CuPy's packages.
_PACKAGES = (
    "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x",
    "cupy-rocm-7-0", "cupy-rocm-7-1", "amd-cupy",
)  # fmt: skip
#: Seconds for which a GPU's free memory is cached, as asking takes time.
_LOOK_AGAIN = 1.0
#: Oldest compute capability for which the kernels are compiled and tested.
OLDEST = (7, 5)
#: Bytes that must be free on a GPU.
LEAST_MEMORY = 128 << 20

# CUDA's error codes with an explanation here.
_NO_MEMORY, _STUB, _OLD_DRIVER, _BUSY, _NO_DEVICE, _DRIVER_CHANGED = 2, 34, 35, 46, 100, 803


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
        return sum(gpu.capability >= OLDEST for gpu in _visible())
    except BackendUnavailableError:
        return 0


def names(gpus: Sequence[Gpu]) -> str:
    """Return the names of GPUs as text, such as '2 × NVIDIA H200'."""
    numbers = Counter(gpu.name for gpu in gpus)
    return " + ".join(f"{n} × {name}" if n > 1 else name for name, n in numbers.items())


def _visible() -> tuple[Gpu, ...]:
    """Return all visible GPUs, even old and full ones, or raise an error."""
    if hides_all(os.environ.get("CUDA_VISIBLE_DEVICES")):
        raise BackendUnavailableError(hidden(_computer(0)))
    found = _probed()
    if isinstance(found, str):
        raise BackendUnavailableError(found)
    return found


@lru_cache(maxsize=1)
def _probed() -> tuple[Gpu, ...] | str:
    """Return the visible GPUs, or why there are none; cached unless it can change."""
    if not _driver():
        return no_driver(_computer(0))
    # Our own message says the same as its warning of several CuPy packages.
    warnings.filterwarnings("ignore", module=r"cupy\._environment")
    try:
        import cupy

        runtime = cupy.cuda.runtime
    except ModuleNotFoundError as error:
        if error.name == "cupy":
            # An exception is not cached: CuPy may be installed later.
            raise BackendUnavailableError(not_installed(_computer(0))) from None
        return not_importable(_computer(0), error)
    except Exception as error:
        return not_importable(_computer(0), error)
    computer = _computer(0 if runtime.is_hip else runtime.runtimeGetVersion())
    if runtime.is_hip:
        return not_cuda(computer)
    try:
        gpus = tuple(_gpu(runtime, number) for number in range(runtime.getDeviceCount()))
    except runtime.CUDARuntimeError as error:
        return failed(computer, error.status, str(error))
    problem = compiler_problem()
    return gpus if problem is None else no_compiler(computer, problem)


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
    if gpu.capability < OLDEST:
        return too_old(gpu.name, gpu.capability)
    from cupy.cuda import runtime

    try:
        free = free_memory(gpu.number)
    except runtime.CUDARuntimeError as error:
        return _reason(error)
    return no_memory(gpu.name, free) if free < LEAST_MEMORY else ""


def _reason(error: Any) -> str:
    """Explain a CUDARuntimeError."""
    from cupy.cuda import runtime

    return failed(_computer(runtime.runtimeGetVersion()), error.status, str(error))


def free_memory(number: int) -> int:
    """Return a GPU's free bytes, including those that CuPy caches for this process."""
    return _free_memory(number, int(time.monotonic() / _LOOK_AGAIN))


@lru_cache(maxsize=64)
def multiprocessors(number: int) -> int:
    """Return the number of multiprocessors of a GPU."""
    import cupy

    return int(cupy.cuda.Device(number).attributes["MultiProcessorCount"])


@lru_cache(maxsize=64)
def _free_memory(number: int, moment: int) -> int:
    import cupy

    with cupy.cuda.Device(number):
        free, _ = cupy.cuda.runtime.memGetInfo()
        return int(free + cupy.get_default_memory_pool().free_bytes())


def _computer(cupy: int) -> Computer:
    """Return the state of the computer, with the CUDA version of CuPy."""
    return Computer(
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


class Computer(NamedTuple):
    """The state of a computer as far as CUDA is concerned."""

    #: The operating system, as in ``sys.platform``.
    platform: str = "linux"
    #: Newest CUDA version of NVIDIA's driver, 12040 for 12.4; 0 without a driver.
    driver: int = 0
    #: CUDA version of CuPy; 0 without CuPy.
    cupy: int = 0
    #: Installed packages of CuPy; there should be one.
    packages: tuple[str, ...] = ()
    #: The environment variable CUDA_VISIBLE_DEVICES.
    visible: str | None = None


def hides_all(visible: str | None) -> bool:
    """Whether this value of CUDA_VISIBLE_DEVICES hides all GPUs."""
    return visible is not None and visible.split(",")[0].strip() in ("", "-1", "NoDevFiles")


def hidden(computer: Computer) -> str:
    """Explain that the user's environment hides the GPUs."""
    return (
        f"CUDA_VISIBLE_DEVICES={computer.visible!r} hides every GPU. "
        "Remove this environment variable, or set it to a GPU's number, and start again."
    )


def no_driver(computer: Computer) -> str:
    """Explain that there is no NVIDIA driver, and so most likely no NVIDIA GPU."""
    if computer.platform == "darwin":
        return "CUDA needs an NVIDIA GPU, and Macs have none that it supports."
    then = "." if computer.packages else f", then run:\n{_install(computer)}"
    return (
        "No NVIDIA driver was found: this computer has no NVIDIA GPU, or its driver is not "
        f"installed. For an NVIDIA GPU, install the driver from nvidia.com/drivers{then}"
    )


def not_installed(computer: Computer) -> str:
    """Explain that CuPy is missing on a computer with a driver."""
    if computer.driver < 12000:
        return (
            f"CuPy is not installed, and the NVIDIA driver (for CUDA {dotted(computer.driver)}) "
            f"is too old for it. Update the driver, then run:\n{_install(computer)}"
        )
    return f"CuPy, which gives access to the GPU, is not installed. Run:\n{_install(computer)}"


def not_importable(computer: Computer, error: BaseException) -> str:
    """Explain that CuPy is installed, but broken."""
    if len(computer.packages) > 1:
        return _several(computer)
    root = error.__cause__ or error
    return f"CuPy cannot be imported ({first_line(root)}). {_reinstall(computer)}"


def not_cuda(computer: Computer) -> str:
    """Explain that this CuPy is not for NVIDIA GPUs."""
    return f"The installed CuPy is not the one for NVIDIA GPUs. {_reinstall(computer)}"


def no_compiler(computer: Computer, error: BaseException) -> str:
    """Explain that NVRTC is missing."""
    if len(computer.packages) > 1:
        return _several(computer)
    ours = any(package.startswith("cupy-cuda") for package in computer.packages)
    cure = f"Run:\n{_install(computer, computer.cupy)}" if ours else _reinstall(computer)
    return f"NVIDIA's compiler NVRTC cannot be loaded ({first_line(error)}). {cure}"


def failed(computer: Computer, code: int, message: str) -> str:
    """Explain an error of CUDA's initialisation.

    Parameters
    ----------
    computer : Computer
        The computer.
    code : int
        CUDA's error code, a ``cudaError_t``.
    message : str
        CUDA's own message.
    """
    if code == _OLD_DRIVER and not computer.driver:
        return no_driver(computer)
    if len(computer.packages) > 1:
        return _several(computer)
    if code == _OLD_DRIVER:
        text = (
            f"The NVIDIA driver (for CUDA {dotted(computer.driver)}) is too old for the "
            f"installed CuPy (for CUDA {dotted(computer.cupy)}). Update the driver"
        )
        if computer.driver < 12000:
            return f"{text}."
        return f"{text}, or install the CuPy for it:\n{_swap(computer)}"
    if code == _NO_DEVICE and computer.visible is not None:
        return (
            f"CUDA_VISIBLE_DEVICES={computer.visible!r} leaves no GPU visible. "
            "Remove this environment variable, or set it to a GPU's number, and start again."
        )
    if code == _NO_DEVICE:
        return (
            "The NVIDIA driver finds no GPU. If the command nvidia-smi lists none either, "
            "the GPU is missing, switched off or not supported by this driver."
        )
    if code == _STUB:
        return (
            "Instead of the NVIDIA driver, the toolkit's stub of it was found. "
            "Take the folder “stubs” out of LD_LIBRARY_PATH, and start again."
        )
    if code == _NO_MEMORY:
        return f"The GPU has no memory left ({message}). {_FREE_MEMORY}"
    if code == _BUSY:
        return (
            "The GPU is reserved for another process, or no process may compute on it. "
            "Wait until it is free, or reset its compute mode:\nnvidia-smi -c 0"
        )
    if code == _DRIVER_CHANGED:
        return "The NVIDIA driver was updated since the computer was started. Restart it."
    return (
        f"CUDA failed ({message}). Start napari or Python again; should it fail again, "
        "restart the computer and update the NVIDIA driver."
    )


def too_old(name: str, capability: tuple[int, int]) -> str:
    """Explain that a GPU is too old for the kernels."""
    return (
        f"{name} is too old: its compute capability is {capability[0]}.{capability[1]}, and "
        f"{OLDEST[0]}.{OLDEST[1]} is needed (GeForce GTX 16 and RTX 20 series, T4 or newer)."
    )


def no_memory(name: str, free: int) -> str:
    """Explain that a GPU's memory is in use."""
    return (
        f"{name} has only {free >> 20} MB of its memory free, and {LEAST_MEMORY >> 20} MB are "
        f"needed. {_FREE_MEMORY}"
    )


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error, with its type."""
    lines = (line.strip(" =") for line in str(error).splitlines())
    said = next((line for line in lines if line), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


_FREE_MEMORY = (
    "Close other programs that use the GPU, such as notebooks or a second napari; "
    "the command nvidia-smi lists them."
)


def _several(computer: Computer) -> str:
    names = " and ".join(computer.packages)
    return f"{names} are installed at once and overwrite each other. {_reinstall(computer)}"


def _reinstall(computer: Computer) -> str:
    return f"Reinstall it:\n{_swap(computer)}"


def _swap(computer: Computer) -> str:
    """Return the commands that replace all CuPy packages by the right one."""
    install = _install(computer)
    if not computer.packages:
        return install
    return f"pip uninstall {' '.join(computer.packages)}\n{install}"


def _install(computer: Computer, cuda: int = 0) -> str:
    """Return the command that installs CuPy and NVRTC, for the driver or a CUDA version."""
    old = (cuda or computer.driver) // 1000 == 12
    return f'pip install "napari-spotfit[{"cuda12" if old else "cuda13"}]"'


def dotted(cuda: int) -> str:
    """Return CUDA's version as text: 12.4 for 12040."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"
