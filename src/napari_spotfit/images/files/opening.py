"""Open image files, with the reader that belongs to their name or content."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .image_file import ImageFile

_TIFF = (".tif", ".tiff", ".btf", ".tf8")
#: Endings of image files, and the optional package that each needs; Zarr folders are recognised
#: by their content.
ENDINGS = dict.fromkeys(_TIFF, "") | {
    ".zarr": "zarr", ".nd2": "nd2", ".npy": "", ".raw": "yaml", ".dax": "",
}  # fmt: skip


def open_image(path: str | os.PathLike[str]) -> ImageFile:
    """Open an image file without reading its frames.

    All functions that take an image accept its path, too. Open it to see its shape, or to read
    some frames: ``open_image(path)[:10]``.

    Parameters
    ----------
    path : str or path
        A TIFF of one or many pages, OME-TIFF too (``.tif``, ``.tiff``, ``.btf``, ``.tf8``), a
        folder of Zarr or OME-Zarr 0.4 or 0.5, Nikon's ``.nd2``, a folder of NDTiff as
        Micro-Manager writes it, an ``.npy``, Picasso's ``.raw`` with its ``.yaml``, or
        storm-analysis' ``.dax`` with its ``.inf``.

    Returns
    -------
    ImageFile
        It has ``shape``, ``dtype`` and, if the file names its axes, ``dims``; indexing reads
        frames as NumPy arrays. No file stays open.

    Raises
    ------
    UnreadableImageError
        A ValueError, if the file is damaged, cut off, empty, or of an unknown kind.
    OSError
        If the file is missing or cannot be read.
    ImportError
        If the package that reads it is missing; the message says how to get it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from napari_spotfit import localize, open_image, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "movie.npy"
    ...     np.save(path, movie)
    ...     fits = localize(path)
    ...     open_image(path)
    <ImageFile: “movie.npy”, 3×64×64 px of uint16>
    >>> len(fits) == len(localize(movie))
    True
    """
    # Imported here, as fits of arrays do not need them.
    from pathlib import Path

    from ...untrusted import named
    from .image_file import UnreadableImageError

    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no file “{place}”")
    with named(f"“{place.name}” cannot be read", UnreadableImageError):
        return _opened(place)


def _opened(place: Path) -> ImageFile:
    """Return the image of a file or folder, recognised by its name or content."""
    from . import microscopes, plain, tiff, zarr_store
    from .image_file import unreadable

    if zarr_store.is_zarr(place):
        return zarr_store.read_zarr(place)
    if microscopes.is_ndtiff(place):
        return microscopes.read_ndtiff(place)
    ending = place.suffix.lower()
    if place.is_dir():
        raise unreadable(place, "it is a folder, but neither Zarr nor NDTiff; name the files in it")
    if ending in _TIFF:
        return tiff.read_tiff(place)
    readers = {
        ".nd2": microscopes.read_nd2,
        ".npy": plain.read_npy,
        ".raw": plain.read_raw,
        ".dax": plain.read_dax,
    }
    if ending not in readers:
        raise unreadable(
            place,
            f"its name must end in {', '.join(ENDINGS)}; read other files with other programs, and "
            "pass them as arrays",
        )
    return readers[ending](place)


def is_image_folder(path: Path) -> bool:
    """Whether a folder is itself an image, rather than a folder of image files."""
    from . import microscopes, zarr_store

    return zarr_store.is_zarr(path) or microscopes.is_ndtiff(path)


def data_set(path: Path) -> list[Path]:
    """Return all files of an image's data set: several only for an OME-TIFF of several files."""
    if path.suffix.lower() not in _TIFF or not path.is_file():
        return [path]
    from .tiff import data_set

    return data_set(path)


def opened(image: Any) -> Any:
    """Open an image from a path, a TiffFile or a Zarr group; return other images unchanged."""
    if isinstance(image, (str, os.PathLike)):
        return open_image(image)
    module = type(image).__module__
    if module.startswith("tifffile.") and hasattr(image, "series"):
        from .tiff import image_of

        return image_of(image)
    if module.startswith("zarr.") and hasattr(image, "group_keys"):
        from . import zarr_store

        return zarr_store.image_of(image)
    return image
