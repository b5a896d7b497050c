"""``napari-spotfit merge``: merge the fits of blinking molecules to events."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from ..analysis.merging import merge_blinks
from ..files.exchange.image_info import as_pixel_size, image_info_of
from ..files.formats import read
from ..results.saving import fits_of
from .options import AboveZero
from .output import USUAL, refuse_equal_paths, warnings_written, write_message


@click.command()
@click.argument(
    "source", metavar="TABLE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
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
@click.option(
    "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel, for nm and µm."
)
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
    expect: their photons are added up, and their positions averaged. Subtract drift before.
    """
    refuse_equal_paths(source, {"-o": output, "--members": target})
    try:
        with warnings_written(source):
            whole = read(source, pixel_size=pixel_size)
            fits, image = fits_of(whole), image_info_of(whole, as_pixel_size(pixel_size), None)
            events, members = merge_blinks(fits, max_dark_frames, radius, True, rule)
        for table, path in ((events, output), (members, target)):
            if path is not None:
                with warnings_written(path):
                    table.save(path, pixel_size=image.pixel_size, shape=image.shape)
        write_message(f"{output}: {len(events)} events of {len(fits)} spots", USUAL)
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
