"""Localize with Dask, on any number of machines: one task for the frames of each part."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import as_array, is_on_device, known_shape, to_host
from ..images.camera import Camera
from ..images.channels import Channel, Maps
from ..images.files.image_file import ImageFile
from ..images.files.opening import opened
from ..images.frames import FrameReader, FrameSelection
from ..models.columns import CHANNEL
from ..results.joining import joined_parts
from ..settings.settings import Settings
from ..version import __version__
from .plan import Plan, fitted, measured, planned
from .stored import Store, StoredPart, StoredRun, kind_of, parts_of, ranges_of, with_estimates

if TYPE_CHECKING:
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd
    from dask.delayed import Delayed


class File(NamedTuple):
    """An image file, which is opened where it is read."""

    path: Path
    #: When it was changed last: another file of the same name is another task.
    changed: int
    #: The axis of its channels, and the number of the one that is read.
    chosen: tuple[int, int] | None = None


class Part(NamedTuple):
    """All that the fits of some frames depend on, with nothing left to estimate.

    Image and maps are files, things that read themselves wherever they are, or the frames of this
    part, NumPy's, of shape (n, …, Y, X).
    """

    #: The shape of the whole image.
    shape: tuple[int, ...]
    numbers: NDArray[np.int64]
    #: With estimates and the kind of backend.
    settings: Settings
    image: Any
    mask: Any = None
    weights: Any = None
    bad_pixels: Any = None
    camera: Camera | None = None

    def plan(self) -> Plan:
        """Return the plan of its fits on this machine."""
        # Dask gives each of its threads a part: more of our own would be in each other's way.
        settings = self.settings.changed(threads=self.settings.threads or 1)
        image, mask, weights, bad = map(
            self._here, (self.image, self.mask, self.weights, self.bad_pixels)
        )
        return planned(image, settings, None, Maps(mask, weights, bad, self.camera))

    def _here(self, given: Any) -> Any:
        """Return an image, or a map, as this machine reads it."""
        if isinstance(given, File):
            return _opened(given, threading.get_ident())
        if not isinstance(given, np.ndarray) or given.ndim == self.settings.dimensions:
            return given
        if not len(self.numbers):
            return np.broadcast_to(np.zeros((), given.dtype), self.shape)
        planes = math.prod(given.shape[1:-2])  # of a volume; files have them one by one
        numbers = (self.numbers[:, np.newaxis] * planes + np.arange(planes)).ravel()
        read = partial(_read, given.reshape(-1, *given.shape[-2:]), numbers)
        return ImageFile(Path("frames"), self.shape, given.dtype, read)


def table_of(part: Part) -> pd.DataFrame:
    """Return the fits of a part as a table."""
    parts = fitted(part.plan(), [part.numbers])
    return joined_parts((fits.to_host(), 1.0) for fits, _ in parts).to_dataframe()


def stored(part: Part, store: Store) -> StoredPart:
    """Return the part in a folder, after writing it there if it is missing."""
    run = StoredRun(store, part.settings, [part.numbers])
    spots = sum(len(fits) for fits, _ in parts_of(part.plan(), run))
    return StoredPart(store.path(part.numbers), spots)


@lru_cache(maxsize=16)
def _opened(file: File, thread: int) -> Any:
    """Return an open image: the next part's is the same; each thread reads one of its own."""
    image = opened(file.path)
    return image if file.chosen is None else image.at(*file.chosen)


def _read(frames: NDArray[Any], numbers: NDArray[np.int64], first: int, count: int) -> NDArray[Any]:
    """Return ``count`` frames from a first one on."""
    place = int(np.searchsorted(numbers, first))
    return frames[place : place + count]


def lazy_channels(
    channels: Sequence[Channel], settings: Settings, frames: FrameSelection
) -> tuple[dd.DataFrame, list[Settings]]:
    """Return the spots of channels as one Dask DataFrame, and the settings of each."""
    tables, known = [], []
    for one in channels:
        table, own = lazy_table(one.image, settings, frames, one.maps)
        if one.is_one_of_all:
            order = [CHANNEL, *table.columns]
            table = table.assign(**{CHANNEL: np.int64(one.number or 0)})[order]
        tables.append(table)
        known.append(own)
    if len(tables) == 1:
        return tables[0], known
    import dask.dataframe as dd

    return dd.concat(tables), known


def lazy_table(
    image: Any, settings: Settings, frames: FrameSelection, maps: Maps
) -> tuple[dd.DataFrame, Settings]:
    """Return the spots as a Dask DataFrame, one partition for the frames of a part.

    Its settings, too: a few frames of the image are read to estimate what they leave open.
    """
    _need_dask()
    import dask.dataframe as dd

    there = opened(image)
    settings = settings.changed(backend=kind_of(there, settings, frames))
    reader, calibration = measured(there, settings, maps)
    settings = with_estimates(settings, calibration.settings)
    ranges = ranges_of(reader, reader.select(frames), settings.backend)
    parts = _tasks(table_of, image, settings, ranges, maps)
    # Columns and types, of no frames; the machine that fits may have a GPU, and this one none.
    plan = planned(there, settings.changed(backend="cpu"), None, maps)
    ((nothing, _),) = fitted(plan, [np.arange(0)])
    return dd.from_delayed(list(parts), meta=nothing.to_dataframe()), calibration.settings


def lazy_stored(image: Any, run: StoredRun, maps: Maps) -> list[Delayed]:
    """Return a task for each part of a run, which writes it and returns where, and how many."""
    _need_dask()
    return list(_tasks(stored, image, run.settings, run.ranges, maps, run.store))


def _tasks(
    work: Callable[..., Any],
    image: Any,
    settings: Settings,
    ranges: list[NDArray[np.int64]],
    maps: Maps,
    *more: Any,
) -> Iterator[Delayed]:
    """Yield the Dask task of each part; large values are sent once."""
    from dask.delayed import delayed

    axes, camera = settings.dimensions, maps.camera
    shape = FrameReader(image, spatial=axes).shape
    given = [_for_each(one, ranges, one is image, axes) for one in (image, *maps[:3])]
    # What all have in common is sent once, and looked through once.
    do = delayed(_done, pure=True)
    common = delayed((__version__, work, more, shape, settings, camera), pure=True, traverse=False)
    for numbers, *own in zip(ranges, *given, strict=True):
        yield do(common, numbers, *own)


def _done(
    common: tuple[Any, ...],
    numbers: NDArray[np.int64],
    image: Any,
    mask: Any,
    weights: Any,
    bad_pixels: Any,
) -> Any:
    version, work, more, shape, settings, camera = common
    if version != __version__:
        raise RuntimeError(
            f"napari-spotfit {version} shared out this work, and a worker of Dask has "
            f"{__version__}, whose fits may differ: install one version on all machines"
        )
    return work(Part(shape, numbers, settings, image, mask, weights, bad_pixels, camera), *more)


def _for_each(values: Any, ranges: list[NDArray[np.int64]], is_image: bool, axes: int) -> list[Any]:
    """Return the part of an image, or of a map, that each task needs."""
    from dask.delayed import delayed

    if values is None:
        return [None] * len(ranges)
    chosen = getattr(values, "chosen", None)
    if isinstance(values, ImageFile) and values.path.exists():
        values = values.path
    if isinstance(values, (str, os.PathLike)):
        path = Path(values).resolve()
        values = File(path, path.stat().st_mtime_ns, chosen)
        return [delayed(values, pure=True, traverse=False)] * len(ranges)
    if is_on_device(values) or not (hasattr(values, "shape") and hasattr(values, "dtype")):
        values = to_host(as_array(values))
    if isinstance(values, np.ndarray) and (is_image or values.ndim > axes):
        frames = values.reshape(-1, *values.shape[-axes:])
        return [_chosen(frames, numbers) for numbers in ranges]
    if type(values).__module__.startswith("dask."):
        if len(values.shape) > axes or is_image:
            return _frames_of_dask(values, ranges, axes)
        values = values.compute()
    return [delayed(values, pure=True, traverse=False)] * len(ranges)


def _chosen(frames: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return frames of rising numbers, as they lie where they follow each other."""
    first, last = (numbers[0], numbers[-1] + 1) if len(numbers) else (0, 0)
    if last - first == len(numbers):
        return np.asarray(frames[first:last])
    return np.asarray(frames[numbers])


def _frames_of_dask(array: da.Array, ranges: list[NDArray[np.int64]], axes: int) -> list[Any]:
    """Return the frames of each part as tasks of Dask's graph."""
    frames = array.reshape(-1, *known_shape(array, "the image")[-axes:])
    numbers = np.concatenate(ranges)
    if not len(numbers):
        return [np.empty((0, *frames.shape[1:]), array.dtype)]
    if len(numbers) < len(frames):
        frames = frames[numbers]
    sizes = tuple(map(len, ranges))
    return list(frames.rechunk((sizes, *axes * (-1,))).to_delayed().ravel())


def _need_dask() -> None:
    if find_spec("dask") is None or find_spec("pyarrow") is None:
        raise ImportError('this needs Dask, which is missing: pip install "napari-spotfit[dask]"')
