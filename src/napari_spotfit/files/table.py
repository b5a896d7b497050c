"""What a file of spots holds: columns, and what there is to know about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.stopping import STOP_NAMES
from ..settings.settings import Settings
from ..version import __version__

#: Types of columns beside those of NumPy's numbers: any words, and codes of a few words.
TEXT, WORDS = "text", "words"
#: What a column may be there for.
FIT, DERIVED, LAYER = "fit", "derived", "layer"
_STOP = "stop_condition"


class UnreadableFileError(ValueError):
    """A file that holds no spots or settings, or none that can be read; it says why."""


@dataclass(frozen=True)
class Column:
    """What there is to know about one column of a file.

    Parameters
    ----------
    type : str
        NumPy's name of its numbers, ``"text"``, or ``"words"`` for codes of a few words.
    unit : str
        The unit of the numbers in the file; nothing if they have none.
    words : tuple of str
        What the codes 0, 1, … stand for.
    title : str
        Its name in the file, if that is another.
    factor : float
        What the numbers were multiplied by for the file, as pixels are to become µm.
    role : str
        ``"fit"``; ``"derived"`` for what follows from the others and is there for other programs;
        ``"layer"`` for what belongs to the layer that showed the fits.
    """

    type: str
    unit: str = ""
    words: tuple[str, ...] = ()
    title: str = ""
    factor: float = 1.0
    role: str = FIT


@dataclass(frozen=True)
class About:
    """What there is to know about all columns of a file.

    Parameters
    ----------
    columns : mapping of str to Column
        Every column by its name, in order.
    index : tuple of str
        The columns that say where a spot lies along the image's leading axes.
    settings : Settings or None
        What the fits were made with.
    roi_shape : (int, int) or None
        Rows and columns of the ROIs, if all have the same.
    image, layer : mapping or None
        Plain values that say which image was fitted, and how a layer shows the spots.
    version : str
        The version of the package that wrote the file.
    part : mapping or None
        Plain values that say what a part of a run was made of.
    """

    columns: Mapping[str, Column]
    index: tuple[str, ...] = ()
    settings: Settings | None = None
    roi_shape: tuple[int, int] | None = None
    image: Mapping[str, Any] | None = None
    layer: Mapping[str, Any] | None = None
    version: str = __version__
    part: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class SpotTable:
    """Columns of one length, and what there is to know about them.

    Columns of words have their codes, and columns of text an array of str.
    """

    columns: Mapping[str, NDArray[Any]]
    about: About = field(repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def table_of(
    columns: Mapping[str, NDArray[Any]],
    derived: Mapping[str, NDArray[Any]],
    units: Mapping[str, str],
    **about: Any,
) -> SpotTable:
    """Return the columns of fits as a file holds them.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The columns, stop conditions by their codes.
    derived : mapping of str to ndarray
        What follows from them, for other programs.
    units : mapping of str to str
        Units of both.
    **about
        The rest of :class:`About`.
    """
    stored, known = {}, {}
    for name, values in {**columns, **derived}.items():
        stored[name], column = _stored(name, values)
        known[name] = Column(
            column,
            units.get(name, ""),
            STOP_NAMES if column == WORDS else (),
            role=FIT if name in columns else DERIVED,
        )
    return SpotTable(stored, About(known, **about))


def _stored(name: str, values: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return a column's values as they are kept, and what they are."""
    if name == _STOP and values.dtype == np.uint8:
        return values, WORDS
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float64)
    if values.dtype.kind in "fiub":
        return values.astype(values.dtype.newbyteorder("="), copy=False), values.dtype.name
    return np.array([_word(value) for value in values], object), TEXT


def _word(value: Any) -> str:
    """Return a word as it is; nothing where there is none."""
    if isinstance(value, str):
        return str(value)
    return "" if str(value) in ("None", "nan", "<NA>", "NaT") else str(value)


def codes_of(
    name: str, codes: NDArray[Any], words: Sequence[str], column: Column
) -> NDArray[np.uint8]:
    """Return the codes of a column of words from those that a file has for its words.

    Raises
    ------
    UnreadableFileError
        If the column does not know one of the words.
    """
    odd = [word for word in words if word not in column.words]
    if odd:
        raise UnreadableFileError(
            f"its column {name!r} has the word {odd[0]!r}; it takes {', '.join(column.words)}"
        )
    places = np.array([column.words.index(word) for word in words], np.uint8)
    return places[codes] if len(codes) else np.zeros(0, np.uint8)
