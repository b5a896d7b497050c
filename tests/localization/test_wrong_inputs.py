"""Wrong inputs raise errors that name them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from named_axes import Named

from napari_spotfit import (
    Settings,
    SpotFits,
    Tracker,
    detect_spots,
    estimate_sigma,
    fit_at,
    fit_spots,
    localize,
    localize_iter,
    simulate_movie,
    simulate_spots,
)
from napari_spotfit.images.arrays import plane_axis

MOVIE, TRUTH = simulate_movie(3, shape=(40, 44), spots_per_frame=4, photons=3000, seed=1)
CUT_OUTS, _ = simulate_spots(5, seed=1)


@pytest.mark.parametrize("function", [localize, detect_spots, estimate_sigma])
@pytest.mark.parametrize("image", [[[1, 2], [3]], [MOVIE[0], MOVIE[0, :5]]], ids=["rows", "frames"])
def test_ragged_images(function, image):
    with pytest.raises(ValueError, match="rows of one length; got a list whose parts differ"):
        function(image)


def test_ragged_cut_outs_and_places():
    with pytest.raises(ValueError, match="parts differ in length"):
        fit_spots([CUT_OUTS[0], CUT_OUTS[0][:5]])
    with pytest.raises(ValueError, match="parts differ in length"):
        fit_at(MOVIE[0], [[1, 2], [3]])


@pytest.mark.parametrize(
    "centers", [[["a", "b"]], "ab", [[1j, 2]], [[True, False]], {"y": 1}], ids=repr
)
def test_places_that_are_no_numbers(centers):
    with pytest.raises(TypeError, match="centers must hold integers or real numbers; got"):
        fit_at(MOVIE[0], centers)


def test_places_of_a_table_with_columns_of_several_types():
    table = TRUTH[["frame", "y", "x"]]
    plain, objects = (fit_at(MOVIE, places) for places in (table, table.astype(object)))
    np.testing.assert_array_equal(plain.x, objects.x)


@pytest.mark.parametrize("centers", [[], np.empty((0, 3)), np.empty((0, 3), int)], ids=repr)
def test_no_places_are_no_fits(centers):
    assert len(fit_at(MOVIE, centers)) == 0


def test_bad_pixels_upside_down_are_warned_of():
    bad = np.zeros(MOVIE.shape[-2:], bool)
    bad[:, :3] = True
    with pytest.warns(UserWarning, match="give ~bad_pixels"):
        localize(MOVIE, bad_pixels=~bad, sigma=1.3)
    with pytest.warns(UserWarning, match="give ~bad_pixels"):
        list(localize_iter(MOVIE, bad_pixels=~bad, sigma=1.3))
    localize(MOVIE, bad_pixels=bad)


@pytest.mark.parametrize("centers", [[[]], [1, 2, 3], [[1, 2]], None], ids=repr)
def test_places_of_other_axes(centers):
    with pytest.raises(ValueError, match=r"centers must have the shape \(n, 3\)"):
        fit_at(MOVIE, centers)


def test_masked_values_are_never_overlooked():
    image = MOVIE[0].astype(float)
    masked = np.ma.masked_greater(image, 120)
    for function in (localize, detect_spots, estimate_sigma):
        with pytest.raises(ValueError, match=r"masked \(numpy.ma\)"):
            function(masked)
    with pytest.raises(ValueError, match="masked"):
        fit_spots(np.ma.masked_greater(CUT_OUTS, CUT_OUTS.min()))
    with pytest.raises(ValueError, match="masked"):
        fit_at(image, np.ma.array([[10.0, 10.0]], mask=[[True, False]]))
    with pytest.raises(ValueError, match="masked"):
        localize(image, bad_pixels=np.ma.array(image > 120, mask=image > 130))
    fits = fit_spots(CUT_OUTS)
    with pytest.raises(ValueError, match="some rows are masked"):
        fits[np.ma.array([True] * 5, mask=[1, 0, 0, 0, 0])]
    assert len(localize(np.ma.array(image))) == len(localize(image))


@pytest.mark.parametrize(
    "options",
    [
        {"sigma_max": 0.1},
        {"amplitude_max": -1.0, "estimator": "mle"},
        {"fixed": {"y": 100.0}},
        {"bounds": {"sigma": (3.0, 2.0)}},
        {"bounds": {"y": (20.0, 30.0)}},
        {"sigma_min": 3.0, "sigma_max": 2.0},
        {"background_min": 5.0, "background_max": 1.0},
    ],
    ids=str,
)
def test_bounds_that_leave_nothing(options):
    with pytest.raises(ValueError, match=r"must be above|must rise|which ends at"):
        localize(MOVIE, **options)


@pytest.mark.parametrize("function", [localize, detect_spots, estimate_sigma, fit_spots])
def test_settings_as_a_dict(function):
    given = CUT_OUTS if function is fit_spots else MOVIE
    with pytest.raises(TypeError, match=r"got a dict: Settings\(\*\*settings\) makes them"):
        function(given, settings={"sigma": 1.3})


def test_progress_that_cannot_be_called_is_named_before_the_work():
    with pytest.raises(TypeError, match="progress must be a function of two numbers; got 1"):
        localize(MOVIE, progress=1)


@pytest.mark.parametrize("rows", [None, True, np.True_, "x", 1.0], ids=repr)
def test_rows_that_choose_nothing(rows):
    with pytest.raises(TypeError, match="chosen by a mask, a slice, row numbers or one of them"):
        fit_spots(CUT_OUTS)[rows]


@pytest.mark.parametrize("columns", [None, [1, 2], {"y": 5}, {"y": np.zeros((2, 2))}], ids=repr)
def test_columns_that_are_none(columns):
    with pytest.raises(TypeError, match="a mapping of names to arrays of one axis"):
        SpotFits(columns)


@pytest.mark.parametrize("parts", [None, 5, [1], "ab"], ids=repr)
def test_parts_that_are_no_fits(parts):
    with pytest.raises(TypeError, match="fits are joined from a sequence of SpotFits"):
        SpotFits.concatenate(parts)
    with pytest.raises(TypeError, match="got <SpotFits: 5 spots"):
        SpotFits.concatenate(fit_spots(CUT_OUTS))


@pytest.mark.parametrize("dims", [("z", "y", "x"), ("Z", "y", "x"), ("plane", "row", "column")])
def test_a_stack_of_planes_is_warned_of_once(dims):
    with pytest.warns(UserWarning, match=f"each plane along axis {dims[0]}") as warned:
        fits = localize(Named(MOVIE, dims), settings=Settings())
    assert len(warned) == 1
    np.testing.assert_array_equal(fits.x, localize(MOVIE).x)


def test_other_stacks_are_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(Named(MOVIE, ("t", "y", "x")))
        localize(Named(MOVIE[:1], ("z", "y", "x")))
        localize(MOVIE)
    assert plane_axis(MOVIE, ("y", "z", "x")) is None
    assert plane_axis(MOVIE[None], ("t", "z", "y", "x")) == "z"
    assert plane_axis(MOVIE, ("z", "y")) is None


def test_volumes_are_no_planes():
    with pytest.raises(ValueError, match=r"shape \(n, planes, rows, columns\) for the model gauss"):
        fit_spots(np.zeros((4, 9, 9)), model="gaussian_3d")
    with pytest.raises(ValueError, match="spots in volumes, which localize, fit_at and"):
        Tracker([[9, 9]], settings=Settings(model="gaussian_3d"))
    assert plane_axis(MOVIE[None], ("t", "z", "y", "x"), spatial=3) is None
    assert plane_axis(np.zeros((5, 3, 9, 9)), ("z", "t", "y", "x"), spatial=3) == "z"
