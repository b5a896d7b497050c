"""Zarr arrays, and the finest images of OME-Zarr 0.4 and 0.5."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .image_file import ImageFile, unreadable

if TYPE_CHECKING:
    import zarr


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
    try:
        return image_of(zarr.open(path, mode="r"), path)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, ValueError) and str(error).startswith("“"):
            raise
        raise unreadable(path, f"it is damaged, or no Zarr: {error}") from None


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
    attributes = dict(group.attrs)
    images = attributes.get("ome", attributes).get("multiscales")
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
