"""What the compiled library is built from, and whether a library was built from just that.

An editable install asks this whenever it starts, so it is quick and imports next to nothing.
"""

from __future__ import annotations

import mmap
import os
import zlib

TOOLS = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(os.path.dirname(TOOLS), "kernels")
VERSION = os.path.join(os.path.dirname(TOOLS), "src", "napari_spotfit", "version.py")


def digest() -> str:
    """Return what changes with anything that decides what the library does."""
    checksum = 0
    for path in _sources():
        checksum = zlib.crc32(os.path.basename(path).encode(), checksum)
        with open(path, "rb") as file:
            checksum = zlib.crc32(file.read(), checksum)
    return f"sources-{checksum:08x}"


def is_current(library: str) -> bool:
    """Tell whether a library was built from the sources as they are now."""
    # The file is searched: a library that is loaded could not be replaced by a newer one.
    if not os.path.isfile(library) or not os.path.getsize(library):
        return False
    with (
        open(library, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(digest().encode()) >= 0


def _sources() -> list[str]:
    shared = [entry.path for entry in os.scandir(KERNELS) if entry.name.endswith(".h")]
    cpu = [f"{folder}/{name}" for folder, _, names in os.walk(f"{KERNELS}/cpu") for name in names]
    code = [path for path in cpu if path.endswith((".h", ".cpp"))]
    return [VERSION, f"{TOOLS}/build_library.py", *sorted(shared + code)]
