"""The command ``napari-spotfit``, and those of its commands that read no images or tables."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..engine.backend import BackendUnavailableError
from ..engine.select import describe
from ..files.formats import FORMATS
from ..files.writing import unfinished
from ..images.files.opening import ENDINGS
from ..localization.fit_spots import fit_spots
from ..localization.localize import localize as localize_movie
from ..settings.settings import Settings
from ..simulate import simulate_movie, simulate_spots
from ..version import __version__
from .calibrate import calibrate
from .localize import localize, pairs
from .options import AboveZero
from .output import (
    EXIT_STOPPED,
    USUAL,
    discard_output,
    end_quietly,
    errors_written,
    escaped,
    in_options,
    write_any_text,
    write_message,
    write_summary,
)
from .table_steps import drift, merge, precision
from .tables import convert, render, report

if TYPE_CHECKING:
    import pandas as pd

#: Names of the plugin, its sample movie and its widget.
_PLUGIN, _SAMPLE, _WIDGET = "napari-spotfit", "molecules", "Fit spots"
_MOVIE, _TABLE = "demo.npy", "demo.spots.csv"
#: The package that each format needs, if any.
_NEEDS = ENDINGS | dict.fromkeys(FORMATS, "") | {".parquet": "pyarrow"}

#: The paper's simulation: counts of a spot, of the background in its ROI, and range of σ in px.
_PHOTONS, _BACKGROUND, _SIGMA = 400, 40, (1.0, 2.0)
_SIZES = 7, 9, 11, 16, 32
#: Bytes of cut-outs in the first call: few for a CPU, many for a GPU.
_BYTES = {"cpu": 16 << 20, "cuda": 512 << 20}
#: Published million fits per second: least squares, float32 arrays on the host.
PUBLISHED = {
    "Gpufit": {7: 10.5, 9: 8.2, 11: 7.3, 16: 3.7, 32: 0.97},
    "Picasso, GPU": {7: 11.1, 9: 9.8, 11: 8.5},
    "Picasso, CPU": {7: 0.26, 9: 0.19, 11: 0.15},
}
SOURCE = (
    "Gpufit and Picasso 0.11.3 on an NVIDIA H200, Picasso on 2 cores of an EPYC with AVX-512; "
    "the same simulation: 400 signal and 40 background counts, float32 from the host "
    "(docs/performance.md)"
)
#: Key that says whether a program reads the output.
_FOR_PROGRAMS = "napari_spotfit.json"


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
        fits = localize_movie(movie, offset=100.0, gain=1.0)
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


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
def info(as_json: bool) -> None:
    """Show what is installed, the device for fits and, if it is no GPU, the reason."""
    cpu, best = describe(Settings(backend="cpu")), describe(Settings())
    about: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "runs on": best.name,
        "cpu": cpu.name,
        "library": cpu.library,
        "gpus": best.gpus,
        "why no GPU": best.reason,
        "images": _formats(ENDINGS),
        "tables": _formats(FORMATS),
    }
    if as_json:
        write_summary(about)
        return
    for name, value in about.items():
        if isinstance(value, dict):
            value = ", ".join(end if found else f"{end} ({_NEEDS[end]} is missing)"
                              for end, found in value.items())  # fmt: skip
        if value != "":
            click.echo(f"{name + ':':12} {value}")


def _formats(endings: Any) -> dict[str, bool]:
    """Return for each format whether its packages are installed."""
    return {end: not _NEEDS[end] or find_spec(_NEEDS[end]) is not None for end in endings}


@click.command()
@click.option(
    "--roi-size", "sizes", type=click.IntRange(5, 64), multiple=True, metavar="N",
    help="Side of the ROIs in pixels; may be given several times. [7, 9, 11, 16, 32]",
)  # fmt: skip
@click.option("--backend", type=click.Choice(["auto", "cpu", "cuda"]), default="auto",
              show_default=True, help="What fits.")  # fmt: skip
@click.option("--seconds", type=AboveZero(), default=1.0,
              show_default=True, help="For each size, at least.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
def benchmark(sizes: tuple[int, ...], backend: Any, seconds: float, as_json: bool) -> None:
    """Measure how many spots this machine fits per second, by size of the ROI.

    Least squares fits of a round Gaussian, without standard errors, to simulated cut-outs (float32)
    from the host's memory and back, compared with published numbers of other programs. The fastest
    call counts, as other programs that run at the same time slow it down.
    """
    settings = Settings(backend=backend, errors=False)
    about = describe(settings)
    measured: dict[int, float] = {}
    try:
        for size in sizes or _SIZES:
            measured[size] = _rate(size, settings, seconds)
            if not as_json:
                _write_row(size, measured[size], about.name if len(measured) == 1 else "")
    except BackendUnavailableError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        write_summary(
            {
                "version": __version__,
                "runs_on": about.name,
                "million_fits_per_second": {str(size): rate for size, rate in measured.items()},
                "published": {name: {str(n): one for n, one in rates.items()}
                              for name, rates in PUBLISHED.items()},
                "source": SOURCE,
            }
        )  # fmt: skip
    else:
        click.echo(f"\nOthers: {SOURCE}.")


def _rate(size: int, settings: Settings, seconds: float) -> float:
    """Return million fits per second, of the fastest call."""
    spots, _ = simulate_spots(
        _BYTES["cpu"] // (4 * size**2), size, photons=_PHOTONS,
        background=_BACKGROUND / size**2, sigma=_SIGMA, jitter=0.75, seed=size,
    )  # fmt: skip
    kind = fit_spots(spots, settings=settings).settings
    if kind is not None and kind.backend == "cuda":
        spots = spots.repeat(_BYTES["cuda"] // _BYTES["cpu"], axis=0)
        fit_spots(spots, settings=settings)  # warm up
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        fit_spots(spots, settings=settings)
        best = min(best, time.perf_counter() - start)
    return len(spots) / best / 1e6


def _write_row(size: int, rate: float, device: str) -> None:
    if device:
        click.echo(f"On {device}; million fits per second, least squares, float32 from the host:\n")
        others = "".join(f"{name:>15}" for name in PUBLISHED)
        click.echo(f"{'ROI':>8}{'measured':>12}{others}")
    others = "".join(
        f"{rates[size]:>15g}" if size in rates else f"{'–':>15}" for rates in PUBLISHED.values()
    )
    click.echo(f"{f'{size}×{size}':>8}{rate:>12.3g}{others}")


class _Program(click.Group):
    """The command group; errors end in a message, and Ctrl-C in exit code 130."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run as the main program of a process."""
        try:
            return super().__call__(*args, **named)
        except SystemExit:
            if threading.current_thread() is threading.main_thread():
                end_quietly()
            raise

    def main(self, *args: Any, **named: Any) -> Any:
        """Run with arguments; Click handles a closed pipe."""
        write_any_text()
        try:
            return super().main(*args, **named)
        except OSError as error:
            if error.filename is not None:  # an error of a file, not of a stream
                raise
            discard_output(error)
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether a program reads the output, as it gets errors as JSON, too."""
        ctx.meta[_FOR_PROGRAMS] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Click would report an interrupted one as failed."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.meta[_FOR_PROGRAMS]:
                write_summary({"version": __version__, "error": error.format_message()})
            command = self.commands.get(ctx.invoked_subcommand or "", self)
            # It may quote names of files.
            vars(error)["message"] = escaped(in_options(error.message, command))
            raise
        except KeyboardInterrupt:
            ctx.exit(EXIT_STOPPED)


@click.group(
    cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="napari-spotfit")
def main() -> None:
    """Find and fit the spots of images: single molecules, beads, smFISH dots."""


for command in (
    localize, calibrate, pairs, info, convert, drift, merge, precision, render, report,
    simulate, benchmark, demo,
):  # fmt: skip
    main.add_command(command)
