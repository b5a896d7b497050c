"""How files are written: complete or not at all, one run at a time, with errors that name them.

Whatever is written goes to a file of a name that nobody can foresee, which was made for it alone:
a link that someone has planted leads nowhere. It is on the disk before it takes its name, with the
mode of the file that had the name, and the last one to take it wins as a whole.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import stat
import sys
import time
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
            file = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError:  # nor can anything else be written here: that raises its own error
            if lock.is_symlink():
                raise OSError(
                    f"“{lock}” is a link, which no run of this package has made: remove it"
                ) from None
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
    # Another process that waits for it sees that it is gone.
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
    remove_left(place, _LEFT)
    with _naming(place):
        part = made_beside(place)
    try:
        with _naming(place, part):
            yield part
            publish(part, place)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def scratch(path: Path, ending: str = "") -> Iterator[Path]:
    """Give a file beside another one that is removed at the end.

    Parameters
    ----------
    path : path
        The other one, which errors name.
    ending : str
        What its name ends in.
    """
    place = _checked_place(path)
    with _naming(place):
        part = made_beside(place, ending)
    try:
        with _naming(place, part):
            yield part
    finally:
        part.unlink(missing_ok=True)


#: So many bytes of the name of a file are in that of its part: a name has 255 at most.
_LONGEST = 150
_PART = ".part"
#: Seconds without a change after which a part is one that a killed run has left.
_LEFT = 24 * 3600.0
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def made_beside(place: Path, ending: str = "") -> Path:
    """Make an empty file beside another one, with its mode, of a name that nobody can foresee."""
    part = place.with_name(f"{_start(place)}{secrets.token_hex(16)}{_PART}{ending}")
    try:
        mode = stat.S_IMODE(place.stat().st_mode) & 0o777
    except OSError:
        mode = None
    file = os.open(part, _FRESH, 0o666 if mode is None else mode & 0o600)
    try:
        if mode is not None and hasattr(os, "fchmod"):
            with suppress(PermissionError):  # of file systems without modes
                os.fchmod(file, mode | stat.S_IWUSR)
    finally:
        os.close(file)
    return part


def remove_left(place: Path, seconds: float = -math.inf) -> None:
    """Remove the parts of a file that killed runs have left.

    Parameters
    ----------
    place : path
        The file.
    seconds : float, optional
        Only those to which nothing was written for so long; by default all, for who holds the
        file's lock.
    """
    name = rf"{re.escape(_start(place))}[0-9a-f]{{32}}{re.escape(_PART)}(\.spots\.\w+)?"
    left = re.compile(name)
    with suppress(OSError), os.scandir(place.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > seconds:
                        os.unlink(entry.path)  # noqa: PTH108


def _start(place: Path) -> str:
    """Return what the names of a file's parts begin with."""
    return f".{os.fsencode(place.name)[:_LONGEST].decode(errors='ignore')}."


def publish(part: Path, place: Path) -> None:
    """Give a file that is complete its name, once it is on the disk."""
    _flush(part, os.O_RDWR)
    with suppress(OSError):  # where there was no file, its mode is that of new ones
        part.chmod(stat.S_IMODE(place.stat().st_mode) & 0o777)
    part.replace(place)
    if sys.platform != "win32":  # which flushes no folders
        with suppress(OSError):
            _flush(place.parent, os.O_RDONLY)


def _flush(path: Path, how: int) -> None:
    """Wait until a file is on the disk, where its file system can do that."""
    file = os.open(path, how | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(file)


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
def _naming(place: Path, part: Path | None = None) -> Iterator[None]:
    """Let errors of writing name the file that was to be; others, as of what is read, are kept."""
    try:
        yield
    except OSError as error:
        # Some of Arrow's say the number in their text alone. Our own have said all, without it.
        code = errno_from_message(error) or (error.strerror and error.errno) or 0
        ours = type(error).__module__ != "builtins"  # as of a part of a run: it says its own place
        about = part is None or part.name in str(error)
        if ours or not code or not (code in _WRITING or about):
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
