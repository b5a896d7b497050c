"""An image with its preview, and what the preview must show."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtCore import QPoint, Qt

from napari_spotfit import localize


@pytest.fixture
def viewer(shown_viewer):
    viewer = shown_viewer
    viewer.window.resize(1280, 800)
    return viewer


@pytest.fixture
def image(viewer, make_movie):
    return viewer.add_image(make_movie(4), name="movie")


@pytest.fixture
def tick(qtbot):
    """Tick Preview with the mouse and wait for the first drawing."""

    def run(widget):
        box = widget.preview.box
        with qtbot.waitSignal(widget.preview.drawn, timeout=120_000):
            qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.rect().center().y()))

    return run


@pytest.fixture
def shows(qtbot):
    """Wait until the layer shows exactly what the batch finds in a frame."""

    def run(widget, image, frame, **options):
        settings = widget.settings.settings().changed(**options)
        expected = localize(image.data, settings=settings, frames=frame)

        def same():
            layer = widget.preview.layer
            assert layer is not None
            np.testing.assert_array_equal(layer.data, expected.points())
            np.testing.assert_array_equal(layer.features["sigma"], expected.sigma)
            assert len(layer.face_color) == len(expected)

        qtbot.waitUntil(lambda: _holds(same), timeout=20_000)
        return expected

    return run


def _holds(check):
    try:
        check()
    except AssertionError:
        return False
    return True
