"""``napari-spotfit demo``: fit a simulated movie in napari, or write movie and spots to files."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np

from ..files.writing import unfinished
from ..localization.localize import localize
from ..simulate import simulate_movie
from .output import USUAL, write_message

#: Names of the plugin, its sample movie and its widget.
_PLUGIN, _SAMPLE, _WIDGET = "napari-spotfit", "molecules", "Fit spots"
_MOVIE, _TABLE = "demo.npy", "demo.spots.csv"


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
        _write(output)
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


def _write(folder: Path) -> None:
    """Write the movie and its spots."""
    movie, truth = simulate_movie(
        60, (256, 256), spots_per_frame=45, photons=1200.0, background=20.0, offset=100.0, seed=1
    )
    try:
        with unfinished(folder / _MOVIE) as part, part.open("wb") as file:
            np.save(file, movie)
        fits = localize(movie, offset=100.0, gain=1.0)
        fits.save(folder / _TABLE)
    except OSError as error:
        raise click.ClickException(str(error)) from None
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
