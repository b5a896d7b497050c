"""``napari-spotfit calibrate``: calibrate z by widths of beads, for ``localize --model``."""

from __future__ import annotations

import warnings
from pathlib import Path

import click
import numpy as np

from ..calibration.astigmatism import calibrate_astigmatism
from ..calibration.astigmatism_files import save_for_picasso
from ..models.astigmatism import AstigmatismCalibration
from ..settings.settings import Settings
from .options import AboveZero
from .output import USUAL, write_message

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("stack", type=_FILE)
@click.option("--dz", type=AboveZero(), required=True, metavar="NM", help="Distance of the planes.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True,
    help="File for the calibration (.h5), or for Picasso (.yaml).",
)  # fmt: skip
@click.option("--gain", type=AboveZero(), help="Counts per photo-electron of the camera.")
@click.option("--offset", type=float, default=0.0, help="Camera's offset in counts.")
@click.option("--roi-size", type=int, help="Side of the ROI in pixels, also for later fits.")
@click.option("--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel.")
@click.option(
    "--index-factor", type=AboveZero(), default=1.0, show_default=True,
    help="Ratio of z in the sample to z of the stage, due to refractive indices.",
)  # fmt: skip
def calibrate(
    stack: Path,
    dz: float,
    output: Path,
    gain: float | None,
    offset: float,
    roi_size: int | None,
    pixel_size: float | None,
    index_factor: float,
) -> None:
    """Calibrate an astigmatic lens on beads, STACK, whose planes rise from below the focus.

    “localize --model CALIBRATION” then finds z.
    """
    voxel = None if pixel_size is None else (dz, pixel_size, pixel_size)
    try:
        settings = Settings(gain=gain, offset=offset, roi_size=roi_size, voxel_size=voxel)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            found = calibrate_astigmatism(stack, dz, settings=settings).with_index(index_factor)
        for warning in caught:
            write_message(f"{stack.name}: {warning.message}", USUAL)
        _write(found, output)
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    quality = found.quality
    assert quality is not None
    write_message(
        f"{output}: {found.words}; the beads scatter by {np.median(quality.scatter):.1f} nm in z",
        USUAL,
    )
    for bead in found.beads:
        if not bead.used:
            write_message(f"not used, bead at {bead.y:.0f}, {bead.x:.0f}: {bead.reason}", USUAL)


def _write(found: AstigmatismCalibration, output: Path) -> None:
    if output.suffix.lower() in (".yaml", ".yml"):
        apart = save_for_picasso(found, output)
        write_message(f"Picasso's curves are within {apart:.3f} px of those fitted here", USUAL)
    else:
        found.save(output)
