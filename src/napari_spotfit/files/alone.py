"""One run at a time: a lock that ends with its process, however that ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int, *, wait: bool) -> None:
        msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int, *, wait: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


class TakenError(OSError):
    """Another run, or another part of this one, is at it."""


@contextmanager
def alone(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Be the only one to work on a file while this is entered.

    The system ends the lock of a process that is killed. Where a file system has no locks, all
    goes on without.

    Parameters
    ----------
    path : path
        The file that others work on, too. The lock is beside it, and removed in the end.
    wait : bool, default False
        Whether to wait for who is at it.

    Raises
    ------
    TakenError
        If somebody else is at it, and that is not to be waited for.
    """
    lock = lock_of(path)
    file = _taken(lock, wait=wait)
    try:
        yield
    finally:
        if file is not None:
            _leave(lock, file)


def lock_of(path: Path) -> Path:
    """Return where the lock of a file is. After a kill it stays there, held by nobody."""
    return path.with_name(f".{path.name}.lock")


def _taken(lock: Path, *, wait: bool) -> int | None:
    """Return a lock's open file when nobody else has it; None where there are no locks."""
    while True:
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # nor can anything else be written here, which is told then
            return None
        try:
            _lock(file, wait=wait)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise TakenError(f"“{lock.name}” is another run's") from None
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
