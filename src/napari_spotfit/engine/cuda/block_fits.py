"""Fit ROIs at positions in frames on a GPU.

All work is submitted at once, and results are downloaded once: each wait costs as much as hundreds
of fits. The library finds ROIs with pixels to exclude, which are cut out on the GPU with a mask
each.
"""

from __future__ import annotations

import ctypes
import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import is_on_device, like, to_host
from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from .. import threads
from ..backend import Block
from ..cpu.block_fits import FLAGGED, CpuFitter, level_of_planes, rule_for
from ..cpu.layouts import (
    EXCLUDE,
    FLAG_TOGETHER,
    FLAT_TOP,
    HELD,
    JOIN,
    PLACE_ROIS,
    Around,
    DeviceLooks,
    FittedSpot,
)
from ..kernel_arguments import address, row_bytes, sizes_of_results
from ..positions import scatter_rows
from . import fit
from .compile import current_device
from .roi_kernels import (
    HotPixelSearch,
    cut_out_on,
    find_flat_areas,
    flags_by_surroundings,
    plane_corners,
)

#: Pixels that are cut out at a time, and spots per thread that makes masks.
_CUT_OUT_PIXELS, _MARKED = 1 << 22, 1 << 13
#: Threads of a block that scatters results to their rows.
THREADS = 128


class DeviceFits(CpuFitter):
    """Fits at positions in frames on the current device, from one thread."""

    at_once = 0

    def _read(self, pixels: Any, taken: Any) -> tuple[Any, Any]:
        """Return frames unchanged, as they lie on the device."""
        self._pixels, self._taken = pixels, taken
        return pixels, taken

    def _prepare_positions(self, pixels: Any, block: Block) -> None:
        super()._prepare_positions(pixels, block)
        count, shape = self._count, len(self._job.model.shape)
        self._areas, self._hot = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        self._place, self._rois = np.zeros(count, np.int64), np.empty(count, np.int64)
        corners = np.empty_like(self._corners)
        self._listed = corners, np.empty((count, shape), np.float32)
        arrays = self._areas, self._hot, self._place, None, None, self._rois, *self._listed
        self._looks = DeviceLooks(*map(address, arrays))
        self._given.device = ctypes.addressof(self._looks)
        self._level = level_of_planes(pixels, block.level)

    def _share_out(self, steps: int) -> int:
        """Fit the ROIs that the library prepares on the device; large ones one by one."""
        if is_on_device(self._taken):
            self._given.taken = 0
        if self._step(0, self._count, PLACE_ROIS) < 0:
            return -1
        self._device = current_device()
        at_once = 1 if self._is_large else max(self._count, 1)
        memory = None
        if not self._is_large:
            memory = self._device.allocate(row_bytes(self._job.settings) * self._count)
        for first in range(0, self._count, at_once):
            self._look(first, first + at_once)
            if self._job.holding_sigma_z is not None:
                self._step(first, first + at_once, EXCLUDE | HELD)
                self._fit_listed(self._job.holding_sigma_z, memory)
            self._step(first, first + at_once, EXCLUDE)
            self._fit_listed(self._job.settings, memory)
            self._in_pieces(JOIN, first, first + at_once)
        self._look_around()
        self._in_pieces(FLAG_TOGETHER, 0, self._count)
        return 0

    def _step(self, first: int, last: int, steps: int) -> int:
        memory = np.empty(self._work_bytes, np.uint8)
        call = self._library.index, self._by_reference, first, last, address(memory)
        return int(self._work(*call, steps))

    def _in_pieces(self, steps: int, first: int, last: int) -> None:
        def work(begin: int, end: int) -> None:
            self._step(first + begin, first + end, steps)

        threads.in_pieces(work, last - first, FLAGGED, self._workers)

    def _look_around(self) -> None:
        """Flag elongated spots, and those out of focus, by the light around them."""
        sigma, count, size = self._job.sigma, self._count, ctypes.sizeof(FittedSpot)
        verdicts = self._verdicts.numbers
        if sigma is None or verdicts.around == Around.AROUND_NOTHING or not count:
            return
        spots = np.empty((count, size), np.uint8)
        call = self._library.index, self._by_reference, 0, count, address(spots)
        listed = int(self._library.functions.spotfit_list_spots(*call))
        if listed:
            spots = spots[:listed]
            fits = np.ascontiguousarray(spots[:, :8]).view(np.int64).ravel()
            flags = flags_by_surroundings(
                self._device, self._pixels, spots, listed, sigma, verdicts
            )
            self._columns["flags"][fits] |= flags

    def _look(self, first: int, last: int) -> None:
        """Search for saturated, hot and padding pixels of ROIs, which are rare."""
        device, detection, here = self._device, self._job.detection, slice(first, last)
        commands, corners = device.commands(), self._corners[here]
        there, sides = commands.upload(self._in_planes(corners)), self._job.roi_shape[-2:]
        found: list[tuple[NDArray[np.uint8], NDArray[Any]]] = []
        if is_on_device(self._taken):
            if self._is_large:
                self._areas[here] = self._flat_tops(corners)
            else:
                rule = rule_for(self._taken.dtype, self._job.roi_shape)
                areas = find_flat_areas(device, commands, _planes(self._taken), there, sides, rule)
                found.append((self._areas, areas))
        look = None
        if detection is not None and detection.sigma is not None:
            look = HotPixelSearch(device, _planes(self._pixels), sides, detection, self._level)
            found.append((self._hot, look.find(commands, there)))
        commands.run()
        for memory, values in found:
            memory[here] = np.bitwise_or.reduce(values.reshape(len(corners), -1), axis=1)
        # NumPy's search would release the interpreter's lock, and wait to get it back.
        known = self._areas[here] | self._hot[here]
        if known.tobytes() != bytes(known.nbytes):
            self._look_closely(first, np.flatnonzero(known), look)

    def _look_closely(
        self, first: int, suspects: NDArray[np.int64], look: HotPixelSearch | None
    ) -> None:
        """Download the pixels of suspicious ROIs."""
        device, roi_shape = self._device, self._job.roi_shape
        self._place[first + suspects] = range(len(suspects))
        commands, pixels, mask = device.commands(), None, None
        corners = self._corners[first + suspects]
        if is_on_device(self._taken):
            pixels = commands.download(
                cut_out_on(device, self._taken, corners, roi_shape, commands)
            )
        if look is not None:
            there = commands.upload(self._in_planes(corners))
            memory = device.allocate(len(suspects) * math.prod(roi_shape))
            look.find(commands, there, memory)
            mask = commands.download(memory)
        commands.run()
        if pixels is not None and (self._areas[first + suspects] & FLAT_TOP).any():
            self._know_highest()
        self._kept_looks = pixels, mask
        self._looks.pixels, self._looks.hot_pixels = address(pixels), address(mask)

    def _know_highest(self) -> None:
        """Find the largest value of each frame."""
        if np.isnan(self._highest).any():
            self._highest[:] = to_host(np.nanmax(self._taken.reshape(len(self._taken), -1), axis=1))

    def _in_planes(self, corners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the corners of ROIs in planes, several for each ROI of a volume."""
        if corners.shape[1] == 3:
            return corners
        return plane_corners(corners, self._pixels.shape[1], self._job.roi_shape[0])

    def _flat_tops(self, corners: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return which large ROIs may have saturated pixels, as one thread would take long."""
        self._know_highest()
        sides = self._job.roi_shape
        rule = rule_for(self._taken.dtype, sides)
        found = np.zeros(len(corners), np.uint8)
        for i, (frame, *first) in enumerate(corners.tolist()):
            along = (slice(at, at + side) for at, side in zip(first, sides, strict=True))
            roi = self._taken[frame, *along]
            highest = roi.dtype.type(self._highest[frame])
            is_flat = int((roi == highest).sum()) >= rule.count or (roi >= rule.largest).any()
            found[i] = FLAT_TOP if is_flat else 0
        return found

    def _fit_listed(self, settings: Settings, memory: Any) -> None:
        """Fit the ROIs that the library has listed, and download the results in memory."""
        device, job, cut = self._device, self._job, self._given.cut_count
        commands, (corners, start) = device.commands(), self._listed
        count = self._given.listed_count
        planes, variances = self._maps
        maps = [None if one is None else like(one.values, self._pixels) for one in self._maps]

        def put(rows: slice, frames: Any, corners: Any, known: dict[str, Any]) -> None:
            """Fit some ROIs, and scatter the results to their rows."""
            fit_rois = partial(
                fit.fit_rois, frames, corners, job.roi_shape, settings, start[rows], **known
            )
            if memory is None:
                part = fit_rois()
                scatter_rows(part, self._rois[rows], {name: self._columns[name] for name in part})
            else:
                part = fit_rois(on_device=True, commands=commands)
                self._scatter_results(commands, part, self._rois[rows], memory)

        whole = slice(0, count - cut)
        if whole.stop:
            known = {"planes": planes, "variance_map": variances}
            put(whole, self._pixels, corners[whole], known)
        step = max(_CUT_OUT_PIXELS // math.prod(job.roi_shape), 1)
        for first in range(whole.stop, count, step):
            rows = slice(first, min(first + step, count))
            # Large ROIs are fitted immediately.
            own = None if self._is_large else commands
            pixels, plane, variance = (
                None if values is None
                else cut_out_on(device, values, corners[rows], job.roi_shape, own)
                for values in (self._pixels, *maps)
            )  # fmt: skip
            counted: Any = self._marked(rows)
            if plane is not None:
                commands.run(wait=False)
                counted = like(counted, self._pixels)
                is_likelihood = job.settings.estimator_kind.is_likelihood
                counted = counted + plane if is_likelihood else counted * plane
            variance = None if variance is None else Planes(variance)
            put(rows, pixels, None, {"planes": Planes(counted), "variance_map": variance})
        if memory is not None:
            commands.download(memory, self._results)
            commands.run()

    def _marked(self, rows: slice) -> NDArray[np.float32]:
        """Return the weights or variances of the pixels of listed ROIs."""
        masks = np.empty((rows.stop - rows.start, *self._job.roi_shape), np.float32)

        def mark(first: int, last: int) -> None:
            memory = np.empty(self._work_bytes, np.uint8)
            self._library.functions.spotfit_mark_rois(
                self._library.index, self._by_reference, rows.start + first, rows.start + last,
                address(masks[first:]), address(memory),
            )  # fmt: skip

        threads.in_pieces(mark, len(masks), _MARKED, self._workers)
        return masks

    def _scatter_results(
        self, commands: Any, part: dict[str, Any], rows: NDArray[np.int64], memory: Any
    ) -> None:
        """Scatter results of some fits to their rows, both laid out as Results."""
        device, sizes = self._device, sizes_of_results(self._job.settings)
        begins = np.cumsum(sizes) - sizes
        origin = device.address(next(iter(part.values()))) + len(rows) * begins
        target = device.address(memory) + self._count * begins
        kernel = device.kernel("cuda/put_rows.cu", "put_rows", THREADS=THREADS)
        given = (
            commands.upload(np.column_stack([origin, target, sizes])), np.int32(len(sizes)),
            commands.upload(rows), np.int64(len(rows)),
        )  # fmt: skip
        commands.launch(kernel, (-(-len(rows) // THREADS),), (THREADS,), given)
        commands.keep(part)


def _planes(frames: Any) -> Any:
    """Return frames as a stack of planes, those of each volume in turn."""
    return frames.reshape(-1, *frames.shape[-2:])
