"""The GPU's kernel of fits on the host: the same code as for NVRTC, with fibers as threads.

What threads of one fit share, its rows and columns, sums and decisions, is tested like this
without a GPU. The arithmetic of a thread is that of the CPU's library.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT

from napari_spotfit.engine.cuda import fit
from napari_spotfit.engine.cuda.fit_kernel import FitKernel, kernel_text, threads_for
from napari_spotfit.engine.kernel_arguments import Results

HERE = Path(__file__).parent
BUILT = ROOT / "build" / "cuda_on_host"

#: Compiler flags of kernels whose tests take longer to run than to compile, and of others. zig
#: takes -O1 for -O2, which takes a third longer, and looks for undefined behaviour in debug builds.
_OPTIMISED = ("-O1", "-Xclang", "-O1")
_AS_THEY_ARE = ("-O0", "-fno-sanitize=all")

#: Appended to kernels: a function that launches one of them.
_LAUNCH = """
extern "C" int launch_{name}(unsigned grid, unsigned block, const void* const* given) {{
    static const void* const* arguments;
    arguments = given;
    host::work = [] {{ host::call({name}, arguments); }};
    return host::run_blocks(grid, block);
}}
"""


def kernel(code, threads=None, *, optimised=False):
    """Return the kernel of a kind of fits, to launch as on a device."""
    threads = threads or threads_for(code)
    text = kernel_text(code, threads)
    return FitKernel(lambda *given: launch(text, "fit", *given, optimised=optimised), threads)


def launch(text, name, grid, block, arguments, names=(), *, optimised=True):
    """Launch a kernel; arguments other than numbers and structures are memory.

    Where a text has several kernels, ``names`` are those of all, and they are compiled once.
    """
    kept = [np.array(one.ctypes.data if one.ndim else one) for one in arguments]
    places = (ctypes.c_void_p * len(kept))(*(value.ctypes.data for value in kept))
    launcher(text, name, names, optimised=optimised)(grid, block, places)


def launcher(text, name, names=(), *, optimised=True):
    """Return a function that launches a kernel by grid, block and addresses of arguments."""
    function = getattr(_library(text, names or (name,), optimised), f"launch_{name}")

    def call(grid, block, places):
        place = ctypes.cast(places, ctypes.c_void_p)
        assert function(*grid, *block, place), "threads of a warp went apart"

    return call


def fit_rois(frames, corners, shape, settings, start=None, *, planes=None, variance_map=None,
             threads=None, multiprocessors=1, optimised=False):  # fmt: skip
    """Run :func:`napari_spotfit.engine.cuda.fit.fit_rois` with arrays of the host."""
    count = len(frames) if corners is None else len(corners)
    task = fit.task_of(
        settings, shape, frames.dtype.str[1:], gather=corners is not None,
        planes=planes is not None, variance_map=variance_map is not None,
    )  # fmt: skip
    maps = fit.Maps.of(planes, variance_map)
    memory = np.full(task.row_bytes * count, 0xA5, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "fit_kernel", lambda *_: kernel(task.code, threads, optimised=optimised))
        patch.setattr(fit, "_device", lambda: 0)
        patch.setattr(fit, "psf_on_device", lambda psf, roi, _: psf_on_host(psf, roi))
        patch.setattr(fit, "_multiprocessors", lambda _: multiprocessors)
        fit._on_device.cache_clear()
        place = memory.ctypes.data
        run, given = task.launches(frames, corners, start, maps, place, count, count)
        for one in given:
            run(*one)
    return Results.within(memory, count, settings).columns(settings.profile)


@cache
def psf_on_host(psf, roi_shape):
    """Return a measured PSF as a GPU has it in its memory; aligned, as there."""

    def aligned(array):
        memory = np.empty(array.nbytes + 64, np.uint8)
        begin = -memory.ctypes.data % 64
        own = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        own[...] = array
        return own

    return fit.lay_out_psf(psf, roi_shape, aligned)


@cache
def _library(text, names, optimised):
    """Compile kernels with a function that launches them."""
    if sys.platform != "linux":
        pytest.skip("needs Linux, whose fibers take turns")
    prelude = (HERE / "warp_on_host.h").read_text("utf-8")
    text = prelude + text + "".join(_LAUNCH.format(name=name) for name in names)
    # The few C functions are in any Python.
    flags = ["-std=c++17", "-g0", "-w", "-fPIC", "-fno-exceptions", "-fno-rtti", "-nostdlib",
             *(_OPTIMISED if optimised else _AS_THEY_ARE)]  # fmt: skip
    command = [*_compiler(), *flags, "-shared", "-DSPOTFIT_ISA=cuda"]
    key = hashlib.sha256((text + shlex.join(command)).encode()).hexdigest()[:32]
    built = BUILT / f"{key}.so"
    if not built.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        source = BUILT / f"{key}-{os.getpid()}.cpp"
        unfinished = source.with_suffix(".so")
        source.write_text(text, "utf-8")
        subprocess.run([*command, str(source), "-o", str(unfinished)], check=True)
        source.unlink()
        unfinished.replace(built)
    return ctypes.CDLL(str(built))


def _compiler():
    named = os.environ.get("CXX")
    return shlex.split(named) if named else [sys.executable, "-m", "ziglang", "c++"]
