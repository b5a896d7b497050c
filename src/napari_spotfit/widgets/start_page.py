"""What *Fit spots* offers in an empty viewer: samples to press, and an image to open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtWidgets import QPushButton, QVBoxLayout, QWidget

from .napari_compat import ask_for_files, is_image
from .parts.layout import fill, sentence

if TYPE_CHECKING:
    from napari import Viewer

#: The samples by their keys in the manifest: a title, and what is to be learnt from them.
_SAMPLES = {
    "smfish": ("Spots in cells", "An image as single-molecule FISH makes it, with its cells."),
    "molecules": ("Single molecules", "A movie in which molecules blink, with its camera's gain."),
    "beads": ("Beads", "A movie of fiducial beads, whose drift can be found and subtracted."),
}
_WORDS = "There is no image yet. Open one, or try a simulated sample:"


class StartPage(QWidget):
    """Buttons for samples, and one that opens an image.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that gets the images.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self.samples: dict[str, QPushButton] = {}
        self.open_button = QPushButton("Open an image…")
        self.open_button.setToolTip("<p>Choose image files, as with File ▸ Open.</p>")
        self.open_button.clicked.connect(lambda: ask_for_files(viewer))
        for key, (title, tip) in _SAMPLES.items():
            self.samples[key] = button = QPushButton(title)
            button.setToolTip(f"<p>{tip}</p>")
            button.clicked.connect(lambda checked=False, key=key: self._open_sample(key))
        words = sentence()
        words.setText(_WORDS)
        buttons = (*self.samples.values(), self.open_button)
        fill(QVBoxLayout(self), words, *buttons, 1, margins=(8, 16, 8, 8))
        self.setMinimumWidth(260)

    def _open_sample(self, key: str) -> None:
        opened = self._viewer.open_sample("napari-spotfit", key)
        self._viewer.layers.selection.active = next(one for one in opened if is_image(one))
