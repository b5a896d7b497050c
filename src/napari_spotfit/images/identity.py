"""Identify an image across sessions: by its file, or by its pixels."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import is_on_device, to_host
from .files.image_file import ImageFile
from .files.opening import opened
from .frames import FrameReader

#: Arrays in memory are hashed completely up to this many bytes.
_BYTES = 256 << 20
#: Number of frames that are hashed of other images, where each may be a computation or a file.
_FRAMES = 3


def identity(image: Any) -> dict[str, Any]:
    """Return plain values that identify an image.

    For a file or folder: path, size and time of modification. For other images: a hash of the
    pixels, of all of an array in memory up to 256 MiB, else of a few frames evenly spread.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        The image.

    Examples
    --------
    >>> import numpy as np
    >>> movie = np.zeros((3, 16, 16), np.uint16)
    >>> before = identity(movie)
    >>> before == identity(movie.copy())
    True
    >>> movie[1, 2, 3] = 1
    >>> before == identity(movie)
    False
    """
    image = opened(image)
    path = _path_of(image)
    known = {"shape": [int(size) for size in np.shape(image)], "dtype": str(_dtype(image))}
    if path is not None and path.exists():
        others = image.files[1:] if isinstance(image, ImageFile) else ()
        parts = {f"“{other.name}”": _state(other) for other in others}
        chosen = getattr(image, "chosen", None)
        part = {} if chosen is None else {"index": list(chosen)}
        return known | {"path": path.resolve().as_posix()} | _state(path) | parts | part
    return known | {"pixels": _fingerprint(image)}


def values_identity(values: Any) -> Any:
    """Return plain values that identify None, a number or a per-pixel map."""
    if values is None or isinstance(values, (bool, int, float)):
        return values
    array = values if hasattr(values, "shape") and hasattr(values, "dtype") else np.asarray(values)
    if len(array.shape) < 2:
        return np.asarray(to_host(array)).tolist()
    return {
        "shape": [int(size) for size in array.shape],
        "dtype": str(array.dtype),
        "values": _fingerprint(array),
    }


def _dtype(image: Any) -> Any:
    return image.dtype if hasattr(image, "dtype") else np.asarray(image).dtype


def _path_of(image: Any) -> Path | None:
    """Return the file or folder that contains all pixels of an image, or None."""
    if isinstance(image, ImageFile):
        return image.path
    store = getattr(image, "store", None)  # of a Zarr array in a folder
    if isinstance(getattr(store, "root", None), Path):
        return Path(store.root) / str(getattr(image, "path", ""))  # type: ignore[union-attr]
    return None


def _state(path: Path) -> dict[str, int]:
    """Return size and time of modification; for a folder those of all files in it."""
    if not path.is_dir():
        about = path.stat()
        return {"bytes": about.st_size, "changed": about.st_mtime_ns}
    count = size = changed = 0
    folders = [os.fspath(path)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                    continue
                about = entry.stat()
                count, size = count + 1, size + about.st_size
                changed = max(changed, about.st_mtime_ns)
    return {"files": count, "bytes": size, "changed": changed}


def _fingerprint(image: Any) -> str:
    """Return a hash of frames of an image."""
    reader = FrameReader(image, flags=True, checked=False)
    in_memory = type(image) is np.ndarray or is_on_device(image) or not hasattr(image, "shape")
    most = _FRAMES
    if in_memory:
        frame_bytes: int = math.prod(reader.frame_shape) * np.dtype(_dtype(image)).itemsize
        most = max(_BYTES // frame_bytes, _FRAMES)
    count = min(most, reader.count)
    looked_at = np.unique(np.linspace(0, max(reader.count - 1, 0), count).astype(np.int64))
    found = hashlib.blake2b(digest_size=16)
    for number in looked_at if reader.count else ():
        frame: NDArray[Any] = reader.read_to_host(np.array([number]))
        found.update(np.ascontiguousarray(frame).view(np.uint8).data)
    return found.hexdigest()
