"""Put the top-level napari.yaml and kernels/ into the package, whichever way it is installed."""

import os
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "napari_spotfit"
TOP_LEVEL = ("napari.yaml", "kernels")


class TopLevelFiles(BuildHookInterface):
    """Pack the files into a wheel; for an editable install, link to them from src/."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        for name in TOP_LEVEL:
            if version == "editable":
                root = Path(self.root)
                link(root / name, root / "src" / PACKAGE / name)
            else:
                build_data["force_include"][name] = f"{PACKAGE}/{name}"


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
