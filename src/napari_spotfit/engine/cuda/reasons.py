"""Messages on why no GPU can be used, and what to do about it.

Commands are on lines of their own, to be copied. The state of the computer comes from
:mod:`.devices`.
"""

from __future__ import annotations

from typing import NamedTuple

#: Oldest compute capability for which the kernels are compiled and tested.
OLDEST = (7, 5)
#: Bytes that must be free on a GPU.
LEAST_MEMORY = 128 << 20

# CUDA's error codes with an explanation here.
_NO_MEMORY, _STUB, _OLD_DRIVER, _BUSY, _NO_DEVICE, _DRIVER_CHANGED = 2, 34, 35, 46, 100, 803


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
    return f"CuPy cannot be imported ({first_line(root)}). {_anew(computer)}"


def not_cuda(computer: Computer) -> str:
    """Explain that this CuPy is not for NVIDIA GPUs."""
    return f"The installed CuPy is not the one for NVIDIA GPUs. {_anew(computer)}"


def no_compiler(computer: Computer, error: BaseException) -> str:
    """Explain that NVRTC is missing."""
    if len(computer.packages) > 1:
        return _several(computer)
    ours = any(package.startswith("cupy-cuda") for package in computer.packages)
    cure = f"Run:\n{_install(computer, computer.cupy)}" if ours else _anew(computer)
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
    return f"{names} are installed at once and overwrite each other. {_anew(computer)}"


def _anew(computer: Computer) -> str:
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
