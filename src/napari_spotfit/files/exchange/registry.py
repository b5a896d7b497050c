"""The table of other programs' formats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

from .calibrated_tables import Smap, ThunderStorm, TrackMate
from .emitters import Decode, Smlm
from .mapping import Format
from .picasso import Picasso
from .pixel_tables import BigFish, NapariPoints, PlainCsv, RsFish

Function = TypeVar("Function", bound=Callable[..., Any])

#: Number of first bytes by which a format is recognised.
HEAD = 1 << 16

#: In the order in which formats are tried on a file with an unknown ending.
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
    """Replace ``{formats}`` in a function's docstring by the list of formats."""
    listed = (f'``"{one.name}"`` ({one.title}, ``{one.suffix}``)' for one in EXCHANGE.values())
    lines = fill(", ".join(listed), 88).replace("\n", "\n        ")
    function.__doc__ = (function.__doc__ or "").replace("{formats}", lines)
    return function


def by_name(path: Path) -> Format | None:
    """Return the format that belongs to the ending of a file's name, or None."""
    name = path.name.lower()
    return next((one for one in EXCHANGE.values() if name.endswith(one.suffix)), None)


def by_content(path: Path) -> Format | None:
    """Return the format that a file's first bytes show, or None."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    for one in EXCHANGE.values():
        with suppress(Exception):  # damaged files raise all kinds of errors
            if one.sniff(path, head):
                return one
    return None
