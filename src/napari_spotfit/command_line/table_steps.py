"""``napari-spotfit drift``, ``merge``, ``precision``: steps on a table of spots, or its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import numpy as np
from click.core import ParameterSource

from ..analysis.drift import Drift, fiducial_drift, load_drift, save_drift, subtract_drift
from ..analysis.drift_estimate import estimate_drift
from ..analysis.linking import link_spots
from ..analysis.merging import merge_blinks
from ..analysis.precision import nena
from ..analysis.ring_correlation import fourier_ring_correlation
from ..files.exchange.image_info import ImageInfo, as_pixel_size, image_info_of
from ..files.formats import read
from ..files.parts import part_path, read_run
from ..localization.to_folder import load_parts
from ..models.columns import DETECTIONS
from ..results.fit_parts import FitParts
from ..results.saving import fits_of, save_fits
from ..results.spot_fits import SpotFits
from .options import AboveZero, takes_z_scale
from .output import (
    USUAL,
    errors_written,
    refuse_equal_paths,
    warnings_written,
    write_message,
    write_summary,
)

Command = Callable[..., None]

#: A table that exists.
TABLE = click.Path(exists=True, dir_okay=False, path_type=Path)


class TableOrParts(click.Path):
    """A table that exists, or a folder of parts of one."""

    def __init__(self) -> None:
        super().__init__(exists=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a folder without parts."""
        path = Path(str(super().convert(value, param, ctx)))
        if path.is_dir() and read_run(path) is None:
            self.fail(
                f"“{path}” is a directory without the parts of a table, as localize_to_folder "
                "writes them; pass a table, or such a folder",
                param, ctx,
            )  # fmt: skip
        return path


class Table(NamedTuple):
    """Spots that were read, or a folder of parts of them, and what is known of their image."""

    fits: SpotFits | FitParts
    image: ImageInfo


def on_table(*, parts: bool = False, metavar: str = "TABLE") -> Callable[[Command], Command]:
    """Give a command a table as `source`, and `pixel_size`; write its errors as messages.

    Parameters
    ----------
    parts : bool
        Whether the table may be a folder of parts.
    metavar : str
        What the help calls the table.
    """
    kind = TableOrParts() if parts else TABLE

    def decorate(command: Command) -> Command:
        run = errors_written()(command)
        run = click.option(
            "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel, for nm and µm."
        )(run)
        return click.argument("source", metavar=metavar, type=kind)(run)

    return decorate


def read_table(source: Path, pixel_size: float | None) -> Table:
    """Read a table, or find the parts of a folder; write warnings as messages."""
    with warnings_written(source):
        if not source.is_dir():
            whole = read(source, pixel_size=pixel_size)
            return Table(fits_of(whole), image_info_of(whole, as_pixel_size(pixel_size), None))
        parts, run = load_parts(source), read_run(source)
        assert run is not None  # load_parts has read it
        first = read(part_path(source, run.firsts[0])) if run.firsts else None
    if first is None:
        raise ValueError(f"“{source}” has no parts: the image that was fitted had no frames")
    return Table(parts, image_info_of(first, as_pixel_size(pixel_size), None))


def save_table(fits: SpotFits | FitParts, path: Path, image: ImageInfo) -> int:
    """Write a table, and warnings as messages; return how many spots it has."""
    with warnings_written(path):
        if not isinstance(fits, SpotFits):
            return save_fits(fits, path, pixel_size=image.pixel_size, shape=image.shape)
        fits.save(path, pixel_size=image.pixel_size, shape=image.shape)
        return len(fits)


@click.command()
@on_table(parts=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path),
    help="The table without the drift, in any format that “convert” knows.",
)  # fmt: skip
@click.option(
    "--drift", "known", type=TABLE,
    help="A known drift (.csv, or Picasso's .txt), such as of another table.",
)  # fmt: skip
@click.option(
    "--save-drift", "target", type=click.Path(path_type=Path),
    help="File for the drift: a table (.csv), or Picasso's format (.txt).",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice(["fiducials", "aim", "rcc"]), default="fiducials",
    show_default=True,
    help="From beads; or without markers, from molecules that are seen again: by overlap (aim), or "
    "cross-correlation (rcc).",
)  # fmt: skip
@click.option(
    "--segment", type=click.IntRange(1), metavar="FRAMES",
    help="Frames that aim and rcc compare with others; by default it follows from the spots.",
)  # fmt: skip
@click.option(
    "--max-distance", type=AboveZero(), default=1.0, show_default=True, metavar="PX",
    help="Largest movement of a fiducial from one frame to the next.",
)  # fmt: skip
@click.option(
    "--memory", type=click.IntRange(0), default=5, show_default=True, metavar="FRAMES",
    help="Number of frames in which a fiducial may be missing.",
)  # fmt: skip
@click.option(
    "--least-share", type=AboveZero(1), default=0.5, show_default=True,
    help="Least fraction of frames in which a fiducial is seen.",
)  # fmt: skip
@takes_z_scale
def drift(
    source: Path,
    output: Path | None,
    known: Path | None,
    target: Path | None,
    method: Literal["fiducials", "aim", "rcc"],
    segment: int | None,
    max_distance: float,
    memory: int,
    least_share: float,
    z_scale: float | None,
    pixel_size: float | None,
) -> None:
    """Subtract the drift from the spots of a movie.

    Fiducials are spots that are seen in many frames, such as beads. Their good fits in TABLE are
    linked over the frames, and the drift is the mean of their shifts, weighted by standard errors.
    Without them, drift is found from molecules that are seen again and again (--method aim). TABLE
    must be of one movie: “localize” can write one table per movie into a folder. It may be a folder
    of parts that do not fit in memory.
    """
    if output is None and target is None:
        raise click.UsageError(
            "nothing would be written: pass -o for the table, --save-drift for the drift, or both"
        )
    refuse_equal_paths(source, {"-o": output, "--save-drift": target})
    if known is not None:
        _refuse_given(_SEARCH, "how to find a drift, but --drift gives one: leave one of them out")
    else:
        other = _OF_FIDUCIALS if method != "fiducials" else ("segment",)
        _refuse_given(other, f"nothing to --method {method}: leave it out, or choose another")
    fits, image = read_table(source, pixel_size)
    if known is not None:
        found = load_drift(known, pixel_size=pixel_size)
    else:
        with warnings_written(source):
            if method != "fiducials":
                found = estimate_drift(fits, method, segment=segment)
            else:
                found = _by_fiducials(fits, max_distance, memory, least_share, z_scale)
        what = "fiducials" if method == "fiducials" else "molecules of a segment"
        used = f"{np.median(found.used):g} {what} in most frames"
        way, error = found.extent
        write_message(f"{source}: a drift over {way:.2f} px, ± {error:.3g} px, by {used}", USUAL)
    if target is not None:
        save_drift(found, target)
    if output is not None:
        with warnings_written(source):
            count = save_table(subtract_drift(fits, found), output, image)
        write_message(f"{output}: {count} spots", USUAL)


#: Options that say how to link fiducials, and all that say how to find a drift.
_OF_FIDUCIALS = ("max_distance", "memory", "least_share", "z_scale")
_SEARCH = ("method", "segment", *_OF_FIDUCIALS)


def _refuse_given(names: Sequence[str], says: str) -> None:
    """Raise a UsageError if options are given that would not count."""
    source_of = click.get_current_context().get_parameter_source
    for name in names:
        if source_of(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} says {says}")


def _by_fiducials(
    fits: SpotFits | FitParts, max_distance: float, memory: int, least_share: float,
    z_scale: float | None,
) -> Drift:  # fmt: skip
    """Return the drift by fiducials, which are linked in one table."""
    if not isinstance(fits, SpotFits):
        raise click.UsageError("fiducials need a table: parts need --method aim or rcc")
    linked = link_spots(fits, max_distance, memory=memory, z_scale=z_scale)
    try:
        return fiducial_drift(linked, least_share=least_share)
    except ValueError as cause:
        raise click.ClickException(
            f"{cause}. Without beads, measure the drift by molecules: --method aim"
        ) from None


@click.command()
@on_table(parts=True)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path),
    help="The table of events, in any format that “convert” knows.",
)  # fmt: skip
@click.option(
    "--members", "target", type=click.Path(path_type=Path),
    help="A table of the fits, too, with the row of their event as “parent”.",
)  # fmt: skip
@click.option(
    "--max-dark-frames", type=click.IntRange(0), default=1, show_default=True, metavar="FRAMES",
    help="Number of frames within an event in which the molecule may be dark.",
)  # fmt: skip
@click.option(
    "--radius", type=AboveZero(), metavar="PX",
    help="Largest distance of a fit from its event; by default it follows from standard errors.",
)  # fmt: skip
@click.option(
    "--rule", type=click.Choice(["nearest", "picasso"]), default="nearest", show_default=True,
    help="Which fits go together; “picasso” makes the events of Picasso's Link.",
)  # fmt: skip
def merge(
    source: Path,
    output: Path,
    target: Path | None,
    max_dark_frames: int,
    radius: float | None,
    rule: Literal["nearest", "picasso"],
    pixel_size: float | None,
) -> None:
    """Merge the fits of a molecule in successive frames to one event.

    Good fits in TABLE are merged if they are as near to each other as their standard errors let
    expect: their photons are added up, and their positions averaged. Subtract drift before. TABLE
    may be a folder of parts, which need not fit in memory: an event is written after the part in
    which it ends.
    """
    refuse_equal_paths(source, {"-o": output, "--members": target})
    fits, image = read_table(source, pixel_size)
    with warnings_written(source):
        if isinstance(fits, SpotFits):
            events, members = merge_blinks(fits, max_dark_frames, radius, True, rule)
            count = save_table(events, output, image)
            if target is not None:
                save_table(members, target, image)
        elif target is not None:
            raise click.UsageError(
                "--members needs a table: leave it out, as there are events only of parts"
            )
        else:
            parts = merge_blinks(fits, max_dark_frames, radius, False, rule)
            count = save_table(parts, output, image)
    of = f"{len(fits)} spots" if isinstance(fits, SpotFits) else f"the parts in {source}"
    write_message(f"{output}: {count} events of {of}", USUAL)


#: Numbers in pixels, which are written in nm, too, where the pixel's size is known.
_LENGTHS = ("precision", "y", "x", "resolution", "resolution_stderr")


@click.command()
@on_table(parts=True)
@click.option("--json", "as_json", is_flag=True, help="Write the numbers as JSON.")
def precision(source: Path, pixel_size: float | None, as_json: bool) -> None:
    """Measure how precise the spots of a movie are, and the resolution of their image.

    The precision follows from the distances of spots in successive frames (NeNA), and says whether
    their standard errors hold. The resolution follows from the correlation of two halves of the
    movie (FRC), after blinks are merged; of few spots it is not known, which a message says.
    Subtract drift before. TABLE may be a folder of parts.
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
            _write_length(source, "precision", found.precision, pixel_size)
            write_message(
                f"{source}: {errors}; {found.pairs} pairs, {found.share:.0%} of one molecule", USUAL
            )
            fits = merge_blinks(fits, radius=3 * math.sqrt(2) * found.precision)
        resolution = error = math.nan
        try:
            rings = fourier_ring_correlation(fits)
        except ValueError as reason:
            if not numbers:  # nothing is known
                raise
            write_message(f"{source}: the resolution is not known: {reason}", USUAL)
        else:
            resolution, error = rings.resolution, rings.resolution_stderr
            _write_length(source, "resolution", resolution, pixel_size, error)
    numbers |= {"resolution": resolution, "resolution_stderr": error}
    if pixel_size is not None:
        numbers |= {
            f"{name}_nm": numbers[name] * pixel_size for name in _LENGTHS if name in numbers
        }
    if as_json:
        write_summary({name: None if value != value else value for name, value in numbers.items()})


def _write_length(
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
