"""Work in pieces on all cores: Python threads over functions that release the GIL."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..workers import Workers

#: Seconds between looks for an interrupt: on Windows none reaches a thread that waits.
_PATIENCE = 0.2
#: Threads that are kept, at most: more than are ever needed.
_MOST = 1024


def available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_pieces(
    work: Callable[[int, int], None],
    total: int,
    piece: int,
    threads: int | None,
    stop: Callable[[], None] | None = None,
) -> None:
    """Call ``work(first, last)`` for every piece of 0…total-1, several at a time.

    After an error, and when the user interrupts it (Ctrl-C) or cancels it, no further piece is
    begun. For long pieces ``stop`` makes those that are under way end soon.
    """
    if total <= piece and stop is None:
        if total:
            work(0, total)
        return
    workers = min(threads or available(), -(-total // piece))
    firsts = iter(range(0, total, piece))
    if workers <= 1 and stop is None:
        for first in firsts:
            work(first, min(first + piece, total))
        return

    from threading import Event, Lock

    taking, stopped = Lock(), Event()

    def work_on_pieces() -> None:
        while not stopped.is_set():
            with taking:
                first = next(firsts, total)
            if first == total:
                break
            work(first, min(first + piece, total))

    def stop_all() -> None:
        stopped.set()
        if stop is not None:
            stop()

    # A thread that waits can be interrupted, so one at least is not this one.
    together([work_on_pieces] * max(workers, 2), stop_all)


def together(works: Iterable[Callable[[], None]], stop: Callable[[], None]) -> None:
    """Do several works at once; after an error, and when the user interrupts it, stop the others.

    Parameters
    ----------
    works : iterable of callable
        Each gets a thread of its own, and begins before the next but one is asked for.
    stop : callable
        Called at the end, and when one of them fails, which is when the others must end soon.

    Raises
    ------
    CancelledError
        If what they are for has been cancelled.
    """
    coming = iter(works)
    first = list(itertools.islice(coming, 2))
    if len(first) < 2:
        for work in first:
            work()
        return
    # Imported here: it takes longer than a few fits.
    from concurrent.futures import CancelledError, wait

    from ..workers import is_cancelled

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            stop()
            raise

    under_way: list[Future[None]] = []
    try:
        under_way.extend(pool().submit(run, work) for work in itertools.chain(first, coming))
        for done in under_way:
            while not done.done():
                wait([done], _PATIENCE)
                if is_cancelled.get()():
                    raise CancelledError
            done.result()
    finally:
        stop()
        wait(under_way)


@lru_cache(maxsize=1)
def pool() -> Workers:
    """Return threads that are kept: a new one takes as long to begin as 5000 fits.

    There are as many as were ever at work at once.
    """
    from ..workers import Workers

    return Workers(_MOST, thread_name_prefix="spotfit")


# Of a process's threads, a forked one has none.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)
