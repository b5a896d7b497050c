"""The formats of other programs: one table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

from .calibrated_tables import Smap, ThunderStorm, TrackMate
from .decode import Decode
from .format import Format
from .picasso import Picasso
from .pixel_tables import BigFish, NapariPoints, RsFish
from .plain_csv import PlainCsv
from .smlm import Smlm

Function = TypeVar("Function", bound=Callable[..., Any])

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
    """Return the format that a file's beginning shows, if it is one of these."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    for one in EXCHANGE.values():
        with suppress(Exception):  # of any kind where a file is damaged: then it is none of it
            if one.sniff(path, head):
                return one
    return None
