"""Histograms, limits and check boxes hide spots; words list what is hidden."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from hand import LEFT, in_plot
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QScrollArea
from spot_table import add_spots, dock

from napari_spotfit import StopCondition


def test_dragging_a_handle_hides_spots(shown_viewer, qtbot):
    viewer = shown_viewer
    layer = add_spots(viewer)
    spots = dock(viewer)
    settle()
    histogram = spots.filters.histogram
    assert histogram.feature.name == "sigma"
    plot = histogram.plot
    viewport = plot.viewport()
    middle = plot.getViewBox().viewRange()[1][1] / 2
    start, end = (
        in_plot(plot, sigma, middle).toPoint() for sigma in (histogram.region.getRegion()[0], 1.2)
    )
    handle = histogram.region.lines[0]

    def moved_until(place, is_there):
        # pyqtgraph ignores a move that comes too soon after another one.
        def moved():
            qtbot.mouseMove(viewport, place)
            return is_there()

        qtbot.waitUntil(moved)

    moved_until(start, lambda: handle.mouseHovering)
    qtbot.mousePress(viewport, LEFT, pos=start)
    for step in range(1, 11):
        place = start + (end - start) * (step / 10)
        sigma = plot.getViewBox().mapSceneToView(plot.mapToScene(place)).x()
        moved_until(place, lambda sigma=sigma: handle.value() == pytest.approx(sigma, abs=0.02))
    qtbot.mouseRelease(viewport, LEFT, pos=end)
    settle()
    low, high = spots.spots.filters.ranges["sigma"]
    assert low == pytest.approx(1.2, abs=0.02)
    assert high is None
    expected = layer.features["sigma"].to_numpy() >= low
    np.testing.assert_array_equal(layer.shown, expected)
    assert spots.count.text() == f"{expected.sum()} of 60 shown"
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
    click_box(qtbot, page.legend.boxes["MAX_ITERATIONS"])
    everything = (sigma <= 1.9) & (photons >= low) & kept
    np.testing.assert_array_equal(layer.shown, everything)
    # Blue is what passes the other filters, so that one sees what a handle would take away.
    bins = page.histogram.passing.yData
    assert bins.sum() == np.count_nonzero((sigma <= 1.9) & kept & in_axis(page, photons))
    assert [label.text() for label, _ in page.list.rows] == [
        "sigma ≤ 1.9 px",
        f"photons ≥ {low:.6g} counts",
        "without “not converged: iterations used up”",
    ]
    qtbot.mouseClick(page.list.rows[0][1], LEFT)
    settle()
    np.testing.assert_array_equal(layer.shown, (photons >= low) & kept)
    qtbot.mouseClick(page.list.clear, LEFT)
    settle()
    assert layer.shown.all()
    assert page.legend.boxes["MAX_ITERATIONS"].isChecked()
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
    legend = spots.filters.legend
    for name, label in legend.counts.items():
        assert int(label.text()) == counts.get(name, 0)
        assert label.isHidden() == legend.boxes[name].isHidden() == (counts.get(name, 0) == 0)
    for condition in StopCondition:
        box = legend.boxes[condition.name]
        assert condition.words in box.text()
        assert condition.explanation.split("χ²")[0] in box.toolTip()
        assert condition.name in box.toolTip()
        assert condition.name not in box.text()


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


def test_the_axis_is_no_longer_than_limits_ask_for(spots, layer, qtbot):
    histogram = spots.filters.histogram
    usual = histogram.all.xData.tolist()

    def enter(text):
        histogram.high.lineEdit().selectAll()
        qtbot.keyClicks(histogram.high, text)
        qtbot.keyClick(histogram.high, Qt.Key.Key_Return)
        settle()
        return histogram.all.xData

    assert enter("1e9")[-1] > 1e9
    assert 2e3 > enter("1e3")[-1] > 1e3
    assert enter("2").tolist() == usual
    enter("1e9")
    qtbot.mouseClick(spots.filters.list.clear, LEFT)
    settle()
    assert histogram.all.xData.tolist() == usual
    assert histogram.region.getRegion() == (usual[0], usual[-1])


@pytest.mark.parametrize("value", [0.123456, -123456.0, 1.5e-5, -1.2e15 / 8, 1234.5])
def test_limits_are_shown_entirely(shown_viewer, value):
    viewer = shown_viewer
    add_spots(viewer)
    spots = dock(viewer)
    box = spots.filters.histogram.high
    for width in (1250, 700):
        spots.resize(width, 300)
        settle()
        box.show_number(value)
        line = box.lineEdit()
        assert float(line.text()) == pytest.approx(value, rel=1e-5)
        needed = line.fontMetrics().horizontalAdvance(line.text())
        # Qt leaves two pixels on either side.
        assert line.width() >= needed + 4


def test_the_first_digits_of_a_long_limit_are_seen(spots, layer):
    box = spots.filters.histogram.high
    box.show_number(0.000123456)
    assert box.lineEdit().cursorPosition() == 0


def test_the_parts_are_never_cut_off(shown_viewer, qtbot):
    """Beside each other they need more width where the legend has long lines."""
    viewer = shown_viewer
    layer = add_spots(viewer)
    page = dock(viewer).filters
    # With the theme, and a width that no layout gives it.
    page.setParent(viewer.window._qt_window)
    page.show()
    area = page.findChildren(QScrollArea)[0]

    def check():
        settle()
        assert area.widget().minimumSizeHint().width() <= area.viewport().width()

    for width in (460, 490, 520, 600):
        page.resize(width, 300)
        check()
    long, short = layer.features, layer.features.copy()
    short["stop_condition"] = short["stop_condition"].where([False] * 60, "MIN_DELTA")
    layer.features = short
    settle()
    assert page.legend.counts["MIN_DELTA"].text() == "60"
    page.resize(500, 300)
    check()
    layer.features = long
    qtbot.waitUntil(lambda: page.legend.counts["MIN_DELTA"].text() != "60")
    check()
