"""``napari-spotfit convert``, ``render`` and ``report``: a table as another one, image or page."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from ..analysis.render import render as render_fits
from ..analysis.report import save_report
from ..files.exchange.registry import EXCHANGE
from ..files.formats import FormatWarning, check_ending, read, write
from ..files.table import LAYER, SpotTable
from ..files.writing import ENDINGS, write_rendered
from ..models.columns import IN_PLANE
from ..results.saving import fits_of, load_fits
from ..results.spot_fits import SpotFits
from .options import AboveZero
from .output import USUAL, write_message
from .table_steps import on_table, read_table

_NAMES = click.Choice(list(EXCHANGE))


@click.command()
@on_table()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="The report, .html; by default beside TABLE, with its name.",
)  # fmt: skip
@click.option(
    "--image", type=click.Path(exists=True, path_type=Path),
    help="The image that was fitted, for cut-outs of doubtful fits.",
)  # fmt: skip
@click.option("--channel", metavar="N|NAME", help="The channel of an image with several.")
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
    fits = load_fits(source, pixel_size=pixel_size)
    one = int(channel) if channel and channel.isdigit() else channel
    save_report(fits, target, image, channel=one, title=f"Spots of {source.name}")
    write_message(f"{target}: a report of {len(fits)} spots", USUAL)


@click.command()
@on_table(metavar="INPUT")
@click.argument("target", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--from", "origin", type=_NAMES, help="Format of INPUT, if its name and columns do not show it."
)
@click.option("--to", "aim", type=_NAMES, help="Format of OUTPUT, for any ending.")
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
        table = _complete(read(source, origin, pixel_size=pixel_size))
        write(target, table, aim, pixel_size=pixel_size, spreadsheet=spreadsheet)
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
