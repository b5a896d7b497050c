"""A pytest plugin for tools/sanitize.sh that gives each CuPy array its own allocation.

CuPy's memory pool would hide reads and writes beyond the end of an array.
"""

from __future__ import annotations

import pytest

_WORD = 4


def pytest_configure(config: pytest.Config) -> None:
    """Disable CuPy's memory pool."""
    import cupy

    cupy.cuda.set_allocator(_allocate)


def _allocate(size: int):
    """Allocate whole words, as kernels read them, with zeros as padding."""
    from cupy.cuda import memory, runtime

    whole = -(-size // _WORD) * _WORD
    place = memory.MemoryPointer(memory.Memory(whole), 0)
    if size % _WORD:
        # Wait, as other streams may use the memory.
        runtime.memset(place.ptr + whole - _WORD, 0, _WORD)
        runtime.deviceSynchronize()
    return place
