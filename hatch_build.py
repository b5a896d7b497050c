"""Put the compiled library, its layouts, napari.yaml and kernels/ into the package.

With the environment variable NAPARI_SPOTFIT_TARGET a wheel is for another machine; the names
are those of `tools/build_library.py --targets`.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "napari_spotfit"
TOP_LEVEL = ("napari.yaml", "kernels")


class PackageFiles(BuildHookInterface):
    """Pack the files into a wheel; an editable install gets links to them, and the library."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "tools"))
        import build_library

        if version == "editable":
            for name in TOP_LEVEL:
                link(root / name, root / "src" / PACKAGE / name)
            target = build_library.build(build_library.PLACE)
        else:
            name = os.environ.get("NAPARI_SPOTFIT_TARGET", "")
            folder = build_library.WORK / "wheel" / name
            target = build_library.build(folder, name)
            place = build_library.PLACE.relative_to(root / "src")
            packed = {name: f"{PACKAGE}/{name}" for name in TOP_LEVEL}
            for made in (target.library, build_library.layouts.NAME):
                packed[str(folder / made)] = str(place / made)
            build_data["force_include"] |= packed
        build_data["pure_python"] = False
        # ctypes needs no headers of Python's: one library serves every version.
        build_data["tag"] = f"py3-none-{target.wheel}"


def link(target: Path, place: Path) -> None:
    """Make `place` a link to `target`, in place of an older link or copy."""
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)
    try:
        place.symlink_to(os.path.relpath(target, place.parent), target.is_dir())
    except OSError:
        # Windows allows links in developer mode only. A copy is as good until the
        # original changes: then install again.
        copy = shutil.copytree if target.is_dir() else shutil.copyfile
        copy(target, place)
