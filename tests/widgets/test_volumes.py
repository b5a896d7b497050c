"""A z-stack in the viewer: asked about once, fitted as a volume, seen, inspected and counted."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from hand import SHIFT
from scipy.spatial import cKDTree

from napari_spotfit import fit_layer
from napari_spotfit.settings.bounds import expected_widths
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting.settings_menu import Fit, fit_as_python
from napari_spotfit.widgets.layers.images import VOLUME
from napari_spotfit.widgets.results import Results

PLANES, SIDE = 14, 48
SIGMA, SIGMA_Z = 1.3, 1.5
#: z, y and x of the spots.
SPOTS = np.array([(4.3, 12.2, 14.7), (8.6, 33.4, 12.1), (6.2, 20.7, 35.3), (9.4, 37.8, 36.6)])


def stack(seed=0):
    z, y, x = np.indices((PLANES, SIDE, SIDE))
    light = np.full((PLANES, SIDE, SIDE), 100.0)
    for at_z, at_y, at_x in SPOTS:
        away = ((y - at_y) ** 2 + (x - at_x) ** 2) / SIGMA**2 + ((z - at_z) / SIGMA_Z) ** 2
        light += 400 * np.exp(-away / 2)
    return np.random.default_rng(seed).poisson(light).astype(np.uint16)


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


@pytest.fixture
def image(viewer):
    place = {"scale": (0.3, 0.1, 0.1), "units": ("um",) * 3, "axis_labels": ("z", "y", "x")}
    return viewer.add_image(stack(), name="stack", **place)


@pytest.fixture
def volume(viewer, image, widget):
    """Say that the stack is a volume, as a user does, with the widths that it has."""
    answer(widget, volume=True)
    widget.settings.controls["sigma"].value = SIGMA
    widget.settings.controls["sigma_z"].value = SIGMA_Z
    return widget


def answer(widget, *, volume):
    depth = widget.settings.frames.stack
    depth.setCurrentIndex(depth.findData(volume))
    depth.activated.emit(depth.currentIndex())


def test_the_question_is_asked_once(viewer, image, widget):
    depth = widget.settings.frames.stack
    assert depth.isVisible()
    assert depth.currentText() == "planes or a volume?"
    assert "⚠" in widget.settings.frames.planes.text()
    assert len(widget.settings.frames.axes) == 1
    answer(widget, volume=True)
    assert image.metadata[VOLUME] is True
    assert depth.currentText() == "z: a volume"
    assert depth.findText("planes or a volume?") < 0
    assert widget.settings.frames.planes.isHidden()
    assert not widget.settings.frames.axes
    other = viewer.add_image(stack()[0], name="plane")
    assert widget.settings.image.layer is other
    assert not depth.isVisible()
    assert widget.settings.settings().dimensions == 2
    viewer.layers.selection.active = image
    assert depth.currentText() == "z: a volume"
    assert widget.settings.settings().model == "gaussian_3d"
    answer(widget, volume=False)
    assert widget.settings.settings().dimensions == 2
    assert len(widget.settings.frames.axes) == 1


def test_optics_give_the_widths_of_a_volume(viewer, image, widget, fit):
    answer(widget, volume=True)
    controls, known = widget.settings.controls, {"numerical_aperture": 1.0, "wavelength": 520.0}
    optics = *known, "refractive_index"
    widget.settings.advanced.expand()
    assert all(controls.row(name).isVisible() and controls[name].tooltip for name in optics)
    for name, value in known.items():
        controls[name].value = value
    settings = widget.settings.settings()
    assert expected_widths(settings) is not None
    text = fit_as_python(Fit(settings, image.name), image)
    assert "numerical_aperture=1.0" in text
    assert "wavelength=520.0" in text
    fit(widget)
    kept = viewer.layers["stack spots"].metadata["settings"]
    assert {name: kept[name] for name in known} == known
    # They are remembered, and mean nothing in planes.
    again = FitSpots(viewer)
    assert {name: again.settings.controls[name].value for name in known} == known
    again.deleteLater()
    controls["refractive_index"].value = 1.0
    viewer.add_image(stack()[0], name="plane")
    assert not any(controls.row(name).isVisible() for name in optics)
    assert widget.settings.settings().numerical_aperture is None
    viewer.layers.selection.active = image
    with pytest.raises(ValueError, match="refractive_index"):
        widget.settings.settings()


def test_a_movie_and_a_thin_stack_are_not_asked_about(viewer, widget, make_movie):
    depth = widget.settings.frames.stack
    viewer.add_image(make_movie(5), name="movie", axis_labels=("t", "y", "x"))
    assert not depth.isVisible()
    viewer.add_image(make_movie(2), name="thin", axis_labels=("z", "y", "x"))
    assert not depth.isVisible()
    viewer.add_image(make_movie(5), name="unnamed")
    assert not depth.isVisible()
    kind = widget.settings.frames.kinds[0]
    kind.setCurrentIndex(kind.findData("z"))
    kind.activated.emit(kind.currentIndex())
    assert depth.isVisible()


def matched(points):
    distance, row = cKDTree(points).query(SPOTS)
    assert distance.max() < 0.15
    return row


@pytest.mark.parametrize("turn", [0, 30])
def test_points_lie_in_the_volume(viewer, image, volume, fit, turn):
    image.rotate = np.eye(3) if not turn else rotation(turn)
    fit(volume)
    layer = viewer.layers["stack spots"]
    assert layer.data.shape == (len(SPOTS), 3)
    row = matched(layer.data)
    features = layer.features
    np.testing.assert_allclose(features["sigma_z"].to_numpy()[row], SIGMA_Z, rtol=0.15)
    np.testing.assert_allclose(features["z_nm"], 300 * features["z"], rtol=1e-4)
    for place, point in zip(SPOTS, layer.data[row], strict=True):
        there, here = layer.data_to_world(point), image.data_to_world(place)
        np.testing.assert_allclose(there, here, atol=0.05)
    assert layer.metadata["settings"]["model"] == "gaussian_3d"
    assert "by plane" not in volume.status.text()


def rotation(degrees):
    turn = np.radians(degrees)
    matrix = np.eye(3)
    matrix[1:, 1:] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    return matrix


def test_spots_are_seen_in_the_planes_beside_theirs(viewer, volume, fit):
    fit(volume)
    layer = viewer.layers["stack spots"]
    seen = {}
    for plane in range(PLANES):
        viewer.dims.set_current_step(0, plane)
        settle()
        seen[plane] = len(layer._view_data)
    nearest = round(SPOTS[0, 0])
    assert seen[nearest] >= seen[nearest - 2] >= 1
    assert seen[0] == 0
    viewer.dims.ndisplay = 3
    settle()
    assert len(layer._view_data) == len(SPOTS)
    viewer.dims.ndisplay = 2


def test_a_click_finds_the_maximum_in_z_too(viewer, image, volume, hand, qtbot):
    shown = []
    volume.picking.picker.layers.shown.connect(shown.append)
    viewer.dims.set_current_step(0, round(SPOTS[2, 0]) - 1)
    viewer.reset_view()
    settle()
    hand.click(image, SPOTS[2, 1:] + (0.8, -0.7), SHIFT)
    qtbot.waitUntil(lambda: bool(shown))
    layer = viewer.layers["stack (picked)"]
    np.testing.assert_allclose(layer.data, SPOTS[2:3], atol=0.15)
    assert volume.status.text().startswith("Spot at z 6.")
    shown.clear()
    hand.click(image, SPOTS[2, 1:], SHIFT)
    qtbot.waitUntil(lambda: bool(shown))
    assert len(layer.data) == 1  # the same spot again


def test_inspect_shows_three_cuts(viewer, image, volume, fit, qtbot):
    fit(volume)
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results")
    layer = viewer.layers["stack spots"]
    row = int(matched(layer.data)[1])
    results.go_to(layer, row, "Inspect")
    panel = results.inspect.panel
    qtbot.waitUntil(lambda: "cuts" in vars(panel) and panel.cuts[0].isVisible())
    assert panel.changed.isHidden()  # χ² is that of what is shown
    z, y, x = np.rint(SPOTS[1]).astype(int)
    corner = layer.features[["roi_z", "roi_y", "roi_x"]].to_numpy(int)[row]
    whole = layer.metadata["settings"]["roi_size"]
    window = [slice(at, at + side) for at, side in zip(corner, whole, strict=True)]
    for pictures, at in (
        (panel.pictures, (z, window[1], window[2])), (panel.cuts[0], (window[0], y, window[2])),
        (panel.cuts[1], (window[0], window[1], x)),
    ):  # fmt: skip
        np.testing.assert_array_equal(pictures.data.image.image, image.data[at])
        residual = pictures.residual.image.image
        assert abs(residual).max() < 6 * np.sqrt(image.data[at].max())
        model = pictures.model.image.image
        np.testing.assert_allclose(model + residual, image.data[at], atol=1e-3)
    assert panel.numbers.texts()["z"].startswith("8.")
    viewer.dims.set_current_step(0, 0)  # the spot stays
    settle()
    assert results.inspect._row == row


def test_cells_count_one_row_a_spot(viewer, image, volume, fit, qtbot):
    cells = np.zeros((SIDE, SIDE), int)
    cells[:, :24], cells[:, 24:] = 1, 2
    viewer.add_labels(cells, name="cells", scale=(0.1, 0.1), units=("um", "um"))
    volume.settings.image.layer = image
    fit(volume)
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results")
    results.go_to(viewer.layers["stack spots"], page="Cells")
    page = results.cells
    qtbot.waitUntil(lambda: page._table is not None)
    assert page._table["count"].tolist() == [2, 2]
    assert "⚠" not in page.hint.text()


def test_a_volume_is_remembered_by_its_results(viewer, image, volume, fit):
    fit(volume)
    image.metadata = {}
    viewer.layers.selection.active = viewer.layers["stack spots"]
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again)
    assert again.settings.frames.stack.currentText() == "z: a volume"


def test_a_spot_is_fitted_again_in_the_volume(viewer, image, volume, fit, qtbot, press):
    fit(volume)
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results")
    layer = viewer.layers["stack spots"]
    results.go_to(layer, 2, "Inspect")
    page = results.inspect
    qtbot.waitUntil(lambda: "cuts" in vars(page.panel))
    press(page.panel.refit_button)
    bar = page.panel.refit
    qtbot.waitUntil(lambda: page.refit._old is not None)
    assert not bar.controls["model"].enabled
    assert bar.fix.text() == "Fix σ at 1.3 px"
    bar.controls["estimator"].value = "mle"
    qtbot.waitUntil(bar.keep_new.isEnabled)
    press(bar.keep_new)
    assert layer.features["refit"].tolist() == [0, 0, 1, 0]
    matched(layer.data)


def test_saved_spots_lie_in_the_volume_again(viewer, image, volume, fit, tmp_path):
    fit(volume)
    layer = viewer.layers["stack spots"]
    layer.save(str(tmp_path / "a.spots.csv"), plugin="napari-spotfit")
    (again,) = viewer.open(str(tmp_path / "a.spots.csv"), plugin="napari-spotfit")
    np.testing.assert_allclose(again.data, layer.data, atol=1e-4)
    np.testing.assert_array_equal(again.scale, layer.scale)
    assert again.metadata[VOLUME] is True


def test_the_console_fits_it_as_a_volume_too(viewer, image, volume):
    fits = fit_layer(image, viewer=viewer, sigma=SIGMA, sigma_z=SIGMA_Z).wait()
    assert fits.settings.model == "gaussian_3d"
    assert fits.settings.voxel_size == pytest.approx((300, 100, 100))
    matched(fits.points())


def test_models_that_have_no_volume_are_refused(volume, press):
    volume.settings.controls["model"].value = "lorentzian"
    press(volume.fit_button)
    assert "n a volume spots are Gaussian or elliptical" in volume.status.text()


def test_the_sample_is_fitted_without_a_setting(viewer, widget, fit, press, qtbot):
    viewer.open_sample("napari-spotfit", "smfish_stack")
    image = viewer.layers["smFISH stack"]
    viewer.layers.selection.active = image
    answer(widget, volume=True)
    fit(widget)
    layer, truth = viewer.layers["smFISH stack spots"], image.metadata["truth"]
    settings = layer.metadata["settings"]
    assert settings["sigma"] == pytest.approx(1.3, rel=0.1)
    assert settings["sigma_z"] == pytest.approx(1.4, rel=0.15)
    sigma_z = widget.settings.controls.number("sigma_z")
    assert sigma_z.box.text().endswith(" planes)")
    widget.settings.advanced.expand()
    qtbot.waitUntil(widget.settings.estimate_button.isVisible)
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: sigma_z.value is not None)
    assert sigma_z.value == pytest.approx(1.4, rel=0.15)
    assert "σ along z 1." in widget.status.text()
    good = layer.data[layer.features["good"].to_numpy() > 0]
    distance, _ = cKDTree(good).query(truth[["z", "y", "x"]])
    assert (distance < 0.5).mean() > 0.85
    distance, _ = cKDTree(truth[["z", "y", "x"]]).query(good)
    assert (distance < 1).mean() > 0.95


@pytest.mark.parametrize("first", ["t", "c"])
def test_volumes_in_time_and_of_channels(viewer, widget, fit, hand, qtbot, first):
    both = np.stack([stack(1), stack(2)])
    image = viewer.add_image(both, name="many", axis_labels=(first, "z", "y", "x"))
    answer(widget, volume=True)
    assert [axis.mode.accessibleName() for axis in widget.settings.frames.axes] == [first]
    widget.settings.controls["sigma"].value = SIGMA
    widget.settings.controls["sigma_z"].value = SIGMA_Z
    fit(widget)
    layer = viewer.layers["many spots"]
    assert layer.data.shape == (2 * len(SPOTS), 4)
    for number in (0, 1):
        matched(layer.data[layer.data[:, 0] == number, 1:])
    if first == "c":
        assert layer.features["channel"].tolist() == [0] * 4 + [1] * 4
    viewer.dims.set_current_step(0, 1)
    viewer.dims.set_current_step(1, round(SPOTS[1, 0]) + 1)
    viewer.reset_view()
    settle()
    shown = []
    widget.picking.picker.layers.shown.connect(shown.append)
    hand.click(image, SPOTS[1, 1:] + 0.4, SHIFT)
    qtbot.waitUntil(lambda: bool(shown))
    (point,) = viewer.layers["many (picked)"].data
    np.testing.assert_allclose(point, (1, *SPOTS[1]), atol=0.15)
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results")
    results.go_to(layer, 6, "Inspect")
    panel = results.inspect.panel
    qtbot.waitUntil(lambda: "cuts" in vars(panel) and panel.cuts[1].isVisible())
    z = round(layer.data[6, 1])
    corner = layer.features[["roi_y", "roi_x"]].to_numpy(int)[6]
    rows, columns = layer.metadata["settings"]["roi_size"][1:]
    window = slice(corner[0], corner[0] + rows), slice(corner[1], corner[1] + columns)
    np.testing.assert_array_equal(panel.pictures.data.image.image, both[(1, z, *window)])


def test_a_lazy_stack_with_a_mask_and_bad_pixels(viewer, widget, fit):
    import dask.array

    pixels = stack()
    pixels[8, 33, 12] = 60_000
    lazy = dask.array.from_array(pixels, chunks=(1, SIDE, SIDE))
    viewer.add_image(lazy, name="lazy", axis_labels=("z", "y", "x"), contrast_limits=(90, 600))
    where = np.zeros((SIDE, SIDE), int)
    where[:, :24] = 1
    viewer.add_labels(where, name="left", visible=False)
    bad = np.zeros((PLANES, SIDE, SIDE), int)
    bad[8, 33, 12] = 1
    viewer.add_labels(bad, name="bad", visible=False)
    answer(widget, volume=True)
    widget.settings.controls["sigma"].value = SIGMA
    widget.settings.controls["sigma_z"].value = SIGMA_Z
    widget.settings.limit.layer = viewer.layers["left"]
    widget.settings.camera.bad_pixels.layer = viewer.layers["bad"]
    fit(widget)
    points = viewer.layers["lazy spots"].data
    np.testing.assert_allclose(points[np.argsort(points[:, 0])], SPOTS[:2], atol=0.15)
