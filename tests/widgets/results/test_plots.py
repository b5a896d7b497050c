"""The scatter plot and the sub-pixel positions."""

from __future__ import annotations

import itertools

import numpy as np
import pyqtgraph as pg
import pytest
from event_loop import settle
from hand import LEFT, Mouse, in_plot
from qtpy.QtCore import QPointF, Qt
from qtpy.QtGui import QPolygonF
from spot_table import PIXEL, add_spots, dock

from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.result_pages.plot_pages import subpixel_counts


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
    place = layer.features["sigma"][row], layer.features["photons"][row]
    qtbot.mouseClick(page.plot.viewport(), LEFT, pos=in_plot(page.plot, *place).toPoint())
    settle()
    assert set(layer.selected_data) == {row}
    marked = page.marks.getData()
    np.testing.assert_allclose(marked, np.transpose([place]))
    page.up.choose("y")
    np.testing.assert_allclose(page.points.getData()[1], shown["y"])


def draw_gate(page, corners):
    """Draw a lasso with the mouse around some places of the plot."""
    viewport = page.plot.viewport()
    points = [in_plot(page.plot, *place) for place in corners]
    way = [points[0]]
    for start, end in itertools.pairwise(points):
        way += [start + (end - start) * (step / 5) for step in range(1, 6)]
    # A test's hand is faster than the hundred moves a second that the plot notices.
    most = pg.getConfigOption("mouseRateLimit")
    pg.setConfigOption("mouseRateLimit", 0)
    Mouse(viewport).drag(*way)
    pg.setConfigOption("mouseRateLimit", most)
    settle()


@pytest.mark.parametrize("physical", [False, True])
def test_a_lasso_hides_what_is_outside(shown_viewer, physical, qtbot):
    viewer = shown_viewer
    layer = add_spots(viewer)
    spots = dock(viewer)
    spots.resize(1000, 400)
    spots.spots.set_physical(physical)
    spots.tabs.setCurrentWidget(spots.scatter)
    page = spots.scatter
    settle()
    unit = PIXEL if physical else 1
    pixel = np.divide(page.plot.getViewBox().viewPixelSize(), (unit, 1))
    corners = [(0.9, 700), (2.1, 700), (2.1, 3000), (1.5, 1500), (0.9, 3000)]
    draw_gate(page, [(x * unit, y) for x, y in corners])
    (gate,) = spots.spots.filters.gates
    x, y = (layer.features[name].to_numpy() for name in ("sigma", "photons"))
    outline = QPolygonF([QPointF(*corner) for corner in gate.corners])
    odd = Qt.FillRule.OddEvenFill
    expected = [outline.containsPoint(QPointF(*xy), odd) for xy in zip(x, y, strict=True)]
    assert 3 < sum(expected) < 50
    np.testing.assert_array_equal(layer.shown, expected)
    low, high = np.min(gate.corners, axis=0), np.max(gate.corners, axis=0)
    assert np.all(np.abs(low - (0.9, 700)) <= pixel)
    assert np.all(np.abs(high - (2.1, 3000)) <= pixel)
    assert len(page.points.getData()[0]) == sum(expected)
    assert len(page.outside.getData()[0]) == 60 - sum(expected)
    assert f"{sum(expected)} within the lasso" in page.hint.text()
    assert spots.spots.filters.in_words() == "within the lasso of sigma and photons"
    # Another one takes its place, and the list takes it away.
    draw_gate(page, [(1 * unit, 500), (2 * unit, 500), (2 * unit, 3500)])
    assert len(spots.spots.filters.gates) == 1
    spots.tabs.setCurrentWidget(spots.filters)
    settle()
    ((_, remove),) = spots.filters.list.rows
    qtbot.mouseClick(remove, LEFT)
    settle()
    assert layer.shown.all()


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
