"""Fits in blocks of frames on the CPU: one call of the library for any range of them."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...images.frames import inside
from ...images.pixel_calibration import Planes
from ...settings.validation import ROI_MAX
from .. import threads
from ..backend import Block, Columns, Positions, in_order, outside
from ..bands import make_bands
from ..detection_settings import make_detection_settings
from ..filtered_noise import error_columns, filtered_noise
from ..fit_job import SIGMA_Z, FitJob, make_fit_settings
from ..flags import HELD_PLANES
from ..kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    frame_sizes,
    numbers_per_fit,
    pixel_map,
    row_bytes,
    shape_of_roi,
)
from ..verdicts import ImageVerdicts
from .fit_kind import fit_kind
from .layouts import (
    EXCLUDE,
    FIT_RANGE,
    FLAG_TOGETHER,
    JOIN,
    PLACE_ROIS,
    BlockFits,
    DetectionSource,
    FlatAreaRule,
    HeldDepth,
    HostRois,
    SpotCells,
)
from .library import Library

#: Fits that one thread makes, in memory that is kept; and pixels of a thread's share, at most:
#: small enough to share the work evenly and to be done soon after an interruption.
SMALL_SHARE, _LARGE_SHARE = 1024, 1 << 20
#: Fits of a thread's share where they are flagged by others of their frame.
FLAGGED = 1 << 14
#: Of a ROI's pixels how many must have one value for a flat top, and the least value of whole
#: numbers there: few counts are often equal.
PLATEAU, LEAST_COUNT = 5, 31
#: The least distance of the lowest value from all others: in units of what lies between these and
#: their median, and in steps, the least of their differences.
GAP, STEPS = 0.5, 4
#: Searches of pixels are prepared for this number of positions, or twice as many and so on, and
#: kept.
_ROUND = 32
#: ROIs of more pixels are fitted one after the other, each by all threads.
_SHARED_PIXELS = 1 << 16


class CpuFitter:
    """Fits of one job, by one thread at a time, in memory that is kept.

    Parameters
    ----------
    library : Library
        The library and its instruction set.
    job : FitJob
        How to fit.
    """

    #: Fits that one call of the library makes, in memory that is kept.
    at_once = SMALL_SHARE

    #: Where the library reads and writes, and the columns that it fills in.
    _given: BlockFits
    _source: HostRois
    _columns: Columns
    _count: int
    #: Positions in the image, and in the rows or planes that are here.
    _places: NDArray[np.float64]
    _places_here: NDArray[np.float64]
    _highest: NDArray[np.float64]
    _hot_source: DetectionSource | None
    #: What is known of the pixels.
    _planes: Planes | None
    _variances: Planes | None
    _maps: tuple[Planes | None, Planes | None]
    _bad: Any
    _kept_image: Any
    _first_row: int

    def __init__(self, library: Library, job: FitJob) -> None:
        self._library, self._job = library, job
        self._planes = self._variances = self._bad = None
        self._is_large = max(job.roi_shape) > ROI_MAX
        self._workers = job.threads or threads.available()
        self._prepared_for: tuple[Any, ...] = ()

    def fit(
        self,
        block: Block,
        positions: Positions | None = None,
        start: NDArray[np.float32] | None = None,
    ) -> Columns:
        """Return the columns of fits, which the next call may overwrite."""
        pixels, taken = block.pixels, block.taken
        if type(pixels) is not np.ndarray or type(taken) is not np.ndarray:
            pixels, taken = self._read(pixels, taken)
        count = len(pixels if positions is None else positions.places)
        frames = None if positions is None else (pixels.shape, block.level, block.height)
        kind = count, frames, pixels.dtype, taken.dtype, block.planes is None
        if kind != self._prepared_for:
            self._prepare(kind, pixels, taken, block, count, at=positions is not None)
        given, source = self._given, self._source
        source.frames = address(pixels)
        if block.planes is not self._planes or block.variances is not self._variances:
            self._maps = _beside(pixels, block.planes), _beside(pixels, block.variances)
            source.planes, source.variance = map(pixel_map, self._maps)
            # Last: what interrupts this leaves no maps that are taken for these.
            self._planes, self._variances = block.planes, block.variances
        steps = FIT_RANGE
        if positions is None:
            source.start = address(start)
        else:
            steps = PLACE_ROIS | FIT_RANGE | FLAG_TOGETHER
            self._take(block, taken, positions)
        done = self._work(*self._call, steps) if self._call else self._share_out(steps)
        if positions is None:
            return self._columns
        if done < 0:  # rare: a position is outside
            return self._fit_inside(block, positions)
        highest = block.highest
        if given.saturated and highest is not None and highest.of_all() != highest.here:
            self._highest.fill(highest.of_all())
            self._share_out(steps)
        return self._columns

    def _read(self, pixels: Any, taken: Any) -> tuple[Any, Any]:
        """Return frames where the library reads them."""
        return to_host(pixels), to_host(taken)

    def _on_host(self, block: Block) -> Block:
        pixels, taken = self._read(block.pixels, block.taken)
        return replace(block, pixels=pixels, taken=taken)

    def explain(
        self, block: Block, positions: Positions, corners: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return the corners of ROIs, and why their pixels are excluded.

        The reasons are bits: ``SATURATED_PIXEL`` and others. The ROI is that around the first
        position, unless the corners of the first ones are given.
        """
        block = self._on_host(block)
        call, memory = self._placed(block, positions)
        corners = self._corners[:1] if corners is None else corners
        self._corners[: len(corners)] = corners
        reasons = np.empty((len(corners), *self._job.roi_shape), np.uint8)
        for i, own in enumerate(reasons):
            self._library.functions.spotfit_explain(*call, i, address(own), address(memory))
        return corners, reasons

    def reasons(
        self, block: Block, positions: Positions, which: NDArray[np.int64]
    ) -> NDArray[np.uint8]:
        """Return why pixels of the ROIs around some of the positions are excluded, as above."""
        call, memory = self._placed(self._on_host(block), positions)
        found = np.empty((len(which), *self._job.roi_shape), np.uint8)

        def explain() -> None:
            for roi, own in zip(which.tolist(), found, strict=True):
                self._library.functions.spotfit_explain(*call, roi, address(own), address(memory))

        explain()
        highest = block.highest
        if self._given.saturated and highest is not None and highest.of_all() != highest.here:
            self._highest.fill(highest.of_all())
            explain()
        return found

    def excluded(
        self, block: Block, positions: Positions
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return which pixels of the ROIs around positions are excluded, and why.

        They are numbers among the pixels of all frames, in rising order. The reasons are those of
        :meth:`explain`.
        """
        block, count = self._on_host(block), len(positions.places)
        call, memory = self._placed(block, _filled_up(positions))
        functions, rois = self._library.functions, np.empty(count, np.int64)
        listed = functions.spotfit_list_excluded(*call, 0, count, address(rois), address(memory))
        own, found = np.empty(self._job.roi_shape, np.uint8), dict[int, int]()
        for roi in rois[:listed].tolist():
            functions.spotfit_explain(*call, roi, address(own), address(memory))
            at = np.argwhere(own)
            frame, *first = self._corners[roi]
            places = (np.full(len(at), frame), *(at + first).T)
            numbers = np.ravel_multi_index(places, block.pixels.shape).tolist()
            found |= dict(zip(numbers, own[own > 0].tolist(), strict=True))
        numbers = sorted(found)
        return np.array(numbers, np.int64), np.array([found[n] for n in numbers], np.uint8)

    def _placed(self, block: Block, positions: Positions) -> tuple[Any, NDArray[np.uint8]]:
        """Put ROIs around positions; return what calls of the library take, and its memory.

        The block is one where the library reads it, for as long as it is called.
        """
        self._aim(block, positions)
        memory = np.empty(self._work_bytes, np.uint8)
        call = self._library.index, self._by_reference
        self._work(*call, 0, self._count, address(memory), PLACE_ROIS)
        return call, memory

    def _aim(self, block: Block, positions: Positions) -> None:
        """Take positions in frames that are where the library reads them."""
        pixels, taken, count = block.pixels, block.taken, len(positions.places)
        frames = pixels.shape, block.level, block.height
        kind = count, frames, pixels.dtype, taken.dtype, block.planes is None
        if kind != self._prepared_for:
            self._prepare(kind, pixels, taken, block, count, at=True)
        self._source.frames = address(pixels)
        self._take(block, taken, positions)

    def aimed(self, block: Block, positions: Positions) -> tuple[int, int]:
        """Return the addresses of what the library takes to search pixels, and of its memory.

        The block is one where the library reads it; positions, at most ``at_once``, are in memory
        that other code may fill in.
        """
        self._aim(block, positions)
        return ctypes.addressof(self._given), self._call[-1]

    def release_maps(self) -> None:
        """Release what a caller knows of the pixels, which may be as large as the image."""
        if self._planes is None and self._variances is None and self._bad is None:
            return
        self._prepared_for = ()
        self._planes = self._variances = self._bad = None
        self._maps, self._kept_image = (None, None), None

    def _take(self, block: Block, taken: Any, positions: Positions) -> None:
        """Take positions, and where their frames are."""
        given, first_row = self._given, block.first_row
        given.taken = address(taken)
        self._places[:] = positions.places
        if self._places_here is not self._places:
            np.copyto(self._places_here, self._places)
            self._places_here[:, 0] -= first_row
        self._frame = positions.frame
        if self._frame is not None:
            self._frame = np.ascontiguousarray(self._frame, np.int64)
        given.frame, given.first_row = address(self._frame), first_row
        self._z = positions.z
        given.z = address(self._z)
        if self._hot_source is not None:
            self._hot_source.frames = self._source.frames
        if block.bad is not self._bad or first_row != self._first_row:
            self._know_image(block)
        self._highest.fill(math.nan if block.highest is None else block.highest.here)
        given.saturated = 0

    def _fit_inside(self, block: Block, positions: Positions) -> Columns:
        """Fit at those positions of a single frame that lie in it; the others are INVALID."""
        there = inside(positions.places, block.frame_shape)
        others = outside(int((~there).sum()), self._job.settings)
        fitter = type(self)(self._library, self._job)
        z = None if positions.z is None else positions.z[there]
        columns = fitter.fit(block, Positions(positions.places[there], z=z))
        order = np.argsort(there, kind="stable")
        return {name: in_order([others[name], column], order) for name, column in columns.items()}

    def _share_out(self, steps: int) -> int:
        """Do what the library can do; several threads share many fits, or large ones."""
        work, count, workers = self._work, self._count, self._workers
        index, given = self._library.index, self._by_reference
        if steps & PLACE_ROIS and work(index, given, 0, count, 0, PLACE_ROIS) < 0:
            return -1

        def fit(first: int, last: int) -> None:
            memory = np.empty(self._work_bytes, np.uint8)
            work(index, given, first, last, address(memory), FIT_RANGE)

        def flag(first: int, last: int) -> None:
            work(index, given, first, last, 0, FLAG_TOGETHER)

        pixels = math.prod(self._job.roi_shape)
        if self._is_large and workers > 1 and pixels >= _SHARED_PIXELS:
            self._fit_shared()
        elif self._is_large:
            threads.in_pieces(fit, count, 1 + count // (8 * workers), workers)
        else:
            share = max(min(count // (4 * workers), _LARGE_SHARE // pixels), SMALL_SHARE)
            threads.in_pieces(fit, count, share, workers)
        if steps & FLAG_TOGETHER:
            threads.in_pieces(flag, count, FLAGGED, workers)
        return 0

    def _fit_shared(self) -> None:
        """Fit large ROIs, one after the other, each by all threads."""
        from .fit_kind import LargeFit, team

        given, job, memory = self._given, self._job, np.empty(self._work_bytes, np.uint8)
        kinds = bool(given.source.planes.values), True
        fits = [LargeFit(job.settings, job.roi_shape, planes=planes) for planes in kinds]

        def step(roi: int, steps: int) -> None:
            work = self._library.index, self._by_reference, roi, roi + 1, address(memory)
            self._work(*work, steps)

        with team(self._workers) as share:
            for roi in range(self._count):
                step(roi, EXCLUDE)
                cut = given.cut_count
                source, row, results = given.source, roi, given.results
                if cut:
                    source, row, results = given.cut, 0, given.cut_results
                fits[cut].run(source, row, share, self._workers)
                fits[cut].write(row, results)
                step(roi, JOIN)

    def _prepare(
        self, kind: tuple[Any, ...], pixels: Any, taken: Any, block: Block, count: int, *, at: bool
    ) -> None:
        """Allocate memory for a number of fits, and set all addresses once."""
        self._prepared_for = ()  # until all is there: an error leaves nothing half made
        job, settings = self._job, self._job.settings
        fits = fit_kind(settings, job.roi_shape, block.planes is not None)
        self._count = count
        #: What must outlast the addresses.
        self._kept: list[Any] = [fits]
        self._planes = self._variances = None
        self._maps = None, None
        memory = self._results = self._new((row_bytes(settings) * count,), np.uint8)
        self._columns = Results.within(memory, count, settings).columns(settings.profile)
        self._given = given = BlockFits(
            source=HostRois(
                **frame_sizes(pixels.shape[1:]),
                constants=ctypes.addressof(fits.encoded.program) if fits.encoded else 0,
                pixel_type=PIXEL_TYPES[pixels.dtype.str[1:]],
            ),
            taken_type=PIXEL_TYPES[taken.dtype.str[1:]], profile=fits.profile,
            estimator=fits.estimator, roi=shape_of_roi(job.roi_shape),
            shape=len(settings.profile.shape), numbers=numbers_per_fit(settings),
            fit_bytes=fits.work_bytes, settings=ctypes.addressof(fits.numbers),
            areas=rule_for(taken.dtype, job.roi_shape),
            results=fit_results(address(memory), count, settings),
        )  # fmt: skip
        self._source, self._by_reference = given.source, ctypes.byref(given)
        if at:
            self._prepare_positions(pixels, block)
        else:
            self._prepare_errors()
        bytes_of = self._library.functions.spotfit_block_bytes
        self._work_bytes: int = bytes_of(self._library.index, self._by_reference)
        self._work = self._library.functions.spotfit_fit_block
        self._call: tuple[Any, ...] = ()
        if count <= self.at_once and not self._is_large:
            memory = self._new((self._work_bytes,), np.uint8)
            self._call = self._library.index, self._by_reference, 0, count, address(memory)
        self._prepared_for = kind

    def _new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return memory that is kept as long as what is prepared."""
        memory: NDArray[Any] = np.empty(size, dtype)
        self._kept.append(memory)
        return memory

    def _prepare_errors(self) -> None:
        """Prepare the errors of cut-outs of an image that a filter went over."""
        filtered = filtered_noise(self._job.settings, self._job.roi_shape)
        if filtered is not None:
            errors = error_columns(self._columns, filtered.columns)
            self._kept += [filtered, errors]
            self._given.noise = ctypes.addressof(filtered.noise)
            self._given.errors = ctypes.addressof(errors)

    def _prepare_positions(self, pixels: Any, block: Block) -> None:
        """Prepare what belongs to positions: ROIs, neighbours, hot pixels and flags."""
        given, job, count = self._given, self._job, self._count
        axes = len(job.axes)
        self._places = self._new((count, axes), float)
        self._places_here = self._places if not block.height else self._new((count, axes), float)
        self._corners = self._new((count, 1 + axes), np.int64)
        given.source.corners = address(self._corners)
        self._start = self._new((count, len(job.model.shape)), np.float32)
        given.source.start = address(self._start)
        given.spots = self._cells(pixels.shape)
        given.frame_rows = block.frame_shape[0]
        self._highest = self._new((len(pixels),), float)
        given.highest = address(self._highest)
        self._hot_source = None
        if job.detection is not None and job.detection.sigma is not None:
            bands = make_bands(job.detection.sigma, pixels.shape[-2:])
            level = level_of_planes(pixels, block.level)
            numbers = make_detection_settings(job.detection, bands, address, level=level)
            self._hot_source = DetectionSource(
                0, ctypes.addressof(numbers), PIXEL_TYPES[pixels.dtype.str[1:]]
            )
            self._kept.append((bands, numbers))
            given.detection = ctypes.addressof(self._hot_source)
        self._verdicts = ImageVerdicts(
            self._columns, job.settings, job.roi_shape, job.is_calibrated
        )
        given.fits = self._at(self._verdicts.fits)
        given.quality = ctypes.addressof(self._verdicts.numbers)
        if job.holding_sigma_z is not None and job.sigma_z is not None:
            names = [parameter.name for parameter in job.model.shape]
            held = make_fit_settings(job.holding_sigma_z, job.roi_shape)
            planes, place = HELD_PLANES * job.sigma_z, names.index(SIGMA_Z)
            given.held = HeldDepth(ctypes.addressof(held), planes, place, job.sigma_z)
            self._kept.append(held)
        self._know_image(block)

    def _know_image(self, block: Block) -> None:
        """Say where the fits are in an image, and which of its pixels are bad."""
        bad = None if block.bad is None else np.ascontiguousarray(to_host(block.bad))
        job = self._job
        image = self._verdicts.image(
            self._corners, self._places, block.frame_shape, job.sigma, bad,
            job.sigma_z, job.per_plane, block.first_row,
        )  # fmt: skip
        self._kept_image = image, bad
        self._given.image = self._at(image)
        self._bad, self._first_row = block.bad, block.first_row

    def _at(self, packed: bytes) -> int:
        """Return where a packed structure is."""
        self._kept.append(packed)
        return ctypes.cast(ctypes.c_char_p(packed), ctypes.c_void_p).value or 0

    def _cells(self, shape: tuple[int, ...]) -> SpotCells:
        """Return the positions by cells of the frames, none where all pixels count."""
        (frames, *_, height, width), roi_shape, count = shape, self._job.roi_shape, self._count
        side = max(*roi_shape, math.isqrt(frames * height * width // max(count, 1)))
        down, across = -(-height // side), -(-width // side)
        if not self._job.masks_neighbours:
            down = across = 0
        return SpotCells(
            address(self._corners), address(self._places_here), count, frames, down, across,
            address(self._new((frames * down * across + 1,), np.int64)),
            address(self._new(self._places.shape, float)), 0.0, side, shape_of_roi(roi_shape),
            self._job.per_plane,
        )  # fmt: skip


def _filled_up(positions: Positions) -> Positions:
    """Return positions of one of few numbers: the last one again and again behind the others."""
    count = len(positions.places)
    room = max(_ROUND, 1 << (count - 1).bit_length())
    rows = np.minimum(np.arange(room), count - 1)
    return Positions(positions.places[rows], positions.frames[rows])


def level_of_planes(frames: Any, level: float | None) -> float | None:
    """Return the level from which hot pixels are searched, None for that of each plane.

    It matters for rounding only. A ROI of a volume is of many planes, and to find the level of each
    takes longer than the search.
    """
    return 0.0 if frames.ndim > 3 and level is None else level


def rule_for(dtype: np.dtype[Any], roi_shape: tuple[int, ...] = ()) -> FlatAreaRule:
    """Return what makes pixels of a type suspect of being saturated, or no data."""
    planes = math.prod(roi_shape[:-2])
    if dtype.kind in "iu":
        return FlatAreaRule(float(np.iinfo(dtype).max), LEAST_COUNT, STEPS, GAP, PLATEAU, planes)
    return FlatAreaRule(np.inf, -np.inf, 0.0, GAP, PLATEAU, planes)


def _beside(frames: Any, planes: Planes | None) -> Planes | None:
    """Return what is known of the pixels in the host's memory if the frames are there."""
    if planes is None or not isinstance(frames, np.ndarray):
        return planes
    return Planes(to_host(planes.values))
