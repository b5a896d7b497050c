"""Work in pieces on all cores: Python threads over functions that release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

#: Windows tells nobody who waits that the user interrupts; so look up every so many seconds.
_PATIENCE = 0.2


def available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_pieces(
    work: Callable[[int, int], None], total: int, piece: int, threads: int | None
) -> None:
    """Call ``work(first, last)`` for every piece of 0…total-1, several at a time.

    After an error, and when the user interrupts it (Ctrl-C), no further piece is begun.
    """
    workers = min(threads or available(), -(-total // piece))
    firsts = iter(range(0, total, piece))
    if workers <= 1:
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

    together([work_on_pieces] * workers, stopped.set)


def together(works: Sequence[Callable[[], None]], stop: Callable[[], None]) -> None:
    """Do several works at once; after an error, and when the user interrupts it, stop the others.

    Parameters
    ----------
    works : sequence of callable
        Each gets a thread of its own.
    stop : callable
        Called at the end, and when one of them fails, which is when the others must end soon.
    """
    if len(works) == 1:
        works[0]()
        return
    # Imported here: they take longer than a few fits.
    from concurrent.futures import ThreadPoolExecutor, wait

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            stop()
            raise

    with ThreadPoolExecutor(len(works), thread_name_prefix="spotfit") as pool:
        try:
            for done in [pool.submit(run, work) for work in works]:
                while not done.done():
                    wait([done], _PATIENCE)
                done.result()
        finally:
            stop()
