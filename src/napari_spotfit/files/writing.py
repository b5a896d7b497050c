"""Write files atomically and under a lock, with errors that name the file.

A new temporary file is written, with an unpredictable name, so that a planted link is harmless. It
is flushed to the disk, and then renamed with the mode of the file that it replaces: of concurrent
writers, the last one wins as a whole.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Errors that only writing raises: a disk that is full or read-only.
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


#: Endings of OME-TIFF; and the bytes of an image above which the file is a BigTIFF.
ENDINGS = (".ome.tif", ".ome.tiff", ".tif", ".tiff")
_BIG = 1 << 31


class FileLockedError(OSError):
    """Another process or thread holds the lock on a file."""


@contextmanager
def file_lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on a file.

    The system releases the lock of a process that is killed. On file systems without locks, there
    is none.

    Parameters
    ----------
    path : path
        The file. The lock is a file in the same folder, which is removed at the end.
    wait : bool, default False
        Whether to wait until the lock is free.

    Raises
    ------
    FileLockedError
        If the lock is not free, and `wait` is false.
    """
    lock = lock_of(path)
    file = _acquired(lock, wait=wait)
    try:
        yield
    finally:
        if file is not None:
            _release(lock, file)


def lock_of(path: Path) -> Path:
    """Return the path of a file's lock, which stays after a kill, but is free."""
    return path.with_name(f".{path.name}.lock")


def _acquired(lock: Path, *, wait: bool) -> int | None:
    """Open a lock's file and lock it; None on file systems without locks."""
    while True:
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError:  # writing the file itself will raise a better error
            if lock.is_symlink():
                raise OSError(
                    f"“{lock}” is a link, which this package never makes: remove it"
                ) from None
            return None
        try:
            _lock(file, wait=wait)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise FileLockedError(f"another run holds the lock “{lock.name}”") from None
        except OSError:
            _release(lock, file)
            return None
        if _has_name(lock, file):
            return file
        os.close(file)  # the holder has removed the file: create another


def _has_name(lock: Path, file: int) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(lock.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _release(lock: Path, file: int) -> None:
    """Remove a lock and close its file, in the order that the system requires."""
    if sys.platform == "win32":  # which does not remove open files
        os.close(file)
        with suppress(OSError):
            lock.unlink(missing_ok=True)
        return
    # Remove before closing: a waiting process checks whether the file still has its name.
    with suppress(OSError):
        lock.unlink(missing_ok=True)
    os.close(file)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `path` at the end without errors.

    If `path` is a link, its target is replaced.

    Raises
    ------
    OSError
        If the file cannot be written, or a pipe, a device or a folder has its name.
    """
    place = _checked_place(path)
    remove_stale(place, _STALE)
    with _naming_file(place):
        temporary = create_temporary(place)
    try:
        with _naming_file(place, temporary):
            yield temporary
            publish(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def scratch(path: Path, ending: str = "") -> Iterator[Path]:
    """Create a temporary file in the folder of another one, and remove it at the end.

    Parameters
    ----------
    path : path
        The other file, which errors name.
    ending : str
        Ending of the temporary file's name.
    """
    place = _checked_place(path)
    with _naming_file(place):
        temporary = create_temporary(place, ending)
    try:
        with _naming_file(place, temporary):
            yield temporary
    finally:
        temporary.unlink(missing_ok=True)


#: Bytes of a file's name that its temporary file's name repeats: names have at most 255.
_LONGEST = 150
_ENDING = ".part"
#: Seconds without a write after which a temporary file is a killed run's.
_STALE = 24 * 3600.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def create_temporary(place: Path, ending: str = "") -> Path:
    """Create a file with an unpredictable name in the folder, and with the mode, of another."""
    temporary = place.with_name(f"{_prefix(place)}{secrets.token_hex(16)}{_ENDING}{ending}")
    try:
        mode = stat.S_IMODE(place.stat().st_mode) & 0o777
    except OSError:
        mode = None
    file = os.open(temporary, _NEW, 0o666 if mode is None else mode & 0o600)
    try:
        if mode is not None and hasattr(os, "fchmod"):
            with suppress(PermissionError):  # file systems without modes
                os.fchmod(file, mode | stat.S_IWUSR)
    finally:
        os.close(file)
    return temporary


def remove_stale(place: Path, seconds: float = -math.inf) -> None:
    """Remove temporary files of killed runs.

    Parameters
    ----------
    place : path
        The file.
    seconds : float, optional
        Only those not written to for this time; by default all, if the caller holds the lock.
    """
    name = rf"{re.escape(_prefix(place))}[0-9a-f]{{32}}{re.escape(_ENDING)}(\.spots\.\w+)?"
    left = re.compile(name)
    with suppress(OSError), os.scandir(place.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > seconds:
                        os.unlink(entry.path)  # noqa: PTH108


def _prefix(place: Path) -> str:
    """Return the beginning of the names of a file's temporary files."""
    return f".{os.fsencode(place.name)[:_LONGEST].decode(errors='ignore')}."


def publish(temporary: Path, place: Path) -> None:
    """Flush a complete temporary file to the disk, and rename it."""
    _flush(temporary, os.O_RDWR)
    with suppress(OSError):  # without an older file, the default mode stays
        temporary.chmod(stat.S_IMODE(place.stat().st_mode) & 0o777)
    temporary.replace(place)
    if sys.platform != "win32":  # which cannot flush folders
        with suppress(OSError):
            _flush(place.parent, os.O_RDONLY)


def _flush(path: Path, how: int) -> None:
    """Wait until a file is on the disk, if its file system can do that."""
    file = os.open(path, how | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):
            raise
    finally:
        os.close(file)


def _checked_place(path: Path) -> Path:
    """Return the path of a file to write, or the target of a link, if it can be written there.

    Raises
    ------
    OSError
        If a pipe, a device or a folder has the name, or its folder is missing.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    start = f"“{path.name}” cannot be written in “{path.parent}”"
    if path.is_dir():
        raise IsADirectoryError(f"{start}: it is a folder; choose another name")
    if path.is_symlink():  # still one after resolving
        raise OSError(f"{start}: it is a link that leads to itself; choose another name")
    if path.exists() and not path.is_file():
        raise OSError(
            f"{start}: it is a pipe, a device or the like, which a file would replace; choose "
            "another name"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"“{path.name}” cannot be written: there is no folder “{path.parent}”"
        )
    return path


@contextmanager
def _naming_file(place: Path, temporary: Path | None = None) -> Iterator[None]:
    """Make errors of writing name the file; other errors, such as of reading, pass unchanged."""
    try:
        yield
    except OSError as error:
        # Some of Arrow's errors have the number only in their message; our own have none.
        code = errno_from_message(error) or (error.strerror and error.errno) or 0
        ours = type(error).__module__ != "builtins"  # such as PartsError, which names its file
        about = temporary is None or temporary.name in str(error)
        if ours or not code or not (code in _WRITING or about):
            raise
        text = f"“{place.name}” cannot be written in “{place.parent}”: {os.strerror(code)}"
        made = type(error)(text)
        made.errno = code
        raise made from error


def errno_from_message(error: Exception) -> int:
    """Return the errno in a message of Arrow, HDF5 or NumPy; 0 without one.

    On a full disk, NumPy only says that too few items were written.

    Examples
    --------
    >>> errno_from_message(RuntimeError("Can't write (file write failed: errno = 28, ...)"))
    28
    """
    number = _NUMBER.search(str(error))
    if number:
        return int(number[1])
    return errno.ENOSPC if _TOO_LITTLE.fullmatch(str(error)) else 0


def write_rendered(
    path: Path, image: NDArray[np.float32], *, coloured: bool, nm: Sequence[float] | None
) -> None:
    """Write an image or a volume with the size of its pixels.

    Parameters
    ----------
    path : Path
        Its name ends in .tif or .tiff.
    image : ndarray
        Axes (y, x) or (z, y, x), and the colours.
    coloured : bool
        Whether the last axis is of colours.
    nm : sequence of float, optional
        Sizes of a pixel along y and x, or z, y and x, if known.

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file cannot be written.
    """
    from tifffile import imwrite

    if not path.name.lower().endswith(ENDINGS):
        raise ValueError(f"the name of the image must end in .tif or .tiff; got “{path.name}”")
    axes = "ZYX"[-(image.ndim - coloured) :]
    metadata: dict[str, Any] = {"axes": f"{axes}S" if coloured else axes}
    for axis, size in zip(axes, nm or (), strict=False):
        metadata |= {f"PhysicalSize{axis}": float(size), f"PhysicalSize{axis}Unit": "nm"}
    with unfinished(path) as part:
        imwrite(
            part, image, ome=True, metadata=metadata, bigtiff=image.nbytes > _BIG,
            photometric="rgb" if coloured else "minisblack",
        )  # fmt: skip
