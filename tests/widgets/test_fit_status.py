"""The status line of *Fit spots* says nothing that is no longer so."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import no_worker, settle
from hand import SHIFT
from qtpy.QtCore import Qt


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def choose(choice, layer):
    choice.setCurrentIndex(choice.findText(layer.name))


def test_an_undone_fit_is_described_no_more(viewer, widget, fit, press, make_movie):
    viewer.add_image(make_movie(2), name="movie")
    assert "8 spots" in fit(widget)
    press(widget.picking.undo)
    assert "movie spots" not in viewer.layers
    assert widget.status.text() == "Taken back: the last fit of the image."
    press(widget.picking.redo)
    assert widget.status.text() == "Done again: the last fit of the image."


def test_nothing_is_said_of_a_result_that_is_gone(viewer, widget, fit, make_movie, hand):
    image = viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    viewer.layers.remove("movie spots")
    assert widget.status.text() == ""
    first, second = fit(widget), viewer.layers["movie spots"]
    second.name = "mine"
    (axis,) = widget.settings.frames.axes
    axis.mode.setCurrentIndex(axis.mode.findData("current"))
    assert "4 spots" in fit(widget)
    viewer.layers.selection.active = second
    assert widget.status.text() == first
    viewer.layers.selection.active = image
    assert widget.status.text() == first
    viewer.add_image(make_movie(1), name="other")
    assert widget.status.text() == ""


def test_an_error_goes_with_its_cause(viewer, widget, fit, make_movie, qtbot):
    image = viewer.add_image(make_movie(), name="movie")
    other = viewer.add_image(make_movie(), name="other")
    empty = viewer.add_labels(np.zeros(image.data.shape, int), name="empty")
    choose(widget.settings.limit, empty)
    assert "“empty” marks no pixel" in fit(widget)
    viewer.layers.remove(empty)
    assert widget.status.text() == ""
    widget.settings.controls["roi_size"].value = 61
    assert "ROI" in fit(widget)
    viewer.layers.selection.active = image
    assert widget.status.text() == ""
    assert "ROI" in fit(widget)
    widget.settings.advanced.toggleButton().click()
    assert "ROI" in widget.status.text()
    widget.settings.controls["roi_size"].value = 7
    assert widget.status.text() == ""
    assert "4 spots" in fit(widget)
    viewer.layers.remove(other)
    assert "4 spots" in widget.status.text()


def test_what_the_preview_says_stays_until_it_has_another_result(viewer, widget, make_movie, qtbot):
    viewer.add_image(make_movie(), name="movie")
    widget.settings.controls["roi_size"].value = 61
    widget.preview.box.setFocus()
    qtbot.keyClick(widget.preview.box, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: "ROI" in widget.status.text())
    widget.settings.controls["false_spots"].value = 2
    qtbot.waitUntil(lambda: not widget.preview.latest.busy and no_worker())
    settle()
    assert "ROI" in widget.status.text()
    widget.settings.controls["roi_size"].value = 7
    qtbot.waitUntil(lambda: widget.status.text() == "")


def test_a_click_that_did_nothing_is_explained_for_a_while(viewer, widget, make_movie, hand, qtbot):
    image = viewer.add_image(make_movie(), name="movie")
    widget.status._passing.setInterval(1)
    said = []
    widget.picking.picker.missed.connect(said.append)
    hand.click(image, (-3, 20), SHIFT)
    assert "outside “movie”" in said[0]
    qtbot.waitUntil(lambda: widget.status.text() == "")
    hand.click(image, (10.3, 12.1), SHIFT)
    qtbot.waitUntil(lambda: widget.status.text().startswith("Spot at"))
    qtbot.waitUntil(lambda: widget.result.layer is not None)
    viewer.layers.remove(widget.result.layer)
    assert widget.status.text() == ""


def test_it_names_the_image_that_is_fitted_where_another_is_chosen(
    viewer, widget, qtbot, start, gate, make_movie
):
    movie = viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    start(widget)
    assert widget.status.text() == "Fitting…"
    other = viewer.add_image(make_movie(2), name="other")
    assert widget.settings.image.layer is other
    assert widget.status.text() == "Fitting “movie”…"
    viewer.layers.selection.active = movie
    assert widget.status.text() == "Fitting…"
    viewer.layers.selection.active = other
    with qtbot.waitSignal(widget.finished):
        gate.open()
    # napari selects the new spots, and the form names the image that they are of.
    assert widget.settings.image.layer is movie
    assert widget.result.layer is viewer.layers["movie spots"]
    assert widget.status.text() == viewer.layers["movie spots"].metadata["summary"]


def test_pixels_that_are_no_numbers_cost_no_spots(viewer, widget, fit, make_movie, spots):
    movie = make_movie(2).astype(np.float32)
    y, x = np.rint(spots[0]).astype(int)
    movie[:, y + 3, x] = np.nan
    viewer.add_image(movie, name="movie", contrast_limits=(90, 600))
    text = fit(widget)
    assert "8 spots" in text
    assert "could not be fitted" not in text
    marked = viewer.add_image(np.isnan(movie[0]).astype(np.uint8), name="no numbers")
    widget.settings.camera.bad_pixels.setCurrentText(marked.name)
    assert widget.settings.image.layer.name == "movie"
    text = fit(widget)
    assert "8 spots" in text
    assert "could not be fitted" not in text
