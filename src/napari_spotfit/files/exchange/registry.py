"""The formats of other programs: one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

from ..table import SpotTable
from . import (
    bigfish,
    decode,
    napari_points,
    picasso,
    plain,
    rsfish,
    smap,
    smlm,
    thunderstorm,
    trackmate,
)  # fmt: skip
from .homes import Loss
from .scene import Scene

Function = TypeVar("Function", bound=Callable[..., Any])

#: So many bytes of its beginning tell what a file is.
HEAD = 1 << 16


@dataclass(frozen=True)
class Format:
    """All there is to say about one format.

    Parameters
    ----------
    name : str
        What ``format=`` takes.
    title : str
        What people call it.
    suffix : str
        What names end in that are written in it, unless they say it otherwise.
    unit, origin, first_frame, needs : str
        For documentation: the unit of positions, where the centre of the first pixel lies, the
        number of the first frame, and what must be known or installed.
    pattern : str
        Which names napari opens as this format, if what is in the file says so, too.
    sniff : callable
        Whether a file is of it, from its path and its first bytes.
    read, write : callable
        From a path and to one; `write` returns texts that belong in files beside, by suffix.
    """

    name: str
    title: str
    suffix: str
    unit: str
    origin: str
    first_frame: str
    needs: str
    pattern: str
    sniff: Callable[[Path, bytes], bool]
    read: Callable[[Path, Scene], SpotTable]
    write: Callable[[Path, SpotTable, Scene, Loss], dict[str, str]]


def _format(
    module: object,
    name: str,
    title: str,
    suffix: str,
    unit: str = "px",
    origin: str = "0",
    first_frame: str = "0",
    needs: str = "",
    pattern: str = "",
) -> Format:
    parts = (getattr(module, part) for part in ("sniff", "read", "write"))
    pattern = pattern or f"*{suffix}"
    return Format(name, title, suffix, unit, origin, first_frame, needs, pattern, *parts)


_SIZE, _HDF5 = "size of a pixel", "`napari-spotfit[hdf5]`"


#: In the order in which a file is looked at that its name does not tell.
EXCHANGE = {
    made.name: made
    for made in (
        _format(picasso, "picasso", "Picasso", ".hdf5", needs=_HDF5, pattern="*_locs*.hdf5"),
        _format(
            thunderstorm,
            "thunderstorm",
            "ThunderSTORM",
            ".thunderstorm.csv",
            "nm",
            "0.5 px",
            "1",
            _SIZE,
        ),
        _format(smap, "smap", "SMAP", ".smap.csv", "nm", "1 px", "1", _SIZE),
        _format(decode, "decode", "DECODE", ".decode.h5", "px (reads nm, too)", needs=_HDF5),
        _format(smlm, "smlm", "SMLM 0.2", ".smlm", "nm", "0.5 px", "1", _SIZE),
        _format(
            trackmate,
            "trackmate",
            "TrackMate",
            ".trackmate.csv",
            "µm, else px",
            needs="size of a pixel, if in a unit of length",
        ),
        _format(napari_points, "napari", "napari's points", ".napari.csv"),
        _format(bigfish, "bigfish", "big-fish", ".bigfish.csv", first_frame="as it is"),
        _format(rsfish, "rsfish", "RS-FISH", ".rsfish.csv", first_frame="1"),
        _format(plain, "plain", "plain CSV", ".plain.csv"),
    )
}


def lists_formats(function: Function) -> Function:
    """Put all formats in the place of ``{formats}`` in a function's docstring."""
    listed = (f'``"{one.name}"`` ({one.title}, ``{one.suffix}``)' for one in EXCHANGE.values())
    lines = fill(", ".join(listed), 88).replace("\n", "\n        ")
    function.__doc__ = (function.__doc__ or "").replace("{formats}", lines)
    return function


def by_name(path: Path) -> Format | None:
    """Return the format that a file's name ends in, if it is one of these."""
    name = path.name.lower()
    return next((one for one in EXCHANGE.values() if name.endswith(one.suffix)), None)


def by_content(path: Path) -> Format | None:
    """Return the format that a file's beginning tells, if it is one of these."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return next((one for one in EXCHANGE.values() if one.sniff(path, head)), None)
