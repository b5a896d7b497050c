"""Write the parts of napari.yaml and docs/ that are generated from tables of the code.

    python tools/write_tables.py [--check]

Each part is between two comments with its name, "begin …" and "end …". With --check, files are only
compared, and outdated ones are listed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_type_hints

from napari_spotfit.engine.flags import RULES
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.models.columns import COLUMNS, ROWS, columns_in
from napari_spotfit.models.estimators import StopCondition
from napari_spotfit.settings.settings import Settings, parameters
from napari_spotfit.settings.validation import GROUPS, Parameter, words_of

ROOT = Path(__file__).parents[1]
PROGRAM = "napari-spotfit"


def commands() -> Iterator[str]:
    """Yield napari's commands that save spots in the formats of other programs."""
    for one in EXCHANGE.values():
        yield f"    - id: {PROGRAM}.save_{one.name}"
        yield f"      title: {quoted(f'Save spots: {one.title}')}"
        yield f"      python_name: napari_spotfit.widgets.saved_layers:write_{one.name}"
        yield '      enablement: "False"'


def patterns() -> Iterator[str]:
    """Yield the names of files of other programs that napari opens."""
    yield from (f"        - {quoted(one.pattern)}" for one in EXCHANGE.values())


def writers() -> Iterator[str]:
    """Yield the formats of napari's dialog to save spots."""
    for one in EXCHANGE.values():
        yield f"    - command: {PROGRAM}.save_{one.name}"
        yield '      layer_types: ["points"]'
        yield f"      filename_extensions: [{quoted(one.suffix)}]"
        yield f"      display_name: {quoted(f'spots, {one.title}')}"


def formats() -> Iterator[str]:
    """Yield the table of the formats of other programs."""
    yield from table(
        ("`format=`", "of", "by its name", "unit of places", "centre of the first pixel",
         "first frame", "needs"),
        ((f"`{one.name}`", one.title, f"`{one.suffix}`", one.unit, one.origin, one.first_frame,
          one.needs) for one in EXCHANGE.values()),
    )  # fmt: skip


def columns() -> Iterator[str]:
    """Yield the table of the columns of fits."""
    yield from table(
        ("column", "unit", "±", "type", "meaning"),
        ((f"`{one.name}`", one.unit, "" if one.error_formats is None else "✓", one.type,
          one.meaning) for row in ROWS for one in row.along_axes()),
    )  # fmt: skip


def titles() -> Iterator[str]:
    """Yield the table of our columns' names in the formats of other programs."""
    known = [one for one in EXCHANGE.values() if any(columns_in(one.name))]
    yield from table(
        ("ours", *(one.title for one in known)),
        ((f"`{column.name}`", *(code(column.formats.get(one.name, "")) for one in known))
         for column in COLUMNS.values() if column.formats),
    )  # fmt: skip


def code(text: str) -> str:
    """Return a text as code in Markdown; empty if it is empty."""
    return f"`{text}`" if text else ""


def flags() -> Iterator[str]:
    """Yield the table of the flags."""
    yield from table(
        ("flag", "bit", "set when", "why there", "good?", "needs", "what to try"),
        ((str(flag.name), str(int(flag)), rule.limit, rule.reason, "no" if rule.rejects else "yes",
          rule.needs, rule.advice) for flag, rule in RULES.items()),
    )  # fmt: skip


def settings() -> Iterator[str]:
    """Yield the table of the settings, by their groups."""
    hints, usual = get_type_hints(Settings), Settings()
    for group, heading in GROUPS.items():
        members = [(name, one) for name, one in parameters().items() if one.group == group]
        yield from ("", f"## {heading}", "")
        yield from table(
            ("setting", "default", "range", "unit", "what it does"),
            ((f"`{name}`", code(str(getattr(usual, name))), range_of(one, hints[name]), one.unit,
              one.doc) for name, one in members),
        )  # fmt: skip
    yield ""


def range_of(one: Parameter, hint: object) -> str:
    """Return what a setting accepts, in words."""
    ends = [
        f"{'>' if one.above_minimum else '≥'} {one.minimum:g}" if one.minimum is not None else "",
        f"≤ {one.maximum:g}" if one.maximum is not None else "",
        ", ".join(code(word) for word in words_of(hint)),
        f"None: {one.none_means}" if one.none_means else "",
    ]
    return "; ".join(filter(None, ends))


def stops() -> Iterator[str]:
    """Yield the table of the stop conditions."""
    yield from table(
        ("in the viewer", "`stop_condition`", "code", "when", "what to do"),
        ((one.words, f"`{one.name}`", str(int(one)), one.explanation, one.advice)
         for one in StopCondition),
    )  # fmt: skip


def keys() -> Iterator[str]:
    """Yield the table of keys and clicks."""
    from napari_spotfit.widgets.fitting.settings_menu import KEYS

    yield from table(("key or click", "what it does"), KEYS)


def measured() -> Iterator[str]:
    """Yield tables of what the benchmarks have printed beside limits."""
    known = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    for command, run in known.items():
        yield from ("", f"`{command}`, {run['machine']}, {run['date']}:", "")
        # The program's own words, whose limits have a column.
        limit = re.compile(r" *\(([≤≥] [^)]*)\)")
        rows, above = [], ""
        for one in run["lines"]:
            heading = "" if one["under"] == above else one["under"]
            above, asked = one["under"], ", ".join(limit.findall(one["line"]))
            rows.append((heading, limit.sub("", one["line"]), asked))
        yield from table(("of", "measured", "asked"), rows)
    yield ""


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    titles = tuple(titles)
    for cells in (titles, ("---",) * len(titles), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def quoted(text: str) -> str:
    """Return a text in quotes for YAML."""
    return json.dumps(text, ensure_ascii=False)


#: Parts of each file by name.
PARTS = {
    "napari.yaml": {"commands": commands, "patterns": patterns, "writers": writers},
    "docs/formats.md": {"formats": formats, "columns": columns, "titles": titles},
    "docs/measured.md": {"measured": measured},
    "docs/reference/keys.md": {"keys": keys},
    "docs/reference/settings.md": {"settings": settings},
    "docs/reference/verdicts.md": {"stops": stops},
    "docs/trust.md": {"flags": flags},
}


def written(name: str) -> str:
    """Return the text of a file with its parts from the tables."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for part, lines in PARTS[name].items():
        between = re.compile(
            rf"(?<=\bbegin {part}\b)([^\n]*\n).*?(?=^[^\n]*\bend {part}\b)", re.M | re.S
        )
        body = "".join(f"{line}\n" for line in lines())
        text, count = between.subn(lambda match, body=body: match[1] + body, text)
        if count != 1:
            raise SystemExit(f"{name} must have one part {part!r}; found {count}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = [name for name in PARTS if written(name) != (ROOT / name).read_text(encoding="utf-8")]
    for name in stale:
        print(f"{name} is not as the tables have it" if check else f"writing {name}")
        if not check:
            (ROOT / name).write_text(written(name), encoding="utf-8", newline="\n")
    sys.exit(check and bool(stale))


if __name__ == "__main__":
    main()
