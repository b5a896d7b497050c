"""A line of titles and lines of values: our columns by their names, in pixels, frames from 0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import STOP_NAMES
from ..table import WORDS, Column, SpotTable, UnreadableFileError, codes_of
from .delimited import Rows, titles_of, write_rows
from .homes import DERIVED_NAMES, Loss, as_ours, homeless, table_of_theirs
from .scene import Scene

_STOP = "stop_condition"
_AXIS = re.compile(r"axis_\d+")


def sniff(path: Path, head: bytes) -> bool:
    """Whether a file begins with titles among which are x and y."""
    return {"x", "y"} <= set(titles_of(head))


def read(path: Path, scene: Scene) -> SpotTable:
    """Read columns by their names; of x and y, pixels."""
    rows = Rows(path)
    columns = columns_of(rows, rows.titles)
    for name in ("y", "x"):
        columns[name] = as_ours(name, rows.numbers(name), name)
    index = [name for name in columns if name == "frame" or _AXIS.fullmatch(name)]
    return table_of_theirs(columns, scene, tuple(index))


def write(path: Path, table: SpotTable, scene: Scene, loss: Loss) -> dict[str, str]:
    """Write all columns."""
    names = homeless(table, ())
    known = {name: table.about.columns[name] for name in names}
    write_rows(path, [titles_line(names)], {n: table.columns[n] for n in names}, known)
    return {}


def columns_of(rows: Rows, titles: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return columns of numbers and words by their titles, which are their names."""
    columns: dict[str, NDArray[Any]] = {}
    for title in titles:
        values = rows.values(title)
        if title in DERIVED_NAMES:
            continue
        if title == _STOP and values.dtype == object and len(values):
            words, codes = np.unique(values.astype(str), return_inverse=True)
            columns[title] = codes_of(title, codes, words.tolist(), Column(WORDS, words=STOP_NAMES))
        elif title == _STOP:
            columns[title] = _codes(values)
        else:
            numbers = np.zeros(0) if not len(values) else values
            columns[title] = numbers if numbers.dtype == object else as_ours(title, numbers, title)
    return columns


def titles_line(names: Iterable[str]) -> str:
    """Return names as a line of titles."""
    return ",".join(
        '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name for name in names
    )


def _codes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the codes of stop conditions that are told by these."""
    codes = np.zeros(0) if not len(values) else values
    if not np.isin(codes, range(len(STOP_NAMES))).all():
        raise UnreadableFileError(
            f"its column {_STOP!r} has codes beside 0 to {len(STOP_NAMES) - 1}"
        )
    return codes.astype(np.uint8)
