"""Two channels and a mask: one table of cells, with pairs and chance, by a few clicks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog

from napari_spotfit import SpotFits, cells_by_channel, label_spots, simulate_movie, to_points_layer
from napari_spotfit.localization.localize import localize
from napari_spotfit.widgets.results import Results

SHAPE = (96, 128)
SHIFT = np.array((1.4, -2.2))


@pytest.fixture
def cells():
    cells = np.zeros(SHAPE, int)
    cells[4:92, 4:60], cells[4:92, 64:124] = 1, 2
    return cells


@pytest.fixture
def fits():
    """The second channel has two thirds of the spots of the first, moved, and others."""
    from napari_spotfit.simulate import add_spots, expose

    _, truth = simulate_movie(1, shape=SHAPE, spots_per_frame=60, photons=4000, seed=3)
    truth = truth.drop(columns="frame")
    rng = np.random.default_rng(5)
    moved = truth.iloc[:40].assign(y=lambda t: t.y + SHIFT[0], x=lambda t: t.x + SHIFT[1])
    others = truth.iloc[:20].assign(y=rng.uniform(5, 90, 20), x=rng.uniform(5, 120, 20))
    found = []
    for table in (truth, pd.concat([moved, others])):
        light = np.full(SHAPE, 15.0)
        add_spots(light, table)
        found.append(localize(expose(light, rng, 100, 1), sigma=1.3))
    return found


@pytest.fixture
def layers(viewer, fits, cells):
    image = [viewer.add_image(np.zeros(SHAPE, np.uint8), name=name) for name in ("GFP", "RFP")]
    made = [to_points_layer(one, of) for one, of in zip(fits, image, strict=True)]
    viewer.add_labels(cells, name="cells")
    return [viewer.add_layer(one) for one in made]


@pytest.fixture
def results(viewer, layers, qtbot):
    widget = Results(viewer)
    viewer.window.add_dock_widget(widget, name="Results")
    widget.resize(900, 300)
    bar = widget.tabs.tabBar()
    place = [bar.tabText(one) for one in range(bar.count())].index("Channels")
    widget.tabs.setCurrentIndex(place)
    counted(qtbot, widget.channels)
    return widget


def counted(qtbot, page):
    qtbot.waitUntil(lambda: not page._soon.isActive() and not page.work.busy and no_worker())


def shown(page):
    named = page._named()
    return None if named is None else named.table.reset_index(drop=True)


def test_one_table_that_is_saved(results, layers, fits, cells, qtbot, press, tmp_path, monkeypatch):
    page = results.channels
    page.radius.put(4.0)
    counted(qtbot, page)
    expected = cells_by_channel(dict(zip(("GFP", "RFP"), fits, strict=True)), cells, 4.0)
    pd.testing.assert_frame_equal(shown(page), expected, check_dtype=False)
    counts = [np.bincount(label_spots(one, cells), minlength=3)[1:] for one in fits]
    assert expected["GFP_count"].tolist() == counts[0].tolist()
    assert expected["RFP_count"].tolist() == counts[1].tolist()
    assert expected["GFP+RFP_pairs"].sum() > 25
    assert "GFP + RFP: " in page.words.text()
    assert " by chance, excess " in page.words.text()
    asked = []

    def ask(parent, title, name, kinds):
        asked.append(name)
        return str(tmp_path / name), kinds

    monkeypatch.setattr(QFileDialog, "getSaveFileName", ask)
    press(page.export.save_button)
    qtbot.waitUntil(lambda: "saved as" in results.status.text())
    assert asked == ["GFP+RFP.cells.csv"]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / asked[0]), expected, check_dtype=False)


def test_the_labels_get_a_column_for_each_channel(results, viewer, fits, cells):
    features = viewer.layers["cells"].features.set_index("index")
    for name, one in zip(("GFP", "RFP"), fits, strict=True):
        label = label_spots(one, cells)
        assert features.loc[2, f"{name}_count"] == np.count_nonzero(label == 2)


def test_registered_the_pairs_are_close(results, qtbot, press):
    page = results.channels
    page.radius.put(0.5)
    counted(qtbot, page)
    apart = shown(page)["GFP+RFP_pairs"].sum()
    qtbot.keyClick(page.register, Qt.Key.Key_Space)
    counted(qtbot, page)
    assert "RFP mapped onto GFP: ±" in page.words.text()
    assert shown(page)["GFP+RFP_pairs"].sum() > apart + 20


def test_hidden_spots_and_unticked_channels_do_not_count(results, layers, fits, cells, qtbot):
    page = results.channels
    before = shown(page)["GFP_count"].sum()
    results.go_to(layers[0])
    filters = results.spots.filters.with_range("x", None, 60.0)
    results.spots.set_filters(filters)
    qtbot.waitUntil(lambda: shown(page)["GFP_count"].sum() < before)
    kept = layers[0].features["x"].to_numpy() <= 60
    labels = label_spots(fits[0][kept], cells)
    assert shown(page)["GFP_count"].sum() == np.count_nonzero(labels)
    page.list.item(1).setCheckState(Qt.CheckState.Unchecked)
    qtbot.waitUntil(lambda: shown(page) is None)
    assert "Tick two or more results" in page.words.text()
    assert not page.export.save_button.isEnabled()


def test_without_cells_all_are_in_one_row(results, qtbot):
    page = results.channels
    page.labels.setCurrentIndex(0)
    counted(qtbot, page)
    assert len(shown(page)) == 1


def test_pixels_of_other_places_are_refused(results, layers, qtbot):
    page = results.channels
    layers[1].scale = (2, 2)
    qtbot.waitUntil(lambda: "lie differently (scale)" in page.words.text())
    assert shown(page) is None


def test_every_control_is_explained(results):
    page = results.channels
    for control in (page.list, page.radius, page.register, page.labels, page.view):
        assert control.toolTip().startswith("<p>")
        assert control.accessibleName() or control.text()


def test_doubtful_spots_that_count_are_named(results, layers, qtbot):
    page = results.channels
    layers[1].features = layers[1].features.assign(good=1.0)
    layers[0].features = layers[0].features.assign(
        good=np.where(np.arange(len(layers[0].data)) < 3, 0.0, 1.0)
    )
    qtbot.waitUntil(lambda: "⚠ 3 doubtful spots count, too" in page.words.text())
    results.go_to(layers[0])
    results.spots.set_filters(results.spots.filters.with_good_only(True))
    qtbot.waitUntil(lambda: "doubtful" not in page.words.text())


def test_heights_count_by_what_the_page_asks_for(viewer, qtbot):
    image = viewer.add_image(np.zeros((64, 64), np.uint8), name="both")
    for name, height in (("GFP", 0.0), ("RFP", 300.0)):
        columns = {"z": np.full(3, height), "y": np.array([9.0, 30, 50]), "x": np.full(3, 20.0)}
        columns["stop_condition"] = np.full(3, 3, np.uint8)
        fits = SpotFits(columns, units={"z": "nm"})
        viewer.add_layer(to_points_layer(fits, image)).name = f"{name} spots"
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results")
    results.tabs.setCurrentWidget(results.channels)
    counted(qtbot, results.channels)
    assert "“Pixels per z” must be how many pixels one of these is" in results.channels.words.text()
    box = results.channels.z_scale.box
    assert not results.channels.z_scale.isHidden()
    for scale, pairs in (("0", 3), ("0.01", 0)):
        box.setFocus()
        box.selectAll()
        qtbot.keyClicks(box, scale)
        qtbot.keyClick(box, Qt.Key.Key_Return)
        counted(qtbot, results.channels)
        assert f"GFP + RFP: {pairs} pairs" in results.channels.words.text()
