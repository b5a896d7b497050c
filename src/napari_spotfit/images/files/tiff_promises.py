"""What the metadata of a TIFF file promise, compared with the pages and bytes that it has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from ...untrusted import PIXEL_RATIO, Allowance
from .image_file import is_bare, unreadable

if TYPE_CHECKING:
    from tifffile import TiffFile, TiffPageSeries

#: ImageJ's order of planes, the fastest first, where its metadata name no other.
_IMAGEJ_ORDER = "czt"
#: Its numbers of planes, by axis.
_IMAGEJ_COUNTS = {"t": "frames", "z": "slices", "c": "channels"}
_TIME = "t"
_ALONG = "Along"
_TAGS = ("UUID", "Pixels", "Channel", "TiffData", _ALONG)
#: Bytes that tifffile takes for a page, at most.
_PER_PAGE = 100


@dataclass(frozen=True)
class Planes:
    """How the planes of a file lie: their axes, the slowest first, and how many there are."""

    axes: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    def cut_to(self, count: int) -> Planes:
        """Return the planes before a cut; incomplete ones of the slowest axis are left out.

        Examples
        --------
        >>> Planes("tc", (20, 2)).cut_to(13)
        Planes(axes='tc', shape=(6, 2))
        >>> Planes("tz", (1, 5)).cut_to(3)
        Planes(axes='z', shape=(3,))
        """
        inner = math.prod(self.shape[1:])
        if not self.shape or count >= inner:
            return Planes(self.axes, (count // inner, *self.shape[1:]) if self.shape else ())
        return Planes(self.axes[1:], self.shape[1:]).cut_to(count)

    def grown_to(self, count: int) -> Planes | None:
        """Return the planes of a file that has more of them; None where they fill no last index.

        Examples
        --------
        >>> Planes("tc", (5, 2)).grown_to(20)
        Planes(axes='tc', shape=(10, 2))
        >>> Planes("z", (5,)).grown_to(20), Planes("z", (5,)).grown_to(19)
        (Planes(axes='tz', shape=(4, 5)), Planes(axes='t', shape=(19,)))
        """
        own = self if self.axes[:1] == _TIME else Planes(_TIME + self.axes, (1, *self.shape))
        inner = math.prod(own.shape[1:])
        if count % inner == 0:
            return Planes(own.axes, (count // inner, *own.shape[1:]))
        # Planes of several channels would be taken for each other's.
        return None if "c" in own.axes else Planes(_TIME, (count,))


@dataclass(frozen=True)
class Ome:
    """What OME metadata say of pages, as tifffile reads them.

    Parameters
    ----------
    uuid : str or None
        The identity of the file that has them.
    files : mapping of str to str
        The files that pages are said to lie in, with their identities.
    planes : Planes or None
        The planes of the only image; None where there are several, or their number is not said.
    channels : tuple of str or None
        The channels' names, if all have one.
    pages, pixels : float
        How many pages, or places along an axis, and pixels of an image are named.
    """

    uuid: str | None
    files: Mapping[str, str]
    planes: Planes | None
    channels: tuple[str, ...] | None
    pages: float
    pixels: float


@lru_cache(maxsize=4)
def ome_of(text: str) -> Ome:
    """Return what OME metadata say; nothing where they cannot be parsed, as tifffile does.

    Examples
    --------
    >>> text = '<OME><Pixels DimensionOrder="XYZCT" SizeZ="1" SizeC="2" SizeT="5"/></OME>'
    >>> ome_of(text).planes
    Planes(axes='tc', shape=(5, 2))
    """
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return Ome(None, {}, None, None, 0, 0)
    by_tag: dict[str, list[ElementTree.Element]] = {tag: [] for tag in _TAGS}
    for element in root.iter():
        for tag in _TAGS:
            if element.tag.endswith(tag) or (tag == _ALONG and element.tag[:-1].endswith(tag)):
                by_tag[tag].append(element)
    images, files = by_tag["Pixels"], by_tag["UUID"]
    channels = tuple(one.get("Name", "") for one in by_tag["Channel"])
    counts = [float(one.get("PlaneCount", one.get("NumPlanes", 1))) for one in by_tag["TiffData"]]
    return Ome(
        root.get("UUID"),
        {
            one.attrib["FileName"]: (one.text or "").strip()
            for one in files
            if "FileName" in one.attrib
        },
        _sizes(images[0]) if len(images) == 1 else None,
        channels if channels and all(channels) else None,
        max(sum(counts), *map(_places, by_tag[_ALONG]), 0.0),
        max(map(_pixels, images), default=0.0),
    )


def _sizes(pixels: ElementTree.Element) -> Planes | None:
    """Return the planes of an image; None where their number is not said."""
    axes = pixels.get("DimensionOrder", "XYZCT")[:1:-1]
    try:
        return _without_single(axes.lower(), [int(pixels.attrib[f"Size{axis}"]) for axis in axes])
    except (KeyError, ValueError):
        return None


def _pixels(pixels: ElementTree.Element) -> float:
    """Return how many pixels an image has."""
    sizes = [value for name, value in pixels.items() if name.startswith("Size")]
    return math.prod(float(size) for size in sizes)


def _places(along: ElementTree.Element) -> float:
    """Return how many places an axis has that an annotation names."""
    start, end, step = (float(along.get(name, 1)) for name in ("Start", "End", "Step"))
    return abs((end - start) / step) if step else math.inf


def check_ome(file: TiffFile) -> None:
    """Check that OME metadata name no more pages than a file of this size can have.

    Raises
    ------
    PromiseError
        If they do: tifffile would take memory for all of them.
    """
    ome = ome_of(file.ome_metadata or "")
    pages = max(ome.pages, ome.pixels / max(file.pages.first.size, 1))
    promised = int(min(pages * _PER_PAGE, 1e30))
    Allowance(file.filehandle.size, PIXEL_RATIO).take(promised, "its OME metadata")


def leads_out(file: TiffFile) -> bool:
    """Whether an OME-TIFF names a file that does not lie beside it."""
    return not all(map(is_bare, ome_of(file.ome_metadata or "").files))


def has_own_pages_only(file: TiffFile) -> bool:
    """Whether the files that an OME-TIFF names for its pages are none of its data set.

    So it is of a file that was renamed, beside which a file of its former name is another one; and
    where a file of that name has another UUID than the one that is named.
    """
    ome, path = ome_of(file.ome_metadata or ""), Path(file.filehandle.path)
    others = [name for name in ome.files if name.lower() != path.name.lower()]
    if others and len(others) == len(ome.files) and ome.uuid not in ome.files.values():
        return True
    return any(_has_other_uuid(path.with_name(name), ome.files[name]) for name in others)


def _has_other_uuid(path: Path, uuid: str) -> bool:
    """Whether the UUID inside an OME-TIFF differs from the one that its data set has for it."""
    from tifffile import TiffFile, TiffFileError

    if not path.is_file():
        return False  # its frames are missing, as is said when they are read
    try:
        with TiffFile(path, _multifile=False) as other:
            own = ome_of(other.ome_metadata or "").uuid
    except (OSError, TiffFileError, ValueError):
        return False
    return own is not None and own != uuid


def imagej_planes(file: TiffFile) -> Planes | None:
    """Return the planes that ImageJ's metadata promise; None where they do not say it."""
    about: Any = file.imagej_metadata
    if not about:
        return None
    order = str(about.get("order", _IMAGEJ_ORDER)).lower()
    if sorted(order) != sorted(_IMAGEJ_ORDER):
        order = _IMAGEJ_ORDER
    try:
        sizes = [int(about.get(_IMAGEJ_COUNTS[axis], 1)) for axis in order[::-1]]
        images = int(about.get("images", 1))
    except (TypeError, ValueError):
        return None
    if min(sizes) < 1 or images < 1:
        return None
    planes = _without_single(order[::-1], sizes)
    return planes if planes.count >= images else Planes(_TIME, (images,))


def imagej_planes_in_one_piece(file: TiffFile) -> tuple[Planes, Planes] | None:
    """Return the planes promised and those that are there, where one page stands for all.

    So ImageJ writes stacks above 4 GB. None for other files, and for those that tifffile reads.
    """
    page, promised = file.pages.first, imagej_planes(file)
    if promised is None or file.pages.is_multipage or page.axes != "YX" or not page.nbytes:
        return None
    if not page.is_final or promised.count < 2:
        return None
    there = (file.filehandle.size - page.dataoffsets[0]) // page.nbytes
    known = sum(math.prod(one.shape[:-2]) for one in file.series)
    if there < 1 or min(there, promised.count) <= known:
        return None
    return promised, promised if there >= promised.count else promised.cut_to(there)


def unnamed_pages(file: TiffFile, image: TiffPageSeries) -> list[int]:
    """Return the pages of a file, by number, that its metadata do not name and are frames alike.

    Those that differ, such as a thumbnail, are none.
    """
    count = math.prod(image.shape[:-2])
    if image.kind in ("uniform", "generic") or image.is_multifile:
        return []
    if not file.pages.is_multipage or len(file.pages) <= count:
        return []
    named = set(named_pages(image))
    first = image.keyframe
    extra = []
    for number in sorted(set(range(len(file.pages))) - named):
        page: Any = file.pages.get(number, aspage=True, cache=False)
        if (page.shape, page.dtype, page.axes) == (first.shape, first.dtype, first.axes):
            extra.append(number)
    return extra


def named_pages(image: TiffPageSeries) -> list[int]:
    """Return the numbers of the pages of an image that its metadata name, in order."""
    count = math.prod(image.shape[:-2])
    # One page may stand for all; of several, tifffile lists those behind them, too.
    listed = [page.index for page in image if page is not None][:count]
    return list(range(count)) if len(listed) < count else listed


def grown(path: Path, axes: str, shape: tuple[int, ...], count: int) -> Planes:
    """Return the planes of a file with more pages than its metadata name.

    Raises
    ------
    UnreadableImageError
        If the pages are those of several channels, and do not make whole sets of them.
    """
    found = _without_single(axes, shape).grown_to(count)
    if found is None:
        raise unreadable(
            path,
            f"it has {count} pages, and its metadata say {'×'.join(map(str, shape))} planes along "
            f"{', '.join(axes)}: it is unknown which page belongs to which channel. Give the "
            "frames of one channel as an array",
        )
    return found


def _without_single(axes: str, sizes: Sequence[int]) -> Planes:
    """Return planes without the axes along which there is one."""
    kept = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if size != 1]
    return Planes("".join(axis for axis, _ in kept), tuple(size for _, size in kept))
