"""The formats of other programs: one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    sniff : callable
        Whether a file is of it, from its path and its first bytes.
    read, write : callable
        From a path and to one; `write` returns texts that belong in files beside, by suffix.
    """

    name: str
    title: str
    suffix: str
    sniff: Callable[[Path, bytes], bool]
    read: Callable[[Path, Scene], SpotTable]
    write: Callable[[Path, SpotTable, Scene, Loss], dict[str, str]]


def _format(name: str, title: str, suffix: str, module: object) -> Format:
    parts = (getattr(module, part) for part in ("sniff", "read", "write"))
    return Format(name, title, suffix, *parts)


#: In the order in which a file is looked at that its name does not tell.
EXCHANGE = {
    made.name: made
    for made in (
        _format("picasso", "Picasso", ".hdf5", picasso),
        _format("thunderstorm", "ThunderSTORM", ".thunderstorm.csv", thunderstorm),
        _format("smap", "SMAP", ".smap.csv", smap),
        _format("decode", "DECODE", ".decode.h5", decode),
        _format("smlm", "SMLM 0.2", ".smlm", smlm),
        _format("trackmate", "TrackMate", ".trackmate.csv", trackmate),
        _format("napari", "napari's points", ".napari.csv", napari_points),
        _format("bigfish", "big-fish", ".bigfish.csv", bigfish),
        _format("rsfish", "RS-FISH", ".rsfish.csv", rsfish),
        _format("plain", "plain CSV", ".plain.csv", plain),
    )
}


def by_name(path: Path) -> Format | None:
    """Return the format that a file's name ends in, if it is one of these."""
    name = path.name.lower()
    return next((one for one in EXCHANGE.values() if name.endswith(one.suffix)), None)


def by_content(path: Path) -> Format | None:
    """Return the format that a file's beginning tells, if it is one of these."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return next((one for one in EXCHANGE.values() if one.sniff(path, head)), None)
