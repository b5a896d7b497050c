"""Spots per cell, for labels wherever they lie, against napari's own coordinates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker, settle
from hand import LEFT
from qtpy.QtWidgets import QApplication
from spot_table import PIXEL, add_spots, dock, make_fits

from napari_spotfit import (
    fit_layer,
    load_fits,
    localize,
    per_label,
    simulate_movie,
    to_points_layer,
)
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.layers.points import points_arguments
from napari_spotfit.widgets.layers.result_layers import show_result
from napari_spotfit.widgets.saved_layers import read_layer

PLACE = {"scale": (PIXEL, PIXEL), "units": ("um", "um")}


def cells(*shape: int) -> np.ndarray:
    """Return four cells and background, one of them where no spot is."""
    labels = np.zeros(shape, np.int32)
    rows, columns = shape[-2] // 3, shape[-1] // 2
    labels[..., :rows, :columns], labels[..., 2 * rows :, columns:] = 2, 40
    labels[..., rows + 2 : 2 * rows, :columns] = 7
    labels[..., 0, -1] = 9
    return labels


def count(spots, labels, qtbot):
    """Choose a Labels layer on the page and wait for its numbers."""
    spots.tabs.setCurrentWidget(spots.cells)
    spots.cells.labels.layer = labels
    wait(spots, qtbot)


def wait(spots, qtbot):
    settle()
    page = spots.cells
    qtbot.waitUntil(lambda: not (page.work.busy or page._soon.isActive()))
    settle()
    qtbot.waitUntil(lambda: not (page.work.busy or page._soon.isActive()))


def expected_labels(layer, labels, unit=1):
    """Return the label at each point, through the world as napari has it."""
    found = []
    for point in layer.data:
        world = unit * np.asarray(layer.data_to_world(point))
        place = np.rint(labels.world_to_data(world)).astype(int)
        inside = np.all((place >= 0) & (place < labels.data.shape))
        found.append(labels.data[tuple(place)] if inside else 0)
    return np.array(found)


def shown_table(page):
    """Return the table on the page as numbers by its titles."""
    return page._named().table


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ((64, 64), PLACE),
        ((16, 16), {"scale": (4 * PIXEL, 4 * PIXEL), "units": ("um", "um"), "translate": (0.2, 0)}),
        ((64, 64), {**PLACE, "rotate": 20, "translate": (1, -0.5)}),
        ((64, 64), {"scale": (100, 100), "units": ("nm", "nm")}),
        ((5, 64, 64), {"scale": (1, PIXEL, PIXEL), "units": ("pixel", "um", "um")}),
    ],
)
def test_every_spot_knows_its_cell(viewer, qtbot, shape, place):
    layer = add_spots(viewer, 200)
    data = cells(*shape)
    if len(shape) == 3:
        data[3] = np.where(data[3], data[3] + 1, 0)
    labels = viewer.add_labels(data, name="cells", **place)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    expected = expected_labels(layer, labels, 1000 if "nm" in place["units"] else 1)
    assert len(set(expected)) >= 4
    np.testing.assert_array_equal(layer.features["label"], expected)
    table = shown_table(spots.cells)
    assert table["label"].tolist() == sorted(set(np.unique(data)) - {0})
    assert table["count"].tolist() == [np.sum(expected == label) for label in table["label"]]
    assert 0 in set(table["count"])


def test_points_that_are_turned_and_sheared(viewer, qtbot):
    place = {"rotate": 30, "translate": (4, -3, 2), "affine": np.diag([1, 1, 1.3, 1])}
    layer = add_spots(viewer, 200, scale=(2, 0.5, 0.7), units=None, shear=(0, 0, 0.2), **place)
    labels = viewer.add_labels(cells(60, 60), scale=(0.6, 0.6), rotate=15)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    expected = expected_labels(layer, labels)
    assert len(set(expected)) >= 3
    np.testing.assert_array_equal(layer.features["label"], expected)
    # It follows when the cells are moved.
    labels.translate = (5, 3)
    wait(spots, qtbot)
    moved = expected_labels(layer, labels)
    assert not np.array_equal(expected, moved)
    np.testing.assert_array_equal(layer.features["label"], moved)


def test_the_table_follows_filter_feature_unit_and_brush(viewer, qtbot):
    layer = add_spots(viewer, 200)
    labels = viewer.add_labels(cells(64, 64), name="cells", **PLACE)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    page = spots.cells
    spots.spots.set_filters(Filters({"sigma": (1.5, None)}))
    wait(spots, qtbot)
    page.feature.choose("sigma")
    spots.units.setCurrentIndex(1)
    wait(spots, qtbot)
    label, sigma = layer.features["label"], layer.features["sigma"]
    table = shown_table(page).set_index("label")
    assert list(table) == ["area [µm²]", "count", "sigma sum [µm]", "sigma mean [µm]"]
    for one in (2, 7, 40):
        there = layer.shown & (label == one)
        assert table.loc[one, "area [µm²]"] == pytest.approx(np.sum(labels.data == one) * PIXEL**2)
        assert table.loc[one, "count"] == there.sum() < (label == one).sum()
        assert table.loc[one, "sigma sum [µm]"] == pytest.approx(sigma[there].sum() * PIXEL)
        assert table.loc[one, "sigma mean [µm]"] == pytest.approx(sigma[there].mean() * PIXEL)
    assert np.isnan(table.loc[9, "sigma mean [µm]"])
    assert f"{table['count'].sum()} of {layer.shown.sum()} spots in 4 cells" in page.hint.text()
    # Features are in pixels, as those of the spots.
    known = labels.features.set_index("index")
    assert known["spots"].to_dict() == table["count"].to_dict()
    assert known.loc[2, "sigma_mean"] * PIXEL == pytest.approx(table.loc[2, "sigma mean [µm]"])
    labels.data_setitem(np.nonzero(labels.data == 7), 2)
    wait(spots, qtbot)
    both = shown_table(page).set_index("label")["count"]
    assert both.to_dict() == {2: table.loc[2, "count"] + table.loc[7, "count"], 9: 0,
                              40: table.loc[40, "count"]}  # fmt: skip


def test_cells_are_coloured_by_count_and_back(viewer, qtbot):
    add_spots(viewer, 200)
    labels = viewer.add_labels(cells(64, 64), name="cells", **PLACE)
    labels.features = {"index": [2, 7], "kind": ["round", "long"]}
    spots = dock(viewer)
    count(spots, labels, qtbot)
    page, earlier = spots.cells, labels.colormap
    qtbot.mouseClick(page.color_button, LEFT)
    counts = shown_table(page).set_index("label")["count"]
    bright = {label: labels.get_color(label)[:3].sum() for label in counts.index}
    assert sorted(bright, key=bright.get) == counts.sort_values().index.tolist()
    assert labels.get_color(0) is None or labels.get_color(0)[3] == 0
    # Other spots, other colours; a second widget knows of them.
    spots.spots.set_filters(Filters({"y": (None, 30.0)}))
    wait(spots, qtbot)
    np.testing.assert_allclose(labels.get_color(40), labels.get_color(9))
    assert labels.colormap is not earlier
    qtbot.mouseClick(page.color_button, LEFT)
    assert labels.colormap is earlier
    assert labels.features.set_index("index").loc[7, "kind"] == "long"
    qtbot.mouseClick(page.color_button, LEFT)
    assert page.color_button.isChecked()
    # Colours of the user's own stay.
    labels.new_colormap(3)
    own = labels.colormap
    assert not page.color_button.isChecked()
    spots.spots.set_filters(Filters())
    wait(spots, qtbot)
    assert labels.colormap is own


def test_a_click_selects_the_spots_of_a_cell(viewer, qtbot):
    layer = add_spots(viewer, 100)
    labels = viewer.add_labels(cells(64, 64), **PLACE)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    view = spots.cells.view
    place = view.visualRect(view.model().index(1, 0)).center()
    qtbot.mouseClick(view.viewport(), LEFT, pos=place)
    settle()
    assert set(layer.selected_data) == set(np.flatnonzero(layer.features["label"] == 7))
    assert layer.selected_data


def test_the_table_is_saved_and_copied(viewer, qtbot, tmp_path):
    add_spots(viewer, 100)
    labels = viewer.add_labels(cells(64, 64), name="cells", **PLACE)
    spots = dock(viewer)
    assert not spots.cells.export.save_button.isEnabled()
    count(spots, labels, qtbot)
    spots.cells.view.sortByColumn(2, spots.cells.view.horizontalHeader().sortIndicatorOrder())
    path = tmp_path / "cells.csv"
    spots.cells.export.save_to(path)
    qtbot.waitUntil(lambda: f"4 cells saved as {path}" in spots.status.text())
    table = shown_table(spots.cells)
    pd.testing.assert_frame_equal(pd.read_csv(path), table)
    assert table["count"].is_monotonic_increasing or table["count"].is_monotonic_decreasing
    qtbot.mouseClick(spots.cells.export.copy_button, LEFT)
    lines = QApplication.clipboard().text().splitlines()
    assert lines[0].split("\t") == list(table)
    assert len(lines) == 5
    spots.cells.export.save_to(tmp_path / "no such folder" / "cells.csv")
    qtbot.waitUntil(lambda: "cannot be written" in spots.status.text())
    qtbot.waitUntil(no_worker)


def test_the_label_is_saved_with_the_spots(viewer, qtbot, tmp_path):
    layer = add_spots(viewer, 100)
    labels = viewer.add_labels(cells(64, 64), name="cells", **PLACE)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    path = str(tmp_path / "spots.spots.csv")
    layer.save(path, plugin="napari-spotfit")
    fits = load_fits(path)
    assert fits.label.dtype.kind == "i"
    np.testing.assert_array_equal(fits.label, layer.features["label"])
    data, arguments, _ = read_layer(path)
    again = viewer.add_points(data, **arguments)
    pd.testing.assert_series_equal(again.features["label"], layer.features["label"])
    # It is known as ours, so that other cells may replace it.
    labels.data = np.where(labels.data == 7, 8, labels.data)
    spots.layer.layer = again
    wait(spots, qtbot)
    assert 8 in set(again.features["label"])


def test_a_refit_updates_the_layer_whose_cells_were_counted(viewer, qtbot):
    image = viewer.add_image(np.zeros((5, 64, 64), np.uint8), name="movie")
    *_, layer = show_result(viewer, image, points_arguments(make_fits(50)), None, "fit")
    labels = viewer.add_labels(cells(64, 64))
    spots = dock(viewer)
    spots.layer.layer = layer
    count(spots, labels, qtbot)
    assert "label" in layer.features
    spots.spots.set_filters(Filters({"label": (7.0, None)}))
    wait(spots, qtbot)
    *_, again = show_result(viewer, image, points_arguments(make_fits(70, seed=1)), layer, "fit")
    assert again is layer
    wait(spots, qtbot)
    expected = expected_labels(layer, labels)
    np.testing.assert_array_equal(layer.features["label"], expected)
    np.testing.assert_array_equal(layer.shown, expected >= 7)
    assert spots.status.text() == ""


def test_a_label_of_the_users_own_stays(viewer, qtbot):
    layer = add_spots(viewer, 20)
    layer.features = layer.features.assign(label="mine")
    labels = viewer.add_labels(cells(64, 64), name="labels", **PLACE)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    assert set(layer.features["label"]) == {"mine"}
    assert "is not that of “labels”" in spots.cells.hint.text()


def test_labels_that_a_batch_has_found_are_taken_up(viewer, qtbot):
    layer = add_spots(viewer, 50)
    labels = viewer.add_labels(cells(64, 64), name="cells", **PLACE)
    expected = expected_labels(layer, labels)
    layer.features = layer.features.assign(label=expected)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    assert shown_table(spots.cells)["count"].sum() == np.count_nonzero(expected)
    labels.data = np.where(labels.data == 7, 8, labels.data)
    wait(spots, qtbot)
    np.testing.assert_array_equal(layer.features["label"], np.where(expected == 7, 8, expected))


def test_labels_with_too_many_axes_are_refused(viewer, qtbot):
    add_spots(viewer, 20)
    labels = viewer.add_labels(cells(2, 5, 64, 64), name="4d")
    spots = dock(viewer)
    count(spots, labels, qtbot)
    assert "“4d” has 4 axes, more than “movie spots” with 3" in spots.cells.hint.text()
    assert not spots.cells.color_button.isEnabled()
    viewer.layers.remove(labels)
    wait(spots, qtbot)
    assert "Choose a Labels layer" in spots.cells.hint.text()


def test_a_point_that_the_user_adds_is_no_spot_of_a_cell(viewer, qtbot):
    layer = add_spots(viewer, 50)
    labels = viewer.add_labels(np.full((64, 64), 3), **PLACE)
    spots = dock(viewer)
    count(spots, labels, qtbot)
    nothing = dict.fromkeys(("frame", "y", "x", "sigma", "photons"), np.nan)
    layer.feature_defaults = layer.feature_defaults.assign(**nothing)
    layer.add((2, 20, 20))
    wait(spots, qtbot)
    assert layer.features["label"].tolist() == [3] * 50 + [0]
    assert shown_table(spots.cells)["count"].tolist() == [50]
    spots.tabs.setCurrentWidget(spots.summary)
    settle()
    qtbot.waitUntil(lambda: not spots.summary.work.busy)
    assert spots.summary.words.text().startswith("50 spots in 5 frames")


@pytest.mark.parametrize("labels_axes", [2, 4])
def test_spots_of_two_leading_axes_are_counted(viewer, qtbot, labels_axes):
    movie, _ = simulate_movie(6, shape=(64, 64), spots_per_frame=9, photons=3000, seed=1)
    image = viewer.add_image(movie.reshape(2, 3, 64, 64), axis_labels=("t", "z", "y", "x"))
    fits = localize(image.data, sigma=1.3)
    viewer.add_layer(to_points_layer(fits, image))
    data = cells(64, 64) if labels_axes == 2 else cells(2, 3, 64, 64)
    labels = viewer.add_labels(data, name="cells")
    spots = dock(viewer)
    count(spots, labels, qtbot)
    table, expected = shown_table(spots.cells), per_label(fits[fits.valid], data)
    # A spot that is seen in several planes counts in each: page, table and file say so.
    assert "once per plane in which it is seen" in spots.cells.hint.text()
    assert "count, once per plane" in table
    np.testing.assert_array_equal(table["count, once per plane"], expected["count"])
    assert expected["count"].sum() > 0


def test_channels_of_cells_do_not_add_up(viewer, qtbot):
    movie, _ = simulate_movie(2, shape=(64, 64), spots_per_frame=30, photons=3000, seed=1)
    image = viewer.add_image(movie, axis_labels=("c", "y", "x"))
    fits = fit_layer(image, sigma=1.3, viewer=viewer).wait()
    labels = viewer.add_labels(cells(64, 64), name="cells")
    spots = dock(viewer)
    count(spots, labels, qtbot)
    table = shown_table(spots.cells)
    for channel in range(2):
        own = fits[np.asarray(fits.valid) & (fits.channel == channel)]
        expected = per_label(own, labels.data)
        shown = table[table["channel"] == channel]
        assert shown["count"].tolist() == expected["count"].tolist()
        feature = labels.features.set_index("index")[f"spots, channel {channel}"]
        assert feature.loc[expected["label"]].tolist() == expected["count"].tolist()
    spots.cells.color_button.click()
    wait(spots, qtbot)
    assert spots.cells.color_button.isChecked()
