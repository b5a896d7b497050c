"""The GPU's joint fits on the host: a backend that is the CPU's but for them."""

from __future__ import annotations

import numpy as np
import on_host

from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cpu.crowd_fits import bytes_of
from napari_spotfit.engine.crowds import SPOT
from napari_spotfit.engine.cuda import crowd_fits
from napari_spotfit.engine.cuda.compile import as_argument, source

#: Along z, y and x.
WIDTHS = (1.7, 1.3, 1.3)


def image_of(places, shape, seed=1):
    """Return an image of spots with the noise of photons."""
    grid, mean = np.indices(shape), np.full(shape, 10.0)
    widths = WIDTHS[3 - len(shape) :]
    for place in places:
        far = sum(((own - at) / width) ** 2
                  for own, at, width in zip(grid, place, widths, strict=True))  # fmt: skip
        mean += 1500 / np.prod(np.sqrt(2 * np.pi) * np.array(widths)) * np.exp(-far / 2)
    return np.random.default_rng(seed).poisson(mean).astype(np.uint16)


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
            one_block = (1,), (crowd_fits.THREADS,)
            on_host.launch(text(given), "fit_crowds", *one_block, arguments, optimised=False)
            return spots, places

        return crowd_fits.in_rounds(np.argsort(-size, kind="stable"), self.room, launch)


def assert_same_spots(found, expected):
    """Check that spots are the same but for rounding: both stop where little more is to gain."""
    for name in ("crowd", "candidate", "pixels", "spots", "is_settled"):
        np.testing.assert_array_equal(found[name], expected[name])
    for name in ("z", "y", "x", "light", "background"):
        off = abs(found[name] - expected[name])
        assert (off <= 0.03 * expected[f"{name}_error"] + 1e-5 * abs(expected[name])).all(), name
        errors = f"{name}_error"
        np.testing.assert_allclose(found[errors], expected[errors], rtol=0.02, err_msg=errors)
    for name in ("evidence", "deviance", "tolerated", "squares"):
        np.testing.assert_allclose(found[name], expected[name], rtol=3e-3, atol=0.02, err_msg=name)
    for name in ("wider", "wider_error"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-3, err_msg=name)


def text(given):
    """Return the kernel's text for some crowds."""
    own = crowd_fits.macros(given.axes, has_psf=bool(given.heights)).items()
    macros = "".join(f"#define {name} {value}\n" for name, value in own)
    return macros + source("cuda/joint.cu") + "using spotfit::SPOTFIT_ISA::fit_crowds;\n"
