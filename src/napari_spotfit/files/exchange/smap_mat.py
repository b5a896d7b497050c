"""Read SMAP's localisations from MATLAB files of version 5 to 7.3.

Of versions 5 to 7, numbers and structures of numbers are read; objects, functions and sparse
matrices are not, and other variables only as far as their names.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ...models.number_checks import is_plausible_nm
from ...untrusted import Allowance
from ..table import UnreadableFileError
from .hdf5 import opened
from .image_info import ImageInfo

_HEADER, _TAG = 128, 8
_MATRIX, _COMPRESSED = 14, 15
_STRUCTURE = 2
#: Numeric classes, and the types of stored numbers, which may be smaller than the class.
_CLASSES = {
    6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8",
}  # fmt: skip
_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_COMPLEX = 0x08
#: A variable's name lies within this many first bytes.
_BEGINNING = 512
#: First bytes of the two kinds of files.
_MAGIC, _HDF5_MAGIC = b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file"
_SAVED, _LOCS, _INFO = "saveloc", "loc", ("file", "info")
_NANOMETRES_IN_MICRON = 1000.0
#: Looks up numbers by name; None without any.
_Look = Callable[[str], "NDArray[Any] | None"]


class Variable:
    """A variable, or a field of a structure.

    Parameters
    ----------
    content : memoryview
        Its bytes.
    order : str
        ``"<"`` or ``">"``.
    allowance : Allowance
        Memory that its numbers may take.
    """

    def __init__(self, content: memoryview, order: str, allowance: Allowance) -> None:
        self._order, self._allowance = order, allowance
        self._parts = _elements(content, order)
        flags, shape, name = (next(self._parts, (0, memoryview(b"")))[1] for _ in range(3))
        # An element without content is an empty matrix.
        (about,) = struct.unpack_from(f"{order}I", flags) if len(flags) >= 4 else (0,)
        self._class, self._flags = about & 0xFF, about >> 8
        self.shape = tuple(np.frombuffer(shape, f"{order}i4").tolist())
        self.name = bytes(name).decode("latin-1")

    def fields(self) -> dict[str, Variable]:
        """Return the fields of a structure; empty for other variables and arrays of structures."""
        if self._class != _STRUCTURE or math.prod(self.shape) != 1:
            return {}
        (length,) = struct.unpack(f"{self._order}i", next(self._parts)[1])
        names = bytes(next(self._parts)[1])
        if length < 1 or len(names) % length:
            raise UnreadableFileError("it is damaged: a structure has names of no length")
        titles = [
            names[at : at + length].split(b"\0")[0].decode("latin-1")
            for at in range(0, len(names), length)
        ]
        parts = (Variable(one, self._order, self._allowance) for _, one in self._parts)
        return dict(zip(titles, parts, strict=True))

    def numbers(self) -> NDArray[Any] | None:
        """Return the numbers of a matrix; None if they are not real numbers."""
        kind = _CLASSES.get(self._class)
        if kind is None or self._flags & _COMPLEX:
            return None
        stored, content = next(self._parts, (9, memoryview(b"")))
        if stored not in _TYPES:
            raise UnreadableFileError(f"it is damaged: numbers are of the unknown type {stored}")
        values = np.frombuffer(content, f"{self._order}{_TYPES[stored]}")
        if min(self.shape, default=0) < 0 or math.prod(self.shape) != values.size:
            raise UnreadableFileError(
                f"it is damaged: it has {values.size} numbers for a matrix of {self.shape}"
            )
        self._allowance.take(values.size * 8, "a matrix in it")
        return values.astype(kind).reshape(self.shape, order="F")


def read_variables(path: Path, names: Collection[str]) -> dict[str, Variable]:
    """Return those variables of a file that have one of the names.

    Raises
    ------
    UnreadableFileError
        If it is damaged or was cut off.
    PromiseError
        If it unpacks to far more than its size makes plausible.
    """
    content = memoryview(path.read_bytes())
    order = "<" if bytes(content[_HEADER - 2 : _HEADER]) == b"IM" else ">"
    allowance, found = Allowance(len(content)), {}
    for kind, part in _elements(content[_HEADER:], order):
        if kind == _COMPRESSED:
            begin = _inflated(part, _BEGINNING, whole=False)
            if _name_of(begin, order) not in names:
                continue
            (size,) = struct.unpack_from(f"{order}I", begin, 4)
            allowance.take(size, "a variable in it")
            part = _inflated(part, _TAG + size)[_TAG:]
        elif kind != _MATRIX:
            continue
        one = Variable(part, order, allowance)
        if one.name in names:
            found[one.name] = one
    return found


def _name_of(begin: memoryview, order: str) -> str:
    """Return the name of a variable from its first bytes."""
    parts = _elements(begin[_TAG:], order)
    *_, name = (next(parts, (0, memoryview(b"")))[1] for _ in range(3))
    return bytes(name).decode("latin-1")


def _inflated(part: memoryview, size: int, whole: bool = True) -> memoryview:
    """Unpack a number of bytes; if not `whole`, as many of them as there are."""
    try:
        content = zlib.decompressobj().decompress(part, size)
    except zlib.error as error:
        raise UnreadableFileError(f"it is damaged, or was cut off: {error}") from None
    if whole and len(content) < size:
        raise UnreadableFileError("it is damaged, or was cut off: a variable is not complete")
    return memoryview(content)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and bytes of each element."""
    place = 0
    while place + _TAG <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        begin = place + _TAG
        if kind >> 16:  # a small element: its bytes follow its length in the same tag
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + _TAG // 2
        end = begin + size
        if end > len(content) or (begin < place + _TAG and size > _TAG // 2):
            raise UnreadableFileError("it is damaged, or was cut off within a variable")
        yield kind, content[begin:end]
        # Compressed elements have no padding.
        place = end if kind == _COMPRESSED else place + _TAG * -(-(end - place) // _TAG)


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
        if is_plausible_nm(float(y)) and is_plausible_nm(float(x)):
            known = float(y), float(x)
    roi = look("roi")
    if roi is not None and np.any(roi[:2]):
        warn_caller(
            f"“{path.name}”: its positions count from the camera's first pixel, but the movie "
            f"begins at x = {roi[0]:g}, y = {roi[1]:g}: subtract that to get pixels of the movie"
        )
    found = [look(name) for name in ("numberOfFrames", "Height", "Width")]
    shape = [int(one[0]) for one in found if one is not None and one.size and one[0] >= 1]
    return ImageInfo(known, tuple(shape) if len(shape) == len(found) else image.shape)
