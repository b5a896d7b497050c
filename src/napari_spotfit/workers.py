"""A pool of threads that also works while the interpreter shuts down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

Made = TypeVar("Made")

#: Whether the current work has been cancelled; threads of :class:`Workers` inherit it.
is_cancelled: ContextVar[Callable[[], bool]] = ContextVar("is_cancelled", default=lambda: False)


class Workers(ThreadPoolExecutor):
    """A thread pool that runs work in the caller's thread once the main thread has ended.

    Python then refuses new work for pools, although non-daemon threads and exit handlers still run.

    Examples
    --------
    >>> with Workers(2) as workers:
    ...     sum(workers.map(abs, [-1, 2, -3]))
    6
    """

    def submit(self, work: Callable[..., Made], /, *args: Any, **kwargs: Any) -> Future[Made]:
        """Call a function in a thread of the pool."""
        try:
            return super().submit(copy_context().run, work, *args, **kwargs)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: Future[Made] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done
