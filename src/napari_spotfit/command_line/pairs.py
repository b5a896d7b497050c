"""``napari-spotfit pairs``: pair the spots of channels, and write tables of cells and pairs."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..analysis.registration import ChannelRegistration
from ..batch.pairs import PairsOutcome, PairsRequest, cells_of_all, pair_files
from ..batch.request import FAILED, Batch, image_files, images_of
from .localize import SOME_FAILED, FileReporter, frames_of_text, summary_of
from .options import AboveZero, chosen_settings, takes_files, takes_settings
from .output import (
    EXIT_STOPPED,
    QUIET,
    USUAL,
    VERBOSE,
    Stop,
    errors_written,
    write_message,
    write_summary,
)

_PATH = click.Path(readable=False)


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
        request = PairsRequest(batch, radius, maps)
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
