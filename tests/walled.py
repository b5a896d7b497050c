"""Arrays between walls: who reads or writes beside them is stopped by the operating system."""

from __future__ import annotations

import ctypes
import mmap
import os
import warnings

import numpy as np


def walled(array, at_end):
    """Return a copy at the beginning or the end of its pages, between pages of no access.

    At the end there may be a part of a word left: kernels read whole words.
    """
    page = mmap.PAGESIZE
    whole = -(-array.nbytes // page) * page
    memory = np.frombuffer(mmap.mmap(-1, whole + 2 * page), np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for wall in (memory.ctypes.data, memory.ctypes.data + page + whole):
        assert protect(wall, page, 0) == 0
    first = page + ((whole - array.nbytes) // 4 * 4 if at_end else 0)
    copy = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def exit_status(work):
    """Return what becomes of a copy of this process that does some work; 0 if all is well."""
    with warnings.catch_warnings():
        # The threads that are missed in the copy have nothing to do with the work.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]
