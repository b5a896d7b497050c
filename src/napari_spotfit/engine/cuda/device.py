"""A memory with frames, and how kernels work there: a GPU's, or another one that tests stand in."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compile import kernel
from .orders import Orders


class Device(NamedTuple):
    """A memory with frames, and how to work there."""

    number: int
    #: Uninitialized bytes.
    allocate: Callable[[int], Any]
    address: Callable[[Any], int]
    #: An array of NumPy's, there to stay.
    put: Callable[[NDArray[Any]], Any]
    #: A kernel by its file, name and macros, as napari_spotfit.engine.cuda.compile has it.
    kernel: Callable[..., Any]
    #: What is to be done there, as :class:`.orders.Orders` says.
    orders: Callable[[], Any]

    def fetch(self, array: Any) -> NDArray[Any]:
        """Return an array from there in the host's memory, when all that was begun is done."""
        orders = self.orders()
        here: NDArray[Any] = orders.fetch(array)
        orders.carry_out()
        return here


def current_device() -> Device:
    """Return the GPU that is CuPy's current one."""
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
        Orders,
    )
