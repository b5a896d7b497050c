"""Image files by their names: which reader opens which."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .image_file import ImageFile

_TIFF = (".tif", ".tiff", ".btf", ".tf8")
#: What names of files end in, with the package that reads them beside those that are always
#: there; folders of Zarr's are known by what is in them.
ENDINGS = dict.fromkeys(_TIFF, "") | {
    ".zarr": "zarr", ".nd2": "nd2", ".npy": "", ".raw": "yaml", ".dax": "",
}  # fmt: skip


def open_image(path: str | os.PathLike[str]) -> ImageFile:
    """Open an image file without reading its frames.

    All functions that take an image take the path itself, too. Open it to see its shape first, or
    to read some frames: ``open_image(path)[:10]``.

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
        It has ``shape``, ``dtype`` and, where the file names its axes, ``dims``; indexing reads
        frames, as NumPy's arrays. No file stays open.

    Raises
    ------
    UnreadableImageError
        A ValueError, if the file is damaged, cut off, empty, or something else.
    OSError
        If there is no such file, or it cannot be read.
    ImportError
        If a package that reads it is missing; the message says how to get it.

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
    # Here, as fits of arrays need none of them.
    from pathlib import Path

    from ...untrusted import named
    from .image_file import UnreadableImageError

    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no file “{place}”")
    with named(f"“{place.name}” cannot be read", UnreadableImageError):
        return _opened(place)


def _opened(place: Path) -> ImageFile:
    """Return the image of a file or folder, by its name or what is in it."""
    from . import microscopes, plain, tiff, zarr_store
    from .image_file import unreadable

    if zarr_store.is_zarr(place):
        return zarr_store.read_zarr(place)
    if microscopes.is_ndtiff(place):
        return microscopes.read_ndtiff(place)
    ending = place.suffix.lower()
    if place.is_dir():
        raise unreadable(
            place, "it is a folder, and none of Zarr's or NDTiff's; name the files in it"
        )
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
            f"its name must end in {', '.join(ENDINGS)}; other files can be read by other programs "
            "and given as arrays",
        )
    return readers[ending](place)


def is_image_folder(path: Path) -> bool:
    """Whether a folder is one image, and not one of image files."""
    from . import microscopes, zarr_store

    return zarr_store.is_zarr(path) or microscopes.is_ndtiff(path)


def data_set(path: Path) -> list[Path]:
    """Return the files that are opened with a file: others only of an OME-TIFF of several."""
    if path.suffix.lower() not in _TIFF or not path.is_file():
        return [path]
    from .tiff import data_set

    return data_set(path)


def opened(image: Any) -> Any:
    """Return an image: of a path, or of a file that tifffile or zarr has opened; others as is."""
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
