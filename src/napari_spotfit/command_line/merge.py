"""``napari-spotfit merge``: merge the fits of blinking molecules to events."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from ..analysis.merging import merge_blinks
from ..results.spot_fits import SpotFits
from .options import AboveZero
from .output import USUAL, refuse_equal_paths, warnings_written, write_message
from .table_steps import on_table, read_table, save_table


@click.command()
@on_table(parts=True)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path),
    help="The table of events, in any format that “convert” knows.",
)  # fmt: skip
@click.option(
    "--members", "target", type=click.Path(path_type=Path),
    help="A table of the fits, too, with the row of their event as “parent”.",
)  # fmt: skip
@click.option(
    "--max-dark-frames", type=click.IntRange(0), default=1, show_default=True, metavar="FRAMES",
    help="Number of frames within an event in which the molecule may be dark.",
)  # fmt: skip
@click.option(
    "--radius", type=AboveZero(), metavar="PX",
    help="Largest distance of a fit from its event; by default it follows from standard errors.",
)  # fmt: skip
@click.option(
    "--rule", type=click.Choice(["nearest", "picasso"]), default="nearest", show_default=True,
    help="Which fits go together; “picasso” makes the events of Picasso's Link.",
)  # fmt: skip
def merge(
    source: Path,
    output: Path,
    target: Path | None,
    max_dark_frames: int,
    radius: float | None,
    rule: Literal["nearest", "picasso"],
    pixel_size: float | None,
) -> None:
    """Merge the fits of a molecule in successive frames to one event.

    Good fits in TABLE are merged if they are as near to each other as their standard errors let
    expect: their photons are added up, and their positions averaged. Subtract drift before. TABLE
    may be a folder of parts, which need not fit in memory: an event is written after the part in
    which it ends.
    """
    refuse_equal_paths(source, {"-o": output, "--members": target})
    fits, image = read_table(source, pixel_size)
    with warnings_written(source):
        if isinstance(fits, SpotFits):
            events, members = merge_blinks(fits, max_dark_frames, radius, True, rule)
            count = save_table(events, output, image)
            if target is not None:
                save_table(members, target, image)
        elif target is not None:
            raise click.UsageError(
                "--members needs a table: leave it out, as there are events only of parts"
            )
        else:
            parts = merge_blinks(fits, max_dark_frames, radius, False, rule)
            count = save_table(parts, output, image)
    of = f"{len(fits)} spots" if isinstance(fits, SpotFits) else f"the parts in {source}"
    write_message(f"{output}: {count} events of {of}", USUAL)
