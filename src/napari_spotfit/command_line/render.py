"""``napari-spotfit render``: render a table of localisations as a super-resolved image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from ..analysis.render import render as render_fits
from ..files.exchange.image_info import image_info_of
from ..files.formats import read
from ..files.writing import ENDINGS, write_rendered
from ..models.columns import IN_PLANE
from ..results.saving import fits_of
from ..results.spot_fits import SpotFits
from .options import AboveZero
from .output import USUAL, write_message

_TABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("source", metavar="TABLE", type=_TABLE)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True,
    help=f"The image, an OME-TIFF: {', '.join(ENDINGS)}.",
)  # fmt: skip
@click.option(
    "--oversampling", type=AboveZero(), metavar="N",
    help="Rendered pixels per camera pixel.  [default: 10]",
)  # fmt: skip
@click.option(
    "--rendered-pixel", type=AboveZero(), metavar="NM",
    help="Side of a rendered pixel instead; needs --pixel-size.",
)  # fmt: skip
@click.option(
    "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a camera pixel, for nm and µm."
)
@click.option(
    "--shape", type=(click.IntRange(1), click.IntRange(1)), metavar="ROWS COLUMNS",
    help="Size of the fitted image, if TABLE does not know it; else up to the last localisation.",
)  # fmt: skip
@click.option(
    "--by", default="precision", show_default=True,
    metavar="precision|psf|histogram|PX",
    help="Width of each localisation: its standard error, that of its spot, one pixel of the "
    "image, or the same everywhere.",
)  # fmt: skip
@click.option("--colour-by", metavar="COLUMN", help="Show a column, such as z or frame, as colour.")
@click.option("--everything", is_flag=True, help="Also render spots that are not good fits.")
def render(
    source: Path,
    output: Path,
    oversampling: float | None,
    rendered_pixel: float | None,
    pixel_size: float | None,
    shape: tuple[int, int] | None,
    by: str,
    colour_by: str | None,
    everything: bool,
) -> None:
    """Render the localisations of TABLE as a super-resolved image.

    Each is a Gaussian of its own precision that adds 1, so the image is in localisations per
    rendered pixel.
    """
    if rendered_pixel is not None:
        if oversampling is not None or pixel_size is None:
            raise click.UsageError(
                "--rendered-pixel replaces --oversampling, and needs the --pixel-size of the camera"
            )
        oversampling = pixel_size / rendered_pixel
    oversampling = oversampling or 10.0
    try:
        table = read(source, pixel_size=pixel_size)
        fits = fits_of(table)
        field = shape or image_info_of(table, None, None).shape
        chosen = fits if everything else fits[fits.accepted]
        image = render_fits(chosen, oversampling, shape=field, by=_width(by), colour_by=colour_by)
        nm = None if pixel_size is None else [pixel_size / oversampling] * 2
        write_rendered(output, image, coloured=colour_by is not None, nm=nm)
    except (ImportError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    rows, columns = image.shape[:2]
    sides = (rows / oversampling, columns / oversampling) if field is None else field[-2:]
    inside, outside = _inside(chosen, sides)
    more = f"; {outside} more lie outside" if outside else ""
    write_message(f"{output}: {inside} localisations, {rows} × {columns} pixels{more}", USUAL)


def _inside(fits: SpotFits, sides: Sequence[float]) -> tuple[int, int]:
    """Return how many localisations lie in a field of this height and width, and outside of it."""
    places = np.stack([fits.columns[axis] for axis in IN_PLANE]).astype(float)
    there = np.isfinite(places).all(axis=0)
    inside = (places >= -0.5) & (places < np.array(sides)[:, np.newaxis] - 0.5)
    count = int(np.count_nonzero(inside.all(axis=0)))
    return count, int(np.count_nonzero(there)) - count


def _width(text: str) -> str | float:
    """Return a width of localisations: a number of pixels, or a word."""
    try:
        return float(text)
    except ValueError:
        return text
