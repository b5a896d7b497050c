"""Store the results of a run part by part in a folder, so that an interrupted run continues."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.cpu import library
from ..engine.select import select_backend
from ..files.parts import (
    Run,
    difference,
    folder_lock,
    part_path,
    part_pieces,
    part_writer,
    parts_in,
    plain,
    read_run,
    remove_parts,
    remove_unfinished,
    write_run,
)
from ..images.camera import Camera
from ..images.channels import Maps
from ..images.frames import FrameReader, FrameSelection
from ..images.identity import identity, values_identity
from ..images.reading import all_before
from ..results.fit_parts import in_whole_groups
from ..results.saving import fits_of
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings
from ..version import __version__
from ..workers import Workers
from .chunks import gpu_pays_off
from .plan import Fitted, Plan, fitted, measured
from .tiles import works_in_tiles

#: Settings that change nothing about the numbers.
_NO_MATTER = ("threads", "devices")


def key_of(image: Any, maps: Maps) -> dict[str, Any]:
    """Return what fits depend on besides settings and backend: image, maps and version."""
    camera = maps.camera or Camera()
    values = {
        "mask": maps.mask, "weights": maps.weights, "bad_pixels": maps.bad_pixels,
        "offset": camera.offset, "gain": camera.gain, "variance": camera.variance,
    }  # fmt: skip
    given = {name: values_identity(one) for name, one in values.items() if one is not None}
    return {"version": __version__, "image": identity(image), **given}


def with_settings(
    key: dict[str, Any], settings: Settings, kind: str, numbers: NDArray[np.int64]
) -> dict[str, Any]:
    """Return a key with settings, the kind of backend, its instruction set here, and frames."""
    return {
        **key,
        "settings": {
            name: value for name, value in settings.to_dict().items() if name not in _NO_MATTER
        },
        "backend": kind,
        "instruction_set": library.load().instruction_set if kind == "cpu" else None,
        "frames": _frames(numbers),
    }


def _frames(numbers: NDArray[np.int64]) -> dict[str, Any]:
    ends = [int(numbers[0]), int(numbers[-1])] if len(numbers) else None
    found = hashlib.blake2b(np.ascontiguousarray(numbers, "<i8").tobytes(), digest_size=16)
    return {"count": len(numbers), "first_and_last": ends, "numbers": found.hexdigest()}


#: Bytes of the frames of a part: as much as a killed run loses, a second's work or so. A GPU works
#: on several blocks of one part at a time.
_PART_BYTES, _GPU_PART_BYTES = 128 << 20, 1 << 30


class OtherRunError(ValueError):
    """A folder has parts of another run; the message states the differences."""


class StoredPart(NamedTuple):
    """A part in a folder."""

    #: Its file.
    path: Path
    #: How many spots it has.
    spots: int


@dataclass(frozen=True)
class Store:
    """A folder of the parts of a run."""

    folder: Path
    #: What all parts are made of.
    key: dict[str, Any]
    #: The settings of the results.
    settings: Settings

    def path(self, numbers: NDArray[np.int64]) -> Path:
        """Return the path of the part of some frames."""
        return part_path(self.folder, first_of(numbers))

    def load(self, numbers: NDArray[np.int64]) -> Iterator[SpotFits] | None:
        """Return the fits of a part in pieces, None where it is missing."""
        pieces = part_pieces(self.path(numbers), self._key(numbers))
        if pieces is None:
            return None
        return in_whole_groups(self._known(fits_of(piece)) for piece in pieces)

    @contextmanager
    def saving(self, numbers: NDArray[np.int64]) -> Iterator[Callable[[SpotFits], None]]:
        """Yield a function that adds fits to a part."""
        with part_writer(self.path(numbers), self._key(numbers)) as add:
            yield lambda fits: add(self._known(fits).to_table())

    def save(self, numbers: NDArray[np.int64], fits: SpotFits) -> None:
        """Write the fits of a part."""
        with self.saving(numbers) as add:
            add(fits)

    def _known(self, fits: SpotFits) -> SpotFits:
        return SpotFits(fits.columns, fits.index_names, self.settings)

    def _key(self, numbers: NDArray[np.int64]) -> dict[str, Any]:
        return with_settings(self.key, self.settings, self.settings.backend, numbers)


class StoredRun(NamedTuple):
    """A run whose parts are stored."""

    store: Store
    #: The settings that were asked for, with all that was estimated.
    settings: Settings
    #: Numbers of the frames of each part.
    ranges: list[NDArray[np.int64]]
    #: Whether the folder is locked, so that no other process, as Dask's workers, writes to it.
    alone: bool = False


def first_of(numbers: NDArray[np.int64]) -> int:
    """Return the number of the first frame; 0 where there are none."""
    return int(numbers[0]) if len(numbers) else 0


def ranges_of(
    reader: FrameReader, numbers: NDArray[np.int64], kind: str
) -> list[NDArray[np.int64]]:
    """Return the frames of each part for a kind of backend; one part at least.

    All frames of a part come before those of later ones. Chunks of images are not divided.
    """
    size = _GPU_PART_BYTES if kind == "cuda" else _PART_BYTES
    blocks = reader.blocks(numbers, 1, size) or [numbers]
    ranges: list[NDArray[np.int64]] = []
    held: list[NDArray[np.int64]] = []
    for block, complete in zip(blocks, all_before(blocks), strict=True):
        held.append(block)
        if complete:
            ranges.append(np.sort(np.concatenate(held)))
            held = []
    return ranges


def store_in(
    folder: str | os.PathLike[str],
    image: Any,
    settings: Settings,
    frames: FrameSelection,
    maps: Maps,
    other: Callable[[str], object],
) -> StoredRun:
    """Return a run whose parts are stored in a folder: the one there, if that is of the same.

    Then nothing is estimated again.

    Parameters
    ----------
    folder : str or path
        Where; it is made where it is missing.
    image : array or path
        The image.
    settings : Settings
        What is asked for.
    frames : FrameSelection
        Which frames.
    maps : Maps
        What there is for each pixel.
    other : callable
        Called with what differs if there are parts of another run, which are removed after it.

    Raises
    ------
    PartsError
        If another run works in the folder, or it cannot be written to.
    """
    place, reader = Path(folder), FrameReader(image, spatial=settings.dimensions)
    numbers = reader.select(frames)
    kind = kind_of(image, settings, frames)
    key = key_of(image, maps)
    asked = plain(with_settings(key, settings, kind, numbers))
    there = read_run(place)
    if differs := _difference(place, there, asked):
        other(differs)
        there = None
    settings = settings.changed(backend=kind)
    if there is not None:
        settings = with_estimates(settings, there.settings)
    reader, calibration = measured(image, settings, maps)
    settings = with_estimates(settings, calibration.settings)
    ranges = ranges_of(reader, numbers, kind)
    with folder_lock(place):
        if there is None:
            remove_parts(place)
        remove_unfinished(place)
        write_run(place, Run(asked, settings, [first_of(numbers) for numbers in ranges]))
    return StoredRun(Store(place, key, calibration.settings), settings, ranges, alone=True)


def kind_of(image: Any, settings: Settings, frames: FrameSelection) -> Literal["cpu", "cuda"]:
    """Return the kind of backend that fits an image; a requested one need not be available."""
    if settings.backend != "auto":
        return settings.backend
    reader = FrameReader(image, spatial=settings.dimensions)
    return select_backend(settings, gpu_pays_off(image, reader, frames)).kind


def with_estimates(settings: Settings, known: Settings) -> Settings:
    """Return settings with the estimates of others, which include a camera's maps."""
    return settings.changed(sigma=known.sigma, roi_size=known.roi_size, noise=known.noise)


def _difference(folder: Path, there: Run | None, asked: dict[str, Any]) -> str:
    """State in what the run in a folder differs from the requested one."""
    if there is not None:
        return difference(there.asked, asked)
    if parts_in(folder):
        return "it does not say what they are of, or that is damaged"
    return ""


def parts_of(plan: Plan, run: StoredRun) -> Iterator[Fitted]:
    """Yield the fits of all parts in order, and the number of their frames.

    Those that are stored are read, and all others made and stored. A caller that stops iterating
    cancels the rest.
    """
    with folder_lock(run.store.folder) if run.alone else nullcontext():
        yield from _parts_of(plan, run)


def _parts_of(plan: Plan, run: StoredRun) -> Iterator[Fitted]:
    make = _made_in_tiles if works_in_tiles(plan.reader, plan.backend) else _made
    missing: list[NDArray[np.int64]] = []
    for numbers in run.ranges:
        pieces = run.store.load(numbers)
        if pieces is None:
            missing.append(numbers)
            continue
        yield from make(plan, run.store, missing)
        yield from _counted(pieces, len(numbers))
        missing = []
    yield from make(plan, run.store, missing)


def _counted(pieces: Iterator[SpotFits], frames: int) -> Iterator[Fitted]:
    """Yield pieces, the last one with the number of frames that all are."""
    held = next(pieces)
    for piece in pieces:
        yield Fitted(held, 0)
        held = piece
    yield Fitted(held, frames)


def _made(plan: Plan, store: Store, ranges: list[NDArray[np.int64]]) -> Iterator[Fitted]:
    """Make parts and store them, each while the next one is made."""
    if not ranges:
        return
    waiting: Future[None] | None = None
    with (
        Workers(1, "napari-spotfit parts") as writer,
        closing(fitted(plan, ranges)) as stream,
    ):
        for numbers in ranges:
            held, failed = _up_to(stream, len(numbers))
            if held:
                part = SpotFits.concatenate([one.fits for one in held])
            if failed is not None:
                # What is known before a frame that cannot be read is given, but not stored.
                if held:
                    yield Fitted(part, sum(one.frames for one in held))
                raise failed
            if waiting is not None:
                waiting.result()
            waiting = writer.submit(store.save, numbers, part)
            yield Fitted(part, len(numbers))
        if waiting is not None:
            waiting.result()


def _made_in_tiles(plan: Plan, store: Store, ranges: list[NDArray[np.int64]]) -> Iterator[Fitted]:
    """Make parts that memory may not hold, and store each while it is made."""
    with closing(fitted(plan, ranges)) as stream:
        for numbers in ranges:
            left: int | Fraction = len(numbers)
            with store.saving(numbers) as add:
                while left > 0:
                    done = next(stream)
                    add(done.fits)
                    left -= done.frames
                    yield done


def _up_to(stream: Iterator[Fitted], frames: int) -> tuple[list[Fitted], Exception | None]:
    """Return what a stream gives of a number of frames, and the error that ends it before them."""
    held: list[Fitted] = []
    try:
        while not held or sum(one.frames for one in held) < frames:
            done = next(stream)
            held.append(done._replace(fits=done.fits.to_host()))
    except Exception as error:
        return held, error
    return held, None


def warn_of_other(folder: str | os.PathLike[str]) -> Callable[[str], None]:
    """Return what warns that the parts in a folder are not used, and why."""

    def warn(why: str) -> None:
        warn_caller(
            f"the parts in “{folder}” are of another run, so everything is done again: {why}"
        )

    return warn


def refuse_other(folder: str | os.PathLike[str]) -> Callable[[str], None]:
    """Return what refuses to remove the parts of another run."""

    def refuse(why: str) -> None:
        raise OtherRunError(
            f"“{folder}” has parts of another run: {why}. Choose another folder, or replace them: "
            "fresh=True"
        )

    return refuse
