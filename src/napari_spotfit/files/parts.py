"""Store a run in a folder of parts, so that it can be resumed after a kill.

``part-000000512.parquet`` has the spots of the frames from 512 on. A part appears when it is
complete, and records its inputs: a resumed run repeats parts that are missing, damaged or of other
inputs. ``_run.json`` has what all parts share.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..models.columns import GroupCounter
from ..settings.settings import Settings
from .parquet import need_pyarrow, parquet_pieces, parquet_writer
from .table import SpotTable, UnreadableFileError
from .writing import (
    FileLockedError,
    create_temporary,
    errno_from_message,
    file_lock,
    lock_of,
    publish,
    unfinished,
)

#: Readers of Parquet folders skip names that begin with an underscore.
_RUN = "_run.json"
_FORMAT = 1
#: Key of an image file's modification time in ns.
_CHANGED = "changed"
_PART = re.compile(r"part-\d{9,}\.parquet")
_CHANNEL = re.compile(r"channel-\d{3,}")
_UNFINISHED = re.compile(r"\.(part-\d{9,}(\.parquet)?|_run(\.json)?)\.[0-9a-f]{32}(\.part)?")


class PartsError(OSError):
    """Parts cannot be stored or read again; the image itself is all right."""


@dataclass(frozen=True)
class Run:
    """The inputs of a run, which all parts of a folder share.

    Parameters
    ----------
    asked : mapping
        The request as plain values: image, settings, frames, maps.
    settings : Settings
        The settings after estimation.
    firsts : sequence of int
        First frame of each part of the complete run.
    """

    asked: Mapping[str, Any]
    settings: Settings
    firsts: Sequence[int]


def channel_folder(folder: Path, number: int) -> Path:
    """Return the folder of a channel's parts, where channels are fitted separately.

    Examples
    --------
    >>> channel_folder(Path("spots"), 1).as_posix()
    'spots/channel-001'
    """
    return folder / f"channel-{number:03d}"


def part_path(folder: Path, first: int) -> Path:
    """Return the path of the part that begins with a frame.

    Examples
    --------
    >>> part_path(Path("spots"), 512).as_posix()
    'spots/part-000000512.parquet'
    """
    return folder / f"part-{first:09d}.parquet"


@contextmanager
def part_writer(path: Path, key: Mapping[str, Any]) -> Iterator[Callable[[SpotTable], None]]:
    """Open a new part; yield a function that appends spots. It appears when it is complete.

    Parameters
    ----------
    path : path
        As returned by :func:`part_path`.
    key : mapping
        The inputs of the part, as plain values.

    Raises
    ------
    PartsError
        If the part cannot be written; the message names it and its folder.
    """
    # Two workers may make the same part if one was believed dead: each writes its own file.
    beside: list[Path] = []
    writer, apart = ExitStack(), GroupCounter()
    adds: list[Callable[[SpotTable], None]] = []

    def add(table: SpotTable) -> None:
        with _naming_part(path):
            if not adds:
                first = SpotTable(table.columns, replace(table.about, part=key))
                beside.append(create_temporary(path))
                adds.append(writer.enter_context(parquet_writer(beside[0], first)))
            adds[0](SpotTable(apart(table.columns), table.about))

    try:
        yield add
        with _naming_part(path):
            writer.close()
            publish(beside[0], path)
    finally:
        with suppress(OSError, ValueError):  # the first error matters
            writer.close()
        for own in beside:
            _drop(own)


def part_pieces(path: Path, key: Mapping[str, Any]) -> Iterator[SpotTable] | None:
    """Return the pieces of a part, once all of it has been read as a test.

    None if the part is missing, damaged, or has other inputs.
    """
    try:
        pieces = parquet_pieces(path)
        first = next(pieces)
        if first.about.part != plain(key):
            return None
        # Read all of it now: an error after the first piece would come too late.
        several = sum(1 for _ in pieces)
    except (FileNotFoundError, UnreadableFileError):
        return None
    return _pieces_again(path) if several else iter([first])


def _pieces_again(path: Path) -> Iterator[SpotTable]:
    """Yield the pieces of a part that was read completely before."""
    try:
        yield from parquet_pieces(path)
    except (OSError, UnreadableFileError) as error:
        raise PartsError(
            errno.EIO,
            f"“{path.name}” in “{path.parent}” was lost or changed while it was read: {error}. "
            "The other parts are kept: run again to repeat this one",
        ) from error


def write_run(folder: Path, run: Run) -> None:
    """Record a run in a folder, before its parts are written.

    Raises
    ------
    ImportError
        If pyarrow is missing; the message says how to get it.
    PartsError
        If the folder cannot be written; the message names it.
    """
    need_pyarrow()
    path = folder / _RUN
    text = {
        "format": _FORMAT,
        "asked": run.asked,
        "settings": run.settings.to_dict(),
        "firsts": list(run.firsts),
    }
    with _naming_part(path):
        folder.mkdir(parents=True, exist_ok=True)
        with unfinished(path) as beside:
            beside.write_text(json.dumps(text, indent=1), encoding="utf-8")


def read_run(folder: Path) -> Run | None:
    """Return the run recorded in a folder; None if there is none, or it is damaged."""
    try:
        found = json.loads((folder / _RUN).read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            return None
        return Run(dict(found["asked"]), Settings(**found["settings"]), list(found["firsts"]))
    except (OSError, KeyError, RecursionError, TypeError, ValueError):
        return None


def parts_in(folder: Path) -> list[Path]:
    """Return the paths of the parts in a folder, in order."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _PART.fullmatch(path.name))


def folders_in(folder: Path) -> list[Path]:
    """Return a folder of parts and the folders of channels in it."""
    own = folder.iterdir() if folder.is_dir() else ()
    return [folder, *sorted(path for path in own if _CHANNEL.fullmatch(path.name))]


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, which is created if it is missing.

    Raises
    ------
    PartsError
        If another run holds the lock.
    """
    with suppress(OSError):  # writing there will raise a better error
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / _RUN))
        except FileLockedError:
            raise PartsError(
                f"another run works in “{folder}”. Wait until it ends, or choose another folder"
            ) from None
        yield


def remove_unfinished(folder: Path) -> None:
    """Remove a killed run's temporary files; the caller must hold the folder's lock."""
    if folder.is_dir():
        for path in list(folder.iterdir()):
            if _UNFINISHED.fullmatch(path.name):
                _drop(path)


def remove_parts(folder: str | os.PathLike[str]) -> None:
    """Remove all parts of a run, and their folder if it is empty then."""
    place = Path(folder)
    if not place.is_dir():
        return
    remove_unfinished(place)
    for path in [*parts_in(place), place / _RUN]:
        path.unlink(missing_ok=True)
    if not any(place.iterdir()):
        place.rmdir()


def parts_beside(table: Path, image: Path) -> Path:
    """Return the folder of an image's parts while its table is not complete.

    Examples
    --------
    >>> parts_beside(Path("out/all.spots.csv"), Path("a.tif")).parent.as_posix()
    'out/all.spots.csv.parts'
    """
    mark = hashlib.blake2b(os.fsencode(os.path.realpath(image)), digest_size=4).hexdigest()
    return table.with_name(f"{table.name}.parts") / f"{image.name}-{mark}"


def remove_beside(folder: Path) -> None:
    """Remove the parts in a folder of :func:`parts_beside`, and folders that are empty then.

    The caller must hold the table's lock, so that a lock in the folder is a killed run's.
    """
    for own in reversed(folders_in(folder)):
        _drop(lock_of(own / _RUN))
        remove_parts(own)
    if folder.parent.is_dir() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def plain(values: Any) -> Any:
    """Return values as they would be read back from JSON."""
    return json.loads(json.dumps(values))


def difference(there: Any, here: Any, name: str = "") -> str:
    """Describe the first value in which two mappings differ; empty if they are equal.

    Examples
    --------
    >>> difference({"settings": {"sigma": 1.3}}, {"settings": {"sigma": 1.5}})
    'settings.sigma is 1.3 there and 1.5 here'
    >>> difference({"image": {"changed": 1}}, {"image": {"changed": 10**18}})
    'image was changed since: then it was of ..., now of 2001-09-0...'
    """
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in dict.fromkeys((*here, *there)):
            inner = f"{name}.{key}" if name else str(key)
            if found := difference(there.get(key), here.get(key), inner):
                return found
        return ""
    what, _, last = name.rpartition(".")
    if there != here and last == _CHANGED and isinstance(there, int) and isinstance(here, int):
        return f"{what} was changed since: then it was of {_date(there)}, now of {_date(here)}"
    return "" if there == here else f"{name} is {there!r} there and {here!r} here"


def _date(nanoseconds: int) -> str:
    """Return a file's modification time as text."""
    return datetime.fromtimestamp(nanoseconds / 1e9).isoformat(" ", "milliseconds")


@contextmanager
def _naming_part(path: Path) -> Iterator[None]:
    """Turn errors of writing into a PartsError that names part and folder."""
    try:
        yield
    except OSError as error:
        # Arrow has the error number only in its message.
        code = error.errno or errno_from_message(error) or errno.EIO
        kept = "There is no part yet: make room and run again"
        with suppress(OSError):
            if parts_in(path.parent):
                kept = "The parts before it are kept: run again to continue after them"
        raise PartsError(
            code, f"“{path.name}” cannot be written in “{path.parent}”: {os.strerror(code)}. {kept}"
        ) from error


def _drop(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # the first error matters
