"""``napari-spotfit localize``: image files in, tables of spots out."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..files.formats import FORMATS
from ..files.parts import parts_beside, parts_in, remove_beside
from ..files.streamed import check_name
from ..images.frames import indices_along
from ..localization.localize import localize_iter
from ..results.saving import save_fits
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings
from ..version import __version__
from .inputs import image_files
from .options import chosen_settings, takes_settings
from .stopping import Stop
from .telling import QUIET, USUAL, VERBOSE, progress, say, tell_program, warnings_told

#: What the exit code says besides 0, and 2 for what was asked for wrongly.
SOME_FAILED, STOPPED = 1, 130
_ENDING = ".spots.parquet"


@dataclass
class Outcome:
    """What became of one image file."""

    file: str
    output: str = ""
    frames: int = 0
    frames_in_all: int = 0
    spots: int = 0
    good: int = 0
    sigma: float | None = None
    roi_size: Any = None
    backend: str = ""
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""


@dataclass
class Run:
    """What holds for all files of one call."""

    settings: Settings
    frames: slice | None
    keep: bool
    fresh: bool
    level: int
    stop: Stop


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path),
    help="A table (.spots.parquet, .spots.csv) for all images, with the column “file” if there "
    "are several; or a folder, for one table of each.",
)  # fmt: skip
@click.option(
    "--format", "ending", default=_ENDING, show_default=True,
    help="What the tables in a folder end in.",
)  # fmt: skip
@click.option("--frames", metavar="FIRST:END:STEP", help="Frames of each movie, counted from 0.")
@click.option("--keep", is_flag=True, help="Keep what is done when Ctrl-C stops the run.")
@click.option("--fresh", is_flag=True, help="Begin anew where an earlier run was killed.")
@click.option("--json", "as_json", is_flag=True, help="Write a summary as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say more of each file.")
@takes_settings
@click.pass_context
def localize(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    output: Path,
    ending: str,
    frames: str | None,
    keep: bool,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find and fit the spots of image files, however long, and write them to tables.

    An INPUT is a TIFF, a Zarr, an .npy, a .raw or .dax movie, a pattern such as "*.tif", or a
    folder of them. Movies are read a few frames at a time. A file that cannot be read is
    named, and the others go on.

    A run that was killed, or stopped with Ctrl-C, goes on where it was when the same is asked for
    again: until a table is complete, its parts are beside it, in a folder “….parts”.

    The exit code is 0 if all went well, 1 if a file failed, 2 if something was asked for
    wrongly, and 130 after Ctrl-C.
    """
    level = QUIET if quiet else VERBOSE if verbose else USUAL
    files, settings = image_files(inputs), chosen_settings(context)
    tables = _outputs(files, output, ending)
    with Stop() as stop:
        run = Run(settings, _slice(frames), keep, fresh, level, stop)
        begun = time.perf_counter()
        outcomes = [Outcome(file.as_posix()) for file in files]
        if tables is None:
            _one_table(run, files, outcomes, output)
        else:
            for file, outcome, table in zip(files, outcomes, tables, strict=True):
                if not stop.asked:
                    _write(run, table, [file], _parts(run, file, outcome, table), [outcome])
    seconds = time.perf_counter() - begun
    if as_json:
        tell_program(_summary(outcomes, seconds))
    if stop.asked:
        kept = "; the tables have what was done" if keep else ""
        say(f"stopped{kept}. Run it again to go on, or with --fresh to begin anew", level, QUIET)
    context.exit(STOPPED if stop.asked else SOME_FAILED if _failed(outcomes) else 0)


class _StoppedError(Exception):
    """Ctrl-C, where nothing is to be kept."""


def _one_table(run: Run, files: list[Path], outcomes: list[Outcome], output: Path) -> None:
    """Write the spots of all files to one table."""
    if len(files) == 1:
        _write(run, output, files, _parts(run, files[0], outcomes[0], output), outcomes)
        return
    columns: list[str] = []

    def parts() -> Generator[SpotFits, None, None]:
        for file, outcome in zip(files, outcomes, strict=True):
            if run.stop.asked:
                return
            for part in _parts(run, file, outcome, output, columns):
                name = np.full(len(part), outcome.file, object)
                # Each file has its own σ and noise: the table has what was asked for.
                yield SpotFits({"file": name, **part.columns}, part.index_names, run.settings)

    _write(run, output, files, parts(), outcomes)


def _write(
    run: Run,
    table: Path,
    files: list[Path],
    parts: Generator[SpotFits, None, None],
    outcomes: list[Outcome],
) -> None:
    """Write parts to the table of some files; none is written where there are no parts."""
    own = outcomes[0] if len(outcomes) == 1 else None
    try:
        with closing(parts):
            first = next(parts, None)
            if first is None:
                return
            save_fits(chain([first], parts), table)
    except _StoppedError:
        return
    except (ImportError, OSError, ValueError) as error:
        if own is None:
            raise click.ClickException(f"“{table}” cannot be written: {error}") from None
        own.error = f"“{table}” cannot be written: {error}"
        say(own.error, QUIET, QUIET)
        return
    for outcome in outcomes:
        outcome.output = table.as_posix() if outcome.frames else ""
    for file, outcome in zip(files, outcomes, strict=True):
        if not (run.stop.asked or outcome.error):
            remove_beside(parts_beside(table, file))


def _parts(
    run: Run, file: Path, outcome: Outcome, table: Path, columns: list[str] | None = None
) -> Generator[SpotFits, None, None]:
    """Yield the spots of one file, up to where it is damaged, and note what becomes of it.

    Of several files for one table, all must have the same columns.
    """
    begun = time.perf_counter()
    resume = _resumed(run, table, file)
    with warnings_told(outcome.file, run.level) as told, progress(file.name, run.level) as show:
        outcome.warnings = told

        read = (0, 0)

        def count(*done: int) -> None:
            nonlocal read
            read = done[0], done[1]
            show(*read)

        try:
            for part in localize_iter(
                file, frames=run.frames, settings=run.settings, progress=count, resume=resume
            ):
                if columns is not None:
                    _check_alike(columns, part)
                if run.stop.asked and not run.keep:
                    raise _StoppedError
                _add(outcome, part)
                outcome.frames, outcome.frames_in_all = read
                yield part
                if run.stop.asked:
                    break
        except (ImportError, OSError, TypeError, ValueError) as error:
            text = str(error)
            outcome.error = text if file.name in text else f"“{file.name}”: {text}"
            if resume is not None and isinstance(error, ValueError):  # so it will be next time
                remove_beside(resume)
    outcome.seconds = time.perf_counter() - begun
    _say(outcome, run.level)


def _resumed(run: Run, table: Path, file: Path) -> Path | None:
    """Return where the parts of a file are stored; None where nothing can write them."""
    if find_spec("pyarrow") is None:
        return None
    folder = parts_beside(table, file)
    if run.fresh:
        remove_beside(folder)
    elif there := len(parts_in(folder)):
        say(f"{file.name}: an earlier run has left {there} parts", run.level)
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


def _say(outcome: Outcome, level: int) -> None:
    if outcome.error:
        done = f"; {outcome.frames} frames before it were fitted" if outcome.frames else ""
        say(f"{outcome.error}{done}", QUIET, QUIET)
        return
    rate = outcome.frames / max(outcome.seconds, 1e-9)
    share = outcome.good / max(outcome.spots, 1)
    more = ""
    if level >= VERBOSE:
        more = f"; σ {outcome.sigma} px, ROI {outcome.roi_size} px, {outcome.backend}"
    say(
        f"{outcome.file}: {outcome.spots} spots ({share:.0%} good) in {outcome.frames} frames, "
        f"{outcome.seconds:.1f} s, {rate:.0f} frames/s{more}",
        level,
    )


def _outputs(files: list[Path], output: Path, ending: str) -> list[Path] | None:
    """Return the table of each file where there is to be a folder of them, else None."""
    try:
        if not output.is_dir() and output.suffix.lower() in FORMATS:
            check_name(output)
            return None
        if output.suffix and not output.is_dir():
            check_name(output)
        output.mkdir(parents=True, exist_ok=True)
        tables = [output / f"{file.name}{ending}" for file in files]
        for table in tables:
            check_name(table)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    twice = next((table for table in tables if tables.count(table) > 1), None)
    if twice is not None:
        raise click.UsageError(f"the spots of several images would go to “{twice}”")
    return tables


def _slice(text: str | None) -> slice | None:
    if text is None:
        return None
    try:
        ends = [int(end) if end else None for end in text.split(":")]
        chosen = slice(*ends) if len(ends) > 1 else slice(ends[0], (ends[0] or 0) + 1)
        indices_along(chosen, 1)
        return chosen
    except (TypeError, ValueError):
        raise click.UsageError(
            f"--frames must be FIRST:END or FIRST:END:STEP; got {text!r}"
        ) from None


def _failed(outcomes: list[Outcome]) -> bool:
    return any(outcome.error for outcome in outcomes)


def _summary(outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    frames = sum(outcome.frames for outcome in outcomes)
    return {
        "version": __version__,
        "files": [asdict(outcome) for outcome in outcomes],
        "failed": sum(bool(outcome.error) for outcome in outcomes),
        "frames": frames,
        "spots": sum(outcome.spots for outcome in outcomes),
        "good": sum(outcome.good for outcome in outcomes),
        "seconds": seconds,
        "frames_per_second": frames / max(seconds, 1e-9),
    }
