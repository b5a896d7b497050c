"""The backend of the CPU: the compiled library, by one or several threads."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..backend import Columns, Load, lend
from ..block import Block, Positions
from ..detection.candidates import Candidates
from ..fit_job import FitJob
from .block_fits import CpuFitter
from .library import load

#: Bytes of a block of frames: few, for the caches.
_BLOCK_BYTES = 8 << 20
#: So few spots are fitted by one thread, in memory that is there already.
_FEW = 1024


class Cpu:
    """The CPU.

    Parameters
    ----------
    threads : int
        How many it works with at most.
    """

    kind: Literal["cpu"] = "cpu"
    long_movies = None
    reads_all = False

    def __init__(self, threads: int) -> None:
        self.name = f"CPU ({threads} thread{'s' if threads > 1 else ''})"
        self.load = Load(threads, _BLOCK_BYTES, 1)

    def ran_on(self) -> str:
        """Return its name."""
        return self.name

    def detect(self, block: Block, settings: Settings) -> Candidates:
        """Find spots, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        from .detect import detect

        return detect(
            to_host(block.pixels), settings, block.mask, block.noise_map,
            level=block.level, depth=block.height,
        )  # fmt: skip

    def fit(
        self,
        job: FitJob,
        block: Block,
        positions: Positions | None = None,
        start: NDArray[np.float32] | None = None,
        *,
        on_device: bool = False,
    ) -> Columns:
        """Fit ROIs, as :class:`~napari_spotfit.engine.backend.Backend` says."""
        assert not on_device
        count = len(block.pixels if positions is None else positions.places)
        if count > _FEW or max(job.roi_shape) > ROI_MAX:
            return CpuFitter(load(), job).fit(block, positions, start)
        fitter, idle = lend(CpuFitter, load(), job)
        columns = fitter.fit(block, positions, start)
        columns = {name: column.copy() for name, column in columns.items()}
        fitter.release_maps()
        idle.append(fitter)
        return columns

    def fitter(self, job: FitJob) -> CpuFitter:
        """Prepare fits that are made again and again."""
        return CpuFitter(load(), job)
