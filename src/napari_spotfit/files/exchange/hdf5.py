"""HDF5 files, through h5py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..table import UnreadableFileError
from ..writing import errno_from_message

#: The first bytes of every such file; of MATLAB's, after a block of its own.
MAGIC = b"\x89HDF\r\n\x1a\n"
MATLAB_BLOCK = 512
#: Compressed, numbers take this share of their room at least, and this many bytes are no danger.
_LEAST_SHARE, _NO_DANGER = 1 / 2000, 1 << 20


def need_h5py() -> None:
    """Check that there is h5py.

    Raises
    ------
    ImportError
        If it is missing; the message says how to get it.
    """
    if find_spec("h5py") is None:
        raise ImportError(
            "HDF5 files of Picasso, DECODE and SMAP (.mat) need h5py, which is missing: pip "
            'install "napari-spotfit[hdf5]"'
        )


@contextmanager
def opened(path: Path) -> Iterator[Any]:
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
        # h5py's own message for no such file, or none to be read, would name no reason.
        head = content.read(MATLAB_BLOCK + len(MAGIC))
        if MAGIC not in (head[: len(MAGIC)], head[MATLAB_BLOCK:]):
            raise UnreadableFileError("it is no HDF5 file, or it is empty")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, UnreadableFileError):
            raise
        raise UnreadableFileError(f"it is damaged, or was cut off: {error}") from None


def array_of(group: Any, name: str) -> NDArray[Any]:
    """Return the numbers of a dataset that lie in the file itself.

    Raises
    ------
    UnreadableFileError
        If there is none, they lie in other files, or they are more than the file has bytes for.
    """
    import h5py

    data = group.get(name)
    if not isinstance(data, h5py.Dataset):
        raise UnreadableFileError(f"it has no “{name}”, or it is no table of numbers")
    outside = data.file.filename != group.file.filename
    if outside or data.external or data.is_virtual:
        raise UnreadableFileError(
            f"its “{name}” lies in another file, which is not read; copy the numbers into one file"
        )
    if data.nbytes > max(_NO_DANGER, data.id.get_storage_size() / _LEAST_SHARE):
        raise UnreadableFileError(
            f"its “{name}” promises {data.nbytes} bytes, of which {data.id.get_storage_size()} are "
            "there: it is damaged"
        )
    values: NDArray[Any] = np.asarray(data[()])
    return values


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
        # What h5py raises when it closes a file for which there was no room.
        code = errno_from_message(error)
        if not code:
            raise
        raise OSError(code, os.strerror(code)) from None


def sniffed(path: Path, head: bytes, names: tuple[str, ...]) -> bool:
    """Whether a file is HDF5 with all of these in it; True for any such file without h5py."""
    if not head.startswith(MAGIC):
        return False
    if find_spec("h5py") is None:
        return True
    try:
        with opened(path) as file:
            return all(name in file for name in names)
    except UnreadableFileError:
        return False
