"""The command ``napari-spotfit``."""

from __future__ import annotations

import platform
import sys
import threading
import time
from importlib.util import find_spec
from typing import Any

import click

from ..engine.backend import BackendUnavailableError
from ..engine.select import describe
from ..files.formats import FORMATS
from ..images.files.opening import ENDINGS
from ..localization.fit_spots import fit_spots
from ..settings.settings import Settings
from ..simulate import simulate_spots
from ..version import __version__
from .calibrate import calibrate
from .localize import localize
from .options import AboveZero
from .output import (
    EXIT_STOPPED,
    discard_output,
    end_quietly,
    escaped,
    in_options,
    write_any_text,
    write_summary,
)
from .pairs import pairs
from .simulate import demo, simulate
from .table_steps import drift, merge, precision
from .tables import convert, render, report

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
