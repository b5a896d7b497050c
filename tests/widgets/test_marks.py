"""What is seen of an image through the marks on it, at any zoom."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hand import Hand
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

from napari_spotfit import Flag, SpotFits, StopCondition, localize, to_points_layer
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.appearance import (
    MARKS,
    PREVIEW,
    Look,
    choose_mark,
    is_marked,
    with_look,
)
from napari_spotfit.widgets.layers.points import (
    make_points_layer,
    points_arguments,
    update_points_layer,
)

GREY = 120
SIDE = 2048


def fits_at(places, *, stop=StopCondition.MIN_DELTA, sigma=1.3):
    """Return fits at places (y, x)."""
    count = len(places)
    stops = np.broadcast_to(np.asarray(stop, np.uint8), count).copy()
    columns = {
        "y": places[:, 0],
        "x": places[:, 1],
        "sigma": np.full(count, sigma, np.float32),
        "photons": np.full(count, 500, np.float32),
        "stop_condition": stops,
    }
    return SpotFits(columns)


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


@pytest.fixture
def image(viewer):
    """Return an even grey image, on which every mark is seen."""
    data = np.full((SIDE, SIDE), GREY, np.uint8)
    layer = viewer.add_image(data, name="field", contrast_limits=(0, 255))
    viewer.reset_view()
    return layer


def picture(viewer):
    """Return the canvas as it is drawn now."""
    for _ in range(5):
        QApplication.processEvents()
    return viewer.screenshot(flash=False)[..., :3].astype(int)


def changed(viewer, layer):
    """Return by how much each pixel of the canvas differs from the bare image's."""
    layer.visible = True
    marked = picture(viewer)
    layer.visible = False
    bare = picture(viewer)
    layer.visible = True
    return np.abs(marked - bare).max(-1), (bare == GREY).all(-1)


def zoom(viewer, factor):
    camera = getattr(viewer, "scene", viewer).camera
    viewer.reset_view()
    camera.center = (0, SIDE / 2, SIDE / 2)
    camera.zoom *= factor


def test_seventeen_thousand_marks_leave_the_field_in_view(viewer, image):
    places = np.random.default_rng(1).uniform(5, SIDE - 6, (17_000, 2))
    layer = viewer.add_layer(to_points_layer(fits_at(places), image))
    viewer.reset_view()
    difference, on_image = changed(viewer, layer)
    assert 0.02 < np.mean(difference[on_image] > 40) < 0.35


@pytest.mark.parametrize("factor", [1, 2, 4, 16, 64])
def test_a_good_fit_s_own_pixels_are_seen_at_any_zoom(viewer, image, factor):
    middle = SIDE / 2
    places = middle + np.array([(0.2, 0.4), (3.0, -14.3), (-14.7, 9.1)])
    layer = viewer.add_layer(to_points_layer(fits_at(places), image))
    zoom(viewer, factor)
    difference, _ = changed(viewer, layer)
    assert difference.max() > 60
    hand = Hand(viewer)
    seen = 0
    for place in places:
        point = hand.at(layer, place)
        column, row = int(point.x()), int(point.y())
        if 0 <= row < difference.shape[0] and 0 <= column < difference.shape[1]:
            seen += 1
            assert difference[row, column] < 40
    assert seen


def test_a_doubtful_fit_is_found_among_thousands(viewer, image):
    places = np.array([(600.0, 600.0), (1400.0, 1400.0)])
    stops = [StopCondition.MIN_DELTA, StopCondition.MAX_ITERATIONS]
    layer = viewer.add_layer(to_points_layer(fits_at(places, stop=stops), image))
    viewer.reset_view()
    difference, _ = changed(viewer, layer)
    areas = []
    for place in places:
        point = Hand(viewer).at(layer, place)
        row, column = int(point.y()), int(point.x())
        around = difference[row - 8 : row + 9, column - 8 : column + 9]
        areas.append(np.count_nonzero(around > 60))
    assert areas[1] > 2 * areas[0] > 0
    assert [str(symbol) for symbol in layer.symbol] == ["ring", "x"]


def crowd_of(count, side, *, blob=0):
    """Return fits at random places with distances, the first ones doubtful and close together."""
    rng = np.random.default_rng(count)
    places = rng.uniform(5, side - 6, (count, 2))
    places[:blob] = side / 2 + 3 * np.stack(np.divmod(np.arange(blob), 8), axis=1)
    apart = np.hypot(*(places[:, np.newaxis] - places).T)
    np.fill_diagonal(apart, np.inf)
    fits = fits_at(places)
    flags = np.where(np.arange(count) < blob, np.uint32(Flag.BLOB), np.uint32(0))
    nearest = np.where(apart.min(axis=0) < 13, apart.min(axis=0), np.nan)
    columns = {"neighbour_distance": nearest.astype(np.float32), "flags": flags}
    return fits.with_columns(fits.columns | columns)


@pytest.mark.parametrize(("side", "size"), [(200, 4.0), (300, 6.0), (1500, 9.1)])
def test_rings_leave_a_crowd_to_be_seen(viewer, image, side, size):
    layer = viewer.add_layer(to_points_layer(crowd_of(1000, side), image))
    assert np.median(layer.size) == pytest.approx(size, rel=0.2)
    assert is_marked(layer)
    zoom(viewer, 1)
    difference, _ = changed(viewer, layer)
    hand = Hand(viewer)
    low, high = (hand.at(layer, (at, at)) for at in (5, side - 6))
    part = difference[int(low.y()) : int(high.y()), int(low.x()) : int(high.x())]
    assert part.size == 0 or np.mean(part > 40) < 0.6


def test_the_marks_of_a_blob_are_small_whatever_its_share(viewer, image, tmp_path):
    layer = viewer.add_layer(to_points_layer(crowd_of(1000, 1500, blob=40), image))
    assert layer.size[0] < 6
    assert layer.size[-1] == pytest.approx(9.1)
    assert is_marked(layer)
    path = str(tmp_path / "a.spots.csv")
    layer.save(path)
    (opened,) = viewer.open(path, plugin="napari-spotfit")
    np.testing.assert_array_equal(opened.size, layer.size)
    choose_mark(opened, "dot")
    assert opened.size[0] == layer.size[0]


def test_a_preview_surrounds_the_result_that_lies_below(viewer, image):
    place = np.array([(SIDE / 2, SIDE / 2)])
    result = viewer.add_layer(to_points_layer(fits_at(place), image))
    arguments = with_look(points_arguments(fits_at(place)), Look(mark=PREVIEW))
    preview = make_points_layer(arguments, image, "preview")
    assert preview.size[0] > 1.3 * result.size[0]
    assert preview.size[0] / 2 < result.size[0]


@pytest.mark.parametrize("mark", MARKS)
def test_another_mark_stands_for_good_fits_only(viewer, image, mark):
    places = np.array([(600.0, 600.0), (1400.0, 1400.0)])
    stops = [StopCondition.MIN_DELTA, StopCondition.MAX_ITERATIONS]
    layer = viewer.add_layer(to_points_layer(fits_at(places, stop=stops), image))
    choose_mark(layer, mark)
    assert [str(symbol) for symbol in layer.symbol] == [MARKS[mark].symbol, "x"]
    assert layer.size[0] == pytest.approx(MARKS[mark].size * 1.3)
    assert is_marked(layer)
    with pytest.raises(ValueError, match=r"'ring', 'dot', 'cross' or 'halo'; got 'blob'"):
        choose_mark(layer, "blob")


def test_sizes_follow_the_fits_unless_the_user_has_set_them(viewer, make_movie):
    data = make_movie()
    image = viewer.add_image(data)
    layer = viewer.add_layer(to_points_layer(localize(data, sigma=1.3), image))
    choose_mark(layer, "dot")
    wide = points_arguments(fits_at(np.array([(5.0, 5.0), (9.0, 30.0)]), sigma=2.0))
    update_points_layer(layer, wide, image)
    np.testing.assert_allclose(layer.size, MARKS["dot"].size * 2)
    assert {str(symbol) for symbol in layer.symbol} == {"disc"}
    layer.size = 4.0
    update_points_layer(layer, points_arguments(localize(data, sigma=1.3)), image)
    assert not is_marked(layer)
    assert np.all(layer.size[:2] == 4)


@pytest.fixture
def fitted(viewer, make_movie, fit):
    """Return the widget and its layer of fitted spots."""
    viewer.add_image(make_movie(), name="movie")
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    fit(widget)
    return widget, viewer.layers["movie spots"]


def pick(box, text):
    """Choose an item with the keyboard."""
    box.setFocus()
    QTest.keyClick(box, Qt.Key.Key_Home)
    while box.currentText() != text:
        row = box.currentIndex()
        QTest.keyClick(box, Qt.Key.Key_Down)
        assert box.currentIndex() > row, f"there is no {text!r}"


def test_one_control_switches_ring_dot_cross_and_off(viewer, fitted, fit):
    widget, layer = fitted
    box = widget.result.marks
    assert [box.itemText(row) for row in range(box.count())] == [*MARKS, "off"]
    assert box.toolTip().startswith("<p>")
    pictures = {}
    for mark in (*MARKS, "off"):
        pick(box, mark)
        pictures[mark] = picture(viewer)
        assert layer.visible == (mark != "off")
    for one, other in itertools.combinations(pictures, 2):
        assert not np.array_equal(pictures[one], pictures[other])
    pick(box, "dot")
    assert layer.visible
    assert np.array_equal(picture(viewer), pictures["dot"])
    layer.name = "mine"
    fit(widget)
    assert {str(one) for one in viewer.layers["movie spots"].symbol} == {"disc"}
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again, name="Again")
    viewer.layers.remove("movie spots")
    fit(again)
    assert {str(one) for one in viewer.layers["movie spots"].symbol} == {"disc"}


def test_the_key_held_down_shows_the_image(viewer, fitted):
    _, layer = fitted
    other = viewer.add_points([[20, 20]], name="not fitted")
    off = viewer.add_layer(to_points_layer(fits_at(np.array([(3.0, 3.0)])), name="off"))
    off.visible = False
    canvas = viewer.window._qt_viewer.canvas.native
    canvas.setFocus()
    before = picture(viewer)
    for _ in range(2):
        QTest.keyPress(canvas, Qt.Key.Key_Period)
        assert not layer.visible
        assert other.visible
        assert not np.array_equal(picture(viewer), before)
        QTest.keyRelease(canvas, Qt.Key.Key_Period)
        assert layer.visible
        assert not off.visible
        assert np.array_equal(picture(viewer), before)


def test_the_key_is_free_again_once_the_widget_is_closed(viewer, fitted):
    widget, layer = fitted
    viewer.window.remove_dock_widget(widget)
    canvas = viewer.window._qt_viewer.canvas.native
    QTest.keyPress(canvas, Qt.Key.Key_Period)
    assert layer.visible
    QTest.keyRelease(canvas, Qt.Key.Key_Period)


def test_a_preview_after_a_fit_is_a_halo_above_the_result(viewer, fitted, qtbot):
    widget, layer = fitted
    with qtbot.waitSignal(widget.preview.drawn):
        widget.preview.box.click()
    preview = widget.preview.layer
    assert list(viewer.layers)[-1] is preview
    assert preview.size[0] > 1.3 * layer.size[0]
    assert preview.opacity < layer.opacity
    difference, _ = changed(viewer, preview)
    assert np.count_nonzero(difference > 40) > 100
    viewer.layers.selection.active = preview
    box = widget.result.marks
    assert [box.itemText(row) for row in range(box.count())] == [PREVIEW, "off"]
    layer_above = list(viewer.layers)
    viewer.layers.move(layer_above.index(layer), len(layer_above))
    with qtbot.waitSignal(widget.preview.drawn):
        widget.settings.changed.emit()
    assert list(viewer.layers)[-1] is preview


def test_a_mark_comes_back_from_a_file(viewer, fitted, tmp_path):
    widget, layer = fitted
    pick(widget.result.marks, "cross")
    viewer.layers.selection.active = layer
    path = str(tmp_path / "a.spots.csv")
    assert viewer.layers.save(path, selected=True)
    viewer.layers.remove(layer)
    (opened,) = viewer.open(path, plugin="napari-spotfit")
    assert {str(one) for one in opened.symbol} == {"cross"}
    np.testing.assert_array_equal(opened.size, layer.size)
    np.testing.assert_array_equal(opened.border_width, layer.border_width)
    assert opened.antialiasing == layer.antialiasing
    assert widget.result.marks.currentText() == "cross"
