"""What the compiled library is built from, and whether a library was built from just that.

An editable install asks this whenever it starts, so it is quick and imports next to nothing.
"""

from __future__ import annotations

import mmap
import os
import zlib
from pathlib import Path

TOOLS = Path(__file__).parent
KERNELS = TOOLS.parent / "kernels"
VERSION = TOOLS.parent / "src" / "napari_spotfit" / "version.py"


def digest() -> str:
    """Return what changes with anything that decides what the library does."""
    checksum = 0
    for path in _sources():
        checksum = zlib.crc32(path.name.encode(), checksum)
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return f"sources-{checksum:08x}"


def is_current(library: Path) -> bool:
    """Tell whether a library was built from the sources as they are now."""
    # The file is searched: a library that is loaded could not be replaced by a newer one.
    if not library.is_file() or not library.stat().st_size:
        return False
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(digest().encode()) >= 0


def _sources() -> list[Path]:
    shared = [entry.path for entry in os.scandir(KERNELS) if entry.name.endswith(".h")]
    # os.walk, as Path.rglob takes ten times as long.
    cpu = [f"{folder}/{name}" for folder, _, names in os.walk(KERNELS / "cpu") for name in names]
    code = [path for path in cpu if path.endswith((".h", ".cpp"))]
    return [VERSION, TOOLS / "build_library.py", *map(Path, sorted(shared + code))]
