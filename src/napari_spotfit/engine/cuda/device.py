"""A device on which kernels run: a GPU, or the host in tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .command_list import CommandList
from .compile import kernel


class Device(NamedTuple):
    """The functions to allocate memory and run kernels on a device."""

    number: int
    #: Returns uninitialised bytes.
    allocate: Callable[[int], Any]
    address: Callable[[Any], int]
    #: Uploads a NumPy array for all streams.
    put: Callable[[NDArray[Any]], Any]
    #: Returns a kernel by file, name and macros, see :func:`.compile.kernel`.
    kernel: Callable[..., Any]
    #: Makes a :class:`.command_list.CommandList`.
    commands: Callable[[], Any]

    def download(self, array: Any) -> NDArray[Any]:
        """Download an array, after all work on the stream."""
        commands = self.commands()
        here: NDArray[Any] = commands.download(array)
        commands.run()
        return here


def current_device() -> Device:
    """Return CuPy's current GPU."""
    import cupy

    return _gpu(cupy.cuda.runtime.getDevice())


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
        put,
        kernel,
        CommandList,
    )
