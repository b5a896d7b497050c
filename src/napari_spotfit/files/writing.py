"""How files are written: complete or not at all, one run at a time, with errors that name them."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: What goes wrong in writing alone, whatever the error names: a disk that is full or protected.
_WRITING = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EROFS")
    if hasattr(errno, name)  # Windows lacks some
)
_NUMBER = re.compile(r"\berrno(?: =)? (\d+)", re.IGNORECASE)
_TOO_LITTLE = re.compile(r"\d+ requested and \d+ written")

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int, *, wait: bool) -> None:
        msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int, *, wait: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


class FileLockedError(OSError):
    """Another run, or another part of this one, works on a file."""


@contextmanager
def file_lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a file.

    The system ends the lock of a process that is killed. Where a file system has no locks, the
    file is used without one.

    Parameters
    ----------
    path : path
        The file. The lock is another file beside it, which is removed at the end.
    wait : bool, default False
        Whether to wait until another one ends.

    Raises
    ------
    FileLockedError
        If another one holds the lock, and `wait` is false.
    """
    lock = lock_of(path)
    file = _acquired(lock, wait=wait)
    try:
        yield
    finally:
        if file is not None:
            _leave(lock, file)


def lock_of(path: Path) -> Path:
    """Return where the lock of a file is. After a kill it stays there, without a holder."""
    return path.with_name(f".{path.name}.lock")


def _acquired(lock: Path, *, wait: bool) -> int | None:
    """Return a lock's open file once no other process holds it; None where there are no locks."""
    while True:
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # nor can anything else be written here: that raises its own error
            return None
        try:
            _lock(file, wait=wait)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise FileLockedError(f"“{lock.name}” is another run's") from None
        except OSError:
            _leave(lock, file)
            return None
        if _is_there(lock, file):
            return file
        os.close(file)  # who had it before has removed it: the next one makes another


def _is_there(lock: Path, file: int) -> bool:
    """Whether an open file is the one of this name."""
    try:
        return os.path.samestat(lock.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _leave(lock: Path, file: int) -> None:
    """Remove a lock and close its file: in the order that the system takes."""
    if sys.platform == "win32":  # there, what is open stays
        os.close(file)
        with suppress(OSError):
            lock.unlink(missing_ok=True)
        return
    # Whoever waits for it sees that it is gone.
    with suppress(OSError):
        lock.unlink(missing_ok=True)
    os.close(file)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give another name to write to, and the path to what was written there once it is complete.

    A link stays one, and the file that it leads to is written.

    Raises
    ------
    OSError
        If it cannot be written, or what is there is no file, such as a pipe or a device.
    """
    place = _checked_place(path)
    part = place.with_name(f".{place.name}.part")
    try:
        with _naming(place, part):
            yield part
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _checked_place(path: Path) -> Path:
    """Return where a file is to be, behind a link if there is one, where it replaces nothing else.

    Raises
    ------
    OSError
        If what is there is no file, such as a pipe or a device, or its folder is missing.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    start = f"“{path.name}” cannot be written in “{path.parent}”"
    if path.is_dir():
        raise IsADirectoryError(f"{start}: it is a folder; take another name")
    if path.is_symlink():  # still, although it was followed
        raise OSError(f"{start}: it is a link that leads to itself; take another name")
    if path.exists() and not path.is_file():
        raise OSError(
            f"{start}: it is a pipe, a device or another thing that is no file, which a file would "
            "replace; take another name"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"“{path.name}” cannot be written: there is no folder “{path.parent}”"
        )
    return path


@contextmanager
def _naming(place: Path, part: Path) -> Iterator[None]:
    """Let errors of writing name the file that was to be; others, as of what is read, are kept."""
    try:
        yield
    except OSError as error:
        # Some of Arrow's say the number in their text alone. Our own have said all, without it.
        code = errno_from_message(error) or (error.strerror and error.errno) or 0
        ours = type(error).__module__ != "builtins"  # as of a part of a run: it says its own place
        if ours or not code or not (code in _WRITING or part.name in str(error)):
            raise
        text = f"“{place.name}” cannot be written in “{place.parent}”: {os.strerror(code)}"
        made = type(error)(text)
        made.errno = code
        raise made from error


def errno_from_message(error: Exception) -> int:
    """Return the number of the operating system's error that a message of Arrow, HDF5 or NumPy has.

    0 without one. NumPy's message of a full disk says only that too few items were written.

    Examples
    --------
    >>> errno_from_message(RuntimeError("Can't write (file write failed: errno = 28, ...)"))
    28
    """
    number = _NUMBER.search(str(error))
    if number:
        return int(number[1])
    return errno.ENOSPC if _TOO_LITTLE.fullmatch(str(error)) else 0
