"""Compare the metadata of a TIFF file with the pages and bytes that it has."""

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

#: ImageJ's default order of planes, the fastest axis first.
_IMAGEJ_ORDER = "czt"
#: ImageJ's names for the numbers of planes along each axis.
_IMAGEJ_COUNTS = {"t": "frames", "z": "slices", "c": "channels"}
_TIME = "t"
_ALONG = "Along"
_TAGS = ("UUID", "Pixels", "Channel", "TiffData", _ALONG)
#: Upper bound of tifffile's memory per page in bytes.
_PER_PAGE = 100


@dataclass(frozen=True)
class Planes:
    """The leading axes of a file's planes, the slowest first, and their shape."""

    axes: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of planes."""
        return math.prod(self.shape)

    def cut_to(self, count: int) -> Planes:
        """Return the first `count` planes, as far as they are complete along the slowest axis.

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
        """Return the planes of a file with more pages; None if the last index is incomplete.

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
        # With several channels, planes would be assigned to the wrong ones.
        return None if "c" in own.axes else Planes(_TIME, (count,))


@dataclass(frozen=True)
class Ome:
    """The OME metadata on a file's pages, as tifffile reads them.

    Parameters
    ----------
    uuid : str or None
        UUID of the file.
    files : mapping of str to str
        Names of the files that contain pages, with their UUIDs.
    planes : Planes or None
        Planes of the only image; None if there are several images, or no numbers.
    channels : tuple of str or None
        Names of the channels, if all have one.
    pages, pixels : float
        Numbers of pages (or indices along an axis) and pixels that the metadata claim.
    """

    uuid: str | None
    files: Mapping[str, str]
    planes: Planes | None
    channels: tuple[str, ...] | None
    pages: float
    pixels: float


@lru_cache(maxsize=4)
def ome_of(text: str) -> Ome:
    """Parse OME metadata; like tifffile, return empty ones if that fails.

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
    """Return the planes of an image; None without their numbers."""
    axes = pixels.get("DimensionOrder", "XYZCT")[:1:-1]
    try:
        return _without_single(axes.lower(), [int(pixels.attrib[f"Size{axis}"]) for axis in axes])
    except (KeyError, ValueError):
        return None


def _pixels(pixels: ElementTree.Element) -> float:
    """Return the number of pixels of an image."""
    sizes = [value for name, value in pixels.items() if name.startswith("Size")]
    return math.prod(float(size) for size in sizes)


def _places(along: ElementTree.Element) -> float:
    """Return the number of indices along an axis in an annotation."""
    start, end, step = (float(along.get(name, 1)) for name in ("Start", "End", "Step"))
    return abs((end - start) / step) if step else math.inf


def check_ome(file: TiffFile) -> None:
    """Check that OME metadata do not claim more pages than a file of this size can have.

    Raises
    ------
    PromiseError
        If they do: tifffile would allocate memory for all of them.
    """
    ome = ome_of(file.ome_metadata or "")
    pages = max(ome.pages, ome.pixels / max(file.pages.first.size, 1))
    promised = int(min(pages * _PER_PAGE, 1e30))
    Allowance(file.filehandle.size, PIXEL_RATIO).take(promised, "its OME metadata")


def leads_out(file: TiffFile) -> bool:
    """Whether an OME-TIFF names a file in another folder."""
    return not all(map(is_bare, ome_of(file.ome_metadata or "").files))


def has_own_pages_only(file: TiffFile) -> bool:
    """Whether none of the files that an OME-TIFF names belongs to its data set.

    True for a renamed file if the file that now has its former name is another one, or has another
    UUID than the metadata say.
    """
    ome, path = ome_of(file.ome_metadata or ""), Path(file.filehandle.path)
    others = [name for name in ome.files if name.lower() != path.name.lower()]
    if others and len(others) == len(ome.files) and ome.uuid not in ome.files.values():
        return True
    return any(_has_other_uuid(path.with_name(name), ome.files[name]) for name in others)


def _has_other_uuid(path: Path, uuid: str) -> bool:
    """Whether an OME-TIFF has another UUID than its data set says."""
    from tifffile import TiffFile, TiffFileError

    if not path.is_file():
        return False  # reading its frames will raise the error
    try:
        with TiffFile(path, _multifile=False) as other:
            own = ome_of(other.ome_metadata or "").uuid
    except (OSError, TiffFileError, ValueError):
        return False
    return own is not None and own != uuid


def imagej_planes(file: TiffFile) -> Planes | None:
    """Return the planes in ImageJ's metadata; None without them."""
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


def contiguous_imagej_planes(file: TiffFile) -> tuple[Planes, Planes] | None:
    """Return the planes claimed and those found, in a stack of contiguous frames with one page.

    ImageJ writes such stacks above 4 GB. None for other files, and for those that tifffile reads.
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
    """Return the numbers of pages that the metadata do not name, but that are like its frames.

    Pages of other size or type, such as thumbnails, are left out.
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
    """Return the numbers of the pages that an image's metadata name, in order."""
    count = math.prod(image.shape[:-2])
    # One page can describe all frames; of several, tifffile also lists those that follow.
    listed = [page.index for page in image if page is not None][:count]
    return list(range(count)) if len(listed) < count else listed


def grown(path: Path, axes: str, shape: tuple[int, ...], count: int) -> Planes:
    """Return the planes of a file with more pages than its metadata name.

    Raises
    ------
    UnreadableImageError
        If there are several channels, and the last set of them is incomplete.
    """
    found = _without_single(axes, shape).grown_to(count)
    if found is None:
        raise unreadable(
            path,
            f"it has {count} pages, but its metadata say {'×'.join(map(str, shape))} planes along "
            f"{', '.join(axes)}: it is unknown which page belongs to which channel. Pass the "
            "frames of one channel as an array",
        )
    return found


def _without_single(axes: str, sizes: Sequence[int]) -> Planes:
    """Return planes without axes of length 1."""
    kept = [(axis, size) for axis, size in zip(axes, sizes, strict=True) if size != 1]
    return Planes("".join(axis for axis, _ in kept), tuple(size for _, size in kept))
