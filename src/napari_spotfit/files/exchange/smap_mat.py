"""Read SMAP's localisations from MATLAB files of version 7 or 7.3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ..table import UnreadableFileError
from .hdf5 import opened
from .image_info import ImageInfo, as_pixel_size
from .matlab import read_variables

#: First bytes of the two kinds of files.
_MAGIC, _HDF5_MAGIC = b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"
_SAVED, _LOCS, _INFO = "saveloc", "loc", ("file", "info")
_NANOMETRES_IN_MICRON = 1000.0
#: Looks up numbers by name; None without any.
_Look = Callable[[str], "NDArray[Any] | None"]


def is_mat(head: bytes) -> bool:
    """Whether a file begins like one of MATLAB's."""
    return head.startswith((_MAGIC, _HDF5_MAGIC))


def read_mat(path: Path, image: ImageInfo) -> tuple[dict[str, NDArray[Any]], ImageInfo]:
    """Return the columns of a file, and pixel size and shape of the image.

    Raises
    ------
    ImportError
        If h5py is missing and the file is of version 7.3.
    UnreadableFileError
        If the file is damaged, or has no localisations of SMAP's.
    """
    with path.open("rb") as file:
        is_hdf5 = file.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC
    columns, about = _from_hdf5(path) if is_hdf5 else _from_version_7(path)
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise UnreadableFileError(f"its columns have different lengths: {sorted(lengths)}")
    return columns, _image_info(path, about, image)


def _from_hdf5(path: Path) -> tuple[dict[str, NDArray[Any]], _Look]:
    """Return the columns of a file of version 7.3, and a look-up of the image's metadata."""
    with opened(path) as file:
        inside = f"{_SAVED}/" if file.find(_SAVED) is not None else ""
        locs, about = inside + _LOCS, inside + "/".join(_INFO)
        if not hasattr(file.find(locs), "keys"):
            raise UnreadableFileError(f"it has no “{_SAVED}.{_LOCS}” of SMAP's")
        columns: dict[str, NDArray[Any]] = {}
        for name in file.names(locs):
            if "MATLAB_empty" not in file.find(f"{locs}/{name}").attrs:
                _add(columns, name, file.array(f"{locs}/{name}"))
        info: dict[str, NDArray[Any]] = {}
        for name in file.names(about):
            found = file.find(f"{about}/{name}")
            if getattr(found, "size", _MANY) < _MANY and found.dtype.kind in "fiub":
                info[name] = file.array(f"{about}/{name}").ravel()
    return columns, info.get


#: Arrays of this many numbers are not metadata.
_MANY = 100


def _from_version_7(path: Path) -> tuple[dict[str, NDArray[Any]], _Look]:
    """Return the columns of a file of version 5 to 7, and a look-up of the image's metadata."""
    found = read_variables(path, (_SAVED, _LOCS))
    saved = found[_SAVED].fields() if _SAVED in found else found
    if _LOCS not in saved or not (locs := saved[_LOCS].fields()):
        raise UnreadableFileError(f"it has no “{_SAVED}.{_LOCS}” of SMAP's")
    columns: dict[str, NDArray[Any]] = {}
    for name, one in locs.items():
        values = one.numbers()
        if values is not None and values.size:
            _add(columns, name, values)
    about = saved
    for name in _INFO:
        about = about[name].fields() if name in about else {}

    def look(name: str) -> NDArray[Any] | None:
        values = about[name].numbers() if name in about else None
        return values.ravel() if values is not None and values.size else None

    return columns, look


def _add(columns: dict[str, NDArray[Any]], name: str, values: NDArray[Any]) -> None:
    """Add a column if the array is a vector of numbers, which MATLAB stores as row or column."""
    if values.dtype.kind in "fiub" and max(values.shape, default=1) == values.size:
        columns[name] = values.ravel()


def _image_info(path: Path, look: _Look, image: ImageInfo) -> ImageInfo:
    """Return pixel size and shape of the image, as far as the file has them."""
    size, known = look("cam_pixelsize_um"), image.pixel_size
    if known is None and size is not None and np.isfinite(size).all() and (size > 0).all():
        x, y = size[[0, -1]] * _NANOMETRES_IN_MICRON
        known = as_pixel_size([float(y), float(x)])
    roi = look("roi")
    if roi is not None and np.any(roi[:2]):
        warn_caller(
            f"“{path.name}”: its positions count from the camera's first pixel, but the movie "
            f"begins at x = {roi[0]:g}, y = {roi[1]:g}: subtract that to get pixels of the movie"
        )
    found = [look(name) for name in ("numberOfFrames", "Height", "Width")]
    shape = [int(one[0]) for one in found if one is not None and one.size and one[0] >= 1]
    return ImageInfo(known, tuple(shape) if len(shape) == len(found) else image.shape)
