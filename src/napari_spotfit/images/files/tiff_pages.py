"""Frames that are pages of a TIFF file, and what is left of those that were cut off."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .tifffile_log import kept_from_log

if TYPE_CHECKING:
    from tifffile import FileHandle, TiffFile, TiffPage, TiffPageSeries

#: What tifffile only logs where it goes on without the pages that it cannot find.
_RESHAPE = "failed to reshape"
_LOST = (
    "invalid page offset", "invalid offset to page", "corrupted tag list", "circular reference",
    _RESHAPE,
)  # fmt: skip
#: By so much the next page may lie behind the pixels that are before it.
_ALIGNMENT = 16


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
        """Return so many frames from a first one on."""
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
        # By one thread: others work on the frames before it.
        return np.asarray(page.asarray(maxworkers=1))


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
    found = next((text for text in said if any(words in text for words in _LOST)), "")
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
    """Return the shape of a movie whose pages are not all there; None if nothing tells it.

    It is what the file says of itself; else one frame more than there are pages, which is missing.
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
    names = map(unescape, re.findall(r'FileName="([^"]+)"', file.ome_metadata or ""))
    folder = Path(file.filehandle.path).parent
    missing = [name for name in dict.fromkeys(names) if not (folder / name).is_file()]
    damaged = re.findall(r"failed to read '([^']+)'", " ".join(said))
    return list(dict.fromkeys([*missing, *damaged]))
