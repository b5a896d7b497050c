"""Face colours by any feature, in any order, and the panel that chooses them."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.utils.colormaps import ensure_colormap
from napari.utils.colormaps.standardize_color import transform_color
from qtpy.QtCore import Qt

from napari_spotfit import localize, to_points_layer
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting.result_panel import ResultPanel
from napari_spotfit.widgets.layers.appearance import (
    COLORMAPS,
    STOP_COLORS,
    color_faces,
    face_limits,
)
from napari_spotfit.widgets.layers.state import fit_limits


@pytest.fixture(scope="module")
def fits(make_movie):
    return localize(make_movie(6), false_spots=50_000, sigma=1.3)


@pytest.fixture
def layer(fits):
    """Return fitted spots with columns that are awkward to colour."""
    layer = to_points_layer(fits)
    count = len(layer.data)
    holes = layer.features["photons"].to_numpy().copy()
    holes[::3] = np.nan
    layer.features = layer.features.assign(
        holes=holes,
        constant=7.0,
        nothing=np.nan,
        few=np.arange(count) % 4,
        word=pd.Categorical(np.where(np.arange(count) % 2, "odd", "even")),
    )
    return layer


NUMBERS = ("sigma", "photons", "holes", "constant", "nothing", "few")


def is_colored_by(layer, feature, colormap="viridis", limits=None):
    """Check the colours of all faces, one by one."""
    column = layer.features[feature]
    if feature not in NUMBERS:
        assert layer.face_color_mode == "cycle"
        if feature == "stop_condition":
            expected = transform_color([STOP_COLORS[word] for word in column])
            np.testing.assert_allclose(layer.face_color, expected, atol=1e-6)
        return
    assert layer.face_color_mode == "colormap"
    low, high = limits or layer.face_contrast_limits
    assert layer.face_contrast_limits == (low, high)
    values = column.to_numpy(float)
    expected = ensure_colormap(colormap).map(np.clip((values - low) / (high - low), 0, 1))
    np.testing.assert_allclose(layer.face_color, expected, atol=0.01)


@pytest.mark.parametrize(
    ("first", "second"),
    list(
        itertools.permutations(("sigma", "holes", "constant", "few", "stop_condition", "word"), 2)
    ),
)
def test_every_order_of_features(layer, first, second):
    for feature in (first, second, first):
        color_faces(layer, feature)
        is_colored_by(layer, feature)
        assert layer.metadata["face"] == feature


def test_a_column_of_nan_colours_nothing_and_breaks_nothing(layer):
    color_faces(layer, "nothing")
    is_colored_by(layer, "nothing")
    assert not layer.face_color[:, 3].any()
    color_faces(layer, "stop_condition")
    assert layer.face_color[:, 3].all()


@pytest.mark.parametrize("colormap", COLORMAPS)
def test_every_colormap(layer, colormap):
    color_faces(layer, "stop_condition", colormap)
    color_faces(layer, "photons")
    is_colored_by(layer, "photons", colormap)


def test_limits_are_the_caller_s_or_automatic(layer):
    color_faces(layer, "photons", limits=(1000.0, 2000.0))
    is_colored_by(layer, "photons", limits=(1000.0, 2000.0))
    assert layer.metadata["face_limits"] == (1000.0, 2000.0)
    color_faces(layer, "photons")
    good = layer.features["good"].to_numpy() == 1
    automatic = face_limits(layer.features["photons"].to_numpy(), good)
    is_colored_by(layer, "photons", limits=automatic)
    assert layer.metadata.get("face_limits") is None
    for wrong in ((2.0, 1.0), (1.0, 1.0), (np.nan, 1.0), (0.0, np.inf)):
        with pytest.raises(ValueError, match="lower one first"):
            color_faces(layer, "photons", limits=wrong)
    is_colored_by(layer, "photons", limits=automatic)


@pytest.mark.parametrize("features", [("sigma", "stop_condition", "photons")])
def test_an_empty_layer(make_movie, features):
    layer = to_points_layer(localize(make_movie(1), threshold=1e6, sigma=1.3))
    for feature in features:
        color_faces(layer, feature, "magma")
        assert layer.metadata["face"] == feature


def test_the_canvas_draws_the_colours(shown_viewer, make_movie, layer):
    viewer = shown_viewer
    viewer.add_layer(layer)
    seen = []
    for feature in ("sigma", "stop_condition", "photons"):
        color_faces(layer, feature, "turbo")
        markers = viewer.window._qt_viewer.layer_to_visual[layer].node.points_markers
        seen.append(markers._data["a_bg_color"].copy())
        # napari before 0.9 calls it the other way round.
        drawn = next(n for n in ("_view_indices", "_indices_view") if hasattr(layer, n))
        visible = layer.face_color[getattr(layer, drawn)]
        np.testing.assert_allclose(seen[-1], visible, atol=1e-6)
    assert not np.array_equal(seen[0], seen[1])


@pytest.fixture
def panel(qtbot, layer):
    panel = ResultPanel(ViewerModel())
    qtbot.addWidget(panel)
    panel.show_layer(layer)
    return panel


def pick(box, qtbot, text):
    """Choose an item of a combo box with the keyboard."""
    box.setFocus()
    qtbot.keyClick(box, Qt.Key.Key_Home)
    for _ in range(box.count()):
        if box.currentText().startswith(text):
            return
        qtbot.keyClick(box, Qt.Key.Key_Down)
    raise AssertionError(f"there is no {text!r}")


def type_number(box, qtbot, text):
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, text)
    qtbot.keyClick(box, Qt.Key.Key_Return)


def test_the_panel_offers_all_numbers_and_the_stop_condition(panel):
    names = [panel.face.itemData(row) for row in range(panel.face.count())]
    assert set(NUMBERS) < set(names)
    assert "stop_condition" in names
    assert "word" not in names
    assert panel.face.currentData() == "sigma"
    for control in (panel.face, panel.colormap, panel.bar.low, panel.bar.high, panel.bar.auto):
        assert control.toolTip().startswith("<p>")
        assert control.accessibleName()


def test_feature_colormap_and_limits_are_chosen_in_the_panel(panel, layer, qtbot):
    chosen = []
    panel.face_chosen.connect(lambda *names: chosen.append(names))
    panel.show()
    pick(panel.face, qtbot, "photons [")
    pick(panel.colormap, qtbot, "plasma")
    is_colored_by(layer, "photons", "plasma")
    assert chosen[-1] == ("photons", "plasma")
    assert panel.bar.auto.isChecked()
    type_number(panel.bar.low, qtbot, "1200")
    type_number(panel.bar.high, qtbot, "3400.5")
    is_colored_by(layer, "photons", "plasma", (1200, 3400.5))
    assert not panel.bar.auto.isChecked()
    pick(panel.colormap, qtbot, "gray")
    is_colored_by(layer, "photons", "gray", (1200, 3400.5))
    type_number(panel.bar.low, qtbot, "5000")
    low, high = layer.face_contrast_limits
    assert low == 5000 < high
    panel.bar.auto.click()
    is_colored_by(layer, "photons", "gray")
    assert layer.face_contrast_limits != (low, high)
    assert panel.bar.high.value() == pytest.approx(layer.face_contrast_limits[1])
    pick(panel.face, qtbot, "stop_condition")
    is_colored_by(layer, "stop_condition")
    assert panel.bar.isHidden()
    assert not panel.colormap.isEnabled()
    pick(panel.face, qtbot, "sigma [")
    is_colored_by(layer, "sigma", "gray")
    assert panel.bar.isVisible()


def test_the_panel_follows_the_console(panel, layer, qtbot):
    panel.show()
    layer.face_contrast_limits = (0.5, 4.25)
    layer.face_colormap = "fire"
    qtbot.waitUntil(lambda: panel.bar.high.value() == 4.25)
    assert panel.bar.high.text() == "4.25"
    assert panel.colormap.currentText() == "fire"
    assert not panel.bar.auto.isChecked()


def test_limits_of_other_spots_stay_automatic(panel, layer):
    """Also if the panel looks at the layer before their event comes."""
    features = layer.features.assign(sigma=2 * layer.features["sigma"])
    layer.features = features
    fit_limits(layer, features)
    panel.look()
    assert panel.bar.auto.isChecked()
    assert layer.metadata.get("face_limits") is None
    assert panel.bar.high.value() == pytest.approx(layer.face_contrast_limits[1])


@pytest.mark.parametrize(
    ("limits", "texts"),
    [
        ((1.2345, 2.3456), ("1.23", "2.35")),
        ((1.2345, 1.2346), ("1.2345", "1.2346")),
        ((812.4, 123456.7), ("812", "123457")),
        ((1e-5, 2.5e9), ("1e-5", "2.5e9")),
    ],
)
def test_numbers_have_the_digits_they_need(panel, layer, limits, texts):
    color_faces(layer, "sigma", limits=limits)
    panel.show_layer(layer)
    assert (panel.bar.low.text(), panel.bar.high.text()) == texts


def test_the_choice_is_remembered_and_used_for_the_next_fit(viewer, widget, fit, make_movie, qtbot):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    pick(widget.result.face, qtbot, "photons [")
    pick(widget.result.colormap, qtbot, "magma")
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again, name="Again")
    again.settings.image.layer = viewer.add_image(make_movie(3), name="other")
    fit(again)
    layer = viewer.layers["other spots"]
    is_colored_by(layer, "photons", "magma")
    assert again.result.colormap.currentText() == "magma"
    color_faces(layer, "photons", limits=(1.0, 2.0))
    fit(again)
    assert layer.face_contrast_limits[1] > 100
    assert again.result.bar.auto.isChecked()
