"""``napari-spotfit convert`` and ``report``: write a table of spots otherwise, or a page on it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from ..analysis.report import save_report
from ..files.exchange.registry import EXCHANGE
from ..files.formats import FormatWarning, check_ending, read, write
from ..files.table import LAYER, SpotTable
from ..results.saving import fits_of, load_fits
from .options import AboveZero
from .output import USUAL, write_message

_TABLE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NAMES = click.Choice(list(EXCHANGE))


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
    help="The image that was fitted, for cut-outs of doubtful fits.",
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


@click.command()
@click.argument("source", metavar="INPUT", type=_TABLE)
@click.argument("target", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "origin",
    type=_NAMES,
    help="Format of INPUT, if its name and columns do not show it.",
)
@click.option("--to", "aim", type=_NAMES, help="Format of OUTPUT, for any ending.")
@click.option(
    "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel, for nm and µm."
)
@click.option(
    "--spreadsheet", is_flag=True, help="Put an apostrophe before texts that are formulas (CSV)."
)
def convert(
    source: Path,
    target: Path,
    origin: str | None,
    aim: str | None,
    pixel_size: float | None,
    spreadsheet: bool,
) -> None:
    """Write a table of spots in another format, by default that of OUTPUT's ending.

    .spots.parquet and .spots.csv lose nothing; a warning names what another program's format cannot
    store. The size of a pixel and the shape of the image are copied from INPUT.
    """
    try:
        check_ending(target, aim)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            table = _complete(read(source, origin, pixel_size=pixel_size))
            write(target, table, aim, pixel_size=pixel_size, spreadsheet=spreadsheet)
        except (ImportError, OSError, ValueError) as error:
            raise click.ClickException(str(error)) from None
    for warning in caught:
        write_message(f"{target.name}: {warning.message}", USUAL)
    left_out = [one.message.left_out for one in caught if isinstance(one.message, FormatWarning)]
    write_message(f"{target}: {len(table) - sum(left_out)} spots", USUAL)


def _complete(table: SpotTable) -> SpotTable:
    """Return a table that was read, with the columns that are computed from its fits."""
    made, about = fits_of(table).to_table(), table.about
    kept = {name: column for name, column in about.columns.items() if column.role == LAYER}
    columns = {**made.columns, **{name: table.columns[name] for name in kept}}
    # A layer draws every row, so rows without a position need their points.
    has_places = bool(kept) or bool(np.isfinite([made.columns["y"], made.columns["x"]]).all())
    whole = replace(
        made.about,
        columns={**made.about.columns, **kept},
        image=about.image,
        layer=about.layer if has_places else None,
    )
    return SpotTable(columns, whole)
