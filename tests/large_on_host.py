"""The GPU's kernels of large ROIs on the host, with fibers for threads."""

from __future__ import annotations

import ctypes

import numpy as np
import on_host

from napari_spotfit.engine.cuda import large_rois

#: After a kernel: all blocks of a launch, one after the other. Arguments are read as they are
#: written down in the kernel.
_LAUNCH = """
static const void* const* arguments;
template <class T> struct Given {{ using Type = T; }};
template <class T> struct Given<const T> {{ using Type = T; }};
template <class... T, int... I> static void call_with(void (*kernel)(T...), std_sequence<I...>) {{
    kernel(*static_cast<const typename Given<T>::Type*>(arguments[I])...);
}}
template <class... T> static void call_kernel(void (*kernel)(T...)) {{
    call_with(kernel, __make_integer_seq<std_sequence_of, int, sizeof...(T)>());
}}
static void call() {{ call_kernel({name}); }}
extern "C" int launch(unsigned grid, unsigned block, const void* const* given) {{
    bool together = true;
    arguments = given;
    host::work = call;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (unsigned first = 0; first < block; first += 32)
            together = host::run_warp(int(first)) && together;
    return together;
}}
"""
_SEQUENCE = """
template <int... I> struct std_sequence {};
template <class, int... I> using std_sequence_of = std_sequence<I...>;
"""


def machine(settings, pixel):
    """Return what makes the numbers of requests, of arrays of the host."""
    return large_rois.Machine(settings, pixel, _launch, lambda count: np.full(count, np.nan))


def pixels(frames, planes=None, variances=None):
    """Return where a frame's pixels lie, a ROI as a whole."""
    arrays = (None if array is None else array.ctypes.data for array in (frames, planes, variances))
    return large_rois.LargePixels(*arrays, frames.shape[-1])


def _launch(text, name, warps, *arguments):
    library = on_host.library(text + _SEQUENCE + _LAUNCH.format(name=name))
    # Memory is given by its address.
    kept = [np.array(given.ctypes.data) if given.ndim else np.array(given) for given in arguments]
    places = (ctypes.c_void_p * len(kept))(*(value.ctypes.data for value in kept))
    grid = -(-warps * large_rois.WARP // large_rois.THREADS)
    assert library.launch(grid, large_rois.THREADS, places), "threads of a warp went apart"
