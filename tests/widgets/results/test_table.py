"""The table shows the features, sorts them, and selects with the viewer."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from hand import CONTROL
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QStyleOptionViewItem
from spot_table import add_spots, click_header, click_row, dock, selected_texts, texts, titles

from napari_spotfit import Profile, StopCondition, fit_spots, simulate_spots, to_points_layer
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.results.spot_fits import SpotFits
from napari_spotfit.widgets.result_pages import shown_spots


def test_the_table_shows_the_features(spots, layer):
    features = layer.features
    assert titles(spots)[:5] == ["frame", "y [px]", "x [px]", "sigma [px]", "photons [counts]"]
    assert set(spots.spots.columns) == set(features)
    assert texts(spots, "frame") == [f"{frame:.0f}" for frame in features["frame"]]
    stops = list(features["stop_condition"])
    assert texts(spots, "stop_condition") == [StopCondition[name].words for name in stops]
    model, column = spots.table.model(), titles(spots).index("stop_condition")
    tips = [model.index(r, column).data(Qt.ItemDataRole.ToolTipRole) for r in range(len(stops))]
    assert tips == stops
    np.testing.assert_allclose(
        [float(text) for text in texts(spots, "y [px]")], features["y"], atol=5.1e-4
    )
    shown = [np.nan if text == "–" else float(text) for text in texts(spots, "sigma_stderr [px]")]
    np.testing.assert_allclose(shown, features["sigma_stderr"], atol=1e-4)
    assert spots.count.text() == "60 of 60 shown"


def test_parameters_of_an_own_model_have_their_meaning_and_place(viewer):
    moffat = Profile.from_expression(
        "(1 + ((x - x0)**2 + (y - y0)**2) / w**2)**-b", start={"w": "sigma", "b": 2}, name="Moffat"
    )
    images, _ = simulate_spots(3, 9, seed=1)
    layer = to_points_layer(fit_spots(images, model=moffat), viewer.add_image(images[0]))
    viewer.add_layer(layer)
    spots = dock(viewer)
    found = titles(spots)
    header = [name.split(" ")[0] for name in found]
    assert header.index("w") < header.index("b") < header.index("photons")
    tip = spots.table.model().headerData(
        header.index("b"), Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole
    )
    assert "Parameter b of (1" in tip


def test_sorting_by_a_click(spots, layer, qtbot):
    sigma = layer.features["sigma"].to_numpy()
    rows = spots.table.spots_model
    click_header(qtbot, spots, "sigma [px]")
    np.testing.assert_array_equal(rows.rows, np.argsort(sigma, kind="stable"))
    click_header(qtbot, spots, "sigma [px]")
    np.testing.assert_array_equal(rows.rows, np.argsort(-sigma, kind="stable"))
    click_header(qtbot, spots, "stop_condition")
    codes = layer.features["stop_condition"].cat.codes.to_numpy()
    np.testing.assert_array_equal(rows.rows, np.argsort(codes, kind="stable"))
    click_header(qtbot, spots, "sigma_stderr [px]")
    click_header(qtbot, spots, "sigma_stderr [px]")
    missing = np.isnan(layer.features["sigma_stderr"].to_numpy()[rows.rows])
    assert missing.any()
    assert np.all(np.diff(missing.astype(int)) >= 0), "NaN comes last in either direction"


def test_rows_select_points(spots, layer, qtbot):
    click_header(qtbot, spots, "photons [counts]")
    order = np.argsort(layer.features["photons"].to_numpy(), kind="stable")
    click_row(qtbot, spots, 2)
    assert set(layer.selected_data) == {order[2]}
    click_row(qtbot, spots, 4, CONTROL)
    assert set(layer.selected_data) == {order[2], order[4]}
    click_row(qtbot, spots, 2, CONTROL)
    assert set(layer.selected_data) == {order[4]}
    qtbot.keyClick(spots.table, Qt.Key.Key_Down)
    assert set(layer.selected_data) == {order[3]}
    qtbot.keyClick(spots.table, Qt.Key.Key_A, CONTROL)
    assert set(layer.selected_data) == set(range(60))


def test_points_select_rows(spots, layer, qtbot):
    click_header(qtbot, spots, "photons [counts]")
    order = np.argsort(layer.features["photons"].to_numpy(), kind="stable").tolist()
    layer.selected_data = {7, 30}
    assert selected_texts(spots) == sorted([order.index(7), order.index(30)])
    layer.selected_data.add(31)
    assert selected_texts(spots) == sorted(order.index(spot) for spot in (7, 30, 31))
    click_header(qtbot, spots, "photons [counts]")
    assert selected_texts(spots) == sorted(59 - order.index(spot) for spot in (7, 30, 31))
    assert set(layer.selected_data) == {7, 30, 31}, "sorting selects nothing"
    layer.selected_data.clear()
    assert selected_texts(spots) == []


def test_more_than_the_viewer_can_mark_is_not_selected(viewer, qtbot, monkeypatch):
    monkeypatch.setattr(shown_spots, "MOST_SELECTED", 20)
    layer = add_spots(viewer)
    spots = dock(viewer)
    click_row(qtbot, spots, 3)
    qtbot.keyClick(spots.table, Qt.Key.Key_A, CONTROL)
    assert set(layer.selected_data) == {3}
    assert selected_texts(spots) == [3]
    assert "spots can be selected at once" in spots.status.text()


@pytest.mark.parametrize("ndisplay", [2, 3])
def test_double_click_shows_the_spot_and_its_frame(viewer, qtbot, ndisplay):
    layer = add_spots(viewer, scale=(2, 0.1, 0.2), translate=(3, 5, -4), rotate=20)
    spots = dock(viewer)
    viewer.dims.ndisplay = ndisplay
    camera = getattr(viewer, "scene", viewer).camera
    camera.zoom *= 20  # what is far from the middle is out of sight
    row = 40
    assert layer.data[row, 0] != viewer.dims.current_step[0]
    click_row(qtbot, spots, row)
    click_row(qtbot, spots, row, click="mouseDClick")
    world = np.asarray(layer.data_to_world(layer.data[row]))
    np.testing.assert_allclose(camera.center[-ndisplay:], world[-ndisplay:])
    if ndisplay == 2:
        assert abs(layer.world_to_data(viewer.dims.point)[0] - layer.data[row, 0]) <= 1
    other = 10
    spots.table.setCurrentIndex(spots.table.model().index(other, 0))
    qtbot.keyClick(spots.table, Qt.Key.Key_Return)
    world = np.asarray(layer.data_to_world(layer.data[other]))
    np.testing.assert_allclose(camera.center[-ndisplay:], world[-ndisplay:])


def test_the_slider_goes_to_the_frame_in_4d(viewer, qtbot):
    rng = np.random.default_rng(3)
    columns = {
        "axis_0": np.array([0, 1, 2]),
        "frame": np.array([3, 0, 1]),
        "y": rng.uniform(3, 20, 3),
        "x": rng.uniform(3, 20, 3),
        "sigma": np.ones(3, np.float32),
        "stop_condition": np.full(3, 2, np.uint8),
    }
    image = viewer.add_image(np.zeros((3, 4, 24, 24), np.uint8), scale=(5, 2, 1, 1))
    layer = viewer.add_layer(to_points_layer(SpotFits(columns, ("axis_0", "frame")), image))
    spots = dock(viewer)
    assert titles(spots)[:2] == ["axis_0", "frame"]
    for row in range(3):
        click_row(qtbot, spots, row)
        click_row(qtbot, spots, row, click="mouseDClick")
        assert viewer.dims.current_step[:2] == tuple(layer.data[row, :2].astype(int))


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (("t", "z"), ["t", "plane"]), (("position", "time"), ["position", "frame"]),
        (("0", "depth"), ["axis_0", "plane"]), (("sigma", "x y"), ["axis_0", "x y"]),
    ],
)  # fmt: skip
def test_axes_are_called_by_their_names(viewer, qtbot, tmp_path, labels, shown):
    columns = {
        "axis_0": np.array([0, 1, 2]), "frame": np.array([3, 0, 1]), "y": np.arange(3.0),
        "x": np.arange(3.0), "sigma": np.ones(3, np.float32),
        "stop_condition": np.full(3, 2, np.uint8),
    }  # fmt: skip
    image = viewer.add_image(np.zeros((3, 4, 24, 24), np.uint8), axis_labels=(*labels, "y", "x"))
    layer = viewer.add_layer(to_points_layer(SpotFits(columns, ("axis_0", "frame")), image))
    spots = dock(viewer)
    assert titles(spots)[:2] == shown
    spots.tabs.setCurrentWidget(spots.scatter)
    assert [spots.scatter.across.itemText(row) for row in range(2)] == shown
    spots.spots.set_filters(Filters({"frame": (1.0, None)}))
    assert spots.spots.filters.words(spots.spots.units) == [f"{shown[1]} ≥ 1"]
    with qtbot.waitSignal(spots.export.finished):
        spots.export.save_to(tmp_path / "a.spots.csv", everything=True)
    (again,) = viewer.open(str(tmp_path / "a.spots.csv"), plugin="napari-spotfit")
    assert list(again.features) == list(layer.features)


def test_the_longest_stop_condition_fits_its_column(shown_viewer):
    add_spots(shown_viewer)
    spots = dock(shown_viewer)
    place = titles(spots).index("stop_condition")
    table = spots.table
    model = table.model()
    longest = StopCondition.NO_DECREASE.words
    assert longest in {model.index(row, place).data() for row in range(60)}
    needed = max(
        table.itemDelegate().sizeHint(option(table), model.index(row, place)).width()
        for row in range(60)
    )
    assert table.columnWidth(place) >= needed


def option(table):
    """Return how the table draws its cells."""
    view = QStyleOptionViewItem()
    table.initViewItemOption(view)
    return view


def test_deleted_points_vanish(spots, layer, qtbot):
    click_row(qtbot, spots, 0)
    click_row(qtbot, spots, 1, CONTROL)
    y = layer.features["y"].to_numpy()
    layer.remove_selected()
    settle()
    assert spots.count.text() == "58 of 58 shown"
    np.testing.assert_allclose([float(text) for text in texts(spots, "y [px]")], y[2:], atol=1e-3)
    layer.data = np.zeros((0, 3))
    settle()
    assert spots.table.model().rowCount() == 0
    spots.tabs.setCurrentWidget(spots.scatter)
    spots.tabs.setCurrentWidget(spots.subpixel)


def test_what_somebody_else_hides_is_not_listed(spots, layer):
    hidden = np.arange(60) % 3 == 0
    layer.shown = ~hidden
    assert spots.count.text() == "40 of 60 shown"
    np.testing.assert_array_equal(spots.table.spots_model.rows, np.flatnonzero(~hidden))
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    np.testing.assert_array_equal(layer.shown, layer.features["sigma"] >= 1.0)
