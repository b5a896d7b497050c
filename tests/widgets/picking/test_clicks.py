"""A click fits what it should, and the point is drawn as those of any fit."""

from __future__ import annotations

import numpy as np
import pytest
from hand import CONTROL, RIGHT, SHIFT
from napari.utils.colormaps.standardize_color import transform_color

from napari_spotfit import Flag, StopCondition, localize, noise_model
from napari_spotfit.widgets.layers.appearance import STOP_COLORS

#: What clicks have for spots that are fitted together alone, and what counts in one result.
OTHERS = {"score", "group"}


def assert_rows_of(layer, fits, rows):
    """Check that a layer's points are some rows of fits, to the last bit."""
    np.testing.assert_array_equal(layer.data, fits.points()[rows])
    table = fits.to_dataframe()
    shared = [name for name in table if name not in OTHERS]
    assert set(shared) | {"roi_size", "offset"} == set(layer.features) - OTHERS
    for name in shared:
        expected = table[name].iloc[rows].to_numpy()
        if name == "stop_condition":
            assert list(layer.features[name]) == list(expected)
        else:
            np.testing.assert_array_equal(layer.features[name], expected.astype(float))


def row_near(fits, place, frame=None):
    """Return the row of the fits that is nearest to a place."""
    distance = np.hypot(fits.y - place[0], fits.x - place[1])
    if frame is not None:
        distance[fits.frame != frame] = np.inf
    return int(np.argmin(distance))


@pytest.mark.filterwarnings("ignore:the image has:UserWarning")  # of no such camera
@pytest.mark.filterwarnings("ignore:the light of the fitted spots is:UserWarning")
def test_a_click_fits_what_the_batch_run_fits(viewer, widget, hand, settle, make_movie, spots):
    movie = make_movie(3)
    image = viewer.add_image(movie, name="movie")
    controls = widget.settings.controls
    controls["roi_size"].value = 11
    controls["offset"].value = 40.0
    controls["gain"].value = 2.0
    viewer.dims.set_current_step(0, 1)
    widget.picking.click.click()
    for place in spots[:2]:
        hand.click(image, np.add(place, (1.8, -1.2)))
        settle()
    fits = localize(movie, settings=widget.settings.settings())
    layer = viewer.layers["movie (picked)"]
    assert_rows_of(layer, fits, [row_near(fits, place, 1) for place in spots[:2]])
    assert set(layer.features["roi_size"]) == {11}
    assert set(layer.features["offset"]) == {40}
    assert layer.metadata["settings"] == fits.settings.to_dict()
    asked = fits.settings.changed(noise=None, sigma=None, backend="auto")
    assert asked == widget.settings.settings()
    assert layer.metadata["image"] == image.unique_id
    assert sum(layer.metadata["stop_counts"].values()) == 2
    assert set(layer.selected_data) == {1}
    assert viewer.layers.selection.active is image
    text = widget.status.text()
    assert f"y {fits.y[row_near(fits, spots[1], 1)]:.2f}" in text
    assert StopCondition[layer.features["stop_condition"].iloc[1]].words in text
    assert widget.result.layer is layer


def test_a_click_goes_by_the_noise_of_the_whole_movie(viewer, widget, hand, settle):
    rng, (y, x) = np.random.default_rng(5), np.indices((64, 64))
    place = np.array((30.7, 40.4))
    light = 60 * np.exp(-((y - place[0]) ** 2 + (x - place[1]) ** 2) / (2 * 1.3**2))
    levels = np.geomspace(10, 200, 9)
    movie = np.stack([rng.poisson(level + light) for level in levels]).astype(np.uint16)
    image = viewer.add_image(movie, name="movie")
    widget.settings.controls["false_spots"].value = 1000
    for frame in (0, 8):
        viewer.dims.set_current_step(0, frame)
        hand.click(image, np.add(place, (1.2, -0.8)), SHIFT)
        settle()
    fits = localize(movie, settings=widget.settings.settings())
    layer = viewer.layers["movie (picked)"]
    assert_rows_of(layer, fits, [row_near(fits, place, frame) for frame in (0, 8)])
    noise = noise_model(movie)
    assert layer.metadata["settings"] == fits.settings.changed(noise=noise).to_dict()
    # Other pixels have another noise.
    image.data = movie[::-1] * np.uint16(3)
    hand.click(image, place, SHIFT)
    settle()
    fits = localize(image.data, settings=widget.settings.settings())
    rows = [row_near(fits, place, 8)]
    np.testing.assert_array_equal(layer.data[-1:], fits.points()[rows])


def test_the_noise_is_measured_before_the_first_click(viewer, widget, make_movie, qtbot):
    image = viewer.add_image(make_movie(3), name="movie")
    widget.picking.click.click()
    noise = widget._noise.get()
    qtbot.waitUntil(lambda: bool(noise._known))
    assert noise is widget._noise.get()
    image.data = image.data.copy()
    assert noise is not widget._noise.get()


def test_real_pixels_of_a_crowded_image(viewer, widget, hand, settle, hybiss):
    image = viewer.add_image(hybiss, name="movie")
    fits = localize(hybiss)
    shape = np.array(hybiss.shape[-2:])
    places = np.column_stack([fits.y, fits.x])
    gaps = np.hypot(*(places[:, None] - places).T) + 99 * np.eye(len(fits))
    # A spot at the very edge has no pixels beside it to click on.
    alone = (gaps.min(axis=0) > 6) & fits.good
    # Among them are spots whose ROI the image's edge shifts.
    at_edge = np.any((places < 3) | (places > shape - 4), axis=1)
    rows = [*np.flatnonzero(alone & at_edge)[:2], *np.flatnonzero(alone & ~at_edge)[:4]]
    assert len(rows) == 6
    for row in rows:
        hand.click(image, places[row] + (0.8, -0.8), SHIFT)
        settle()
    assert_rows_of(viewer.layers["movie (picked)"], fits, rows)


def test_clicks_in_a_crowd(viewer, widget, hand, settle, crowds):
    movie, fits = crowds
    image = viewer.add_image(movie, name="movie")
    widget.settings.controls["sigma"].value = 1.3
    widget.settings.controls["neighbours"].value = "exclude"
    viewer.dims.set_current_step(0, 2)
    widget.picking.click.click()
    places = np.column_stack([fits.y, fits.x])
    close = (fits.flags & int(Flag.NEIGHBOUR)) != 0
    brightest = np.argsort(-fits.score * (fits.frame == 2) * close * fits.good)[:5]
    for row in brightest:
        hand.click(image, places[row])
        settle()
    assert_rows_of(viewer.layers["movie (picked)"], fits, list(brightest))
    widget.settings.controls["neighbours"].value = "ignore"
    hand.click(image, places[brightest[-1]])
    settle()
    layer = viewer.layers["movie (picked)"]
    assert layer.features["sigma"].iloc[-1] != pytest.approx(float(fits.sigma[brightest[-1]]))


def test_shift_click_picks_and_a_plain_one_does_not(
    viewer, widget, hand, settle, make_movie, spots
):
    image = viewer.add_image(make_movie(), name="movie")
    hand.click(image, spots[0])
    hand.click(image, spots[0], CONTROL)
    hand.click(image, spots[0], SHIFT, RIGHT)
    settle()
    assert list(viewer.layers) == [image]
    hand.click(image, spots[0], SHIFT)
    settle()
    assert len(viewer.layers["movie (picked)"].data) == 1


def test_without_snap_the_clicked_pixel_counts(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    corners = {}
    for snap in (True, False):
        widget.picking.snap.setChecked(snap)
        hand.click(image, spots[0] + (2, 1), SHIFT)
        settle()
        features = viewer.layers["movie (picked)"].features
        corners[snap] = features[["roi_y", "roi_x"]].to_numpy().tolist()
    center = np.rint(spots[0])
    assert corners[True] == [(center - 4).tolist()]
    assert corners[False] == [(np.rint(spots[0] + (2, 1)) - 4).tolist()]


def test_a_second_click_fits_the_spot_again(viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(2), name="movie")
    for number in (0, 1, 0):
        hand.click(image, spots[number], SHIFT)
        settle()
    widget.settings.controls["roi_size"].value = 7
    widget.settings.controls["errors"].value = False
    hand.click(image, spots[1], SHIFT)
    settle()
    layer = viewer.layers["movie (picked)"]
    assert len(layer.data) == 2
    np.testing.assert_allclose(layer.data[:, -2:], spots[:2], atol=0.2)
    assert layer.features["roi_size"].tolist() == [9, 7]
    assert np.isnan(layer.features["sigma_stderr"]).tolist() == [False, True]
    assert set(layer.selected_data) == {1}
    viewer.dims.set_current_step(0, 1)
    hand.click(image, spots[1], SHIFT)
    settle()
    assert layer.data[:, 0].tolist() == [0, 0, 1]


def test_colors_are_those_of_a_fit_of_the_image(viewer, widget, hand, settle, make_movie, spots):
    from napari.utils.colormaps import ensure_colormap

    image = viewer.add_image(make_movie(), name="movie")
    for place in spots:
        hand.click(image, place, SHIFT)
        settle()
    layer = viewer.layers["movie (picked)"]
    for face in ("sigma", "stop_condition", "photons"):
        widget.result.face.setCurrentIndex(widget.result.face.findData(face))
        widget.result.face.activated.emit(widget.result.face.currentIndex())
        hand.click(image, spots[0], SHIFT)
        settle()
        values = layer.features[face].to_numpy()
        if face == "stop_condition":
            np.testing.assert_allclose(layer.face_color, layer.border_color, atol=1e-6)
            continue
        low, high = layer.face_contrast_limits
        assert values.min() <= low < high <= values.max()
        expected = ensure_colormap("viridis").map(np.clip((values - low) / (high - low), 0, 1))
        np.testing.assert_allclose(layer.face_color, expected, atol=0.01)
    borders = [STOP_COLORS[name] for name in layer.features["stop_condition"]]
    np.testing.assert_allclose(layer.border_color, transform_color(borders), atol=1e-6)


@pytest.mark.parametrize("kind", ["dask", "multiscale", "transformed", "rows and columns swapped"])
def test_any_image(viewer, widget, hand, settle, make_movie, spots, kind):
    movie = make_movie(2, 3)
    more = {"contrast_limits": (90, 600), "name": "movie"}
    if kind == "dask":
        dask_array = pytest.importorskip("dask.array")
        image = viewer.add_image(dask_array.from_array(movie, chunks=(1, 1, 48, 50)), **more)
    elif kind == "multiscale":
        image = viewer.add_image([movie, movie[..., ::2, ::2]], multiscale=True, **more)
    else:
        image = viewer.add_image(movie, scale=(3, 2, 0.1, 0.2), translate=(1, -4, 5, -3),
                                 rotate=30, units=("s", "um", "um", "um"), **more)  # fmt: skip
    viewer.dims.set_current_step(0, 1)
    viewer.dims.set_current_step(1, 2)
    if kind == "rows and columns swapped":
        viewer.dims.order = (0, 1, 3, 2)
    viewer.reset_view()
    hand.click(image, spots[3] + (1, 1), SHIFT)
    settle()
    layer = viewer.layers["movie (picked)"]
    assert layer.data[0, :2].tolist() == [1, 2]
    np.testing.assert_allclose(layer.data[0, 2:], spots[3], atol=0.1)
    assert layer.features[["axis_0", "frame"]].to_numpy().tolist() == [[1, 2]]
    np.testing.assert_allclose(layer.data_to_world(layer.data[0]),
                               image.data_to_world(layer.data[0]))  # fmt: skip
    assert layer.units == image.units


@pytest.mark.parametrize(("gain", "unit"), [(None, "counts"), (2.0, "photons")])
def test_light_is_shown_in_its_unit(gain, unit, viewer, widget, hand, settle, make_movie, spots):
    image = viewer.add_image(make_movie(), name="movie")
    widget.settings.controls["gain"].value = gain
    hand.click(image, spots[0], SHIFT)
    settle()
    assert viewer.layers["movie (picked)"].metadata["units"]["photons"] == unit
    assert f" {unit}, converged" in widget.status.text()
