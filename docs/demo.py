"""What ``make demo`` shows: napari, the sample movie, and its spots fitted by the widget.

With ``--save`` nothing stays open: the window is saved as demo.png and the
localisations as demo.csv in the current folder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import napari
from qtpy.QtCore import QEventLoop, QTimer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from own_settings import own_settings

if TYPE_CHECKING:
    from napari.layers import Points

    from napari_spotfit.widgets.fit_spots import FitSpots

WINDOW = 1280, 800


def open_sample(sample: str) -> tuple[napari.Viewer, FitSpots]:
    """Open a sample image with the widget docked beside it."""
    viewer = napari.Viewer()
    viewer.window.resize(*WINDOW)
    viewer.open_sample("napari-spotfit", sample)
    _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", "Fit spots")
    return viewer, widget


def fit(viewer: napari.Viewer, widget: FitSpots) -> Points:
    """Press the button, wait for the end, return the layer with the spots."""
    wait = QEventLoop()
    widget.finished.connect(wait.quit)
    widget.fit_button.click()
    wait.exec()
    viewer.reset_view()  # the docked widget has made the canvas narrower
    spots = f"{widget.settings.image.layer.name} spots"
    if spots not in viewer.layers:
        sys.exit(widget.status.text())
    return viewer.layers[spots]


def save_window(viewer: napari.Viewer, path: Path) -> None:
    """Save a picture of the whole window, once everything in it is drawn."""
    drawn = QEventLoop()
    QTimer.singleShot(0, drawn.quit)
    drawn.exec()
    viewer.window.screenshot(str(path), canvas_only=False, flash=False)


def main() -> None:
    """Show the demo or save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="save demo.png and demo.csv, then end")
    save = parser.parse_args().save
    print("Fitting the sample movie.")
    own_settings()
    viewer, widget = open_sample("molecules")
    if save:
        layer = fit(viewer, widget)
        save_window(viewer, Path("demo.png"))
        layer.features.to_csv("demo.csv", index=False)
        print(widget.status.text(), "Saved demo.png and demo.csv.", sep="\n")
        viewer.close()
    else:
        widget.fit_button.click()
        napari.run()


if __name__ == "__main__":
    main()
