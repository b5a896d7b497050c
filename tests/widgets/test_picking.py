"""Fitting spots with the mouse on the canvas of a real viewer."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from napari.utils.colormaps.standardize_color import transform_color
from qtpy.QtCore import QEvent, QPointF, Qt, QThreadPool
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import QApplication

from napari_spotfit import localize, to_points_layer
from napari_spotfit.settings import Settings
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.colors import STOP_COLORS
from napari_spotfit.widgets.layers.spot_selection import SpotSelection

NOT_DRAWN = {"score"}
SHIFT, NO_KEY = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.NoModifier
LEFT, NO_BUTTON = Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer(show=True)


class Hand:
    """Moves the mouse over an image and presses keys on the canvas."""

    def __init__(self, viewer, qtbot):
        self.viewer, self.qtbot = viewer, qtbot

    @property
    def native(self):
        return self.viewer.window._qt_viewer.canvas.native

    def at(self, image, place):
        """Return where on the canvas a place (y, x) of an image's shown frame is."""
        position = np.array(image.world_to_data(self.viewer.dims.point), float)
        position[-2:] = place
        world = np.array(image.data_to_world(position))[-2:]
        transform = self.viewer.window._qt_viewer.canvas.view.scene.transform
        x, y = transform.map(world[::-1])[:2]
        return QPointF(float(x), float(y))

    def send(self, kind, point, button, buttons, keys):
        event = QMouseEvent(kind, point, self.native.mapToGlobal(point), button, buttons, keys)
        QApplication.sendEvent(self.native, event)

    def press(self, point, keys=NO_KEY, button=LEFT):
        QApplication.processEvents()
        self.send(QEvent.Type.MouseMove, point, NO_BUTTON, NO_BUTTON, keys)
        self.send(QEvent.Type.MouseButtonPress, point, button, button, keys)

    def move(self, point, keys=NO_KEY):
        self.send(QEvent.Type.MouseMove, point, NO_BUTTON, LEFT, keys)

    def release(self, point, keys=NO_KEY, button=LEFT):
        self.send(QEvent.Type.MouseButtonRelease, point, button, NO_BUTTON, keys)

    def click(self, image, place, keys=NO_KEY, button=LEFT):
        point = self.at(image, place)
        self.press(point, keys, button)
        self.release(point, keys, button)

    def double_click(self, image, place, keys=NO_KEY):
        self.click(image, place, keys)
        point = self.at(image, place)
        self.send(QEvent.Type.MouseButtonDblClick, point, LEFT, LEFT, keys)
        self.release(point, keys)

    def key(self, key, keys=NO_KEY):
        self.qtbot.keyClick(self.native, key, keys)


@pytest.fixture
def hand(viewer, qtbot):
    return Hand(viewer, qtbot)


@pytest.fixture
def settle(qtbot, widget):
    """Wait until every press is fitted and shown."""

    def wait(of=widget):
        picker = of.picking.picker
        qtbot.waitUntil(lambda: not picker._presses and no_worker(), timeout=120_000)

    return wait


def no_worker():
    return QThreadPool.globalInstance().activeThreadCount() == 0


def camera(viewer):
    """Return where the camera is, in napari's model and on the canvas."""
    QApplication.processEvents()
    camera = getattr(viewer, "scene", viewer).camera
    drawn = viewer.window._qt_viewer.canvas.view.camera.rect
    return (*camera.center, camera.zoom, *drawn.pos, *drawn.size)


def picked(viewer, name="movie (picked)"):
    return viewer.layers[name]


def assert_rows_of(layer, fits, rows):
    """Check that a layer's points are some rows of fits, to the last bit."""
    np.testing.assert_array_equal(layer.data, fits.points()[rows])
    table = fits.to_dataframe()
    shared = [name for name in table if name not in NOT_DRAWN]
    assert set(shared) | {"roi_size", "offset"} == set(layer.features)
    for name in shared:
        expected = table[name].iloc[rows].to_numpy()
        if name == "stop_condition":
            assert list(layer.features[name]) == list(expected)
        else:
            np.testing.assert_array_equal(layer.features[name], expected.astype(float))


def row_near(fits, place, frame=None):
    """Return the row of the fits that is nearest to a place."""
    distance = np.hypot(fits.y - place[0], fits.x - place[1])
    if frame is not None:
        distance[fits.frame != frame] = np.inf
    return int(np.argmin(distance))


def test_a_click_fits_what_the_batch_run_fits(viewer, widget, hand, settle, make_movie, spots):
    movie = make_movie(3)
    image = viewer.add_image(movie, name="movie")
    controls = widget.settings.controls
    controls["roi_size"].put(11)
    controls["offset"].put(40.0)
    controls["gain"].put(2.0)
    viewer.dims.set_current_step(0, 1)
    widget.picking.click.click()
    for place in spots[:2]:
        hand.click(image, np.add(place, (1.8, -1.2)))
        settle()
    fits = localize(movie, settings=widget.settings.settings())
    layer = picked(viewer)
    assert_rows_of(layer, fits, [row_near(fits, place, 1) for place in spots[:2]])
    assert set(layer.features["roi_size"]) == {11}
    assert set(layer.features["offset"]) == {40}
    assert layer.metadata["settings"] == widget.settings.settings().to_dict()
    assert layer.metadata["image"] == image.unique_id
    assert sum(layer.metadata["stop_counts"].values()) == 2
    assert set(layer.selected_data) == {1}
    assert viewer.layers.selection.active is image
    text = widget.status.text()
    assert f"y {fits.y[row_near(fits, spots[1], 1)]:.2f}" in text
    assert layer.features["stop_condition"].iloc[1] in text
    assert widget.result.layer is layer


def test_real_pixels_of_a_crowded_image(viewer, widget, hand, settle, hybiss, qtbot):
    image = viewer.add_image(hybiss, name="movie")
    fits = localize(hybiss)
    shape = np.array(hybiss.shape[-2:])
    places = np.column_stack([fits.y, fits.x])
    gaps = np.hypot(*(places[:, None] - places).T) + 99 * np.eye(len(fits))
    alone = gaps.min(axis=0) > 6
    # Among them are spots whose ROI the image's edge shifts.
    at_edge = np.any((places < 3) | (places > shape - 4), axis=1)
    rows = [*np.flatnonzero(alone & at_edge)[:2], *np.flatnonzero(alone & ~at_edge)[:4]]
    assert len(rows) == 6
    for row in rows:
        hand.click(image, places[row] + (0.8, -0.8), SHIFT)
        settle()
    assert_rows_of(picked(viewer), fits, rows)


def test_shift_click_picks_and_a_plain_one_does_not(
    viewer, widget, hand, settle, make_movie, spots
):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0])
    hand.click(image, spots[0], Qt.KeyboardModifier.ControlModifier)
    hand.click(image, spots[0], SHIFT, Qt.MouseButton.RightButton)
    settle()
    assert list(viewer.layers) == [image]
    hand.click(image, spots[0], SHIFT)
    settle()
    assert len(picked(viewer).data) == 1


def test_without_snap_the_clicked_pixel_counts(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    corners = {}
    for snap in (True, False):
        widget.picking.snap.setChecked(snap)
        hand.click(image, spots[0] + (2, 1), SHIFT)
        settle()
        corners[snap] = picked(viewer).features[["roi_y", "roi_x"]].to_numpy().tolist()
    center = np.rint(spots[0])
    assert corners[True] == [(center - 4).tolist()]
    assert corners[False] == [(np.rint(spots[0] + (2, 1)) - 4).tolist()]


def test_a_second_click_fits_the_spot_again(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(2), name="movie")
    for number in (0, 1, 0):
        hand.click(image, spots[number], SHIFT)
        settle()
    widget.settings.controls["roi_size"].put(7)
    widget.settings.controls["errors"].put(False)
    hand.click(image, spots[1], SHIFT)
    settle()
    layer = picked(viewer)
    assert len(layer.data) == 2
    np.testing.assert_allclose(layer.data[:, -2:], spots[:2], atol=0.2)
    assert layer.features["roi_size"].tolist() == [9, 7]
    assert np.isnan(layer.features["sigma_stderr"]).tolist() == [False, True]
    assert set(layer.selected_data) == {1}
    viewer.dims.set_current_step(0, 1)
    hand.click(image, spots[1], SHIFT)
    settle()
    assert layer.data[:, 0].tolist() == [0, 0, 1]


def test_colors_are_those_of_a_fit_of_the_image(viewer, widget, hand, settle, make_movie, spots):
    from napari.utils.colormaps import ensure_colormap

    image = viewer.add_image(make_movie(), name="movie")
    for place in spots:
        hand.click(image, place, SHIFT)
        settle()
    layer = picked(viewer)
    for face in ("sigma", "stop_condition", "photons"):
        widget.result.face.setCurrentIndex(widget.result.face.findData(face))
        widget.result.face.activated.emit(widget.result.face.currentIndex())
        hand.click(image, spots[0], SHIFT)
        settle()
        values = layer.features[face].to_numpy()
        if face == "stop_condition":
            np.testing.assert_allclose(layer.face_color, layer.border_color, atol=1e-6)
            continue
        low, high = layer.face_contrast_limits
        assert values.min() <= low < high <= values.max()
        expected = ensure_colormap("viridis").map(np.clip((values - low) / (high - low), 0, 1))
        np.testing.assert_allclose(layer.face_color, expected, atol=0.01)
    borders = [STOP_COLORS[name] for name in layer.features["stop_condition"]]
    np.testing.assert_allclose(layer.border_color, transform_color(borders), atol=1e-6)


def test_a_drag_is_followed_and_the_camera_stays(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[2], SHIFT)
    settle()
    widget.picking.click.click()
    before = camera(viewer)
    path = [spots[0], (spots[0] + spots[2]) / 2, spots[2], (spots[2] + spots[3]) / 2, spots[3]]
    hand.press(hand.at(image, path[0]))
    layer = picked(viewer)
    for place in path[1:]:
        hand.move(hand.at(image, place))
        hand.qtbot.waitUntil(lambda: widget.picking.picker._fitting is None)
    assert len(layer.data) == 2
    hand.release(hand.at(image, path[-1]))
    settle()
    assert camera(viewer) == before
    np.testing.assert_allclose(layer.data, [spots[2], spots[3]], atol=0.2)
    assert set(layer.selected_data) == {1}
    # With the switch off the same drag pans, as always.
    widget.picking.click.click()
    hand.press(hand.at(image, path[0]))
    points = [hand.at(image, place) for place in path]
    for point in points[1:]:
        hand.move(point)
    hand.release(points[-1])
    hand.qtbot.waitUntil(lambda: camera(viewer) != before)
    assert len(layer.data) == 2


def test_a_frame_is_read_once_per_press_and_the_last_place_is_fitted(
    viewer, widget, hand, settle, make_movie, spots
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
    settle()
    QApplication.processEvents()
    reads.clear()
    go.clear()
    hand.press(hand.at(image, spots[0]), SHIFT)
    for place in spots:
        hand.move(hand.at(image, place), SHIFT)
    hand.release(hand.at(image, spots[3]), SHIFT)
    # Another click while the frame is awaited is not lost.
    hand.click(image, spots[1], SHIFT)
    # Meanwhile the viewer answers, and says what may take so long.
    hand.qtbot.waitUntil(lambda: "compiled" in widget.status.text())
    go.set()
    settle()
    assert reads == [2, 2]
    np.testing.assert_allclose(picked(viewer).data[:, 1:], spots[[3, 1]], atol=0.2)


def test_a_double_click_is_two_picks_and_no_zoom(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    # The first pick shows the legend, for which the canvas may have to make room.
    hand.click(image, spots[1], SHIFT)
    settle()
    before = camera(viewer)
    hand.double_click(image, spots[0], SHIFT)
    settle()
    assert camera(viewer) == before
    assert len(picked(viewer).data) == 2
    hand.double_click(image, spots[0])
    assert camera(viewer) != before


def test_delete_and_undo(viewer, widget, hand, settle, press, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    assert not widget.picking.undo.isEnabled()
    for place in spots[:3]:
        hand.click(image, place, SHIFT)
        settle()
    layer = picked(viewer)
    full, table = layer.data.copy(), layer.features.copy()
    layer.selected_data = {1}
    hand.key(Qt.Key.Key_Delete)
    np.testing.assert_array_equal(layer.data, full[[0, 2]])
    assert sum(layer.metadata["stop_counts"].values()) == 2
    assert sum(int(label.text()) for label in widget.result.legend.counts.values()) == 2
    hand.key(Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    np.testing.assert_array_equal(layer.data, full)
    assert layer.features.astype(object).equals(table.astype(object))
    assert set(layer.selected_data) == {1}
    # All of them, by napari's own key in the layer itself.
    viewer.layers.selection.active = layer
    layer.mode = "select"
    layer.selected_data = {0, 1, 2}
    hand.key(Qt.Key.Key_Backspace)
    assert len(layer.data) == 0
    hand.key(Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    np.testing.assert_array_equal(layer.data, full)
    # Spots that are moved go back, too.
    hand.press(hand.at(image, full[1]))

    def moved():
        hand.move(hand.at(image, full[1] + 6))
        return not np.allclose(layer.data, full, atol=2)

    hand.qtbot.waitUntil(moved)
    hand.release(hand.at(image, full[1] + 6))
    hand.key(Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    np.testing.assert_array_equal(layer.data, full)
    layer.mode = "pan_zoom"
    viewer.layers.selection.active = image
    # Undo goes back to the very beginning.
    for left in (2, 1):
        press(widget.picking.undo)
        np.testing.assert_array_equal(layer.data, full[:left])
    press(widget.picking.undo)
    assert list(viewer.layers) == [image]
    assert not widget.picking.undo.isEnabled()
    hand.key(Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    hand.key(Qt.Key.Key_Delete)
    assert list(viewer.layers) == [image]


def test_undo_of_a_refit_and_of_a_drag(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    first = picked(viewer).features.copy()
    widget.settings.controls["roi_size"].put(7)
    hand.press(hand.at(image, spots[1]), SHIFT)
    for place in (spots[2], spots[0]):
        hand.move(hand.at(image, place), SHIFT)
        hand.qtbot.waitUntil(lambda: widget.picking.picker._fitting is None)
    hand.release(hand.at(image, spots[0]), SHIFT)
    settle()
    assert picked(viewer).features["roi_size"].tolist() == [7]
    widget.picking.undo.click()
    assert picked(viewer).features.astype(object).equals(first.astype(object))
    assert picked(viewer).metadata["settings"]["roi_size"] == 9


def test_a_pick_after_all_were_deleted(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    hand.key(Qt.Key.Key_Delete)
    layer = picked(viewer)
    assert len(layer.data) == 0
    hand.click(image, spots[1], SHIFT)
    settle()
    assert picked(viewer) is layer
    np.testing.assert_allclose(layer.data, spots[1:2], atol=0.2)
    assert layer.face_color_mode == "colormap"
    assert layer.face_color[0, 3] == 1
    np.testing.assert_allclose(
        layer.border_color, transform_color([STOP_COLORS[layer.features["stop_condition"].iloc[0]]])
    )
    for _ in range(2):
        widget.picking.undo.click()
    np.testing.assert_allclose(layer.data, spots[:1], atol=0.2)
    assert np.isfinite(layer.features["sigma"]).all()


def test_whose_layer_it_is(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    layer = picked(viewer)
    layer.name, layer.opacity, layer.current_size = "mine", 0.5, 5
    image.scale = (0.5, 0.5)
    viewer.reset_view()
    hand.click(image, spots[1], SHIFT)
    settle()
    assert len(viewer.layers) == 2
    assert len(layer.data) == 2
    assert layer.opacity == 0.5
    assert layer.scale.tolist() == [0.5, 0.5]
    assert np.all(layer.size == 5)
    viewer.layers.remove(layer)
    assert not widget.picking.undo.isEnabled()
    hand.click(image, spots[1], SHIFT)
    settle()
    assert len(picked(viewer).data) == 1
    assert len(layer.data) == 2


@pytest.mark.parametrize("kind", ["dask", "multiscale", "transformed", "rows and columns swapped"])
def test_any_image(viewer, widget, hand, settle, make_movie, spots, kind):
    movie = make_movie(2, 3)
    more = {"contrast_limits": (90, 600), "name": "movie"}
    if kind == "dask":
        dask_array = pytest.importorskip("dask.array")
        image = viewer.add_image(dask_array.from_array(movie, chunks=(1, 1, 48, 50)), **more)
    elif kind == "multiscale":
        image = viewer.add_image([movie, movie[..., ::2, ::2]], multiscale=True, **more)
    else:
        image = viewer.add_image(movie, scale=(3, 2, 0.1, 0.2), translate=(1, -4, 5, -3),
                                 rotate=30, units=("s", "um", "um", "um"), **more)  # fmt: skip
    viewer.dims.set_current_step(0, 1)
    viewer.dims.set_current_step(1, 2)
    if kind == "rows and columns swapped":
        viewer.dims.order = (0, 1, 3, 2)
    viewer.reset_view()
    if kind == "rows and columns swapped":
        hand.at = lambda image, place, at=hand.at: swapped(viewer, image, place)
    hand.click(image, spots[3] + (1, 1), SHIFT)
    settle()
    layer = picked(viewer)
    assert layer.data[0, :2].tolist() == [1, 2]
    np.testing.assert_allclose(layer.data[0, 2:], spots[3], atol=0.1)
    assert layer.features[["axis_0", "axis_1", "frame"]].to_numpy().tolist() == [[1, 2, 2]]
    np.testing.assert_allclose(layer.data_to_world(layer.data[0]),
                               image.data_to_world(layer.data[0]))  # fmt: skip
    assert layer.units == image.units


def swapped(viewer, image, place):
    """Return where a place is on the canvas while rows run to the right."""
    position = np.array(image.world_to_data(viewer.dims.point), float)
    position[-2:] = place
    world = np.array(image.data_to_world(position))[-2:]
    x, y = viewer.window._qt_viewer.canvas.view.scene.transform.map(world)[:2]
    return QPointF(float(x), float(y))


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
    widget.settings.controls["sigma_min"].put(3)
    widget.settings.controls["sigma_max"].put(2)
    hand.click(image, spots[0])
    assert "sigma_min must be below sigma_max" in widget.status.text()
    settle()
    assert len(viewer.layers) == 2


def test_no_image_and_a_colour_image(viewer, widget, hand, settle):
    photo = viewer.add_image(np.zeros((40, 40, 3), np.uint8), rgb=True, name="photo")
    hand.click(photo, (20, 20), SHIFT)
    assert "RGB" in widget.status.text()
    viewer.layers.clear()
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
    assert "INVALID" in widget.status.text()
    assert "bad pixels" in widget.status.text()
    assert len(picked(viewer).data) == 1
    widget.picking.undo.click()
    assert list(viewer.layers) == [image]


def test_an_image_smaller_than_the_roi(viewer, widget, hand, settle):
    image = viewer.add_image(np.random.default_rng(0).normal(size=(6, 20)), name="strip")
    hand.click(image, (3, 10), SHIFT)
    settle()
    assert "ROI" in widget.status.text()
    assert list(viewer.layers) == [image]


@pytest.mark.parametrize("end", ["image removed", "widget closed"])
def test_what_ends_a_pick_leaves_nothing(viewer, widget, hand, settle, make_movie, end):
    image = viewer.add_image(make_movie(), name="slow")
    hand.press(hand.at(image, (10, 12)), SHIFT)
    if end == "image removed":
        viewer.layers.clear()
    else:
        viewer.window.remove_dock_widget(widget)
    hand.release(QPointF(50, 50), SHIFT)
    settle()
    assert [layer.name for layer in viewer.layers] == ([] if end == "image removed" else ["slow"])


def test_a_closed_widget_leaves_mouse_and_keys_alone(viewer, hand, qtbot, make_movie, spots):
    lists = viewer.mouse_drag_callbacks, viewer.mouse_double_click_callbacks
    before = [list(callbacks) for callbacks in lists], dict(viewer.keymap)
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    image = viewer.add_image(make_movie(), name="movie")
    widget.picking.click.click()
    hand.click(image, spots[0])
    qtbot.waitUntil(lambda: "movie (picked)" in viewer.layers and no_worker(), timeout=120_000)
    viewer.window.remove_dock_widget(widget)
    assert ([list(callbacks) for callbacks in lists], dict(viewer.keymap)) == before
    gone = weakref.ref(widget)
    del widget

    def freed():
        gc.collect()
        return gone() is None

    qtbot.waitUntil(freed)
    hand.click(image, spots[1], SHIFT)
    layer = picked(viewer)
    layer.selected_data = {0}
    layer.remove_selected()
    viewer.layers.clear()


def test_a_widget_that_is_docked_again_goes_on(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0], SHIFT)
    settle()
    viewer.window.remove_dock_widget(widget)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    assert not widget.picking.undo.isEnabled()
    hand.click(image, spots[1], SHIFT)
    settle()
    assert len(picked(viewer).data) == 2
    widget.picking.undo.click()
    assert len(picked(viewer).data) == 1


def test_keys_that_are_taken_stay_so(viewer, make_movie, qtbot):
    pressed = []
    viewer.bind_key("Control-Z", pressed.append)
    first, second = FitSpots(viewer), FitSpots(viewer)
    for widget in (first, second):
        qtbot.addWidget(widget)
        widget.unbind()
    assert list(viewer.keymap.values()) == [pressed.append]


def test_two_viewers(make_napari_viewer, qtbot, make_movie, spots):
    found = []
    for number in range(2):
        viewer = make_napari_viewer(show=True)
        widget = FitSpots(viewer)
        viewer.window.add_dock_widget(widget, name="Fit spots")
        found.append((viewer, widget, viewer.add_image(make_movie(number + 1), name="movie")))
    (first, widget, image), (second, *_) = found
    Hand(first, qtbot).click(image, spots[0], SHIFT)
    qtbot.waitUntil(lambda: len(first.layers) == 2 and no_worker(), timeout=120_000)
    assert len(second.layers) == 1
    for viewer, widget, _ in found:
        viewer.window.remove_dock_widget(widget)


def test_snap_is_remembered_and_the_switch_is_not(viewer, widget, qtbot):
    widget.picking.snap.click()
    widget.picking.click.click()
    again = FitSpots(viewer)
    qtbot.addWidget(again)
    assert not again.picking.snap.isChecked()
    assert not again.picking.click.isChecked()
    assert again.settings.settings() == Settings()
    for control in (again.picking.click, again.picking.snap, again.picking.undo):
        assert control.toolTip().startswith("<p>")
        assert control.accessibleName()


def test_those_who_follow_the_selection_are_told(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    other = viewer.add_layer(to_points_layer(localize(image.data), image, name="all"))
    viewer.layers.selection.active = image
    selection = SpotSelection(viewer, widget)
    selection.bind()
    try:
        hand.click(image, spots[0], SHIFT)
        settle()
        assert (selection.layer, selection.row) == (picked(viewer), 0)
        other.selected_data = {2}
        assert (selection.layer, selection.row) == (other, 2)
        hand.click(image, spots[0], SHIFT)
        settle()
        assert (selection.layer, selection.row) == (picked(viewer), 0)
    finally:
        selection.unbind()
