"""Ctrl-C: asked for once, work ends where nothing is half done; asked for again, at once."""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any


class Stop:
    """While it is entered, the first Ctrl-C is only remembered."""

    def __init__(self) -> None:
        self.asked = False
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
        signal.signal(signal.SIGINT, self._before)
