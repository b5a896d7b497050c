"""Threads that do work for others, for as long as the interpreter lets them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Made = TypeVar("Made")


class Workers(ThreadPoolExecutor):
    """A pool of threads; once the main thread has ended, the caller's own does what it is given.

    From then on Python begins nothing in other threads, but threads that are no daemons go on, and
    so do functions that are called at exit.

    Examples
    --------
    >>> with Workers(2) as workers:
    ...     sum(workers.map(abs, [-1, 2, -3]))
    6
    """

    def submit(self, work: Callable[..., Made], /, *args: Any, **kwargs: Any) -> Future[Made]:
        """Have a thread call a function."""
        try:
            return super().submit(work, *args, **kwargs)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: Future[Made] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done
