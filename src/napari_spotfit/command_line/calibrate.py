"""``napari-spotfit calibrate``: calibrate z on beads, for ``localize --model``."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from numpy.typing import ArrayLike

from ..calibration.astigmatism import calibrate_astigmatism
from ..calibration.astigmatism_files import save_for_picasso
from ..calibration.measure_psf import calibrate_psf
from ..models.astigmatism import AstigmatismCalibration
from ..models.measured_psf import MeasuredPsf
from ..settings.settings import Settings
from .options import AboveZero
from .output import USUAL, errors_written, warnings_written, write_message

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("stack", type=_FILE)
@click.option("--dz", type=AboveZero(), required=True, metavar="NM", help="Distance of the planes.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True,
    help="File for the calibration (.h5), or for Picasso (.yaml).",
)  # fmt: skip
@click.option(
    "--measured-psf",
    is_flag=True,
    help="Measure the PSF itself instead of the widths of an astigmatic lens.",
)
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
    measured_psf: bool,
    gain: float | None,
    offset: float,
    roi_size: int | None,
    pixel_size: float | None,
    index_factor: float,
) -> None:
    """Calibrate z on beads, STACK, whose planes rise from below the focus.

    By the widths of spots behind an astigmatic lens, or with --measured-psf by their images.

    “localize --model CALIBRATION” then finds z.
    """
    voxel = None if pixel_size is None else (dz, pixel_size, pixel_size)
    with errors_written(TypeError):
        settings = Settings(gain=gain, offset=offset, roi_size=roi_size, voxel_size=voxel)
        with warnings_written(stack):
            measure = calibrate_psf if measured_psf else calibrate_astigmatism
            found = measure(stack, dz, settings=settings).with_index(index_factor)
        _write(found, output)
    words = f"{output}: {found.words}"
    if (scatter := _scatter(found)) is not None:
        words += f"; the beads scatter by {np.nanmedian(np.asarray(scatter, float)):.1f} nm in z"
    write_message(words, USUAL)
    for bead in found.beads:
        if not bead.used:
            write_message(f"not used, bead at {bead.y:.0f}, {bead.x:.0f}: {bead.reason}", USUAL)


def _scatter(found: AstigmatismCalibration | MeasuredPsf) -> ArrayLike | None:
    """Return how the beads' own z scatters, in each plane; None with a single bead."""
    if isinstance(found, MeasuredPsf):
        return found.z_scatter
    return None if found.quality is None else found.quality.scatter


def _write(found: AstigmatismCalibration | MeasuredPsf, output: Path) -> None:
    if isinstance(found, AstigmatismCalibration) and output.suffix.lower() in (".yaml", ".yml"):
        apart = save_for_picasso(found, output)
        write_message(f"Picasso's curves are within {apart:.3f} px of those fitted here", USUAL)
    else:
        found.save(output)
