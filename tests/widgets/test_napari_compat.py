"""What the widgets take for granted of napari, with each version of it: here it fails first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hand import CONTROL, SHIFT
from napari.components import ViewerModel
from napari.layers import Image, Labels, Points, Shapes
from napari.utils._proxies import PublicOnlyProxy
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QWidget

from napari_spotfit.widgets import napari_compat as compat

LAYERS = {
    compat.is_image: Image(np.zeros((4, 4))),
    compat.is_labels: Labels(np.zeros((4, 4), int)),
    compat.is_points: Points(np.zeros((1, 2))),
    compat.is_shapes: Shapes(),
}


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def test_layers_are_known_behind_a_proxy():
    for kind, layer in LAYERS.items():
        for one in (layer, PublicOnlyProxy(layer)):
            assert compat.itself(one) is layer
            assert [is_it(one) for is_it in LAYERS] == [is_it is kind for is_it in LAYERS]
    assert not compat.is_image(None)


def test_a_widget_of_the_menu_gets_a_proxy_of_the_viewer(viewer):
    """As long as it does, an event names another layer than the one that the widget knows."""
    image = viewer.add_image(np.zeros((4, 4)))
    proxy = PublicOnlyProxy(viewer)
    assert proxy.layers[0] is not image
    assert compat.itself(proxy) is viewer
    assert compat.itself(proxy.layers[0]) is image


def test_the_parts_of_a_window(viewer):
    window = compat.main_window(viewer)
    assert window is compat.main_window(PublicOnlyProxy(viewer))
    assert window.isVisible()
    assert compat.main_window(ViewerModel()) is None
    docked = QWidget()
    assert compat.canvas_beside(docked) is None
    viewer.window.add_dock_widget(docked)
    canvas = compat.canvas_beside(docked)
    assert canvas.window() is window
    assert canvas.width() > 100
    viewer.window.remove_dock_widget(docked)


def test_a_closed_viewer_has_no_window(make_napari_viewer):
    viewer = make_napari_viewer()
    assert compat.open_viewer() is viewer
    with ThreadPoolExecutor() as pool:
        assert pool.submit(compat.open_viewer).result() is None
    assert compat.main_window(viewer) is not None
    viewer.close()
    assert compat.main_window(viewer) is None


def test_camera(viewer):
    viewer.add_image(np.zeros((400, 300)))
    compat.camera_of(viewer).center = (0, 30, 40)
    compat.camera_of(viewer).zoom = 2.5
    for path in ("center", "zoom"):
        assert np.all(np.isfinite(getattr(compat.camera_of(viewer), path)))


def points() -> Points:
    """Return a layer whose faces follow numbers and whose borders follow words."""
    features = {"width": np.arange(5.0), "stop": np.array(list("ababa"))}
    return Points(
        np.arange(10.0).reshape(5, 2), features=features, face_color="width", border_color="stop"
    )


def test_what_colours_points():
    layer = points()
    assert compat.colored_by(layer, "face") == "width"
    assert compat.colored_by(layer, "border") == "stop"
    layer.face_color = "red"
    assert compat.colored_by(layer, "face") == ""
    compat.follow_no_feature(layer, "face", "border")
    assert compat.colored_by(layer, "border") == ""
    layer.features = {"other": layer.features["width"]}  # without a warning


def test_points_are_selected_and_say_so():
    layer, events = points(), []
    layer.selected_data.events.items_changed.connect(lambda added, removed: events.append(added))
    compat.select_points(layer, {1, 3})
    assert set(layer.selected_data) == {1, 3}
    assert set(events[-1]) == {1, 3}


@pytest.mark.parametrize(
    ("event", "change"),
    [
        ("data", lambda layer: setattr(layer, "data", layer.data + 1)),
        ("features", lambda layer: setattr(layer, "features", layer.features.copy())),
        ("face_color", lambda layer: setattr(layer, "face_color", "red")),
        ("border_color", lambda layer: setattr(layer, "border_color", "red")),
        ("symbol", lambda layer: setattr(layer, "symbol", "x")),
        ("border_width", lambda layer: setattr(layer, "border_width", 0.3)),
        ("set_data", lambda layer: setattr(layer, "size", 3)),
        ("metadata", lambda layer: setattr(layer, "metadata", {"a": 1})),
    ],
)
def test_events_come_and_can_be_left_out(event, change):
    layer, events = points(), []
    layer.events[event].connect(events.append)
    change(layer)
    assert events
    events.clear()
    with compat.quiet(layer, event):
        change(layer)
    assert not events


def test_many_changes_are_drawn_once(viewer):
    """And what is then drawn is what was set last."""
    layer, drawn = viewer.add_layer(points()), []
    for event in (layer.events.set_data, layer._face.events.colors, layer._border.events.colors):
        event.connect(lambda event: drawn.append(event.type))
    with compat.refreshed_once(PublicOnlyProxy(viewer).layers[0]):
        layer.face_color_mode = "direct"
        layer.data = np.vstack([layer.data, [[50.0, 60.0]]])
        layer.face_color = "red"
        layer.size, layer.symbol = 7, "x"
        assert not drawn
    assert drawn == ["set_data"]
    np.testing.assert_array_equal(layer.extent.data[1], [50, 60])
    np.testing.assert_array_equal(layer.face_color, [[1, 0, 0, 1]] * 6)
    drawn.clear()
    with compat.refreshed_once(layer, moved=False):
        layer.shown = [True] + 5 * [False]
    assert drawn == ["set_data"]
    layer.face_color = "width"
    assert "colors" in drawn


@pytest.mark.parametrize("count", [0, 2, 5, 7])
def test_points_are_set_with_one_event_each(count):
    """And with the same colours, features and defaults as by assignment of both."""
    layer, other, events = points(), points(), []
    data = np.arange(2.0 * count).reshape(count, 2)
    stops = pd.Categorical(list("babbaba")[:count], categories=["a", "b"])
    columns = {"width": np.arange(count) + 0.5, "stop": stops}
    features = pd.DataFrame(columns, index=np.arange(count) + 3)
    for event in (layer.events.data, layer.events.features):
        event.connect(lambda event: events.append((event.type, len(event.source.features))))
    compat.set_points(PublicOnlyProxy(layer), data, features)
    assert events == [("data", count), ("features", count)]
    other.data, other.features = data, features
    for one in (layer, other) if count else ():
        one.add([1.0, 2.0])
    np.testing.assert_array_equal(layer.data, other.data)
    np.testing.assert_array_equal(layer.face_color, other.face_color)
    pd.testing.assert_frame_equal(layer.features, other.features)
    pd.testing.assert_frame_equal(layer.feature_defaults, other.feature_defaults)


def test_new_data_do_not_delete():
    layer, events = points(), []
    layer.events.data.connect(lambda event: events.append((event.source, compat.deletes(event))))
    compat.set_points(layer, layer.data, layer.features)
    assert events == [(layer, "")]


def test_sliders_have_other_ranges_unless_points_stay_inside(viewer):
    viewer.add_image(np.zeros((3, 20, 20)))
    layer = viewer.add_points([[1.0, 1.0, 1.0]])
    ends = [one.stop for one in viewer.dims.range]
    for inside, frame in ((True, 7.0), (False, 8.0)):
        with compat.unlisted(PublicOnlyProxy(viewer), layer, inside=inside):
            layer.data = [[frame, 1.0, 1.0]]
        assert [one.stop for one in viewer.dims.range] == ([8.0, *ends[1:]], ends)[inside]


def test_deleting_has_an_event_before_and_after(viewer, hand):
    layer, events = viewer.add_points(np.arange(10.0).reshape(5, 2)), []
    layer.events.data.connect(
        lambda event: events.append((compat.deletes(event), len(event.source.data)))
    )
    viewer.layers.selection.active = layer
    layer.mode = "select"
    layer.selected_data = {0, 2}
    hand.key(Qt.Key.Key_Delete)
    assert [one for one in events if one[0]] == [("before", 5), ("after", 3)]
    events.clear()
    layer.add([1, 1])
    layer.data = layer.data + 1
    assert events
    assert not any(when for when, _ in events)


def test_hidden_points_are_found_or_not(viewer):
    """What the canvas draws is what the mouse finds."""
    layer = viewer.add_points([[5.0, 5.0]], size=4, shown=False)
    drawn = layer.get_value((5.0, 5.0)) is not None
    assert compat.draws_hidden_points() == drawn


def test_keys_of_the_viewer_are_taken_once_and_freed(viewer, hand):
    pressed = []
    viewer.bind_key("Control-Shift-Z", lambda viewer: pressed.append(1), overwrite=False)
    with pytest.raises(ValueError, match="already"):
        viewer.bind_key("Control-Shift-Z", print, overwrite=False)
    viewer.add_image(np.zeros((9, 9)))
    hand.key(Qt.Key.Key_Z, CONTROL | SHIFT)
    viewer.bind_key("Control-Shift-Z", None)
    hand.key(Qt.Key.Key_Z, CONTROL | SHIFT)
    assert pressed == [1]


def test_the_thumbnail_follows_when_it_is_asked_to():
    layer = Points([[1.0, 1.0], [8.0, 8.0]], size=2)
    with compat.refreshed_once(layer, thumbnail=False):
        before = layer.thumbnail.copy()
        layer.data = [[1.0, 8.0], [8.0, 8.0]]
    np.testing.assert_array_equal(layer.thumbnail, before)
    compat.draw_thumbnail(layer)
    assert not np.array_equal(layer.thumbnail, before)


def test_added_points_are_known_by_their_rows():
    layer, events = points(), []
    layer.events.data.connect(lambda event: events.append(compat.added_rows(event)))
    layer.add([[1, 1], [2, 2]])
    layer.data = layer.data[:-1]
    assert [rows for rows in events if rows] == [(-2, -1)]


def test_keys_of_a_layer_come_before_those_of_its_kind(viewer, hand):
    layer, pressed = viewer.add_points(np.arange(10.0).reshape(5, 2)), []
    layer.selected_data = {0, 2}
    for key in ("Delete", "Backspace"):
        layer.bind_key(key, lambda layer: pressed.append(1), overwrite=False)
    hand.key(Qt.Key.Key_Delete)
    hand.key(Qt.Key.Key_Backspace)
    assert (len(layer.data), pressed) == (5, [1, 1])
