"""Detect and fit in frames too large for memory, in blocks of rows with a halo around each.

A block is some rows of a frame, as wide as the frame, and the halo rows beside them. Of volumes,
planes are what rows are of planes. Rows are read
once, in order, and stay in memory as long as a block needs them. Spots are detected in a block with
its halo as in a separate frame, relative to the whole frame's level; those in the block's own rows
are kept. The result equals the whole frame's to the bit where nothing connected (the flat
area of a saturated spot, a chain of maxima closer than ``min_distance``) is larger than the halo.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.backend import Backend, Block, Highest, Positions
from ..engine.bands import make_bands, make_volume_bands
from ..engine.candidates import Candidates, joined, nothing
from ..engine.cpu.backend import strip_rows
from ..engine.detection_settings import make_detection_settings, reach_in_pixels, texture_reach
from ..engine.extended_regions import SIDE as REGION
from ..engine.far_light import far_reach
from ..engine.fit_job import FitJob
from ..engine.flags import CROWD
from ..engine.joint import fit_crowds
from ..engine.positions import of_first, rows_of, scores_of, whole_fits
from ..images.arrays import to_host
from ..images.camera import PerPixel
from ..images.frames import LARGE_FRAME, FrameReader, Part, pixel_at
from ..images.pixel_calibration import PixelCalibration, Planes
from ..images.reading import evenly_spread
from ..models.columns import IN_PLANE
from ..settings.settings import Settings
from .chunks import ChunkCache, RowBuffer, read_ahead
from .fit_at import check_counts
from .orientation_check import offer_rois

_SAMPLES = 63


def level_places(pixels: int) -> NDArray[np.int64]:
    """Return the pixels of a frame from which its level is estimated."""
    return evenly_spread(_SAMPLES, pixels)


def level_of(sample: NDArray[Any]) -> float:
    """Return the median of sampled pixels: of two in the middle, the upper one.

    Examples
    --------
    >>> level_of(np.array([4.0, 1.0, np.nan, 3.0, 2.0]))
    3.0
    """
    good = np.sort(sample[np.isfinite(sample)])
    return float(good[len(good) // 2]) if len(good) else 0.0


#: Rows, or planes, of a frame that is not cut off anywhere near.
_TALL = 1 << 10
#: How far away the surroundings of a hot pixel are looked at, in units of σ, and at least in px.
_HOT_PIXELS = 2
#: Rows of the halo for what is connected: flat areas, and chains of maxima in least distances;
#: planes for both.
_FLAT_AREA, _CHAIN, _PLANES = 128, 32, 16
#: From how many times the size of frames on volumes are worked on in tiles.
VOLUMES = 8


def works_in_tiles(reader: FrameReader, backend: Backend) -> bool:
    """Whether frames are processed in tiles: large ones that are not where they are processed.

    Halos of volumes are so deep that only the largest take less memory so. A GPU is given volumes
    as a whole.
    """
    is_deep = len(reader.axes) > len(IN_PLANE)
    if is_deep and (backend.kind == "cuda" or reader.frame_bytes <= VOLUMES * LARGE_FRAME):
        return False
    return reader.in_tiles and not (reader.on_device and backend.kind == "cuda")


class Tiled(NamedTuple):
    """What all frames that are processed in tiles have in common."""

    backend: Backend
    reader: FrameReader
    calibration: PixelCalibration
    #: What looks for spots, and variances of pixels beside its noise.
    detection: Settings
    variances: NDArray[np.float32] | None
    mask: PerPixel | None


class RowBlock(NamedTuple):
    """Rows of a frame, and the spots found in them and in the halo."""

    #: The block's own rows, and those with the halo, from the first to the one after the last.
    own: slice
    rows: slice
    #: In the frame's rows.
    spots: Candidates
    #: The rows with the halo.
    block: Block
    #: The frame as it was recorded, and the largest number until now.
    recorded: RowBuffer
    highest: float


def row_blocks(tiled: Tiled, number: int) -> Iterator[RowBlock]:
    """Yield the blocks of a frame from its first row to its last.

    The pixels of a block may be used until the next but one is asked for.
    """
    height, *others = tiled.reader.frame_shape
    strip = strip_rows(others[0]) if len(others) == 1 else 1
    halo = halo_rows(tiled.calibration.fitted, tiled.detection, strip)
    # Few planes are no more work than their halo.
    least = 1 if len(others) == 1 else halo
    kept = ChunkCache(tiled.reader, number, threads.available())
    pixels, recorded, level = _windows(tiled, number, kept)
    mask = None if tiled.mask is None else to_host(tiled.mask.read(np.array([number])))[0]
    highest, begun, before = -math.inf, 0, 0
    for rows, corrected in read_ahead(_tiles(tiled, number, kept, recorded)):
        pixels.add(corrected[0])
        if recorded is not pixels:
            recorded.add(rows[0])
        highest = max(highest, _largest(rows))
        del rows, corrected
        # A block ends as the detection's strips do, so that its strips are those of the frame.
        end = height if pixels.last == height else pixels.last // strip * strip - halo
        if end < min(begun + least, height):
            continue
        there = slice(max(begun - halo, 0), min(end + halo, height))
        block = _block(tiled, pixels, recorded, there, level)
        block.mask = None if mask is None else mask[there]
        found = tiled.backend.detect(block, tiled.detection)
        spots = _shifted(found, there.start)
        yield RowBlock(slice(begun, end), there, spots, block, recorded, highest)
        for window in {id(one): one for one in (pixels, recorded)}.values():
            window.forget(before - halo)
        before, begun = begun, end


def halo_rows(fit: Settings, detection: Settings, strip: int) -> int:
    """Return the number of rows of a halo: as many strips of the detection as are needed.

    They cover the largest ROI and filter: the spots that the fit of a spot depends on, the pixels
    of their ROIs, and the pixels by which these spots were found.
    """
    if fit.dimensions > len(IN_PLANE):
        volume = make_volume_bands(
            detection.known_sigma, detection.known_sigma_z, (_TALL, 1, 1)
        ).volume
        assert volume is not None
        filtered = len(volume.kernels[-1]) + volume.reach[0][0]
        apart = detection.min_distance * detection.known_sigma_z / detection.known_sigma
        return _reach_of_fits(fit) + filtered + math.ceil(apart) + _PLANES
    bands = make_bands(detection.known_sigma, (1, 1))
    filters = make_detection_settings(detection, bands, lambda _: None)
    margin = math.ceil(3 * float(filters.reach)) + 1
    reach = reach_in_pixels(filters) + 3 * margin
    connected = max(_FLAT_AREA, math.ceil(_CHAIN * detection.min_distance))
    needed = _reach_of_fits(fit) + _reach_of_pixels(fit) + reach + connected
    needed += (
        _reach_of_regions(fit) + far_reach(fit) + math.ceil(texture_reach(detection.known_sigma))
    )
    return -(-needed // strip) * strip


def _block(
    tiled: Tiled, pixels: RowBuffer, recorded: RowBuffer, rows: slice, level: float
) -> Block:
    """Return some rows of a frame."""
    there = pixels.frames[:, rows]
    taken = there if recorded is pixels else recorded.frames[:, rows]
    noise_map = None if tiled.variances is None else tiled.variances[rows]
    return Block(
        there, taken, noise_map=noise_map, level=level, first_row=rows.start, height=pixels.height
    )


def spots_in_tiles(tiled: Tiled, number: int) -> Candidates:
    """Return the spots of a frame."""
    parts = (_in_rows(block.spots, block.own) for block in row_blocks(tiled, number))
    spots = joined([nothing(len(tiled.reader.axes)), *parts])
    return spots._replace(frame=np.full(len(spots.y), number))


def fits_in_tiles(tiled: Tiled, number: int) -> Iterator[tuple[dict[str, NDArray[Any]], Fraction]]:
    """Yield the columns of fits in a frame, some rows after the other, and the rows' share."""
    calibration, height = tiled.calibration, tiled.reader.frame_shape[0]
    reach = _reach_of_fits(calibration.fitted)
    around = reach + _reach_of_regions(calibration.fitted) + far_reach(calibration.fitted)
    planes = calibration.planes(np.array([number]), np.empty(0))
    variances = calibration.variances(np.array([number]), np.empty(0))
    bad, top = calibration.bad_pixels(np.array([number])), _Top(tiled.reader, number)
    # No other block is worked on meanwhile, so that all threads are for this one.
    job = FitJob.of(calibration, tiled.reader.dtype, tiled.detection, one_row_per_position=False)
    # Spots are found in the rows that come next while those before are fitted.
    for rows in read_ahead(row_blocks(tiled, number)):
        begin, end, block = rows.own.start, rows.own.stop, rows.block
        near = _in_rows(rows.spots, slice(begin - around, end + around))
        block.planes, block.variances = _cut(planes, rows.rows), _cut(variances, rows.rows)
        block.bad, block.highest = bad, top.highest(rows)
        positions = Positions(near.places(), near.frame, score=near.score)
        columns = tiled.backend.fit(job, block, positions)
        columns = fit_crowds(tiled.backend, job, block, positions, columns)
        which = rows_of(job, columns)
        check_counts(calibration, block, positions, columns, which)
        offer_rois(calibration, block, positions.frames[which], columns)
        if calibration.light is not None:
            calibration.light.correct(columns, np.full(len(columns["z"]), number))
        columns["score"] = scores_of(which, near.score)
        # Spots that are fitted together come with the first of them, but not those that are so far
        # behind it that the block does not have all around them: the next one does.
        at, late = _along(near)[which], reach // 2
        first = of_first(columns, at)
        own = (first >= begin) & (first < end) | (first < begin) & (at >= begin + late)
        own &= at < end + late
        yield whole_fits(columns, own), Fraction(end - begin, height)


def _cut(planes: Planes | None, rows: slice) -> Planes | None:
    """Return the maps of some rows of pixels."""
    return None if planes is None else Planes(planes.values[:, rows])


class _Top:
    """The largest number of a frame, as far as it is known."""

    def __init__(self, reader: FrameReader, number: int) -> None:
        self._reader, self._number = reader, number
        self._of_all: float | None = None

    def highest(self, block: RowBlock) -> Highest:
        """Return what is known of it when some rows have been read."""
        last = block.recorded.last
        here = block.highest if self._of_all is None else self._of_all

        def of_all() -> float:
            if self._of_all is None:
                later = [rows for rows in self._reader.tiles() if rows[0] >= last]
                number = np.array([self._number])
                parts = (
                    self._reader.read_part(number, _part_of(self._reader, *rows)) for rows in later
                )
                self._of_all = max([here, *map(_largest, parts)])
            return self._of_all

        return Highest(here, of_all)


def _tiles(
    tiled: Tiled, number: int, kept: ChunkCache, recorded: RowBuffer
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the tiles of a frame: its rows as they are, and as the detection takes them."""
    reader, numbers = tiled.reader, np.array([number])
    for first, last in reader.tiles():
        room = recorded.room(first, last)
        kept.read_rows(room, first)
        rows, part = room[np.newaxis], _part_of(reader, first, last)
        yield rows, tiled.calibration.corrected(numbers, rows, mark_bad=True, part=part)


def _part_of(reader: FrameReader, first: int, last: int) -> Part:
    """Return some rows, or planes, of a frame."""
    return slice(first, last), *(slice(0, size) for size in reader.frame_shape[1:])


def _windows(tiled: Tiled, number: int, kept: ChunkCache) -> tuple[RowBuffer, RowBuffer, float]:
    """Return windows for the pixels as the detection takes them, and as they are; perhaps the same.

    And the frame's level, from which all tiles count, so that they are rounded alike.
    """
    shape, numbers = tiled.reader.frame_shape, np.array([number])
    places = np.column_stack(np.unravel_index(level_places(math.prod(shape)), shape))
    points = kept.points(places)
    values = [
        tiled.calibration.corrected(numbers, pixel, mark_bad=True, part=pixel_at(place))
        for pixel, place in zip(points, places.tolist(), strict=True)
    ]
    level = level_of(np.concatenate(values).ravel())
    pixels = RowBuffer(shape, values[0].dtype)
    if values[0] is points[0]:
        return pixels, pixels, level
    return pixels, RowBuffer(shape, points[0].dtype), level


def _reach_of_fits(settings: Settings) -> int:
    """Return how many rows away the spots are, at most, on which the row of a spot depends.

    Fits end in their ROIs, which may be shifted into the image: another one that may have ended in
    the same crowd began no farther away than that reaches and two of them; and pixels are its own,
    or not, by spots that are as far again. Planes of volumes count by the widths of spots.
    """
    if settings.dimensions > len(IN_PLANE):
        planes, rows, columns = settings.roi_shape
        times = settings.known_sigma_z / settings.known_sigma
        return 3 * planes + math.ceil(math.hypot(planes, times * rows, times * columns)) + 2
    across = math.hypot(*settings.roi_shape)
    return math.ceil(3 * across + settings.roi_shape[0] + CROWD * settings.known_sigma) + 2


def _reach_of_regions(settings: Settings) -> int:
    """Return how many rows away crowds are, at most, with which a crowd is looked at."""
    if settings.neighbours != "auto" or settings.dimensions > len(IN_PLANE):
        return 0
    return math.ceil(REGION * settings.known_sigma) + 2


def _reach_of_pixels(settings: Settings) -> int:
    """Return how far around a ROI the search for hot pixels reaches."""
    return max(_HOT_PIXELS, round(_HOT_PIXELS * settings.known_sigma)) + 2


def _largest(pixels: NDArray[Any]) -> float:
    return float(np.fmax.reduce(pixels, axis=None))  # NaN is no number


def _in_rows(spots: Candidates, rows: slice) -> Candidates:
    """Return those of spots, which are in order, that are in some rows."""
    which = slice(*np.searchsorted(_along(spots), (rows.start, rows.stop)).tolist())
    return spots.rows(which)


def _along(spots: Candidates) -> NDArray[np.int64]:
    """Return where spots are along the first axis of their frame."""
    return spots.y if spots.z is None else spots.z


def _shifted(spots: Candidates, first: int) -> Candidates:
    """Return spots of a part of a frame in the whole one."""
    if spots.z is None:
        return spots._replace(y=spots.y + first)
    return spots._replace(z=spots.z + first)
