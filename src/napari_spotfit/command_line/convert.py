"""``napari-spotfit convert``: a table of spots in another format."""

from __future__ import annotations

from pathlib import Path

import click

from ..results.load import load_fits


@click.command()
@click.argument("source", metavar="INPUT", type=click.Path(exists=True, path_type=Path))
@click.argument("target", metavar="OUTPUT", type=click.Path(path_type=Path))
def convert(source: Path, target: Path) -> None:
    """Write a table of spots in the format that the other name ends in.

    Nothing is lost between .spots.parquet and .spots.csv.
    """
    try:
        fits = load_fits(source)
        fits.save(target)
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{target}: {len(fits)} spots", err=True)
