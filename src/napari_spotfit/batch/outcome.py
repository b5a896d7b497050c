"""The outcome of each image file of a batch, its warnings, and the record of completed tables."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..files.parts import plain
from ..files.writing import file_lock, unfinished

#: States of a file; a kept one was completed by an earlier run from the same input.
WAITING, RUNNING, DONE, KEPT, FAILED, STOPPED = (
    "waiting", "running", "done", "kept", "failed", "stopped",
)  # fmt: skip
#: Readers of folders of tables skip names that begin with an underscore.
_NAME = "_batch.json"
_FORMAT = 1


@dataclass
class Outcome:
    """The outcome of one image file, final or so far."""

    file: str
    state: str = WAITING
    output: str = ""
    #: The table of its cells, if there are labels.
    cells: str = ""
    frames: int = 0
    frames_in_all: int = 0
    spots: int = 0
    good: int = 0
    sigma: float | None = None
    roi_size: Any = None
    backend: str = ""
    #: Parts of an earlier run, from which this one resumes.
    parts_before: int = 0
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / max(self.seconds, 1e-9)


@contextmanager
def collected_warnings(
    report: Callable[[Outcome], object],
) -> Iterator[Callable[[Outcome], AbstractContextManager[None]]]:
    """Yield a context manager that adds the warnings of the current thread to a file's outcome.

    Warnings of helper threads are added to all files in progress. Those of the main thread outside
    of a file are shown as usual.
    """
    running: dict[int, Outcome] = {}
    before = warnings.showwarning

    def show(message: Warning | str, *rest: Any, **named: Any) -> None:
        thread = threading.get_ident()
        if thread not in running and thread == threading.main_thread().ident:
            before(message, *rest, **named)
            return
        known = running.get(thread)
        for outcome in [known] if known is not None else list(running.values()):
            if str(message) not in outcome.warnings:
                outcome.warnings.append(str(message))
                report(outcome)

    @contextmanager
    def own(outcome: Outcome) -> Iterator[None]:
        running[threading.get_ident()] = outcome
        try:
            yield
        finally:
            running.pop(threading.get_ident(), None)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield own


class CompletedTables:
    """Record of the completed tables of a folder, in a JSON file there; thread-safe.

    Parameters
    ----------
    folder : path
        The folder of the tables.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / _NAME, threading.Lock()
        self._tables = self._read()

    def outcome(self, table: Path, key: Mapping[str, Any], file: str) -> Outcome | None:
        """Return the recorded outcome if the table is unchanged and the input is the same.

        Its paths are updated, as files may have been moved since.
        """
        with self._lock, suppress(KeyError, TypeError, OSError):
            known = self._tables[table.name]
            kept = Outcome(**known["outcome"])
            kept.file, kept.output, kept.state = file, table.as_posix(), KEPT
            if kept.cells:
                kept.cells = table.with_name(Path(kept.cells).name).as_posix()
            if known["key"] == plain(key) and known["files"] == _states(table, kept):
                return kept
        return None

    def add(self, table: Path, key: Mapping[str, Any], outcome: Outcome) -> None:
        """Record a completed table and its input."""
        # A missing record only makes the next run repeat the table.
        with self._lock, suppress(OSError), file_lock(self._path, wait=True):
            # Another run may have recorded tables of this folder meanwhile.
            self._tables = self._read()
            self._tables[table.name] = {
                "key": plain(key),
                "files": _states(table, outcome),
                # Only names: the next run knows the folders.
                "outcome": plain(asdict(outcome) | _names_of(outcome)),
            }
            text = json.dumps({"format": _FORMAT, "tables": self._tables}, indent=1)
            with unfinished(self._path) as part:
                part.write_text(text, encoding="utf-8")

    def _read(self) -> dict[str, Any]:
        # A damaged or newer record only makes the next run repeat the tables.
        with suppress(OSError, ValueError, KeyError, RecursionError, TypeError, AttributeError):
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return dict(found["tables"]) if found["format"] == _FORMAT else {}
        return {}


def _names_of(outcome: Outcome) -> dict[str, str]:
    return {name: Path(getattr(outcome, name)).name for name in ("file", "output", "cells")}


def _states(table: Path, outcome: Outcome) -> list[list[int]]:
    """Return size and modification time of a table and of its cells, if any."""
    states = [Path(path).stat() for path in (table, outcome.cells) if path]
    return [[state.st_size, state.st_mtime_ns] for state in states]
