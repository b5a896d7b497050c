"""Fits follow a mouse that is held down, and keep up with a fast one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hand import SHIFT
from qtpy.QtWidgets import QApplication


def camera(viewer):
    """Return where the camera is, in napari's model and on the canvas."""
    QApplication.processEvents()
    camera = getattr(viewer, "scene", viewer).camera
    drawn = viewer.window._qt_viewer.canvas.view.camera.rect
    return (*camera.center, camera.zoom, *drawn.pos, *drawn.size)


def test_a_drag_is_followed_and_the_camera_stays(
    viewer, widget, hand, settle, qtbot, make_movie, spots
):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[2], SHIFT)
    settle()
    widget.picking.click.click()
    before = camera(viewer)
    path = [spots[0], (spots[0] + spots[2]) / 2, spots[2], (spots[2] + spots[3]) / 2, spots[3]]
    hand.hover(hand.at(image, path[0]))
    hand.press(hand.at(image, path[0]))
    layer = viewer.layers["movie (picked)"]
    for place in path[1:]:
        hand.move(hand.at(image, place))
        qtbot.waitUntil(lambda: widget.picking.picker._fitting is None)
    assert len(layer.data) == 2
    hand.release(hand.at(image, path[-1]))
    settle()
    assert camera(viewer) == before
    np.testing.assert_allclose(layer.data, [spots[2], spots[3]], atol=0.2)
    assert set(layer.selected_data) == {1}
    # With the switch off the same drag pans, as always.
    widget.picking.click.click()
    hand.drag(*(hand.at(image, place) for place in path))
    qtbot.waitUntil(lambda: camera(viewer) != before)
    assert len(layer.data) == 2


def test_a_frame_is_read_once_per_press_and_the_last_place_is_fitted(
    viewer, widget, hand, settle, qtbot, make_movie, spots
):
    dask_array = pytest.importorskip("dask.array")
    movie, reads, go = make_movie(4), [], threading.Event()

    def load(block_info=None):
        if block_info:
            (frame, *_) = block_info[None]["chunk-location"]
            if go.is_set() or frame == 2:
                reads.append(frame)
                assert go.wait(60)
            return movie[frame : frame + 1]
        return movie[:1]

    lazy = dask_array.map_blocks(load, chunks=((1,) * 4, *movie.shape[1:]), dtype=movie.dtype)
    image = viewer.add_image(lazy, name="movie", contrast_limits=(90, 600))
    go.set()
    viewer.dims.set_current_step(0, 2)
    widget.picking.click.click()  # which measures the noise, in other frames, too
    settle()
    QApplication.processEvents()
    reads.clear()
    go.clear()
    hand.hover(hand.at(image, spots[0]), SHIFT)
    hand.press(hand.at(image, spots[0]), SHIFT)
    for place in spots:
        hand.move(hand.at(image, place), SHIFT)
    hand.release(hand.at(image, spots[3]), SHIFT)
    # Another click while the frame is awaited is not lost.
    hand.click(image, spots[1], SHIFT)
    # Meanwhile the viewer answers, and says what may take so long.
    qtbot.waitUntil(lambda: "being read" in widget.status.text())
    go.set()
    settle()
    assert reads == [2, 2]
    np.testing.assert_allclose(viewer.layers["movie (picked)"].data[:, 1:], spots[[3, 1]], atol=0.2)


def test_a_double_click_is_two_picks_and_no_zoom(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    # The first pick shows the legend, for which the canvas may have to make room.
    hand.click(image, spots[1], SHIFT)
    settle()
    before = camera(viewer)
    hand.double_click(image, spots[0], SHIFT)
    settle()
    assert camera(viewer) == before
    assert len(viewer.layers["movie (picked)"].data) == 2
    hand.double_click(image, spots[0])
    assert camera(viewer) != before
