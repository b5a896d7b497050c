"""Nikon's ND2, read by the package nd2."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .image_file import ImageFile, unreadable

if TYPE_CHECKING:
    from nd2 import ND2File


def read_nd2(path: Path) -> ImageFile:
    """Return the image of an ND2 file.

    Raises
    ------
    ImportError
        If nd2 is missing; the message says how to get it.
    UnreadableImageError
        If it is no ND2 file, is damaged, or has colours.
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
    except Exception as error:  # of any kind where a file is damaged
        raise unreadable(path, f"it is damaged, or no ND2 file: {error}") from None
    names = list(sizes)
    if coloured or names[-2:] != ["Y", "X"]:
        colours = " Colours are no frames: give one channel." if coloured else ""
        raise unreadable(
            path, f"its axes must end in rows and columns, YX; they are {''.join(names)}.{colours}"
        )
    leading = len(sizes) - 2
    # The channels of a picture lie pixel by pixel: they are read together.
    chunks = (*(1,) * (leading - 1), several) if several > 1 else None
    dims = [name.lower() for name in names]
    read = _Pictures(file, tuple(sizes.values()), several)
    return ImageFile(path, tuple(sizes.values()), dtype, read, dims, chunks)


class _Pictures:
    """Reads frames, which are the channels of pictures that lie one after the other."""

    def __init__(self, file: ND2File, shape: tuple[int, ...], channels: int) -> None:
        self._file, self._frame, self._channels = file, shape[-2:], channels
        self._count = math.prod(shape[:-2])
        self._path = Path(file.path)
        self._bytes = self._path.stat().st_size

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        # Of what lies beyond the end, nd2 would give zeros.
        if self._path.stat().st_size < self._bytes:
            raise ValueError("the file has become shorter")
        own, end = first // self._channels, -(-(first + count) // self._channels)
        with self._file as file:
            pictures = [
                np.array(file.read_frame(number)).reshape(self._channels, *self._frame)
                for number in range(own, end)
            ]
        frames = pictures[0] if len(pictures) == 1 else np.concatenate(pictures)
        skipped = first - own * self._channels
        return frames[skipped : skipped + count]
