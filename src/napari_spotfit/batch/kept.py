"""What the tables in a folder were made of, so that those that are complete are not made again."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..files.parts import plain
from ..files.writing import file_lock, unfinished
from .outcome import KEPT, Outcome

#: Readers of folders of tables leave out what begins with an underscore.
_NAME = "_batch.json"
_FORMAT = 1


class KeptTables:
    """The record beside the tables in a folder; several threads may ask and add.

    Parameters
    ----------
    folder : path
        Where the tables are.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / _NAME, threading.Lock()
        self._tables = self._read()

    def outcome(self, table: Path, key: Mapping[str, Any], file: str) -> Outcome | None:
        """Return what became of an image if its table is there, as it was, and made of the same.

        The image, its table and its cells are named as this run does: an earlier one may have been
        in another folder, and the tables may have been moved.
        """
        with self._lock, suppress(KeyError, TypeError, OSError):
            known = self._tables[table.name]
            there = Outcome(**known["outcome"])
            there.file, there.output, there.state = file, table.as_posix(), KEPT
            if there.cells:
                there.cells = table.with_name(Path(there.cells).name).as_posix()
            if known["key"] == plain(key) and known["files"] == _states(table, there):
                return there
        return None

    def add(self, table: Path, key: Mapping[str, Any], outcome: Outcome) -> None:
        """Note what a complete table was made of."""
        # Without the record, it is made again: no reason to fail.
        with self._lock, suppress(OSError), file_lock(self._path, wait=True):
            # Other runs may have written tables into this folder meanwhile.
            self._tables = self._read()
            self._tables[table.name] = {
                "key": plain(key),
                "files": _states(table, outcome),
                "outcome": plain(asdict(_of_names(outcome))),
            }
            text = {"format": _FORMAT, "tables": self._tables}
            with unfinished(self._path) as part:
                part.write_text(json.dumps(text, indent=1), encoding="utf-8")

    def _read(self) -> dict[str, Any]:
        # What is damaged, or of a newer version, only means that all is made again.
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return dict(found["tables"]) if found["format"] == _FORMAT else {}
        return {}


def _of_names(outcome: Outcome) -> Outcome:
    """Return an outcome with the names of its files, as their folders are the next run's."""
    file, output, cells = (
        Path(path).name for path in (outcome.file, outcome.output, outcome.cells)
    )
    return replace(outcome, file=file, output=output, cells=cells)


def _states(table: Path, outcome: Outcome) -> list[list[int]]:
    """Return the states of a table and of its cells, if there are some."""
    return [_state(Path(path)) for path in (table, outcome.cells) if path]


def _state(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]
