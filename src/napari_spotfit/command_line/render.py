"""``napari-spotfit render``: render a table of localisations as a super-resolved image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from ..analysis.render import render as render_fits
from ..files.writing import ENDINGS, write_rendered
from ..models.columns import IN_PLANE
from ..results.spot_fits import SpotFits
from .options import AboveZero
from .output import USUAL, write_message
from .table_steps import on_table, read_table


@click.command()
@on_table(parts=True)
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
@click.option(
    "--z", type=(float, float), metavar="FROM TO",
    help="A slice: only localisations of these z, in the unit of TABLE (nm, or planes).",
)  # fmt: skip
@click.option(
    "--z-step", type=AboveZero(), metavar="THICKNESS", help="Divide --z into a stack of slices."
)
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
    z: tuple[float, float] | None,
    z_step: float | None,
    everything: bool,
) -> None:
    """Render the localisations of TABLE as a super-resolved image.

    Each is a Gaussian of its own precision that adds 1, so the image is in localisations per
    rendered pixel. TABLE may be a folder of parts that do not fit in memory.
    """
    if rendered_pixel is not None:
        if oversampling is not None or pixel_size is None:
            raise click.UsageError(
                "--rendered-pixel replaces --oversampling, and needs the --pixel-size of the camera"
            )
        oversampling = pixel_size / rendered_pixel
    if z_step is not None and z is None:
        raise click.UsageError("--z-step divides a range of z: pass --z, too")
    oversampling = oversampling or 10.0
    fits, image_info = read_table(source, pixel_size)
    field = shape or image_info.shape
    if field is None and not isinstance(fits, SpotFits):
        raise click.UsageError("parts do not know the size of their image: pass --shape")
    counts = _Counts(field, everything)
    chosen = counts.of(fits) if isinstance(fits, SpotFits) else map(counts.of, fits)
    slices = None if z is None else z if z_step is None else (*z, z_step)
    image = render_fits(
        chosen, oversampling, shape=field, by=_width(by), colour_by=colour_by, z=slices
    )
    nm = None if pixel_size is None else [pixel_size / oversampling] * 2
    deep = image.ndim - (colour_by is not None) > 2
    write_rendered(
        output, image, coloured=colour_by is not None,
        nm=[z_step, *nm] if nm and deep and z_step else nm,
    )  # fmt: skip
    more = f"; {counts.outside} more lie outside" if counts.outside else ""
    sides = " × ".join(map(str, image.shape[: 2 + deep]))
    write_message(f"{output}: {counts.inside} localisations, {sides} pixels{more}", USUAL)


class _Counts:
    """Chooses the localisations to render, and counts those in the field and outside of it."""

    def __init__(self, field: Sequence[int] | None, everything: bool):
        self._field, self._everything = field, everything
        self.inside = self.outside = 0

    def of(self, fits: SpotFits) -> SpotFits:
        """Return the localisations to render."""
        chosen = fits if self._everything else fits[fits.accepted]
        places = np.stack([chosen.columns[axis] for axis in IN_PLANE]).astype(float)
        known = np.isfinite(places).all(axis=0)
        inside = known & (places >= -0.5).all(axis=0)
        if self._field is not None:
            inside &= (places < np.array(self._field[-2:])[:, np.newaxis] - 0.5).all(axis=0)
        self.inside += int(np.count_nonzero(inside))
        self.outside += int(np.count_nonzero(known & ~inside))
        return chosen


def _width(text: str) -> str | float:
    """Return a width of localisations: a number of pixels, or a word."""
    try:
        return float(text)
    except ValueError:
        return text
