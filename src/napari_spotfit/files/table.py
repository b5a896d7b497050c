"""What a file of spots holds: columns, and JSON texts that describe them.

The texts stand beside the columns by name; the first of them is the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE, describe
from ..settings.settings import Settings
from ..version import __version__

#: Types of columns beside those of NumPy's numbers: any words, and codes of a few words.
TEXT, WORDS = "text", "words"
#: What a column may be there for.
FIT, DERIVED, LAYER = "fit", "derived", "layer"
#: The format of the columns and of what stands beside them; a change that an older version would
#: misread makes it one more.
FORMAT = 1
#: The first of the texts, by which a file is known.
FORMAT_KEY = "napari-spotfit spots"


class UnreadableFileError(ValueError):
    """A file that holds no spots or settings, or none that can be read; it says why."""


@dataclass(frozen=True)
class StoredColumn:
    """How a file stores one column.

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
    """What a file says beside its columns.

    Parameters
    ----------
    columns : mapping of str to StoredColumn
        Every column by its name, in order.
    index : tuple of str
        The columns that say where a spot lies along the image's leading axes.
    settings : Settings or None
        What the fits were made with.
    roi_shape : tuple of int or None
        Size of the ROIs along each spatial axis, if all have the same.
    image, layer : mapping or None
        Plain values that say which image was fitted, and how a layer shows the spots.
    version : str
        The version of the package that wrote the file.
    part : mapping or None
        Plain values that say what a part of a run was made of.
    """

    columns: Mapping[str, StoredColumn]
    index: tuple[str, ...] = ()
    settings: Settings | None = None
    roi_shape: tuple[int, ...] | None = None
    image: Mapping[str, Any] | None = None
    layer: Mapping[str, Any] | None = None
    version: str = __version__
    part: Mapping[str, Any] | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The spatial axes of the spots: a z of another program is none of the image's."""
        return IN_PLANE if self.settings is None else self.settings.profile.axes


@dataclass(frozen=True, eq=False)
class SpotTable:
    """Columns of one length, and what a file says beside them.

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
        known[name] = StoredColumn(
            column,
            units.get(name, ""),
            describe(name).words if column == WORDS else (),
            role=FIT if name in columns else DERIVED,
        )
    return SpotTable(stored, About(known, **about))


def _stored(name: str, values: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return a column's values as they are kept, and what they are."""
    if (known := describe(name)).words and values.dtype == known.type:
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
    name: str, codes: NDArray[Any], words: Sequence[str], column: StoredColumn
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


_DEFAULTS = {item.name: item.default for item in fields(StoredColumn)}


def to_texts(about: About) -> dict[str, str]:
    """Return what a file says beside its columns as JSON texts, from which it comes back exactly.

    Floating-point numbers are written with as many digits as they need.
    """
    settings = about.settings
    profile = None if settings is None else settings.profile
    values = {
        FORMAT_KEY: FORMAT,
        "version": about.version,
        "model": None if profile is None else {"name": profile.name, "formula": profile.formula},
        "image": about.image,
        "settings": None if settings is None else settings.to_dict(),
        "roi_shape": about.roi_shape,
        "index": about.index,
        "columns": {name: _plain_column(column) for name, column in about.columns.items()},
        "layer": about.layer,
    }
    if about.part is not None:
        values["part"] = about.part
    return {
        name: as_text(json.dumps(value, ensure_ascii=False, default=_plain))
        for name, value in values.items()
    }


def as_text(name: str) -> str:
    r"""Return a file's name as files hold it: bytes of it that are no UTF-8 as escapes.

    Examples
    --------
    >>> as_text("µ.tif"), as_text("\udcff.tif")
    ('µ.tif', '\\udcff.tif')
    """
    return name.encode(errors="backslashreplace").decode()


def from_texts(texts: Mapping[str, str]) -> About:
    """Return what :func:`to_texts` has made texts of.

    Raises
    ------
    UnreadableFileError
        If they are of something else, of a newer version, or damaged.
    """
    values = dict(_values(texts))
    check_format(values.get(FORMAT_KEY), FORMAT, values.get("version"))
    try:
        settings, roi = values["settings"], values["roi_shape"]
        return About(
            columns={name: _column(**about) for name, about in values["columns"].items()},
            index=tuple(values["index"]),
            settings=None if settings is None else Settings(**settings),
            roi_shape=None if roi is None else tuple(map(int, roi)),
            image=_mapping(values["image"]),
            layer=_mapping(values["layer"]),
            version=str(values["version"]),
            part=_mapping(values.get("part")),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnreadableFileError(f"what stands beside its columns is damaged: {error}") from None


def check_format(found: Any, known: int, version: Any) -> None:
    """Check the number of a format: whole, and not of a newer version."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise UnreadableFileError("its format has no number; it is damaged, or something else")
    if found > known:
        raise UnreadableFileError(
            f"napari-spotfit {version} has written it in the newer format {found}, of which this "
            f"version knows up to {known}; update napari-spotfit"
        )


def _values(texts: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, text in texts.items():
        try:
            yield name, json.loads(text)
        except ValueError as error:
            raise UnreadableFileError(f"what it says of “{name}” is damaged: {error}") from None


def _plain_column(column: StoredColumn) -> dict[str, Any]:
    """Return what differs from the defaults of a column."""
    return {
        name: value for name, value in asdict(column).items() if value != _DEFAULTS[name]
    }  # fmt: skip


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"image and layer have values by name; got {value!r}")
    return value


def _column(**about: Any) -> StoredColumn:
    column = StoredColumn(**about | {"words": tuple(about.get("words", ()))})
    if column.type not in (TEXT, WORDS) and np.dtype(column.type).kind not in "fiub":
        raise ValueError(f"a column cannot be of type {column.type!r}")
    return column


def _plain(value: Any) -> Any:
    """Return one of NumPy's numbers or arrays, or another thing, as JSON has it."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
