"""Run on GPUs and, if one fails, continue on the others, then on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.arrays import to_host, to_native
from ..images.pixel_calibration import Planes
from ..settings.settings import Settings
from .backend import (
    Backend,
    BackendFallbackWarning,
    Block,
    BlockFitter,
    Columns,
    Positions,
    Unfinished,
    cuda_errors,
)
from .candidates import Candidates
from .crowds import Crowds
from .cuda.devices import first_line
from .fit_job import FitJob

Result = TypeVar("Result")


class Fallback:
    """Repeats on another backend what a GPU fails to do, for one run.

    When a call fails with an error of CUDA's, the other GPUs do the same piece of work and all
    that comes later, and when there is none left, the CPU does. One warning says so. Other errors
    are raised. Several threads may call it at once.

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

    kind: Literal["cuda"] = "cuda"

    def __init__(
        self,
        cuda: Backend,
        cpu_factory: Callable[[], Backend],
        without: Callable[[Collection[int]], Backend | None] = lambda lost: None,
    ) -> None:
        self.name, self.load, self.long_movies = cuda.name, cuda.load, cuda.long_movies
        self.reads_all = cuda.reads_all
        self._make_cpu, self._without = cpu_factory, without
        #: The GPUs that are left.
        self._cuda: Backend | None = cuda
        self._lost: set[int] = set()
        self._cpu: Backend | None = None
        self._switching, self._cpu_at_work = threading.Lock(), threading.Lock()

    def ran_on(self) -> str:
        """Return what has done the work up to now, by name."""
        return self.name if self._cpu is None else f"{self.name}, {self._cpu.name}"

    def detect(self, block: Block, settings: Settings) -> Candidates:
        """Find spots, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        return self._work(lambda backend, own: backend.detect(own, settings), block)

    def fit(
        self,
        job: FitJob,
        block: Block,
        positions: Positions | None = None,
        start: Any = None,
        *,
        on_device: bool = False,
    ) -> Columns:
        """Fit ROIs, as :class:`~napari_spotfit.engine.backend.Backend` says."""

        def fit(backend: Backend, own: Block) -> Columns:
            if backend is self._cpu:
                return backend.fit(job, own, positions, to_host(start))
            return backend.fit(job, own, positions, start, on_device=on_device)

        try:
            return self._work(fit, block, elsewhere=not on_device)
        except Unfinished as part:
            for first, last in part.left:
                begin = None if start is None else to_host(start[first:last])
                work = partial(_fit_spots, job, begin)
                fits = self._on_cpu(work, _part_of(block, first, last))
                for name, values in fits.items():
                    part.columns[name][first:last] = values
            return part.columns

    def fit_crowds(self, block: Block, crowds: Crowds) -> NDArray[np.void]:
        """Fit spots together, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        return self._work(lambda backend, own: backend.fit_crowds(own, crowds), block)

    def fitter(self, job: FitJob) -> BlockFitter:
        """Prepare fits that are made again and again: on a GPU, until the last one fails."""
        return _Fitter(self, job)

    def fit_by(
        self,
        fitter_of: Callable[[Backend], BlockFitter],
        block: Block,
        positions: Positions | None,
        start: Any,
    ) -> Columns:
        """Fit by what a backend has prepared."""

        def fit(backend: Backend, own: Block) -> Columns:
            begin = to_host(start) if backend is self._cpu else start
            return fitter_of(backend).fit(own, positions, begin)

        try:
            return self._work(fit, block)
        except Unfinished:
            return self._work(fit, block)

    def _work(
        self,
        work: Callable[[Backend, Block], Result],
        block: Block,
        elsewhere: bool = True,
    ) -> Result:
        while (cuda := self._cuda) is not None:
            try:
                return work(cuda, block)
            except Unfinished as part:
                self._leave(cuda, part.failed)
                raise
            except cuda_errors() as error:
                if not elsewhere:
                    raise  # only this GPU can leave results in its memory
                self._leave(cuda, {_gpu_of(error): error})
        return self._on_cpu(work, block)

    def _on_cpu(self, work: Callable[[Backend, Block], Result], block: Block) -> Result:
        # One at a time: the CPU's functions use all threads by themselves.
        with self._cpu_at_work:
            if self._cpu is None:
                self._cpu = self._make_cpu()
            return work(self._cpu, _on_host(block))

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
                    f"{self.name} failed ({first_line(error)}). {others.name} does the "
                    "rest of this run, and its result is complete."
                )
            )


class _Fitter:
    """Fits of one job by whatever backend is left."""

    def __init__(self, backend: Fallback, job: FitJob) -> None:
        self._backend, self._job = backend, job
        self._made: tuple[Backend, BlockFitter] | None = None

    def fit(self, block: Block, positions: Positions | None = None, start: Any = None) -> Columns:
        return self._backend.fit_by(self._fitter_of, block, positions, start)

    def _fitter_of(self, backend: Backend) -> BlockFitter:
        if self._made is None or self._made[0] is not backend:
            self._made = backend, backend.fitter(self._job)
        return self._made[1]


def _fit_spots(job: FitJob, start: Any, backend: Backend, block: Block) -> Columns:
    return backend.fit(job, block, None, start)


def _gpu_of(error: Exception) -> int | None:
    """Return on which GPU something failed, if its function says that."""
    return getattr(error, "gpu", None)


def _part_of(block: Block, first: int, last: int) -> Block:
    """Return some of the cut-outs, with what is known of them."""

    def own(planes: Planes | None) -> Planes | None:
        shared = planes is None or len(planes.values) == 1
        return planes if planes is None or shared else Planes(planes.values[first:last])

    pixels = block.pixels[first:last]
    return replace(
        block, pixels=pixels, taken=pixels, planes=own(block.planes),
        variances=own(block.variances), uploaded=None,
    )  # fmt: skip


def _on_host(block: Block) -> Block:
    """Return a block as the CPU reads it, which a GPU may have had."""
    pixels = to_native(to_host(block.pixels))
    taken = pixels if block.taken is block.pixels else to_native(to_host(block.taken))
    return replace(
        block, pixels=pixels, taken=taken, planes=_planes_on_host(block.planes),
        variances=_planes_on_host(block.variances),
    )  # fmt: skip


def _planes_on_host(planes: Planes | None) -> Planes | None:
    return None if planes is None else Planes(to_host(planes.values))
