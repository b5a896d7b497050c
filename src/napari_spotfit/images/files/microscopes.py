"""Read Nikon's ND2, and NDTiff of Micro-Manager and Pycro-Manager."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...untrusted import PIXEL_RATIO, Allowance
from .image_file import ImageFile, check_shape, is_bare, unreadable

if TYPE_CHECKING:
    from nd2 import ND2File
    from ndtiff.ndtiff_index import NDTiffIndexEntry

_INDEX = "NDTiff.index"
#: Our names of NDTiff's axes; these come first, in this order, and other axes after them.
_AXES = {"position": "p", "row": "row", "column": "column", "time": "t", "channel": "c", "z": "z"}


def read_nd2(path: Path) -> ImageFile:
    """Return the image of an ND2 file.

    Raises
    ------
    ImportError
        If nd2 is missing; the message says how to get it.
    UnreadableImageError
        If it is not an ND2 file, is damaged, or has colours.
    """
    try:
        from nd2 import ND2File
    except ImportError:
        raise ImportError(
            'ND2 needs the package nd2, which is missing: pip install "napari-spotfit[nd2]"'
        ) from None
    if not path.stat().st_size:
        raise unreadable(path, "it is empty")
    try:
        with ND2File(path) as file:
            sizes, dtype = dict(file.sizes), np.dtype(file.dtype)
            several = max(int(file.attributes.channelCount or 1), 1)
            coloured = file.is_rgb
            channels = _names_of_channels(file)
    except Exception as error:  # damaged files raise all kinds of errors
        raise unreadable(path, f"it is damaged, or not an ND2 file: {error}") from None
    shape = tuple(sizes.values())
    # nd2 returns zeros for missing frames, so check that the file is large enough for one.
    frame = math.prod(shape[-2:]) * several * dtype.itemsize
    Allowance(path.stat().st_size, PIXEL_RATIO).take(frame, "a frame")
    names = list(sizes)
    if coloured or names[-2:] != ["Y", "X"]:
        colours = " Colours are no frames: give one channel." if coloured else ""
        raise unreadable(
            path, f"its axes must end in rows and columns, YX; they are {''.join(names)}.{colours}"
        )
    leading = len(sizes) - 2
    # Channels are interleaved pixel by pixel, so all are read at once.
    chunks = (*(1,) * (leading - 1), several) if several > 1 else None
    dims = [name.lower() for name in names]
    read = _Pictures(file, shape, several)
    return ImageFile(path, shape, dtype, read, dims, chunks, channels=channels or None)


def _names_of_channels(file: ND2File) -> list[str]:
    """Return the names of the channels; empty if the file does not have them."""
    try:
        about: Any = getattr(file.metadata, "channels", None) or ()
        return [str(one.channel.name) for one in about]
    except Exception:  # incomplete metadata raise all kinds of errors
        return []


class _Pictures:
    """Reads frames: the channels of interleaved images."""

    def __init__(self, file: ND2File, shape: tuple[int, ...], channels: int) -> None:
        self._file, self._frame, self._channels = file, shape[-2:], channels
        self._count = math.prod(shape[:-2])
        self._path = Path(file.path)
        self._bytes = self._path.stat().st_size

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        # Beyond the end of the file, nd2 returns zeros.
        if self._path.stat().st_size < self._bytes:
            raise ValueError("the file has become shorter")
        own, end = first // self._channels, -(-(first + count) // self._channels)
        with self._file as file:
            pictures = [
                np.array(_found(file.read_frame(number))).reshape(self._channels, *self._frame)
                for number in range(own, end)
            ]
        frames = pictures[0] if len(pictures) == 1 else np.concatenate(pictures)
        skipped = first - own * self._channels
        return frames[skipped : skipped + count]


def _found(picture: NDArray[Any]) -> NDArray[Any]:
    """Return an image, or raise an error if nd2 has filled it with zeros as it is missing."""
    base: Any = picture
    while isinstance(base, np.ndarray):
        base = base.base
    if base is None and not picture.any():
        raise ValueError("the file was cut off or is damaged: it has no pixels of it")
    return picture


def is_ndtiff(path: Path) -> bool:
    """Whether a folder is an NDTiff data set."""
    return path.is_dir() and (path / _INDEX).is_file()


def read_ndtiff(path: Path) -> ImageFile:
    """Return the image of an NDTiff folder.

    Raises
    ------
    ImportError
        If ndtiff is missing; the message says how to get it.
    UnreadableImageError
        If its index is damaged, or frames differ in size or type or have colours.
    """
    try:
        from ndtiff.ndtiff_index import read_ndtiff_index
    except ImportError:
        raise ImportError(
            "NDTiff needs the package ndtiff, which is missing: "
            'pip install "napari-spotfit[ndtiff]"'
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unfinished acquisitions
            index = read_ndtiff_index((path / _INDEX).read_bytes(), verbose=False)
    except Exception as error:  # damaged files raise all kinds of errors
        raise unreadable(path, f"“{_INDEX}” is damaged: {error}") from None
    if not index:
        raise unreadable(path, f"it has no frames: “{_INDEX}” names none")
    entries = list(index.values())
    kinds = {(one.image_height, one.image_width, _dtype(path, one)) for one in entries}
    if len(kinds) > 1:
        raise unreadable(path, "its frames differ in size or type")
    rows, columns, dtype = kinds.pop()
    axes = _axes([dict(axes) for axes in index])
    leading = tuple(len(values) for values in axes.values())
    check_shape(path, (*leading, rows, columns))
    places: list[NDTiffIndexEntry | None] = [None] * math.prod(leading)
    for where, entry in zip(index, entries, strict=True):
        own = dict(where)
        numbers = [values[own[name]] for name, values in axes.items()]
        places[int(np.ravel_multi_index(numbers, leading)) if numbers else 0] = entry
    dims = [_AXES.get(name, name) for name in axes]
    read = _Frames(path, places, (rows, columns), dtype)
    channels = [str(value) for value in axes.get("channel", ())] or None
    shape = (*leading, rows, columns)
    return ImageFile(path, shape, dtype, read, [*dims, "y", "x"], channels=channels)


def _axes(indices: list[dict[str, Any]]) -> dict[str, dict[Any, int]]:
    """Return the axes in order, each with its values and their indices."""
    known = list(_AXES)
    names = {name: None for one in indices for name in one}
    ordered = sorted(names, key=lambda name: known.index(name) if name in known else len(known))
    axes = {}
    for name in ordered:
        values = dict.fromkeys(one[name] for one in indices if name in one)
        # Text values, such as names of channels, keep the order of acquisition.
        by_number = all(isinstance(value, int) for value in values)
        axes[name] = {v: place for place, v in enumerate(sorted(values) if by_number else values)}
    return axes


def _dtype(path: Path, entry: NDTiffIndexEntry) -> np.dtype[Any]:
    if entry.is_rgb():
        raise unreadable(path, "its frames have colours, which are no frames: pass one channel")
    return np.dtype("<u2" if entry.get_byte_depth() == 2 else "u1")


class _Frames:
    """Reads frames at the positions that the index gives."""

    def __init__(
        self, path: Path, places: list[Any], frame: tuple[int, int], dtype: np.dtype[Any]
    ) -> None:
        self._path, self._places, self._frame, self._dtype = path, places, frame, dtype

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        parts = []
        for number in range(first, first + count):
            entry: Mapping[str, Any] | None = self._places[number]
            if entry is None:
                raise ValueError("it was never taken")
            name = entry["filename"]
            if not is_bare(name):
                raise ValueError(f"“{name}”, its file, is no name of a file in this folder")
            file = self._path / name
            if not file.is_file():
                raise ValueError(f"“{name}”, its file, is missing")
            begin, pixels = entry["pix_offset"], math.prod(self._frame)
            if begin + pixels * self._dtype.itemsize > file.stat().st_size:
                raise ValueError(f"“{name}” ends before it does")
            values = np.fromfile(file, self._dtype, pixels, offset=begin)
            parts.append(values.reshape(self._frame))
        return np.stack(parts)
