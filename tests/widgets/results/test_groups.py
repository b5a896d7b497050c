"""The page of groups: its rows, what it says, what a click selects, and what is saved."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import settle
from qtpy.QtCore import Qt
from spot_table import dock

from napari_spotfit import Flag, localize, simulate_movie, summarize_groups, to_points_layer
from napari_spotfit.analysis.filters import Filters

PLACE = {"scale": (1, 0.1, 0.1), "units": ("s", "um", "um")}


@pytest.fixture(scope="module")
def crowd():
    light = {"photons": 1500, "background": 10, "sigma": 1.3}
    movie, _ = simulate_movie(2, shape=(64, 72), spots_per_frame=40, seed=3, **light)
    return movie, localize(movie)


@pytest.fixture
def layer(viewer, crowd):
    movie, fits = crowd
    image = viewer.add_image(movie, name="crowd", **PLACE)
    layer = viewer.add_layer(to_points_layer(fits, image))
    viewer.layers.selection.active = layer
    return layer


@pytest.fixture
def page(viewer, layer, qtbot):
    results = dock(viewer)
    results.tabs.setCurrentWidget(results.groups)
    wait(results.groups, qtbot)
    return results.groups


def wait(page, qtbot):
    settle()
    qtbot.waitUntil(lambda: not page.work.busy)
    settle()


def cells(page):
    """Return the table as it is shown."""
    model = page.view.numbers
    across = Qt.Orientation.Horizontal
    heads = [model.headerData(column, across) for column in range(model.columnCount())]
    rows = [
        [model.data(model.index(row, column)) for column in range(model.columnCount())]
        for row in range(model.rowCount())
    ]
    return pd.DataFrame(rows, columns=heads)


def test_the_groups_are_those_of_the_library_the_largest_first(page, crowd, layer):
    _, fits = crowd
    expected = summarize_groups(fits[fits.valid])
    several = expected[expected["count"] > 1].sort_values("count", ascending=False, kind="stable")
    shown = cells(page)
    assert shown["group"].astype(int).tolist() == several["group"].tolist()
    assert shown["count"].astype(int).tolist() == several["count"].tolist()
    times = shown["light / single"].astype(float)
    np.testing.assert_allclose(times, several["photons_over_single"], rtol=0.05)
    singles = int((expected["count"] == 1).sum())
    words = page.words.text()
    assert words.startswith(f"{several['count'].sum()} spots in {len(several)} groups")
    assert f"{singles} alone" in words
    doubtful = np.count_nonzero(~fits.good & (fits.group_size > 1))
    assert (f"⚠ {doubtful} doubtful spots count" in words) == (doubtful > 0)


def test_doubtful_spots_of_groups_are_counted_with_a_warning(page, layer, qtbot):
    rows = np.flatnonzero(layer.features["group_size"] > 1)[:3]
    flags = layer.features["flags"].to_numpy().copy()
    flags[rows] = int(Flag.BLOB)
    good = np.where(np.isin(np.arange(len(flags)), rows), 0.0, layer.features["good"])
    layer.features = layer.features.assign(flags=flags, good=good)
    wait(page, qtbot)
    assert page.words.text().endswith("⚠ 3 doubtful spots count, too: hide them under Filter.")
    page._spots.set_filters(Filters({"good": (0.5, None)}))
    wait(page, qtbot)
    assert "doubtful" not in page.words.text()


def test_a_click_selects_the_group_that_is_shown(page, viewer, layer, qtbot):
    group = int(cells(page)["group"][0])
    viewer.dims.set_current_step(0, 1 - int(layer.data[layer.features["group"] == group][0, 0]))
    page.view.clicked.emit(page.view.numbers.index(0, 0))
    own = np.flatnonzero(layer.features["group"] == group)
    assert viewer.dims.current_step[0] == layer.data[own[0], 0]
    assert layer.selected_data == {*own.tolist()}
    shown = np.ones(len(layer.data), bool)
    shown[own[0]] = False
    layer.selected_data = set()
    layer.shown = shown
    wait(page, qtbot)
    place = cells(page)["group"].astype(int).tolist().index(group)
    assert int(cells(page)["count"][place]) == len(own) - 1
    page.view.clicked.emit(page.view.numbers.index(place, 0))
    assert layer.selected_data == {*own[1:].tolist()}


def test_lengths_follow_the_unit_and_all_groups_are_saved(page, viewer, crowd, qtbot, tmp_path):
    _, fits = crowd
    in_pixels = cells(page)
    page._spots.set_physical(True)
    wait(page, qtbot)
    in_um = cells(page)
    np.testing.assert_allclose(
        in_um["y [µm]"].astype(float), in_pixels["y [px]"].astype(float) * 0.1, atol=1e-3
    )
    path = tmp_path / "groups.csv"
    with qtbot.waitSignal(page.said):
        page.export.save_to(path)
    saved, expected = pd.read_csv(path), summarize_groups(fits[fits.valid])
    np.testing.assert_allclose(saved["y [µm]"], expected["y"] * 0.1)
    np.testing.assert_array_equal(saved["count"], expected["count"])


def test_spots_without_groups_say_how_to_get_them(viewer, crowd, qtbot, page):
    movie, _ = crowd
    single = viewer.add_layer(to_points_layer(localize(movie, neighbours="exclude")))
    viewer.layers.selection.active = single
    wait(page, qtbot)
    assert "fitted one by one" in page.words.text()
    assert page.view.numbers.rowCount() == 0
    assert not page.export.save_button.isEnabled()


def test_a_spot_of_no_group_is_left_out(page, layer, qtbot):
    before = len(page._groups.table)
    features = layer.features.copy()
    alone = int(np.flatnonzero(features["group_size"] == 1)[0])
    features.loc[alone, ["group", "group_size"]] = np.nan
    layer.features = features
    wait(page, qtbot)
    assert len(page._groups.table) == before - 1
    layer.shown = np.zeros(len(layer.data), bool)
    wait(page, qtbot)
    assert "No spots are shown" in page.words.text()
