"""Write the tables of columns in docs/formats.md, which are made from the package's own.

python tools/column_tables.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from napari_spotfit.files.exchange.registry import EXCHANGE  # noqa: E402
from napari_spotfit.models.columns import COLUMNS, ROWS, Column  # noqa: E402

DOCUMENT = ROOT / "docs" / "formats.md"
#: What the tables stand between.
MARKS = "<!-- columns: tools/column_tables.py -->\n", "<!-- end of columns -->\n"


def tables() -> str:
    """Return both tables as Markdown: what the columns are, and their names in other programs."""
    values = [column for row in ROWS for column in row.along_axes()]
    formats = [name for name in EXCHANGE if any(name in one.formats for one in COLUMNS.values())]
    described = [
        (f"`{one.name}`", one.unit, "✓" if one.error_formats is not None else "", one.type,
         one.meaning)
        for one in values
    ]  # fmt: skip
    named = [
        (f"`{one.name}`", *(_code(one, format) for format in formats))
        for one in COLUMNS.values()
        if one.formats
    ]
    return (
        _table(("column", "unit", "±", "type", "meaning"), described)
        + "\nWhere one column of a format is one of ours:\n\n"
        + _table(("ours", *(EXCHANGE[format].title for format in formats)), named)
    )


def updated(text: str) -> str:
    """Return a document with these tables between its marks."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{tables()}\n{MARKS[1]}{after}"


def _code(column: Column, format: str) -> str:
    title = column.formats.get(format, "")
    return f"`{title}`" if title else ""


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = (titles, ["---"] * len(titles), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    DOCUMENT.write_text(updated(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
