"""Read Zarr arrays, and the full resolution of OME-Zarr 0.4 and 0.5."""

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

#: Metadata files of a folder; the newer version first, as zarr prefers it.
_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
#: Accepted codecs. Others may run pickled code, or whatever plugin is installed.
_CODECS = frozenset({
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta",
    "fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits",
    "pcodec", "quantize", "sharding_indexed", "shuffle", "transpose", "zfpy", "zlib", "zstd",
})  # fmt: skip


def read_zarr(path: Path) -> ImageFile:
    """Return the image of a Zarr folder.

    Raises
    ------
    ImportError
        If zarr is missing; the message says how to get it.
    UnreadableImageError
        If it is not a Zarr folder, is damaged, or has no image.
    """
    try:
        import zarr
    except ImportError:
        raise ImportError(
            'Zarr needs zarr, which is missing: pip install "napari-spotfit[images]"'
        ) from None
    document = _checked(path)
    if document is None:
        raise unreadable(path, "it is no Zarr: it has no metadata of an array or group")
    for inner in _inner_folders(path, document):
        _checked(inner, path)
    is_array = document.get("node_type", "array" if "shape" in document else "group") == "array"
    version = document["zarr_format"]
    try:
        # Consolidated metadata are not used, as only those in the folders were checked.
        found = (
            zarr.open_array(path, mode="r", zarr_format=version)
            if is_array
            else zarr.open_group(path, mode="r", zarr_format=version, use_consolidated=False)
        )
        return image_of(found, path)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, (UnreadableImageError, PromiseError)):
            raise
        raise unreadable(path, f"it is damaged, or not Zarr: {error}") from None


def _checked(folder: Path, root: Path | None = None) -> dict[str, Any] | None:
    """Return the metadata of an array or group once they are known to be safe; None without any.

    Raises
    ------
    UnreadableImageError
        If an array needs other codecs, such as one that unpickles, has other values than numbers,
        or lies outside the folder that was opened.
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
        raise unreadable(root, "it has storage transformers, which are not supported")
    for name in _codecs(document):
        if name.removeprefix("numcodecs.") not in _CODECS:
            raise unreadable(
                root,
                f"it is written with the codec {name!r}, and codecs may run programs: accepted are "
                f"{', '.join(sorted(_CODECS))}. If you trust it, open it with zarr and pass the "
                "array",
            )
    return document


def _codecs(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of an array's codecs, including those within shards."""
    named = [document.get("compressor"), *(document.get("filters") or ())]
    named += [*document.get("codecs", ()), *document.get("index_codecs", ())]
    for one in named:
        if isinstance(one, dict):
            yield str(one.get("name", one.get("id")))
            yield from _codecs(one.get("configuration") or {})
        elif one is not None:
            yield str(one)


def _inner_folders(path: Path, document: Mapping[str, Any]) -> list[Path]:
    """Return the folders of a group that may be opened with it: its own arrays, and its image."""
    folders = [] if "shape" in document else [one for one in path.iterdir() if one.is_dir()]
    for image in _multiscales(document.get("attributes") or {}):
        inner = str(image["datasets"][0]["path"]).split("/")
        if not all(map(is_bare, inner)):
            raise unreadable(path, f"its image lies in {'/'.join(inner)!r}, outside of it")
        folders += [path.joinpath(*inner[: count + 1]) for count in range(len(inner))]
    return folders


def _multiscales(attributes: Mapping[str, Any]) -> list[Any]:
    """Return OME's list of multiscale images in a group's attributes."""
    return attributes.get("ome", attributes).get("multiscales") or []


def _check_size(path: Path, array: Any) -> None:
    """Check that the folder's files are large enough for one frame and one chunk.

    Raises
    ------
    PromiseError
        If they are not.
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
    """Return the image of a Zarr array or of an OME-Zarr group."""
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
    # A shard is one file, which is best read once.
    chunks = getattr(array, "shards", None) or array.chunks
    frames = _Frames(array)
    return ImageFile(
        path, array.shape, array.dtype, frames, _all_named(dims), chunks[:-2], frames.box,
        channels=channels,
    )  # fmt: skip


class _Frames:
    """Reads frames, all of a run along the last leading axis at once."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def box(self, leading: tuple[slice, ...]) -> NDArray[Any]:
        """Read a box of frames, and each of its chunks once."""
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
    """Return the array of full resolution, and the names of its axes."""
    images = _multiscales(dict(group.attrs))
    if not images:
        arrays = [name for name, _ in group.arrays()]
        if len(arrays) == 1:
            return group[arrays[0]], None
        raise unreadable(
            path,
            f"it is no OME-Zarr image, but has {len(arrays)} arrays ({', '.join(arrays) or 'none'})"
            "; pass the path of one of them",
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
    """Whether a folder is a Zarr array or group."""
    return path.is_dir() and any(
        (path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup")
    )
