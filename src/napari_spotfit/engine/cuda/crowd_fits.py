"""Fit crowds of spots together on a GPU, a warp for each; the largest ones on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...workers import Workers
from ..backend import Block
from ..cpu import crowd_fits as on_cpu
from ..crowds import SPOT, Crowds, joined, taken
from .compile import as_argument, kernel
from .devices import multiprocessors

#: Threads of a block, whose warps meet, and blocks of a multiprocessor.
THREADS, BLOCKS = 256, 2
_WARPS = THREADS // 32
#: The most candidates of a crowd, and its largest memory: a core of a CPU fits larger ones ten
#: times as fast as a warp, while the GPU fits the others. And the memory of all at a time.
MOST, _MOST_BYTES, _ROOM = 12, 16 << 20, 2 << 30


def macros(axes: int, *, has_psf: bool) -> dict[str, Any]:
    """Return the constants that the kernel is compiled for."""
    own = {"SPOT_AXES": axes, "SPOT_HAS_PSF": int(has_psf)}
    return own | {"THREADS": THREADS, "BLOCKS": BLOCKS}


def fit_crowds(frames: Any, block: Block, crowds: Crowds) -> NDArray[np.void]:
    """Return the spots of crowds, as :class:`~napari_spotfit.engine.backend.Backend` says.

    Each crowd is fitted by the same machine, whatever the others are.
    """
    size = on_cpu.bytes_of(crowds)
    is_large = (crowds.sizes > MOST) | (size > _MOST_BYTES)
    if not is_large.any():
        return _on_gpu(frames, crowds, size)
    small, large = np.flatnonzero(~is_large), np.flatnonzero(is_large)
    here = replace(block, pixels=to_host(block.pixels))
    with Workers(1) as other:
        later = other.submit(on_cpu.fit_crowds, here, crowds.some(large))
        parts = [_on_gpu(frames, crowds.some(small), size[small]), later.result()]
    for spots, which in zip(parts, (small, large), strict=True):
        spots["crowd"] = which[spots["crowd"]]
    made = joined(parts)
    return taken(made, np.argsort(made["crowd"], kind="stable"))


def _on_gpu(frames: Any, crowds: Crowds, size: NDArray[np.int64]) -> NDArray[np.void]:
    """Return the spots of crowds on the current GPU, given the memory that each takes."""
    import cupy

    if not len(crowds):
        return joined(())
    device = cupy.cuda.Device()
    frames = cupy.ascontiguousarray(frames)
    there = {name: cupy.asarray(array) for name, array in crowds.arrays.items()}
    given = crowds.within(frames, there)
    own = macros(given.axes, has_psf=bool(given.heights))
    run = kernel("cuda/joint.cu", "fit_crowds", **own)

    def launch(order: NDArray[np.int64], room: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        begins = memory_of_warps(size[order], BLOCKS * _WARPS * multiprocessors(device.id))
        memory = cupy.empty(int(begins[-1]), np.uint8)
        spots = cupy.empty((room, SPOT.itemsize), np.uint8)
        places, next_ones = cupy.empty((len(order), 2), np.int64), cupy.zeros(2, np.uint64)
        next_ones[0] = len(begins) - 1
        run(
            ((len(begins) - 1) // _WARPS,), (THREADS,),
            (as_argument(given), cupy.asarray(order), np.int64(len(order)), next_ones, memory,
             cupy.asarray(begins), spots, np.int64(room), places),
        )  # fmt: skip
        there = places.get()
        ends = there.sum(axis=1)
        return spots[: int(ends[ends <= room].max(initial=0))].get(), there

    return in_rounds(np.argsort(-size, kind="stable"), 2 * int(crowds.sizes.sum()), launch)


def in_rounds(
    order: NDArray[np.int64],
    room: int,
    launch: Callable[[NDArray[np.int64], int], tuple[NDArray[np.uint8], NDArray[np.int64]]],
) -> NDArray[np.void]:
    """Return the spots of crowds, crowd by crowd.

    Parameters
    ----------
    order : ndarray of int
        The numbers of the crowds, as they are begun.
    room : int
        For how many spots there is room; crowds that find none are fitted again.
    launch : callable
        Fits crowds with some room; returns the spots, and where those of each crowd begin and how
        many they are.
    """
    parts = []
    while len(order):
        rows, places = launch(order, room)
        first, count = places.T
        has_room = first + count <= room
        which = np.repeat(first[has_room], count[has_room]) + _within(count[has_room])
        parts.append(taken(rows.view(SPOT).ravel(), which))
        order, room = order[~has_room], max(room, 2 * int(count[~has_room].sum()))
    made = joined(parts)
    return taken(made, np.argsort(made["crowd"], kind="stable"))


def _within(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... for each of some counts."""
    begin = np.cumsum(count) - count
    return np.arange(count.sum()) - np.repeat(begin, count)


def memory_of_warps(size: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return where the memory of each warp begins, and the end of all.

    Parameters
    ----------
    size : ndarray of int
        The memory of each crowd, the largest first. The n-th warp begins with the n-th one, and no
        one that it takes later is larger.
    most : int
        How many warps there are at most.
    """
    warps = min(most, -(-len(size) // _WARPS) * _WARPS)
    own = np.full(warps, size[-1])
    own[: len(size)] = size[:warps]
    own = -(-own // 256) * 256
    fitting = int((np.cumsum(own) <= _ROOM).sum()) // _WARPS * _WARPS
    return np.concatenate([[0], np.cumsum(own[: max(fitting, _WARPS)])])
