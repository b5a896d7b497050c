"""Read numbers and structures of numbers from MATLAB files of version 5 to 7.

Objects, functions and sparse matrices are not read, and other variables only as far as their names.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...untrusted import Allowance
from ..table import UnreadableFileError

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
