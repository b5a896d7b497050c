"""Find the sources of the compiled library, and check that library and layouts are current.

An editable install does this at each start, so it must be fast and import little.
"""

from __future__ import annotations

import mmap
import os
import zlib

TOOLS = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(os.path.dirname(TOOLS), "kernels")
_PACKAGE = os.path.join(os.path.dirname(TOOLS), "src", "napari_spotfit")
VERSION = os.path.join(_PACKAGE, "version.py")
#: The layouts of a checkout, written by tools/layouts.py.
LAYOUTS = os.path.join(_PACKAGE, "engine", "cpu", "layouts.py")


def digest() -> str:
    """Return a hash of all sources of the library."""
    checksum = 0
    for path in _sources():
        checksum = zlib.crc32(os.path.basename(path).encode(), checksum)
        with open(path, "rb") as file:
            checksum = zlib.crc32(file.read(), checksum)
    return f"sources-{checksum:08x}"


def is_current(made: str, sources: str = "") -> bool:
    """Whether a library or the layouts were made from sources, by default from the current ones."""
    # Search the file instead of loading the library, which then could not be replaced.
    if not os.path.isfile(made) or not os.path.getsize(made):
        return False
    with (
        open(made, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find((sources or digest()).encode()) >= 0


def _sources() -> list[str]:
    folders = (KERNELS, f"{KERNELS}/layouts")
    shared = [
        entry.path
        for folder in folders
        for entry in os.scandir(folder)
        if entry.name.endswith(".h")
    ]
    cpu = [f"{folder}/{name}" for folder, _, names in os.walk(f"{KERNELS}/cpu") for name in names]
    code = [path for path in cpu if path.endswith((".h", ".cpp"))]
    tools = [f"{TOOLS}/{name}.py" for name in ("build_library", "layouts")]
    return [VERSION, *tools, *sorted(shared + code)]
