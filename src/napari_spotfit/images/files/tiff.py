"""TIFF: many pages, OME-TIFF, ImageJ's and BigTIFF, read by tifffile; what is left of cut files."""

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
    grown,
    has_own_pages_only,
    imagej_planes_in_one_piece,
    leads_out,
    named_pages,
    ome_of,
    unnamed_pages,
)

if TYPE_CHECKING:
    from tifffile import FileHandle, TiffFile, TiffFrame, TiffPage, TiffPageSeries

#: What tifffile raises where a file is damaged.
_DAMAGED = (ValueError, IndexError, KeyError, TypeError, RuntimeError, EOFError, struct.error)
#: tifffile's letters for axes whose names are not known.
_UNKNOWN = frozenset("IQ")
#: What tifffile only logs where it goes on without the pages that it cannot find.
_RESHAPE = "failed to reshape"
_LOST = (
    "invalid page offset", "invalid offset to page", "corrupted tag list", "circular reference",
    _RESHAPE,
    "TiffTag 270",  # the description, which lies behind all pixels in some files
)  # fmt: skip
#: By so much the next page may lie behind the pixels that are before it.
_ALIGNMENT = 16


@contextmanager
def kept_from_log() -> Iterator[list[str]]:
    """Collect what tifffile logs in this thread, instead of showing it."""
    said: list[str] = []
    thread = threading.get_ident()

    def is_for_others(record: logging.LogRecord) -> bool:
        if threading.get_ident() != thread or record.levelno < logging.WARNING:
            return True
        said.append(record.getMessage())
        return False

    logger = logging.getLogger("tifffile")
    logger.addFilter(is_for_others)
    try:
        yield said
    finally:
        logger.removeFilter(is_for_others)


def read_tiff(path: Path) -> ImageFile:
    """Return the image of a TIFF file.

    Raises
    ------
    ImportError
        If tifffile is missing, or imagecodecs for the file's compression.
    UnreadableImageError
        If it is no TIFF file, is damaged, or has no image or several.
    """
    from tifffile import TiffFile

    if not path.stat().st_size:
        raise unreadable(path, "it is empty")
    try:
        with kept_from_log() as said, TiffFile(path) as file:
            return _image(file, said)
    except _DAMAGED as error:
        if isinstance(error, (UnreadableImageError, PromiseError)):
            raise
        raise unreadable(path, f"it is damaged, or no TIFF file: {error}") from None


def image_of(file: TiffFile) -> ImageFile:
    """Return the image of a TIFF file that tifffile has opened."""
    with kept_from_log() as said:
        return _image(file, said)


def _image(file: TiffFile, said: list[str]) -> ImageFile:
    """Return the image of a file; `said` collects what tifffile logs about it."""
    path = Path(file.filehandle.path)
    # Pages are read from the file when their turn comes, and not kept.
    file.pages.cache = False
    if not file.pages:
        raise unreadable(path, "it has no image; it is damaged, or no TIFF file")
    if codec := missing_codec(file.pages.first):
        raise ImportError(
            f"“{path.name}” is compressed with {codec}, which needs the package imagecodecs: "
            'pip install "napari-spotfit[images]"'
        )
    check_ome(file)
    # tifffile would read whatever has the names that the metadata say.
    if leads_out(file) or (has_own_pages_only(file) and not _is_micromanagers(file)):
        return _own_pages(file, said)
    if file.is_ndtiff:
        return read_ndtiff(path.parent)
    images = file.series
    lost = lost_pages(said)
    if lost and not (len(images) == 1 and has_own_shape(images[0], said)):
        return _what_is_left(file, lost)
    if (planes := imagej_planes_in_one_piece(file)) is not None:
        return _imagej_in_one_piece(file, *planes)
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
        found = _in_one_piece(file, shape, image.dataoffset, dims)
        found.channels = channels
        return found
    pages = Pages(file, image, _why_missing(file, lost, said))
    return ImageFile(path, shape, image.dtype, pages, dims, files=files, channels=channels)


def _check_frames(path: Path, axes: str, dtype: np.dtype[Any] | None) -> None:
    """Check that an image has frames of rows and columns of numbers.

    Raises
    ------
    UnreadableImageError
        If it has others, such as colours.
    """
    if "S" in axes:
        raise unreadable(
            path,
            f"its pixels have several samples, such as colours: its axes are {axes}. Colours are "
            "no frames: give one channel, as an array or a file of its own",
        )
    if axes[-2:] != "YX":
        raise unreadable(path, f"its axes must end in rows and columns, YX; they are {axes}")
    if dtype is None:
        raise unreadable(path, "its pixels have no type of number")


def _is_micromanagers(file: TiffFile) -> bool:
    """Whether Micro-Manager's index, and not the OME metadata, says where the frames are."""
    return file.is_mmstack and any(one.kind == "mmstack" for one in file.series)


def _own_pages(file: TiffFile, said: list[str]) -> ImageFile:
    """Return the image of the pages in a file whose OME metadata name other files."""
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
    why = f"the file was cut off or is damaged: {lost_pages(said)}"
    dims = (*planes.axes, "y", "x")
    pages = Pages(file, file.pages, why)
    return ImageFile(
        path, (*planes.shape, *page.shape), page.dtype, pages, dims, channels=_channels_of(file)
    )


def _imagej_in_one_piece(file: TiffFile, promised: Planes, there: Planes) -> ImageFile:
    """Return ImageJ's stack of one page that stands for all; of one cut off, what is left."""
    path, page = Path(file.filehandle.path), file.pages.first
    if there.count < promised.count:
        warn_caller(
            f"“{path.name}” was cut off: it should have {promised.count} frames, and the first "
            f"{there.count} are read. Compare it with where it comes from"
        )
    shape = (*there.shape, *page.shape)
    return _in_one_piece(file, shape, page.dataoffsets[0], (*there.axes, "y", "x"))


def _with_unnamed_pages(file: TiffFile, image: TiffPageSeries, more: list[int]) -> ImageFile:
    """Return the image of a file with more pages than its metadata name: of all of them."""
    path, named = Path(file.filehandle.path), math.prod(image.shape[:-2])
    count = named + len(more)
    planes = grown(path, image.axes[:-2].lower(), image.shape[:-2], count)
    warn_caller(
        f"“{path.name}” has {count} frames, and its metadata name {named}: all are read. Correct "
        "the metadata if they should not be"
    )
    numbers = _Numbered(file, named_pages(image) + more)
    pages = Pages(file, numbers, "the file does not have it")
    dims = (*planes.axes, "y", "x")
    return ImageFile(
        path, (*planes.shape, *image.shape[-2:]), image.dtype, pages, dims,
        channels=_channels_of(file),
    )  # fmt: skip


class _Numbered:
    """Pages of a file in an order of their own."""

    def __init__(self, file: TiffFile, numbers: list[int]) -> None:
        self._file, self._numbers = file, numbers

    def __getitem__(self, number: int) -> Any:
        return self._file.pages.get(self._numbers[number], aspage=True, cache=False)


def _channels_of(file: TiffFile) -> tuple[str, ...] | None:
    """Return the names of the channels of an OME-TIFF; None if some have none."""
    return ome_of(file.ome_metadata or "").channels


def _of_equal_pages(file: TiffFile) -> ImageFile:
    """Return the movie of pages that the file lists as single images.

    Raises
    ------
    UnreadableImageError
        If they are of several shapes or types, or are several movies.
    """
    path, images = Path(file.filehandle.path), file.series
    if not are_alike(images):
        sizes = [("×".join(map(str, one.shape)), one.dtype) for one in images]
        kinds = dict.fromkeys(f"{size} px of {dtype}" for size, dtype in sizes)
        found, more = ", ".join(list(kinds)[:3]), ", …" if len(kinds) > 3 else ""
        raise unreadable(
            path,
            f"it has {len(images)} images ({found}{more}), and it should be one, or pages of the "
            f"same size and type: give one as an array, tifffile.imread({path.name!r}, series=0) "
            "for the first",
        )
    pages = Pages(file, [one[0] for one in images], "the file does not have it")
    shape = (len(images), *images[0].shape)
    return ImageFile(path, shape, images[0].dtype, pages, files=_files_of(file))


def _in_one_piece(
    file: TiffFile, shape: tuple[int, ...], offset: int, dims: Sequence[str] | None = None
) -> ImageFile:
    """Return the image whose frames lie one after the other, from an offset on."""
    path, dtype = Path(file.filehandle.path), file.pages.first.dtype
    assert dtype is not None
    return plain_frames(path, shape, dtype.newbyteorder(file.byteorder), offset, dims)


def _what_is_left(file: TiffFile, lost: str) -> ImageFile:
    """Return an image whose frames before a cut can be read, where tifffile knows no others.

    Raises
    ------
    UnreadableImageError
        If nothing says how the frames that are left lie.
    """
    path = Path(file.filehandle.path)
    page, shape = file.pages.first, shape_before_cut(file, file.series)
    if shape is None or page.dtype is None:
        raise unreadable(path, f"it was cut off or damaged, and has lost frames: {lost}")
    if count := frames_in_one_piece(file, lost):
        return _in_one_piece(file, (count, *page.shape), page.dataoffsets[0])
    pages = Pages(file, file.pages, f"the file was cut off or is damaged before it: {lost}")
    return ImageFile(path, shape, page.dtype, pages)


def _why_missing(file: TiffFile, lost: str, said: list[str]) -> str:
    """Return the reason why the file has no page of a frame."""
    if names := missing_files(file, said):
        listed = ", ".join(f"“{name}”" for name in names[:3])
        more = f" and {len(names) - 3} more files" if len(names) > 3 else ""
        return (
            f"of the other files of its data set, {listed}{more} cannot be read: put whole ones "
            "beside it"
        )
    return f"the file was cut off or is damaged: {lost}" if lost else "the file does not have it"


def data_set(path: Path) -> list[Path]:
    """Return all files that are opened with a TIFF file, by itself or as parts of a data set.

    A file that cannot be parsed is returned alone: reading it raises the error that explains why.
    """
    from tifffile import TiffFile

    # Whatever a damaged file raises here, it raises again when it is read.
    with suppress(Exception), kept_from_log(), TiffFile(path) as file:
        # Of most files, one look at the first page says that they are alone.
        named = ome_of(file.ome_metadata or "").files
        if not leads_out(file) and (file.is_mmstack or (named and not has_own_pages_only(file))):
            check_ome(file)
            return _files_of(file)
    return [path]


def _files_of(file: TiffFile) -> list[Path]:
    """Return the file and the others that its images have pages in."""
    files = {Path(file.filehandle.path): None}
    for image in file.series:
        for page in image if image.is_multifile else (image.keyframe,):
            if page is not None:
                files.setdefault(Path(page.parent.filehandle.path))
    return list(files)


class Pages:
    """Reads frames that are pages of their own, compressed or apart from each other.

    Parameters
    ----------
    file : TiffFile
        The file; it is opened again to read.
    pages : sequence of pages
        One for each frame; those that are missing are None, or behind the end.
    why : str
        What to say of a frame whose page is missing.
    """

    def __init__(self, file: TiffFile, pages: Any, why: str) -> None:
        self._file, self._pages, self._why = file, pages, why

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        """Return ``count`` frames, beginning with ``first``."""
        with kept_from_log(), ExitStack() as opened:
            # The pages of one file are looked up in it, those of a data set are known.
            _open(self._file.filehandle, opened)
            return np.stack([self._page(number, opened) for number in range(first, first + count)])

    def _page(self, number: int, opened: ExitStack) -> NDArray[Any]:
        try:
            page = self._pages[number]
        except IndexError:
            page = None
        # Of a page behind the end of its file, Micro-Manager's index gives no place.
        if page is None or page.dataoffsets[:1] == (0,):
            raise ValueError(self._why)
        _open(page.parent.filehandle, opened)
        _check_page(page)
        # By one thread: others work on the frames before it.
        return np.asarray(page.asarray(maxworkers=1))


def _check_page(page: TiffPage | TiffFrame) -> None:
    """Check that the bytes of a page, and of its file, can hold its pixels.

    Raises
    ------
    PromiseError
        If they cannot: tifffile would take the memory before it finds out.
    """
    there = min(sum(page.databytecounts), page.parent.filehandle.size)
    tile = () if page.keyframe is None else page.keyframe.tile or ()
    size = 0 if page.dtype is None else math.prod(tile) * page.dtype.itemsize
    Allowance(there, PIXEL_RATIO).take(max(page.nbytes, size), "it")


def _open(handle: FileHandle, opened: ExitStack) -> None:
    """Open a file if it is not; it is closed with the others then."""
    if handle.closed:
        handle.open()
        opened.callback(handle.close)


def missing_codec(page: TiffPage) -> str:
    """Return what a page's pixels are written with, if that cannot be read here."""
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


def lost_pages(said: Sequence[str]) -> str:
    """Return what tifffile has logged of pages that it does without; nothing if there are none."""
    found = next((text for words in _LOST for text in said if words in text), "")
    return re.sub(r"^<.*?> ", "", found)


def has_own_shape(image: TiffPageSeries, said: Sequence[str]) -> bool:
    """Whether a movie's shape is what the file says of it, and not that of what is left."""
    of_pages = image.kind in ("uniform", "generic") or len(image.shape) < 3
    return not of_pages and not any(_RESHAPE in text for text in said)


def are_alike(images: Sequence[TiffPageSeries]) -> bool:
    """Whether images are single pages of the same size and type, which can be a movie's frames."""
    kinds = {(one.shape, one.dtype) for one in images}
    return len(kinds) == 1 and str(images[0].axes) == "YX" and images[0].dtype is not None


def shape_before_cut(file: TiffFile, images: Sequence[TiffPageSeries]) -> tuple[int, ...] | None:
    """Return the shape of a movie whose pages are not all in the file; None if unknown.

    It is the shape in the file's metadata; else one frame more than the pages, which is missing.
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


def frames_in_one_piece(file: TiffFile, lost: str) -> int:
    """Return how many frames lie between the only page that is left and the place of the next.

    Of a movie in one piece all others come after the pixels of all frames.
    """
    page, place = file.pages.first, re.search(r"invalid page offset (\d+)", lost)
    if place is None or len(file.pages) > 1 or not page.is_contiguous or not page.nbytes:
        return 0
    frames, rest = divmod(int(place[1]) - page.dataoffsets[0], page.nbytes)
    return frames if rest < _ALIGNMENT else 0


def missing_files(file: TiffFile, said: Sequence[str]) -> list[str]:
    """Return the names of files of a data set that are not there, or cannot be read."""
    folder = Path(file.filehandle.path).parent
    names = ome_of(file.ome_metadata or "").files
    missing = [name for name in names if not (folder / name).is_file()]
    damaged = re.findall(r"failed to read '([^']+)'", " ".join(said))
    return list(dict.fromkeys([*missing, *damaged]))
