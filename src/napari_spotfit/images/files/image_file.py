"""An image in a file, whose frames are read on request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...untrusted import brief

#: Reads n consecutive frames, (n, Y, X): called with the number of the first in C order, and n.
ReadFrames: TypeAlias = "Callable[[int, int], NDArray[Any]]"
#: Reads a box: called with a slice along each axis, or along the leading ones for whole frames.
ReadBox: TypeAlias = "Callable[[tuple[slice, ...]], NDArray[Any]]"

#: A day of the fastest cameras; the frame numbers alone take 400 MB.
_MOST_FRAMES = 50_000_000


class UnreadableImageError(ValueError):
    """A file has no image that can be read; the message says which, where and why."""


class ImageFile:
    """An image of shape (…, Y, X) in a file; indexing reads the frames needed.

    Between reads it keeps neither the file open nor frames in memory.

    Threads: any number may share it; those that read at the same time open the file again.

    Parameters
    ----------
    path : path
        The file.
    shape : tuple of int
        The image's shape.
    dtype : dtype
        The type of the pixels.
    read : callable
        Reads consecutive frames.
    dims : sequence of str, optional
        Names of the axes, if the file has them.
    chunks : sequence of int, optional
        Number of frames along each leading axis that are best read together; by default 1.
    read_box : callable, optional
        Reads a box of frames at once.
    files : sequence of path, optional
        All files that contain its frames, if there are several.
    channels : sequence of str, optional
        Names of the channels, if the file has them.

    Raises
    ------
    UnreadableImageError
        If it has no frames of rows and columns, or its pixels are not numbers.
    """

    #: Marks images that are read from a file.
    in_file = True

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: Any,
        read: ReadFrames,
        dims: Sequence[str] | None = None,
        chunks: Sequence[int] | None = None,
        read_box: ReadBox | None = None,
        files: Sequence[Path] = (),
        channels: Sequence[str] | None = None,
    ) -> None:
        self.path, self.shape = path, tuple(map(int, shape))
        self.files = tuple(files) or (path,)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.dims = None if dims is None else tuple(dims)
        self.channels = None if channels is None else tuple(map(str, channels))
        #: Axis and index at which this image was selected from that of the file.
        self.chosen: tuple[int, int] | None = None
        self._read, self._read_box = read, read_box
        check_shape(path, self.shape)
        if self.dtype.kind not in "biufc":
            raise unreadable(path, f"its pixels are {self.dtype} instead of numbers")
        leading = self.shape[:-2]
        #: Size of a chunk along each axis, like that of chunked arrays.
        self.chunks = (*(chunks or (1,) * len(leading)), *shape[-2:]) if leading else None
        self._numbers = np.arange(math.prod(leading)).reshape(leading)

    @property
    def reads_parts(self) -> bool:
        """Whether parts of a frame can be read without the rest."""
        return self._read_box is not None

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape))
        return f"<{type(self).__name__}: “{self.path.name}”, {shape} px of {self.dtype}>"

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def at(self, axis: int, number: int) -> ImageFile:
        """Return the image at one index along a leading axis, without reading it."""
        leading = self.shape[:-2]
        numbers = np.take(self._numbers, number, axis).ravel()
        image = ImageFile(
            self.path, _without(axis, self.shape), self.dtype,
            partial(self._some_frames, numbers),
            None if self.dims is None else _without(axis, self.dims),
            None if self.chunks is None else _without(axis, self.chunks[: len(leading)]),
            None if self._read_box is None else partial(_box_at, self._read_box, axis, number),
            self.files,
        )  # fmt: skip
        image.chosen = axis, number
        return image

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Index like an array; only the frames needed are read."""
        chosen = index if isinstance(index, tuple) else (index,)
        if any(one is Ellipsis for one in chosen):
            place = next(i for i, one in enumerate(chosen) if one is Ellipsis)
            missing = self.ndim - len(chosen) + 1
            chosen = (*chosen[:place], *(slice(None),) * missing, *chosen[place + 1 :])
        count = self.ndim - 2
        if (box := self._box(chosen)) is not None:
            return box
        numbers = np.asarray(self._numbers[chosen[:count]])
        frames = self._frames(numbers.ravel()).reshape(*numbers.shape, *self.shape[-2:])
        within = chosen[count:]
        pixels: NDArray[Any] = frames[(..., *within, *(slice(None),) * (2 - len(within)))]
        return pixels

    def _box(self, chosen: tuple[Any, ...]) -> NDArray[Any] | None:
        """Read a box of frames at once; None if they form no box, or one is damaged."""
        count = self.ndim - 2
        if self._read_box is None or len(chosen) < count:
            return None
        slices, shape = [], []
        for one, size in zip(chosen, self.shape, strict=False):
            if not isinstance(one, (slice, int)):
                return None
            first, last, step = (
                (one % size, one % size + 1, 1) if isinstance(one, int) else one.indices(size)
            )
            if step != 1 or last <= first:
                return None
            slices.append(slice(first, last))
            shape += [] if isinstance(one, int) else [last - first]
        try:
            box = self._read_box(tuple(slices))
        except Exception:  # frame by frame, the damaged one is found
            return None
        whole = (*shape, *self.shape[len(chosen) :])
        return box.reshape(whole) if box.size == math.prod(whole) else None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[...], dtype)

    def _some_frames(self, numbers: NDArray[np.int64], first: int, count: int) -> NDArray[Any]:
        return self._frames(numbers[first : first + count])

    def _frames(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Read frames by number, consecutive ones at once."""
        if not len(numbers):
            return np.empty((0, *self.shape[-2:]), self.dtype)
        runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
        parts = [self._run(int(run[0]), len(run)) for run in runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _run(self, first: int, count: int) -> NDArray[Any]:
        try:
            return self._checked(first, count)
        except MemoryError as error:
            if count == 1:
                raise self._at(first, error) from error
            self._run(first, 1)  # if a single frame is too large, the error names it
            raise
        except Exception as error:  # decoders raise all kinds of errors
            if count == 1:
                raise self._at(first, error) from error
        for number in range(first, first + count):
            try:
                self._checked(number, 1)
            except Exception as error:
                raise self._at(number, error) from error
        # Each frame can be read now: the error was temporary.
        return self._checked(first, count)

    def _checked(self, first: int, count: int) -> NDArray[Any]:
        pixels = self._read(first, count)
        if pixels.shape != (count, *self.shape[-2:]):
            raise ValueError(
                f"it should have {count}×{self.shape[-2]}×{self.shape[-1]} pixels, but came as "
                f"{'×'.join(map(str, pixels.shape))}"
            )
        return pixels

    def _at(self, number: int, error: Exception) -> UnreadableImageError:
        if isinstance(error, UnreadableImageError):
            return error
        why = brief(error) or type(error).__name__
        return unreadable(self.path, f"frame {number} is damaged or missing: {why}")


def _without(axis: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*values[:axis], *values[axis + 1 :])


def _box_at(read_box: ReadBox, axis: int, number: int, leading: tuple[slice, ...]) -> NDArray[Any]:
    """Read a box at one index along an axis, which is dropped."""
    return read_box((*leading[:axis], slice(number, number + 1), *leading[axis:]))


def check_shape(path: Path, shape: tuple[int, ...]) -> None:
    """Check that an image has rows, columns and a plausible number of frames.

    Raises
    ------
    UnreadableImageError
        If it has no pixels, or too many frames.
    """
    if len(shape) < 2 or min(shape) < 1:
        raise unreadable(path, f"it has no frames of rows and columns: its shape is {shape}")
    if (frames := math.prod(shape[:-2])) > _MOST_FRAMES:
        raise unreadable(
            path,
            f"it promises {frames} frames, more than the {_MOST_FRAMES} accepted: it is damaged, "
            "or must be divided into several files",
        )


def is_bare(name: str) -> bool:
    """Whether a name in a file's metadata is a bare file name, which leads to no other folder.

    Examples
    --------
    >>> is_bare("a.tif"), is_bare("../a.tif"), is_bare("C:a.tif"), is_bare("..")
    (True, False, False, False)
    """
    return not set(name) & set("/\\:\0") and name not in ("", ".", "..")


def unreadable(path: Path, why: str) -> UnreadableImageError:
    """Return an error that names a file and says what is wrong with it."""
    if "b'" in why:  # bytes, as some readers put them there, are no words
        why = why.partition(": ")[0]
    return UnreadableImageError(f"“{path.name}” cannot be read: {why}")
