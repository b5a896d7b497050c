"""Fit crowds of spots together on the CPU."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host, to_native
from .. import threads
from ..backend import Block
from ..crowds import SPOT, Crowds, joined
from ..kernel_arguments import address
from .library import load

#: Crowds of a thread's share, at least; and at most, and for each thread: of more threads, each
#: waits for the interpreter until others have handed in theirs.
_LEAST, _SHARE, _OF_EACH = 8, 64, 8
#: Spots that one thread fits in the time that it takes to hand some to another, or not much more.
_FEW = 32
#: Spots of a crowd whose fit takes so long that it is watched for being cancelled.
_LONG = 1000
#: Bytes of a line of the cache, by which kernels divide memory.
_LINE = 64
#: The largest memory of a crowd.
_MOST_BYTES = 2 << 30


def bytes_of(crowds: Crowds) -> NDArray[np.int64]:
    """Return the memory that each of some crowds takes."""
    each, library = np.empty(len(crowds), np.int64), load()
    given = crowds.within(np.empty(0, np.uint8), crowds.arrays)
    function = library.functions.spotfit_joint_bytes
    function(library.index, ctypes.byref(given), 0, len(crowds), address(each))
    return each


def fit_crowds(block: Block, crowds: Crowds) -> NDArray[np.void]:
    """Return the spots of crowds, as :class:`~napari_spotfit.engine.backend.Backend` says."""
    frames = np.ascontiguousarray(to_native(to_host(block.pixels)))
    given, stop = crowds.within(frames, crowds.arrays), ctypes.c_int()
    given.stop = ctypes.addressof(stop)
    library, sizes, parts = load(), crowds.sizes, dict[int, list[NDArray[np.void]]]()

    def work(begin: int, end: int) -> None:
        functions, by_reference = library.functions, ctypes.byref(given)
        size = functions.spotfit_joint_bytes(library.index, by_reference, begin, end, None)
        if size > _MOST_BYTES:
            raise ValueError(
                f"a crowd of {sizes[begin:end].max()} spots, linked where they are near each "
                f"other, takes {size >> 20} MB to fit together, more than {_MOST_BYTES >> 20}: "
                "allow fewer false spots, give parts of the image, or neighbours='exclude'"
            )
        # Lines of pixels begin where those of the cache do.
        memory = np.empty(size + _LINE, np.uint8)
        memory = memory[-address(memory) % _LINE :]
        room = functions.spotfit_most_joint_spots(library.index, int(sizes[begin:end].max()))
        room = max(room, 2 * int(sizes[begin:end].sum()))
        count, own = ctypes.c_longlong(), []
        at = begin
        while at < end:
            found = np.empty(room, SPOT)
            at = functions.spotfit_fit_joint(
                library.index, by_reference, at, end, address(memory), address(found), room,
                ctypes.byref(count),
            )  # fmt: skip
            own.append(found[: count.value])
        parts[begin] = own

    count = crowds.threads or threads.available()

    def end() -> None:
        stop.value = 1

    is_long = int(sizes.max(initial=0)) > _LONG
    share = len(crowds)
    if sizes.sum() > _FEW and count > 1:
        share = min(max(share // (8 * count), _LEAST), max(_SHARE, _OF_EACH * count))
    threads.in_pieces(work, len(crowds), share, count, end if is_long else None)
    return joined(part for begin in sorted(parts) for part in parts[begin])
