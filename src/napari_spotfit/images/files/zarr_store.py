"""Zarr arrays, and the finest images of OME-Zarr 0.4 and 0.5."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...untrusted import PIXEL_RATIO, Allowance, PromiseError
from .image_file import ImageFile, UnreadableImageError, is_bare, unreadable

if TYPE_CHECKING:
    import zarr

#: What says of a folder what is in it; the newer one comes first, as zarr has it.
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
#: What chunks may be written with. Others run what was pickled, or are whatever is installed.
_CODECS = frozenset({
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta",
    "fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits",
    "pcodec", "quantize", "sharding_indexed", "shuffle", "transpose", "zfpy", "zlib", "zstd",
})  # fmt: skip


def read_zarr(path: Path) -> ImageFile:
    """Return the image in a folder of Zarr's.

    Raises
    ------
    ImportError
        If zarr is missing; the message says how to get it.
    UnreadableImageError
        If it is no such folder, is damaged, or has no image.
    """
    try:
        import zarr
    except ImportError:
        raise ImportError(
            'Zarr needs zarr, which is missing: pip install "napari-spotfit[images]"'
        ) from None
    document = _checked(path)
    if document is None:
        raise unreadable(path, "it is no Zarr: it says nothing of an array or of a group")
    for inner in _inner_folders(path, document):
        _checked(inner, path)
    is_array = document.get("node_type", "array" if "shape" in document else "group") == "array"
    version = document["zarr_format"]
    try:
        # What is said of all arrays in one place is left: it was not checked.
        found = (
            zarr.open_array(path, mode="r", zarr_format=version)
            if is_array
            else zarr.open_group(path, mode="r", zarr_format=version, use_consolidated=False)
        )
        return image_of(found, path)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, (UnreadableImageError, PromiseError)):
            raise
        raise unreadable(path, f"it is damaged, or no Zarr: {error}") from None


def _checked(folder: Path, root: Path | None = None) -> dict[str, Any] | None:
    """Return what a folder says of its array or group, whose codecs are known; None without.

    Raises
    ------
    UnreadableImageError
        If an array needs others, such as one that runs what Python has pickled, has other values
        than numbers, or lies outside of the folder that was opened.
    """
    root = root or folder
    place = next((folder / name for name in _DOCUMENTS if (folder / name).is_file()), None)
    if place is None:
        return None
    if not folder.resolve().is_relative_to(root.resolve()):
        raise unreadable(root, f"“{folder.name}” in it is a link that leads out of it")
    document = json.loads(place.read_bytes())
    if not isinstance(document, dict) or document.get("zarr_format") not in (2, 3):
        raise unreadable(root, f"“{place.name}” in it is damaged, or of another version of Zarr")
    if place.name == ".zgroup" and (folder / ".zattrs").is_file():
        document["attributes"] = json.loads((folder / ".zattrs").read_bytes())
    if "shape" not in document:
        return document
    kind = document.get("data_type", document.get("dtype"))
    if not isinstance(kind, str) or np.dtype(kind).kind not in "fiub":
        raise unreadable(root, f"its values are {kind!r} instead of numbers")
    if document.get("storage_transformers"):
        raise unreadable(root, "it has storage transformers, which are not known")
    for name in _codecs(document):
        if name.removeprefix("numcodecs.") not in _CODECS:
            raise unreadable(
                root,
                f"it is written with the codec {name!r}, and codecs may run programs: read are "
                f"{', '.join(sorted(_CODECS))}. If you trust it, open it with zarr and give the "
                "array",
            )
    return document


def _codecs(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the codecs that chunks are written with, and those within a shard."""
    named = [document.get("compressor"), *(document.get("filters") or ())]
    named += [*document.get("codecs", ()), *document.get("index_codecs", ())]
    for one in named:
        if isinstance(one, dict):
            yield str(one.get("name", one.get("id")))
            yield from _codecs(one.get("configuration") or {})
        elif one is not None:
            yield str(one)


def _inner_folders(path: Path, document: Mapping[str, Any]) -> list[Path]:
    """Return the folders whose arrays may be opened with a group: its own, and its image's."""
    folders = [] if "shape" in document else [one for one in path.iterdir() if one.is_dir()]
    for image in _multiscales(document.get("attributes") or {}):
        inner = str(image["datasets"][0]["path"]).split("/")
        if not all(map(is_bare, inner)):
            raise unreadable(path, f"its image lies in {'/'.join(inner)!r}, outside of it")
        folders += [path.joinpath(*inner[: count + 1]) for count in range(len(inner))]
    return folders


def _multiscales(attributes: Mapping[str, Any]) -> list[Any]:
    """Return what attributes say of images as OME has them."""
    return attributes.get("ome", attributes).get("multiscales") or []


def _check_size(path: Path, array: Any) -> None:
    """Check that one frame and one chunk are no more than the folder's files can hold.

    Raises
    ------
    PromiseError
        If they are more.
    """
    chunk = getattr(array, "shards", None) or array.chunks
    needed = max(math.prod(array.shape[-2:]), math.prod(chunk)) * array.dtype.itemsize
    there, allowance = 0, Allowance(0, PIXEL_RATIO)
    if needed > allowance.left:
        for file in path.rglob("*"):
            there += file.stat().st_size if file.is_file() else 0
            if (allowance := Allowance(there, PIXEL_RATIO)).left >= needed:
                break
    allowance.take(needed, "a frame, or a chunk,")


def image_of(found: zarr.Array[Any] | zarr.Group, path: Path | None = None) -> ImageFile:
    """Return the image of what zarr has opened: of an array, or of a group as OME has them."""
    path = path or Path(str(found.store_path))
    dims: Sequence[str] | None
    if hasattr(found, "group_keys"):
        array, dims = _of_group(found, path)
        channels = _channels_of(found)
    else:
        array, dims = found, getattr(found.metadata, "dimension_names", None)
        channels = None
    if array.ndim < 2:
        raise unreadable(path, f"it has no frames of rows and columns: its shape is {array.shape}")
    if path.is_dir():
        _check_size(path, array)
    # What lies in one file is read once.
    chunks = getattr(array, "shards", None) or array.chunks
    frames = _Frames(array)
    return ImageFile(
        path, array.shape, array.dtype, frames, _all_named(dims), chunks[:-2], frames.box,
        channels=channels,
    )  # fmt: skip


class _Frames:
    """Reads frames, those along the last leading axis at once."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def box(self, leading: tuple[slice, ...]) -> NDArray[Any]:
        """Read frames of a box, each chunk of it once."""
        return np.asarray(self._array[leading])

    def __call__(self, first: int, count: int) -> NDArray[Any]:
        array = self._array
        leading = array.shape[:-2]
        if not leading:
            return np.asarray(array[...])[np.newaxis]
        parts, last = [], first + count
        while first < last:
            *outer, begin = (int(one) for one in np.unravel_index(first, leading))
            size = min(last - first, leading[-1] - begin)
            parts.append(np.asarray(array[(*outer, slice(begin, begin + size))]))
            first += size
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _of_group(group: Any, path: Path) -> tuple[Any, Sequence[str] | None]:
    """Return the finest array of an image, and the names of its axes."""
    images = _multiscales(dict(group.attrs))
    if not images:
        arrays = [name for name, _ in group.arrays()]
        if len(arrays) == 1:
            return group[arrays[0]], None
        raise unreadable(
            path,
            f"it is no OME-Zarr image, and has {len(arrays)} arrays ({', '.join(arrays) or 'none'})"
            "; name one, as a folder in it",
        )
    axes = images[0].get("axes", [])
    names = [str(axis["name"] if isinstance(axis, dict) else axis) for axis in axes]
    array = group[images[0]["datasets"][0]["path"]]
    if names[-2:] not in ([], ["y", "x"]):
        raise unreadable(path, f"its axes must end in y, x; they are {', '.join(names)}")
    return array, names or None


def _channels_of(group: Any) -> list[str] | None:
    """Return the names of the channels of an OME-Zarr; None if some have none."""
    attributes = dict(group.attrs)
    about = attributes.get("ome", attributes).get("omero", {})
    names = [channel.get("label") for channel in about.get("channels", ())]
    return [str(name) for name in names] if names and all(names) else None


def _all_named(dims: Sequence[str | None] | None) -> list[str] | None:
    return None if dims is None or None in dims else [str(name) for name in dims]


def is_zarr(path: Path) -> bool:
    """Whether a folder is one of Zarr's."""
    return path.is_dir() and any(
        (path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup")
    )
