"""A backend that works as the CPU's does until it raises what CuPy raises on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from napari_spotfit import Settings
from napari_spotfit.engine.backend import Backend
from napari_spotfit.engine.select import select_backend


def errors() -> dict[str, Exception]:
    """Return what CuPy raises when a GPU fails."""
    from cupy.cuda import compiler, memory, runtime

    return {
        "memory": memory.OutOfMemoryError(1 << 40, 0, 0),
        "lost": runtime.CUDARuntimeError(719),
        "no kernel": compiler.CompileException(
            "\nfit.cu(3): error: what?\n", "", "fit.cu", (), "nvrtc"
        ),
    }


class OnDevice:
    """Frames that the CPU could not read by mistake."""

    def __init__(self, frames: Any) -> None:
        self.frames = frames


class FailingGpu:
    """A GPU that fails.

    Parameters
    ----------
    error : Exception
        What its calls raise,
    first : int
        from this one on, counting from 0.
    task : str, optional
        Only calls of this function fail, and count.
    """

    def __init__(self, error: Exception, first: int = 0, task: str | None = None) -> None:
        self._error, self._first, self._task = error, first, task
        self.calls = itertools.count()
        cpu = select_backend(Settings(backend="cpu", threads=2))
        self.backend = Backend(
            "NVIDIA Test",
            upload=self._failing("upload", OnDevice),
            detect=self._failing("detect", _reading(cpu.detect)),
            fit_rois=self._failing("fit_rois", _reading(cpu.fit_rois)),
            lost_pixels=self._failing("lost_pixels", _reading(cpu.lost_pixels)),
            frames_at_once=2,
            block_bytes=1,
            workers=3,
            ran_on=lambda: "NVIDIA Test",
            prepare_fits=lambda *kind: self._failing("prepared", cpu.prepare_fits(*kind)),
            prepare_places=lambda *kind: self._failing("places", cpu.prepare_places(*kind)),
        )

    def _failing(self, task: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._task in (None, task) and next(self.calls) >= self._first:
                raise self._error
            return function(*arguments, **named)

        return call


def _reading(function: Callable[..., Any]) -> Callable[..., Any]:
    def read(frames: Any, *rest: Any, **named: Any) -> Any:
        return function(getattr(frames, "frames", frames), *rest, **named)

    return read
