"""Keep Python's garbage collector from stopping the viewer while the engine is compiled.

Compiling makes millions of Python objects. The collector goes through all of them
again and again, for 0.2 to 0.8 s each time, during which no thread runs, the
viewer's neither.
"""

from __future__ import annotations

import gc
import time
from types import TracebackType

#: What takes longer than this many seconds was a compilation.
_COMPILED = 2.0


class CollectorAtRest:
    """The collector rests within this context, at most until ``end`` is called.

    If so much time has passed that the engine was compiled, the objects of the
    compiler, which stay anyway, are left out of all later collections.
    """

    def __enter__(self) -> CollectorAtRest:
        self._was_enabled, self._resting = gc.isenabled(), True
        self._began = time.perf_counter()
        gc.disable()
        return self

    def end(self) -> None:
        """Let the collector work again."""
        if self._resting:
            self._resting = False
            if time.perf_counter() - self._began > _COMPILED:
                gc.freeze()
            if self._was_enabled:
                gc.enable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
