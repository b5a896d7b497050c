"""The widget "Spots" in a real viewer, used with mouse and keys; the truth is a known table."""

from __future__ import annotations

import gc
import json
import weakref

import numpy as np
import pandas as pd
import pytest
from qtpy.QtCore import QDeadlineTimer, QPoint, QPointF, Qt, QThreadPool
from qtpy.QtWidgets import QApplication, QStyleOptionViewItem

from napari_spotfit import StopCondition, to_points_layer
from napari_spotfit.results import SpotFits
from napari_spotfit.widgets.layers.points import points_arguments, update_points_layer
from napari_spotfit.widgets.spots import Spots
from napari_spotfit.widgets.table import csv_file, shown_spots
from napari_spotfit.widgets.table.filters import Filters
from napari_spotfit.widgets.table.subpixel import subpixel_counts

LEFT = Qt.MouseButton.LeftButton
CONTROL = Qt.KeyboardModifier.ControlModifier
PIXEL = 0.1


def make_fits(count: int, seed: int = 0, frames: int = 5) -> SpotFits:
    """Return fits with known columns, in no particular order of anything but the frames."""
    rng = np.random.default_rng(seed)
    columns = {
        "frame": np.sort(rng.integers(0, frames, count)),
        "y": rng.uniform(3, 60, count),
        "x": rng.uniform(3, 60, count),
        "sigma": rng.uniform(0.5, 2.5, count).astype(np.float32),
        "amplitude": rng.uniform(50, 500, count).astype(np.float32),
        "background": rng.uniform(10, 20, count).astype(np.float32),
        "photons": rng.uniform(100, 4000, count).astype(np.float32),
        "chi_square": rng.uniform(50, 90, count).astype(np.float32),
        "iterations": rng.integers(1, 20, count).astype(np.uint16),
        "stop_condition": rng.integers(0, 5, count).astype(np.uint8),
        "sigma_stderr": np.where(rng.random(count) < 0.2, np.nan, 0.05).astype(np.float32),
    }
    return SpotFits(columns, ("frame",))


def add_spots(viewer, count=60, seed=0, **transform):
    """Add a movie and the layer of its spots."""
    transform = {
        "scale": (1, PIXEL, PIXEL),
        "units": ("pixel", "um", "um"),
        "name": "movie",
        **transform,
    }
    image = viewer.add_image(np.zeros((5, 64, 64), np.uint8), **transform)
    return viewer.add_layer(to_points_layer(make_fits(count, seed), image))


@pytest.fixture
def layer(viewer):
    return add_spots(viewer)


@pytest.fixture
def spots(viewer, layer):
    return dock(viewer)


def dock(viewer):
    widget = Spots(viewer)
    viewer.window.add_dock_widget(widget, name="Spots")
    widget.resize(900, 300)
    return widget


def settle():
    """Let what waits for the event loop happen."""
    for _ in range(3):
        QApplication.processEvents()


def titles(widget):
    model = widget.table.model()
    role = Qt.ItemDataRole.DisplayRole
    return [
        model.headerData(column, Qt.Orientation.Horizontal, role)
        for column in range(model.columnCount())
    ]


def texts(widget, title):
    """Return what a column of the table says."""
    model, column = widget.table.model(), titles(widget).index(title)
    return [model.index(row, column).data() for row in range(model.rowCount())]


def click_row(qtbot, widget, row, modifier=Qt.KeyboardModifier.NoModifier, click="mouseClick"):
    table = widget.table
    table.scrollTo(table.model().index(row, 0))
    place = table.visualRect(table.model().index(row, 1)).center()
    getattr(qtbot, click)(table.viewport(), LEFT, modifier, place)
    settle()


def click_header(qtbot, widget, title):
    header = widget.table.horizontalHeader()
    column = titles(widget).index(title)
    widget.table.scrollTo(widget.table.model().index(0, column))
    x = header.sectionViewportPosition(column) + header.sectionSize(column) // 2
    qtbot.mouseClick(header.viewport(), LEFT, pos=QPoint(x, header.height() // 2))
    settle()


def selected_texts(widget):
    """Return the table's rows that are drawn as selected, as Qt knows them."""
    return sorted(index.row() for index in widget.table.selectionModel().selectedRows())


def test_the_table_shows_the_features(spots, layer):
    features = layer.features
    assert titles(spots)[:5] == ["frame", "y [px]", "x [px]", "sigma [px]", "photons"]
    assert set(spots.spots.columns) == set(features)
    assert texts(spots, "frame") == [f"{frame:.0f}" for frame in features["frame"]]
    assert texts(spots, "stop_condition") == list(features["stop_condition"])
    np.testing.assert_allclose(
        [float(text) for text in texts(spots, "y [px]")], features["y"], atol=5.1e-4
    )
    shown = [np.nan if text == "–" else float(text) for text in texts(spots, "sigma_stderr [px]")]
    np.testing.assert_allclose(shown, features["sigma_stderr"], atol=1e-4)
    assert spots.count.text() == "60 of 60 spots shown"


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
    click_header(qtbot, spots, "photons")
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
    click_header(qtbot, spots, "photons")
    order = np.argsort(layer.features["photons"].to_numpy(), kind="stable").tolist()
    layer.selected_data = {7, 30}
    assert selected_texts(spots) == sorted([order.index(7), order.index(30)])
    layer.selected_data.add(31)
    assert selected_texts(spots) == sorted(order.index(spot) for spot in (7, 30, 31))
    click_header(qtbot, spots, "photons")
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
    row = 40
    assert layer.data[row, 0] != viewer.dims.current_step[0]
    click_row(qtbot, spots, row)
    click_row(qtbot, spots, row, click="mouseDClick")
    world = np.asarray(layer.data_to_world(layer.data[row]))
    camera = getattr(viewer, "scene", viewer).camera
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


def test_dragging_a_handle_hides_spots(make_napari_viewer, qtbot):
    viewer = make_napari_viewer(show=True)
    layer = add_spots(viewer)
    spots = dock(viewer)
    settle()
    histogram = spots.filters.histogram
    assert histogram.feature.name == "sigma"
    plot = histogram.plot
    viewport = plot.viewport()

    def at(sigma):
        box = plot.getViewBox()
        scene = box.mapViewToScene(QPointF(sigma, box.viewRange()[1][1] / 2))
        return plot.mapFromScene(scene)

    start, end = at(histogram.region.getRegion()[0]), at(1.2)
    qtbot.mouseMove(viewport, start)
    qtbot.mousePress(viewport, LEFT, pos=start)
    for step in range(1, 11):
        qtbot.mouseMove(viewport, start + (end - start) * (step / 10))
        settle()
    qtbot.mouseRelease(viewport, LEFT, pos=end)
    settle()
    low, high = spots.spots.filters.ranges["sigma"]
    assert low == pytest.approx(1.2, abs=0.02)
    assert high is None
    expected = layer.features["sigma"].to_numpy() >= low
    np.testing.assert_array_equal(layer.shown, expected)
    assert spots.count.text() == f"{expected.sum()} of 60 spots shown"
    np.testing.assert_array_equal(spots.table.spots_model.rows, np.flatnonzero(expected))
    assert histogram.low.get() == pytest.approx(low)
    assert layer.metadata["filters"] == {"ranges": {"sigma": [low, None]}, "hidden": []}


def test_limits_check_boxes_and_the_list_go_together(spots, layer, qtbot):
    page, features = spots.filters, layer.features
    sigma, photons = features["sigma"].to_numpy(), features["photons"].to_numpy()
    kept = (features["stop_condition"] != "MAX_ITERATIONS").to_numpy()
    box = page.histogram.high
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "1.9")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    settle()
    np.testing.assert_array_equal(layer.shown, sigma <= 1.9)
    page.histogram.feature.choose("photons")
    page.histogram.region.setRegion((500, page.histogram.region.getRegion()[1]))
    settle()
    low, _ = spots.spots.filters.ranges["photons"]
    np.testing.assert_array_equal(layer.shown, (sigma <= 1.9) & (photons >= low))
    click_box(qtbot, page.stops.boxes["MAX_ITERATIONS"])
    everything = (sigma <= 1.9) & (photons >= low) & kept
    np.testing.assert_array_equal(layer.shown, everything)
    # Blue is what passes the other filters, so that one sees what a handle would take away.
    bins = page.histogram.passing.yData
    assert bins.sum() == np.count_nonzero((sigma <= 1.9) & kept & in_axis(page, photons))
    assert [label.text() for label, _ in page.list.rows] == [
        "sigma ≤ 1.9 px",
        f"photons ≥ {low:.6g}",
        "without MAX_ITERATIONS",
    ]
    qtbot.mouseClick(page.list.rows[0][1], LEFT)
    settle()
    np.testing.assert_array_equal(layer.shown, (photons >= low) & kept)
    qtbot.mouseClick(page.list.clear, LEFT)
    settle()
    assert layer.shown.all()
    assert page.stops.boxes["MAX_ITERATIONS"].isChecked()
    assert page.histogram.low.get() is None
    assert len(layer.data) == 60, "nothing is ever deleted"


def in_axis(page, values):
    edges = page.histogram.all.xData
    return (values >= edges[0]) & (values <= edges[-1])


def click_box(qtbot, box):
    qtbot.mouseClick(box, LEFT, pos=QPoint(10, box.height() // 2))
    settle()


def test_counts_per_stop_condition(spots, layer):
    counts = layer.features["stop_condition"].value_counts()
    for name, label in spots.filters.stops.counts.items():
        assert int(label.text()) == counts.get(name, 0)
        assert (
            StopCondition[name].explanation.split()[0] in spots.filters.stops.boxes[name].toolTip()
        )


def test_a_limit_beyond_the_axis_and_one_below_the_other(spots, layer, qtbot):
    histogram = spots.filters.histogram
    histogram.high.setValue(50.0)
    settle()
    assert spots.spots.filters.ranges == {"sigma": (None, 50.0)}
    assert histogram.region.getRegion()[1] == pytest.approx(50)
    assert layer.shown.all()
    histogram.low.setValue(1.0)
    settle()
    histogram.high.setValue(0.8)
    settle()
    assert spots.spots.filters.ranges == {"sigma": (0.8, 0.8)}
    histogram.high.lineEdit().setText("")
    qtbot.keyClick(histogram.high, Qt.Key.Key_Return)
    settle()
    assert spots.spots.filters.ranges == {"sigma": (0.8, None)}


@pytest.mark.parametrize("value", [0.123456, -123456.0, 1.5e-5, -1.2e15 / 8, 1234.5])
def test_limits_are_shown_entirely(make_napari_viewer, value):
    viewer = make_napari_viewer(show=True)
    add_spots(viewer)
    spots = dock(viewer)
    box = spots.filters.histogram.high
    for width in (1250, 700):
        spots.resize(width, 300)
        settle()
        box.put(value)
        line = box.lineEdit()
        assert float(line.text()) == pytest.approx(value, rel=1e-5)
        needed = line.fontMetrics().horizontalAdvance(line.text())
        # Qt leaves two pixels on either side.
        assert line.width() >= needed + 4


def test_the_first_digits_of_a_long_limit_are_seen(spots, layer):
    box = spots.filters.histogram.high
    box.put(0.000123456)
    assert box.lineEdit().cursorPosition() == 0


def test_the_longest_stop_condition_fits_its_column(spots, layer):
    place = titles(spots).index("stop_condition")
    table = spots.table
    model = table.model()
    assert {model.index(row, place).data() for row in range(60)} >= {"MAX_ITERATIONS"}
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


def test_physical_units(spots, layer):
    spots.spots.set_filters(Filters({"sigma": (0.8, 1.9)}))
    settle()
    shown = layer.shown.copy()
    spots.units.setCurrentIndex(1)
    settle()
    assert spots.units.currentText() == "µm"
    assert titles(spots)[:4] == ["frame", "y [µm]", "x [µm]", "sigma [µm]"]
    expected = layer.features["y"].to_numpy()[shown] * PIXEL
    np.testing.assert_allclose(
        [float(text) for text in texts(spots, "y [µm]")], expected, atol=6e-5
    )
    page = spots.filters
    assert [label.text() for label, _ in page.list.rows] == ["0.08 ≤ sigma ≤ 0.19 µm"]
    np.testing.assert_allclose(page.histogram.region.getRegion(), (0.08, 0.19))
    np.testing.assert_array_equal(layer.shown, shown)
    page.histogram.low.setValue(0.1)
    settle()
    low, high = spots.spots.filters.ranges["sigma"]
    assert (low, high) == (pytest.approx(1.0), pytest.approx(1.9))
    spots.tabs.setCurrentWidget(spots.scatter)
    assert spots.scatter.across.currentText() == "sigma [µm]"
    assert spots.scatter.points.getData()[0].max() <= 0.19
    layer.scale = (1, 0.2, 0.2)
    settle()
    assert float(texts(spots, "sigma [µm]")[0]) == pytest.approx(
        0.2 * layer.features["sigma"][spots.table.spots_model.rows[0]], abs=1e-3
    )


def test_a_layer_without_a_unit_has_no_choice(viewer):
    add_spots(viewer, units=None, scale=(1, 1, 1))
    assert dock(viewer).units.isHidden()


def no_worker():
    return QThreadPool.globalInstance().activeThreadCount() == 0


@pytest.mark.parametrize("physical", [False, True])
def test_csv_holds_what_is_shown_or_everything(spots, layer, qtbot, tmp_path, physical):
    spots.units.setCurrentIndex(int(physical))
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    click_header(qtbot, spots, "photons")
    factor, unit = (PIXEL, "µm") if physical else (1, "px")
    for everything in (False, True):
        path = tmp_path / f"{everything}.csv"
        with qtbot.waitSignal(spots.export.finished):
            spots.export.save_to(path, everything=everything)
        table = pd.read_csv(path)
        features = layer.features
        if not everything:
            features = features[features["sigma"] >= 1.0].sort_values("photons", kind="stable")
        assert list(table) == titles(spots)
        np.testing.assert_array_equal(table["frame"], features["frame"])
        assert table["frame"].dtype.kind == "i"
        np.testing.assert_array_equal(table["photons"].astype("f4"), features["photons"])
        np.testing.assert_allclose(table[f"y [{unit}]"], features["y"] * factor, rtol=1e-12)
        np.testing.assert_allclose(table[f"sigma [{unit}]"], features["sigma"] * factor, rtol=1e-6)
        np.testing.assert_allclose(
            table[f"sigma_stderr [{unit}]"], features["sigma_stderr"] * factor, rtol=1e-6
        )
        assert list(table["stop_condition"]) == list(features["stop_condition"])
        assert f"{len(features)} spots saved" in spots.status.text()
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["False.csv", "True.csv"]
    assert not list(tmp_path.glob(".*.part"))
    qtbot.waitUntil(no_worker)


def test_a_cancelled_file_is_as_it_was(viewer, qtbot, tmp_path, monkeypatch):
    # Seconds of work in many parts, so that there is a middle in which to cancel.
    monkeypatch.setattr(csv_file, "_CHUNK", 5000)
    add_spots(viewer, 500_000)
    spots = dock(viewer)
    path = tmp_path / "spots.csv"
    path.write_text("earlier", encoding="utf-8")
    spots.export.save_to(path, everything=True)
    qtbot.waitUntil(lambda: spots.export.progress.value() > 0)
    qtbot.mouseClick(spots.export.cancel_button, LEFT)
    assert "Cancelled" in spots.status.text()
    qtbot.waitUntil(no_worker)
    assert path.read_text(encoding="utf-8") == "earlier"
    assert not list(tmp_path.glob(".*.part"))
    assert spots.export.currentIndex() == 0


def test_cancelling_too_late_is_not_called_cancelled(spots, layer, qtbot, tmp_path):
    path = tmp_path / "spots.csv"
    spots.export.save_to(path, everything=True)
    # The file is there, but this thread has not heard of it.
    deadline = QDeadlineTimer(20_000)
    while not path.exists() and not deadline.hasExpired():
        pass
    qtbot.mouseClick(spots.export.cancel_button, LEFT)
    qtbot.waitUntil(lambda: spots.export.currentIndex() == 0)
    assert f"{len(layer.data)} spots saved as {path}" in spots.status.text()
    qtbot.waitUntil(no_worker)


def test_a_file_that_cannot_be_written_gets_a_message(spots, qtbot, tmp_path):
    path = tmp_path / "no such folder" / "spots.csv"
    with qtbot.waitSignal(spots.export.finished):
        spots.export.save_to(path, everything=True)
    assert "was not written" in spots.status.text()
    assert "Choose another place" in spots.status.text()
    qtbot.waitUntil(no_worker)


def test_copy_takes_the_selected_rows_or_all_that_are_shown(spots, layer, qtbot):
    clipboard = QApplication.clipboard()
    click_row(qtbot, spots, 1)
    click_row(qtbot, spots, 3, CONTROL)
    qtbot.keyClick(spots.table, Qt.Key.Key_C, CONTROL)
    qtbot.waitUntil(lambda: "2 spots copied" in spots.status.text())
    lines = clipboard.text().splitlines()
    assert lines[0].split("\t") == titles(spots)
    assert [float(line.split("\t")[1]) for line in lines[1:]] == list(layer.features["y"][[1, 3]])
    click_row(qtbot, spots, 4)
    next(action for action in spots.table.actions() if action.text() == "Copy").trigger()
    qtbot.waitUntil(lambda: "1 spot copied" in spots.status.text())
    assert len(clipboard.text().splitlines()) == 2
    layer.selected_data.clear()
    spots.spots.set_filters(Filters({"sigma": (1.5, None)}))
    settle()
    qtbot.mouseClick(spots.export.copy_button, LEFT)
    shown = np.count_nonzero(layer.shown)
    qtbot.waitUntil(lambda: f"{shown} spots copied" in spots.status.text())
    assert len(clipboard.text().splitlines()) == shown + 1
    qtbot.waitUntil(no_worker)


def test_too_many_spots_are_not_copied(viewer, qtbot):
    add_spots(viewer, 100_001)
    spots = dock(viewer)
    qtbot.mouseClick(spots.export.copy_button, LEFT)
    assert "too many to copy" in spots.status.text()
    assert "save them as CSV" in spots.status.text()


def test_filters_are_kept_when_the_widget_is_closed(viewer, layer):
    spots = dock(viewer)
    spots.spots.set_filters(Filters({"sigma": (1.0, 2.0)}, {"MIN_STEP"}))
    # Closed at once, before the event loop has applied them.
    viewer.window.remove_dock_widget(spots)
    expected = layer.features["sigma"].between(1.0, 2.0).to_numpy()
    expected = expected & (layer.features["stop_condition"] != "MIN_STEP").to_numpy()
    np.testing.assert_array_equal(layer.shown, expected)
    again = dock(viewer)
    assert again.spots.filters == Filters({"sigma": (1.0, 2.0)}, {"MIN_STEP"})
    assert not again.filters.stops.boxes["MIN_STEP"].isChecked()
    np.testing.assert_array_equal(again.table.spots_model.rows, np.flatnonzero(expected))
    viewer.window.add_dock_widget(spots, name="Spots once more")
    assert spots.spots.filters == again.spots.filters


def test_two_widgets_on_one_layer_agree(viewer, layer):
    one, other = dock(viewer), dock(viewer)
    one.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    assert other.spots.filters == one.spots.filters
    np.testing.assert_array_equal(other.table.spots_model.rows, one.table.spots_model.rows)
    assert len(other.filters.list.rows) == 1
    other.spots.set_filters(Filters())
    settle()
    assert len(one.table.spots_model.rows) == 60


@pytest.mark.parametrize("watched", [True, False])
def test_a_refit_is_filtered_too(viewer, layer, watched):
    spots = dock(viewer)
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    if not watched:
        viewer.window.remove_dock_widget(spots)
    update_points_layer(layer, points_arguments(make_fits(90, seed=5)), viewer.layers["movie"])
    settle()
    if not watched:
        viewer.window.add_dock_widget(spots, name="Spots")
        settle()
    expected = layer.features["sigma"].to_numpy() >= 1.0
    assert len(expected) == 90
    np.testing.assert_array_equal(layer.shown, expected)
    np.testing.assert_array_equal(spots.table.spots_model.rows, np.flatnonzero(expected))
    assert spots.count.text() == f"{expected.sum()} of 90 spots shown"


def test_a_filter_whose_feature_is_gone_is_dropped(spots, layer):
    spots.spots.set_filters(Filters({"sigma": (1.0, None), "photons": (1000, None)}))
    settle()
    layer.features = layer.features.drop(columns="photons")
    settle()
    assert spots.spots.filters == Filters({"sigma": (1.0, None)})
    np.testing.assert_array_equal(layer.shown, layer.features["sigma"] >= 1.0)
    assert layer.metadata["filters"]["ranges"] == {"sigma": [1.0, None]}
    assert "photons ≥ 1000" in spots.status.text()
    assert "photons" not in titles(spots)


def test_deleted_points_vanish(spots, layer, qtbot):
    click_row(qtbot, spots, 0)
    click_row(qtbot, spots, 1, CONTROL)
    y = layer.features["y"].to_numpy()
    layer.remove_selected()
    settle()
    assert spots.count.text() == "58 of 58 spots shown"
    np.testing.assert_allclose([float(text) for text in texts(spots, "y [px]")], y[2:], atol=1e-3)
    layer.data = np.zeros((0, 3))
    settle()
    assert spots.table.model().rowCount() == 0
    spots.tabs.setCurrentWidget(spots.scatter)
    spots.tabs.setCurrentWidget(spots.subpixel)


def test_what_somebody_else_hides_is_not_listed(spots, layer):
    hidden = np.arange(60) % 3 == 0
    layer.shown = ~hidden
    assert spots.count.text() == "40 of 60 spots shown"
    np.testing.assert_array_equal(spots.table.spots_model.rows, np.flatnonzero(~hidden))
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    np.testing.assert_array_equal(layer.shown, layer.features["sigma"] >= 1.0)


def test_layers_are_chosen_renamed_and_removed(viewer, spots, layer):
    other = add_spots(viewer, 30, seed=9, name="second")
    settle()
    assert spots.spots.layer is other
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    viewer.layers.selection.active = layer
    settle()
    assert spots.spots.layer is layer
    assert spots.count.text() == "60 of 60 spots shown"
    np.testing.assert_array_equal(other.shown, other.features["sigma"] >= 1.0)
    layer.name = "renamed"
    assert spots.layer.currentText() == "renamed"
    viewer.layers.selection.active = viewer.layers["movie"]
    assert spots.spots.layer is layer
    viewer.layers.remove(layer)
    settle()
    assert spots.spots.layer is other
    viewer.layers.clear()
    settle()
    assert spots.spots.layer is None
    assert spots.table.model().rowCount() == 0
    assert not spots.export.save_button.isEnabled()


def test_scatter_draws_and_selects(spots, layer, qtbot):
    spots.tabs.setCurrentWidget(spots.scatter)
    page = spots.scatter
    page.plot.resize(500, 220)
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    shown = layer.features[layer.shown]
    x, y = page.points.getData()
    np.testing.assert_allclose(x, shown["sigma"])
    np.testing.assert_allclose(y, shown["photons"])
    row = int(np.flatnonzero(layer.shown)[5])
    place = QPointF(layer.features["sigma"][row], layer.features["photons"][row])
    scene = page.plot.getViewBox().mapViewToScene(place)
    qtbot.mouseClick(page.plot.viewport(), LEFT, pos=page.plot.mapFromScene(scene))
    settle()
    assert set(layer.selected_data) == {row}
    marked = page.marks.getData()
    np.testing.assert_allclose(marked, [[place.x()], [place.y()]])
    page.up.choose("y")
    np.testing.assert_allclose(page.points.getData()[1], shown["y"])


def test_many_spots_are_drawn_as_their_density(viewer):
    layer = add_spots(viewer, 30_000)
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.scatter)
    page = spots.scatter
    assert page.image.isVisible()
    assert not page.points.isVisible()
    counts = np.expm1(page.image.image)
    (left, right), (bottom, top) = page.plot.getViewBox().viewRange()
    sigma, photons = layer.features["sigma"], layer.features["photons"]
    within = sigma.between(left, right) & photons.between(bottom, top)
    assert counts.sum() == pytest.approx(within.sum(), rel=1e-3)
    half = (sigma < (left + right) / 2) & within
    assert counts[:, : counts.shape[1] // 2].sum() == pytest.approx(half.sum(), rel=0.02)
    spots.spots.set_filters(Filters({"sigma": (1.0, 1.5)}))
    settle()
    assert page.points.isVisible()
    assert not page.image.isVisible()


def test_subpixel_positions():
    counts = subpixel_counts(np.array([0.0, 7.04, 3.49, -0.49, 5.5, np.nan]), 10)
    assert counts.tolist() == [2, 0, 0, 0, 0, 2, 0, 0, 0, 1]


def test_pixel_locking_shows(viewer, qtbot):
    layer = add_spots(viewer, 4000)
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.subpixel)
    page = spots.subpixel
    even = page.even.value()
    steps = len(page.curves["y"].yData)
    assert even == pytest.approx(4000 / steps)
    assert page.curves["y"].yData.max() < even + 5 * np.sqrt(even)
    locked = layer.features.assign(y=np.rint(layer.features["y"]) + 0.004)
    layer.features = locked
    settle()
    assert page.curves["y"].yData.argmax() == steps // 2
    assert page.curves["y"].yData.max() == 4000
    assert page.curves["x"].yData.max() < even + 5 * np.sqrt(even)


def test_filters_are_saved_and_loaded(spots, layer, tmp_path):
    path, page = tmp_path / "filters.json", spots.filters
    chosen = Filters({"sigma": (1.0, None)}, {"MAX_ERROR"})
    spots.spots.set_filters(chosen)
    settle()
    page.list.save_to(path)
    page.list.clear.click()
    settle()
    assert layer.shown.all()
    page.list.load_from(path)
    settle()
    assert spots.spots.filters == chosen
    np.testing.assert_array_equal(layer.shown, chosen.mask(layer.features))
    more = {"ranges": {"ellipticity": [0, 1], "sigma": [1.2, None]}, "hidden": []}
    path.write_text(json.dumps(more), encoding="utf-8")
    page.list.load_from(path)
    assert spots.spots.filters == Filters({"sigma": (1.2, None)})
    assert "0 ≤ ellipticity ≤ 1" in spots.status.text()
    path.write_text('{"ranges": {"sigma": [3, 1]}}', encoding="utf-8")
    page.list.load_from(path)
    assert "swap them" in spots.status.text()
    assert spots.spots.filters == Filters({"sigma": (1.2, None)})


def test_every_control_is_explained(spots):
    for page in range(3):
        spots.tabs.setCurrentIndex(page)
    controls = [
        spots.layer, spots.units, spots.table, spots.export.copy_button, spots.export.save_button,
        spots.export.cancel_button, spots.filters.histogram.feature, spots.filters.histogram.low,
        spots.filters.histogram.high, spots.filters.list.clear, spots.filters.list.save,
        spots.filters.list.load, spots.scatter.across, spots.scatter.up, spots.subpixel.plot,
        *spots.filters.stops.boxes.values(),
    ]  # fmt: skip
    for control in controls:
        assert control.toolTip().startswith("<p>")
        named = control.accessibleName() or getattr(control, "text", str)()
        assert named or control is spots.subpixel.plot


def test_the_layout_follows_the_shape(viewer, layer, qtbot):
    spots = Spots(viewer)
    qtbot.addWidget(spots)
    spots.show()
    spots.resize(1000, 300)
    assert spots.splitter.orientation() == Qt.Orientation.Horizontal
    spots.resize(360, 800)
    assert spots.splitter.orientation() == Qt.Orientation.Vertical


def test_nothing_follows_a_layer_after_closing(viewer, layer, qtbot):
    spots = dock(viewer)
    click_row(qtbot, spots, 2)
    viewer.window.remove_dock_widget(spots)
    layer.selected_data = {5}
    layer.features = layer.features.assign(extra=1.5)
    layer.shown = np.arange(60) > 30
    viewer.theme = "light"
    add_spots(viewer, 10, seed=4, name="late")
    settle()
    assert spots.spots.layer is None
    assert spots.table.model().rowCount() == 0


@pytest.mark.parametrize("used", [False, True])
def test_a_closed_widget_and_a_removed_layer_are_freed(viewer, qtbot, used):
    layer = add_spots(viewer)
    spots = dock(viewer)
    if used:
        spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
        for page in (1, 2, 0):
            spots.tabs.setCurrentIndex(page)
        click_row(qtbot, spots, 2)
        settle()
    viewer.window.remove_dock_widget(spots)
    gone = weakref.ref(spots), weakref.ref(spots.spots), weakref.ref(spots.table)
    del spots
    if used:
        layer.shown = True
        layer.selected_data = {1}

    def freed():
        gc.collect()
        return all(reference() is None for reference in gone)

    qtbot.waitUntil(freed)


def test_a_removed_layer_is_let_go(viewer, spots, layer, qtbot):
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    viewer.layers.remove(layer)
    settle()
    assert spots.spots.layer is None
    assert spots.spots.columns == {}


def test_two_viewers(make_napari_viewer):
    one, two = make_napari_viewer(), make_napari_viewer()
    layers = add_spots(one, 20), add_spots(two, 40, seed=1)
    widgets = dock(one), dock(two)
    widgets[0].spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    assert layers[1].shown.all()
    assert widgets[1].count.text() == "40 of 40 spots shown"
    layers[1].selected_data = {3}
    assert selected_texts(widgets[0]) == []
    assert selected_texts(widgets[1]) == [3]
    one.window.remove_dock_widget(widgets[0])
    widgets[1].spots.set_filters(Filters({"sigma": (1.5, None)}))
    settle()
    np.testing.assert_array_equal(layers[1].shown, layers[1].features["sigma"] >= 1.5)
