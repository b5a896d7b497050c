"""A plugin of pytest for tools/sanitize.sh: each array of CuPy is a piece of memory of its own.

CuPy's pool of memory would hide what is read or written beyond an array's end.
"""

from __future__ import annotations

import pytest

_WORD = 4


def pytest_configure(config: pytest.Config) -> None:
    """Have CuPy ask CUDA for each array."""
    import cupy

    cupy.cuda.set_allocator(_allocate)


def _allocate(size: int):
    """Return whole words, as kernels read them; what fills the last one is 0."""
    from cupy.cuda import memory, runtime

    whole = -(-size // _WORD) * _WORD
    place = memory.MemoryPointer(memory.Memory(whole), 0)
    if size % _WORD:
        # What comes after on another stream must not be overtaken.
        runtime.memset(place.ptr + whole - _WORD, 0, _WORD)
        runtime.deviceSynchronize()
    return place
