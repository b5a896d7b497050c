"""What a batch is to do: which files, which tables, which settings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..files.formats import FORMATS, check_name
from ..settings.settings import Settings
from .inputs import without_members
from .masks import without_masks

ENDING = ".spots.parquet"


@dataclass(frozen=True)
class Batch:
    """What a batch is to do.

    Parameters
    ----------
    files : sequence of path
        The image files.
    output : path
        A table for the spots of all, or a folder for a table of each.
    settings : Settings
        The settings of all fits.
    ending : str
        What the tables in a folder end in.
    frames : slice, optional
        Frames of each movie.
    labels : str, optional
        Where the masks are, as :func:`~.masks.mask_of` takes it.
    workers : int
        So many files at a time, where the output is a folder.
    keep : bool
        Whether the tables have what is done when the batch is stopped.
    fresh : bool
        Whether to begin anew where an earlier run has left something.
    members : dict, optional
        What :func:`images_of` has left out: files, by the one that they are read with.
    """

    files: Sequence[Path]
    output: Path
    settings: Settings
    ending: str = ENDING
    frames: slice | None = None
    labels: str | None = None
    workers: int = 1
    keep: bool = False
    fresh: bool = False
    members: Mapping[Path, Sequence[Path]] | None = None


def batch_tables(batch: Batch) -> list[Path] | None:
    """Return the table of each file where there is to be a folder of them, else None.

    Images of the same name from several folders get tables with the folders' names before it.

    Raises
    ------
    ValueError, OSError
        If a name says no format of spots, several images would have one table, or there is no
        place for them.
    """
    output = batch.output
    if not output.is_dir() and output.suffix.lower() in FORMATS:
        check_name(output)
        if batch.workers > 1 and len(batch.files) > 1:
            raise ValueError(
                "one table of all images is written one after the other; choose a folder for the "
                "output to have several at a time"
            )
        return None
    if output.suffix and not output.is_dir():
        check_name(output)
    if output.exists() and not output.is_dir():
        raise FileExistsError(
            f"“{output}” is a file, and its name is none of a table: choose a folder for the "
            f"tables, or a name that ends in {ENDING} or .spots.csv"
        )
    make_folder(output)
    tables = [output / f"{name}{batch.ending}" for name in _own_names(batch.files)]
    for table in tables:
        check_name(table)
    return tables


def make_folder(output: Path) -> None:
    """Make the folder of the tables, unless it is there."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise type(error)(
            f"the folder “{output}” cannot be made ({why}): choose another one as output, in which "
            "you may write"
        ) from None


def _own_names(files: Sequence[Path]) -> list[str]:
    """Return the files' names; of those of one name, with as many of their folders as differ.

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
    """Return a batch without the masks among its files, and with each data set once."""
    if batch.members is not None:
        return batch
    files = batch.files
    if batch.labels is not None:
        files = without_masks(files, batch.labels)
    files, members = without_members(files)
    return replace(batch, files=files, members=members)


def told_of(batch: Batch, file: Path) -> list[str]:
    """Say which files are not worked on by themselves, as they are parts of another one."""
    names = [f"“{one.name}”" for one in (batch.members or {}).get(file, ())]
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [
        "it is a data set of several files, and is fitted once, together with "
        f"{', '.join(names[:3])}{more}"
    ]
