"""Collect commands for a GPU, and submit them in one call of the library.

Every call of CUDA releases the interpreter's lock. With several threads it takes some 50 µs to get
it back, longer than most of the work on a block of frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernel_arguments import address
from . import staging

#: Largest page-locked buffer through which results are downloaded, part by part if necessary.
_ROOM = 16 << 20


class CommandList:
    """Commands for the current device and its current stream, submitted together.

    Arrays are uploaded, then kernels run, then results are downloaded. Arrays to upload must not
    change before.

    Examples
    --------
    To double numbers on the GPU::

        commands = CommandList()
        on_device = commands.upload(np.arange(3.0))
        commands.launch(double_kernel, (1,), (32,), (on_device, np.int32(3)))
        doubled = commands.download(on_device)
        commands.run()
    """

    def __init__(self) -> None:
        self._uploads: list[staging.Move] = []
        self._launches: list[staging.Launched] = []
        self._downloads: list[tuple[NDArray[Any], int]] = []
        #: Arrays that must stay alive until the commands are done.
        self._kept: list[Any] = []

    def upload(self, array: Any) -> Any:
        """Return memory on the device for an array of the host; other arrays unchanged."""
        import cupy

        if not isinstance(array, np.ndarray):
            return array
        array = np.ascontiguousarray(array)
        on_device = cupy.empty(array.shape, array.dtype)
        if array.nbytes:
            self._uploads.append((address(on_device), address(array), array.nbytes))
        self._kept += array, on_device
        return on_device

    def launch(
        self, kernel: Any, grid: tuple[int], block: tuple[int], arguments: Sequence[Any]
    ) -> None:
        """Launch a kernel, with arguments as for CuPy."""
        self._launches.append((kernel, grid, block, arguments))
        self._kept.append(arguments)

    def download(self, on_device: Any, memory: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return memory on the host for a C-contiguous array of the device."""
        on_host: NDArray[Any] = (
            np.empty(on_device.shape, on_device.dtype) if memory is None else memory
        )
        if on_host.nbytes:
            self._downloads.append((on_host, address(on_device)))
        self._kept.append(on_device)
        return on_host

    def keep(self, *memory: Any) -> None:
        """Keep memory alive until the commands are done, as kernels only have its address."""
        self._kept += memory

    def run(self, *, wait: bool = True) -> None:
        """Submit all commands not submitted yet; by default, wait for them."""
        import cupy

        stream = cupy.cuda.get_current_stream().ptr
        room = min(sum(on_host.nbytes for on_host, _ in self._downloads), _ROOM)
        memory = staging.pinned(room) if room else None
        with staging.staging() as parts:
            for received, copies in self._parts(address(memory), room):
                parts.run(stream, self._uploads, self._launches, received, copies if wait else None)
                self._uploads, self._launches = [], []
        self._downloads = []

    def _parts(
        self, memory: int, room: int
    ) -> Iterator[tuple[list[staging.Move], list[staging.Move]]]:
        """Yield downloads that fit into page-locked memory, and the copies from there."""
        received: list[staging.Move] = []
        copies: list[staging.Move] = []
        used = 0
        for on_host, on_device in self._downloads:
            for first in range(0, on_host.nbytes, _ROOM):
                size = min(_ROOM, on_host.nbytes - first)
                if used + size > room:
                    yield received, copies
                    received, copies, used = [], [], 0
                received.append((memory + used, on_device + first, size))
                copies.append((address(on_host) + first, memory + used, size))
                used += size
        yield received, copies
