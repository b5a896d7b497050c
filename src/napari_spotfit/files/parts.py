"""A folder of parts of one run: each a table of some frames, and what the run is of.

``part-000000512.parquet`` has the spots of the frames from number 512 on. A part takes its name
when it is complete, and says itself what it was made of: so a run that was killed can go on, and
what cannot be trusted is made again. ``_run.json`` has what is the same for all parts.
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
    errno_from_message,
    file_lock,
    lock_of,
    made_beside,
    publish,
    unfinished,
)

#: Readers of folders of Parquet files leave out what begins with an underscore.
_RUN = "_run.json"
_FORMAT = 1
#: What the time of a file's last change, in ns, is called among what a run is of.
_CHANGED = "changed"
_PART = re.compile(r"part-\d{9,}\.parquet")
_CHANNEL = re.compile(r"channel-\d{3,}")
_UNFINISHED = re.compile(r"\.(part-\d{9,}(\.parquet)?|_run(\.json)?)\.[0-9a-f]{32}(\.part)?")


class PartsError(OSError):
    """Parts cannot be stored, or are lost while they are read; what they are of is all right."""


@dataclass(frozen=True)
class Run:
    """What is the same for all parts of a folder.

    Parameters
    ----------
    asked : mapping
        Plain values that say what was asked for: image, settings, frames, maps.
    settings : Settings
        The settings with all that was estimated.
    firsts : sequence of int
        Number of the first frame of every part that there is to be.
    """

    asked: Mapping[str, Any]
    settings: Settings
    firsts: Sequence[int]


def channel_folder(folder: Path, number: int) -> Path:
    """Return the folder of the parts of a channel, where each is fitted by itself.

    Examples
    --------
    >>> channel_folder(Path("spots"), 1).as_posix()
    'spots/channel-001'
    """
    return folder / f"channel-{number:03d}"


def part_path(folder: Path, first: int) -> Path:
    """Return the path of the part whose frames begin with a number.

    Examples
    --------
    >>> part_path(Path("spots"), 512).as_posix()
    'spots/part-000000512.parquet'
    """
    return folder / f"part-{first:09d}.parquet"


@contextmanager
def part_writer(path: Path, key: Mapping[str, Any]) -> Iterator[Callable[[SpotTable], None]]:
    """Give what adds spots to a part beside, which takes its name when it is complete.

    Parameters
    ----------
    path : path
        Of :func:`part_path`.
    key : mapping
        Plain values that say what the spots are made of.

    Raises
    ------
    PartsError
        If it cannot be written; the message names folder and part.
    """
    # Two workers may make the same part, of which one was taken for lost: each has its own file.
    beside: list[Path] = []
    writer, apart = ExitStack(), GroupCounter()
    adds: list[Callable[[SpotTable], None]] = []

    def add(table: SpotTable) -> None:
        with _naming_part(path):
            if not adds:
                first = SpotTable(table.columns, replace(table.about, part=key))
                beside.append(made_beside(path))
                adds.append(writer.enter_context(parquet_writer(beside[0], first)))
            adds[0](SpotTable(apart(table.columns), table.about))

    try:
        yield add
        with _naming_part(path):
            writer.close()
            publish(beside[0], path)
    finally:
        with suppress(OSError, ValueError):  # the error that matters is raised already
            writer.close()
        for own in beside:
            _drop(own)


def part_pieces(path: Path, key: Mapping[str, Any]) -> Iterator[SpotTable] | None:
    """Return a part, some rows after the other, of which all can be read.

    None if it is not there, is damaged, or was made of something else.
    """
    try:
        pieces = parquet_pieces(path)
        first = next(pieces)
        if first.about.part != plain(key):
            return None
        # What has begun must not end with an error.
        several = sum(1 for _ in pieces)
    except (FileNotFoundError, UnreadableFileError):
        return None
    return _pieces_again(path) if several else iter([first])


def _pieces_again(path: Path) -> Iterator[SpotTable]:
    """Yield the pieces of a part that was whole."""
    try:
        yield from parquet_pieces(path)
    except (OSError, UnreadableFileError) as error:
        raise PartsError(
            errno.EIO,
            f"“{path.name}” in “{path.parent}” is lost or was changed while it was read: {error}. "
            "The other parts are kept: run it again to make this one again",
        ) from error


def write_run(folder: Path, run: Run) -> None:
    """Make a folder one of a run, whose parts follow.

    Raises
    ------
    ImportError
        If pyarrow is missing; the message says how to get it.
    PartsError
        If it cannot be written; the message names the folder.
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
    """Return what a folder's parts are of; None if it does not say so, or is damaged."""
    try:
        found = json.loads((folder / _RUN).read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            return None
        return Run(dict(found["asked"]), Settings(**found["settings"]), list(found["firsts"]))
    except (OSError, KeyError, RecursionError, TypeError, ValueError):
        return None


def parts_in(folder: Path) -> list[Path]:
    """Return the paths of the parts that are in a folder, in order."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _PART.fullmatch(path.name))


def folders_in(folder: Path) -> list[Path]:
    """Return a folder of parts, and those of the parts of channels in it."""
    own = folder.iterdir() if folder.is_dir() else ()
    return [folder, *sorted(path for path in own if _CHANNEL.fullmatch(path.name))]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Be the only run that works in a folder, which is made where it is missing.

    Raises
    ------
    PartsError
        If another run works there.
    """
    with suppress(OSError):  # writing there raises its own error
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / _RUN))
        except FileLockedError:
            raise PartsError(
                f"another run works in “{folder}”. Wait until that one ends, or choose another "
                "folder"
            ) from None
        yield


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed run has left unfinished: only for who is :func:`alone_in` there."""
    if folder.is_dir():
        for path in list(folder.iterdir()):
            if _UNFINISHED.fullmatch(path.name):
                _drop(path)


def remove_parts(folder: str | os.PathLike[str]) -> None:
    """Remove all parts of a run, and their folder if there is nothing else in it."""
    place = Path(folder)
    if not place.is_dir():
        return
    remove_unfinished(place)
    for path in [*parts_in(place), place / _RUN]:
        path.unlink(missing_ok=True)
    if not any(place.iterdir()):
        place.rmdir()


def parts_beside(table: Path, image: Path) -> Path:
    """Return the folder where the parts of an image come to lie while its table is not complete.

    Examples
    --------
    >>> parts_beside(Path("out/all.spots.csv"), Path("a.tif")).parent.as_posix()
    'out/all.spots.csv.parts'
    """
    mark = hashlib.blake2b(os.fsencode(os.path.realpath(image)), digest_size=4).hexdigest()
    return table.with_name(f"{table.name}.parts") / f"{image.name}-{mark}"


def remove_beside(folder: Path) -> None:
    """Remove the parts in a folder of :func:`parts_beside`, and what is empty then.

    Only for who is alone at the table, so that a lock in it is one that a killed run has left.
    """
    for own in reversed(folders_in(folder)):
        _drop(lock_of(own / _RUN))
        remove_parts(own)
    if folder.parent.is_dir() and not any(folder.parent.iterdir()):
        folder.parent.rmdir()


def plain(values: Any) -> Any:
    """Return values as they come back from a file."""
    return json.loads(json.dumps(values))


def difference(there: Any, here: Any, name: str = "") -> str:
    """Say in which value two mappings differ first; nothing if they do not.

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
    """Return a time of a file as people write it."""
    return datetime.fromtimestamp(nanoseconds / 1e9).isoformat(" ", "milliseconds")


@contextmanager
def _naming_part(path: Path) -> Iterator[None]:
    """Let errors of writing name the place."""
    try:
        yield
    except OSError as error:
        # Arrow says the number in its text alone.
        code = error.errno or errno_from_message(error) or errno.EIO
        kept = "No part is there yet: make room and run it again"
        with suppress(OSError):
            if parts_in(path.parent):
                kept = "The parts before it are kept: run it again to go on after them"
        raise PartsError(
            code,
            f"“{path.name}” cannot be written in “{path.parent}”: {os.strerror(code)}. {kept}",
        ) from error


def _drop(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # The error that matters is raised already.
