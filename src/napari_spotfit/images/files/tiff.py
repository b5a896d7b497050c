"""TIFF: many pages, OME-TIFF, ImageJ's and BigTIFF, read by tifffile."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .image_file import ImageFile, unreadable
from .plain import frames_at, rows_at

if TYPE_CHECKING:
    from tifffile import FileHandle, TiffFile, TiffPageSeries

#: What tifffile raises where a file is damaged.
_DAMAGED = (ValueError, IndexError, KeyError, TypeError, RuntimeError, EOFError, struct.error)
#: What it only logs where frames are lost.
_LOST = ("invalid page offset", "failed to reshape")
#: tifffile's letters for axes whose names are not known.
_UNKNOWN = frozenset("IQ")


def read_tiff(path: Path) -> ImageFile:
    """Return the image of a TIFF file.

    Raises
    ------
    ImportError
        If tifffile is missing.
    UnreadableImageError
        If it is no TIFF file, is damaged, or has no image or several.
    """
    from tifffile import TiffFile

    if not path.stat().st_size:
        raise unreadable(path, "it is empty")
    try:
        with _losses_told(path), TiffFile(path) as file:
            return image_of(file)
    except _DAMAGED as error:
        if isinstance(error, ValueError) and str(error).startswith("“"):
            raise
        raise unreadable(path, f"it is damaged, or no TIFF file: {error}") from None


def image_of(file: TiffFile) -> ImageFile:
    """Return the image of a TIFF file that tifffile has opened."""
    path = Path(file.filehandle.path)
    # Pages are read from the file when their turn comes, and not kept.
    file.pages.cache = False
    images = file.series
    if len(images) != 1:
        found = ", ".join("×".join(map(str, one.shape)) for one in images) or "none"
        raise unreadable(
            path,
            f"it should have one image; it has {len(images)} ({found}). Give one as an array, such "
            f"as tifffile.imread({path.name!r}, series=0)",
        )
    image = images[0]
    axes, shape = str(image.axes), tuple(map(int, image.shape))
    if axes[-2:] != "YX":
        colours = " Colours are no frames: give one channel." if "S" in axes else ""
        raise unreadable(
            path, f"its axes must end in rows and columns, YX; they are {axes}.{colours}"
        )
    if image.dtype is None:
        raise unreadable(path, "its pixels have no type of number")
    known = not _UNKNOWN & set(axes)
    dims = axes.lower() if known else None
    files = _files_of(file)
    if image.dataoffset is not None and files == [path]:
        dtype = image.dtype.newbyteorder(file.byteorder)
        where = path, shape, dtype, image.dataoffset
        return ImageFile(path, shape, dtype, frames_at(*where), dims, read_box=rows_at(*where))
    return ImageFile(path, shape, image.dtype, _Pages(image, shape[-2:]), dims, files=files)


def data_set(path: Path) -> list[Path]:
    """Return all files that are opened with a TIFF file, by itself or as parts of a data set.

    Where that cannot be told it is the file alone: what is wrong with it is told as it is read.
    """
    from tifffile import TiffFile

    try:
        with _losses_told(path), TiffFile(path) as file:
            # Of most files, one look at the first page says that they are alone.
            if file.is_mmstack or "FileName=" in (file.ome_metadata or ""):
                return _files_of(file)
    except (OSError, *_DAMAGED):
        pass
    return [path]


def _files_of(file: TiffFile) -> list[Path]:
    """Return the file and the others that its images have pages in."""
    files = {Path(file.filehandle.path): None}
    for image in file.series:
        for page in image if image.is_multifile else (image.keyframe,):
            if page is not None:
                files.setdefault(Path(page.parent.filehandle.path))
    return list(files)


@contextmanager
def _losses_told(path: Path) -> Iterator[None]:
    """Raise an error where tifffile would go on with the frames that it finds, and log it."""
    lost: list[str] = []

    def is_loss(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not any(words in text for words in _LOST):
            return True
        lost.append(text)
        return False

    logger = logging.getLogger("tifffile")
    logger.addFilter(is_loss)
    try:
        yield
    finally:
        logger.removeFilter(is_loss)
    if lost:
        raise unreadable(path, f"it was cut off or damaged, and has lost frames: {lost[0]}")


class _Pages:
    """Reads frames that are pages of their own, compressed or apart from each other."""

    def __init__(self, image: TiffPageSeries, frame: tuple[int, ...]) -> None:
        self._image, self._frame = image, frame

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        assert self._image.parent is not None
        with ExitStack() as opened:
            # The pages of a file are looked up in it, those of a data set are known.
            _open(self._image.parent.filehandle, opened)
            return np.stack([self._page(number, opened) for number in range(first, first + count)])

    def _page(self, number: int, opened: ExitStack) -> NDArray[Any]:
        page = self._image[number]
        if page is None:
            raise ValueError("the file says nothing of where it is")
        _open(page.parent.filehandle, opened)
        # By one thread: others work on the frames before it.
        return np.asarray(page.asarray(maxworkers=1))


def _open(handle: FileHandle, opened: ExitStack) -> None:
    """Open a file if it is not; it is closed with the others then."""
    if handle.closed:
        handle.open()
        opened.callback(handle.close)
