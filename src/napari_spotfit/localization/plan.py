"""Prepare what all frames of an image have in common, and fit some of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.backend import Backend, Block, Load, Positions
from ..engine.fit_job import FitJob
from ..engine.joint import fit_crowds
from ..engine.positions import places_of, rows_of, scores_of
from ..engine.select import recorded, select_backend
from ..estimation.detection_noise import for_detection
from ..estimation.held_widths import warn_of_held_widths
from ..estimation.image_estimates import estimated, frames_of_estimates
from ..estimation.image_noise import warn_of_noise
from ..images.camera import PerPixel
from ..images.channels import NO_MAPS, Maps
from ..images.frames import FrameReader, FrameSelection
from ..images.pixel_calibration import PixelCalibration
from ..results.fit_parts import in_frame_order
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings
from .blank_frames import BlankFrames
from .chunks import Chunk, cut, gpu_pays_off, read_ahead, read_chunks, side_by_side
from .fit_at import check_counts, checked_reader, collected, leading_indices
from .orientation_check import offer_rois
from .tiles import Tiled, fits_in_tiles, works_in_tiles

#: From this many blocks per core on, each core takes separate blocks. Larger blocks are handed over
#: less often, in movies with enough of them; the last number is the most bytes of one in memory.
_SIDE_BY_SIDE, _ENOUGH, _LARGE_BLOCK, _IN_MEMORY = 4, 8, 16 << 20, 512 << 20
#: Blocks per core in which spots are fitted together where they overlap, and the most bytes of one:
#: a thousand small steps are taken for each block, however few these spots are. What is read first,
#: which may take long, can be stopped more often.
_OF_EACH_CORE, _OF_FEW_CROWDS = 2, 32 << 20
#: Blocks for each worker from which a movie in memory is long for a GPU.
_ROUNDS = 1.5
#: Of joint fits, which leave cores idle while one has the interpreter: the bytes of a block, and
#: how many of them a CPU works on side by side: more, and smaller ones, wait for it.
_JOINT_BYTES, _JOINT_BLOCKS = {"cpu": 4 << 20, "cuda": 16 << 20}, 4


class Plan(NamedTuple):
    """What all frames have in common: settings with estimates, whichever frames are fitted."""

    reader: FrameReader
    #: What is known of the pixels; its settings have all that was estimated.
    calibration: PixelCalibration
    backend: Backend
    #: Where to search.
    mask: Any
    #: Numbers of the chosen frames, in rising order.
    numbers: NDArray[np.int64]
    #: Those that have no light at all, as far as they were read.
    blank: BlankFrames

    @property
    def settings(self) -> Settings:
        """The settings of the results."""
        return recorded(self.calibration.settings, self.backend)


class Fitted(NamedTuple):
    """Fits of frames."""

    fits: SpotFits
    #: How many frames they are: a part of one where frames are worked in tiles.
    frames: int | Fraction


def measured(image: Any, settings: Settings, maps: Maps) -> tuple[FrameReader, PixelCalibration]:
    """Return the frames of an image, and the calibration of its pixels.

    What the settings leave open is measured in a few frames.
    """
    reader = checked_reader(image, settings)
    calibration = PixelCalibration(
        reader.shape, settings,
        weights=maps.weights, bad_pixels=maps.bad_pixels, camera=maps.camera,
    )  # fmt: skip
    with frames_of_estimates(reader, settings):
        calibration = estimated(reader, calibration)
        warn_of_noise(reader, calibration, settings)
        warn_of_held_widths(reader, calibration, settings)
    return reader, calibration


def planned(
    image: Any, settings: Settings, frames: FrameSelection = None, maps: Maps = NO_MAPS
) -> Plan:
    """Return the plan for an image."""
    reader, calibration = measured(image, settings, maps)
    backend = select_backend(calibration.settings, gpu_pays_off(image, reader, frames))
    return Plan(reader, calibration, backend, maps.mask, reader.select(frames), BlankFrames())


def fitted(plan: Plan, ranges: Sequence[NDArray[np.int64]]) -> Generator[Fitted, None, None]:
    """Yield the fits of successive frames of a plan, and the number of these frames.

    Frames that are worked in tiles come in parts, each so much of a frame.

    Joined, they are the same to the bit whatever the ranges. Stopping to iterate cancels the rest.

    Parameters
    ----------
    plan : Plan
        How to fit.
    ranges : sequence of ndarray
        Numbers of frames, all in rising order; no fits are of frames of two of them.
    """
    backend, calibration, reader = plan.backend, plan.calibration, plan.reader
    recorded_settings = plan.settings
    detection, variances = for_detection(calibration)
    cores = calibration.settings.threads or threads.available()
    if works_in_tiles(reader, backend) and any(map(len, ranges)):
        masks = PerPixel.of_mask(plan.mask, reader)
        tiled = Tiled(backend, reader, calibration, detection, variances, masks)
        # While some are written to a file, by one core, the next ones are fitted.
        yield from read_ahead(_fitted_in_tiles(plan, tiled, np.concatenate(ranges)))
        return
    frames = sum(map(len, ranges))
    total = frames * reader.frame_bytes
    load = backend.load
    if not reader.is_lazy:
        load = _for_movies_in_memory(backend, total)
    neighbours = calibration.settings.neighbours
    suited = 0
    if backend.kind == "cpu":
        overlap = neighbours == "auto"
        suited = _block_bytes(total, cores, overlap=overlap, is_lazy=reader.is_lazy)
    is_joint = neighbours == "joint"
    if is_joint and reader.frame_bytes <= _JOINT_BYTES[backend.kind]:
        workers = min(_JOINT_BLOCKS, cores) if backend.kind == "cpu" else backend.load.workers
        load, suited = Load(1, _JOINT_BYTES[backend.kind], workers), 0
    parts = [cut(reader, numbers, load, suited) for numbers in ranges]
    job = FitJob.of(calibration, reader.dtype, detection, one_row_per_position=False)
    chunks = sum(blocks.chunks for blocks in parts)
    side_by_side_from = _OF_EACH_CORE if neighbours == "auto" else _SIDE_BY_SIDE
    if backend.kind == "cpu" and chunks >= side_by_side_from * cores:
        load = load if is_joint else load._replace(workers=cores)
        if load.workers == cores:
            # Each core takes a block, and waits for no other.
            job, detection = job.by_one_thread(), detection.changed(threads=1)

    def find_and_fit(chunk: Chunk) -> tuple[SpotFits, Chunk]:
        plan.blank.add(chunk.block, chunk.pixels)
        block = Block.of(calibration, chunk.block, chunk.pixels)
        block.mask, block.noise_map = chunk.mask, variances
        found = backend.detect(block, detection)
        numbers, places = places_of(found, chunk.block)
        positions = Positions(places, found.frame, score=found.score)
        columns = backend.fit(job, block, positions)
        columns = fit_crowds(backend, job, block, positions, columns)
        rows = rows_of(job, columns)
        check_counts(calibration, block, positions, columns, rows)
        offer_rois(calibration, block, positions.frames[rows], columns)
        columns["score"] = scores_of(rows, found.score)
        if calibration.light is not None:
            calibration.light.correct(columns, numbers[rows])
        index = leading_indices(numbers[rows], reader)
        return collected(columns, index, recorded_settings, reader.planes), chunk

    workers = min(load.workers, chunks)
    held: list[SpotFits] = []
    done = 0
    read = read_chunks(reader, parts, plan.mask)
    try:
        for fits, chunk in side_by_side(find_and_fit, read, workers):
            done += len(chunk.block)
            held.append(fits)
            # Chunks of an image may hold frames that do not follow each other.
            if chunk.all_before:
                yield Fitted(in_frame_order(held, reader.leading), done)
                held, done = [], 0
    except Exception:
        # What was fitted before a frame that cannot be read is not lost.
        if held:
            yield Fitted(in_frame_order(held, reader.leading), done)
        raise


def _fitted_in_tiles(plan: Plan, tiled: Tiled, numbers: NDArray[np.int64]) -> Iterator[Fitted]:
    """Yield the fits of successive rows of a frame, and the rows' share of it."""
    settings = plan.settings
    for number in numbers.tolist():
        for columns, share in fits_in_tiles(tiled, number):
            index = leading_indices(np.full(len(columns["y"]), number), plan.reader)
            yield Fitted(collected(columns, index, settings, plan.reader.planes), share)


def _for_movies_in_memory(backend: Backend, total: int) -> Load:
    """Return the sizes of blocks that keep a backend busy with frames in memory."""
    load = backend.long_movies
    if load is None or total < _ROUNDS * load.workers * load.block_bytes:
        return backend.load
    return load


def _block_bytes(total: int, cores: int, *, overlap: bool, is_lazy: bool = False) -> int:
    """Return the least bytes of a block, for cores that take one each."""
    most = _IN_MEMORY // (2 * cores)
    if overlap:
        blocks = _SIDE_BY_SIDE if is_lazy else _OF_EACH_CORE
        return min(_OF_FEW_CROWDS, most, total // (blocks * cores))
    large = min(_LARGE_BLOCK, most)
    return large if total >= _ENOUGH * cores * large else 0


def check_progress(progress: object, *, lazy: bool = False) -> None:
    """Raise an error if progress cannot be reported: to no function, or with ``lazy``."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of two numbers; got {progress!r}")
    if lazy and progress is not None:
        raise ValueError("with lazy=True nothing is done yet; Dask shows its own progress")
