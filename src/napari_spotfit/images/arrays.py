"""Arrays of any kind: NumPy, CuPy, Dask, Zarr and the like, on the host and on GPUs."""

from __future__ import annotations

import sys
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
            f"{what} has a shape that Dask does not know, {tuple(array.shape)}; find it out first: "
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
        If some of its values are masked, as fits and detection would not know, or if it is a
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
    """Return an array of the host's where another one lies: there, or on a GPU."""
    if not is_on_device(other):
        return array
    import cupy

    return cupy.asarray(array)
