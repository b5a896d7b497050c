"""TIFF: many pages, OME-TIFF, ImageJ's and BigTIFF, read by tifffile."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from .image_file import ImageFile, UnreadableImageError, unreadable
from .plain import plain_frames
from .tiff_pages import (
    Pages,
    are_alike,
    frames_in_one_piece,
    has_own_shape,
    lost_pages,
    missing_codec,
    missing_files,
    shape_before_cut,
)
from .tifffile_log import kept_from_log

if TYPE_CHECKING:
    from tifffile import TiffFile

#: What tifffile raises where a file is damaged.
_DAMAGED = (ValueError, IndexError, KeyError, TypeError, RuntimeError, EOFError, struct.error)
#: tifffile's letters for axes whose names are not known.
_UNKNOWN = frozenset("IQ")


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
        if isinstance(error, UnreadableImageError):
            raise
        raise unreadable(path, f"it is damaged, or no TIFF file: {error}") from None


def image_of(file: TiffFile) -> ImageFile:
    """Return the image of a TIFF file that tifffile has opened."""
    with kept_from_log() as said:
        return _image(file, said)


def _image(file: TiffFile, said: list[str]) -> ImageFile:
    """Return the image of a file; what is said of it meanwhile comes to lie in a list."""
    path = Path(file.filehandle.path)
    # Pages are read from the file when their turn comes, and not kept.
    file.pages.cache = False
    if not file.pages:
        raise unreadable(path, "it has no image; it is damaged, or no TIFF file")
    images = file.series
    if codec := missing_codec(file.pages.first):
        raise ImportError(
            f"“{path.name}” is compressed with {codec}, which needs the package imagecodecs: "
            'pip install "napari-spotfit[images]"'
        )
    lost = lost_pages(said)
    if lost and not (len(images) == 1 and has_own_shape(images[0], said)):
        return _what_is_left(file, lost)
    if not images:
        raise unreadable(path, "it has no image; it is damaged, or no TIFF file")
    if len(images) > 1:
        return _of_equal_pages(file)
    image = images[0]
    axes, shape = str(image.axes), tuple(map(int, image.shape))
    if axes[-2:] != "YX":
        colours = " Colours are no frames: give one channel." if "S" in axes else ""
        raise unreadable(
            path, f"its axes must end in rows and columns, YX; they are {axes}.{colours}"
        )
    if image.dtype is None:
        raise unreadable(path, "its pixels have no type of number")
    dims = None if _UNKNOWN & set(axes) else axes.lower()
    files = _files_of(file)
    if image.dataoffset is not None and files == [path]:
        return _in_one_piece(file, shape, image.dataoffset, dims)
    pages = Pages(file, image, _why_missing(file, lost, said))
    return ImageFile(path, shape, image.dtype, pages, dims, files=files)


def _of_equal_pages(file: TiffFile) -> ImageFile:
    """Return the movie of pages that each say to be an image of their own.

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
    file: TiffFile, shape: tuple[int, ...], offset: int, dims: str | None = None
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
    """Say what is wrong with a frame that the file has no page of."""
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

    Where that cannot be told it is the file alone: what is wrong with it is told as it is read.
    """
    from tifffile import TiffFile

    try:
        with kept_from_log(), TiffFile(path) as file:
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
