"""The content of a file of spots: columns, their steps of analysis, and metadata as JSON texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE, describe
from ..settings.settings import Settings
from ..version import __version__

#: Types of columns besides NumPy's numbers: any text, and codes for a few words.
TEXT, WORDS = "text", "words"
#: Roles of columns.
FIT, DERIVED, LAYER = "fit", "derived", "layer"
#: Version of columns and metadata; incremented by changes that older versions would misread.
FORMAT = 1
#: The first text, by which a file is recognised.
FORMAT_KEY = "napari-spotfit spots"


@dataclass(frozen=True)
class Step:
    """One step of analysis, as :attr:`~napari_spotfit.SpotFits.history` lists it.

    Parameters
    ----------
    name : str
        The function that was called.
    arguments : mapping
        Its arguments as plain values: numbers, texts, lists and mappings of them.
    version : str
        The version of this package.

    Examples
    --------
    >>> import numpy as np
    >>> step = Step("merge_blinks", {"max_dark_frames": np.int64(1), "radius": None})
    >>> step.arguments["max_dark_frames"], str(step)
    (1, 'merge_blinks(max_dark_frames=1, radius=None)')
    """

    name: str
    arguments: Mapping[str, Any]
    version: str = __version__

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.arguments, Mapping):
            raise TypeError(
                "a step of analysis has a name and a mapping of arguments; got "
                f"{self.name!r} and {self.arguments!r}"
            )
        # As they are read back from a file, so that saved and loaded steps are equal.
        arguments = json.loads(json.dumps(dict(self.arguments), default=_as_plain))
        object.__setattr__(self, "arguments", arguments)

    def __str__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.name}({arguments})"

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, from which ``Step(**values)`` makes it again."""
        return {"name": self.name, "arguments": self.arguments, "version": self.version}


def steps(values: Iterable[Mapping[str, Any]] | None) -> tuple[Step, ...]:
    """Return steps from their plain values; none for None."""
    return tuple(Step(**value) for value in values or ())


def _as_plain(value: Any) -> Any:
    """Return a NumPy number or array as plain values, and anything else as text."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


class UnreadableFileError(ValueError):
    """A file has no spots or settings that can be read; the message says why."""


@dataclass(frozen=True)
class StoredColumn:
    """How a file stores one column.

    Parameters
    ----------
    type : str
        NumPy's name of its type, ``"text"``, or ``"words"`` for codes of a few words.
    unit : str
        The unit in the file; empty without one.
    words : tuple of str
        Meanings of the codes 0, 1, …
    title : str
        Its name in the file, if different.
    factor : float
        Factor by which numbers were multiplied for the file, such as pixels to µm.
    role : str
        ``"fit"``; ``"derived"`` if computed from others, for other programs; ``"layer"`` if it
        belongs to the layer that showed the fits.
    """

    type: str
    unit: str = ""
    words: tuple[str, ...] = ()
    title: str = ""
    factor: float = 1.0
    role: str = FIT


@dataclass(frozen=True)
class About:
    """The metadata of a file.

    Parameters
    ----------
    columns : mapping of str to StoredColumn
        All columns by name, in order.
    index : tuple of str
        The columns of a spot's indices along the image's leading axes.
    settings : Settings or None
        The settings of the fits.
    roi_shape : tuple of int or None
        Size of the ROIs along each spatial axis, if all are equal.
    image, layer : mapping or None
        Plain values that describe the image that was fitted, and the layer of the spots.
    version : str
        The version of the package that wrote the file.
    part : mapping or None
        The inputs of a part of a run, as plain values.
    history : tuple of Step
        The steps of analysis that the spots went through.
    """

    columns: Mapping[str, StoredColumn]
    index: tuple[str, ...] = ()
    settings: Settings | None = None
    roi_shape: tuple[int, ...] | None = None
    image: Mapping[str, Any] | None = None
    layer: Mapping[str, Any] | None = None
    version: str = __version__
    part: Mapping[str, Any] | None = None
    history: tuple[Step, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """The spatial axes of the spots, without the z of another program, which is no axis."""
        return IN_PLANE if self.settings is None else self.settings.profile.axes


@dataclass(frozen=True, eq=False)
class SpotTable:
    """Columns of one length, and their metadata.

    Columns of words are arrays of codes, and columns of text arrays of str.
    """

    columns: Mapping[str, NDArray[Any]]
    about: About = field(repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self, which: slice | NDArray[np.bool_]) -> SpotTable:
        """Return a table of some rows."""
        return SpotTable({name: own[which] for name, own in self.columns.items()}, self.about)


def table_of(
    columns: Mapping[str, NDArray[Any]],
    derived: Mapping[str, NDArray[Any]],
    units: Mapping[str, str],
    **about: Any,
) -> SpotTable:
    """Return the table of fits that is written to a file.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The columns, stop conditions by their codes.
    derived : mapping of str to ndarray
        Columns computed from them, for other programs.
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
    """Return a column's values as they are stored, and their type."""
    if (known := describe(name)).words and values.dtype == known.type:
        return values, WORDS
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float64)
    if values.dtype.kind in "fiub":
        return values.astype(values.dtype.newbyteorder("="), copy=False), values.dtype.name
    return np.array([_word(value) for value in values], object), TEXT


def _word(value: Any) -> str:
    """Return a word; empty for a missing value."""
    if isinstance(value, str):
        return str(value)
    return "" if str(value) in ("None", "nan", "<NA>", "NaT") else str(value)


def codes_of(
    name: str, codes: NDArray[Any], words: Sequence[str], column: StoredColumn
) -> NDArray[np.uint8]:
    """Convert a file's codes of words to a column's codes.

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
    """Return metadata as JSON texts, which restore them exactly."""
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
    if about.history:
        values["history"] = [step.plain() for step in about.history]
    return {
        name: as_text(json.dumps(value, ensure_ascii=False, default=_plain))
        for name, value in values.items()
    }


def as_text(name: str) -> str:
    r"""Return a file's name as valid UTF-8, with escapes for other bytes.

    Examples
    --------
    >>> as_text("µ.tif"), as_text("\udcff.tif")
    ('µ.tif', '\\udcff.tif')
    """
    return name.encode(errors="backslashreplace").decode()


def from_texts(texts: Mapping[str, str]) -> About:
    """Return the metadata from the texts of :func:`to_texts`.

    Raises
    ------
    UnreadableFileError
        If they are damaged, of a newer version, or not ours.
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
            history=steps(values.get("history")),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnreadableFileError(f"its metadata are damaged: {error}") from None


def check_format(found: Any, known: int, version: Any) -> None:
    """Check that the version of a format is an integer and not newer than the known one."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise UnreadableFileError("its format has no number; it is damaged, or something else")
    if found > known:
        raise UnreadableFileError(
            f"napari-spotfit {version} has written it in the newer format {found}, but this one "
            f"knows formats up to {known}; update napari-spotfit"
        )


def _values(texts: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, text in texts.items():
        try:
            yield name, json.loads(text)
        except ValueError as error:
            raise UnreadableFileError(f"its metadata “{name}” are damaged: {error}") from None


def _plain_column(column: StoredColumn) -> dict[str, Any]:
    """Return the attributes of a column that differ from their defaults."""
    return {
        name: value for name, value in asdict(column).items() if value != _DEFAULTS[name]
    }  # fmt: skip


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"image and layer must be mappings; got {value!r}")
    return value


def _column(**about: Any) -> StoredColumn:
    column = StoredColumn(**about | {"words": tuple(about.get("words", ()))})
    if column.type not in (TEXT, WORDS) and np.dtype(column.type).kind not in "fiub":
        raise ValueError(f"a column cannot be of type {column.type!r}")
    return column


def _plain(value: Any) -> Any:
    """Return a NumPy number or array, a mapping, or the text of anything else, for JSON."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
