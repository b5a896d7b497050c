"""``napari-spotfit drift``: estimate drift, and subtract it from a table of spots."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import numpy as np
from click.core import ParameterSource

from ..analysis.drift import fiducial_drift, load_drift, save_drift, subtract_drift
from ..analysis.drift_estimate import estimate_drift
from ..analysis.tracks import link_spots
from ..results.spot_fits import SpotFits
from .options import AboveZero
from .output import USUAL, refuse_equal_paths, warnings_written, write_message
from .table_steps import TABLE, on_table, read_table, save_table


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
        source_of = click.get_current_context().get_parameter_source
        for name in ("method", "segment", "max_distance", "memory", "least_share"):
            if source_of(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} says how to find a drift, but --drift gives one: "
                    "leave one of them out"
                )
    fits, image = read_table(source, pixel_size)
    if known is not None:
        found = load_drift(known, pixel_size=pixel_size)
    else:
        with warnings_written(source):
            if method != "fiducials":
                found = estimate_drift(fits, method, segment=segment)
            elif isinstance(fits, SpotFits):
                linked = link_spots(fits, max_distance, memory=memory)
                found = fiducial_drift(linked, least_share=least_share)
            else:
                raise click.UsageError("fiducials need a table: parts need --method aim or rcc")
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
