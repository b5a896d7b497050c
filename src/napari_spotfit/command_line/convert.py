"""``napari-spotfit convert``: a table of spots in another format."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

from ..files.exchange.registry import EXCHANGE
from ..results.load import load_fits
from .telling import USUAL, say

_NAMES = click.Choice(list(EXCHANGE))


@click.command()
@click.argument("source", metavar="INPUT", type=click.Path(exists=True, path_type=Path))
@click.argument("target", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option("--from", "origin", type=_NAMES, help="Format of INPUT, if nothing tells it.")
@click.option("--to", "aim", type=_NAMES, help="Format of OUTPUT, whatever its name ends in.")
@click.option("--pixel-size", type=float, metavar="NM", help="Side of a pixel, for nm and µm.")
def convert(
    source: Path, target: Path, origin: str | None, aim: str | None, pixel_size: float | None
) -> None:
    """Write a table of spots in another format, the one that OUTPUT ends in.

    Nothing is lost between .spots.parquet and .spots.csv. What another program's format has no
    place for is said.
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        try:
            fits = load_fits(source, origin, pixel_size=pixel_size)
            fits.save(target, aim, pixel_size=pixel_size)
        except (ImportError, OSError, ValueError) as error:
            raise click.ClickException(str(error)) from None
    for warning in told:
        say(f"{target.name}: {warning.message}", USUAL)
    say(f"{target}: {len(fits)} spots", USUAL)
