"""Work in pieces on all cores.

Python threads over functions that release the GIL, rather than Numba's own: the
fallback of Numba's threading layers ends the process when two Python threads (a
preview and a batch, say) use it at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def available() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_pieces(
    work: Callable[[int, int], None], total: int, piece: int, threads: int | None
) -> None:
    """Call ``work(first, last)`` for every piece of 0…total-1, several at a time."""
    bounds = [(first, min(first + piece, total)) for first in range(0, total, piece)]
    workers = min(threads or available(), len(bounds))
    if workers <= 1:
        for first, last in bounds:
            work(first, last)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="spotfit") as pool:
        for done in [pool.submit(work, first, last) for first, last in bounds]:
            done.result()
