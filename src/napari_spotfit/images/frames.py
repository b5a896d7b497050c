"""Read frames of any image (NumPy, CuPy, Dask, Zarr, files …), a block at a time."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models.columns import AXES, IN_PLANE
from .arrays import (
    as_array,
    check_real,
    fill,
    is_local_dask,
    is_on_device,
    known_shape,
    native_type,
    plane_axis,
    to_host,
    to_native,
)
from .axes import axis_names, check_axes
from .files.opening import opened
from .reading import Box, ChunkGrid, edges, row_tiles

#: A selection of frames: all (None), or a slice, an index or indices along each leading axis.
AxisSelection: TypeAlias = "slice | int | Sequence[int]"
FrameSelection: TypeAlias = "AxisSelection | tuple[AxisSelection, ...] | None"

#: A part of a frame: a slice along each spatial axis.
Part: TypeAlias = "tuple[slice, ...]"

#: Size of a frame in bytes above which it is processed in tiles, and size of a tile.
LARGE_FRAME, TILE = 256 << 20, 128 << 20
#: Numbers of rows and columns of the pixels that :meth:`FrameReader.glance` reads.
_GLANCE = 4, 64


class FrameReader:
    """Reads the frames (planes or volumes) of an image (…, Y, X) by their number in C order.

    Parameters
    ----------
    image : array or path
        Any kind of array, or a file.
    flags : bool
        Whether it is boolean, and read as 0 and 1.
    spatial : int
        Number of axes of a frame: 3 for volumes (Z, Y, X).
    checked : bool
        Whether to check that its axes are (…, y, x), with at most one channel.

    Raises
    ------
    TypeError
        If the pixels are complex, boolean or not numbers.
    ValueError
        If the image has fewer axes than a frame, no pixels, several channels or too short a last
        axis, or if frames that are read have an unexpected shape.

    Examples
    --------
    >>> import numpy as np
    >>> reader = FrameReader(np.zeros((5, 4, 30, 20)), spatial=3)
    >>> reader.count, reader.frame_shape
    (5, (4, 30, 20))
    """

    def __init__(
        self, image: Any, flags: bool = False, spatial: int = 2, *, checked: bool = True
    ) -> None:
        image = opened(image)
        if is_on_device(image) or not (hasattr(image, "shape") and hasattr(image, "dtype")):
            image = as_array(image)
        own = type(image) is np.ndarray
        self._flags = flags
        self._check(image.dtype, "the image")
        self.shape = image.shape if own else known_shape(image, "the image")
        #: The axes of a frame.
        self.axes = tuple(AXES)[-spatial:]
        if len(self.shape) < spatial:
            axes = ", ".join(self.axes)
            raise ValueError(f"the image must have axes (…, {axes}); got shape {self.shape}")
        self.leading, self.frame_shape = self.shape[:-spatial], self.shape[-spatial:]
        if 0 in self.frame_shape:
            raise ValueError(f"the image has no pixels; got shape {self.shape}")
        if checked and not isinstance(image, HeldFrame):
            check_axes(image)
        #: The leading axis that runs over planes, or None.
        self.planes = _planes_of(image, spatial)
        self.count = math.prod(self.leading)
        #: The number of the only frame if the image is a HeldFrame, else None.
        self.held = image.number if isinstance(image, HeldFrame) else None
        self.on_device = is_on_device(image)
        #: Whether frames are read or computed on request, so that reading ahead pays off.
        self.is_lazy = not own and _is_lazy(image)
        leading = self.leading
        if leading and getattr(getattr(image, "flags", None), "c_contiguous", False):
            image, leading = image.reshape(-1, *self.frame_shape), (self.count,)
        self._image, chunks = image, getattr(image, "chunks", None)
        self._grid = ChunkGrid(leading, chunks, spatial)
        #: Size of the chunks, or of each chunk, along the axes of a frame; None for whole frames.
        self._chunks = tuple(chunks)[-spatial:] if chunks else None
        # In files, the planes of a volume can be read separately.
        of_planes = spatial > len(IN_PLANE) and getattr(image, "in_file", False)
        self._reads_parts = getattr(image, "reads_parts", True) or of_planes
        #: Frames in the host's memory that were read ahead, by number.
        self._kept: dict[int, NDArray[Any]] = {}

    def _check(self, dtype: Any, what: str) -> None:
        if not (self._flags and np.dtype(dtype) == np.bool_):
            check_real(dtype, what)

    def select(self, frames: FrameSelection) -> NDArray[np.int64]:
        """Return the numbers of the chosen frames, in rising order.

        Raises
        ------
        TypeError, ValueError, IndexError
            If the selection does not match the image's leading axes.
        """
        if frames is None:
            return np.arange(self.count)
        chosen = frames if isinstance(frames, tuple) else (frames,)
        if len(chosen) != len(self.leading):
            raise ValueError(
                f"frames must choose along each of the {len(self.leading)} leading axes of an "
                f"image of shape {self.shape}; got {frames!r}"
            )
        axes = [
            indices_along(along, size) for along, size in zip(chosen, self.leading, strict=True)
        ]
        grid = np.meshgrid(*axes, indexing="ij") if axes else []
        if not grid:
            return np.arange(self.count)
        return np.unique(np.ravel_multi_index([axis.ravel() for axis in grid], self.leading))

    def frames_of(self, at_least: int, block_bytes: int) -> int:
        """Return the number of frames in ``block_bytes``, but at least ``at_least``."""
        return max(block_bytes // self.frame_bytes, at_least, 1)

    @property
    def frame_bytes(self) -> int:
        """Size of a frame of the image in bytes."""
        return int(math.prod(self.frame_shape) * np.dtype(self._image.dtype).itemsize)

    def blocks(
        self, numbers: NDArray[np.int64], at_least: int, block_bytes: int
    ) -> list[NDArray[np.int64]]:
        """Divide ascending frame numbers into blocks that are read at once.

        A block has ``block_bytes``, ``at_least`` frames or a chunk of the image, whichever is
        largest, so that no chunk is read twice. If chunks span several leading axes, blocks follow
        the chunks, and frames are not in order.
        """
        return self._grid.blocks(numbers, self.frames_of(at_least, block_bytes))

    def chunk_ends(self, numbers: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the positions in ascending frame numbers at which chunks of the image end.

        None if frames of several chunks alternate.
        """
        return self._grid.ends(numbers)

    def read(self, numbers: NDArray[np.int64]) -> Any:
        """Read frames of ascending numbers, as an array (n, …, Y, X) for the backends."""
        return _joined(*self._parts(numbers))

    @property
    def in_tiles(self) -> bool:
        """Whether frames are so large that they are processed in tiles."""
        size = math.prod(self.frame_shape) * self.pixel_bytes
        return size > LARGE_FRAME and self._reads_parts

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the pixels as they are read."""
        return native_type(np.dtype(self._image.dtype))

    @property
    def pixel_bytes(self) -> int:
        """Size of a pixel as it is read, in bytes."""
        return self.dtype.itemsize

    def chunk_edges(self) -> list[NDArray[np.int64]]:
        """Return the edges of a frame's chunks along each axis."""
        chunks = self._chunks or self.frame_shape
        return [edges(size, chunk) for size, chunk in zip(self.frame_shape, chunks, strict=True)]

    def tiles(self) -> list[tuple[int, int]]:
        """Return the range of rows (planes of a volume) of each tile of a frame.

        Tiles extend over the whole frame along the other axes, and consist of whole chunks.
        """
        size = self.pixel_bytes * math.prod(self.frame_shape[1:])
        chunk = self._chunks[0] if self._chunks else 1
        return row_tiles(self.frame_shape[0], chunk, TILE // size)

    def read_part(self, numbers: NDArray[np.int64], part: Part) -> NDArray[Any]:
        """Read a part of each frame into the host's memory, and no more if the image allows it."""
        if not self._reads_parts:
            return np.ascontiguousarray(self.read_to_host(numbers)[(slice(None), *part)])
        pixels = [self._read_part(int(number), part) for number in numbers]
        return pixels[0][np.newaxis] if len(pixels) == 1 else np.stack(pixels)

    def read_part_into(self, pixels: NDArray[Any], number: int, part: Part) -> None:
        """Read a part of a frame into an array of its shape, chunk by chunk."""
        if not is_local_dask(self._image):
            pixels[...] = self.read_part(np.array([number]), part)[0]
            return
        first = part[0].start

        def check(row: int, promised: tuple[int, ...], chunk: Any) -> NDArray[Any]:
            return self._checked_part(number, first + row, promised, chunk)

        fill(pixels, self._image[(*self._outer(number), *part)], check)

    def glance(self, numbers: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return a few pixels of each frame, (n, pixels); None if that would take long."""
        if not self.leading or self.on_device or getattr(self._image, "chunks", None):
            return None
        if len(self.axes) > len(IN_PLANE):
            return None
        height, width = self.frame_shape
        rows, columns = (min(own, size) for own, size in zip(_GLANCE, (height, width), strict=True))
        first = (width - columns) // 2
        y = (2 * np.arange(rows) + 1) * height // (2 * rows)
        if isinstance(self._image, np.ndarray) and self._image.ndim == 3:
            pixels = self._image[numbers[:, np.newaxis], y, first : first + columns]
            return pixels.reshape(len(numbers), -1).astype(float)
        if not (self.is_lazy and getattr(self._image, "reads_parts", True)):
            return None
        middle = slice(height // 2, height // 2 + 1), slice(first, first + columns)
        with suppress(Exception):  # reading the frame itself will report the error
            return self.read_part(numbers, middle)[:, 0].astype(float)
        return None

    def _read_part(self, number: int, part: Part) -> NDArray[Any]:
        promised = tuple(one.stop - one.start for one in part)
        pixels = self._image[(*self._outer(number), *part)]
        first = part[0].start
        native: NDArray[Any] = to_native(self._checked_part(number, first, promised, pixels))
        return native

    def _checked_part(
        self, number: int, first: int, promised: tuple[int, ...], given: Any
    ) -> NDArray[Any]:
        """Move rows of a frame to the host's memory, and check their shape."""
        pixels: NDArray[Any] = to_host(as_array(given))
        if pixels.shape != promised:
            raise ValueError(
                f"{AXES[self.axes[0]]}s {first} to {first + promised[0] - 1} of frame {number} of "
                f"the image should have the shape {promised}, but came as {pixels.shape}"
            )
        return pixels

    def _outer(self, number: int) -> tuple[int, ...]:
        """Return a frame's indices along the leading axes of the array that is read."""
        leading = self._grid.leading
        return tuple(int(i) for i in np.unravel_index(number, leading)) if leading else ()

    def read_points(self, number: int, places: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Read single pixels of a frame at indices (n, axes), each as a frame of one pixel."""
        if hasattr(self._image, "vindex") and hasattr(self._image, "dask"):
            same = [np.full(len(places), index) for index in self._outer(number)]
            values = to_native(as_array(self._image.vindex[(*same, *places.T)]))
            return list(values.reshape(-1, 1, *(1 for _ in self.axes)))
        return [self.read_part(np.array([number]), pixel_at(place)) for place in places.tolist()]

    @contextmanager
    def keeping(self, numbers: NDArray[np.int64]) -> Iterator[None]:
        """Read frames of ascending numbers ahead, and serve them from memory while entered.

        Only those of lazy images, up to a limit of bytes; errors are raised when a frame is
        requested.
        """
        size = len(numbers) * math.prod(self.frame_shape) * self.pixel_bytes
        if self.is_lazy and len(numbers) and size <= LARGE_FRAME and not self.in_tiles:
            with suppress(Exception):
                self._kept = dict(zip(numbers.tolist(), self.read_to_host(numbers), strict=True))
        try:
            yield
        finally:
            self._kept = {}

    def read_to_host(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Read frames into the host's memory."""
        if len(numbers) and all(number in self._kept for number in numbers.tolist()):
            return np.stack([self._kept[number] for number in numbers.tolist()])
        one_axis = type(self._image) is np.ndarray and len(self._grid.leading) == 1
        if one_axis and len(numbers) and numbers[-1] - numbers[0] >= len(numbers):
            # Scattered frames of an array are taken at once, in a tenth of the time.
            at_once: NDArray[Any] = to_native(self._image.take(numbers, axis=0))
            return at_once
        parts, order = self._parts(numbers)
        here: NDArray[Any] = _joined([to_host(part) for part in parts], order)
        return here

    def _parts(self, numbers: NDArray[np.int64]) -> tuple[list[Any], NDArray[np.int64] | None]:
        """Read frames of ascending numbers in boxes; return them with their order if it differs."""
        if not self.leading:
            pixels = as_array(self._image)
            if pixels.shape != self.frame_shape:
                raise ValueError(self._broken_promise(0, 1, (1, *pixels.shape)))
            return [to_native(pixels).reshape(1, *self.frame_shape)], None
        boxes = self._grid.boxes(numbers)
        given = [self._image[self._index(box)] for box in boxes]
        if len(boxes) > 1 and hasattr(self._image, "dask"):
            import dask.base

            given = dask.base.compute(*given)
        parts = [to_native(self._checked_box(*one)) for one in zip(boxes, given, strict=True)]
        if len(boxes) == 1:
            return parts, None
        read = np.concatenate([box.numbers for box in boxes])
        return parts, None if (np.diff(read) > 0).all() else np.argsort(read)

    @staticmethod
    def _index(box: Box) -> Any:
        """Return the index that selects a box of an image's frames."""
        outer = [
            first if last - first == 1 else slice(first, last) for first, last in box.ranges[:-1]
        ]
        along = slice(*box.ranges[-1])
        return (*outer, along) if outer else along

    def _checked_box(self, box: Box, given: Any) -> Any:
        """Return the wanted frames of a box, once their shape and type are checked."""
        pixels = as_array(given)
        promised = (*(n for n in box.shape[:-1] if n > 1), box.shape[-1], *self.frame_shape)
        if pixels.shape != promised:
            count = len(box.numbers) if box.wanted is None else math.prod(box.shape)
            frame = pixels.shape[-len(self.axes) :]
            came = (count, *frame) if len(pixels) == promised[0] else pixels.shape
            raise ValueError(self._broken_promise(int(box.numbers[0]), count, came))
        self._check(pixels.dtype, f"frame {box.numbers[0]} of the image")
        if len(promised) > 1 + len(self.axes):
            pixels = pixels.reshape(-1, *self.frame_shape)
        return pixels if box.wanted is None else pixels[box.wanted]

    def _broken_promise(self, first: int, count: int, shape: tuple[int, ...]) -> str:
        """Return the error for frames of an unexpected shape."""
        frames = f"frame {first}" if count == 1 else f"frames {first} to {first + count - 1}"
        return (
            f"{frames} of the image should have the shape {(count, *self.frame_shape)}, as the "
            f"image's shape {self.shape} promises, but came as {tuple(shape)}: check the file, or "
            "the function that makes these frames"
        )


class HeldFrame:
    """One frame that replaces the image it was read from, so that it is not read again.

    Any index returns this frame as a whole.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The image.
    index : tuple of int
        Indices of the frame along the image's leading axes.
    spatial : int
        How many axes a frame has.
    """

    reads_parts = False

    def __init__(self, image: Any, index: tuple[int, ...] = (), spatial: int = 2) -> None:
        reader = FrameReader(image, spatial=spatial, checked=False)
        number = int(np.ravel_multi_index(index, reader.leading)) if index else 0
        self.index, self.number = index, number
        self.pixels: NDArray[Any] = reader.read_to_host(np.array([number]))[0]
        self.shape, self.dtype = reader.shape, self.pixels.dtype

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return self.pixels[np.newaxis]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.pixels, dtype)


def pixel_at(place: Iterable[int]) -> Part:
    """Return the part of a frame that consists of one pixel."""
    return tuple(slice(first, first + 1) for first in place)


def _planes_of(image: Any, spatial: int) -> int | None:
    """Return the leading axis that runs over planes, or None."""
    names = axis_names(image)
    planes = None if names is None else plane_axis(image, names, spatial)
    return None if names is None or planes is None else names.index(planes)


def inside(places: NDArray[np.float64], shape: ArrayLike) -> NDArray[np.bool_]:
    """Return which positions lie on pixels of a frame, including its outer edges."""
    with np.errstate(invalid="ignore"):
        on = (places >= -0.5) & (places <= np.asarray(shape) - 0.5)
    # Axes are few: NumPy reduces over the last one a row at a time.
    return np.asarray(np.logical_and.reduce(np.ascontiguousarray(np.moveaxis(on, -1, 0))))


def indices_along(along: AxisSelection, size: int) -> NDArray[np.int64]:
    """Return the selected indices along one axis."""
    if isinstance(along, slice):
        return np.arange(size)[along]
    try:
        indices = np.atleast_1d([operator.index(i) for i in np.atleast_1d(np.asarray(along))])
    except TypeError:
        raise TypeError(
            f"frames must be a slice, an index or indices along each leading axis; got {along!r}"
        ) from None
    if len(indices) and not (-size <= indices.min() and indices.max() < size):
        raise ValueError(f"frames must lie in 0…{size - 1} along an axis of {size}; got {along!r}")
    return np.asarray(indices, np.int64) % size if size else np.empty(0, np.int64)


def _joined(parts: list[Any], order: NDArray[np.int64] | None) -> Any:
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return joined if order is None else joined[order]


def _is_lazy(image: Any) -> bool:
    """Whether frames of an image are read or computed only on request."""
    if is_on_device(image) or is_on_device(getattr(image, "_meta", None)):
        return False
    return getattr(image, "in_file", False) or bool(getattr(image, "chunks", None))
