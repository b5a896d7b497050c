"""One spot is fitted again with other settings, shown beside its earlier fit, and one is kept."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import no_worker, settle
from hand import LEFT
from inspector import add_spots, go_to, shows
from qtpy.QtCore import Qt
from scenes import light

import napari_spotfit
from napari_spotfit import Settings, load_fits, localize, to_points_layer
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.inspecting.refit import CHANGE
from napari_spotfit.widgets.layers.points import is_result


@pytest.fixture
def crowd():
    """Return two frames with neighbours, and a saturated corner of noise alone."""
    rng, shape = np.random.default_rng(4), (64, 72)
    places = [rng.uniform(3, 60, (45, 2)) for _ in range(2)]
    return rng.poisson([light(those, 2000, 1.4, shape) + 20 for those in places]).astype(np.uint16)


@pytest.fixture
def refitted(viewer, inspector, until, press, qtbot):
    """Return the function that inspects a spot and lets it be fitted again."""

    def change(layer, row, **settings):
        go_to(inspector, layer, row)
        until(lambda: shows(inspector, layer, row))
        if not inspector.panel.refit_button.isChecked():
            press(inspector.panel.refit_button)
        settle()
        bar = inspector.panel.refit
        for name, value in settings.items():
            put(bar, name, value)
        until(lambda: no_worker() and not inspector._soon.isActive() and not bar.text.text())
        settle()

    return change


def put(bar, name, value):
    if name == "hold":
        bar.fix.setChecked(value)
    else:
        bar.controls[name].value = value


def row_of(features, row):
    return {name: value for name, value in features.iloc[row].to_dict().items() if name != "refit"}


def test_other_settings_and_back_to_the_bit(viewer, inspector, until, refitted, crowd):
    fits = localize(crowd, neighbours="exclude")
    image = viewer.add_image(crowd, name="crowd")
    layer = viewer.add_layer(to_points_layer(fits, image))
    close = (fits.flags & int(napari_spotfit.Flag.NEIGHBOUR)) != 0
    row = int(np.flatnonzero(close & (fits.frame == 1))[0])
    panel, bar = inspector.panel, inspector.panel.refit
    refitted(layer, row, roi_size=7, neighbours="ignore")
    assert panel.comparison.isVisible()
    assert panel.numbers.isHidden()
    # What is shown is what a fit of the whole image with these settings would be.
    again = localize(crowd, settings=fits.settings.changed(roi_size=7, neighbours="ignore"))
    (there,) = np.flatnonzero((again.score == fits.score[row]) & (again.frame == 1))
    old, new = inspector.refit.fits()
    for name in ("y", "x", "sigma", "photons", "reduced_chi_square", "flags", "sigma_stderr"):
        assert new.values[name] == float(again.columns[name][there]), name
        assert old.values[name] == float(fits.columns[name][row]), name
    texts = panel.comparison.texts()
    assert texts["ROI size"] == ("9", "7")
    assert texts["Neighbours"] == ("exclude", "ignore")
    for column, spot in enumerate((old, new)):
        value, _, error = texts["σ [px]"][column].partition(" ± ")
        assert float(value) == pytest.approx(spot.values["sigma"], abs=spot.values["sigma_stderr"])
        assert float(error) == pytest.approx(spot.values["sigma_stderr"], rel=0.06)
    # Both in the colours of one scale.
    pictures = panel.pictures, panel.new_pictures
    assert pictures[1].data.image.image.shape == (7, 7)
    for which in ("data", "model", "residual"):
        one, other = (getattr(both, which).image.levels for both in pictures)
        assert tuple(one) == tuple(other)
    residual = new.values["chi_square"]
    assert (pictures[1].residual.image.image ** 2).sum() == pytest.approx(residual, rel=1e-3)
    assert inspector.panel.verdict.text.text()
    # Its own settings again: the same fit to the bit.
    bar.controls["roi_size"].value = 9
    bar.controls["neighbours"].value = "exclude"
    until(lambda: no_worker() and bar.text.text().startswith("These are the settings"))
    _, new = inspector.refit.fits()
    assert new.values == old.values
    assert not bar.keep_new.isEnabled()
    assert row_of(layer.features, row) == old.values | {"stop_condition": old.stop}
    bar.controls["estimator"].value = "wlse"
    until(lambda: bar.text.text().startswith("⚠ Not fitted with these settings: "))
    assert panel.comparison.isHidden()
    # Another spot begins anew.
    go_to(inspector, layer, row + 1)
    until(lambda: shows(inspector, layer, row + 1))
    assert bar.controls["estimator"].value == "lse"
    assert bar.text.text() == CHANGE


def test_either_is_kept_and_the_layer_knows(
    viewer, inspector, until, refitted, press, hand, qtbot, crowd, tmp_path
):
    fit = FitSpots(viewer)
    viewer.window.add_dock_widget(fit, name="Fit spots")
    fits = localize(crowd)
    image = viewer.add_image(crowd, name="crowd")
    layer = viewer.add_layer(to_points_layer(fits, image))
    layer.features = layer.features.assign(mine=np.arange(len(fits)) * 2.0)
    row = int(np.flatnonzero(~fits.good | (fits.flags != 0))[0])
    before, points = layer.features.copy(), layer.data.copy()
    panel, bar = inspector.panel, inspector.panel.refit
    refitted(layer, row, model="gaussian_elliptical", roi_size=11)
    press(bar.keep_old)
    until(lambda: panel.comparison.isHidden())
    assert layer.features.equals(before)
    assert bar.controls["model"].value == "gaussian"
    refitted(layer, row, model="gaussian_elliptical", roi_size=11)
    _, new = inspector.refit.fits()
    press(bar.keep_new)
    settle()
    kept = layer.features.iloc[row]
    assert (kept["sigma_x"], kept["y"]) == (new.values["sigma_x"], new.values["y"])
    assert np.isnan(kept["sigma"])
    assert (kept["refit"], kept["mine"], kept["score"]) == (1, 2 * row, fits.score[row])
    np.testing.assert_array_equal(layer.data[row, 1:], kept[["y", "x"]].to_numpy(float))
    assert layer.selected_data == {row}
    marked = {"ring" if kept["good"] else "x"}
    assert {str(layer.symbol[row])} == marked
    assert sum(layer.metadata["stop_counts"].values()) == len(fits)
    used = Settings(**layer.metadata["refits"][0])
    assert (used.model, used.roi_size) == ("gaussian_elliptical", 11)
    assert Settings(**layer.metadata["settings"]) == fits.settings
    # All the others are as they were.
    others = np.arange(len(fits)) != row
    assert layer.features.loc[others, before.columns].equals(before[others])
    assert panel.comparison.texts()["flags"]
    until(lambda: panel.title.text().endswith("refitted"))
    # Inspected again, it is judged and drawn by its own settings.
    press(panel.refit_button)
    until(lambda: shows(inspector, layer, row))
    assert "sigma_y" in panel.numbers.texts()
    assert panel.pictures.data.image.image.shape == (11, 11)
    assert panel.changed.isHidden()
    assert "no standard errors" not in panel.verdict.text.text()
    # It is said where the settings travel, and comes back from a file.
    layer.metadata = {**layer.metadata, "frames": None}
    fit.settings_menu.copy()
    assert "not in it" in fit.status.text()
    path = tmp_path / "kept.spots.csv"
    layer.save(str(path), plugin="napari-spotfit")
    columns = load_fits(path).columns
    assert columns["refit"][row] == 1
    assert columns["sigma_x"][row] == np.float32(new.values["sigma_x"])
    (opened,) = viewer.open(str(path), plugin="napari-spotfit")
    assert is_result(opened)
    go_to(inspector, opened, row)
    until(lambda: shows(inspector, opened, row))
    assert "sigma_y" in panel.numbers.texts()
    # Undo takes it back, redo does it again, and so does the button.
    hand.key(Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    settle()
    assert layer.features.equals(before)
    np.testing.assert_array_equal(layer.data, points)
    qtbot.mouseClick(fit.picking.redo, LEFT)
    settle()
    assert layer.features["sigma_x"].iloc[row] == new.values["sigma_x"]


def test_held_widths_and_a_row_that_goes(viewer, inspector, until, refitted, press, make_movie):
    _, layer = add_spots(viewer, make_movie(2))
    bar = inspector.panel.refit
    refitted(layer, 5, hold=True)
    _, new = inspector.refit.fits()
    held = Settings(**layer.metadata["settings"]).sigma
    assert new.values["sigma"] == np.float32(held)
    assert new.values["sigma_stderr"] == 0
    press(bar.keep_new)
    settle()
    assert layer.features["sigma"].iloc[5] == np.float32(held)
    # Kept without Fit spots, the button puts it back.
    press(bar.keep_old)
    until(lambda: layer.features["refit"].iloc[5] == 0)
    assert layer.features["sigma_stderr"].iloc[5] > 0
    # Of a spot that goes meanwhile nothing is kept.
    refitted(layer, 5, hold=True)
    layer.selected_data = {0}
    layer.remove_selected()
    count = len(layer.data)
    bar.keep_new.clicked.emit()
    settle()
    assert len(layer.data) == count
    assert not (layer.features["refit"] > 0).any()
