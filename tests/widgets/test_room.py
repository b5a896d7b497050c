"""The form of *Fit spots* at any size: nothing is cut off, and the canvas keeps its room."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from event_loop import settle
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QAbstractSpinBox, QCheckBox, QComboBox, QPushButton, QScrollArea, QSlider

from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting import preview

CONTROLS = (QAbstractSpinBox, QCheckBox, QComboBox, QPushButton, QSlider)


@pytest.fixture
def docked(make_napari_viewer):
    """Open the widget as a menu does, in a window of some size."""

    def open_in(width, height):
        viewer = make_napari_viewer(show=True)
        viewer.window.resize(width, height)
        settle()
        _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", "Fit spots")
        settle()
        return viewer, widget

    return open_in


def whole(area):
    """Whether an area shows all of its contents, or a bar for the rest."""
    content, room = area.widget(), area.viewport()
    needed = content.heightForWidth(content.width())
    if needed < 0:
        needed = content.minimumSizeHint().height()
    high = content.height() >= needed
    bar = area.verticalScrollBar()
    seen = content.height() <= room.height() or (bar.isVisible() and bar.maximum() > 0)
    return high and seen and content.width() <= room.width()


def test_no_size_cuts_the_form_off(docked, qtbot, make_movie):
    viewer, widget = docked(1024, 700)
    movie = viewer.add_image(make_movie(2), name="movie")
    (area,) = (one for one in widget.findChildren(QScrollArea) if one.widget() is widget.settings)
    steps = (
        lambda: None,
        lambda: widget.preview.box.click(),
        lambda: widget.settings.advanced.expand(),
        lambda: widget.settings.controls["sigma"].set_value(1.7),
        lambda: viewer.add_image(movie.data, name="a very long name of an image " * 3),
        lambda: widget.status.fail("why it was not done, at some length " * 12),
        lambda: widget.result.heading.click(),
        lambda: widget.settings.advanced.collapse(),
        lambda: widget.preview.box.click(),
    )
    for step in steps:
        step()
        for size in ((1024, 700), (1280, 800), (1000, 460), (1400, 1000)):
            viewer.window.resize(*size)
            qtbot.waitUntil(lambda: whole(area))


def test_no_sentence_among_more_settings_is_cut(docked, qtbot):
    viewer, widget = docked(1024, 700)
    viewer.add_image(np.zeros((32, 32)))
    widget.settings.advanced.expand()
    qtbot.waitUntil(lambda: bool(widget.settings.device.text()))
    reason = widget.settings.why_no_gpu
    reason.setText("why no GPU can be used, in many words, " * 10)
    reason.show()
    qtbot.waitUntil(lambda: reason.height() >= reason.heightForWidth(reason.width()) > 100)


@pytest.mark.parametrize("state", ["at first", "fitted", "unfolded"])
def test_the_canvas_of_a_small_window_keeps_its_room(docked, qtbot, make_movie, fit, state):
    viewer, widget = docked(1024, 700)
    viewer.add_image(make_movie(), name="movie")
    if state != "at first":
        fit(widget)
    if state == "unfolded":
        widget.result.heading.click()
        widget.settings.advanced.expand()
    window, canvas = viewer.window._qt_window, viewer.window._qt_viewer.canvas.native
    qtbot.waitUntil(lambda: canvas.width() >= 400)
    assert (window.width(), window.height()) == (1024, 700)


def test_few_controls_are_in_sight(docked, qtbot, make_movie, fit):
    viewer, widget = docked(1280, 800)
    viewer.add_image(make_movie(2), name="movie")
    names = {"Pin the images", "Search in", "What axis 0 is", "False spots", "Preview"}
    names |= {"Axis 0", "Fit", "Fit on click", "▸ More settings"}

    def seen():
        shown = [one for one in widget.findChildren(CONTROLS) if one.isVisible()]
        return {one.accessibleName() or one.text() for one in shown}

    assert seen() == names
    assert 300 <= widget.width() <= 330
    fit(widget)
    assert seen() == {*names, "8 good, 0 doubtful ▸", "Undo", "Table", "Show residual"}
    assert widget.status.isHidden()  # it has nothing to add
    qtbot.mouseClick(widget.result.heading, Qt.MouseButton.LeftButton)
    assert widget.result.heading.text() == "8 good, 0 doubtful ▾"
    assert not widget.status.isHidden()
    assert "8 spots in " in widget.status.text()
    assert widget.result.isVisible()
    qtbot.mouseClick(widget.result.heading, Qt.MouseButton.LeftButton)
    widget.status.fail("something")
    assert widget.status.isVisible()


@pytest.mark.parametrize("advanced", [False, True])
def test_tab_goes_through_the_controls_as_they_are_seen(docked, qtbot, make_movie, advanced):
    viewer, widget = docked(1280, 1000)
    viewer.add_image(make_movie(2), name="movie")
    widget.settings.controls["backend"].value = "cpu"
    widget.settings.advanced.expand() if advanced else None
    widget.settings.controls["model"].value = "gaussian_elliptical"
    widget.settings.image.setFocus()
    seen, content = [], widget.settings
    for _ in range(30 if advanced else 8):
        seen.append(widget.window().focusWidget())
        qtbot.keyClick(seen[-1], Qt.Key.Key_Tab)
    assert all(content.isAncestorOf(one) for one in seen)

    def in_order():
        places = [one.mapTo(content, one.rect().center()) for one in seen]
        for before, after in pairwise(places):
            beside = abs(after.y() - before.y()) <= 8 and after.x() > before.x()
            assert beside or after.y() > before.y() + 8

    qtbot.waitUntil(in_order)


def test_the_legend_has_the_numbers_of_the_heading(viewer, widget, fit):
    from napari_spotfit import simulate_movie

    movie, _ = simulate_movie(1, shape=(128, 128), spots_per_frame=150, seed=2)
    viewer.add_image(movie[0], name="crowd")
    widget.settings.controls["neighbours"].value = "exclude"  # of joint fits few are doubtful
    fit(widget)
    features = viewer.layers["crowd spots"].features
    good = int((features["good"] > 0).sum())
    remarked = int(((features["good"] > 0) & (features["flags"] > 0)).sum())
    doubtful = len(features) - good
    assert remarked
    assert doubtful
    assert widget.result.heading.text() == f"{good} good, {doubtful} doubtful ▾"
    counts = [int(count.text()) for _, count in widget.result.legend.groups]
    assert counts == [good, remarked, doubtful]


def test_the_preview_opens_by_itself_where_it_is_quick(viewer, monkeypatch, qtbot, fit, make_movie):
    monkeypatch.setattr(preview, "_QUICK", 48 * 50)
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget)
    small = viewer.add_image(make_movie(2), name="small")
    assert widget.preview.box.isChecked()
    qtbot.waitUntil(lambda: "small (preview)" in viewer.layers)
    fit(widget)
    assert not widget.preview.box.isChecked()
    viewer.add_image(np.zeros((60, 50)), name="large")
    assert not widget.preview.box.isChecked()
    viewer.layers.selection.active = small  # it has a result
    assert not widget.preview.box.isChecked()
    viewer.add_image(make_movie(2), name="other")
    assert widget.preview.box.isChecked()
    box = widget.preview.box
    place = QPoint(8, box.rect().center().y())
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=place)
    viewer.add_image(make_movie(2), name="third")
    assert not widget.preview.box.isChecked()  # as the user has closed it
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again)
    assert not again.preview.box.isChecked()
