"""The preview of an import: what a table of localisations has, and its first rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QTableWidget, QTableWidgetItem

from ..files.exchange.delimited import titles_of
from ..files.exchange.registry import EXCHANGE, HEAD, by_content
from ..files.formats import FORMATS, read
from ..files.table import UnreadableFileError
from ..results.saving import fits_of
from ..results.spot_fits import SpotFits
from .layers.points import layer_arguments, points_arguments
from .parts.layout import explain, show_whole_rows
from .parts.messages import number
from .saved_layers import name_of_layer

#: What may stand between the values of a table of text, in words.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_OURS = "napari-spotfit"
_TIP = (
    "<p>The first localisations as they will come: in pixels from the centre of the first one, "
    "frames from 0.</p>"
)
_ROWS = 50


@dataclass(frozen=True)
class Found:
    """The content of a file.

    Parameters
    ----------
    path : path
        The file.
    title : str
        The name of its format for users.
    fits : SpotFits
        The localisations.
    points : mapping
        The arguments of a layer of points.
    place : mapping
        The position of the layer, where the file has it.
    """

    path: Path
    title: str
    fits: SpotFits
    points: dict[str, Any]
    place: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the layer."""
        return name_of_layer(str(self.path))

    def layer_arguments(self) -> dict[str, Any]:
        """Return the arguments of a layer without an image."""
        return layer_arguments(self.points, self.name) | self.place

    def in_words(self) -> str:
        """Return what will be imported, and what will not."""
        fits, placed = self.fits, self.fits[self._placed]
        text = f"{self.title}: {number(len(fits))} localisation{'s' * (len(fits) != 1)}"
        for name in fits.index_names if len(placed) else ():
            values = placed.columns[name]
            text += f", {name} {int(values.min())} to {int(values.max())}"
        if len(placed):
            text += f", {', '.join(f'{one} {_ends(placed.columns[one])}' for one in 'yx')} px"
        return text + self.left_out

    @property
    def left_out(self) -> str:
        """Return how many rows have no place, as the end of a sentence; empty if all have one."""
        without = int(np.count_nonzero(~self._placed))
        if not without:
            return ""
        words = "has no place and is" if without == 1 else "have no place and are"
        return f"; {number(without)} {words} left out"

    @property
    def _placed(self) -> NDArray[np.bool_]:
        placed = np.asarray(np.isfinite(self.fits.points()).all(axis=1))
        placed &= self.fits.valid
        return placed


def look_at(path: Path, format: str | None, pixel_size: Any) -> Found:
    """Read a table of localisations.

    Parameters
    ----------
    path : path
        The file.
    format : str, optional
        The name of its format; by default recognised from its content.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm.

    Raises
    ------
    ValueError
        If its format is unknown, it is damaged, or needs the size of a pixel; the message says
        which.
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
    """Return the message for a file of no known format, with its columns."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip():
        return f"“{path.name}” is empty; choose a file with localisations"
    separator = max(_SEPARATORS, key=lambda one: len(titles_of(head, one)))
    titles = titles_of(head, separator)
    known = ", ".join(one.title for one in EXCHANGE.values())
    text = f"“{path.name}” is of none of the known formats: {known}"
    if len(titles) < 2:
        return f"{text}. It is no table of text"
    return (
        f"{text}. Its columns are {', '.join(titles)}, with {_SEPARATORS[separator]} between them; "
        "a plain CSV has columns x and y, in pixels or as “x [nm]”, and frame from 0"
    )


def _ends(values: Any) -> str:
    return f"{values.min():.1f} to {values.max():.1f}"


class FirstRows(QTableWidget):
    """A table of the first rows."""

    def __init__(self) -> None:
        super().__init__()
        explain(self, "First localisations", _TIP)
        show_whole_rows(self, 22)

    def show_fits(self, fits: SpotFits | None) -> None:
        """Show the first rows of fits, or nothing."""
        if fits is None:
            self.setRowCount(0)
            self.setColumnCount(0)
            return
        table = fits[:_ROWS].to_dataframe().drop(columns="good", errors="ignore")
        self.setRowCount(len(table))
        self.setColumnCount(table.shape[1])
        units = fits.units
        titles = [
            f"{name} [{units[name]}]" if units.get(name) not in (None, "", name) else name
            for name in table
        ]
        self.setHorizontalHeaderLabels(titles)
        for column, name in enumerate(table):
            for row, value in enumerate(table[name]):
                text = f"{value:.6g}" if isinstance(value, float) else str(value)
                self.setItem(row, column, QTableWidgetItem(text))
        self.resizeColumnsToContents()
