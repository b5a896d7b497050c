"""Read files of contiguous frames: NumPy's .npy, Picasso's .raw and storm-analysis' .dax."""

from __future__ import annotations

import math
import re
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ...untrusted import yaml_documents
from .image_file import ImageFile, ReadBox, ReadFrames, check_shape, unreadable

#: Number of buffers that are kept for reuse.
_IDLE = 2


def plain_frames(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int = 0,
    dims: Sequence[str] | None = None,
) -> ImageFile:
    """Return an image whose pixels are contiguous in a file, from an offset on.

    Raises
    ------
    UnreadableImageError
        If the file ends within its first frame; later missing frames raise when they are read.
    """
    frames = frames_at(path, shape, dtype, offset)
    return ImageFile(path, shape, dtype, frames, dims, read_box=rows_at(path, shape, dtype, offset))


def rows_at(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> ReadBox:
    """Return a reader of rows of a frame, for contiguous frames."""
    return partial(_read_box, path, shape, dtype, offset)


def _read_box(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, box: tuple[slice, ...]
) -> NDArray[Any]:
    """Read contiguous rows of one frame, and return some columns of them."""
    parts = [*box, *(slice(0, size) for size in shape[len(box) :])]
    outer, rows, columns = parts[:-2], parts[-2], parts[-1]
    if any(one.stop - one.start > 1 for one in outer):
        raise ValueError("only one frame can be read in parts at a time")
    leading = [one.start for one in outer]
    frame = int(np.ravel_multi_index(leading, shape[:-2])) if leading else 0
    first = (frame * shape[-2] + rows.start) * shape[-1]
    count = (rows.stop - rows.start) * shape[-1]
    with path.open("rb") as file:
        file.seek(offset + first * dtype.itemsize)
        values = np.fromfile(file, dtype, count)
    return values.reshape(-1, shape[-1])[:, columns]


def frames_at(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0
) -> ReadFrames:
    """Return a reader of contiguous frames, up to where the file was cut off."""
    check_shape(path, shape)
    frame = math.prod(shape[-2:]) * dtype.itemsize
    promised = math.prod(shape[:-2])
    there = (path.stat().st_size - offset) // max(frame, 1)
    cut = (
        f"it was cut off: it should have {promised} frames of {shape[-2]}×{shape[-1]} px of "
        f"{dtype}, and ends within frame {max(there, 0)}"
    )
    if there < min(promised, 1):
        raise unreadable(path, cut)
    return PlainFrames(path, shape[-2:], dtype, offset, cut if there < promised else "")


class PlainFrames:
    """Reads contiguous frames into buffers that are reused.

    Allocating new memory takes as long as reading the pixels.

    Parameters
    ----------
    path : path
        The file.
    frame : tuple of int
        Rows and columns.
    dtype : dtype
        Type of the pixels.
    offset : int
        Bytes before the first frame.
    cut : str
        The error for frames behind the end, if the file is known to be cut off.
    """

    def __init__(
        self, path: Path, frame: tuple[int, ...], dtype: np.dtype[Any], offset: int, cut: str = ""
    ) -> None:
        self._where = path, frame, dtype, offset, cut
        #: Buffers for the next frames.
        self._idle: deque[NDArray[np.uint8]] = deque(maxlen=_IDLE)

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        """Read ``count`` frames from ``first`` on; deleting them returns their buffer."""
        path, frame, dtype, offset, cut = self._where
        size = math.prod(frame) * dtype.itemsize
        # Checked before allocating, and again after reading, as the file may shrink meanwhile.
        short = cut or "the file ends before it does; it has become shorter"
        if offset + (first + count) * size > path.stat().st_size:
            raise ValueError(short)
        memory = self._memory(count * size)
        # Not memory-mapped: pages read would count as memory of this process.
        with path.open("rb", buffering=0) as file:
            file.seek(offset + first * size)
            if _filled(memory, file) < len(memory):
                raise ValueError(short)
        return memory.view(dtype).reshape(count, *frame)

    def __reduce__(self) -> tuple[Any, ...]:
        return PlainFrames, self._where

    def _memory(self, size: int) -> NDArray[np.uint8]:
        try:
            memory = self._idle.pop()
        except IndexError:
            memory = np.empty(size, np.uint8)
        if len(memory) != size:
            memory = np.empty(size, np.uint8)
        # All views of the frames keep this array alive; when it is freed, the buffer is idle.
        lent = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(lent, self._idle.append, memory).atexit = False
        return lent


def _filled(memory: NDArray[np.uint8], file: FileIO) -> int:
    """Read until the buffer is full or the file ends; return the number of bytes."""
    done = 0
    while done < len(memory) and (count := file.readinto(memory.data[done:])):
        done += count
    return done


def read_npy(path: Path) -> ImageFile:
    """Return the image of a file written by :func:`numpy.save`."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            reads: dict[tuple[int, int], Callable[..., Any]]
            reads = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            if version not in reads:
                raise ValueError(f"its version {version} is not known")
            shape, by_columns, dtype = reads[version](file)
        except (EOFError, ValueError) as error:
            raise unreadable(path, f"it is damaged, or no file of numpy.save: {error}") from None
        offset = file.tell()
    if dtype.hasobject:
        raise unreadable(path, "it has Python objects instead of numbers")
    if by_columns and len(shape) > 1:
        raise unreadable(
            path,
            "its frames are not contiguous (Fortran order); save it again: "
            "numpy.save(path, numpy.ascontiguousarray(image))",
        )
    return plain_frames(path, shape, dtype, offset)


_INF_SIZE = re.compile(r"frame dimensions\s*=\s*(\d+)\s*x\s*(\d+)")
_INF_FRAMES = re.compile(r"number of frames\s*=\s*(\d+)")


def read_dax(path: Path) -> ImageFile:
    """Return storm-analysis' movie of a ``.dax`` and the ``.inf`` that describes it."""
    text = _beside(path, ".inf").read_text(encoding="utf-8", errors="replace")
    size, frames = _INF_SIZE.search(text), _INF_FRAMES.search(text)
    if size is None or frames is None:
        raise unreadable(
            path,
            f"“{path.stem}.inf” has no lines “frame dimensions = …” and “number of frames = …”",
        )
    # The dimensions are width × height; the byte order is little endian by default.
    shape = (int(frames[1]), int(size[2]), int(size[1]))
    dtype = np.dtype(">u2" if "big endian" in text else "<u2")
    _warn_of_more(path, shape, dtype, f"{path.stem}.inf")
    return plain_frames(path, shape, dtype, dims="tyx")


def read_raw(path: Path) -> ImageFile:
    """Return Picasso's movie of a ``.raw`` and the ``.yaml`` that describes it.

    Raises
    ------
    ImportError
        If PyYAML is missing; the message says how to get it.
    """
    try:
        import yaml
    except ImportError:
        raise ImportError(
            'Picasso\'s .raw needs PyYAML, which is missing: pip install "napari-spotfit[images]"'
        ) from None
    beside = _beside(path, ".yaml", ".yml")
    try:
        # Later processing steps are in further documents.
        about: Any = next(yaml_documents(beside), None)
        shape = tuple(int(about[name]) for name in ("Frames", "Height", "Width"))
        dtype = np.dtype(str(about["Data Type"])).newbyteorder(about.get("Byte Order", "<"))
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise unreadable(path, f"“{beside.name}” does not describe it: {why}") from None
    _warn_of_more(path, shape, dtype, beside.name)
    return plain_frames(path, shape, dtype, dims="tyx")


def _warn_of_more(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], beside: str) -> None:
    """Warn if a movie has more frames than its description says."""
    frame = math.prod(shape[1:]) * dtype.itemsize
    there = path.stat().st_size // frame if frame > 0 else 0
    if there > shape[0] > 0:
        warn_caller(
            f"“{path.name}” has {there} frames, but “{beside}” says {shape[0]}: the others are "
            "ignored. Correct that number to read them"
        )


def _beside(path: Path, *endings: str) -> Path:
    """Return the file that describes a movie."""
    for ending in endings:
        for name in (path.with_suffix(ending), path.with_suffix(ending.upper())):
            if name.is_file():
                return name
    raise unreadable(path, f"“{path.stem}{endings[0]}”, which gives its size, is not beside it")
