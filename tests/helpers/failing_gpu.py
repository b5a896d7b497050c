"""A backend that works like the CPU's, and then fails like CuPy on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from napari_spotfit.engine.backend import Load
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.fit_job import FitJob


def errors() -> dict[str, Exception]:
    """Return the errors of CuPy when a GPU fails."""
    from cupy.cuda import compiler, memory, runtime

    return {
        "memory": memory.OutOfMemoryError(1 << 40, 0, 0),
        "lost": runtime.CUDARuntimeError(719),
        "no kernel": compiler.CompileException(
            "\nfit.cu(3): error: what?\n", "", "fit.cu", (), "nvrtc"
        ),
    }


class FailingGpu(Cpu):
    """A GPU that fails.

    Parameters
    ----------
    error : Exception
        What its calls raise,
    first : int
        from this one on, counting from 0.
    task : str, optional
        Only calls of this method fail, and count: "detect", "fit", "fit_crowds" or "prepared".
    load, long_movies : Load, optional
        What keeps it busy.
    """

    kind = "cuda"

    def __init__(
        self,
        error: Exception,
        first: int = 0,
        task: str | None = None,
        load: Load | None = None,
        long_movies: Load | None = None,
    ) -> None:
        super().__init__(2)
        self.name, self.load, self.long_movies = "NVIDIA Test", load or Load(2, 1, 3), long_movies
        self._error, self._first, self._task = error, first, task
        self.calls = itertools.count()

    def detect(self, *given: Any, **named: Any) -> Any:
        return self._call("detect", super().detect, *given, **named)

    def fit(self, *given: Any, on_device: bool = False, **named: Any) -> Any:
        return self._call("fit", super().fit, *given, **named)

    def fit_crowds(self, *given: Any) -> Any:
        return self._call("fit_crowds", super().fit_crowds, *given)

    def fitter(self, job: FitJob) -> Any:
        fit = super().fitter(job).fit
        return SimpleNamespace(fit=lambda *given: self._call("prepared", fit, *given))

    def _call(self, task: str, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self._task in (None, task) and next(self.calls) >= self._first:
            raise self._error
        return work(*given, **named)
