"""``napari-spotfit report``: write a report of a table of spots."""

from __future__ import annotations

from pathlib import Path

import click

from ..analysis.report import save_report
from ..results.saving import load_fits
from .options import AboveZero
from .output import USUAL, write_message


@click.command()
@click.argument(
    "source", metavar="TABLE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="The report, .html; by default beside TABLE, with its name.",
)  # fmt: skip
@click.option(
    "--image", type=click.Path(exists=True, path_type=Path),
    help="The image that was fitted, of which doubtful fits are cut out.",
)  # fmt: skip
@click.option("--channel", metavar="N|NAME", help="The channel of an image with several.")
@click.option(
    "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel, for nm and µm."
)
def report(
    source: Path,
    output: Path | None,
    image: Path | None,
    channel: str | None,
    pixel_size: float | None,
) -> None:
    """Write a report of a table of spots as one HTML file, to be read in any browser.

    It has counts, precision, drift, a picture, the doubtful fits by their reasons with six examples
    of each, and all settings.
    """
    target = output or source.with_name(f"{source.name}.html")
    try:
        fits = load_fits(source, pixel_size=pixel_size)
        one = int(channel) if channel and channel.isdigit() else channel
        save_report(fits, target, image, channel=one, title=f"Spots of {source.name}")
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    write_message(f"{target}: a report of {len(fits)} spots", USUAL)
