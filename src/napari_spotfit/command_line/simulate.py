"""``napari-spotfit simulate`` and ``demo``: write a simulated movie and its spots, or show them."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..files.writing import unfinished
from ..localization.localize import localize
from ..simulate import simulate_movie
from .output import USUAL, errors_written, write_message

if TYPE_CHECKING:
    import pandas as pd

#: Names of the plugin, its sample movie and its widget.
_PLUGIN, _SAMPLE, _WIDGET = "napari-spotfit", "molecules", "Fit spots"
_MOVIE, _TABLE = "demo.npy", "demo.spots.csv"


@click.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--frames", type=click.IntRange(1), default=100, show_default=True, help="Number of frames."
)
@click.option("--size", default="256x256", show_default=True, metavar="ROWSxCOLUMNS",
              help="Size of a frame in pixels.")  # fmt: skip
@click.option("--spots-per-frame", default=45, show_default=True, help="Spots in each frame.")
@click.option("--photons", default=1000.0, show_default=True, help="Mean photons of a spot.")
@click.option("--background", default=10.0, show_default=True, help="Background photons per pixel.")
@click.option("--sigma", default=1.3, show_default=True, help="σ of the spots in pixels.")
@click.option("--offset", default=100.0, show_default=True, help="Camera's offset in counts.")
@click.option("--gain", default=1.0, show_default=True, help="Counts per photo-electron.")
@click.option("--variance", default=0.0, show_default=True, help="Read-out variance in counts².")
@click.option("--seed", type=int, help="The same seed gives the same movie.")
@click.option("--truth", type=click.Path(path_type=Path), help="A .csv for the true spots.")
def simulate(output: Path, frames: int, size: str, truth: Path | None, **options: Any) -> None:
    """Write a movie of single molecules with shot noise, a .tif or an .npy."""
    sides = size.split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides):
        raise click.UsageError(f"--size must be ROWSxCOLUMNS, such as 256x256; got {size!r}")
    if output.suffix.lower() not in (".tif", ".tiff", ".npy"):
        raise click.UsageError(f"the movie's name must end in .tif or .npy; got “{output.name}”")
    if truth is not None:
        _check_truth(truth, output)
    try:
        movie, spots = _movie(frames, (int(sides[0]), int(sides[1])), options)
        with unfinished(output) as part:
            _write(part, movie, output.suffix.lower())
        if truth is not None:
            with unfinished(truth) as part:
                spots.to_csv(part, index=False)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    except (MemoryError, OverflowError):
        raise click.ClickException(_too_large(frames, *map(int, sides))) from None
    write_message(f"{output}: {frames} frames with {len(spots)} spots", USUAL)


def _movie(
    frames: int, shape: tuple[int, int], options: dict[str, Any]
) -> tuple[np.ndarray[Any, Any], pd.DataFrame]:
    """Simulate a movie and its true spots; turn errors of the options into usage errors."""
    try:
        return simulate_movie(frames, shape, **options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _check_truth(truth: Path, movie: Path) -> None:
    """Raise an error if the file for the true spots is the movie, or not CSV."""
    if os.path.realpath(truth) == os.path.realpath(movie):
        raise click.UsageError(
            f"the movie and --truth must be two files; both are “{truth}”. Name a .csv for --truth"
        )
    if truth.suffix.lower() != ".csv":
        raise click.UsageError(f"the name of --truth must end in .csv; got “{truth.name}”")


def _too_large(frames: int, rows: int, columns: int) -> str:
    """Return the error for a movie that does not fit into memory."""
    size = frames * rows * columns * np.dtype(np.uint16).itemsize / 1e9
    return (
        f"there is not enough memory: {frames} frames of {rows}×{columns} px need {size:.3g} GB, "
        "and their spots more; use fewer --frames, a smaller --size or fewer --spots-per-frame"
    )


def _write(path: Path, movie: np.ndarray[Any, Any], ending: str) -> None:
    with path.open("wb") as file:
        if ending == ".npy":
            np.save(file, movie)
        else:
            from tifffile import imwrite

            axes = {"axes": "TYX"}
            imwrite(
                file, movie, photometric="minisblack", metadata=axes, bigtiff=movie.nbytes > 2**31
            )


@click.command()
@click.option("--save", is_flag=True, help="Write the movie and its spots, without a window.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False, exists=True), default=".",
    help="Folder to write to. [this folder]",
)  # fmt: skip
def demo(save: bool, output: Path) -> None:
    """Show a simulated movie of single molecules in napari, and fit its spots.

    Without napari, without a display, or with --save, movie and spots are written to demo.npy and
    demo.spots.csv.
    """
    missing = "" if save else _why_no_window()
    if save or missing:
        if missing:
            write_message(f"{missing}, so the demo is written as files", USUAL)
        _write_demo(output)
        return
    _show()


def _why_no_window() -> str:
    """Return the reason why napari cannot be shown; empty if it can."""
    if find_spec("napari") is None:
        return 'napari is not installed (pip install "napari-spotfit[all]")'
    unix = sys.platform not in ("win32", "darwin")
    if unix and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    return ""


def _write_demo(folder: Path) -> None:
    """Write the movie and its spots."""
    movie, truth = simulate_movie(
        60, (256, 256), spots_per_frame=45, photons=1200.0, background=20.0, offset=100.0, seed=1
    )
    with errors_written():
        with unfinished(folder / _MOVIE) as part, part.open("wb") as file:
            np.save(file, movie)
        fits = localize(movie, offset=100.0, gain=1.0)
        fits.save(folder / _TABLE)
    good = np.count_nonzero(fits.good)
    click.echo(
        f"{folder / _MOVIE}: {len(movie)} frames with {len(truth)} molecules\n"
        f"{folder / _TABLE}: {len(fits)} spots, {good} of them good"
    )


def _show() -> None:
    """Open napari with the sample, and click *Fit*."""
    import napari

    viewer = napari.Viewer()
    viewer.open_sample(_PLUGIN, _SAMPLE)
    _, widget = viewer.window.add_plugin_dock_widget(_PLUGIN, _WIDGET)
    widget.fit_button.click()
    napari.run()
