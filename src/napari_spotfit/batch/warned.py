"""Warnings told to the file whose work made them, whichever thread works on it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .outcome import Outcome


@contextmanager
def warnings_of(
    tell: Callable[[Outcome], object],
) -> Iterator[Callable[[Outcome], AbstractContextManager[None]]]:
    """Give what collects the warnings of a file's work while it is entered.

    Those of threads that nobody has entered are of all files that are worked on then, but of the
    main thread, in which others may work, they are shown as before.
    """
    running: dict[int, Outcome] = {}
    before = warnings.showwarning

    def show(message: Warning | str, *rest: Any, **named: Any) -> None:
        thread = threading.get_ident()
        if thread not in running and thread == threading.main_thread().ident:
            before(message, *rest, **named)
            return
        known = running.get(thread)
        for outcome in [known] if known is not None else list(running.values()):
            if str(message) not in outcome.warnings:
                outcome.warnings.append(str(message))
                tell(outcome)

    @contextmanager
    def own(outcome: Outcome) -> Iterator[None]:
        running[threading.get_ident()] = outcome
        try:
            yield
        finally:
            running.pop(threading.get_ident(), None)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield own
