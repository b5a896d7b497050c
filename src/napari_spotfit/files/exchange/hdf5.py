"""HDF5 files, through h5py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..table import UnreadableFileError
from ..writing import errno_from_message

#: The first bytes of every such file.
MAGIC = b"\x89HDF\r\n\x1a\n"


def need_h5py() -> None:
    """Check that there is h5py.

    Raises
    ------
    ImportError
        If it is missing; the message says how to get it.
    """
    if find_spec("h5py") is None:
        raise ImportError(
            "HDF5 files of Picasso and DECODE need h5py, which is missing: pip install "
            '"napari-spotfit[hdf5]"'
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
        if content.read(len(MAGIC)) != MAGIC:
            raise UnreadableFileError("it is no HDF5 file, or it is empty")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError, TypeError) as error:
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
