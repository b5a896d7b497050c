"""Fit the channels of many image files, and pair their spots."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from ..analysis.cells import table_of_cells
from ..analysis.channel_registration import ChannelRegistration
from ..analysis.linking import of_one_channel, split_channels
from ..analysis.pairs import SpotPairs, pair_spots
from ..files.table import as_text
from ..files.writing import unfinished
from ..images.channels import NO_MAPS, channels_of
from ..images.files.opening import open_image
from ..results.saving import load_fits
from ..results.spot_fits import SpotFits
from .masks import open_mask
from .request import DONE, FAILED, KEPT, Batch, Outcome, batch_tables, images_of
from .run import Report, run_batch

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PairsRequest:
    """A request to pair the spots of channels of many files.

    Parameters
    ----------
    batch : Batch
        The files, a folder as output, and a tuple of channels.
    radius : float
        Largest distance of a pair in pixels.
    registrations : sequence of ChannelRegistration
        Registrations of the second, third … channel onto the first; empty if they coincide.
    z_scale : float, optional
        Pixels per unit of z, as for :func:`pair_spots`.
    """

    batch: Batch
    radius: float
    registrations: Sequence[ChannelRegistration] = ()
    z_scale: float | None = None


@dataclass
class PairsOutcome:
    """The outcome of a file: counts and pairs of each two channels, and the tables."""

    file: str
    pairs: dict[str, dict[str, float]]
    #: Number of spots outside a registration, which were left out.
    outside: int
    cells: str
    tables: list[str]


def pair_files(
    request: PairsRequest, report: Report, stopped: Callable[[], bool]
) -> tuple[list[Outcome], list[PairsOutcome]]:
    """Fit the channels of image files, and write tables of their pairs, and of cells by channel.

    A file that fails does not stop the others. Fits of an earlier run are kept.

    Returns
    -------
    outcomes : list of Outcome
        One per file, as returned by :func:`run_batch`, with an error if pairing failed.
    found : list of PairsOutcome
        One per file that was paired.

    Raises
    ------
    ValueError, OSError
        If :func:`batch_tables` refuses the output, it is not a folder, or the table of all files
        cannot be written.
    """
    batch = images_of(request.batch)
    if batch_tables(batch) is None:
        raise ValueError(f"the output must be a folder for several tables; got “{batch.output}”")
    # Tables of spots do not depend on masks, so they can be kept from runs without.
    outcomes = run_batch(replace(batch, labels=None), report, stopped)
    found, tables = [], []
    for outcome in outcomes:
        if stopped():
            break
        if outcome.state not in (DONE, KEPT):
            continue
        try:
            one, table = _pair_file(replace(request, batch=batch), outcome)
        except (ImportError, OSError, TypeError, ValueError) as error:
            outcome.state, outcome.error = FAILED, f"{outcome.file}: {error}"
            report(outcome)
            continue
        found.append(one)
        table.insert(0, "file", as_text(outcome.file))
        tables.append(table)
    if tables and not stopped():
        import pandas as pd

        _write(pd.concat(tables, ignore_index=True), cells_of_all(batch))
    return outcomes, found


def cells_of_all(batch: Batch) -> Path:
    """Return the path of the table of cells of all files, named after the channels."""
    return batch.output / f"{_joined(_names(batch))}.cells.csv"


def _names(batch: Batch) -> list[str]:
    """Return the names of the channels in tables."""
    chosen = batch.channel if isinstance(batch.channel, tuple) else ()
    return [name if isinstance(name, str) else f"channel_{name}" for name in chosen]


def _joined(names: Sequence[str]) -> str:
    """Return names of channels as a part of a file's name."""
    return re.sub(r"[^\w+.-]", "_", "+".join(names))


def _pair_file(request: PairsRequest, outcome: Outcome) -> tuple[PairsOutcome, pd.DataFrame]:
    """Pair the spots of a file, write pairs and cells, and return outcome and cells."""
    batch, path, outside = request.batch, Path(outcome.file), 0
    images = channels_of(open_image(path), batch.channel, NO_MAPS)
    fits = load_fits(outcome.output)
    good, none = split_channels(fits[fits.good]), of_one_channel(fits[:0])
    channels: dict[str, SpotFits] = {}
    for place, (name, image) in enumerate(zip(_names(batch), images, strict=True)):
        own = good.get(int(image.number or 0), none)
        if place and request.registrations:
            registered = request.registrations[place - 1].apply(own, "drop")
            outside, own = outside + len(own) - len(registered), registered
        channels[name] = own
    labels = None
    if batch.labels is not None:
        labels = open_mask(path, batch.labels, batch.files, images)
    shape = images[0].image.shape
    pairs = {
        (one, other): pair_spots(
            channels[one],
            channels[other],
            request.radius,
            labels=labels,
            shape=shape,
            z_scale=request.z_scale,
        )
        for one, other in combinations(channels, 2)
    }
    table = table_of_cells(channels, pairs, labels)
    start = Path(outcome.output).with_name(Path(outcome.output).name.removesuffix(batch.ending))
    tables = []
    for (one, other), found in pairs.items():
        tables.append(start.with_name(f"{start.name}.{_joined([one, other])}.pairs.csv"))
        _write(_with_places(found, channels[one], channels[other]), tables[-1])
    cells = start.with_name(f"{start.name}.{_joined(list(channels))}.cells.csv")
    _write(table, cells)
    numbers = {
        f"{one}+{other}": {
            "observed": found.observed, "expected": found.expected_shifted,
            "excess": found.excess, "stderr": found.stderr,
        }
        for (one, other), found in pairs.items()
    }  # fmt: skip
    names = [name.as_posix() for name in tables]
    return PairsOutcome(outcome.file, numbers, outside, cells.as_posix(), names), table


def _with_places(pairs: SpotPairs, a: SpotFits, b: SpotFits) -> pd.DataFrame:
    """Return the table of pairs with the positions of both spots instead of their rows."""
    table = pairs.to_dataframe().drop(columns=["a", "b"])
    columns = {name: a.columns[name][pairs.a] for name in a.index_names}
    for letter, fits, rows in (("a", a, pairs.a), ("b", b, pairs.b)):
        columns |= {f"{name}_{letter}": fits.columns[name][rows] for name in ("y", "x", "photons")}
    for place, (name, values) in enumerate(columns.items()):
        table.insert(place, name, values)
    return table


def _write(table: pd.DataFrame, path: Path) -> None:
    with unfinished(path) as part:
        table.to_csv(part, index=False)
