"""The GPU's detection and its search for hot pixels on the host, with fibers as threads."""

from __future__ import annotations

import numpy as np
import on_host

from napari_spotfit.engine.cuda import detect as cuda
from napari_spotfit.engine.cuda.compile import Device, source


def _kernel(file, name, **macros):
    before = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
    names = tuple(cuda.THREADS_OF) if name in cuda.THREADS_OF else (name,)
    using = "".join(f"using spotfit::SPOTFIT_ISA::{one};\n" for one in names)
    text, optimised = before + source(file) + using, file != "cuda/volume_detection.cu"
    return lambda *given: on_host.launch(text, name, *given, names, optimised=optimised)


def _allocate(size):
    """Return memory with arbitrary content."""
    return np.full(size, 0xA5, np.uint8)


class _Commands:
    """CommandList that are carried out as they are given."""

    upload = staticmethod(np.ascontiguousarray)

    def download(self, there, memory=None):
        if memory is None:
            return np.asarray(there)
        memory[...] = there
        return memory

    def launch(self, kernel, grid, block, arguments):
        given = [
            np.ndarray((), f"V{len(one)}", one) if isinstance(one, bytes) else one
            for one in arguments
        ]
        kernel(grid, block, given)

    def keep(self, *memory):
        pass

    def run(self, *, wait=True):
        pass


HOST = Device(
    0, _allocate, lambda array: array.ctypes.data, np.ascontiguousarray, _kernel, _Commands
)


def detect(frames, settings, mask=None, variance_map=None, *, level=None):
    """Run :func:`napari_spotfit.engine.cuda.detect.detect` with arrays of the host."""
    return cuda.detect_on(HOST, frames, settings, mask, variance_map, level)
