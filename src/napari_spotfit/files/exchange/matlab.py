"""MATLAB's files of version 5 to 7: the numbers of some variables, and of structures in them.

Nothing else is taken from them: no objects, functions or sparse matrices, and of the variables that
nobody asks for no more than their names.
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
#: Classes of numbers; the types in which they are stored, which may be smaller.
_CLASSES = {
    6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8",
}  # fmt: skip
_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_COMPLEX = 0x08
#: A variable's name is among so many of its first bytes.
_BEGINNING = 512


class Variable:
    """A variable, or what a structure has under a name.

    Parameters
    ----------
    content : memoryview
        Its bytes.
    order : str
        ``"<"`` or ``">"``.
    allowance : Allowance
        For its numbers.
    """

    def __init__(self, content: memoryview, order: str, allowance: Allowance) -> None:
        self._order, self._allowance = order, allowance
        self._parts = _elements(content, order)
        flags, shape, name = (next(self._parts, (0, memoryview(b"")))[1] for _ in range(3))
        # What has no content is an empty matrix.
        (about,) = struct.unpack_from(f"{order}I", flags) if len(flags) >= 4 else (0,)
        self._class, self._flags = about & 0xFF, about >> 8
        self.shape = tuple(np.frombuffer(shape, f"{order}i4").tolist())
        self.name = bytes(name).decode("latin-1")

    def fields(self) -> dict[str, Variable]:
        """Return what a structure has by name; nothing of others, and of arrays of structures."""
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
        """Return the numbers of a matrix, none if it has others than real ones."""
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
    """Return some variables of a file, those of these names that it has.

    Raises
    ------
    UnreadableFileError
        If it is damaged or was cut off.
    PromiseError
        If it unpacks to more than its bytes make likely.
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
    """Return the name of a variable of whose bytes only the first are there."""
    parts = _elements(begin[_TAG:], order)
    *_, name = (next(parts, (0, memoryview(b"")))[1] for _ in range(3))
    return bytes(name).decode("latin-1")


def _inflated(part: memoryview, size: int, whole: bool = True) -> memoryview:
    """Return bytes that are compressed: so many, or as many of them as there are."""
    try:
        content = zlib.decompressobj().decompress(part, size)
    except zlib.error as error:
        raise UnreadableFileError(f"it is damaged, or was cut off: {error}") from None
    if whole and len(content) < size:
        raise UnreadableFileError("it is damaged, or was cut off: a variable is not complete")
    return memoryview(content)


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the type and the bytes of one element after the other."""
    place = 0
    while place + _TAG <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        begin = place + _TAG
        if kind >> 16:  # so small that its bytes stand in the place of their number
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + _TAG // 2
        end = begin + size
        if end > len(content) or (begin < place + _TAG and size > _TAG // 2):
            raise UnreadableFileError("it is damaged, or was cut off within a variable")
        yield kind, content[begin:end]
        # What is compressed has no bytes to fill up.
        place = end if kind == _COMPRESSED else place + _TAG * -(-(end - place) // _TAG)
