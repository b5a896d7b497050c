"""What the tables in a folder were made of, so that those that are complete are not made again."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...files.formats import unfinished
from ...files.parts import plain
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
        self._tables: dict[str, Any] = {}
        # What is damaged, or of a newer version, only means that all is made again.
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._tables = dict(found["tables"]) if found["format"] == _FORMAT else {}

    def outcome(self, table: Path, key: Mapping[str, Any]) -> Outcome | None:
        """Return what became of an image if its table is there, as it was, and made of the same."""
        with self._lock, suppress(KeyError, TypeError, OSError):
            known = self._tables[table.name]
            there = Outcome(**known["outcome"])
            written = [Path(name) for name in (table.as_posix(), there.cells) if name]
            if known["key"] == plain(key) and known["files"] == [_state(one) for one in written]:
                there.state = KEPT
                return there
        return None

    def add(self, table: Path, key: Mapping[str, Any], outcome: Outcome) -> None:
        """Note what a complete table was made of."""
        written = [Path(name) for name in (table.as_posix(), outcome.cells) if name]
        # Without the record, it is made again: no reason to fail.
        with self._lock, suppress(OSError):
            self._tables[table.name] = {
                "key": plain(key),
                "files": [_state(one) for one in written],
                "outcome": plain(asdict(outcome)),
            }
            text = {"format": _FORMAT, "tables": self._tables}
            with unfinished(self._path) as part:
                part.write_text(json.dumps(text, indent=1, ensure_ascii=False), encoding="utf-8")


def _state(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]
