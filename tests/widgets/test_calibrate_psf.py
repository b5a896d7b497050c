"""Calibrate PSF: beads of a layer, unticked and again, saved, and used for fits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from psfs import measured_psf
from qtpy.QtCore import Qt

from napari_spotfit import Settings, load_calibration, simulate_beads
from napari_spotfit.models.astigmatism import AstigmatismCalibration, Curve
from napari_spotfit.widgets import samples
from napari_spotfit.widgets.calibrate_psf import CalibratePsf
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting.calibration_choice import KNOWN, CalibrationChoice
from napari_spotfit.widgets.fitting.settings_menu import control_values
from napari_spotfit.widgets.inspecting.numbers import quantities
from napari_spotfit.widgets.inspecting.pictures import DepthCurve
from napari_spotfit.widgets.inspecting.spot import Spot, spot_of
from napari_spotfit.widgets.parts.plots import BLUE


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
    widget.known["offset"].value = 100
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
    choice = CalibrationChoice()
    qtbot.addWidget(choice)
    said = []
    choice.failed.connect(said.append)
    (tmp_path / "a.h5").write_bytes(b"nothing")
    choice.open(tmp_path / "a.h5")
    assert "“a.h5” cannot be opened" in said[0]
    choice.put({"calibration": "fisheye"})
    assert choice.calibration is None


def test_widths_of_beads_are_shown_beside_theory(widget, viewer, qtbot, press, tmp_path):
    beads, _ = simulate_beads(range(-1000, 1001, 100), count=9, seed=1)
    widget.stack.layer = viewer.add_image(beads, name="plain beads")
    widget.dz.value = 100
    widget.known.put({"numerical_aperture": 1.4, "wavelength": 670.0})
    press(widget.quality_button)
    qtbot.waitUntil(lambda: widget.quality.quality is not None and not widget._latest.busy)
    page = widget.quality
    assert widget.pages.currentWidget() is page
    assert "x 22" in page.status.text()
    assert "(theory 228)" in page.status.text()
    x, _ = page.dots.getData()
    assert len(x) == page.quality.beads.used.sum() == 9
    rows = page.table.model()
    assert rows.rowCount() == len(page.quality.beads)
    assert rows.headerData(2, Qt.Orientation.Horizontal) == "fwhm_x [nm]"
    assert float(rows.index(0, 2).data()) == pytest.approx(page.quality.beads.fwhm_x[0], abs=0.1)
    page.axis.setCurrentIndex(2)
    assert np.array(page.dots.data["data"], float) == pytest.approx(600, abs=30)
    page.export.save_to(tmp_path / "widths.csv")
    qtbot.waitUntil(lambda: f"{len(page.quality.beads)} beads saved" in page.status.text())
    table = pd.read_csv(tmp_path / "widths.csv")
    used = table[table.used]
    assert used.fwhm_z.to_numpy() == pytest.approx(used.theory_z.to_numpy(), rel=0.05)
    # A stack without beads fails, and leaves what was calibrated.
    widget.calibration = "kept"
    widget.stack.layer = viewer.add_image(np.full((9, 64, 64), 7, np.uint16), name="dark")
    press(widget.quality_button)
    qtbot.waitUntil(lambda: widget.status.failed)
    assert widget.calibration == "kept"


def test_the_place_of_a_spot_on_the_curve_is_inspected(qtbot, layers):
    lens, psf = lens_of(), measured_psf()
    for model, names in ((lens, ["sigma_x", "sigma_y"]), (psf, ["z_stderr"])):
        values = {"z": 120.0, "sigma_x": 1.2, "sigma_y": 1.9, "z_stderr": 9.0}
        values |= {"photons": 2000.0, "background": 10.0}
        spot = Spot(0, 1, (0,), values, "", {"model": model}, {}, True, False)
        curve = DepthCurve()
        qtbot.addWidget(curve)
        curve.show_spot(spot)
        assert not curve.isHidden()
        z, own = curve.dots.getData()
        assert list(own) == [values[name] for name in names]
        assert set(z) == {120.0}
        at, line = curve.curves[BLUE].getData()
        assert (at[0], at[-1]) == model.range
        expected = model.x(at) if model is lens else model.precision(2000, 10, z=at).z_stderr
        assert line == pytest.approx(expected)
    curve.show_spot(Spot(0, 1, (0,), values, "", {}, {}, True, False))
    assert curve.isHidden()


def lens_of():
    x, y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
    return AstigmatismCalibration(x, y, -400.0, 400.0)
