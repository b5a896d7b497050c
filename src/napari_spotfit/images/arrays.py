"""Convert arrays of any kind (NumPy, CuPy, Dask, Zarr …) for the backends, on host and GPU."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: DLPack's codes for memory of a CUDA device, and managed memory.
_CUDA_MEMORY = (2, 13)

#: Pixel types, and those in which the backends read them.
_NATIVE = {
    "b1": "u1", "u1": "u1", "u2": "u2", "i2": "i2", "f4": "f4", "f8": "f8", "i1": "i2", "f2": "f4",
}  # fmt: skip

#: Names of axes that run over planes.
PLANES = ("z", "plane", "planes", "depth")
#: Names of axes of frames, which are no planes.
FRAMES = ("t", "time", "frame", "frames")


def check_real(dtype: Any, what: str) -> np.dtype[Any]:
    """Return a dtype, or raise a TypeError if its numbers are not real."""
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind.kind not in "uif":
        raise TypeError(f"{what} must hold integers or real numbers; got {kind}")
    return kind


def known_shape(array: Any, what: str) -> tuple[int, ...]:
    """Return an array's shape, or raise a ValueError if it is unknown, as Dask's can be."""
    if any(size != size for size in array.shape):
        raise ValueError(
            f"{what} has a shape that Dask does not know, {tuple(array.shape)}; compute it first: "
            "array.compute_chunk_sizes()"
        )
    return tuple(int(size) for size in array.shape)


@cache
def native_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which the backends read pixels of this type."""
    return np.dtype(_NATIVE.get(f"{dtype.kind}{dtype.itemsize}", "f8"))


def is_native(array: Any) -> bool:
    """Whether the backends read pixels without a copy: native type, C-contiguous, aligned."""
    aligned = getattr(array.flags, "aligned", True)  # arrays on a GPU always are
    return bool(array.flags.c_contiguous and aligned and native_type(array.dtype) == array.dtype)


def to_native(array: Any) -> Any:
    """Convert pixels for the backends, without moving them between host and GPU."""
    return array if is_native(array) else array.astype(native_type(array.dtype), order="C")


def is_on_device(array: Any) -> bool:
    """Whether an array lies in the memory of a CUDA device."""
    if type(array) is np.ndarray:  # the most frequent case
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    place = getattr(array, "__dlpack_device__", None)
    return place is not None and int(place()[0]) in _CUDA_MEMORY


def as_array(array: Any) -> Any:
    """Return a NumPy array, or a CuPy array if the data lie on a GPU, without a copy.

    Raises
    ------
    ValueError
        If some values are masked, as fits and detection would ignore the mask, or if rows of a
        list differ in length.
    """
    if type(array) is np.ndarray:
        return array
    if "numpy.ma" in sys.modules:  # slow to import, and not needed if nothing has imported it
        if np.ma.isMaskedArray(getattr(array, "_meta", None)):
            array = array.compute()  # np.asarray would drop the mask of a Dask array
        if np.ma.is_masked(array):
            raise ValueError(
                "some values are masked (numpy.ma), and fits would ignore the mask; pass the "
                "array's .data, and bad_pixels=numpy.ma.getmaskarray(array)"
            )
    if not is_on_device(array):
        try:
            return np.asarray(array)
        except ValueError as error:
            if "inhomogeneous" not in str(error):
                raise
            raise ValueError(
                "arrays must have rows of one length; got a list whose parts differ in length"
            ) from None
    import cupy

    if hasattr(array, "__cuda_array_interface__"):
        return cupy.asarray(array)
    return cupy.from_dlpack(array)


def to_host(array: Any) -> Any:
    """Return an array in the host's memory, without a copy if it is there already."""
    if not is_on_device(array):
        return array
    import cupy

    return cupy.asnumpy(as_array(array))


def like(array: NDArray[Any], other: Any) -> Any:
    """Move a host array to where another array lies: the host or a GPU."""
    if not is_on_device(other):
        return array
    import cupy

    return cupy.asarray(array)


def is_local_dask(image: Any) -> bool:
    """Whether an image is a Dask array that is computed by threads of this process."""
    if not (hasattr(image, "dask") and hasattr(image, "vindex")):
        return False
    if np.ma.isMaskedArray(getattr(image, "_meta", None)):  # as_array checks it as a whole
        return False
    import dask.base
    import dask.local
    import dask.threaded

    return dask.base.get_scheduler(collections=[image]) in (dask.threaded.get, dask.local.get_sync)


def fill(
    pixels: NDArray[Any], image: Any, check: Callable[[int, tuple[int, ...], Any], NDArray[Any]]
) -> None:
    """Compute a Dask array into an array of the same shape.

    Parameters
    ----------
    pixels : ndarray, shape (…, Y, X)
        The result.
    image : dask.array.Array, of the same shape
        The Dask array.
    check : callable
        Called with the first row of a chunk, its expected shape and the chunk; returns the chunk
        as a NumPy array.

    Raises
    ------
    ValueError
        By ``check``, if a chunk has an unexpected shape.
    """
    import dask.array

    room: Any = _Room(pixels, check)
    dask.array.store(image, room, lock=False)
    if sum(room.sizes) != pixels.size:  # Dask does not store empty chunks
        check(0, pixels.shape, image.compute())


class _Room:
    """A target for :func:`dask.array.store` that checks chunks."""

    def __init__(
        self, pixels: NDArray[Any], check: Callable[[int, tuple[int, ...], Any], NDArray[Any]]
    ) -> None:
        self._pixels, self._check = pixels, check
        self.shape, self.dtype = pixels.shape, pixels.dtype
        #: Number of pixels of each chunk, in the order in which threads stored them.
        self.sizes: list[int] = []

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex  # unique, as its content is not known yet

    def __setitem__(self, where: tuple[slice, ...], chunk: Any) -> None:
        own = self._pixels[where]
        own[...] = self._check(where[0].start or 0, own.shape, chunk)
        self.sizes.append(own.size)


def plane_axis(image: Any, names: Sequence[Any] | None = None, spatial: int = 2) -> str | None:
    """Return the name of the leading axis that runs over several planes, or None.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The image; those of xarray have names in ``dims``.
    names : sequence of str, optional
        Names of the axes, if the image does not have them.
    spatial : int
        Number of axes of a frame.

    Examples
    --------
    >>> import numpy as np
    >>> plane_axis(np.zeros((5, 9, 9)), ("z", "y", "x"))
    'z'
    """
    names = getattr(image, "dims", None) if names is None else names
    shape = getattr(image, "shape", ())
    if not isinstance(names, (tuple, list)) or len(names) != len(shape):
        return None
    leading = zip(names[:-spatial], shape[:-spatial], strict=True)
    return next(
        (str(name) for name, size in leading if str(name).lower() in PLANES and size > 1), None
    )


def fitted_by_plane(axis: str) -> str:
    """Return the warning that planes of a stack are fitted separately."""
    return (
        f"each plane along axis {axis} is fitted by itself: a spot that is seen in 5 planes "
        "gives 5 fits, without a z"
    )
