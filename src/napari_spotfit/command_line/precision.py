"""``napari-spotfit precision``: measure precision and resolution of a table of spots."""

from __future__ import annotations

import math
from pathlib import Path

import click

from ..analysis.merging import merge_blinks
from ..analysis.nena import nena
from ..analysis.ring_correlation import fourier_ring_correlation
from ..models.columns import DETECTIONS
from ..results.spot_fits import SpotFits
from .output import USUAL, warnings_written, write_message, write_summary
from .table_steps import on_table, read_table

#: Numbers in pixels, which are written in nm, too, where the pixel's size is known.
_LENGTHS = ("precision", "y", "x", "resolution", "resolution_stderr")


@click.command()
@on_table(parts=True)
@click.option("--json", "as_json", is_flag=True, help="Write the numbers as JSON.")
def precision(source: Path, pixel_size: float | None, as_json: bool) -> None:
    """Measure how precise the spots of a movie are, and the resolution of their image.

    The precision follows from the distances of spots in successive frames (NeNA), and says whether
    their standard errors hold. The resolution follows from the correlation of two halves of the
    movie (FRC), after blinks are merged. Subtract drift before. TABLE may be a folder of parts.
    """
    numbers: dict[str, float] = {}
    fits = read_table(source, pixel_size).fits
    first = fits if isinstance(fits, SpotFits) else next(iter(fits))
    with warnings_written(source):
        if DETECTIONS not in first:
            found = nena(fits)
            names = ("precision", "y", "x", "kappa", "pairs", "share")
            numbers |= {name: getattr(found, name) for name in names}
            errors = (
                "the fits have no standard errors" if math.isnan(found.kappa) else
                f"spots scatter {found.kappa:.2f} times as much as their standard errors say"
            )  # fmt: skip
            _write(source, "precision", found.precision, pixel_size)
            write_message(
                f"{source}: {errors}; {found.pairs} pairs, {found.share:.0%} of one molecule",
                USUAL,
            )
            fits = merge_blinks(fits, radius=3 * math.sqrt(2) * found.precision)
        rings = fourier_ring_correlation(fits)
    numbers |= {
        "resolution": rings.resolution, "resolution_stderr": rings.resolution_stderr
    }  # fmt: skip
    _write(source, "resolution", rings.resolution, pixel_size, rings.resolution_stderr)
    if pixel_size is not None:
        numbers |= {
            f"{name}_nm": numbers[name] * pixel_size for name in _LENGTHS if name in numbers
        }
    if as_json:
        write_summary({name: None if value != value else value for name, value in numbers.items()})


def _write(
    source: Path, what: str, value: float, pixel_size: float | None, error: float | None = None
) -> None:
    """Write a length as a message, in pixels and in nm where the pixel is known."""
    parts = [(value, error, "px")]
    if pixel_size is not None:
        parts.append((value * pixel_size, error and error * pixel_size, "nm"))
    texts = [
        f"{length:.3g}{'' if spread is None or math.isnan(spread) else f' ± {spread:.1g}'} {unit}"
        for length, spread, unit in parts
    ]
    write_message(f"{source}: {what} {', '.join(texts)}", USUAL)
