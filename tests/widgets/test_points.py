"""Layers to arrays and fits to layers, without a window."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image
from volume_fits import fits_in_volumes

from napari_spotfit import Settings, SpotFits, StopCondition, to_points_layer
from napari_spotfit.widgets.layers import images, points
from napari_spotfit.widgets.layers.appearance import STOP_COLORS, color_faces


def make_fits(stops, *, frames=None, sigma=None):
    """Return fits with the given stop conditions, 5 px apart on the diagonal."""
    count = len(stops)
    place = 5.0 * np.arange(count)
    number = np.arange(count, dtype=np.float32)
    columns = {
        "y": place,
        "x": place + 1,
        "sigma": 1.3 + 0.01 * number if sigma is None else np.asarray(sigma, np.float32),
        "photons": 100 + number,
        "iterations": np.full(count, 4, np.uint16),
        "stop_condition": np.asarray(stops, np.uint8),
        "sigma_stderr": np.where(number % 2, 0.1, np.nan).astype(np.float32),
    }
    invalid = columns["stop_condition"] == StopCondition.INVALID
    for name in ("y", "x", "sigma", "photons"):
        columns[name] = np.where(invalid, np.nan, columns[name])
    if frames is None:
        return SpotFits(columns)
    return SpotFits({"frame": np.asarray(frames, np.int64), **columns}, ["frame"])


EVERY = list(StopCondition)[: StopCondition.UNKNOWN]


def test_importing_needs_no_napari():
    code = (
        "import sys, napari_spotfit.widgets.layers.points; "
        "print({'napari', 'qtpy'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_one_point_for_every_valid_fit():
    layer = to_points_layer(make_fits(EVERY))
    assert layer.name == "spots"
    np.testing.assert_array_equal(layer.data[:, 1], layer.data[:, 0] + 1)
    assert len(layer.data) == len(EVERY) - 1
    assert np.isfinite(layer.data).all()
    assert layer.metadata["invalid"] == 1
    assert layer.metadata["stop_counts"] == {one.name: int(one in EVERY) for one in StopCondition}
    assert layer.metadata["units"]["photons"] == "counts"  # the gain is not known


def test_every_column_is_a_feature():
    fits = make_fits(EVERY, frames=range(6))
    features = to_points_layer(fits).features
    assert list(features) == [*fits.columns, "flags", "good"]
    drawn = fits[fits.valid]
    for name in ("frame", "sigma", "iterations"):
        assert features[name].dtype.kind == "f"
        np.testing.assert_array_equal(features[name], drawn.columns[name])
    assert list(features["stop_condition"]) == [c.name for c in EVERY if c.name != "INVALID"]


def test_border_colors_are_fixed_whichever_conditions_occur():
    from napari.utils.colormaps.standardize_color import transform_color

    for stops in ([2, 3, 4], [4, 4], [0]):
        layer = to_points_layer(make_fits(stops))
        expected = transform_color([STOP_COLORS[StopCondition(stop).name] for stop in stops])
        np.testing.assert_allclose(layer.border_color, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("stops", "sigma"),
    [([], []), ([2], [1.3]), ([2, 2, 2], [1.3] * 3), ([5], [1.3]), ([0, 4], [1, 2])],
    ids=["none", "one", "equal", "invalid", "unconverged"],
)
def test_color_limits_are_always_finite_and_rising(stops, sigma):
    layer = to_points_layer(make_fits(stops, sigma=sigma))
    low, high = layer.face_contrast_limits
    assert np.isfinite([low, high]).all()
    assert low < high
    assert layer.face_color_mode == "colormap"


def test_color_limits_follow_the_good_fits():
    sigma = np.r_[np.linspace(1.2, 1.4, 200), 30.0]
    layer = to_points_layer(make_fits([2] * 200 + [0], sigma=sigma))
    assert layer.face_contrast_limits == pytest.approx((1.2, 1.4), abs=0.01)


def test_the_ring_leaves_the_spot_in_view():
    layer = to_points_layer(make_fits([2] * 3, sigma=[2, 2, 2]))
    assert set(map(str, layer.symbol)) == {"ring"}
    # The hole of napari's ring is half as wide as the ring.
    assert layer.size[0] / 2 >= 3 * 2


def test_the_layer_lies_on_its_image():
    image = Image(
        np.zeros((4, 20, 20)),
        name="stack",
        scale=(3, 0.5, 0.25),
        translate=(1, 2, 3),
        rotate=20,
        shear=(0, 0, 0.2),
        affine=np.diag([1, 2, 2, 1]),
        units=("um", "um", "um"),
        axis_labels=("z", "y", "x"),
    )
    layer = to_points_layer(make_fits([2, 2], frames=[0, 3]), image)
    assert layer.name == "stack spots"
    assert layer.units == image.units
    assert layer.axis_labels == ("z", "y", "x")
    for point in layer.data:
        np.testing.assert_allclose(layer.data_to_world(point), image.data_to_world(point))


def test_name_and_face_can_be_chosen():
    layer = to_points_layer(make_fits([2, 3]), name="mine", face="photons")
    assert layer.name == "mine"
    assert layer.face_contrast_limits[0] >= 100
    with pytest.raises(ValueError, match=r"face must be a column.*sigma.*got 'width'"):
        to_points_layer(make_fits([2]), face="width")


def test_fits_of_one_frame_do_not_go_on_a_movie():
    movie = Image(np.zeros((4, 20, 20)), name="movie")
    with pytest.raises(ValueError, match=r"2 axes.*“movie” has 3"):
        to_points_layer(make_fits([2]), movie)


def test_faces_go_from_numbers_to_words_and_back():
    layer = to_points_layer(make_fits([2, 2, 4, 0]))
    color_faces(layer, "stop_condition")
    np.testing.assert_allclose(layer.face_color, layer.border_color)
    color_faces(layer, "sigma_stderr")
    assert np.isfinite(layer.face_contrast_limits).all()
    color_faces(layer, "photons")
    low, high = layer.face_contrast_limits
    assert 100 <= low < high <= 101
    assert layer.metadata["face"] == "photons"


def test_updating_shows_other_spots_and_keeps_the_look():
    image = Image(np.zeros((4, 20, 20)), name="movie")
    layer = to_points_layer(make_fits(EVERY, frames=range(6)), image)
    layer.opacity, layer.shown = 0.3, False
    for stops in ([2] * 9, [], [3]):
        fits = make_fits(stops, frames=range(len(stops)))
        points.update_points_layer(layer, points.points_arguments(fits), image)
        points.color_points_layer(layer)
        np.testing.assert_array_equal(layer.data, fits.points())
        assert list(layer.features["photons"]) == list(fits.photons)
        assert layer.shown.all()
        assert layer.metadata["stop_counts"]["MIN_DELTA"] == stops.count(2)
    assert layer.opacity == 0.3
    assert layer.face_color_mode == "colormap"
    assert layer.border_color_mode == "cycle"


def test_full_resolution_refuses_rgb():
    with pytest.raises(ValueError, match="“photo” is a colour"):
        images.full_resolution(Image(np.zeros((9, 9, 3)), rgb=True, name="photo"))


def test_full_resolution_of_a_pyramid():
    fine = np.zeros((3, 16, 16))
    layer = Image([fine, fine[:, ::2, ::2]], multiscale=True)
    assert images.full_resolution(layer).shape == fine.shape


def test_current_frame_follows_the_sliders():
    viewer = ViewerModel()
    image = viewer.add_image(np.zeros((5, 4, 9, 9)), scale=(2, 3, 1, 1), translate=(10, 0, 0, 0))
    viewer.dims.set_point((0, 1), (10 + 2 * 3, 3 * 2))
    assert images.current_frame(viewer, image) == (3, 2)
    assert images.current_frame(viewer, viewer.add_image(np.zeros((9, 9)))) == ()


def test_current_frame_outside_the_layer():
    viewer = ViewerModel()
    viewer.add_image(np.zeros((9, 9, 9)))
    short = viewer.add_image(np.zeros((3, 9, 9)), name="short")
    viewer.dims.set_current_step(0, 7)
    with pytest.raises(ValueError, match="“short” has no frame at the current position"):
        images.current_frame(viewer, short)


def test_axis_names():
    assert images.leading_names(Image(np.zeros((2, 3, 9, 9)))) == ("Axis 0", "Axis 1")
    named = Image(np.zeros((2, 3, 9, 9)), axis_labels=("t", "c", "y", "x"))
    assert images.leading_names(named) == ("t", "c")


def test_other_models_colour_their_first_width():
    fits = make_fits([2, 2, 3], sigma=[1.0, 1.0, 1.0])
    columns = fits.columns
    columns.pop("sigma")
    columns |= {name: np.full(3, 1.5, np.float32) for name in ("sigma_x", "sigma_y")}
    other = SpotFits(
        columns, fits.index_names, Settings(sigma=1.3, roi_size=9, model="gaussian_elliptical")
    )
    arguments = points.points_arguments(other)
    assert arguments["face_color"] == "sigma_x"
    assert arguments["size"][0] == pytest.approx(7 * 1.5)
    assert arguments["metadata"]["units"]["sigma_y"] == "px"


@pytest.mark.parametrize("fits", [None, np.zeros((3, 2)), "spots"], ids=repr)
def test_what_is_no_fits_is_named(fits):
    with pytest.raises(TypeError, match=r"fits must be SpotFits, .* return; got"):
        to_points_layer(fits)


def test_spots_of_volumes_have_a_place_along_z():
    fits = fits_in_volumes(5)
    layer = to_points_layer(fits)
    np.testing.assert_array_equal(layer.data, fits.points())
    assert layer.data.shape == (5, 4)
    again = points.fits_of_features(layer.features, layer.metadata)
    assert again.axes == ("z", "y", "x")
    np.testing.assert_array_equal(again.points(), fits.points())
    # Pixels' size says nothing of the distance of planes.
    size = images.PixelSize(0.1, 0.1, "µm")
    assert [size.factor(name) for name in ("z", "roi_z", "sigma_z")] == [None] * 3
