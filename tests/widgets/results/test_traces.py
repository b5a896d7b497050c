"""The light of places over all frames: measured where it is on and off, drawn, and saved."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import settle
from spot_table import dock

from napari_spotfit import fit_at, to_points_layer, trace
from napari_spotfit.simulate import add_spots, expose

PLACES = np.array([(12.3, 14.6), (30.2, 40.7)])
FRAMES, HALF = 12, 6


def movie(seed=0):
    """Return frames in which the first spot is on at first, and the second one afterwards."""
    rng, frames = np.random.default_rng(seed), []
    for number in range(FRAMES):
        light = np.full((48, 56), 10.0)
        y, x = PLACES[int(number >= HALF)]
        add_spots(light, pd.DataFrame({"y": [y], "x": [x], "sigma": 1.3, "photons": 4000.0}))
        frames.append(expose(light, rng, 100, 2.0))
    return np.array(frames)


@pytest.fixture
def image(viewer):
    return viewer.add_image(movie(), name="blinks")


@pytest.fixture
def layer(viewer, image):
    frames = [0, HALF]
    fits = fit_at(image.data, np.column_stack([frames, PLACES]), sigma=1.3, gain=2.0, offset=100)
    return viewer.add_layer(to_points_layer(fits, image))


@pytest.fixture
def page(viewer, layer):
    results = dock(viewer)
    results.tabs.setCurrentWidget(results.traces)
    return results.traces


@pytest.fixture
def measure(press, qtbot):
    def run(page):
        press(page.measure_button)
        qtbot.waitUntil(lambda: not page.work.busy)
        settle()

    return run


def test_all_that_are_shown_are_measured_and_drawn(page, image, layer, measure):
    assert page.plot.isHidden()
    assert not page.export.save_button.isEnabled()
    measure(page)
    assert page.hint.text() == f"2 places in {FRAMES} frames"
    assert page.over.itemText(0) == "photons"
    on = np.arange(FRAMES) < HALF
    for line, bright in zip(page.plot.listDataItems(), (on, ~on), strict=True):
        frames, light = line.getData()
        assert frames.tolist() == list(range(FRAMES))
        assert light[bright] == pytest.approx(4000, rel=0.1)
        assert light[~bright] == pytest.approx(0, abs=300)
    table = page._named().table
    expected = trace(image.data, layer.data[:, 1:], sigma=1.3, gain=2.0, offset=100)
    pd.testing.assert_frame_equal(
        table.set_axis(list(expected), axis=1), expected, check_like=True, rtol=1e-3
    )
    assert {"place", "frame", "y [px]", "photons", "photons_stderr [photons]"} <= set(table)


def test_what_is_selected_is_measured(page, layer, measure, press, qtbot, tmp_path):
    layer.selected_data = {1}
    settle()
    measure(page)
    assert page.hint.text().startswith("1 place in")
    page.over.setCurrentIndex(1)
    page.over.activated.emit(1)
    (line,) = page.plot.listDataItems()
    assert line.getData()[1] == pytest.approx(20, abs=2)  # counts
    assert page.plot.getAxis("left").labelText == page.over.itemText(1)
    page.export.save_to(tmp_path / "a.csv")
    qtbot.waitUntil((tmp_path / "a.csv").exists)
    assert len(pd.read_csv(tmp_path / "a.csv")) == FRAMES


def test_each_channel_is_measured_in_itself(viewer, image, measure):
    second = movie(1)[::-1]  # on and off are exchanged
    both = viewer.add_image(
        np.stack([image.data, second], 1), name="two", axis_labels=("t", "c", "y", "x")
    )
    at = np.array([(0, 0, *PLACES[0]), (0, 1, *PLACES[1])])
    fits = fit_at(both.data, at, sigma=1.3, gain=2.0, offset=100)
    features = fits.to_dataframe().assign(channel=[0.0, 1.0])
    layer = to_points_layer(fits, both)
    layer.features = layer.features.assign(channel=features["channel"])
    viewer.add_layer(layer)
    results = dock(viewer)
    results.tabs.setCurrentWidget(results.traces)
    measure(results.traces)
    table = results.traces._named().table
    assert table["channel"].tolist() == [0] * FRAMES + [1] * FRAMES
    on = table["photons"].to_numpy().reshape(2, FRAMES) > 2000
    assert on.tolist() == [[True] * HALF + [False] * HALF] * 2


def test_what_is_missing_is_said(page, viewer, image, layer, measure, press):
    viewer.layers.remove(image)
    press(page.measure_button)
    assert "is not open" in page.hint.text()
    assert page.hint.failed
    viewer.add_layer(image)
    measure(page)
    assert not page.plot.isHidden()
    layer.features = layer.features.assign(photons=1.0)
    settle()
    assert page.plot.isHidden()
    assert "press Measure" in page.hint.text()
