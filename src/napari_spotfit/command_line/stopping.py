"""Ctrl-C: asked for once, work ends where nothing is half done; asked for again, at once."""

from __future__ import annotations

import atexit
import os
import signal
from types import TracebackType
from typing import Any

from .telling import USUAL, say_at_once

#: The exit code after Ctrl-C.
STOPPED = 130


class Stop:
    """While it is entered, the first Ctrl-C is only remembered, and the second one interrupts."""

    def __init__(self, level: int = USUAL) -> None:
        self.asked, self._level = False, level
        self._before: Any = None

    def __enter__(self) -> Stop:
        self._before = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _remember(self, number: int, frame: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._interrupt)
        if self._level >= USUAL:
            say_at_once("Stopping; press Ctrl-C again to stop at once")

    def _interrupt(self, number: int, frame: Any) -> None:
        # What tidies up now must not be interrupted in its turn: that only leaves tracebacks.
        end_at_next_ctrl_c()
        raise KeyboardInterrupt


def end_at_next_ctrl_c() -> None:
    """Let a further Ctrl-C end the process without a word, as if it were killed."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(STOPPED))


def end_quietly() -> None:
    """Let no Ctrl-C disturb how Python ends: it cuts short the waiting for threads, no more."""
    end_at_next_ctrl_c()
    # Later on, Python's own handlers are gone, and the process would die of the signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
