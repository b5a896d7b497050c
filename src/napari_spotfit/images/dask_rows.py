"""Chunks of a Dask array that go where they belong as they come, with no array of all of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_computed_here(image: Any) -> bool:
    """Whether an image is a Dask array whose chunks see the memory of this process."""
    if not (hasattr(image, "dask") and hasattr(image, "vindex")):
        return False
    if np.ma.isMaskedArray(getattr(image, "_meta", None)):  # it is looked at as a whole
        return False
    import dask.base
    import dask.local
    import dask.threaded

    return dask.base.get_scheduler(collections=[image]) in (dask.threaded.get, dask.local.get_sync)


def fill(
    pixels: NDArray[Any], image: Any, check: Callable[[int, tuple[int, ...], Any], NDArray[Any]]
) -> None:
    """Compute a Dask array into memory of its shape.

    Parameters
    ----------
    pixels : ndarray, shape (Y, X)
        The memory.
    image : dask.array.Array, shape (Y, X)
        What to compute.
    check : callable
        Called with the first row of a chunk, the shape that it should have, and the chunk; returns
        it as an array of NumPy.

    Raises
    ------
    ValueError
        By ``check``, if a chunk has another shape than it should have.
    """
    import dask.array

    room: Any = _Room(pixels, check)
    dask.array.store(image, room, lock=False)
    if sum(room.sizes) != pixels.size:  # an empty chunk is never put anywhere
        check(0, pixels.shape, image.compute())


class _Room:
    """Memory that chunks are put in."""

    def __init__(
        self, pixels: NDArray[Any], check: Callable[[int, tuple[int, ...], Any], NDArray[Any]]
    ) -> None:
        self._pixels, self._check = pixels, check
        self.shape, self.dtype = pixels.shape, pixels.dtype
        #: How many pixels each chunk had, in the order in which threads put them.
        self.sizes: list[int] = []

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex  # not by its contents: they are still to come

    def __setitem__(self, where: tuple[slice, ...], chunk: Any) -> None:
        own = self._pixels[where]
        own[...] = self._check(where[0].start or 0, own.shape, chunk)
        self.sizes.append(own.size)
