"""Work in pieces on all cores: Python threads over functions that release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable

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
    if total <= piece:
        if total:
            work(0, total)
        return
    workers = min(threads or available(), -(-total // piece))
    firsts = iter(range(0, total, piece))
    if workers <= 1:
        for first in firsts:
            work(first, min(first + piece, total))
        return

    # Imported here: they take longer than a few fits.
    from concurrent.futures import ThreadPoolExecutor, wait
    from threading import Event, Lock

    taking, stopped = Lock(), Event()

    def work_on_pieces() -> None:
        try:
            while not stopped.is_set():
                with taking:
                    first = next(firsts, total)
                if first == total:
                    break
                work(first, min(first + piece, total))
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(workers, thread_name_prefix="spotfit") as pool:
        try:
            for done in [pool.submit(work_on_pieces) for _ in range(workers)]:
                while not done.done():
                    wait([done], _PATIENCE)
                done.result()
        finally:
            stopped.set()
