"""What stands beside the columns of a file: JSON texts by name, one of which is the format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from ..settings.settings import Settings
from .table import TEXT, WORDS, About, Column, UnreadableFileError

#: The format of the columns and of what stands beside them; a change that an older version would
#: misread makes it one more.
FORMAT = 1
#: The first of the texts, by which a file is known.
FORMAT_KEY = "napari-spotfit spots"
_COLUMN = {item.name: item.default for item in fields(Column)}


def to_texts(about: About) -> dict[str, str]:
    """Return what is known about a file's columns as JSON texts, from which it comes back exactly.

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
            roi_shape=None if roi is None else (int(roi[0]), int(roi[1])),
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


def _plain_column(column: Column) -> dict[str, Any]:
    """Return what is not as usual about a column."""
    return {
        name: value for name, value in asdict(column).items() if value != _COLUMN[name]
    }  # fmt: skip


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"image and layer have values by name; got {value!r}")
    return value


def _column(**about: Any) -> Column:
    column = Column(**about | {"words": tuple(about.get("words", ()))})
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
