"""The page "After the fit": spots become an image, which follows them and is saved."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tifffile
from event_loop import settle
from hand import LEFT
from qtpy.QtWidgets import QApplication
from spot_table import dock

from napari_spotfit import SpotFits, merge_blinks, render, to_points_layer
from napari_spotfit.analysis.filters import Filters


def localisations(count=2000, blinks=1):
    """Molecules at places of their own, each seen in ``blinks`` frames in a row."""
    rng = np.random.default_rng(1)
    y, x = (np.repeat(rng.uniform(2, side, count // blinks), blinks) for side in (37, 53))
    columns = {
        "y": y + rng.normal(0, 0.05, count), "x": x + rng.normal(0, 0.05, count),
        "y_stderr": rng.uniform(0.08, 0.12, count).astype(np.float32),
        "x_stderr": rng.uniform(0.08, 0.12, count).astype(np.float32),
        "sigma": np.full(count, 1.3, np.float32), "photons": np.arange(count, dtype=np.float32),
        "frame": np.arange(count) % 50, "stop_condition": np.full(count, 2, np.uint8),
        "flags": np.zeros(count, np.uint32),
    }  # fmt: skip
    return SpotFits(columns, ("frame",))


@pytest.fixture
def layer(viewer):
    raw = viewer.add_image(
        np.zeros((50, 40, 56), np.uint8), scale=(1, 0.1, 0.1), units=("pixel", "um", "um"),
        name="movie",
    )  # fmt: skip
    return viewer.add_layer(to_points_layer(localisations(), raw))


@pytest.fixture
def widget(viewer, layer):
    widget = dock(viewer)
    widget.tabs.setCurrentWidget(widget.after)
    return widget


@pytest.fixture
def page(widget):
    return widget.after


def press_render(page, qtbot):
    qtbot.mouseClick(page.image.button, LEFT)
    qtbot.waitUntil(lambda: "rendered." in page.hint.text())


def image_of(viewer):
    return viewer.layers["movie spots rendered"]


def light(viewer, page):
    finest = page.rendered.image.finest
    return float(np.asarray(image_of(viewer).data[0], float).sum() / finest**2)


def test_a_button_renders_the_spots_that_are_shown(viewer, widget, page, qtbot):
    assert not page.save_button.isEnabled()
    press_render(page, qtbot)
    assert page.hint.text() == "2\u202f000 localisations are rendered."
    assert light(viewer, page) == pytest.approx(2000, rel=1e-4)
    assert page.save_button.isEnabled()
    widget.spots.set_filters(Filters({"photons": (0.0, 99.5)}))
    qtbot.waitUntil(lambda: light(viewer, page) < 101)
    assert light(viewer, page) == pytest.approx(100, rel=1e-3)
    widget.spots.set_filters(Filters())
    qtbot.waitUntil(lambda: light(viewer, page) > 1999)


def test_looks_change_it_at_once(viewer, page, qtbot):
    press_render(page, qtbot)
    sharp, first = page.rendered.image.limit, image_of(viewer)
    page.by.setCurrentText("the spots' width")
    page.by.activated.emit(page.by.currentIndex())
    qtbot.waitUntil(lambda: page.rendered.image.limit < sharp / 2)
    assert image_of(viewer) is first
    page.colours.setCurrentIndex(1)
    page.colours.activated.emit(1)
    page.colour.choose("photons")
    qtbot.waitUntil(lambda: image_of(viewer).rgb)
    assert len(viewer.layers) == 3
    assert image_of(viewer).metadata["colour_by"] == "photons"


def test_it_is_saved_with_its_pixel_size(page, layer, qtbot, tmp_path):
    press_render(page, qtbot)
    page.oversampling.put(8)
    page.save_to(tmp_path / "image.ome.tif")
    qtbot.waitUntil(lambda: "saved" in page.hint.text())
    assert page.hint.text() == "image.ome.tif saved: 320 × 448 pixels."
    with tifffile.TiffFile(tmp_path / "image.ome.tif") as file:
        assert 'PhysicalSizeY="12.5"' in file.ome_metadata
        expected = render(localisations(), 8, shape=(40, 56))
        np.testing.assert_allclose(file.asarray(), expected, rtol=0, atol=1e-5)


def test_what_is_wrong_is_said(widget, page, layer, qtbot, tmp_path):
    press_render(page, qtbot)
    page.save_to(tmp_path / "image.png")
    qtbot.waitUntil(lambda: ".tif" in page.hint.text())
    widget.spots.set_filters(Filters({"photons": (-2.0, -1.0)}))
    settle()
    qtbot.mouseClick(page.image.button, LEFT)
    assert "No spots are shown" in page.hint.text()


def test_nothing_follows_the_spots_once_results_is_closed(viewer, widget, page, layer, qtbot):
    press_render(page, qtbot)
    before = light(viewer, page)
    rendered = page.rendered
    viewer.window.remove_dock_widget(widget)
    settle()
    layer.shown = False
    settle()
    assert float(np.asarray(rendered.layer.data[0], float).sum()) > 0
    assert before == pytest.approx(2000, rel=1e-4)


def test_the_image_is_found_again_when_results_is_opened_again(viewer, widget, page, layer, qtbot):
    press_render(page, qtbot)
    viewer.window.remove_dock_widget(widget)
    settle()
    again = dock(viewer)
    again.tabs.setCurrentWidget(again.after)
    press_render(again.after, qtbot)
    assert len(viewer.layers) == 3
    layer.shown = layer.features["photons"] < 99.5
    qtbot.waitUntil(lambda: light(viewer, again.after) < 101)


def test_a_removed_image_is_made_again_by_its_button_only(viewer, page, layer, qtbot):
    press_render(page, qtbot)
    viewer.layers.remove(image_of(viewer))
    layer.features = layer.features.copy()
    settle()
    qtbot.wait(300)
    assert len(viewer.layers) == 2
    page.hint.say("")
    press_render(page, qtbot)
    assert light(viewer, page) == pytest.approx(2000, rel=1e-4)
    layer.shown = layer.features["photons"] < 99.5
    qtbot.waitUntil(lambda: light(viewer, page) < 101)


@pytest.fixture
def blinking(viewer, layer):
    """Each molecule is seen in four frames in a row, at the same place."""
    fits = localisations(blinks=4)
    viewer.layers.remove(layer)
    return viewer.add_layer(to_points_layer(fits, viewer.layers["movie"]))


@pytest.fixture
def of_blinks(viewer, blinking):
    widget = dock(viewer)
    widget.tabs.setCurrentWidget(widget.after)
    return widget


def test_blinks_are_merged_rendered_and_taken_back(viewer, of_blinks, blinking, qtbot):
    page = of_blinks.after
    press_render(page, qtbot)
    expected = merge_blinks(localisations(blinks=4))
    qtbot.mouseClick(page.merge.button, LEFT)
    qtbot.waitUntil(lambda: "events." in page.hint.text())
    assert len(blinking.data) == len(expected) < 700
    assert page.hint.text() == f"2\u202f000 spots are {len(expected)} events."
    np.testing.assert_allclose(blinking.features["photons"], expected.photons)
    assert [step["name"] for step in blinking.metadata["history"]] == ["merge_blinks"]
    qtbot.waitUntil(lambda: light(viewer, page) < len(expected) + 1)
    page._history.undo()
    settle()
    assert len(blinking.data) == 2000
    assert blinking.metadata["history"] == []
    qtbot.waitUntil(lambda: light(viewer, page) > 1990)
    page._history.redo()
    settle()
    assert len(blinking.data) == len(expected)


def test_only_spots_that_are_shown_are_merged_and_filters_come_back(of_blinks, blinking, qtbot):
    page, spots = of_blinks.after, of_blinks.spots
    kept = Filters({"photons": (0.0, 399.5)})
    spots.set_filters(kept)
    settle()
    qtbot.mouseClick(page.merge.button, LEFT)
    qtbot.waitUntil(lambda: "events." in page.hint.text())
    assert page.hint.text().startswith("400 spots are ")
    settle()
    assert not spots.filters
    assert blinking.shown.all()
    page._history.undo()
    settle()
    assert spots.filters == kept
    assert blinking.shown.sum() == 400


@pytest.fixture
def drifting(viewer, layer):
    """Molecules that are seen again and again, while all of them move."""
    rng = np.random.default_rng(2)
    molecule, frame = rng.integers(0, 300, 20_000), np.sort(rng.integers(0, 1000, 20_000))
    path = np.column_stack([0.001 * frame, np.sin(frame / 200)])
    fixed = rng.uniform(3, 36, (300, 2))[molecule]
    places = fixed + path + rng.normal(0, 0.05, (20_000, 2))
    columns = {"y": places[:, 0], "x": places[:, 1], "frame": frame}
    columns |= {f"{axis}_stderr": np.full(20_000, 0.05, np.float32) for axis in "yx"}
    columns |= {"photons": np.full(20_000, 500.0, np.float32), "fixed": fixed[:, 0]}
    columns |= {
        "stop_condition": np.full(20_000, 2, np.uint8),
        "flags": np.zeros(20_000, np.uint32),
    }
    viewer.layers.clear()
    raw = viewer.add_image(np.zeros((1000, 40, 40), np.uint8), name="movie")
    return viewer.add_layer(to_points_layer(SpotFits(columns, ("frame",)), raw))


def test_drift_is_subtracted_drawn_and_taken_back(viewer, drifting, qtbot):
    widget = dock(viewer)
    widget.tabs.setCurrentWidget(widget.after)
    page = widget.after
    press_render(page, qtbot)
    blurred = page.rendered.image.limit
    before = drifting.data.copy()
    assert page.plot.isHidden()
    qtbot.mouseClick(page.drift.button, LEFT)
    qtbot.waitUntil(lambda: "subtracted" in page.hint.text())
    apart = drifting.features["y"] - drifting.features["fixed"]
    assert apart.std() < 0.06
    assert np.abs(drifting.data[:, 1] - drifting.features["y"]).max() < 1e-9
    assert not page.plot.isHidden()
    assert len(page.plot.curves[0].line.getData()[0]) == 1000
    assert [step["name"] for step in drifting.metadata["history"]] == [
        "estimate_drift", "subtract_drift",
    ]  # fmt: skip
    qtbot.waitUntil(lambda: page.rendered.image.limit > 1.5 * blurred)
    qtbot.mouseClick(page.python_button, LEFT)
    lines = QApplication.clipboard().text().splitlines()
    assert "drift = napari_spotfit.estimate_drift(fits, method='aim')" in lines
    assert "fits = napari_spotfit.subtract_drift(fits, drift)" in lines
    page._history.undo()
    settle()
    np.testing.assert_array_equal(drifting.data, before)


def test_precision_and_resolution_are_measured_in_the_layers_units(viewer, layer, qtbot):
    rng = np.random.default_rng(4)
    viewer.layers.remove(layer)
    count = 3000
    where = rng.uniform(3, 36, (count // 5, 2))
    places = np.repeat(where[rng.permutation(np.repeat(np.arange(count // 5), 5))], 4, axis=0)
    columns = dict(zip("yx", (places + rng.normal(0, 0.05, places.shape)).T, strict=True))
    columns |= {"frame": (np.repeat(rng.integers(0, 10_000, count), 4) + np.tile(range(4), count))}
    columns |= {f"{axis}_stderr": np.full(4 * count, 0.04, np.float32) for axis in "yx"}
    columns |= {"photons": np.full(4 * count, 500.0, np.float32)}
    columns |= {
        "stop_condition": np.full(4 * count, 2, np.uint8),
        "flags": np.zeros(4 * count, "u4"),
    }
    layer = viewer.add_layer(to_points_layer(SpotFits(columns, ("frame",)), viewer.layers["movie"]))
    widget = dock(viewer)
    widget.tabs.setCurrentWidget(widget.after)
    page = widget.after
    widget.units.setCurrentIndex(1)
    for row in (page.drift, page.image):
        row.box.setChecked(False)
    qtbot.mouseClick(page.run_button, LEFT)
    qtbot.waitUntil(lambda: "Resolution" in page.hint.text())
    found = re.search(r"Precision ([\d.]+) µm \(NeNA\), ([\d.]+) times", page.hint.text())
    assert float(found[1]) == pytest.approx(0.005, rel=0.05)
    assert float(found[2]) == pytest.approx(1.25, rel=0.05)
    assert not page.rings.isHidden()
    assert len(page._ring_curve.getData()[0]) > 10
    # Merged spots have no pairs in successive frames any more, but a resolution.
    page.hint.say("")
    qtbot.mouseClick(page.precision.button, LEFT)
    qtbot.waitUntil(lambda: "Resolution" in page.hint.text())
    assert "No precision" in page.hint.text()
    assert len(layer.data) < 2 * count


def test_one_button_takes_all_steps(viewer, of_blinks, blinking, qtbot):
    page = of_blinks.after
    for row in (page.drift, page.precision):
        row.box.setChecked(False)
    qtbot.mouseClick(page.run_button, LEFT)
    qtbot.waitUntil(lambda: "rendered." in page.hint.text())
    events = len(blinking.data)
    assert events < 700
    assert page.hint.text() == (
        f"2\u202f000 spots are {events} events. {events} localisations are rendered."
    )
    assert light(viewer, page) == pytest.approx(events, rel=1e-3)


def test_the_steps_are_copied_as_python(of_blinks, blinking, qtbot, tmp_path):
    page = of_blinks.after
    for row in (page.drift, page.precision):
        row.box.setChecked(False)
    qtbot.mouseClick(page.run_button, LEFT)
    qtbot.waitUntil(lambda: "rendered." in page.hint.text())
    page.oversampling.put(4)
    qtbot.mouseClick(page.python_button, LEFT)
    script = QApplication.clipboard().text()
    localisations(blinks=4).save(tmp_path / "spots.spots.csv")
    script = script.replace('"spots.spots.parquet"', repr(str(tmp_path / "spots.spots.csv")))
    made = {}
    exec(script, made)
    expected = render(merge_blinks(localisations(blinks=4)), 4, shape=(40, 56))
    np.testing.assert_allclose(made["image"], expected, atol=1e-5)


def test_filters_are_among_the_steps(of_blinks, blinking, qtbot, tmp_path):
    page = of_blinks.after
    of_blinks.spots.set_filters(Filters({"photons": (0.0, 399.5)}))
    settle()
    qtbot.mouseClick(page.merge.button, LEFT)
    qtbot.waitUntil(lambda: "events." in page.hint.text())
    qtbot.mouseClick(page.python_button, LEFT)
    script = QApplication.clipboard().text()
    fits = localisations(blinks=4)
    fits.save(tmp_path / "spots.spots.csv")
    made = {}
    exec(script.replace('"spots.spots.parquet"', repr(str(tmp_path / "spots.spots.csv"))), made)
    assert len(made["fits"]) == len(blinking.data) == len(merge_blinks(fits[fits.photons < 399.5]))


def test_merging_twice_is_refused_in_words(of_blinks, blinking, qtbot):
    page = of_blinks.after
    for _ in range(2):
        page.hint.say("")
        qtbot.mouseClick(page.merge.button, LEFT)
        qtbot.waitUntil(lambda: page.hint.text() not in ("", "Working…"))
    assert "merged" in page.hint.text()
    assert page.merge.button.isEnabled()
