"""Medians, spreads and counts over frames of the spots that are shown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker, settle
from hand import LEFT
from qtpy.QtCore import QPoint, QRect, Qt
from spot_table import PIXEL, add_spots, dock

from napari_spotfit import (
    SpotFits,
    fit_layer,
    localize,
    per_frame,
    simulate_movie,
    to_points_layer,
)
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.layers.points import fits_of_features
from napari_spotfit.widgets.results import Results

SPREAD = 1.482602218505602


@pytest.fixture
def page(spots, qtbot):
    spots.tabs.setCurrentWidget(spots.summary)
    wait(spots.summary, qtbot)
    return spots.summary


def wait(page, qtbot):
    settle()
    qtbot.waitUntil(lambda: not page.work.busy)
    settle()


def row(page, title):
    """Return the texts of a row of the table by their headings."""
    table = page.table
    titles = [table.verticalHeaderItem(row).text() for row in range(table.rowCount())]
    heads = [table.horizontalHeaderItem(column).text() for column in range(table.columnCount())]
    texts = [table.item(titles.index(title), column).text() for column in range(len(heads))]
    return dict(zip(heads, texts, strict=True))


def choose(page, title):
    """Choose what is drawn, with the keyboard."""
    page.over.setCurrentIndex(page.over.findText(title))
    page.over.activated.emit(page.over.currentIndex())


def test_numbers_follow_the_filter_and_the_unit(spots, layer, page, qtbot):
    spots.spots.set_filters(Filters({"photons": (1000.0, None)}))
    wait(page, qtbot)
    shown = layer.features[layer.shown]
    sigma = shown["sigma"].to_numpy(float)
    for unit, factor in (("px", 1), ("µm", PIXEL)):
        texts = row(page, f"sigma [{unit}]")
        median = np.median(sigma)
        numbers = (median, SPREAD * np.median(abs(sigma - median)), 0.05)
        numbers += tuple(np.percentile(sigma, (5, 95)))
        assert list(texts) == ["median", "spread", "error", "5 %", "95 %"]
        for text, expected in zip(texts.values(), numbers, strict=True):
            assert float(text) == pytest.approx(expected * factor, abs=0.0006)
        counts = np.bincount(shown["frame"].astype(int), minlength=5)
        density = counts.mean() / (64 * factor) ** 2
        assert page.words.text().replace("\u202f", "") == (
            f"{len(shown)} spots in 5 frames, {counts.mean():.4g} ± {counts.std(ddof=1):.2g} "
            f"per frame; {density:.3g} per {unit}² and frame"
        )
        spots.units.setCurrentIndex(1)
        wait(page, qtbot)
    # The background has no standard error here.
    assert row(page, "background [counts/px]")["error"] == ""


def test_a_plot_over_frames(spots, layer, page, qtbot):
    spots.spots.set_filters(Filters({"frame": (0.0, 3.0)}))
    wait(page, qtbot)
    across, up = page.curve.getData()
    frames = layer.features["frame"]
    assert across.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(up, [*np.bincount(frames.astype(int))[:4], 0])
    spots.units.setCurrentIndex(1)
    wait(page, qtbot)
    choose(page, "median sigma [µm]")
    across, up = page.curve.getData()
    medians = layer.features.groupby("frame")["sigma"].median() * PIXEL
    np.testing.assert_allclose(up, [*medians[:4], np.nan])
    (low, high), (bottom, top) = page.plot.getViewBox().viewRange()
    assert low <= 0
    assert high >= 4
    assert bottom <= np.nanmin(up)
    assert top >= np.nanmax(up)
    # The choice stays when other spots are shown.
    spots.spots.set_filters(Filters())
    wait(page, qtbot)
    assert page.over.currentText() == "median sigma [µm]"
    assert np.isfinite(page.curve.getData()[1]).all()


def test_only_the_frames_that_were_fitted_are_counted(viewer, qtbot):
    layer = add_spots(viewer, 60)
    later = layer.features["frame"].to_numpy() >= 2
    layer.metadata = {**layer.metadata, "frames": [[2, 5]]}
    layer.data, layer.features = layer.data[later], layer.features[later].reset_index(drop=True)
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.summary)
    wait(spots.summary, qtbot)
    assert spots.summary.curve.getData()[0].tolist() == [2, 3, 4]
    assert " in 3 frames" in spots.summary.words.text()


@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_one_image_and_many_axes(viewer, qtbot, leading):
    rng = np.random.default_rng(0)
    names = ("axis_0", "frame") if leading else ()
    columns = {name: rng.integers(0, size, 20) for name, size in zip(names, leading, strict=True)}
    columns |= {"y": rng.uniform(3, 30, 20), "x": rng.uniform(3, 30, 20)}
    columns |= {name: np.ones(20, np.float32) for name in ("sigma", "amplitude", "background")}
    columns |= {"photons": np.arange(20, dtype=np.float32), "stop_condition": np.zeros(20, "u1")}
    image = viewer.add_image(np.zeros((*leading, 32, 32), np.uint8), name="stack")
    viewer.add_layer(to_points_layer(SpotFits(columns, names), image))
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.summary)
    page = spots.summary
    wait(page, qtbot)
    assert row(page, "photons [counts]")["median"] == "9.500"
    assert page.plot.isHidden() == (not leading)  # one frame is no plot over frames
    if leading:
        assert page.curve.getData()[1].sum() == 20
        assert len(page.curve.getData()[0]) == int(np.prod(leading))
    assert (" per px² and frame" if leading else " per px²") in page.words.text()


def test_no_spots_and_no_layer(spots, viewer, page, qtbot):
    spots.spots.set_filters(Filters({"sigma": (99.0, None)}))
    wait(page, qtbot)
    assert row(page, "sigma [px]")["median"] == "–"
    assert page.curve.getData()[1].tolist() == [0] * 5
    viewer.layers.clear()
    wait(page, qtbot)
    assert page.words.text() == ""
    assert page.table.rowCount() == 0
    assert not page.export.save_button.isEnabled()


def test_the_numbers_of_every_frame_are_saved(spots, layer, page, qtbot, tmp_path):
    spots.units.setCurrentIndex(1)
    wait(page, qtbot)
    path = tmp_path / "frames.csv"
    page.export.save_to(path)
    qtbot.waitUntil(lambda: f"5 frames saved as {path}" in spots.status.text())
    table = pd.read_csv(path)
    assert list(table)[:4] == ["frame", "count", "density [1/µm²]", "median sigma [µm]"]
    counts = np.bincount(layer.features["frame"].astype(int))
    np.testing.assert_array_equal(table["count"], counts)
    np.testing.assert_allclose(table["density [1/µm²]"], counts / (64 * PIXEL) ** 2)
    medians = layer.features.groupby("frame")["sigma"].median() * PIXEL
    np.testing.assert_allclose(table["median sigma [µm]"], medians, rtol=1e-6)
    assert [one.name for one in tmp_path.iterdir() if "frames" in one.name] == ["frames.csv"]
    qtbot.waitUntil(no_worker)


@pytest.mark.parametrize(("size", "beside"), [((1280, 230), True), ((420, 800), False)])
def test_a_low_page_has_the_plot_beside_the_table(viewer, layer, qtbot, size, beside):
    spots = Results(viewer)
    qtbot.addWidget(spots)
    spots.resize(*size)
    spots.show()
    spots.tabs.setCurrentWidget(spots.summary)
    wait(spots.summary, qtbot)
    page = spots.summary
    plot, table = (
        QRect(part.mapTo(page, QPoint()), part.size()) for part in (page.plot, page.table)
    )
    assert (plot.left() > table.right()) == beside
    assert (plot.top() > table.bottom()) != beside
    assert page.rect().contains(plot)


def test_the_choice_is_made_with_the_keyboard(page, qtbot):
    page.over.setFocus()
    qtbot.keyClick(page.over, Qt.Key.Key_Down)
    settle()
    assert page.over.currentText() == "median sigma [px]"
    qtbot.mouseClick(page.export.copy_button, LEFT)


def test_frames_of_two_axes_are_counted_once(viewer, qtbot):
    """Frames are those of the last axis, in each index along the one before it."""
    movie, _ = simulate_movie(6, shape=(48, 48), spots_per_frame=4, photons=3000, seed=1)
    image = viewer.add_image(movie.reshape(2, 3, 48, 48), name="stack")
    fits = localize(image.data, sigma=1.3)
    layer = viewer.add_layer(to_points_layer(fits, image))
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.summary)
    wait(spots.summary, qtbot)
    assert " in 6 frames" in spots.summary.words.text()
    counts = per_frame(fits, image.data.shape)["count"].to_numpy()
    np.testing.assert_array_equal(spots.summary.curve.getData()[1], counts)
    assert fits_of_features(layer.features, layer.metadata, layer.ndim).index_names == (
        "axis_0", "frame",
    )  # fmt: skip


def test_channels_are_counted_by_themselves(viewer, qtbot):
    movie, _ = simulate_movie(6, shape=(64, 64), spots_per_frame=4, photons=3000, seed=1)
    stack = movie.reshape(3, 2, 64, 64)
    image = viewer.add_image(stack, name="stack", axis_labels=("t", "c", "y", "x"))
    found = fit_layer(image, sigma=1.3, viewer=viewer)
    fits = found.wait()
    layer = found.layer
    assert fits.index_names == ("frame", "channel")
    for channel in range(2):
        expected = localize(stack[:, channel], sigma=1.3, roi_size=fits.settings.roi_size)
        np.testing.assert_array_equal(fits.x[fits.channel == channel], expected.x)
    np.testing.assert_array_equal(layer.data[:, 1], fits.channel[fits.valid])
    spots = dock(viewer)
    spots.tabs.setCurrentWidget(spots.summary)
    wait(spots.summary, qtbot)
    assert " in 6 frames" in spots.summary.words.text()
    found = fit_layer(image, frames=(slice(1, 3), 1), sigma=1.3, viewer=viewer)
    assert set(found.wait().channel) == {1}
    assert set(found.fits.frame) == {1, 2}
