"""The GPU's joint fits on the host: a backend that is the CPU's but for them."""

from __future__ import annotations

import numpy as np
import on_host

from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cpu.crowd_fits import bytes_of
from napari_spotfit.engine.crowds import SPOT
from napari_spotfit.engine.cuda import crowd_fits
from napari_spotfit.engine.cuda.compile import as_argument, source


class CrowdsOnHost(Cpu):
    """Runs the kernel as engine/cuda/crowd_fits.py does, with one block of threads."""

    #: Spots that there is room for at a time.
    room = 4096

    def fit_crowds(self, block, crowds):
        frames = np.ascontiguousarray(block.pixels)
        given, size = crowds.within(frames, crowds.arrays), bytes_of(crowds)

        def launch(order, room):
            warps = crowd_fits.THREADS // 32
            begins = crowd_fits.memory_of_warps(size[order], warps)
            memory = np.full(begins[-1] + 64, 0xFF, np.uint8)
            own = memory[-memory.ctypes.data % 64 :]
            spots = np.full((room, SPOT.itemsize), 0xFF, np.uint8)
            places, taken = np.full((len(order), 2), -1), np.array([warps, 0], np.uint64)
            arguments = (
                as_argument(given), order, np.int64(len(order)), taken, own, begins, spots,
                np.int64(room), places,
            )  # fmt: skip
            on_host.launch(text(given.axes), "fit_crowds", (1,), (crowd_fits.THREADS,), arguments)
            return spots, places

        return crowd_fits.in_rounds(np.argsort(-size, kind="stable"), self.room, launch)


def text(axes):
    """Return the kernel's text for spots that move along some axes."""
    macros = "".join(f"#define {name} {value}\n" for name, value in crowd_fits.macros(axes).items())
    return macros + source("cuda/joint.cu") + "using spotfit::SPOTFIT_ISA::fit_crowds;\n"
