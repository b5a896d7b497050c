"""The request of a batch (files, tables, settings), and what came of each file."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from glob import has_magic, iglob
from pathlib import Path
from typing import Any

from ..files.formats import check_name, is_table
from ..files.parts import plain
from ..files.writing import file_lock, unfinished
from ..images.channels import Chosen
from ..images.files.opening import ENDINGS, data_set, is_image_folder
from ..settings.settings import Settings
from .masks import without_masks

ENDING = ".spots.parquet"
#: States of a file; a kept one was completed by an earlier run from the same input.
WAITING, RUNNING, DONE, KEPT, FAILED, STOPPED = (
    "waiting", "running", "done", "kept", "failed", "stopped",
)  # fmt: skip
#: Readers of folders of tables skip names that begin with an underscore.
_NAME = "_batch.json"
_FORMAT = 1


@dataclass(frozen=True)
class Batch:
    """A request to fit many files.

    Parameters
    ----------
    files : sequence of path
        The image files.
    output : path
        One table for all files, or a folder for one table per file.
    settings : Settings
        The settings of all fits.
    ending : str
        Ending of tables in a folder.
    frames : slice, optional
        Frames of each movie.
    channel : int or str, or tuple of them, optional
        The channel of images with several; "all" or a tuple to fit several separately.
    labels : str, optional
        Where the masks are, as accepted by :func:`~.masks.mask_of`.
    workers : int
        Number of files at a time; more than 1 only if the output is a folder.
    keep : bool
        Whether a stopped batch writes tables of the finished frames.
    fresh : bool
        Whether to ignore the results of earlier runs.
    pixel_size : float, optional
        Side of a pixel in nm, for tables of other programs.
    members : dict, optional
        Files that :func:`images_of` has dropped, by the file whose data set they belong to.
    """

    files: Sequence[Path]
    output: Path
    settings: Settings
    ending: str = ENDING
    frames: slice | None = None
    channel: Chosen = None
    labels: str | None = None
    workers: int = 1
    keep: bool = False
    fresh: bool = False
    pixel_size: float | None = None
    members: Mapping[Path, Sequence[Path]] | None = None


def batch_tables(batch: Batch) -> list[Path] | None:
    """Return the table of each file if the output is a folder, else None.

    Tables of images with the same name in several folders are prefixed by the folders' names.

    Raises
    ------
    ValueError, OSError
        If an ending belongs to no format of spots, several images would have the same table, or
        the folder cannot be created.
    """
    output = batch.output
    if not output.is_dir() and is_table(output):
        check_name(output, batch.pixel_size, several=len(batch.files) > 1)
        if batch.workers > 1 and len(batch.files) > 1:
            raise ValueError(
                "images are fitted one by one if they share a table; choose a folder for the "
                "output to fit several at a time"
            )
        return None
    if output.suffix and not output.is_dir():
        check_name(output, batch.pixel_size)
    if output.exists() and not output.is_dir():
        raise FileExistsError(
            f"“{output}” is a file, but has no name of a table: choose a folder for the "
            f"tables, or a name that ends in {ENDING} or .spots.csv"
        )
    make_folder(output)
    tables = [output / f"{name}{batch.ending}" for name in _own_names(batch.files)]
    for table in tables:
        check_name(table, batch.pixel_size)
    return tables


def make_folder(output: Path) -> None:
    """Create the folder of the tables, if it is missing."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise type(error)(
            f"the folder “{output}” cannot be created ({why}): choose a folder in which you may "
            "write"
        ) from None


def _own_names(files: Sequence[Path]) -> list[str]:
    """Return unique names of files: equal ones are prefixed by as many folders as needed.

    Examples
    --------
    >>> _own_names([Path("/x/a.tif"), Path("/y/a.tif"), Path("/y/b.tif")])
    ['x_a.tif', 'y_a.tif', 'b.tif']
    """
    names, folders = [file.name for file in files], 0
    parts = [Path(os.path.abspath(file)).parts[1:] for file in files]  # noqa: PTH100
    while twice := {name for name, count in Counter(names).items() if count > 1}:
        folders += 1
        if folders >= max(map(len, parts)):
            raise ValueError(f"the spots of several images would go to the table of “{min(twice)}”")
        names = [
            "_".join(whole[-folders - 1 :]) if name in twice else name
            for name, whole in zip(names, parts, strict=True)
        ]
    return names


def images_of(batch: Batch) -> Batch:
    """Return a batch without masks among its files, and with each data set only once."""
    if batch.members is not None:
        return batch
    files = batch.files
    if batch.labels is not None:
        files = without_masks(files, batch.labels)
    files, members = without_members(files)
    return replace(batch, files=files, members=members)


def data_set_warnings(batch: Batch, file: Path) -> list[str]:
    """Return the warning that other files of a data set are not fitted separately."""
    names = [f"“{one.name}”" for one in (batch.members or {}).get(file, ())]
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [
        "it is a data set of several files, and is fitted once, together with "
        f"{', '.join(names[:3])}{more}"
    ]


def image_files(names: Sequence[str]) -> list[Path]:
    """Return the files that names, patterns and folders stand for, in order and each once.

    A folder stands for its image files, sorted by name, without subfolders and hidden files.
    Inaccessible files are returned, too: they will fail when they are fitted, without stopping the
    others.

    Raises
    ------
    ValueError
        If a pattern or a folder has no image files.
    """
    found: dict[str, Path] = {}
    for name in names:
        for file in _files_of(name):
            found.setdefault(_place(file), file)
    return list(found.values())


def without_members(files: Sequence[Path]) -> tuple[list[Path], dict[Path, list[Path]]]:
    """Return files without those that belong to the data set of another one.

    Opening any file of a multi-file OME-TIFF opens all of it.

    Returns
    -------
    files : list of path
        The first file of each data set.
    members : dict
        The dropped files, by the file whose data set they belong to.
    """
    if len(files) < 2:
        return list(files), {}
    named = {_place(file): file for file in files}
    members: dict[Path, list[Path]] = {}
    taken: set[str] = set()
    for place, file in named.items():
        if place not in taken:
            parts = {_place(part) for part in data_set(file)} - {place} - taken
            if parts:
                members[file] = [named[part] for part in named if part in parts]
                taken |= parts
    left = [file for place, file in named.items() if place not in taken]
    return left, {file: parts for file, parts in members.items() if parts and file in left}


def _files_of(name: str) -> list[Path]:
    """Return the files of a name, a pattern or a folder."""
    place, what = Path(name), "folder"
    try:
        if not place.exists() and has_magic(name):
            what = "pattern"
            # pathlib's glob does not accept absolute patterns.
            files = [Path(one) for one in sorted(iglob(name, recursive=True))]  # noqa: PTH207
        elif place.is_dir() and not is_image_folder(place):
            files = sorted(one for one in place.iterdir() if _is_image(one))
        else:
            files = [place]
    except OSError:  # reported when the file is fitted
        files = [place]
    if not files:
        raise ValueError(
            f"there is no image file in the {what} “{name}”; their names end in "
            f"{', '.join(ENDINGS)}"
        )
    return files


def _is_image(path: Path) -> bool:
    """Whether an entry of a folder is an image."""
    if path.name.startswith("."):  # such as macOS' metadata “._a.tif”
        return False
    try:
        return path.suffix.lower() in ENDINGS or is_image_folder(path)
    except OSError:  # a folder without permission
        return False


def _place(file: Path) -> str:
    """Return a file's real path, but its own name: links of other names count as other files."""
    return str(Path(os.path.realpath(file.parent)) / file.name)


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
