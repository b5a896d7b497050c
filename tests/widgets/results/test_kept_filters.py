"""Filters outlast the widget, a new fit and a session."""

from __future__ import annotations

import json

import numpy as np
import pytest
from event_loop import settle
from hand import LEFT
from spot_table import add_spots, dock, make_fits, titles

from napari_spotfit import to_points_layer
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.layers.points import points_arguments, update_points_layer


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
    assert not again.filters.legend.boxes["MIN_STEP"].isChecked()
    np.testing.assert_array_equal(again.table.spots_model.rows, np.flatnonzero(expected))
    viewer.window.add_dock_widget(spots, name="Results once more")
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
        viewer.window.add_dock_widget(spots, name="Results")
        settle()
    expected = layer.features["sigma"].to_numpy() >= 1.0
    assert len(expected) == 90
    np.testing.assert_array_equal(layer.shown, expected)
    np.testing.assert_array_equal(spots.table.spots_model.rows, np.flatnonzero(expected))
    assert spots.count.text() == f"{expected.sum()} of 90 shown"


def test_a_filter_whose_feature_is_gone_is_dropped(spots, layer):
    spots.spots.set_filters(Filters({"sigma": (1.0, None), "photons": (1000, None)}))
    settle()
    layer.features = layer.features.drop(columns="photons")
    settle()
    assert spots.spots.filters == Filters({"sigma": (1.0, None)})
    np.testing.assert_array_equal(layer.shown, layer.features["sigma"] >= 1.0)
    assert layer.metadata["filters"]["ranges"] == {"sigma": [1.0, None]}
    assert "photons ≥ 1000" in spots.status.text()
    assert "photons [counts]" not in titles(spots)


def test_another_layer_gets_the_same_filters(shown_viewer, qtbot):
    viewer = shown_viewer
    other = viewer.add_layer(to_points_layer(make_fits(90, seed=5)))
    other.name = "this & that"
    other.features = other.features.drop(columns="photons")
    add_spots(viewer)
    spots = dock(viewer)
    settle()
    spots.spots.set_filters(Filters({"sigma": (1.0, None), "photons": (1000, None)}, {"MIN_STEP"}))
    settle()
    chooser = spots.filters.list.others
    # A click on the button would wait for the menu to close.
    chooser.menu().popup(chooser.mapToGlobal(chooser.rect().bottomLeft()))
    (action,) = chooser.menu().actions()
    assert action.text() == "this && that"
    qtbot.mouseClick(chooser.menu(), LEFT, pos=chooser.menu().actionGeometry(action).center())
    settle()
    known = Filters({"sigma": (1.0, None)}, {"MIN_STEP"})
    np.testing.assert_array_equal(other.shown, known.mask(other.features))
    assert Filters.from_dict(other.metadata["filters"]) == known
    said = spots.status.text()
    assert said.startswith(f"“this & that” has these filters, too, and shows {other.shown.sum()}")
    assert "not “photons ≥ 1000”: the layer has no such feature" in said
    viewer.layers.selection.active = other
    settle()
    assert spots.spots.filters == known


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


def test_without_another_layer_the_menu_says_so(spots):
    menu = spots.filters.list.others.menu()
    menu.aboutToShow.emit()
    (action,) = menu.actions()
    assert action.text() == "no other layer of fitted spots"
    assert not action.isEnabled()
