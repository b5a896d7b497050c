"""Frames that lie one after the other in a file: NumPy's, Picasso's and storm-analysis' files."""

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

#: How many pieces of memory are kept for frames.
_IDLE = 2


def plain_frames(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int = 0,
    dims: Sequence[str] | None = None,
) -> ImageFile:
    """Return an image whose pixels lie in a file in C order, from an offset on.

    Raises
    ------
    UnreadableImageError
        If the file ends within its first frame; a frame that is missing later on raises when it
        is read.
    """
    frames = frames_at(path, shape, dtype, offset)
    return ImageFile(path, shape, dtype, frames, dims, read_box=rows_at(path, shape, dtype, offset))


def rows_at(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> ReadBox:
    """Return a reader of rows of one frame, where frames lie one after the other."""
    return partial(_read_box, path, shape, dtype, offset)


def _read_box(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, box: tuple[slice, ...]
) -> NDArray[Any]:
    """Read what lies in one piece; of its rows some columns are taken."""
    parts = [*box, *(slice(0, size) for size in shape[len(box) :])]
    outer, rows, columns = parts[:-2], parts[-2], parts[-1]
    if any(one.stop - one.start > 1 for one in outer):
        raise ValueError("several frames are read otherwise")
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
    """Return a reader of frames that lie one after the other, up to where the file was cut off."""
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
    """Reads frames that lie one after the other, into memory that is kept for the next ones.

    The system takes as long to give new memory as to read what goes there.

    Parameters
    ----------
    path : path
        The file.
    frame : tuple of int
        Rows and columns.
    dtype : dtype
        Of its pixels.
    offset : int
        Bytes before the first frame.
    cut : str
        The error where the file ends too early, if that is known.
    """

    def __init__(
        self, path: Path, frame: tuple[int, ...], dtype: np.dtype[Any], offset: int, cut: str = ""
    ) -> None:
        self._where = path, frame, dtype, offset, cut
        #: Memory that is free for the next frames.
        self._idle: deque[NDArray[np.uint8]] = deque(maxlen=_IDLE)

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        """Read ``count`` frames from a first one on; deleted, their memory is used again."""
        path, frame, dtype, offset, cut = self._where
        size = math.prod(frame) * dtype.itemsize
        # Before memory is taken; and after, should the file become shorter meanwhile.
        short = cut or "the file ends before it does; it has become shorter"
        if offset + (first + count) * size > path.stat().st_size:
            raise ValueError(short)
        memory = self._memory(count * size)
        # Not mapped: what was read would count as memory of this process.
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
        # An array of its own, which all views of the frames keep.
        lent = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(lent, self._idle.append, memory).atexit = False
        return lent


def _filled(memory: NDArray[np.uint8], file: FileIO) -> int:
    """Read a file until memory is full, or the file ends; return how many bytes there were."""
    done = 0
    while done < len(memory) and (count := file.readinto(memory.data[done:])):
        done += count
    return done


def read_npy(path: Path) -> ImageFile:
    """Return the image in a file of :func:`numpy.save`."""
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
        raise unreadable(path, "it has Python's objects instead of numbers")
    if by_columns and len(shape) > 1:
        raise unreadable(
            path,
            "its frames are spread over the whole file (Fortran order); save it again: "
            "numpy.save(path, numpy.ascontiguousarray(image))",
        )
    return plain_frames(path, shape, dtype, offset)


_INF_SIZE = re.compile(r"frame dimensions\s*=\s*(\d+)\s*x\s*(\d+)")
_INF_FRAMES = re.compile(r"number of frames\s*=\s*(\d+)")


def read_dax(path: Path) -> ImageFile:
    """Return storm-analysis' movie in a ``.dax``, which the ``.inf`` beside it describes."""
    text = _beside(path, ".inf").read_text(encoding="utf-8", errors="replace")
    size, frames = _INF_SIZE.search(text), _INF_FRAMES.search(text)
    if size is None or frames is None:
        raise unreadable(
            path,
            f"“{path.stem}.inf” has no lines “frame dimensions = …” and “number of frames = …”",
        )
    # Width by height; the byte order is little endian unless the file names the other.
    shape = (int(frames[1]), int(size[2]), int(size[1]))
    dtype = np.dtype(">u2" if "big endian" in text else "<u2")
    _warn_of_more(path, shape, dtype, f"{path.stem}.inf")
    return plain_frames(path, shape, dtype, dims="tyx")


def read_raw(path: Path) -> ImageFile:
    """Return Picasso's movie in a ``.raw``, which the ``.yaml`` beside it describes.

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
        # What later programs have done to it follows in further parts.
        about: Any = next(yaml_documents(beside), None)
        shape = tuple(int(about[name]) for name in ("Frames", "Height", "Width"))
        dtype = np.dtype(str(about["Data Type"])).newbyteorder(about.get("Byte Order", "<"))
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise unreadable(path, f"“{beside.name}” does not describe it: {why}") from None
    _warn_of_more(path, shape, dtype, beside.name)
    return plain_frames(path, shape, dtype, dims="tyx")


def _warn_of_more(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], beside: str) -> None:
    """Warn of frames that the file beside a movie does not count."""
    frame = math.prod(shape[1:]) * dtype.itemsize
    there = path.stat().st_size // frame if frame > 0 else 0
    if there > shape[0] > 0:
        warn_caller(
            f"“{path.name}” has {there} frames, and “{beside}” says {shape[0]}: those after them "
            "are left out. Correct it if they count",
        )


def _beside(path: Path, *endings: str) -> Path:
    """Return the file that describes another one."""
    for ending in endings:
        for name in (path.with_suffix(ending), path.with_suffix(ending.upper())):
            if name.is_file():
                return name
    raise unreadable(path, f"“{path.stem}{endings[0]}”, which says its size, is not beside it")
