"""Many image files in, tables of spots out: what the command and the widget do."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine import threads
from ..files.parts import PartsError, parts_beside, parts_in, remove_beside
from ..files.table import as_text
from ..files.writing import FileLockedError, file_lock
from ..images.files.opening import open_image
from ..images.frames import FrameReader
from ..images.identity import identity
from ..localization.key import key_of, with_settings
from ..localization.localize import localize_iter
from ..localization.plan import NO_MAPS
from ..localization.stored import kind_of
from ..results.saving import save_fits
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings
from .asked import Batch, batch_tables, images_of, told_of
from .cells import Cells, cells_path, write_cells
from .kept import KeptTables
from .masks import mask_of, open_cells
from .outcome import DONE, FAILED, RUNNING, STOPPED, Outcome
from .warned import warnings_of

if TYPE_CHECKING:
    import pandas as pd

#: Who is told of a file whenever there is something new; called in the thread that works on it.
Tell = Callable[[Outcome], object]


def run_batch(batch: Batch, tell: Tell, stopped: Callable[[], bool]) -> list[Outcome]:
    """Find and fit the spots of image files, and write them to tables.

    A file that fails does not stop the others. What is complete and made of the same is kept, and
    a file in which an earlier run was killed goes on where that was.

    Parameters
    ----------
    batch : Batch
        What to do.
    tell : callable
        Called with the outcome of a file whenever there is something new of it.
    stopped : callable
        Asked often whether to stop.

    Returns
    -------
    list of Outcome
        What became of each file; masks that are among the files are left out.

    Raises
    ------
    ValueError, OSError
        If the output is not as :func:`batch_tables` wants it, or one table of all cannot be
        written.
    """
    batch = images_of(batch)
    tables = batch_tables(batch)
    outcomes = [Outcome(file.as_posix(), warnings=told_of(batch, file)) for file in batch.files]
    with warnings_of(tell) as own_warnings:
        files = [
            _File(batch, file, outcome, tell, stopped, own_warnings)
            for file, outcome in zip(batch.files, outcomes, strict=True)
        ]
        if tables is None:
            _one_table(files, batch.output)
        else:
            work = partial(_own_table, KeptTables(batch.output))
            if batch.workers == 1:
                for _ in map(work, files, tables):
                    pass
            else:
                with ThreadPoolExecutor(batch.workers, "napari-spotfit files") as pool:
                    list(pool.map(work, files, tables))
    return outcomes


def _shared(batch: Batch) -> Settings:
    """Return the settings with which files that are worked on together share the cores."""
    together = min(batch.workers, len(batch.files))
    if together < 2 or batch.settings.threads is not None:
        return batch.settings
    return batch.settings.changed(threads=max(threads.available() // together, 1))


class _StoppedError(Exception):
    """The batch was stopped, where nothing is to be kept."""


@dataclass
class _File:
    """One file of a batch, and what becomes of it."""

    batch: Batch
    path: Path
    outcome: Outcome
    tell: Tell
    stopped: Callable[[], bool]
    own_warnings: Any
    cells: Cells | None = None
    mask: Path | None = None

    def say(self, state: str) -> None:
        self.outcome.state = state
        self.tell(self.outcome)

    def fail(self, text: str) -> None:
        self.outcome.error = text if self.path.name in text else f"“{self.path.name}”: {text}"
        self.say(FAILED)


def _own_table(kept: KeptTables, file: _File, table: Path) -> None:
    """Write the spots of one file to a table of its own, unless they are there."""
    if file.stopped():
        return
    with file.own_warnings(file.outcome):
        key = _key(file)
        there = None
        if key is not None and not file.batch.fresh:
            there = kept.outcome(table, key, file.outcome.file)
        if there is not None:
            file.outcome.__dict__.update(there.__dict__)
            file.tell(file.outcome)
            return
        _write([file], table, _parts(file, table))
        if key is not None and file.outcome.state == DONE:
            kept.add(table, key, file.outcome)


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
                    # Each file has its own σ and noise: the table has what was asked for.
                    named = {"file": name, **part.columns}
                    yield SpotFits(named, part.index_names, file.batch.settings)

    _write(files, output, parts())


def _write(files: list[_File], table: Path, parts: Generator[SpotFits, None, None]) -> None:
    """Write parts to the table of some files; none is written where there are no parts."""
    own = files[0] if len(files) == 1 else None
    try:
        # Until its parts are removed: they are where those of the same run twice would be.
        with file_lock(table), closing(parts):
            first = next(parts, None)
            if first is None:
                return
            save_fits(chain([first], parts), table)
            _write_cells(files, table)
            for file in files:
                _finish(file, table)
    except _StoppedError:
        return
    except (ImportError, OSError, ValueError) as error:
        text = f"“{table}” cannot be written: {_why(error, table)}"
        if own is None:
            raise type(error)(text) if isinstance(error, ImportError) else OSError(text) from None
        # What was fitted is in no table.
        own.outcome.frames = own.outcome.spots = own.outcome.good = 0
        own.fail(text)
        return
    if own is not None and own.outcome.state != FAILED:
        own.tell(own.outcome)


def _finish(file: _File, table: Path) -> None:
    """Note where a file's spots are; the parts of a complete one are of no more use."""
    file.outcome.output = table.as_posix() if file.outcome.frames else ""
    if not (file.stopped() or file.outcome.state != DONE):
        with suppress(OSError):
            remove_beside(parts_beside(table, file.path))


def _why(error: Exception, table: Path) -> str:
    """Say why a table is not written."""
    if isinstance(error, FileLockedError):
        return (
            f"another run is at it, with its parts in “{table.name}.parts”. Wait until that one "
            "ends, or choose another output"
        )
    as_it_was = isinstance(error, PartsError) and table.exists()
    return f"{error}{'. The table that is there is as it was' if as_it_was else ''}"


def _write_cells(files: list[_File], table: Path) -> None:
    """Write the cells of the files that have some beside their table; no others' stay there."""
    tables: list[pd.DataFrame] = []
    for file in files:
        if file.cells is not None and file.outcome.frames:
            tables.append(file.cells.table(file.outcome.file if len(files) > 1 else None))
            file.outcome.cells = cells_path(table).as_posix()
    if tables:
        write_cells(cells_path(table), tables)
    elif cells_path(table).exists():
        cells_path(table).unlink()
        outcome = files[0].outcome
        outcome.warnings.append(
            f"the cells of an earlier run, “{cells_path(table).name}”, were removed: these spots "
            "are of a run without masks"
        )
        files[0].tell(outcome)


def _parts(
    file: _File, table: Path, columns: list[str] | None = None
) -> Generator[SpotFits, None, None]:
    """Yield the spots of one file, up to where it is damaged, and note what becomes of it.

    Of several files for one table, all must have the same columns.
    """
    begun, outcome, batch = time.perf_counter(), file.outcome, file.batch
    resume: Path | None = None

    def count(done: int, total: int) -> None:
        read[:] = done, total

    read, stopping = [0, 0], False
    try:
        _check_frames(file)
        resume = _resumed(file, table)
        file.say(RUNNING)
        _open_mask(file)
        for part in localize_iter(
            file.path, frames=batch.frames, settings=_shared(batch), progress=count, resume=resume
        ):
            assert part.settings is not None
            asked = part.settings.changed(threads=batch.settings.threads)
            part = SpotFits(part.columns, part.index_names, asked)
            labelled = part if file.cells is None else file.cells.labelled(part)
            if columns is not None:
                _check_alike(columns, labelled)
            if stopping := file.stopped() and not batch.keep:
                break
            _add(outcome, part)
            outcome.frames, outcome.frames_in_all = read
            outcome.seconds = time.perf_counter() - begun
            file.tell(outcome)
            yield labelled
            if stopping := file.stopped():
                break
        outcome.seconds = time.perf_counter() - begun
        outcome.state = DONE if read[0] == read[1] else STOPPED
        if stopping and not batch.keep:
            file.say(STOPPED)
            raise _StoppedError
        if columns is not None:
            file.tell(outcome)
    except (_StoppedError, PartsError):
        # What cannot be stored is all in the image: half of it is no table for anybody.
        raise
    except Exception as error:  # a reader's may be of any kind, and the other files go on
        if resume is not None and isinstance(error, ValueError):  # so it will be next time
            remove_beside(resume)
        known = isinstance(error, (ImportError, OSError, TypeError, ValueError)) and str(error)
        file.fail(str(error) if known else f"{type(error).__name__}: {error}")
    finally:
        outcome.seconds = time.perf_counter() - begun


def _check_frames(file: _File) -> None:
    """Raise a ValueError if a file has none of the frames that were chosen."""
    if file.batch.frames is not None:
        reader = FrameReader(open_image(file.path))
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


def _open_mask(file: _File) -> None:
    """Find and open the mask of a file."""
    if file.batch.labels is not None:
        open_image(file.path)  # of two that are wrong, the image is told first
        mask = mask_of(file.path, file.batch.labels, file.batch.files)
        file.cells = open_cells(mask, file.path)


def _key(file: _File) -> dict[str, Any] | None:
    """Return what a table of a file is made of; None where that cannot be told."""
    batch = file.batch
    try:
        image = open_image(file.path)
        key = key_of(image, NO_MAPS)
        if batch.labels is not None:
            key["labels"] = identity(mask_of(file.path, batch.labels, batch.files))
        kind = kind_of(image, batch.settings, batch.frames)
        return with_settings(key, batch.settings, kind, FrameReader(image).select(batch.frames))
    except Exception:  # told when it is worked on
        return None


def _resumed(file: _File, table: Path) -> Path | None:
    """Return where the parts of a file are stored; None where nothing can write them."""
    if find_spec("pyarrow") is None:
        return None
    folder = parts_beside(table, file.path)
    if file.batch.fresh:
        remove_beside(folder)
    file.outcome.parts_before = len(parts_in(folder))
    return folder


def _check_alike(columns: list[str], part: SpotFits) -> None:
    """Check that the spots of a file go into the table of those before it."""
    columns[:] = columns or part.columns
    if columns != list(part.columns):
        odd = sorted(set(columns) ^ set(part.columns))
        raise ValueError(
            "its spots do not go into the table of the files before it, as its axes are others "
            f"(columns {', '.join(odd)}); take a folder for the output"
        )


def _add(outcome: Outcome, part: SpotFits) -> None:
    settings = part.settings
    assert settings is not None
    outcome.spots += len(part)
    outcome.good += int(np.count_nonzero(part.good))
    outcome.sigma, outcome.roi_size = settings.sigma, settings.roi_size
    outcome.backend = settings.backend
