"""The scatter plot and the sub-pixel positions."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from hand import LEFT, in_plot
from spot_table import add_spots, dock

from napari_spotfit.widgets.table.filters import Filters
from napari_spotfit.widgets.table.subpixel import subpixel_counts


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
