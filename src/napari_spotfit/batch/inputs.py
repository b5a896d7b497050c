"""Which image files a batch is of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import has_magic, iglob
from pathlib import Path

from ..images.files.opening import ENDINGS, data_set, is_image_folder


def image_files(names: Sequence[str]) -> list[Path]:
    """Return the files of names, patterns and folders, each once, in this order.

    Of a folder these are the image files in it by their names, without those in folders below and
    without hidden ones. What cannot be looked at is returned where it was named: it fails in its
    turn, and the others go on.

    Raises
    ------
    ValueError
        If a pattern or a folder has none.
    """
    found: dict[str, Path] = {}
    for name in names:
        for file in _files_of(name):
            found.setdefault(_place(file), file)
    return list(found.values())


def without_members(files: Sequence[Path]) -> tuple[list[Path], dict[Path, list[Path]]]:
    """Return files without those that are read as parts of another one of them.

    An OME-TIFF of several files is opened whole by each of them.

    Returns
    -------
    files : list of path
        Of each data set the first one that opens it.
    members : dict
        Which of the others are read with a file, where there are some.
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
            # Not pathlib's, which takes no pattern from the root on.
            files = [Path(one) for one in sorted(iglob(name, recursive=True))]  # noqa: PTH207
        elif place.is_dir() and not is_image_folder(place):
            files = sorted(one for one in place.iterdir() if _is_image(one))
        else:
            files = [place]
    except OSError:  # told when its turn comes
        files = [place]
    if not files:
        raise ValueError(
            f"there is no image file in the {what} “{name}”; their names end in "
            f"{', '.join(ENDINGS)}"
        )
    return files


def _is_image(path: Path) -> bool:
    """Whether what lies in a folder is one of its images."""
    if path.name.startswith("."):  # macOS' “._a.tif” has what “a.tif” has no place for
        return False
    try:
        return path.suffix.lower() in ENDINGS or is_image_folder(path)
    except OSError:  # a folder that may not be looked into, and that nobody has asked for
        return False


def _place(file: Path) -> str:
    """Return by what a file is known again; links of other names remain files of their own."""
    return str(Path(os.path.realpath(file.parent)) / file.name)
