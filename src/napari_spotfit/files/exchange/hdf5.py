"""Read and write HDF5 files through h5py, safely."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.calibration import need_h5py
from ...untrusted import Allowance, PromiseError
from ..table import UnreadableFileError
from ..writing import errno_from_message

#: First bytes of an HDF5 file; in MATLAB's files they follow a header block.
MAGIC = b"\x89HDF\r\n\x1a\n"
MATLAB_BLOCK = 512
#: Bytes per number in memory.
_NUMBER = 8
_ELSEWHERE = "its “{}” lies in another file, which is not read; copy the numbers into one file"


class Hdf5:
    """An open HDF5 file that follows no links into other files.

    Parameters
    ----------
    file : h5py.File
        The file, open.
    size : int
        Size of the file in bytes.
    """

    def __init__(self, file: Any, size: int) -> None:
        self._file, self._allowance = file, Allowance(size)

    @property
    def attributes(self) -> Any:
        """The attributes of the file as a whole."""
        return self._file.attrs

    def find(self, path: str) -> Any:
        """Return the group or dataset at a path, or None.

        Raises
        ------
        UnreadableFileError
            If a link on the way leads into another file.
        """
        import h5py

        found = self._file
        for name in path.split("/"):
            key = name.encode(errors="surrogateescape")
            if not isinstance(found, h5py.Group) or not (links := found.id.links).exists(key):
                return None
            # Looking up an external link by name would open the other file.
            if links.get_info(key).type != h5py.h5l.TYPE_HARD:
                raise UnreadableFileError(_ELSEWHERE.format(path))
            found = found[name]
        return found

    def names(self, path: str) -> list[str]:
        """Return the names in a group; empty if there is no such group."""
        found = self.find(path)
        return list(found) if hasattr(found, "keys") else []

    def array(self, path: str) -> NDArray[Any]:
        """Return the numbers of a dataset.

        Raises
        ------
        UnreadableFileError
            If it is missing, lies in another file or was not written completely.
        PromiseError
            If it claims more numbers than the file has bytes for.
        """
        import h5py

        data = self.find(path)
        if not isinstance(data, h5py.Dataset) or data.shape is None:
            raise UnreadableFileError(f"it has no “{path}”, or it is no table of numbers")
        if data.external or data.is_virtual:
            raise UnreadableFileError(_ELSEWHERE.format(path))
        if data.dtype.hasobject and data.shape != ():
            raise UnreadableFileError(f"its “{path}” has texts or objects instead of numbers")
        # HDF5 unpacks whole chunks, however little is read.
        count = max(math.prod(data.shape), math.prod(data.chunks or ()))
        self._allowance.take(count * max(data.dtype.itemsize, _NUMBER), f"its “{path}”")
        if data.size and _missing(data):
            raise UnreadableFileError(
                f"its “{path}” is not complete: the program that wrote it was stopped"
            )
        values: NDArray[Any] = np.asarray(data[()])
        return values


def _missing(data: Any) -> bool:
    """Whether rows of a dataset were never written: HDF5 reads them as zeros."""
    if data.chunks is None:
        return bool(data.id.get_storage_size() == 0)
    pairs = zip(data.shape, data.chunks, strict=True)
    return bool(data.id.get_num_chunks() < math.prod(-(-size // chunk) for size, chunk in pairs))


@contextmanager
def opened(path: Path) -> Iterator[Hdf5]:
    """Open a file to read it.

    Raises
    ------
    ImportError
        If h5py is missing.
    UnreadableFileError
        If the file is damaged or something else.
    """
    need_h5py()
    import h5py

    with path.open("rb") as content:
        # Python's errors say why a file cannot be opened; h5py's do not.
        head = content.read(MATLAB_BLOCK + len(MAGIC))
        if MAGIC not in (head[: len(MAGIC)], head[MATLAB_BLOCK:]):
            raise UnreadableFileError("it is no HDF5 file, or it is empty")
    try:
        with h5py.File(path, "r") as file:
            yield Hdf5(file, path.stat().st_size)
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, (UnreadableFileError, PromiseError)):
            raise
        raise UnreadableFileError(f"it is damaged, or was cut off: {error}") from None


@contextmanager
def created(path: Path) -> Iterator[Any]:
    """Create a file to write it.

    Raises
    ------
    ImportError
        If h5py is missing.
    OSError
        If it cannot be written, as on a full disk.
    """
    need_h5py()
    import h5py

    try:
        with h5py.File(path, "w") as file:
            yield file
    except RuntimeError as error:
        # h5py raises a RuntimeError when it closes a file on a full disk.
        code = errno_from_message(error)
        if not code:
            raise
        raise OSError(code, os.strerror(code)) from None


def sniffed(path: Path, head: bytes, names: tuple[str, ...]) -> bool:
    """Whether a file is HDF5 and has all these names; without h5py, whether it is HDF5."""
    if not head.startswith(MAGIC):
        return False
    if find_spec("h5py") is None:
        return True
    with opened(path) as file:
        return all(file.find(name) is not None for name in names)
