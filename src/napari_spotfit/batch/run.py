"""Fit many image files and write tables of their spots: for Python, command and widget."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..engine import threads
from ..files.parts import PartsError, folders_in, parts_beside, parts_in, remove_beside
from ..files.table import as_text
from ..files.writing import FileLockedError, file_lock, remove_stale, unfinished
from ..images.channels import NO_MAPS, Channel, channels_of, is_several
from ..images.files.opening import open_image
from ..images.frames import FrameReader
from ..images.identity import identity
from ..localization.localize import localize_iter
from ..localization.stored import key_of, kind_of, with_settings
from ..models.number_checks import whole
from ..results.saving import save_fits
from ..results.spot_fits import SpotFits
from ..settings.options import Options, merged, takes_settings
from ..settings.settings import Settings
from ..workers import Workers
from .masks import Cells, cells_path, mask_of, open_cells
from .request import (
    DONE,
    ENDING,
    FAILED,
    RUNNING,
    STOPPED,
    Batch,
    CompletedTables,
    Outcome,
    batch_tables,
    collected_warnings,
    data_set_warnings,
    image_files,
    images_of,
)

if TYPE_CHECKING:
    import pandas as pd

#: Called with the outcome of a file whenever it changes, in the thread that fits the file.
Report = Callable[[Outcome], object]


def run_batch(
    batch: Batch, report: Report | None = None, stopped: Callable[[], bool] | None = None
) -> list[Outcome]:
    """Find and fit the spots of image files, and write them to tables.

    A file that fails does not stop the others. Completed tables of the same input are kept, and a
    file in which an earlier run was killed is resumed.

    Parameters
    ----------
    batch : Batch
        The request.
    report : callable, optional
        Called with the outcome of a file whenever it changes.
    stopped : callable, optional
        Called often; returns whether to stop.

    Returns
    -------
    list of Outcome
        One per file, without masks among the files.

    Raises
    ------
    ValueError, OSError
        If :func:`batch_tables` refuses the output, or the table of all files cannot be written.
    """
    batch = images_of(batch)
    tables = batch_tables(batch)
    report, stopped = report or (lambda outcome: None), stopped or (lambda: False)
    with collected_warnings(report) as own_warnings:
        files = [
            _File(
                batch, file, Outcome(file.as_posix(), warnings=data_set_warnings(batch, file)),
                report, stopped, own_warnings,
            )
            for file in batch.files
        ]  # fmt: skip
        if tables is None:
            _one_table(files, batch.output)
        else:
            work = partial(_own_table, CompletedTables(batch.output))
            if batch.workers == 1:
                for _ in map(work, files, tables):
                    pass
            else:
                with Workers(batch.workers, "napari-spotfit files") as pool:
                    list(pool.map(work, files, tables))
    return [file.outcome for file in files]


def _shared(batch: Batch) -> Settings:
    """Divide the threads of settings among the files that are fitted at the same time."""
    together = min(batch.workers, len(batch.files))
    if together < 2 or batch.settings.threads is not None:
        return batch.settings
    return batch.settings.changed(threads=max(threads.available() // together, 1))


class _StoppedError(Exception):
    """The batch was stopped and keeps no partial tables."""


@dataclass
class _File:
    """One file of a batch and its outcome."""

    batch: Batch
    path: Path
    outcome: Outcome
    report: Report
    stopped: Callable[[], bool]
    own_warnings: Any
    cells: Cells | None = None

    def set_state(self, state: str) -> None:
        self.outcome.state = state
        self.report(self.outcome)

    def fail(self, text: str) -> None:
        self.outcome.error = text if self.path.name in text else f"“{self.path.name}”: {text}"
        self.set_state(FAILED)


def _own_table(completed: CompletedTables, file: _File, table: Path) -> None:
    """Write the spots of one file to its own table, unless an earlier run completed it."""
    if file.stopped():
        return
    with file.own_warnings(file.outcome):
        key = _key(file)
        kept = None
        if key is not None and not file.batch.fresh:
            kept = completed.outcome(table, key, file.outcome.file)
        if kept is not None:
            file.outcome.__dict__.update(kept.__dict__)
            file.report(file.outcome)
            return
        _write([file], table, _parts(file, table))
        if key is not None and file.outcome.state == DONE:
            completed.add(table, key, file.outcome)


def _one_table(files: list[_File], output: Path) -> None:
    """Write the spots of all files to one table."""
    if len(files) == 1:
        with files[0].own_warnings(files[0].outcome):
            _write(files, output, _parts(files[0], output))
        return
    columns: list[str] = []

    def parts() -> Generator[SpotFits, None, None]:
        for file in files:
            if file.stopped():
                return
            with file.own_warnings(file.outcome):
                for part in _parts(file, output, columns):
                    name = np.full(len(part), as_text(file.outcome.file), object)
                    # Files have their own σ and noise, so the table gets the requested settings.
                    named = {"file": name, **part.columns}
                    yield SpotFits(named, part.index_names, file.batch.settings)

    _write(files, output, parts())


def _write(files: list[_File], table: Path, parts: Generator[SpotFits, None, None]) -> None:
    """Write parts to the table of some files; without any part no table is written."""
    own = files[0] if len(files) == 1 else None
    try:
        # Keep the lock until the parts are removed: a second run would use the same folder.
        with file_lock(table), closing(parts):
            remove_stale(table)
            first = next(parts, None)
            if first is None:
                return
            save_fits(
                chain([first], parts), table, pixel_size=files[0].batch.pixel_size,
                shape=None if own is None else _shape(own),
            )  # fmt: skip
            _write_cells(files, table)
            for file in files:
                _finish(file, table)
    except _StoppedError:
        return
    except (ImportError, OSError, ValueError) as error:
        text = f"“{table}” cannot be written: {_why(error, table)}"
        if own is None:
            raise type(error)(text) if isinstance(error, ImportError) else OSError(text) from None
        # The fitted spots are in no table.
        own.outcome.frames = own.outcome.spots = own.outcome.good = 0
        own.fail(text)
        return
    if own is not None and own.outcome.state != FAILED:
        own.report(own.outcome)


def _shape(file: _File) -> tuple[int, ...] | None:
    """Return the shape of a file's image, for formats that need it; None if unknown."""
    with suppress(Exception):  # reported when the file is fitted
        return tuple(_channels(file)[0].image.shape)
    return None


def _finish(file: _File, table: Path) -> None:
    """Record the path of a file's table, and remove its parts if it is complete."""
    file.outcome.output = table.as_posix() if file.outcome.frames else ""
    if file.outcome.state == DONE and not file.stopped():
        with suppress(OSError):
            remove_beside(parts_beside(table, file.path))


def _why(error: Exception, table: Path) -> str:
    """Return the reason why a table cannot be written."""
    if isinstance(error, FileLockedError):
        return (
            f"another run writes it, with its parts in “{table.name}.parts”. Wait until it ends, "
            "or choose another output"
        )
    unchanged = isinstance(error, PartsError) and table.exists()
    return f"{error}{'. The existing table is unchanged' if unchanged else ''}"


def _write_cells(files: list[_File], table: Path) -> None:
    """Write the table of cells that accompanies a table of spots; remove an older one."""
    tables: list[pd.DataFrame] = []
    path = cells_path(table)
    for file in files:
        if file.cells is not None and file.outcome.frames:
            tables.append(file.cells.table(file.outcome.file if len(files) > 1 else None))
            file.outcome.cells = path.as_posix()
    if tables:
        import pandas as pd

        with unfinished(path) as part:
            pd.concat(tables).to_csv(part, index=False)
    elif path.exists():
        path.unlink()
        outcome = files[0].outcome
        outcome.warnings.append(
            f"the cells of an earlier run, “{path.name}”, were removed, as this run has no masks"
        )
        files[0].report(outcome)


def _parts(
    file: _File, table: Path, columns: list[str] | None = None
) -> Generator[SpotFits, None, None]:
    """Yield the spots of one file, up to a damaged frame, and update its outcome.

    Files that share a table must have the same columns.
    """
    begun, outcome, batch = time.perf_counter(), file.outcome, file.batch
    resume: Path | None = None

    def count(done: int, total: int) -> None:
        read[:] = done, total

    read, stopping = [0, 0], False
    try:
        _check_frames(file)
        resume = _resumed(file, table)
        file.set_state(RUNNING)
        if batch.labels is not None:
            file.cells = open_cells(file.path, batch.labels, batch.files, _channels(file))
        for part in localize_iter(
            file.path, frames=batch.frames, channel=batch.channel, settings=_shared(batch),
            progress=count, resume=resume,
        ):  # fmt: skip
            assert part.settings is not None
            requested = part.settings.changed(threads=batch.settings.threads)
            if is_several(batch.channel):  # channels have their own σ and noise
                requested = batch.settings
            part = SpotFits(part.columns, part.index_names, requested)
            labelled = part if file.cells is None else file.cells.labelled(part)
            if columns is not None:
                _check_alike(columns, labelled)
            if stopping := file.stopped() and not batch.keep:
                break
            _add(outcome, part)
            outcome.frames, outcome.frames_in_all = read
            outcome.seconds = time.perf_counter() - begun
            file.report(outcome)
            yield labelled
            if stopping := file.stopped():
                break
        outcome.seconds = time.perf_counter() - begun
        outcome.state = DONE if read[0] == read[1] else STOPPED
        if stopping and not batch.keep:
            file.set_state(STOPPED)
            raise _StoppedError
        if columns is not None:
            file.report(outcome)
    except (_StoppedError, PartsError):
        # The image is intact but its parts cannot be stored: write no incomplete table.
        raise
    except Exception as error:  # readers raise all kinds of errors, and other files go on
        if resume is not None and isinstance(error, ValueError):  # the next run would fail, too
            remove_beside(resume)
        known = isinstance(error, (ImportError, OSError, TypeError, ValueError)) and str(error)
        file.fail(str(error) if known else f"{type(error).__name__}: {error}")
    finally:
        outcome.seconds = time.perf_counter() - begun


def _check_frames(file: _File) -> None:
    """Raise a ValueError if a file has none of the chosen frames."""
    if file.batch.frames is not None:
        image, dimensions = _channels(file)[0].image, file.batch.settings.dimensions
        reader = FrameReader(image, spatial=dimensions)
        if len(reader.leading) != 1:
            axes = len(reader.leading)
            what = f"has frames along {axes} axes" if axes else "is one frame"
            raise ValueError(
                f"“{file.path.name}” {what}, and of movies alone, which have one axis of frames, "
                "some can be chosen: leave the choice of frames out for it"
            )
        if not len(reader.select(file.batch.frames)):
            raise ValueError(
                f"“{file.path.name}” has none of the chosen frames: there are {reader.count} in "
                "it, counted from 0"
            )


def _channels(file: _File) -> list[Channel]:
    """Return the channels of a file to fit."""
    return channels_of(open_image(file.path), file.batch.channel, NO_MAPS)


def _key(file: _File) -> dict[str, Any] | None:
    """Return the input of a file's table, to compare runs; None if unknown."""
    batch = file.batch
    try:
        channels = _channels(file)
        image = channels[0].image
        key = key_of(image, NO_MAPS) | {"channel": str(batch.channel)}
        if batch.pixel_size is not None:
            key["pixel_size"] = batch.pixel_size
        if batch.labels is not None:
            key["labels"] = identity(mask_of(file.path, batch.labels, batch.files))
        kind = kind_of(image, batch.settings, batch.frames)
        reader = FrameReader(image, spatial=batch.settings.dimensions)
        return with_settings(key, batch.settings, kind, reader.select(batch.frames))
    except Exception:  # reported when the file is fitted
        return None


def _resumed(file: _File, table: Path) -> Path | None:
    """Return the folder of a file's parts; None without pyarrow, which is needed to resume."""
    if find_spec("pyarrow") is None:
        return None
    folder = parts_beside(table, file.path)
    if file.batch.fresh:
        remove_beside(folder)
    file.outcome.parts_before = sum(len(parts_in(own)) for own in folders_in(folder))
    return folder


def _check_alike(columns: list[str], part: SpotFits) -> None:
    """Check that the spots of a file have the columns of the files before it."""
    columns[:] = columns or part.columns
    if columns != list(part.columns):
        odd = sorted(set(columns) ^ set(part.columns))
        raise ValueError(
            "its spots do not fit into the table of the files before it, as its axes differ "
            f"(columns {', '.join(odd)}); choose a folder for the output"
        )


def _add(outcome: Outcome, part: SpotFits) -> None:
    settings = part.settings
    assert settings is not None
    outcome.spots += len(part)
    outcome.good += int(np.count_nonzero(part.good))
    outcome.sigma, outcome.roi_size = settings.sigma, settings.roi_size
    outcome.backend = settings.backend


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def localize_files(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    frames: slice | None = None,
    channel: int | str | None = None,
    labels: str | os.PathLike[str] | None = None,
    workers: int = 1,
    ending: str = ENDING,
    fresh: bool = False,
    pixel_size: float | None = None,
    progress: Callable[[Outcome], object] | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> list[Outcome]:
    """Find and fit the spots of image files, and write them to tables.

    The page *Files* of *Fit spots* and the command ``napari-spotfit localize`` do the same. A file
    that fails does not stop the others. A second call with the same arguments keeps completed
    tables, and resumes the movie in which a run was killed.

    Parameters
    ----------
    files : path or sequence of path
        Image files, patterns such as ``"*.tif"``, and folders of images.
    output : path
        A folder for one table per file, or one table such as ``"all.spots.parquet"`` for the spots
        of all files, with a column ``file``. Tables of files with the same name, ``day1/a.tif`` and
        ``day2/a.tif``, are prefixed by the folder: ``day1_a.tif.spots.parquet``.
    frames : slice, optional
        Frames of each movie; all by default.
    channel : int or str, optional
        Number or name of the channel in images with several; "all" fits each separately, and adds
        a column ``channel``. Without it, files of several channels fail.
    labels : str or path, optional
        Where to find each image's mask of cells: a folder, a pattern with ``*`` for the image's
        name, an ending such as ``"_cells.tif"`` of masks in the images' folders, or one file for
        all. Spots get a column ``label``, and each table is accompanied by one of cells.
    workers : int, default 1
        Number of files at a time, if each has its own table.
    ending : str, default ".spots.parquet"
        Ending of tables in a folder, which sets their format, such as ``"_locs.hdf5"``.
    fresh : bool, default False
        Whether to ignore the results of earlier runs.
    pixel_size : float, optional
        Side of a pixel in nm, for tables of other programs.
    progress : callable, optional
        Called with the outcome of a file whenever it changes, in the thread that fits the file.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    list of Outcome
        For each file: ``file``, ``state`` (``"done"``, ``"kept"`` from an earlier run or
        ``"failed"``), ``output`` and ``cells`` (the paths of its tables), ``frames``, ``spots``,
        ``good``, ``sigma`` in pixels, ``seconds``, ``warnings``, and ``error``, empty without one.

    Raises
    ------
    TypeError, ValueError
        If there are no such files, several would have the same table, or settings are invalid.
    OSError
        If the output cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from napari_spotfit import localize_files, simulate_movie
    >>> with TemporaryDirectory() as folder:
    ...     for seed in (1, 2):
    ...         movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=seed)
    ...         np.save(Path(folder) / f"{seed}.npy", movie)
    ...     outcomes = localize_files(f"{folder}/*.npy", f"{folder}/spots", sigma=1.3)
    ...     [(outcome.state, Path(outcome.output).name) for outcome in outcomes]
    [('done', '1.npy.spots.parquet'), ('done', '2.npy.spots.parquet')]
    """
    settings = merged(settings, options, localize_files)
    if not (frames is None or isinstance(frames, slice)):
        raise TypeError(f"frames must be a slice of each movie's frames; got {frames!r}")
    workers = whole("workers", workers, 1)
    names = [files] if isinstance(files, (str, os.PathLike)) else files
    batch = Batch(
        image_files([os.fspath(name) for name in names]),
        Path(output),
        settings,
        ending,
        frames,
        channel,
        None if labels is None else os.fspath(labels),
        workers,
        fresh=fresh,
        pixel_size=pixel_size,
    )
    return run_batch(batch, progress)
