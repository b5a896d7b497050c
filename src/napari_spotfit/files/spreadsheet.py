"""Escape texts that spreadsheets would take for formulas."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .table import TEXT, SpotTable

if TYPE_CHECKING:
    import pandas as pd

#: Beginnings of formulas, also with full-width signs: at the start of a text, and after characters
#: that may separate cells.
_FORMULA = re.compile(r"""((?:^|[,;\t\r\n])[\s"]{0,64})(?=[=+\-@\uff1d\uff0b\uff0d\uff20])""")
#: Characters that separate cells or begin formulas.
_SIGNS = re.compile("[,;=+@-]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def as_text_cell(text: str) -> str:
    """Return a text that a spreadsheet shows but does not compute.

    Examples
    --------
    >>> as_text_cell("=1+1"), as_text_cell("cell;=1"), as_text_cell("a=b")
    ("'=1+1", "cell;'=1", 'a=b')
    """
    return _FORMULA.sub(r"\1'", text)


def table_for_spreadsheets(table: SpotTable) -> SpotTable:
    """Return a table with texts and titles that no spreadsheet computes."""
    known = table.about.columns
    names = {name: as_text_cell(name) for name in known}
    columns = {names.get(name, name): values for name, values in table.columns.items()}
    for name, column in known.items():
        if column.type == TEXT and name in table.columns:
            texts = [as_text_cell(text) for text in table.columns[name]]
            columns[names[name]] = np.array(texts, object)
    about = replace(
        table.about,
        columns={names[n]: replace(c, title=as_text_cell(c.title)) for n, c in known.items()},
        index=tuple(names.get(name, name) for name in table.about.index),
    )
    return SpotTable(columns, about)


def frame_for_spreadsheets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a DataFrame with texts and titles that no spreadsheet computes."""
    safe = frame.copy(deep=False)
    for name, values in frame.items():
        if values.dtype.kind not in "iufb":
            safe[name] = [as_text_cell(one) if isinstance(one, str) else one for one in values]
    return safe.rename(columns=lambda name: as_text_cell(str(name)))


def without_separators(json_text: str) -> str:
    r"""Escape characters in the strings of a JSON text that could separate cells.

    Examples
    --------
    >>> without_separators('{"name": "a,=b", "size": [1, 2]}')
    '{"name": "a\\u002c\\u003db", "size": [1, 2]}'
    """

    def escaped(found: re.Match[str]) -> str:
        return _SIGNS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", found[0])

    return _STRING.sub(escaped, json_text)
