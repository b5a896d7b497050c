"""Arrays of any kind: NumPy, CuPy, Dask, Zarr and the like, on the host and on GPUs."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: DLPack's codes for memory that a CUDA device reads.
_CUDA_MEMORY = (2, 13)

#: Pixel types that the backends read as they are, and what the others become.
_NATIVE = {
    "b1": "u1", "u1": "u1", "u2": "u2", "i2": "i2", "f4": "f4", "f8": "f8", "i1": "i2", "f2": "f4",
}  # fmt: skip

#: Names of axes of planes.
PLANES = ("z", "plane", "planes", "depth")


def check_real(dtype: Any, what: str) -> np.dtype[Any]:
    """Return a dtype, or raise a TypeError if its numbers are not real."""
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind.kind not in "uif":
        raise TypeError(f"{what} must hold integers or real numbers; got {kind}")
    return kind


def known_shape(array: Any, what: str) -> tuple[int, ...]:
    """Return an array's shape, or raise a ValueError if it is not known, as Dask's may be."""
    if any(size != size for size in array.shape):
        raise ValueError(
            f"{what} has a shape that Dask does not know, {tuple(array.shape)}; compute it first: "
            "array.compute_chunk_sizes()"
        )
    return tuple(int(size) for size in array.shape)


@cache
def native_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which the backends read pixels of a type."""
    return np.dtype(_NATIVE.get(f"{dtype.kind}{dtype.itemsize}", "f8"))


def is_native(array: Any) -> bool:
    """Whether the backends read pixels as they are: their type, C-contiguous, aligned."""
    aligned = getattr(array.flags, "aligned", True)  # on a GPU all are
    return bool(array.flags.c_contiguous and aligned and native_type(array.dtype) == array.dtype)


def to_native(array: Any) -> Any:
    """Return pixels as the backends read them, in the host's memory or a GPU's as they were."""
    return array if is_native(array) else array.astype(native_type(array.dtype), order="C")


def is_on_device(array: Any) -> bool:
    """Whether an array lies in the memory of a CUDA device."""
    if type(array) is np.ndarray:  # as most often
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    place = getattr(array, "__dlpack_device__", None)
    return place is not None and int(place()[0]) in _CUDA_MEMORY


def as_array(array: Any) -> Any:
    """Return an array of NumPy, or of CuPy where it lies on a device, without a copy.

    Raises
    ------
    ValueError
        If some of its values are masked, which fits and detection would ignore, or if it is a
        list whose parts differ in length.
    """
    if type(array) is np.ndarray:
        return array
    if "numpy.ma" in sys.modules:  # else nothing is masked, and it takes long to import
        if np.ma.isMaskedArray(getattr(array, "_meta", None)):
            array = array.compute()  # Dask's arrays lose the mask else
        if np.ma.is_masked(array):
            raise ValueError(
                "some values are masked (numpy.ma), which would be overlooked; give the array's "
                ".data, and its pixels that do not count as "
                "bad_pixels=numpy.ma.getmaskarray(array)"
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
    """Return an array in the host's memory; one that is there already, as it is."""
    if not is_on_device(array):
        return array
    import cupy

    return cupy.asnumpy(as_array(array))


def like(array: NDArray[Any], other: Any) -> Any:
    """Return a host array in the memory of another array: the host's, or a GPU's."""
    if not is_on_device(other):
        return array
    import cupy

    return cupy.asarray(array)


def is_local_dask(image: Any) -> bool:
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
    pixels : ndarray, shape (…, Y, X)
        The memory.
    image : dask.array.Array, of the same shape
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


def plane_axis(image: Any, names: Sequence[Any] | None = None, spatial: int = 2) -> str | None:
    """Return the name of a leading axis that runs over planes, if it has more than one.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The image; xarray's have names in ``dims``.
    names : sequence of str, optional
        The axes' names, where the image does not have them.
    spatial : int
        How many axes a frame has.

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
    """Return the warning that the planes of a stack are fitted one by one."""
    return (
        f"each plane along axis {axis} is fitted by itself: a spot that is seen in 5 planes gives "
        "5 fits, and has no depth"
    )
