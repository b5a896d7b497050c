"""A backend that begins on the GPU and, should the GPU fail, goes on with the CPU."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..images.frames import to_host
from ..images.pixel_calibration import Planes
from .backend import Backend
from .cuda.reasons import first_line
from .errors import BackendFallbackWarning


class Frames(NamedTuple):
    """Frames as they were handed in, which outlast the GPU, and as the GPU reads them."""

    given: Any
    #: None once the CPU does the work.
    uploaded: Any


def with_fallback(cuda: Backend, cpu_factory: Callable[[], Backend]) -> Backend:
    """Return a backend for one run that does on the CPU what the GPU fails to do.

    When a call fails with an error of CUDA's, the CPU does the same piece of work and
    all that comes later, and one warning says so. Other errors are raised.

    Parameters
    ----------
    cuda : Backend
        What to begin with.
    cpu_factory : callable
        Makes the backend to go on with; called when it is needed.

    Warns
    -----
    BackendFallbackWarning
        Once, when the CPU takes over.
    """
    run = _Run(cuda, cpu_factory)
    return Backend(
        cuda.name, run.upload, run.detect, run.fit_rois, run.lone_pixels, cuda.frames_at_once,
        cuda.block_bytes, cuda.workers, run.ran_on, partial(_PreparedFits, run),
    )  # fmt: skip


class _Run:
    """One run; its methods may be called by several threads at once."""

    def __init__(self, cuda: Backend, cpu_factory: Callable[[], Backend]) -> None:
        self.cuda, self._make_cpu = cuda, cpu_factory
        #: What does the rest, once the GPU has failed.
        self.cpu: Backend | None = None
        self._switching, self._cpu_at_work = threading.Lock(), threading.Lock()

    def ran_on(self) -> str:
        return self.cuda.name if self.cpu is None else f"{self.cuda.name}, {self.cpu.name}"

    def upload(self, frames: Any) -> Frames:
        if self.cpu is None:
            try:
                return Frames(frames, self.cuda.upload(frames))
            except cuda_errors() as error:
                self.switch(error)
        return Frames(frames, None)

    def detect(self, frames: Any, *rest: Any, **named: Any) -> Any:
        return self._work("detect", frames, rest, named)

    def fit_rois(self, frames: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        columns: dict[str, Any] = self._work("fit_rois", frames, rest, named)
        return columns

    def lone_pixels(self, frames: Any, *rest: Any) -> Any:
        return self._work("lone_pixels", frames, rest, {})

    def _work(self, task: str, frames: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not isinstance(frames, Frames):
            frames = Frames(frames, frames)
        if self.cpu is None:
            try:
                return getattr(self.cuda, task)(frames.uploaded, *rest, **named)
            except cuda_errors() as error:
                if named.get("on_device"):
                    raise  # the CPU cannot leave results on a GPU
                self.switch(error)
        # One at a time: the CPU's functions use all threads by themselves.
        with self._cpu_at_work:
            rest = tuple(_to_host(value) for value in rest)
            named = {name: _to_host(value) for name, value in named.items()}
            return getattr(self.cpu, task)(to_host(frames.given), *rest, **named)

    def switch(self, error: Exception) -> None:
        """Leave all further work to the CPU, and warn if this is the first error."""
        with self._switching:
            if self.cpu is not None:
                return
            self.cpu = self._make_cpu()
        warnings.warn(
            BackendFallbackWarning(
                f"{self.cuda.name} failed ({first_line(error)}). {self.cpu.name} does the "
                "rest of this run, and its result is complete."
            ),
            stacklevel=4,
        )


class _PreparedFits:
    """Fits that are made again and again: on the GPU, until it fails."""

    def __init__(self, run: _Run, *kind: Any) -> None:
        self._run, self._kind = run, kind
        self._on_gpu: Callable[..., dict[str, Any]] | None = None
        self._on_cpu: Callable[..., dict[str, Any]] | None = None

    def __call__(self, pixels: Any, start: Any = None) -> dict[str, Any]:
        if self._run.cpu is None:
            try:
                if self._on_gpu is None:
                    self._on_gpu = self._run.cuda.prepare_fits(*self._kind)
                return self._on_gpu(pixels, start)
            except cuda_errors() as error:
                self._run.switch(error)
        self._on_gpu = None
        if self._on_cpu is None:
            assert self._run.cpu is not None
            self._on_cpu = self._run.cpu.prepare_fits(*map(_to_host, self._kind))
        return self._on_cpu(to_host(pixels), to_host(start))


def _to_host(value: Any) -> Any:
    """Return an argument in the host's memory."""
    return Planes(to_host(value.values)) if isinstance(value, Planes) else to_host(value)


def cuda_errors() -> tuple[type[Exception], ...]:
    """Return what CUDA's calls and CuPy raise when the GPU fails; looked up after an error."""
    from cupy.cuda import compiler, driver, memory, nvrtc, runtime

    return (
        memory.OutOfMemoryError,
        runtime.CUDARuntimeError,
        driver.CUDADriverError,
        compiler.CompileException,
        nvrtc.NVRTCError,
    )
