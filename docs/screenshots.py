"""Take the pictures of the README, in docs/images/, from the real viewer."""

from __future__ import annotations

import tempfile
from pathlib import Path

from demo import fit, open_sample, save_window
from qtpy.QtCore import QSettings

IMAGES = Path(__file__).parent / "images"


def take(sample: str, name: str, *, theme: str = "dark", zoom: float = 1.0) -> None:
    """Fit a sample image and save a picture of the window."""
    viewer, widget = open_sample(sample)
    viewer.theme = theme
    fit(viewer, widget)
    fit(viewer, widget)  # the first one had the engine to load
    getattr(viewer, "scene", viewer).camera.zoom *= zoom
    save_window(viewer, IMAGES / name)
    print(f"{name}: {widget.status.text()}")
    viewer.close()


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, folder)
        take("molecules", "widget.png")
        take("smfish", "smfish.png", zoom=2.2)


if __name__ == "__main__":
    main()
