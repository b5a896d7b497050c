"""Which image files a batch is of."""

from __future__ import annotations

from collections.abc import Sequence
from glob import has_magic, iglob
from pathlib import Path

from ...images.files.opening import ENDINGS, is_image_folder


def image_files(names: Sequence[str]) -> list[Path]:
    """Return the files of names, patterns and folders, each once, in this order.

    Of a folder these are the image files in it by their names, without those in folders below.

    Raises
    ------
    ValueError
        If a pattern or a folder has none.
    """
    found: dict[Path, None] = {}
    for name in names:
        place = Path(name)
        if not place.exists() and has_magic(name):
            # Not pathlib's, which takes no pattern from the root on.
            files = [Path(one) for one in sorted(iglob(name, recursive=True))]  # noqa: PTH207
        elif place.is_dir() and not is_image_folder(place):
            files = sorted(
                one
                for one in place.iterdir()
                if one.suffix.lower() in ENDINGS or is_image_folder(one)
            )
        else:
            files = [place]
        if not files:
            what = "folder" if place.is_dir() else "pattern"
            raise ValueError(
                f"there is no image file in the {what} “{name}”; their names end in "
                f"{', '.join(ENDINGS)}"
            )
        found |= dict.fromkeys(files)
    return list(found)
