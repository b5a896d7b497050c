"""Numbers in pixels or in the layer's unit."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from spot_table import PIXEL, add_spots, dock, texts, titles

from napari_spotfit.analysis.filters import Filters


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
