"""What a table of localisations has, and the layer that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...files.exchange.delimited import titles_of
from ...files.exchange.registry import EXCHANGE, HEAD, by_content
from ...files.formats import FORMATS, read
from ...files.table import UnreadableFileError
from ...results.load import fits_of
from ...results.spot_fits import SpotFits
from ..exchange import name_of_layer
from ..layers.points import layer_arguments, points_arguments
from ..parts.status import number

#: What may stand between the values of a table of text.
_SEPARATORS = "\t;,"
_OURS = "napari-spotfit"


@dataclass(frozen=True)
class Found:
    """What is in a file.

    Parameters
    ----------
    path : path
        The file.
    title : str
        What people call its format.
    fits : SpotFits
        The localisations.
    points : mapping
        What a layer of points is made of.
    place : mapping
        What the file says of where the layer lies.
    """

    path: Path
    title: str
    fits: SpotFits
    points: dict[str, Any]
    place: dict[str, Any]

    @property
    def name(self) -> str:
        """What to call the layer."""
        return name_of_layer(str(self.path))

    def layer_arguments(self) -> dict[str, Any]:
        """Return what a layer is made of that lies on no image."""
        return layer_arguments(self.points, self.name) | self.place

    def in_words(self) -> str:
        """Say what will come."""
        fits = self.fits
        told = f"{self.title}: {number(len(fits))} localisations"
        if not len(fits):
            return told
        for name in fits.index_names:
            values = fits.columns[name]
            told += f", {name} {int(values.min())} to {int(values.max())}"
        ranges = (f"{one} {_ends(fits.columns[one])}" for one in ("y", "x"))
        return f"{told}, {', '.join(ranges)} px"


def look_at(path: Path, format: str | None, pixel_size: Any) -> Found:
    """Read a table of localisations.

    Parameters
    ----------
    path : path
        The file.
    format : str, optional
        The name of its format; by default what its content tells.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm.

    Raises
    ------
    ValueError
        If it is none that is known, is damaged, or needs the size of a pixel; the message says
        what.
    OSError, ImportError
        If it cannot be read, or what reads it is missing.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file “{path}”")
    ours = path.name.lower().endswith(tuple(f".spots{end}" for end in FORMATS))
    if format is None and not ours:
        guess = by_content(path)
        if guess is not None:
            format = guess.name
        elif path.suffix.lower() not in FORMATS:
            raise UnreadableFileError(_unknown(path))
    try:
        table = read(path, format, pixel_size=pixel_size)
    except UnreadableFileError as error:
        if format is None:
            raise UnreadableFileError(_unknown(path)) from error
        raise
    fits = fits_of(table)
    title = _OURS if format is None else EXCHANGE[format].title
    place = dict(table.about.layer or {}) if format is not None else {}
    return Found(path, title, fits, points_arguments(fits), place)


def _unknown(path: Path) -> str:
    """Say what columns a file has that is of no known format."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    titles = max((titles_of(head, one) for one in _SEPARATORS), key=len)
    known = ", ".join(one.title for one in EXCHANGE.values())
    text = f"“{path.name}” is of none of the known formats: {known}"
    if len(titles) < 2:
        return f"{text}. It is no table of text"
    return (
        f"{text}. Its columns are {', '.join(titles)}; a plain CSV has columns x and y in pixels, "
        "and frame from 0"
    )


def _ends(values: Any) -> str:
    finite = values[np.isfinite(values)]
    return f"{finite.min():.1f} to {finite.max():.1f}" if len(finite) else "–"
