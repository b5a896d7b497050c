"""A backend that begins on GPUs and, should one fail, goes on with the others, then the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ..caller import warn_caller
from ..images.arrays import to_host, to_native
from ..images.pixel_calibration import Planes
from .backend import Backend
from .cuda.reasons import first_line
from .errors import BackendFallbackWarning, Unfinished, cuda_errors


class Frames(NamedTuple):
    """Frames as they were handed in, which outlast the GPU, and as the GPU reads them."""

    given: Any
    #: None once the CPU does the work.
    uploaded: Any


def with_fallback(
    cuda: Backend,
    cpu_factory: Callable[[], Backend],
    without: Callable[[Collection[int]], Backend | None] = lambda lost: None,
) -> Backend:
    """Return a backend for one run that does elsewhere what a GPU fails to do.

    When a call fails with an error of CUDA's, the other GPUs do the same piece of work and all
    that comes later, and when there is none left, the CPU does. One warning says so. Other errors
    are raised.

    Parameters
    ----------
    cuda : Backend
        What to begin with.
    cpu_factory : callable
        Makes the backend to go on with; called when it is needed.
    without : callable, optional
        Returns the backend of the GPUs that are left without some, by CUDA's numbers of them, or
        None.

    Warns
    -----
    BackendFallbackWarning
        Once, when a GPU fails.
    """
    run = _Run(cuda, cpu_factory, without)
    return cuda._replace(
        upload=run.upload, detect=run.detect, fit_rois=run.fit_rois, lost_pixels=run.lost_pixels,
        ran_on=run.ran_on, prepare_fits=run.prepare_fits,
        prepare_places=run.prepare_places,
    )  # fmt: skip


class _Run:
    """One run; its methods may be called by several threads at once."""

    def __init__(
        self,
        cuda: Backend,
        cpu_factory: Callable[[], Backend],
        without: Callable[[Collection[int]], Backend | None],
    ) -> None:
        self._name, self._make_cpu, self._without = cuda.name, cpu_factory, without
        #: The GPUs that are left.
        self._cuda: Backend | None = cuda
        self._lost: set[int] = set()
        self._cpu: Backend | None = None
        self._switching, self._cpu_at_work = threading.Lock(), threading.Lock()

    def ran_on(self) -> str:
        return self._name if self._cpu is None else f"{self._name}, {self._cpu.name}"

    def upload(self, frames: Any) -> Frames:
        while (cuda := self._cuda) is not None:
            try:
                return Frames(frames, cuda.upload(frames))
            except cuda_errors() as error:
                self._leave(cuda, {_gpu_of(error): error})
        return Frames(frames, None)

    def detect(self, frames: Any, *rest: Any, **named: Any) -> Any:
        return self._work("detect", frames, rest, named)

    def fit_rois(self, frames: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        columns: dict[str, Any] = self._work("fit_rois", frames, rest, named)
        return columns

    def lost_pixels(self, frames: Any, *rest: Any, **named: Any) -> Any:
        return self._work("lost_pixels", frames, rest, named)

    def prepare_fits(self, *kind: Any) -> Callable[..., dict[str, Any]]:
        return self._prepare("prepare_fits", kind)

    def prepare_places(self, *kind: Any) -> Callable[..., Any]:
        return self._prepare("prepare_places", kind)

    def _prepare(self, task: str, kind: tuple[Any, ...]) -> Callable[..., Any]:
        """Prepare fits that are made again and again: on a GPU, until the last one fails."""
        made: dict[str, Any] = {}

        def prepared(backend: Backend) -> Callable[..., Any]:
            if made.get("by") is not backend:
                given = kind if backend.kind == "cuda" else tuple(map(_to_host, kind))
                made.update(by=backend, fit=getattr(backend, task)(*given))
            fit: Callable[..., Any] = made["fit"]
            return fit

        def fit(*given: Any) -> Any:
            while (cuda := self._cuda) is not None:
                try:
                    return prepared(cuda)(*given)
                except Unfinished as part:
                    self._leave(cuda, part.failed)
                except cuda_errors() as error:
                    self._leave(cuda, {_gpu_of(error): error})
            with self._cpu_at_work:
                if self._cpu is None:
                    self._cpu = self._make_cpu()
                return prepared(self._cpu)(*map(to_host, given))

        return fit

    def _work(self, task: str, frames: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if not isinstance(frames, Frames):
            frames = Frames(frames, frames)
        while (cuda := self._cuda) is not None:
            try:
                # Of CuPy's arrays, and NumPy's, the device is no number.
                gpu = getattr(frames.uploaded, "device", None)
                if isinstance(gpu, int) and gpu in self._lost:
                    frames = Frames(frames.given, cuda.upload(frames.given))
                return getattr(cuda, task)(frames.uploaded, *rest, **named)
            except Unfinished as part:
                self._leave(cuda, part.failed)
                return self._finished(part, frames.given, rest, named)
            except cuda_errors() as error:
                if named.get("on_device"):
                    raise  # nobody else can leave results on this GPU
                self._leave(cuda, {_gpu_of(error): error})
        return self._on_cpu(task, frames.given, rest, named)

    def _on_cpu(self, task: str, frames: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
        # One at a time: the CPU's functions use all threads by themselves.
        with self._cpu_at_work:
            if self._cpu is None:
                self._cpu = self._make_cpu()
            rest = tuple(_to_host(value) for value in rest)
            named = {name: _to_host(value) for name, value in named.items()}
            return getattr(self._cpu, task)(to_native(to_host(frames)), *rest, **named)

    def _finished(
        self, part: Unfinished, frames: Any, rest: tuple[Any, ...], named: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the results of cut-outs, with what GPUs have left made by the CPU."""
        corners, roi_shape, settings, *start = rest
        begin = start[0] if start else named.get("start")
        for first, last in part.left:
            own = {name: _of_range(value, first, last) for name, value in named.items()}
            own["start"] = None if begin is None else begin[first:last]
            fits = self._on_cpu(
                "fit_rois", frames[first:last], (corners, roi_shape, settings), own
            )  # fmt: skip
            for name, values in fits.items():
                part.columns[name][first:last] = values
        return part.columns

    def _leave(self, cuda: Backend, failed: Mapping[Any, Exception]) -> None:
        """Leave all further work to what is left, and warn if this is the first error.

        A GPU without a number stands for all.
        """
        with self._switching:
            first = not self._lost and self._cuda is cuda
            if self._cuda is not cuda:
                return  # another thread has met the same error
            self._lost |= {number for number in failed if number is not None}
            self._cuda = None if None in failed else self._without(self._lost)
            if self._cuda is None and self._cpu is None:
                self._cpu = self._make_cpu()
        others = self._cpu if self._cuda is None else self._cuda
        if first and others is not None:
            error = next(iter(failed.values()))
            warn_caller(
                BackendFallbackWarning(
                    f"{self._name} failed ({first_line(error)}). {others.name} does the "
                    "rest of this run, and its result is complete."
                )
            )


def _gpu_of(error: Exception) -> int | None:
    """Return on which GPU something failed, if its function says that."""
    return getattr(error, "gpu", None)


def _of_range(value: Any, first: int, last: int) -> Any:
    """Return what belongs to some of the frames."""
    shared = not isinstance(value, Planes) or len(value.values) == 1
    return value if shared else Planes(value.values[first:last])


def _to_host(value: Any) -> Any:
    """Return an argument in the host's memory."""
    return Planes(to_host(value.values)) if isinstance(value, Planes) else to_host(value)
