"""Frames too large for memory: found and fitted in tiles, the same as in the whole frame.

A tile is some rows of a frame, as wide as the frame. Each is read once, in order. Of the rows
before it so many stay in memory as what is in it depends on: the filters, the flat areas of
saturated spots, which of two spots too close to each other stays, the pixels of ROIs, and fits of
neighbours. What depends on rows that are still to come waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.backend import Backend
from ..engine.block import Block, fit_block
from ..engine.detection.candidates import Candidates, joined, nothing
from ..engine.detection.level import level_of, level_places
from ..engine.quality.flags import SAME_SPOT, SAME_SPOT_PX
from ..engine.saturation import Highest
from ..images.arrays import to_host
from ..images.camera import PerPixel
from ..images.frames import FrameReader
from ..images.large_frames import KeptChunks, Window
from ..images.pixel_calibration import PixelCalibration, Planes
from ..settings.settings import Settings
from .chunks import read_ahead
from .own_maxima import OnBackend, OnHost, OwnMaxima
from .tile_spots import TileSpots

#: How far away the surroundings of a lone pixel are looked at, in units of σ, and at least in px.
_LONE_PIXELS = 2


def works_in_tiles(reader: FrameReader, backend: Backend) -> bool:
    """Whether frames are worked in tiles: large ones that do not lie where they are worked on."""
    return reader.in_tiles and not (reader.on_device and backend.kind == "cuda")


class Tiled(NamedTuple):
    """What is the same for all frames that are worked in tiles."""

    backend: Backend
    reader: FrameReader
    calibration: PixelCalibration
    #: What looks for spots, and variances of pixels beside its noise.
    detection: Settings
    variances: NDArray[np.float32] | None
    mask: PerPixel | None


class Found(NamedTuple):
    """Spots that nothing changes that is still to come, and the rows of the frame in memory."""

    spots: Candidates
    #: All spots before this row have been found.
    end: int
    pixels: Window
    taken: Window
    #: The largest number until now, and the frame's level.
    highest: float
    level: float


def spots_in_tiles(tiled: Tiled, number: int) -> Generator[Found, int, None]:
    """Yield the spots of a frame, some rows after the other; send the first row still needed."""
    kept = KeptChunks(tiled.reader, number, threads.available())
    pixels, taken, level = _windows(tiled, number, kept)
    spots, highest = _spots(tiled, number, level), -math.inf
    for rows, corrected in read_ahead(_tiles(tiled, number, kept, taken)):
        pixels.add(corrected[0])
        if taken is not pixels:
            taken.add(rows[0])
        highest = max(highest, _largest(rows))
        del rows, corrected
        found = spots.find(pixels)
        needed = yield Found(found, spots.end, pixels, taken, highest, level)
        needed = min(needed, spots.first_needed)
        pixels.forget(needed)
        if taken is not pixels:
            taken.forget(needed)


def _spots(tiled: Tiled, number: int, level: float) -> TileSpots:
    """Return what finds the spots of a frame with the level."""
    settings, variances = tiled.detection, tiled.variances
    mask = None if tiled.mask is None else to_host(tiled.mask.read(np.array([number])))[0]
    source: OwnMaxima = OnHost(settings, variances, level)
    if tiled.backend.kind == "cuda":
        source = OnBackend(tiled.backend, settings, variances, level)
    return TileSpots(source, settings.min_distance, level, mask)


def all_spots_in_tiles(tiled: Tiled, number: int) -> Candidates:
    """Return the spots of a frame."""
    source = spots_in_tiles(tiled, number)
    parts, found = [], next(source, None)
    while found is not None:
        parts.append(found.spots)
        try:
            found = source.send(tiled.reader.frame_shape[0])
        except StopIteration:
            found = None
    spots = joined(parts)
    return spots._replace(frame=np.full(len(spots.y), number))


class Rows(NamedTuple):
    """Rows of a frame whose spots can be fitted."""

    #: From the first row to the one before the last; the spots there, and beside.
    begin: int
    end: int
    spots: Candidates
    #: The frame, of which these rows of pixels are there.
    block: Block
    pixels: slice


def fits_in_tiles(tiled: Tiled, number: int) -> Iterator[tuple[dict[str, NDArray[Any]], Fraction]]:
    """Yield the columns of fits in a frame, some rows after the other, and the rows' share."""
    calibration, height = tiled.calibration, tiled.reader.frame_shape[0]
    sigma = calibration.fitted.known_sigma
    # No other block is worked on meanwhile, so that all threads are for this one.
    alone = tiled.backend._replace(workers=1)
    # Spots are found in the rows that come next while those before are fitted.
    for rows in read_ahead(_rows_to_fit(tiled, number)):
        own = rows.spots
        places = np.column_stack([own.y, own.x]).astype(float)
        columns = fit_block(
            alone, _there(alone, rows), calibration, own.frame, places, sigma, tiled.detection,
        )  # fmt: skip
        columns["score"] = own.score
        inside = (own.y >= rows.begin) & (own.y < rows.end)
        share = Fraction(rows.end - rows.begin, height)
        yield {name: column[inside] for name, column in columns.items()}, share


def _rows_to_fit(tiled: Tiled, number: int) -> Iterator[Rows]:
    """Yield rows of a frame with all that their fits depend on."""
    calibration, height = tiled.calibration, tiled.reader.frame_shape[0]
    settings, numbers = calibration.fitted, np.array([number])
    reach, beside = _reach_of_fits(settings), settings.roi_shape[0] + _reach_of_pixels(settings)
    planes = calibration.planes(numbers, np.empty(0))
    variances = calibration.variances(numbers, np.empty(0))
    bad, top = calibration.bad_pixels(numbers), _Top(tiled.reader, number)
    source, held, begun = spots_in_tiles(tiled, number), nothing(), 0
    found, still_fitted = next(source), 0
    while True:
        held = joined([held, found.spots])
        is_last = found.end == height
        end = height if is_last else min(found.end, found.pixels.last - beside) - reach
        if end > begun or is_last:
            pixels, taken = found.pixels.frames, found.taken.frames
            highest = top.highest(found)
            block = Block(pixels, pixels, planes, variances, taken, bad, highest, found.level)
            there = slice(max(begun - reach - beside, 0), min(end + reach + beside, height))
            yield Rows(begun, end, _of(held, held.y < end + reach), block, there)
            # They are fitted while the next ones are looked for.
            still_fitted, begun = begun, end
            held = _of(held, held.y >= begun - reach)
        if is_last:
            return
        found = source.send(still_fitted - reach - beside)


def _there(backend: Backend, rows: Rows) -> Block:
    """Return the block with the frame where the backend reads it: a GPU is sent what is there."""
    if backend.kind == "cpu":
        return rows.block
    block, own = rows.block, (slice(None), rows.pixels)
    frames = backend.upload(block.pixels[own])
    taken = block.pixels if block.taken is block.pixels else block.taken[own]
    return block._replace(
        frames=frames, planes=_cut(block.planes, own), variances=_cut(block.variances, own),
        taken=taken, first_row=rows.pixels.start,
    )  # fmt: skip


def _cut(planes: Planes | None, own: tuple[slice, slice]) -> Planes | None:
    """Return what is known of some rows of pixels."""
    return None if planes is None else Planes(planes.values[own])


class _Top:
    """The largest number of a frame, as far as it is known."""

    def __init__(self, reader: FrameReader, number: int) -> None:
        self._reader, self._number = reader, number
        self._of_all: float | None = None

    def highest(self, found: Found) -> Highest:
        """Return what is known of it when some rows have been read."""
        last = found.taken.last
        here = found.highest if self._of_all is None else self._of_all

        def of_all() -> float:
            if self._of_all is None:
                later = [rows for rows in self._reader.tiles() if rows[0] >= last]
                parts = (_rows_of(self._reader, self._number, *rows) for rows in later)
                self._of_all = max([here, *map(_largest, parts)])
            return self._of_all

        return Highest(here, of_all)


def _tiles(
    tiled: Tiled, number: int, kept: KeptChunks, taken: Window
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the tiles of a frame: its rows as they are, and as the detection takes them."""
    reader, numbers = tiled.reader, np.array([number])
    columns = slice(0, reader.frame_shape[1])
    for first, last in reader.tiles():
        room = taken.room(first, last)
        kept.read_rows(room, first)
        rows = room[np.newaxis]
        part = slice(first, last), columns
        yield rows, tiled.calibration.corrected(numbers, rows, mark_bad=True, part=part)


def _rows_of(reader: FrameReader, number: int, first: int, last: int) -> NDArray[Any]:
    part = slice(first, last), slice(0, reader.frame_shape[1])
    return reader.read_part(np.array([number]), part)


def _windows(tiled: Tiled, number: int, kept: KeptChunks) -> tuple[Window, Window, float]:
    """Return windows for the pixels as the detection takes them, and as they are; perhaps the same.

    And the frame's level, from which all tiles count, so that they are rounded alike.
    """
    (height, width), numbers = tiled.reader.frame_shape, np.array([number])
    y, x = np.divmod(level_places(height * width), width)
    points = kept.points(y, x)
    values = [
        tiled.calibration.corrected(
            numbers, pixel, mark_bad=True, part=(slice(row, row + 1), slice(column, column + 1))
        )
        for pixel, row, column in zip(points, y.tolist(), x.tolist(), strict=True)
    ]
    level = level_of(np.concatenate(values).ravel())
    pixels = Window((height, width), values[0].dtype)
    if values[0] is points[0]:
        return pixels, pixels, level
    return pixels, Window((height, width), points[0].dtype), level


def _reach_of_fits(settings: Settings) -> int:
    """Return how many rows away the spots are, at most, on which the row of a spot depends.

    Fits end in their ROIs, which may be shifted into the image: another one that may have ended at
    the same place began no farther away than two of them; and pixels are its own, or not, by spots
    that are as far again.
    """
    across = math.hypot(*settings.roi_shape)
    same = max(SAME_SPOT * settings.known_sigma, SAME_SPOT_PX)
    return math.ceil(3 * across + settings.roi_shape[0] + same) + 2


def _reach_of_pixels(settings: Settings) -> int:
    """Return how far from a ROI pixels are that tell which of its own are lone ones."""
    return max(_LONE_PIXELS, round(_LONE_PIXELS * settings.known_sigma)) + 2


def _largest(pixels: NDArray[Any]) -> float:
    return float(np.fmax.reduce(pixels, axis=None))  # NaN is no number


def _of(spots: Candidates, which: NDArray[np.bool_]) -> Candidates:
    return Candidates._make(column[which] for column in spots)
