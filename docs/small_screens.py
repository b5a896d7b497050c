"""Take pictures of all widgets on small screens, for a look at what does not fit.

On one of 1280×800 pixels, and on one of 1920×1080 on which all is half as large again, so that
1280×720 are left. They are saved in build/small-screens/, one folder each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from demo import fit, open_sample
from screenshots import dock, own_settings, wait_until

if TYPE_CHECKING:
    import napari

OUT = Path(__file__).parents[1] / "build" / "small-screens"
#: The room for the window, by how much larger all is drawn.
ROOMS = {"1": (1280, 800), "1.5": (1280, 720)}


class Camera:
    """Takes pictures of a viewer's window, which is made as small as the screen first."""

    def __init__(self, viewer: napari.Viewer, folder: Path, room: tuple[int, int]):
        self._viewer, self._folder, self._room = viewer, folder, room

    def take(self, name: str) -> None:
        """Save a picture, and say so if the window had to be larger."""
        self._viewer.window.resize(*self._room)
        wait_until(lambda: True)
        window = self._viewer.window._qt_window  # there is no public way to it
        window.grab().save(str(self._folder / f"{name}.png"))
        size = window.width(), window.height()
        print(f"{name}: {size[0]}×{size[1]}", "" if size == self._room else "  does not fit")


def take_all(folder: Path, room: tuple[int, int]) -> None:
    """Take all pictures at the scale that this process has."""
    folder.mkdir(parents=True, exist_ok=True)
    viewer, widget = open_sample("smfish")
    camera = Camera(viewer, folder, room)
    camera.take("fit")
    widget.settings.advanced.expand()
    camera.take("fit-advanced")
    bar = widget.settings.verticalScrollBar()
    bar.setValue(bar.maximum())
    camera.take("fit-advanced-below")
    widget.settings.advanced.collapse()
    layer = fit(viewer, widget)
    camera.take("result")
    drawn: list[bool] = []
    widget.preview.drawn.connect(lambda: drawn.append(True))
    widget.preview.box.click()
    wait_until(lambda: bool(drawn))
    camera.take("preview-above-result")
    widget.preview.box.click()
    spots = dock(viewer, "Spots")
    for page in range(spots.tabs.count()):
        spots.tabs.setCurrentIndex(page)
        camera.take(f"spots-{spots.tabs.tabText(page).lower()}")
    inspector = dock(viewer, "Inspect spot")
    inspector.inspect(layer, int(np.flatnonzero(layer.features["good"] == 0)[0]))
    wait_until(lambda: True)
    camera.take("inspect")
    viewer.close()


def main() -> None:
    """Take them at each scale, in a process of its own: Qt reads it when it starts."""
    if len(sys.argv) > 1:
        own_settings()
        take_all(Path(sys.argv[1]), ROOMS[os.environ["QT_SCALE_FACTOR"]])
        return
    for scale in ROOMS:
        print(f"scale {scale}")
        folder = OUT / f"scale-{scale}"
        command = [sys.executable, __file__, str(folder)]
        subprocess.run(command, env={**os.environ, "QT_SCALE_FACTOR": scale}, check=True)


if __name__ == "__main__":
    main()
