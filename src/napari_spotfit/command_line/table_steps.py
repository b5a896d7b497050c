"""What commands on a table of spots have in common: the table, its pixels, and their errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from ..files.exchange.image_info import ImageInfo, as_pixel_size, image_info_of
from ..files.formats import read
from ..files.parts import part_path, read_run
from ..localization.to_folder import load_parts
from ..results.fit_parts import FitParts
from ..results.saving import fits_of, save_fits
from ..results.spot_fits import SpotFits
from .options import AboveZero
from .output import warnings_written

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


def on_table(*, parts: bool = False) -> Callable[[Command], Command]:
    """Give a command a table as `source`, and `pixel_size`; write its errors as messages.

    Parameters
    ----------
    parts : bool
        Whether the table may be a folder of parts.
    """
    kind = TableOrParts() if parts else TABLE

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, **named: Any) -> None:
            try:
                command(*args, **named)
            except (ImportError, OSError, ValueError) as error:
                raise click.ClickException(str(error)) from None

        run = click.option(
            "--pixel-size", type=AboveZero(), metavar="NM", help="Side of a pixel, for nm and µm."
        )(run)
        return click.argument("source", metavar="TABLE", type=kind)(run)

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
