"""The formats of other programs: one table."""

from __future__ import annotations

from pathlib import Path

from .calibrated_tables import Smap, ThunderStorm, TrackMate
from .decode import Decode
from .format import Format
from .picasso import Picasso
from .pixel_tables import BigFish, NapariPoints, PlainCsv, RsFish
from .smlm import Smlm

#: A format is recognised by as many bytes of a file's beginning.
HEAD = 1 << 16

#: In the order in which a file that is not known by its name is tried.
EXCHANGE: dict[str, Format] = {
    made.name: made
    for made in (
        Picasso(),
        ThunderStorm(),
        Smap(),
        Decode(),
        Smlm(),
        TrackMate(),
        NapariPoints(),
        BigFish(),
        RsFish(),
        PlainCsv(),
    )
}


def by_name(path: Path) -> Format | None:
    """Return the format that a file's name ends in, if it is one of these."""
    name = path.name.lower()
    return next((one for one in EXCHANGE.values() if name.endswith(one.suffix)), None)


def by_content(path: Path) -> Format | None:
    """Return the format that a file's beginning shows, if it is one of these."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return next((one for one in EXCHANGE.values() if one.sniff(path, head)), None)
