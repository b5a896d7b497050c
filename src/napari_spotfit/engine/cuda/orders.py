"""Collect commands for a GPU, and submit them in one call of the library.

Every call of CUDA's lets other threads have the interpreter's lock, and where several work side by
side it takes some 50 µs until one has it again: longer than most of what a block of frames needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel_arguments import address
from . import staging

#: Page-locked memory through which results come back, a part at a time if there is more of them.
_ROOM = 16 << 20


class Orders:
    """Orders for the current device and its current stream, carried out together.

    Arrays go up, then kernels run, then results come back. What is sent has to stay as it is until
    then.

    Examples
    --------
    To double numbers on the GPU::

        orders = Orders()
        there = orders.send(np.arange(3.0))
        orders.launch(double_kernel, (1,), (32,), (there, np.int32(3)))
        doubled = orders.fetch(there)
        orders.carry_out()
    """

    def __init__(self) -> None:
        self._sent: list[staging.Move] = []
        self._launches: list[staging.Launched] = []
        self._fetched: list[tuple[NDArray[Any], int]] = []
        #: What must outlast it all.
        self._kept: list[Any] = []

    def send(self, array: Any) -> Any:
        """Return memory of the device to which an array of the host's goes; others as they are."""
        import cupy

        if not isinstance(array, np.ndarray):
            return array
        array = np.ascontiguousarray(array)
        there = cupy.empty(array.shape, array.dtype)
        if array.nbytes:
            self._sent.append((address(there), address(array), array.nbytes))
        self._kept += array, there
        return there

    def launch(
        self, kernel: Any, grid: tuple[int], block: tuple[int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel, given as CuPy takes it."""
        self._launches.append((kernel, grid, block, arguments))
        self._kept.append(arguments)

    def fetch(self, there: Any, memory: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return memory of the host's to which a C-contiguous array of the device comes at last."""
        here: NDArray[Any] = np.empty(there.shape, there.dtype) if memory is None else memory
        if here.nbytes:
            self._fetched.append((here, address(there)))
        self._kept.append(there)
        return here

    def keep(self, *memory: Any) -> None:
        """Keep memory that kernels know by its address until they are done."""
        self._kept += memory

    def carry_out(self, *, wait: bool = True) -> None:
        """Submit all commands that were not submitted yet; by default, wait for them."""
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        room = min(sum(here.nbytes for here, _ in self._fetched), _ROOM)
        memory = staging.pinned(room) if room else None
        with staging.staging() as parts:
            for received, brought in self._parts(address(memory), room):
                parts.carry_out(
                    stream, self._sent, self._launches, received, brought if wait else None
                )
                self._sent, self._launches = [], []
        self._fetched = []

    def _parts(
        self, memory: int, room: int
    ) -> Iterator[tuple[list[staging.Move], list[staging.Move]]]:
        """Yield what comes to page-locked memory at a time, and where it goes from there."""
        received: list[staging.Move] = []
        brought: list[staging.Move] = []
        used = 0
        for here, there in self._fetched:
            for first in range(0, here.nbytes, _ROOM):
                size = min(_ROOM, here.nbytes - first)
                if used + size > room:
                    yield received, brought
                    received, brought, used = [], [], 0
                received.append((memory + used, there + first, size))
                brought.append((address(here) + first, memory + used, size))
                used += size
        yield received, brought
