"""What the inspector shows of a spot: numbers, pictures, profiles and words."""

import numpy as np
import pytest
from hand import LEFT
from inspector import add_spots, results_of, shows
from qtpy.QtWidgets import QApplication
from scenes import light
from scipy.spatial import cKDTree

import napari_spotfit


def test_a_selected_spot_is_shown_with_all_its_numbers(viewer, inspector, until, make_movie):
    movie = make_movie(3)
    _, layer = add_spots(viewer, movie)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    values = layer.features.iloc[5]
    texts = inspector.panel.numbers.texts()
    for name in ("y", "x", "sigma", "amplitude", "background", "photons"):
        number, _, rest = texts[name].replace("\u202f", "").partition(" ± ")
        error, unit = rest.split(" ")
        stderr = float(values[f"{name}_stderr"])
        assert float(number) == pytest.approx(values[name], abs=0.051 * stderr)
        assert float(error) == pytest.approx(stderr, rel=0.051)
        assert unit == layer.metadata["units"][name]
    for name in ("chi_square", "reduced_chi_square"):
        number, unit = texts[name].replace("\u202f", "").split(" ")
        assert float(number) == pytest.approx(values[name], rel=1e-3)
        assert unit == "counts²"
    assert texts["iterations"][0] == f"{values['iterations']:.0f}"
    verdict = inspector.panel.verdict.text.text()
    condition = napari_spotfit.StopCondition[values["stop_condition"]]
    assert condition.words.capitalize() in verdict
    assert condition.name not in verdict
    assert condition.name in inspector.panel.verdict.toolTip()
    assert condition.explanation in verdict
    assert condition.advice in verdict
    assert "frame 1" in inspector.panel.title.text()


def test_data_model_and_residual(viewer, inspector, until, make_movie):
    movie = make_movie(3)
    _, layer = add_spots(viewer, movie)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    values, panel = layer.features.iloc[5], inspector.panel
    y, x = int(values["roi_y"]), int(values["roi_x"])
    data, model, residual = (
        picture.image.image
        for picture in (panel.pictures.data, panel.pictures.model, panel.pictures.residual)
    )
    np.testing.assert_array_equal(data, movie[1, y : y + 9, x : x + 9])
    np.testing.assert_allclose(data - model, residual)
    assert (residual**2).sum() == pytest.approx(values["chi_square"], rel=5e-4)
    low, high = panel.pictures.data.image.levels
    assert (low, high) == tuple(panel.pictures.model.image.levels)
    assert low == min(data.min(), model.min())
    assert high == max(data.max(), model.max())
    low, high = panel.pictures.residual.image.levels
    assert -low == high == np.abs(residual).max()
    assert f"±{high:.3g} counts" == panel.pictures.around_zero.high.text()
    places, line = panel.profiles.row.dots.getData()
    row = round(values["y"])
    np.testing.assert_array_equal(line, movie[1, row, places.astype(int)])
    assert panel.profiles.row.title.text() == f"row {row}"
    fine, curve = panel.profiles.row.curve.getData()
    np.testing.assert_allclose(np.interp(places, fine, curve), model[row - y])


def test_physical_units_follow_the_layer(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(), scale=(0.1, 0.1), units=("um", "um"))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    values = layer.features.iloc[1]
    results_of(inspector).units.setCurrentIndex(1)
    for scale in (0.1, 0.25):
        layer.scale = (scale, scale)

        def right(scale=scale):
            number, _, rest = inspector.panel.numbers.texts()["sigma"].partition(" ± ")
            good = abs(float(number) - scale * values["sigma"]) < 0.1 * values["sigma_stderr"]
            error = float(rest.split(" ")[0])
            return good and abs(error / scale / values["sigma_stderr"] - 1) < 0.06

        until(right)


def test_the_numbers_can_be_copied(viewer, inspector, until, qtbot, make_movie):
    _, layer = add_spots(viewer, make_movie(), scale=(0.1, 0.1), units=("um", "um"))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    qtbot.mouseClick(inspector.panel.numbers.copy_button, LEFT)
    lines = [line.split("\t") for line in QApplication.clipboard().text().splitlines()]
    cells = {line[0]: line[1:] for line in lines}
    values = layer.features.iloc[1]
    assert float(cells["sigma"][0]) == values["sigma"]
    assert float(cells["sigma"][1]) == values["sigma_stderr"]
    assert float(cells["x"][3]) == pytest.approx(0.1 * values["x"])
    assert cells["stop_condition"][0] == values["stop_condition"]


def test_everything_explains_itself(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie())
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    panel = inspector.panel
    labels = [label for row in panel.numbers.labels for label in row]
    pictures = [panel.pictures.data, panel.pictures.model, panel.pictures.residual]
    for part in (*labels, *pictures, panel.profiles.row, panel.profiles.column, panel.verdict):
        assert part.toolTip().startswith("<p>"), part
    assert panel.numbers.copy_button.accessibleName()


def test_pixels_that_have_not_counted_are_striped(viewer, inspector, until):
    rng = np.random.default_rng(1)
    centres = np.concatenate([rng.uniform(5, 90, (60, 2)), [[50.2, 50.7], [54.9, 52.1]]])
    photons = np.array([3000] * 60 + [90_000, 4000])
    lights = sum(
        light(centre[None], number, 1.3, (96, 96))
        for centre, number in zip(centres, photons, strict=True)
    )
    frame = np.minimum(rng.poisson(lights + 20) + 100, 4095).astype(np.uint16)
    image = viewer.add_image(frame, name="crowd")
    fits = napari_spotfit.localize(frame, neighbours="exclude")
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits, image))
    panel = inspector.panel
    bright = int(np.argmin(np.hypot(*(layer.data - centres[60]).T)))
    layer.selected_data = {bright}
    until(lambda: shows(inspector, layer, bright))
    count = int((frame == 4095).sum())
    assert panel.excluded.isVisible()
    assert f", {count} px saturated" in panel.excluded.text()
    assert "px nearer to a neighbour" in panel.excluded.text()
    pictures = panel.pictures
    stripes = pictures.residual.stripes
    assert stripes.isVisible()
    y, x = (int(layer.features[name].iloc[bright]) for name in ("roi_y", "roi_x"))
    striped = stripes.image[6::12, 6::12, 3] > 0
    assert striped[frame[y : y + 9, x : x + 9] == 4095].all()
    counts = pictures.residual.image.image[~striped]
    chi_square = layer.features["chi_square"].iloc[bright]
    assert (counts**2).sum() == pytest.approx(chi_square, rel=5e-4)
    assert pictures.residual.image.levels[1] == abs(counts).max()
    assert panel.changed.isHidden()
    # One that stands alone has none.
    alone = int(np.argmax(cKDTree(layer.data).query(layer.data, 2)[0][:, 1]))
    layer.selected_data = {alone}
    until(lambda: shows(inspector, layer, alone))
    assert panel.excluded.isHidden()
    assert not stripes.isVisible()
