"""Calibrate PSF: beads of a layer, unticked and again, saved, and used for fits."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtCore import Qt

from napari_spotfit import Settings, load_calibration
from napari_spotfit.widgets import samples
from napari_spotfit.widgets.calibrate_psf import CalibratePsf
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting.depth_choice import KNOWN, DepthChoice
from napari_spotfit.widgets.fitting.settings_menu import control_values
from napari_spotfit.widgets.inspecting.numbers import quantities
from napari_spotfit.widgets.inspecting.spot import spot_of


@pytest.fixture(scope="module")
def layers():
    return samples.astigmatism()


@pytest.fixture
def widget(viewer, layers):
    for data, about, _ in layers:
        viewer.add_image(data, **about)
    widget = CalibratePsf(viewer)
    viewer.window.add_dock_widget(widget, name=CalibratePsf.title)
    widget.stack.layer = viewer.layers["astigmatic beads"]
    widget.offset.value = 100
    widget.roi_size.value = 13
    yield widget
    KNOWN.by_name.clear()


def calibrated(widget, qtbot, press):
    press(widget.calibrate_button)
    qtbot.waitUntil(lambda: not widget._latest.busy)
    qtbot.waitUntil(lambda: widget.calibrate_button.isEnabled())


def test_beads_are_shown_and_can_be_unticked(widget, viewer, qtbot, press, tmp_path):
    assert not widget.save_button.isEnabled()
    calibrated(widget, qtbot, press)
    assert not widget.status.failed
    assert "9 beads" in widget.status.text()
    points = viewer.layers["beads of astigmatic beads"]
    assert len(points.data) == len(widget.beads.places)
    assert widget.beads.ticked.sum() == 9
    x, y = widget.plots.curves["x"].getData()
    assert x[0] == widget.calibration.low
    assert y == pytest.approx(widget.calibration.x(x))
    assert len(widget.plots.points["y"].getData()[0]) > 20
    assert len(widget.plots.scatter.getData()[0]) > 20

    row = int(np.flatnonzero(widget.beads.ticked)[0])
    place = widget.beads.places[row]
    widget.beads.item(row, 0).setCheckState(Qt.CheckState.Unchecked)
    calibrated(widget, qtbot, press)
    assert sum(bead.used for bead in widget.calibration.beads) == 8
    assert widget.beads.ticked.sum() == 8
    (same,) = np.flatnonzero((widget.beads.places == place).all(1))
    assert widget.beads.item(int(same), 4).text() == "unticked"

    widget.save(tmp_path / "lens")
    assert load_calibration(tmp_path / "lens.h5") == widget.calibration
    assert "Saved" in widget.status.text()


def test_fit_spots_takes_z_from_it(widget, viewer, qtbot, press):
    fit = FitSpots(viewer)
    viewer.window.add_dock_widget(fit)
    calibrated(widget, qtbot, press)
    widget.index.value = 0.8
    press(widget.use_button)
    depth = fit.settings.model.depth
    assert depth.calibration == widget.calibration
    assert depth.calibration.index_factor == 0.8
    settings = fit.settings.settings()
    assert settings.model == widget.calibration
    assert (settings.estimator, settings.roi_size) == ("mle", (13, 13))
    assert "z from astigmatism" in fit.settings.changes.text()
    # It is remembered, and comes back with settings of fits.
    kept = fit.settings.values()
    fit.settings.reset()
    assert fit.settings.settings().model == "gaussian"
    fit.settings.put(kept)
    assert fit.settings.settings().model == widget.calibration
    fit.settings.put(control_values(Settings()))
    assert depth.calibration is None
    fit.settings.put(control_values(settings))
    assert fit.settings.settings().model == widget.calibration


def test_fits_have_z_and_are_inspected(widget, viewer, qtbot, press, fit):
    calibrated(widget, qtbot, press)
    press(widget.use_button)
    spots = FitSpots(viewer)
    viewer.window.add_dock_widget(spots)
    spots.settings.model.depth.choose("of “astigmatic beads”")
    spots.settings.controls.put({"gain": 1.0, "offset": 100.0})
    spots.settings.image.layer = viewer.layers["astigmatic molecules"]
    said = fit(spots)
    layer = spots.result.layer
    assert layer is not None, said
    assert layer.ndim == 3
    good = layer.features["good"].astype(bool)
    assert layer.features["z"][good].between(-450, 450).all()
    truth = viewer.layers["astigmatic molecules"].metadata["truth"]
    row = int(np.flatnonzero(good)[0])
    spot = spot_of(layer, row)
    assert quantities(spot, None)[0].name == "z"
    frame = truth[truth["frame"] == spot.index[0]]
    far = np.hypot(frame["y"] - spot.values["y"], frame["x"] - spot.values["x"])
    assert far.min() < 1


def test_what_is_wrong_is_said(widget, viewer, qtbot, press):
    viewer.add_image(np.full((9, 32, 32), 110, np.uint16), name="dark")
    widget.stack.layer = viewer.layers["dark"]
    calibrated(widget, qtbot, press)
    assert widget.status.failed
    assert "bead" in widget.status.text()
    assert widget.calibration is None
    assert not widget.use_button.isEnabled()
    viewer.layers.clear()
    press(widget.calibrate_button)
    assert "Choose a z-stack of beads first" in widget.status.text()


def test_a_file_is_chosen(qtbot, tmp_path):
    choice = DepthChoice()
    qtbot.addWidget(choice)
    said = []
    choice.failed.connect(said.append)
    (tmp_path / "a.h5").write_bytes(b"nothing")
    choice.open(tmp_path / "a.h5")
    assert "“a.h5” cannot be opened" in said[0]
    choice.put({"calibration": "fisheye"})
    assert choice.calibration is None
