"""Write displacements and corrections to disk while a loop runs."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.parquet import check_promise
from ..files.table import UnreadableFileError
from ..files.writing import FileLockedError, create_temporary, file_lock, publish, unfinished
from ..untrusted import named
from .controller import Correction
from .displacement import Displacement

if TYPE_CHECKING:
    import pandas as pd

#: A part is written after this many rows or seconds.
_ROWS, _SECONDS = 20_000, 2.0
_NUMBERS = (
    "time", "y", "x", "z", "y_stderr", "x_stderr", "z_stderr",
    "rotation", "rotation_stderr", "scale", "scale_stderr",
)  # fmt: skip


class TrackingLog:
    """A Parquet file of displacements and corrections that stays readable after a kill.

    While it is open, its rows are in complete files in a folder ``<name>.parts``; :meth:`close`
    joins them into one file, which lists its parts. :func:`read_log` reads either. A second log of
    the same name cannot be opened meanwhile.

    Threads: one at a time. It writes in a thread of its own.

    Parameters
    ----------
    path : str or path
        The file, ``.parquet``, in an existing folder. Rows are appended to an existing log.

    Raises
    ------
    ImportError
        If pyarrow is missing.
    ValueError
        If its name ends otherwise, or an existing file is no log.
    OSError
        If it cannot be written: it is a folder, its folder is missing, or another log of its name
        is open, for example.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import Displacement, TrackingLog, read_log
    >>> with TemporaryDirectory() as folder:
    ...     with TrackingLog(f"{folder}/drift.parquet") as log:
    ...         log.add(Displacement(0, y=0.25, x=0.0, used=3))
    ...         log.mark("laser on")
    ...     table = read_log(f"{folder}/drift.parquet")
    >>> table[["frame", "y", "used", "event"]].values.tolist()
    [[0, 0.25, 3, 'laser on']]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import pyarrow  # noqa: F401  # so that its absence is an error now, not in the middle of a run

        self.path = Path(path)
        _check(self.path)
        self._parts = _parts_of(self.path)
        self._owner = ExitStack()
        try:
            self._owner.enter_context(file_lock(self.path))
            self._open_parts()
        except FileLockedError:
            raise FileLockedError(
                f"the log “{self.path}” is open already: close it first, or choose another name"
            ) from None
        except OSError as error:
            self._owner.close()
            raise OSError(
                f"the log “{self.path}” cannot be written: {error}; choose a folder in which you "
                "may write"
            ) from error
        self._rows: list[dict[str, Any]] = []
        self._written = time.monotonic()
        self._writing: threading.Thread | None = None
        self._error: Exception | None = None

    def _open_parts(self) -> None:
        """Create the folder of parts; keep parts of a killed run that the file lacks."""
        if self._parts.is_symlink():
            raise OSError(f"“{self._parts}” is a link, which a log never makes: remove it")
        self._parts.mkdir(exist_ok=True)
        for name in _parts_in_file(self.path):
            (self._parts / name).unlink(missing_ok=True)

    def add(self, displacement: Displacement, correction: Correction | None = None) -> None:
        """Add a displacement and its correction."""
        self._raise()
        self._rows.append(_row(displacement, correction or Correction()))
        if len(self._rows) >= _ROWS or time.monotonic() - self._written > _SECONDS:
            self.flush(wait=False)

    def mark(self, event: str) -> None:
        """Mark an event at the last displacement, or before the first."""
        if self._rows:
            events = [self._rows[-1]["event"], event]
            self._rows[-1]["event"] = "; ".join(one for one in events if one)
        else:
            self._rows.append(_row(Displacement(-1), Correction(), event))

    def flush(self, *, wait: bool = True) -> None:
        """Write the rows in memory to a part, in a thread."""
        if self._writing is not None:
            if self._writing.is_alive() and not wait:
                return
            self._writing.join()
        self._raise()
        rows, self._rows, self._written = self._rows, [], time.monotonic()
        if not rows:
            return
        self._writing = threading.Thread(target=self._write, args=(rows,), name="spotfit log")
        self._writing.start()
        if wait:
            self._writing.join()
            self._raise()

    def close(self) -> None:
        """Write the rows in memory, and join the parts into one file.

        Raises
        ------
        OSError
            If that fails; the message says where the rows are.
        """
        import pandas as pd

        if not self._parts.exists():
            return
        self.flush()
        kept = self._parts
        try:
            # The file lists its parts, so that none is read twice if this run is killed now.
            parts = {path.name: pd.read_parquet(path) for path in _files_in(self._parts)}
            before = [pd.read_parquet(self.path)] if self.path.is_file() else []
            made = create_temporary(self.path)
            try:
                _write_file(made, pd.concat([*before, *parts.values()] or [_table([])]), [*parts])
                kept = self.path.with_name(f"{self.path.name}.unfinished")
                try:
                    publish(made, self.path)
                except OSError:
                    made.replace(kept)
                    raise
            finally:
                made.unlink(missing_ok=True)
        except (OSError, ValueError) as error:  # pyarrow raises ValueErrors for damaged files
            raise OSError(
                f"the log “{self.path}” cannot be finished: {error}; its rows are in “{kept}”"
            ) from error
        shutil.rmtree(self._parts)
        self._owner.close()

    def __enter__(self) -> TrackingLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, rows: list[dict[str, Any]]) -> None:
        try:
            last = max((int(path.name[:_DIGITS]) for path in _files_in(self._parts)), default=-1)
            # A unique name, as the file may list an earlier part of this number.
            part = self._parts / f"{last + 1:0{_DIGITS}d}-{secrets.token_hex(8)}.parquet"
            with unfinished(part) as made:
                _write_file(made, _table(rows))
        except Exception as error:
            self._rows = rows + self._rows  # nothing is lost
            self._error = error

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise OSError(f"the log “{self.path}” cannot be written: {error}") from error


def read_log(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the rows of a log that is closed, open, or was killed.

    Parameters
    ----------
    path : str or path
        The path of the :class:`TrackingLog`.

    Returns
    -------
    DataFrame
        ``frame``, ``time`` in seconds, ``y``, ``x`` in pixels, ``z`` in nm, their standard errors,
        ``rotation`` in degrees, ``scale``, ``used``, ``health`` and ``positions`` of each fiducial,
        ``problem``, ``event``, and ``moved_y``, ``moved_x``, ``moved_z`` in micrometres with
        ``correction`` and ``why``.

    Raises
    ------
    FileNotFoundError
        If there is no such log.
    ValueError
        If it is damaged.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import Displacement, TrackingLog, read_log
    >>> with TemporaryDirectory() as folder, TrackingLog(f"{folder}/drift.parquet") as log:
    ...     log.add(Displacement(0, y=0.25, x=0.0, used=3))
    ...     log.close()
    ...     len(read_log(f"{folder}/drift.parquet"))
    1
    """
    place = Path(path)
    for _ in range(_TRIES):
        before = _state(place)
        try:
            with named(f"the log “{place.name}” cannot be read", UnreadableFileError):
                table = _read(place)
        except FileNotFoundError:
            if _state(place) == before and not _parts_of(place).is_dir():
                raise
            continue  # the log was closed meanwhile, which removed its parts
        if _state(place) == before:
            return table
    raise OSError(f"the log “{place}” changes while it is read: close it and read it again")


#: Number of attempts to read a log that is being closed, and of digits in names of parts.
_TRIES, _DIGITS = 100, 8
#: Metadata key of the parts in a file.
_HAS = b"napari-spotfit parts"


def _read(path: Path) -> pd.DataFrame:
    """Return the rows of a log: those of its file, and of further parts."""
    import pandas as pd
    from pyarrow import parquet

    parts = _parts_of(path)
    files = [path] if path.is_file() else []
    there = _parts_in_file(path)
    files += [part for part in _files_in(parts) if part.name not in there]
    if not files:
        if parts.is_dir():
            return _table([])
        raise FileNotFoundError(f"there is no log “{path}”")
    for file in files:
        check_promise(file, parquet.read_metadata(file))
    return pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when a file is replaced; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _files_in(parts: Path) -> list[Path]:
    """Return the complete parts in a folder, in order."""
    if not parts.is_dir():
        return []
    return sorted(path for path in parts.glob("*.parquet") if _PART.fullmatch(path.name))


#: Names of parts, of this version and of earlier ones.
_PART = re.compile(r"\d{8}(-[0-9a-f]{16})?\.parquet")


def _parts_in_file(path: Path) -> list[str]:
    """Return the names of the parts in a log's file; empty if it lists none."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    if not path.is_file():
        return []
    try:
        names = json.loads((read_schema(path).metadata or {}).get(_HAS, b"[]"))
    except (ArrowException, ValueError):
        return []
    return [name for name in names if isinstance(name, str) and _PART.fullmatch(name)]


def _write_file(path: Path, rows: pd.DataFrame, parts: Sequence[str] = ()) -> None:
    """Write rows, and the list of their parts."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pandas(rows, preserve_index=False)
    about = {**(table.schema.metadata or {}), _HAS: json.dumps(list(parts)).encode()}
    parquet.write_table(table.replace_schema_metadata(about), path)


def _check(path: Path) -> None:
    """Raise an error if no log can be written there, before the measurement starts."""
    if path.is_dir():
        raise IsADirectoryError(
            f"“{path}” is a folder: a log is a file; add a name, such as “{path / 'log.parquet'}”"
        )
    if path.suffix.lower() != ".parquet":
        raise ValueError(f"a log is a Parquet file, “{path.stem}.parquet”; got “{path.name}”")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder “{path.parent}” for the log “{path.name}”: make it, or choose "
            "another one"
        )
    if path.exists() and not _is_log(path):
        raise ValueError(f"“{path}” is no log, to which rows could be added: choose another name")


def _is_log(path: Path) -> bool:
    """Whether a file has the columns of a log, or more, as those of newer versions."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return set(read_schema(path).names) >= set(_COLUMNS)
    except ArrowException:
        return False


def _parts_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.parts")


def _row(found: Displacement, done: Correction, event: str = "") -> dict[str, Any]:
    numbers = {name: getattr(found, name) for name in _NUMBERS}
    return {
        "frame": found.frame, **numbers, "used": found.used, "problem": found.problem,
        "health": found.health, "event": event, "positions": found.positions,
        "moved_y": done.dy, "moved_x": done.dx, "moved_z": done.dz,
        "correction": done.state, "why": done.why,
    }  # fmt: skip


#: Columns of a log, in order.
_COLUMNS = tuple(_row(Displacement(-1), Correction()))


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    rows = [row | {"positions": np.ravel(row["positions"])} for row in rows]
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    numbers = [*_NUMBERS, "moved_y", "moved_x", "moved_z"]
    table[numbers] = table[numbers].astype(float)
    return table.astype({"frame": np.int64, "used": np.int64})
