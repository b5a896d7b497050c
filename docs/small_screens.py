"""Take pictures of all widgets on small screens, for a look at what does not fit.

On one of 1280×800 pixels, in the dark and in the light theme, on one of 1024×700, and on one of
1920×1080 on which all is half as large again, so that 1280×720 are left. They are saved in
build/small-screens/, one folder each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from demo import fit, open_sample
from screenshots import dock, own_settings, wait_until

import napari_spotfit as spotfit
from napari_spotfit.widgets.import_localisations import ImportDialog

if TYPE_CHECKING:
    import napari

OUT = Path(__file__).parents[1] / "build" / "small-screens"
#: By how much larger all is drawn, the room for the window, and the theme.
ROOMS = {
    "1280": ("1", (1280, 800), "dark"), "light": ("1", (1280, 800), "light"),
    "1024": ("1", (1024, 700), "dark"), "large": ("1.5", (1280, 720), "dark"),
}  # fmt: skip


class Camera:
    """Takes pictures of a viewer's window, which is made as small as the screen first."""

    def __init__(self, viewer: napari.Viewer, folder: Path, room: tuple[int, int]):
        self._viewer, self.folder, self._room = viewer, folder, room

    def take(self, name: str) -> None:
        """Save a picture, and say so if the window had to be larger."""
        self._viewer.window.resize(*self._room)
        wait_until(lambda: True)
        window = self._viewer.window._qt_window  # there is no public way to it
        window.grab().save(str(self.folder / f"{name}.png"))
        size = window.width(), window.height()
        print(f"{name}: {size[0]}×{size[1]}", "" if size == self._room else "  does not fit")


def take_all(folder: Path, room: tuple[int, int], theme: str) -> None:
    """Take all pictures at the scale that this process has."""
    folder.mkdir(parents=True, exist_ok=True)
    viewer, widget = open_sample("smfish")
    viewer.theme = theme
    camera = Camera(viewer, folder, room)
    camera.take("fit")
    widget.settings.advanced.expand()
    camera.take("fit-advanced")
    bar = widget.area.verticalScrollBar()
    bar.setValue(bar.maximum())
    camera.take("fit-advanced-below")
    widget.settings.advanced.collapse()
    layer = fit(viewer, widget)
    camera.take("result")
    widget.result.heading.click()
    camera.take("result-legend")
    drawn: list[bool] = []
    widget.preview.drawn.connect(lambda: drawn.append(True))
    widget.preview.box.click()
    wait_until(lambda: bool(drawn))
    camera.take("preview-above-result")
    widget.preview.box.click()
    results = dock(viewer, "Results")
    results.go_to(layer, int(np.flatnonzero(layer.features["good"] == 0)[0]), "Inspect")
    for page in range(results.tabs.count()):
        results.tabs.setCurrentIndex(page)
        wait_until(lambda: True)
        camera.take(f"results-{results.tabs.tabText(page).lower()}")
    with TemporaryDirectory() as name:
        take_of_files(viewer, camera, Path(name))
    take_of_loop(viewer, camera)
    viewer.close()


def take_of_files(viewer: napari.Viewer, camera: Camera, folder: Path) -> None:
    """Fit a few files, one of them damaged, and import a table."""
    for seed in range(4):
        movie, _ = spotfit.simulate_movie(20, spots_per_frame=20, seed=seed)
        np.save(folder / f"field {seed + 1}.npy", movie)
    (folder / "field 5.npy").write_bytes(b"no array")
    pages = alone(viewer, "Fit spots").pages
    pages.switch.setCurrentIndex(1)
    files = pages.files
    files.form.images.value = str(folder)
    camera.take("files")
    files.fit_button.click()
    wait_until(lambda: not files.running)
    camera.take("files-done")
    table = folder / "localisations.csv"
    spotfit.localize(movie).save(table, "thunderstorm", pixel_size=100)
    importer = ImportDialog(viewer)
    importer.open()
    importer.file.value = str(table)
    importer.look()
    wait_until(lambda: importer.found is not None)
    importer.grab().save(str(camera.folder / "import.png"))
    importer.reject()


def take_of_loop(viewer: napari.Viewer, camera: Camera) -> None:
    """Follow the fiducials of the simulated microscope."""
    track = alone(viewer, "Track")
    camera.take("track")
    track.start_button.click()
    wait_until(lambda: track.seen is not None and track.seen.frames > 300)
    camera.take("track-running")
    track.start_button.click()


def alone(viewer: napari.Viewer, name: str) -> Any:
    """Open a widget in the place of all others."""
    viewer.window.remove_dock_widget("all")
    return dock(viewer, name)


def main() -> None:
    """Take them at each scale, in a process of its own: Qt reads it when it starts."""
    if len(sys.argv) > 1:
        own_settings()
        take_all(OUT / sys.argv[1], *ROOMS[sys.argv[1]][1:])
        return
    for name, (scale, *_) in ROOMS.items():
        print(name)
        command = [sys.executable, __file__, name]
        subprocess.run(command, env={**os.environ, "QT_SCALE_FACTOR": scale}, check=True)


if __name__ == "__main__":
    main()
