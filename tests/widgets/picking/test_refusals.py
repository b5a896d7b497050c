"""What cannot be picked is explained."""

from __future__ import annotations

import numpy as np
from hand import SHIFT
from qtpy.QtCore import QPointF


def test_what_cannot_be_picked_is_explained(viewer, widget, hand, settle, make_movie, spots):
    widget.picking.click.click()
    image = viewer.add_image(make_movie(3), name="movie")
    hand.click(image, (-3, 10))
    assert "outside “movie”" in widget.status.text()
    viewer.layers.selection.active = viewer.add_points(ndim=3, name="marks")
    viewer.layers["marks"].mode = "add"
    hand.click(image, spots[0])
    assert "marks" in widget.status.text()
    assert "pan and zoom" in widget.status.text()
    assert len(viewer.layers["marks"].data) == 1
    viewer.layers["marks"].mode = "pan_zoom"
    viewer.dims.ndisplay = 3
    hand.click(image, spots[0])
    assert "2-D view" in widget.status.text()
    viewer.dims.ndisplay = 2
    widget.settings.controls["amplitude_min"].value = 3
    widget.settings.controls["amplitude_max"].value = 2
    hand.click(image, spots[0])
    assert "“Amplitude at most” = 2 counts must be above “Amplitude" in widget.status.text()
    settle()
    assert len(viewer.layers) == 2


def test_no_image_and_a_colour_image(viewer, widget, hand, settle):
    photo = viewer.add_image(np.zeros((40, 40, 3), np.uint8), rgb=True, name="photo")
    hand.click(photo, (20, 20), SHIFT)
    assert "RGB" in widget.status.text()
    viewer.layers.clear()
    hand.hover(QPointF(100, 100), SHIFT)
    hand.press(QPointF(100, 100), SHIFT)
    hand.release(QPointF(100, 100), SHIFT)
    assert "no image" in widget.status.text()


def test_an_invalid_fit_is_explained_and_not_drawn(viewer, widget, hand, settle, make_movie, spots):
    movie = make_movie(2).astype(np.float32)
    movie[1] = np.nan
    image = viewer.add_image(movie, name="movie", contrast_limits=(90, 600))
    hand.click(image, spots[0], SHIFT)
    settle()
    viewer.dims.set_current_step(0, 1)
    hand.click(image, spots[0], SHIFT)
    settle()
    assert widget.status.text().startswith("Nothing can be fitted here. The ROI has ")
    assert widget.status.text().endswith("Nothing was added.")
    assert "bad pixels" in widget.status.text()
    assert len(viewer.layers["movie (picked)"].data) == 1
    widget.picking.undo.click()
    assert list(viewer.layers) == [image]


def test_an_image_smaller_than_the_roi(viewer, widget, hand, settle):
    image = viewer.add_image(np.random.default_rng(0).normal(size=(6, 20)), name="strip")
    widget.settings.controls["roi_size"].value = 9
    hand.click(image, (3, 10), SHIFT)
    settle()
    assert "ROI" in widget.status.text()
    assert list(viewer.layers) == [image]
