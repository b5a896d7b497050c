"""One number, or one flag, for each pixel of an image's frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import as_array, check_real, is_on_device, known_shape, to_native
from .frames import FrameReader


class PerPixel:
    """One number for each pixel: the same for all frames, or for each frame its own.

    Parameters
    ----------
    values : array, shape (Y, X) or (…, Y, X)
        As large as a frame, or as the image; any kind of array that images may be.
    shape : tuple of int
        The image's shape.
    what : str
        Its name, for messages.
    flags : str, optional
        What True says of a pixel, where the values are booleans; without, they are numbers.

    Raises
    ------
    TypeError
        If the values are of the wrong kind.
    ValueError
        If they have another shape.
    """

    def __init__(self, values: Any, shape: tuple[int, ...], what: str, flags: str = "") -> None:
        if is_on_device(values) or not (hasattr(values, "shape") and hasattr(values, "dtype")):
            values = as_array(values)
        if not flags:
            check_real(values.dtype, what)
        elif np.dtype(values.dtype) != np.bool_:
            raise TypeError(f"{what} must be boolean, True {flags}; got {values.dtype}")
        own = known_shape(values, what)
        if own not in (shape[-2:], shape):
            accepted = " or ".join(str(one) for one in dict.fromkeys((shape[-2:], shape)))
            raise ValueError(f"{what} must have the shape {accepted}; got {own}")
        #: Whether it is the same for all frames, and whether it lies on a GPU.
        self.shared, self.on_device = len(values.shape) == 2, is_on_device(values)
        self._is_flag, self._frame_shape = bool(flags), shape[-2:]
        self._frame = _frame(values, own, what) if self.shared else None
        self._stack = None if self.shared else FrameReader(values, self._is_flag)

    @classmethod
    def of_mask(cls, mask: Any, shape: tuple[int, ...]) -> PerPixel | None:
        """Return where to search in an image, None for everywhere."""
        return None if mask is None else cls(mask, shape, "mask", flags="where to search")

    def read(self, block: NDArray[np.int64]) -> Any:
        """Return the values of some frames, of shape (1, Y, X) or (frames, Y, X)."""
        if self._stack is None:
            assert self._frame is not None
            values = self._frame[np.newaxis]
        elif len(block):
            values = self._stack.read(block)
        else:
            values = np.empty((0, *self._frame_shape), np.float32)
        return values.astype(np.bool_) if self._is_flag else values


def _frame(values: Any, shape: tuple[int, ...], what: str) -> Any:
    """Return values for all frames alike as backends read them."""
    frame = to_native(as_array(values))
    if frame.shape != shape:
        raise ValueError(f"{what} promised the shape {shape}, but came as {frame.shape}")
    return frame
