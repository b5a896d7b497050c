"""``napari-spotfit localize``: fit the spots of image files, and write tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from ..analysis.channel_registration import ChannelRegistration
from ..batch.pairs import PairsOutcome, PairsRequest, cells_of_all, pair_files
from ..batch.request import (
    DONE,
    ENDING,
    FAILED,
    KEPT,
    RUNNING,
    STOPPED,
    Batch,
    Outcome,
    batch_tables,
    image_files,
    images_of,
)
from ..batch.run import Report, run_batch
from ..version import __version__
from .options import AboveZero, chosen_settings, takes_files, takes_settings, takes_z_scale
from .output import (
    EXIT_STOPPED,
    QUIET,
    USUAL,
    VERBOSE,
    Stop,
    errors_written,
    progress,
    write_message,
    write_summary,
)

#: For completion by the shell; unreadable files are reported when they are fitted.
_PATH = click.Path(readable=False)
#: Exit code if a file failed; 0 is success, 2 a usage error, 130 Ctrl-C.
SOME_FAILED = 1


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=_PATH)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path),
    help="A table (.spots.parquet, .spots.csv) for all images, with a column “file” if there are "
    "several; or a folder, for one table per image. Formats of other programs that “convert” "
    "knows, such as .hdf5, are possible, too.",
)  # fmt: skip
@click.option(
    "--format", "ending", default=ENDING, show_default=True,
    help="Ending of tables in a folder.",
)  # fmt: skip
@click.option(
    "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel, for nm and µm."
)
@click.option(
    "--frames", metavar="FIRST:END:STEP",
    help="Frames of each movie, counted from 0, from FIRST up to but excluding END; or one frame, "
    "-1 for the last.",
)  # fmt: skip
@click.option(
    "--channel", metavar="N|NAME|all",
    help="The channel of images with several, by number from 0 or name; or all, to fit each "
    "separately, with a column “channel”. Without this option, such files fail.",
)  # fmt: skip
@click.option(
    "--labels", metavar="MASKS", type=_PATH,
    help="A mask of each image, such as segmented cells: a pattern in which * stands for the "
    "image's name (masks/*_cells.tif), a folder, an ending that follows the image's name "
    "(_cells.tif), or one file for all. Spots get a column “label”, and a table …cells.csv has "
    "the number of good spots in each cell, and their photons.",
)  # fmt: skip
@click.option(
    "--keep", is_flag=True, help="Write tables of the finished frames if Ctrl-C stops the run."
)
@takes_files
@takes_settings
@click.pass_context
def localize(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    output: Path,
    ending: str,
    pixel_size: float | None,
    frames: str | None,
    channel: str | None,
    labels: str | None,
    workers: int,
    keep: bool,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find and fit the spots of image files, and write them to tables.

    An INPUT is a TIFF, a Zarr, an .npy, a .raw or .dax movie, a pattern such as "*.tif", or a
    folder of them. Movies of any length are read a few frames at a time. A file that cannot be
    read is reported, and does not stop the others.

    The same command resumes a run that was killed, or stopped with Ctrl-C: parts of an incomplete
    table are kept in a folder “….parts”, and complete tables of the same input are kept.

    The exit code is 0 if all went well, 1 if a file failed, 2 for wrong arguments, and 130 after
    Ctrl-C.
    """
    level = QUIET if quiet else VERBOSE if verbose else USUAL
    try:
        batch = Batch(
            image_files(inputs), output, chosen_settings(context), ending, frames_of_text(frames),
            channel, labels, workers, keep, fresh, pixel_size,
        )  # fmt: skip
        batch = images_of(batch)
        batch_tables(batch)
    except (ImportError, OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    begun = time.perf_counter()
    with Stop(level) as stop, FileReporter(level, bars=workers == 1) as reporter:
        outcomes, unwritten = outcomes_of(batch, reporter, lambda: stop.asked)
    seconds = time.perf_counter() - begun
    if unwritten:
        write_message(f"Error: {unwritten}", level, QUIET)
    if as_json:
        write_summary(summary_of(outcomes, seconds, unwritten))
    if unwritten:
        context.exit(SOME_FAILED)
    failed = any(outcome.state == FAILED for outcome in outcomes)
    if stop.asked:
        kept = "; the tables have the finished frames" if keep else ""
        write_message(
            f"stopped{kept}. Run it again to resume, or with --fresh to start over", level, QUIET
        )
    context.exit(EXIT_STOPPED if stop.asked else SOME_FAILED if failed else 0)


def outcomes_of(
    batch: Batch, report: Report, stopped: Callable[[], bool]
) -> tuple[list[Outcome], str]:
    """Return the outcome of each file, and the error of writing a common table; empty without."""
    outcomes = {file.as_posix(): Outcome(file.as_posix()) for file in batch.files}

    def note(outcome: Outcome) -> None:
        outcomes[outcome.file] = outcome
        report(outcome)

    try:
        return run_batch(batch, note, stopped), ""
    except (ImportError, OSError, ValueError) as error:
        why = str(error) or type(error).__name__
        for outcome in outcomes.values():  # the spots of completed files are lost, too
            outcome.state, outcome.error = FAILED, outcome.error or why
        return list(outcomes.values()), why


def frames_of_text(text: str | None) -> slice | None:
    """Parse a choice of frames: a slice or one frame, counted from the end if negative."""
    if text is None:
        return None
    try:
        ends = [int(end) if end else None for end in text.split(":")]
        first = ends[0]
        if len(ends) > 1:
            chosen = slice(*ends)
        elif first is None:
            raise ValueError
        else:
            chosen = slice(first, first + 1 if first != -1 else None)
        some = _chooses_some(chosen)
    except (TypeError, ValueError):
        raise click.UsageError(
            "--frames must be FIRST:END or FIRST:END:STEP, or the number of one frame, such as "
            f"10:20, 100: or -1 for the last one; got {text!r}"
        ) from None
    if not some:
        raise click.UsageError(
            f"--frames {text} chooses no frame of any movie: END is not included, and must come "
            "after FIRST"
        )
    return chosen


def _chooses_some(chosen: slice) -> bool:
    """Whether a movie of any length has a frame in a slice."""
    # It suffices to test a short movie, and one that contains both ends of the slice.
    longest = abs(chosen.start or 0) + abs(chosen.stop or 0) + 1
    return any(bool(range(*chosen.indices(length))) for length in (1, longest))


def summary_of(outcomes: list[Outcome], seconds: float, error: str) -> dict[str, Any]:
    """Return the summary of all files for programs."""
    frames = sum(outcome.frames for outcome in outcomes)
    return {
        "version": __version__,
        "files": [asdict(outcome) for outcome in outcomes],
        "failed": sum(outcome.state == FAILED for outcome in outcomes),
        "error": error,
        "frames": frames,
        "spots": sum(outcome.spots for outcome in outcomes),
        "good": sum(outcome.good for outcome in outcomes),
        "seconds": seconds,
        "frames_per_second": frames / max(seconds, 1e-9),
    }


class FileReporter:
    """Reports the state of each file by messages and, for one file at a time, a progress bar.

    Parameters
    ----------
    level : int
        Verbosity.
    bars : bool
        Whether there are progress bars.
    """

    def __init__(self, level: int, *, bars: bool) -> None:
        self._level, self._bars = level, bars
        self._lock = threading.Lock()
        #: Messages written about each file.
        self._written: dict[str, list[str]] = {}
        self._shown, self._bar = "", ExitStack()
        self._show: Callable[[int, int], None] | None = None

    def __enter__(self) -> FileReporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def __call__(self, outcome: Outcome) -> None:
        """Report changes of a file's outcome."""
        with self._lock:
            if outcome.state == RUNNING:
                self._show_progress(outcome)
            elif outcome.file == self._shown:
                self._end_bar()
            if outcome.parts_before and outcome.state == RUNNING:
                left = f"{outcome.file}: resumed after {outcome.parts_before} parts"
                self._report(outcome, left, USUAL)
            for warning in list(outcome.warnings):
                self._report(outcome, f"{outcome.file}: {warning}", USUAL)
            if outcome.state == FAILED:
                done = f"; {outcome.frames} frames before it were fitted" if outcome.frames else ""
                self._report(outcome, f"{outcome.error}{done}", QUIET)
            elif outcome.state in (DONE, KEPT, STOPPED):
                self._report(outcome, in_words(outcome, verbose=self._level >= VERBOSE), USUAL)

    def _report(self, outcome: Outcome, text: str, least: int) -> None:
        written = self._written.setdefault(outcome.file, [])
        if text not in written:
            written.append(text)
            write_message(text, self._level, least)

    def _show_progress(self, outcome: Outcome) -> None:
        if not self._bars:
            return
        if outcome.file != self._shown:
            self._end_bar()
            self._shown = outcome.file
            self._show = self._bar.enter_context(progress(outcome.file, self._level))
        if self._show is not None and outcome.frames_in_all:
            self._show(outcome.frames, outcome.frames_in_all)

    def _end_bar(self) -> None:
        self._bar.close()
        self._shown, self._show = "", None


def in_words(outcome: Outcome, *, verbose: bool = False) -> str:
    """Return the result of a file as text."""
    share = outcome.good / max(outcome.spots, 1)
    spots, frames = _counted(outcome.spots, "spot"), _counted(outcome.frames, "frame")
    found = f"{spots} ({share:.0%} good) in {frames}"
    if outcome.state == KEPT:
        return f"{outcome.file}: {found}, kept from an earlier run"
    more = ""
    if verbose:
        more = f"; σ {outcome.sigma} px, ROI {outcome.roi_size} px, {outcome.backend}"
    return f"{outcome.file}: {found}, {outcome.seconds:.1f} s, {outcome.rate:.0f} frames/s{more}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=_PATH)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path),
    help="A folder for tables of the spots, pairs and cells of each file, and of the cells of all "
    "files.",
)  # fmt: skip
@click.option(
    "--channels", required=True, metavar="N,N…",
    help="Two channels or more, by number from 0 or name, such as 0,1 or GFP,RFP.",
)  # fmt: skip
@click.option(
    "--radius", type=AboveZero(), default=2.0, show_default=True, metavar="PX",
    help="Largest distance of a pair.",
)  # fmt: skip
@takes_z_scale
@click.option(
    "--registration", "registrations", multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Registration of the second channel onto the first, written by ChannelRegistration.save; "
    "repeat it for each further channel. Spots outside of it are left out.",
)  # fmt: skip
@click.option(
    "--labels", metavar="MASKS", type=_PATH,
    help="A mask of each image, such as its cells, as for “localize”; without it, a frame is one "
    "cell.",
)  # fmt: skip
@click.option("--frames", metavar="FIRST:END:STEP", help="Frames of each movie, from 0 on.")
@takes_files
@takes_settings
@click.pass_context
def pairs(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    output: Path,
    channels: str,
    radius: float,
    z_scale: float | None,
    registrations: tuple[Path, ...],
    labels: str | None,
    frames: str | None,
    workers: int,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Count the spots of channels in cells, and how many of them are pairs.

    Each channel of each INPUT is fitted separately, as by “localize”. Good spots of the same frame
    and cell within the radius are paired, and the number of pairs by chance is measured by
    shifting one channel.

    The same command continues after Ctrl-C, and keeps the spots of an earlier run. The exit code is
    that of “localize”.
    """
    level = QUIET if quiet else VERBOSE if verbose else USUAL
    try:
        maps = [ChannelRegistration.load(path) for path in registrations]
        chosen = _channels(channels, len(maps))
        batch = Batch(
            image_files(inputs), output, chosen_settings(context), frames=frames_of_text(frames),
            channel=chosen, labels=labels, workers=workers, fresh=fresh,
        )  # fmt: skip
        batch = images_of(batch)
    except (ImportError, OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    begun = time.perf_counter()
    reports = FileReporter(level, bars=workers == 1)
    with errors_written(), Stop(level) as stop, reports as reporter:
        request = PairsRequest(batch, radius, maps, z_scale)
        outcomes, found = pair_files(request, reporter, lambda: stop.asked)
    for one in found:
        for sentence in _in_words(one):
            write_message(sentence, level)
    failed = any(outcome.state == FAILED for outcome in outcomes)
    if as_json:
        summary = summary_of(outcomes, time.perf_counter() - begun, "")
        write_summary(summary | {"pairs": [asdict(one) for one in found]})
    if stop.asked:
        write_message(
            "stopped. Run it again to resume, or with --fresh to start over", level, QUIET
        )
    elif found:
        write_message(f"the cells of all files: {cells_of_all(batch)}", level)
    context.exit(EXIT_STOPPED if stop.asked else SOME_FAILED if failed else 0)


def _channels(text: str, registrations: int) -> tuple[int | str, ...]:
    """Parse channels by number or name, each once."""
    names = [name.strip() for name in text.split(",")]
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise ValueError(
            f"--channels must be two different channels or more, such as 0,1; got {text!r}"
        )
    if registrations not in (0, len(names) - 1):
        raise ValueError(
            f"--registration is given {registrations} times: for {len(names)} channels it must be "
            f"{len(names) - 1} times, of each but the first one"
        )
    return tuple(int(name) if name.isdecimal() else name for name in names)


def _in_words(outcome: PairsOutcome) -> list[str]:
    """Return messages on the pairs of a file."""
    sentences = [
        f"{outcome.file}: {counts['observed']:.0f} pairs of {name.replace('+', ' and ')}, "
        f"{counts['expected']:.1f} by chance, {counts['excess']:.1f} ± {counts['stderr']:.1f} more"
        for name, counts in outcome.pairs.items()
    ]
    if outcome.outside:
        sentences.append(
            f"{outcome.file}: {outcome.outside} spots are outside of the registration, and left out"
        )
    return sentences
