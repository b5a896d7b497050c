"""Read TIFF, OME-TIFF, ImageJ's TIFF and BigTIFF by tifffile, and what remains of cut files."""

from __future__ import annotations

import logging
import math
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ...untrusted import PIXEL_RATIO, Allowance, PromiseError
from .image_file import ImageFile, UnreadableImageError, unreadable
from .microscopes import read_ndtiff
from .plain import plain_frames
from .tiff_promises import (
    Planes,
    check_ome,
    contiguous_imagej_planes,
    grown,
    has_own_pages_only,
    leads_out,
    named_pages,
    ome_of,
    unnamed_pages,
)

if TYPE_CHECKING:
    from tifffile import FileHandle, TiffFile, TiffFrame, TiffPage, TiffPageSeries

#: Errors that tifffile raises on damaged files.
_DAMAGED = (ValueError, IndexError, KeyError, TypeError, RuntimeError, EOFError, struct.error)
#: tifffile's letters for axes of unknown meaning.
_UNKNOWN = frozenset("IQ")
#: Messages that tifffile logs, and goes on, if it cannot find pages.
_RESHAPE = "failed to reshape"
_LOST = (
    "invalid page offset", "invalid offset to page", "corrupted tag list", "circular reference",
    _RESHAPE,
    "TiffTag 270",  # the description, which some files have after all pixels
)  # fmt: skip
#: Bytes of padding allowed between pixels and the next page.
_ALIGNMENT = 16


@contextmanager
def tifffile_log() -> Iterator[list[str]]:
    """Collect what tifffile logs in this thread, instead of showing it to the user."""
    logged: list[str] = []
    thread = threading.get_ident()

    def is_for_others(record: logging.LogRecord) -> bool:
        if threading.get_ident() != thread or record.levelno < logging.WARNING:
            return True
        logged.append(record.getMessage())
        return False

    logger = logging.getLogger("tifffile")
    logger.addFilter(is_for_others)
    try:
        yield logged
    finally:
        logger.removeFilter(is_for_others)


def read_tiff(path: Path) -> ImageFile:
    """Return the image of a TIFF file.

    Raises
    ------
    ImportError
        If tifffile is missing, or imagecodecs for the file's compression.
    UnreadableImageError
        If it is not a TIFF file, is damaged, or has no image or several.
    """
    from tifffile import TiffFile

    if not path.stat().st_size:
        raise unreadable(path, "it is empty")
    try:
        with tifffile_log() as logged, TiffFile(path) as file:
            return _image(file, logged)
    except _DAMAGED as error:
        if isinstance(error, (UnreadableImageError, PromiseError)):
            raise
        raise unreadable(path, f"it is damaged, or not a TIFF file: {error}") from None


def image_of(file: TiffFile) -> ImageFile:
    """Return the image of a TIFF file that tifffile has opened."""
    with tifffile_log() as logged:
        return _image(file, logged)


def _image(file: TiffFile, logged: list[str]) -> ImageFile:
    """Return the image of a file; `logged` collects what tifffile logs about it."""
    path = Path(file.filehandle.path)
    # Pages are read on demand: keeping millions of them takes too much memory.
    file.pages.cache = False
    if not file.pages:
        raise unreadable(path, "it has no image; it is damaged, or no TIFF file")
    if codec := missing_codec(file.pages.first):
        raise ImportError(
            f"“{path.name}” is compressed with {codec}, which needs the package imagecodecs: "
            'pip install "napari-spotfit[images]"'
        )
    check_ome(file)
    # tifffile would open any file that the metadata name.
    if leads_out(file) or (has_own_pages_only(file) and not _is_micromanagers(file)):
        return _own_pages(file, logged)
    if file.is_ndtiff:
        return read_ndtiff(path.parent)
    images = file.series
    lost = lost_pages(logged)
    if lost and not (len(images) == 1 and has_own_shape(images[0], logged)):
        return _readable_frames(file, lost)
    if (planes := contiguous_imagej_planes(file)) is not None:
        return _contiguous_imagej(file, *planes)
    if not images:
        raise unreadable(path, "it has no image; it is damaged, or no TIFF file")
    if len(images) > 1:
        return _of_equal_pages(file)
    image = images[0]
    axes, shape = str(image.axes), tuple(map(int, image.shape))
    _check_frames(path, axes, image.dtype)
    if more := unnamed_pages(file, image):
        return _with_unnamed_pages(file, image, more)
    dims = None if _UNKNOWN & set(axes) and "C" not in axes else axes.lower()
    files, channels = _files_of(file), _channels_of(file)
    if image.dataoffset is not None and files == [path]:
        found = _contiguous(file, shape, image.dataoffset, dims)
        found.channels = channels
        return found
    pages = Pages(file, image, _why_missing(file, lost, logged))
    return ImageFile(path, shape, image.dtype, pages, dims, files=files, channels=channels)


def _check_frames(path: Path, axes: str, dtype: np.dtype[Any] | None) -> None:
    """Check that an image has frames of rows and columns of numbers.

    Raises
    ------
    UnreadableImageError
        If its axes are others, such as colours, or its pixels not numbers.
    """
    if "S" in axes:
        raise unreadable(
            path,
            f"its pixels have several samples, such as colours: its axes are {axes}. Colours are "
            "no frames: pass one channel, as an array or a file of its own",
        )
    if axes[-2:] != "YX":
        raise unreadable(path, f"its axes must end in rows and columns, YX; they are {axes}")
    if dtype is None:
        raise unreadable(path, "its pixels are not numbers")


def _is_micromanagers(file: TiffFile) -> bool:
    """Whether frames are found by Micro-Manager's index rather than the OME metadata."""
    return file.is_mmstack and any(one.kind == "mmstack" for one in file.series)


def _own_pages(file: TiffFile, logged: list[str]) -> ImageFile:
    """Return the image of a file's own pages, if its OME metadata name other files."""
    path, page, count = Path(file.filehandle.path), file.pages.first, len(file.pages)
    _check_frames(path, str(page.axes), page.dtype)
    if page.axes != "YX":
        raise unreadable(path, f"its pages must be rows and columns; their axes are {page.axes}")
    promised = ome_of(file.ome_metadata or "").planes or Planes("t", (count,))
    planes = promised
    if count < promised.count:
        planes = promised.cut_to(count)
    elif count > promised.count:
        planes = grown(path, promised.axes, promised.shape, count)
    if planes.count != promised.count:
        warn_caller(
            f"“{path.name}” was renamed, or is a part of a data set: its metadata name other "
            f"files, and {promised.count} frames; its own {planes.count} are read"
        )
    why = f"the file was cut off or is damaged: {lost_pages(logged)}"
    dims = (*planes.axes, "y", "x")
    pages = Pages(file, file.pages, why)
    return ImageFile(
        path, (*planes.shape, *page.shape), page.dtype, pages, dims, channels=_channels_of(file)
    )


def _contiguous_imagej(file: TiffFile, promised: Planes, there: Planes) -> ImageFile:
    """Return ImageJ's stack of contiguous frames with one page, as far as the file has them."""
    path, page = Path(file.filehandle.path), file.pages.first
    if there.count < promised.count:
        warn_caller(
            f"“{path.name}” was cut off: it should have {promised.count} frames, and the first "
            f"{there.count} are read. Compare it with the original"
        )
    shape = (*there.shape, *page.shape)
    return _contiguous(file, shape, page.dataoffsets[0], (*there.axes, "y", "x"))


def _with_unnamed_pages(file: TiffFile, image: TiffPageSeries, more: list[int]) -> ImageFile:
    """Return the image of all pages of a file whose metadata name only some."""
    path, named = Path(file.filehandle.path), math.prod(image.shape[:-2])
    count = named + len(more)
    planes = grown(path, image.axes[:-2].lower(), image.shape[:-2], count)
    warn_caller(f"“{path.name}” has {count} frames, and its metadata name {named}: all are read.")
    numbers = _Numbered(file, named_pages(image) + more)
    pages = Pages(file, numbers, "the file does not have it")
    dims = (*planes.axes, "y", "x")
    return ImageFile(
        path, (*planes.shape, *image.shape[-2:]), image.dtype, pages, dims,
        channels=_channels_of(file),
    )  # fmt: skip


class _Numbered:
    """Looks up pages of a file by a list of their numbers."""

    def __init__(self, file: TiffFile, numbers: list[int]) -> None:
        self._file, self._numbers = file, numbers

    def __getitem__(self, number: int) -> Any:
        return self._file.pages.get(self._numbers[number], aspage=True, cache=False)


def _channels_of(file: TiffFile) -> tuple[str, ...] | None:
    """Return the names of the channels of an OME-TIFF; None if some have none."""
    return ome_of(file.ome_metadata or "").channels


def _of_equal_pages(file: TiffFile) -> ImageFile:
    """Return the movie of pages that tifffile lists as single images.

    Raises
    ------
    UnreadableImageError
        If they differ in shape or type, or are several movies.
    """
    path, images = Path(file.filehandle.path), file.series
    if not are_alike(images):
        sizes = [("×".join(map(str, one.shape)), one.dtype) for one in images]
        kinds = dict.fromkeys(f"{size} px of {dtype}" for size, dtype in sizes)
        found, more = ", ".join(list(kinds)[:3]), ", …" if len(kinds) > 3 else ""
        raise unreadable(
            path,
            f"it has {len(images)} images ({found}{more}) instead of one, or of pages of the same "
            f"size and type: pass one as an array, tifffile.imread({path.name!r}, series=0) for "
            "the first",
        )
    pages = Pages(file, [one[0] for one in images], "the file does not have it")
    shape = (len(images), *images[0].shape)
    return ImageFile(path, shape, images[0].dtype, pages, files=_files_of(file))


def _contiguous(
    file: TiffFile, shape: tuple[int, ...], offset: int, dims: Sequence[str] | None = None
) -> ImageFile:
    """Return an image whose frames are contiguous, from an offset on."""
    path, dtype = Path(file.filehandle.path), file.pages.first.dtype
    assert dtype is not None
    return plain_frames(path, shape, dtype.newbyteorder(file.byteorder), offset, dims)


def _readable_frames(file: TiffFile, lost: str) -> ImageFile:
    """Return the image of a damaged file: the frames before the damage.

    Raises
    ------
    UnreadableImageError
        If the shape of the frames is unknown.
    """
    path = Path(file.filehandle.path)
    page, shape = file.pages.first, shape_before_cut(file, file.series)
    if shape is None or page.dtype is None:
        raise unreadable(path, f"it was cut off or damaged, and frames are lost: {lost}")
    if count := contiguous_frames(file, lost):
        return _contiguous(file, (count, *page.shape), page.dataoffsets[0])
    pages = Pages(file, file.pages, f"the file was cut off or is damaged before it: {lost}")
    return ImageFile(path, shape, page.dtype, pages)


def _why_missing(file: TiffFile, lost: str, logged: list[str]) -> str:
    """Return the reason for a frame's missing page."""
    if names := missing_files(file, logged):
        listed = ", ".join(f"“{name}”" for name in names[:3])
        more = f" and {len(names) - 3} more files" if len(names) > 3 else ""
        return (
            f"of the other files of its data set, {listed}{more} cannot be read: put complete "
            "ones into its folder"
        )
    return f"the file was cut off or is damaged: {lost}" if lost else "the file does not have it"


def data_set(path: Path) -> list[Path]:
    """Return all files of a TIFF file's data set, or the file alone.

    Also alone if it cannot be parsed: reading it raises the error that explains why.
    """
    from tifffile import TiffFile

    # Damaged files will raise the same error when they are read.
    with suppress(Exception), tifffile_log(), TiffFile(path) as file:
        # Usually the first page is enough to know that there are no other files.
        named = ome_of(file.ome_metadata or "").files
        if not leads_out(file) and (file.is_mmstack or (named and not has_own_pages_only(file))):
            check_ome(file)
            return _files_of(file)
    return [path]


def _files_of(file: TiffFile) -> list[Path]:
    """Return the file, and the others that contain pages of its images."""
    files = {Path(file.filehandle.path): None}
    for image in file.series:
        for page in image if image.is_multifile else (image.keyframe,):
            if page is not None:
                files.setdefault(Path(page.parent.filehandle.path))
    return list(files)


class Pages:
    """Reads frames that are single pages, compressed or not contiguous.

    Parameters
    ----------
    file : TiffFile
        The file; it is opened again to read.
    pages : sequence of pages
        One per frame; missing ones are None, or behind the end.
    why : str
        The error for a frame whose page is missing.
    """

    def __init__(self, file: TiffFile, pages: Any, why: str) -> None:
        self._file, self._pages, self._why = file, pages, why

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        """Read ``count`` frames from ``first`` on."""
        with tifffile_log(), ExitStack() as opened:
            # Looking up a page reads this file.
            _open(self._file.filehandle, opened)
            return np.stack([self._page(number, opened) for number in range(first, first + count)])

    def _page(self, number: int, opened: ExitStack) -> NDArray[Any]:
        try:
            page = self._pages[number]
        except IndexError:
            page = None
        # Micro-Manager's index has offset 0 for pages behind the end of the file.
        if page is None or page.dataoffsets[:1] == (0,):
            raise ValueError(self._why)
        _open(page.parent.filehandle, opened)
        _check_page(page)
        # One thread: the others work on the frames before it.
        return np.asarray(page.asarray(maxworkers=1))


def _check_page(page: TiffPage | TiffFrame) -> None:
    """Check that a page and its file have enough bytes for its pixels.

    Raises
    ------
    PromiseError
        If not: tifffile would allocate the memory before it finds out.
    """
    there = min(sum(page.databytecounts), page.parent.filehandle.size)
    tile = () if page.keyframe is None else page.keyframe.tile or ()
    size = 0 if page.dtype is None else math.prod(tile) * page.dtype.itemsize
    Allowance(there, PIXEL_RATIO).take(max(page.nbytes, size), "it")


def _open(handle: FileHandle, opened: ExitStack) -> None:
    """Open a file unless it is open, and register it for closing."""
    if handle.closed:
        handle.open()
        opened.callback(handle.close)


def missing_codec(page: TiffPage) -> str:
    """Return the name of a page's compression if it cannot be read here; else empty."""
    from tifffile import TIFF

    for codecs, used in (
        (TIFF.DECOMPRESSORS, page.compression),
        (TIFF.UNPREDICTORS, page.predictor),
    ):
        try:
            codecs[used]
        except KeyError:
            return str(getattr(used, "name", used))
    return ""


def lost_pages(logged: Sequence[str]) -> str:
    """Return tifffile's message on missing pages; empty without one."""
    found = next((text for words in _LOST for text in logged if words in text), "")
    return re.sub(r"^<.*?> ", "", found)


def has_own_shape(image: TiffPageSeries, logged: Sequence[str]) -> bool:
    """Whether a movie's shape comes from metadata, rather than from the pages found."""
    of_pages = image.kind in ("uniform", "generic") or len(image.shape) < 3
    return not of_pages and not any(_RESHAPE in text for text in logged)


def are_alike(images: Sequence[TiffPageSeries]) -> bool:
    """Whether images are single pages of one size and type, as frames of a movie are."""
    kinds = {(one.shape, one.dtype) for one in images}
    return len(kinds) == 1 and str(images[0].axes) == "YX" and images[0].dtype is not None


def shape_before_cut(file: TiffFile, images: Sequence[TiffPageSeries]) -> tuple[int, ...] | None:
    """Return the original shape of a movie that was cut off; None if unknown.

    It comes from the metadata; without them, one missing frame is added to the pages found.
    """
    page, count = file.pages.first, len(file.pages)
    about: Any = (file.shaped_metadata or ({},))[0]
    promised = tuple(map(int, about.get("shape", ())))
    if promised[-2:] == page.shape and math.prod(promised[:-2]) >= count > 0 and promised[:-2]:
        return promised
    of_pages = len(images) == 1 and images[0].kind in ("uniform", "generic")
    if page.axes == "YX" and (of_pages or are_alike(images)):
        return (count + 1, *page.shape)
    return None


def contiguous_frames(file: TiffFile, lost: str) -> int:
    """Return the number of contiguous frames between the only page found and the next one's offset.

    In movies written in one piece, all other pages follow the pixels of all frames.
    """
    page, place = file.pages.first, re.search(r"invalid page offset (\d+)", lost)
    if place is None or len(file.pages) > 1 or not page.is_contiguous or not page.nbytes:
        return 0
    frames, rest = divmod(int(place[1]) - page.dataoffsets[0], page.nbytes)
    return frames if rest < _ALIGNMENT else 0


def missing_files(file: TiffFile, logged: Sequence[str]) -> list[str]:
    """Return the names of files of a data set that are missing or cannot be read."""
    folder = Path(file.filehandle.path).parent
    names = ome_of(file.ome_metadata or "").files
    missing = [name for name in names if not (folder / name).is_file()]
    damaged = re.findall(r"failed to read '([^']+)'", " ".join(logged))
    return list(dict.fromkeys([*missing, *damaged]))
