"""Whether joint fits would change any spot of a block in which none overlap.

Most blocks of sparse movies have a few spots whose own fits are doubtful. Fitted as one or several,
nearly all of them are one as before, so all is done by one call of the library.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE
from ..settings.validation import ROI_MAX
from .backend import Backend, Block, Columns, Positions, lend
from .cpu.block_fits import CpuFitter
from .cpu.layouts import LoneFits, LoneOutcome
from .cpu.library import load
from .fit_job import FitJob
from .joint_fits import JointFitter, light_reach, reaches
from .kernel_arguments import PIXEL_TYPES, address
from .single_fits import Singles, asked_of, singles_of

#: Positions of a block at most, as one thread does all, and how many of them may be concerned.
_MOST, _ROOM = 1 << 14, 256
#: Memory for a crowd, which takes 60 kB for each of its spots, and the bytes of a cache's line.
_CROWD_BYTES, _LINE = 1 << 20, 64
#: Positions whose places the library fills in.
_ANYWHERE = Positions(np.zeros((_ROOM, len(IN_PLANE))))


def singles_and_change(
    backend: Backend,
    job: FitJob,
    block: Block,
    positions: Positions,
    columns: Columns,
    widths: NDArray[np.float64],
) -> tuple[Singles, bool]:
    """Return what fits of single spots show, and whether joint fits may change any.

    Parameters
    ----------
    backend, job, block, positions, columns
        As :func:`.joint.fit_crowds` takes them.
    widths : ndarray
        The spots' widths along each axis.
    """
    # Pixels of a larger square are not searched by the call.
    is_near = 2 * light_reach(job, widths.max()) + 1 <= ROI_MAX
    if not (is_near and _is_simple(backend, job, block, len(positions.places))):
        singles = singles_of(job, positions, columns, widths)
        return singles, bool(len(singles.concerned))
    fitter, idle = lend(_LoneFitter, job, *widths.tolist())
    found = fitter.fit(backend, block, positions, columns)
    idle.append(fitter)
    return found


def _is_simple(backend: Backend, job: FitJob, block: Block, count: int) -> bool:
    """Whether one call of the library does it."""
    maps = block.planes, block.variances, block.bad, block.height
    return (
        backend.kind == "cpu"
        and job.settings.neighbours == "auto"
        and not job.one_row_per_position
        and job.model.lattice is None
        and len(job.axes) == len(IN_PLANE)
        and 0 < count <= _MOST
        and all(one is None for one in maps)
        and type(block.pixels) is type(block.taken) is np.ndarray
        and block.pixels.flags.c_contiguous
    )


class _LoneFitter:
    """Fits spots of blocks that may be two, by one thread at a time, in memory that is kept."""

    def __init__(self, job: FitJob, *widths: float) -> None:
        self._job, self._widths = job, np.array(widths)
        self._prepared_for: tuple[Any, ...] = ()
        self._crowd = np.empty(_CROWD_BYTES + _LINE, np.uint8)
        self._crowd = self._crowd[-address(self._crowd) % _LINE :]
        self._places = np.empty(0)

    def fit(
        self, backend: Backend, block: Block, positions: Positions, columns: Columns
    ) -> tuple[Singles, bool]:
        """Return what :func:`singles_and_change` does."""
        kind = block.pixels.shape, block.pixels.dtype, block.level
        if kind != self._prepared_for:
            self._prepared_for = ()
            self._prepare(backend, block)
            self._prepared_for = kind
        given, library = self._given, load()
        asked, singles, kept = asked_of(self._job, positions, columns, self._widths)
        own = self._memory_of_frame(len(positions.places))
        asked.ends, asked.cell, asked.spot, asked.root, asked.nearest, asked.sorted = own
        photons = np.ascontiguousarray(columns["photons"], np.float32)
        given.singles, given.photons = asked, address(photons)
        given.joint.frames = address(block.pixels)
        given.search, given.search_work = self._search.aimed(block, _ANYWHERE)
        outcome = library.functions.spotfit_fit_lone(library.index, self._by_reference)
        del kept
        return singles, outcome == LoneOutcome.MAY_CHANGE

    def _prepare(self, backend: Backend, block: Block) -> None:
        """Set all that is alike in blocks of a kind."""
        job, widths = self._job, self._widths
        fitter = JointFitter(backend, job, block, widths)
        library, (_, linking) = load(), reaches(job)
        self._search = CpuFitter(library, fitter.search_job)
        self._given = given = LoneFits(
            gain=job.settings.gain or 1.0, unit=fitter.scale.unit, widest=widths.max(),
            linking=tuple(linking * widths), linked=linking * widths.max(),
            joint=fitter.asked(0, counts_spots=True), room=_ROOM,
            crowd_bytes=_CROWD_BYTES, crowd=address(self._crowd),
        )  # fmt: skip
        given.joint.pixel_type = PIXEL_TYPES[block.pixels.dtype.str[1:]]
        self._by_reference = ctypes.byref(given)
        size = library.functions.spotfit_lone_bytes(library.index, self._by_reference)
        self._memory = np.empty(size, np.uint8)
        given.memory = address(self._memory)

    def _memory_of_frame(self, count: int) -> list[int]:
        """Return the addresses of memory for the positions of a frame."""
        if count > self._places.shape[-1]:
            self._places = np.empty((5 + len(IN_PLANE), 2 * count), np.int64)
            self._rows = [address(row) for row in self._places[:6]]
        return self._rows
