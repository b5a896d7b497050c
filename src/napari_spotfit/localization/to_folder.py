"""Localize a long movie in parts: into a folder of files, or with Dask on many machines."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from ..estimation.camera_check import CameraCheck
from ..estimation.image_estimates import warn_of_gain
from ..files.parts import part_path, read_run
from ..files.table import UnreadableFileError
from ..images.arrays import as_array, is_on_device, known_shape, to_host
from ..images.camera import Camera
from ..images.channels import Channel, Maps, channel_of
from ..images.files.image_file import ImageFile
from ..images.files.opening import opened
from ..images.frames import FrameReader, FrameSelection
from ..models.columns import CHANNEL
from ..results.fit_parts import FitParts, joined_parts
from ..results.saving import load_fits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from ..version import __version__
from .orientation_check import warn_of_orientation
from .plan import Plan, check_progress, fitted, measured, planned
from .stored import (
    Store,
    StoredPart,
    StoredRun,
    kind_of,
    parts_of,
    ranges_of,
    refuse_other,
    store_in,
    warn_of_other,
    with_estimates,
)

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
            self._as_image, (self.image, self.mask, self.weights, self.bad_pixels)
        )
        return planned(image, settings, None, Maps(mask, weights, bad, self.camera))

    def _as_image(self, given: Any) -> Any:
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


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def localize_to_folder(
    image: Any,
    folder: str | os.PathLike[str],
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    progress: Callable[[int, int], object] | None = None,
    fresh: bool = False,
    lazy: bool = False,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> list[Any]:
    """Detect and fit the spots of an image, and write them to a folder of Parquet files.

    Each file, ``part-<number of its first frame>.parquet``, has the spots of some frames, and takes
    its name when it is complete. Called again with the same, a run that was killed goes on from the
    parts that are there; a damaged one is written again. :func:`~napari_spotfit.load_parts`,
    ``dask.dataframe.read_parquet(folder)`` and ``pandas.read_parquet(folder)`` read them.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        As :func:`~napari_spotfit.localize` takes it.
    folder : str or path
        Where; it is made where it is missing.
    roi_size : int or tuple of int, optional
        Side of the ROI, or (planes,) rows and columns; odd. By default about 6 σ along each axis,
        at least 9 pixels.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several; each has a
        folder of its own.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    weights : array, shape (Y, X) or (…, Y, X), optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    progress : callable, optional
        Called after each part with the number of frames that are done and their total.
    fresh : bool, default False
        Whether the parts of another run, of other settings or another image, are replaced.
    lazy : bool, default False
        Return tasks of Dask's instead, one for each part: ``dask.compute(*parts)`` does them, on as
        many machines as there are that see the folder. What the settings leave open is measured
        first. Needs ``napari-spotfit[dask]``.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    list of StoredPart
        ``path`` and ``spots``, their number, of each part in order; or what makes them.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, or if the folder has
        parts of another run.
    OSError
        If the folder cannot be written to. The parts that are there are kept.
    ImportError
        If pyarrow is missing.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import load_parts, localize_to_folder, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     parts = localize_to_folder(movie, folder)
    ...     parts[0].path.name, parts[0].spots == sum(len(fits) for fits in load_parts(folder))
    ('part-000000000.parquet', True)
    """
    settings = with_roi(settings, roi_size, options, localize_to_folder)
    check_progress(progress, lazy=lazy)
    maps = Maps(mask, weights, bad_pixels, camera)
    other = warn_of_other(folder) if fresh else refuse_other(folder)
    one = channel_of(image, channel, maps)
    there, maps = one.image, one.maps
    run = store_in(Path(folder).resolve(), there, settings, frames, maps, other)
    warn_of_gain(settings, run.store.settings)
    if lazy:
        return lazy_stored(there, run, maps)
    plan = planned(there, run.settings, frames, maps)
    spots, done, ends = 0, Fraction(0), np.cumsum([len(numbers) for numbers in run.ranges])
    written: list[StoredPart] = []
    check = CameraCheck(settings)
    for fits, count in parts_of(plan, run):
        spots, done = spots + len(fits), done + count
        check.add(fits)
        if done == ends[len(written)]:
            written.append(StoredPart(run.store.path(run.ranges[len(written)]), spots))
            spots = 0
            if progress is not None:
                progress(int(done), len(plan.numbers))
    check.warn()
    warn_of_orientation(plan.calibration)
    plan.blank.warn()
    return written


def load_parts(folder: str | os.PathLike[str]) -> FitParts:
    """Return the fits of a folder of parts, one part after the other.

    Parameters
    ----------
    folder : str or path
        A folder of :func:`~napari_spotfit.localize_to_folder`.

    Returns
    -------
    iterable of SpotFits
        It can be iterated again and again. ``save_fits(load_parts(folder), path)`` makes one file
        of them, the same to the bit as if it had been written at once.

    Raises
    ------
    ValueError
        If the folder is none of parts, some are missing, or one is damaged; the message says
        which.
    OSError
        If the folder cannot be read.

    Examples
    --------
    >>> from napari_spotfit import load_parts
    >>> load_parts("spots")
    Traceback (most recent call last):
    ...
    napari_spotfit.files.table.UnreadableFileError: “spots” is no folder of localize_to_folder, ...
    """
    place = Path(folder)
    run = read_run(place)
    if run is None:
        raise UnreadableFileError(
            f"“{place}” is no folder of localize_to_folder, or its file _run.json is damaged; call "
            "that again with the same image and settings to repair it"
        )
    paths = [part_path(place, first) for first in run.firsts]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise UnreadableFileError(
            f"“{place}” is not complete: {len(missing)} of {len(paths)} parts are missing, the "
            f"first is {missing[0]}; call localize_to_folder again with the same image and "
            "settings to go on"
        )
    return FitParts(paths, lambda paths: map(load_fits, paths))
