"""Positions of a table are taken by the names of its columns, those outside are warned of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from napari_spotfit import fit_at, localize, simulate_movie

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def movie_and_spots():
    movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=6, photons=3000, seed=2)
    return movie, np.column_stack([truth["frame"], truth["y"], truth["x"]]).astype(float)


def table(spots, *names):
    columns = dict(zip(("frame", "y", "x"), spots.T, strict=True))
    return pandas.DataFrame({name: columns[name.lower()] for name in names})


def test_columns_are_taken_by_name(movie_and_spots):
    movie, spots = movie_and_spots
    right = fit_at(movie, spots, sigma=1.3)
    assert right.good.mean() > 0.8
    orders = ("frame", "x", "y"), ("x", "y", "frame"), ("X", "Y", "Frame")
    for given in (*(table(spots, *names) for names in orders),
                  table(spots, "x", "y", "frame").assign(photons=1.0, z=3.0),
                  table(spots, "x", "y", "frame").rename(columns={"x": "col", "y": "row"}),
                  table(spots, "x", "y", "frame").rename(columns={"x": "x [px]", "y": "y_px"}),
                  table(spots, "x", "y", "frame").to_records(index=False)):  # fmt: skip
        fits = fit_at(movie, given, sigma=1.3)
        np.testing.assert_array_equal(fits.y, right.y)
        np.testing.assert_array_equal(fits.x, right.x)


def test_columns_without_such_names_are_taken_by_position(movie_and_spots):
    movie, spots = movie_and_spots
    right = fit_at(movie, spots, sigma=1.3)
    for given in (pandas.DataFrame(spots), pandas.DataFrame(spots, columns=["a", "b", "c"])):
        np.testing.assert_array_equal(fit_at(movie, given, sigma=1.3).y, right.y)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"x": "x [nm]", "y": "y [nm]"}, "must be in pixels"),
        ({"x": "x_nm", "y": "y_nm"}, "must be in pixels"),
        ({"x": "u"}, "no column for the axis x"),
        ({"frame": "when"}, "axes need frame, y and x"),
    ],
)
def test_names_that_contradict_are_refused(movie_and_spots, names, message):
    movie, spots = movie_and_spots
    given = table(spots, "frame", "x", "y").rename(columns=names)
    with pytest.raises(ValueError, match=message):
        fit_at(movie, given, sigma=1.3)


def test_spots_of_several_frames_are_not_of_one(movie_and_spots):
    movie, spots = movie_and_spots
    with pytest.raises(ValueError, match="several frames"):
        fit_at(movie[0], table(spots, "frame", "y", "x"), sigma=1.3)
    first = table(spots[spots[:, 0] == 0], "frame", "x", "y")
    assert fit_at(movie[0], first, sigma=1.3).good.mean() > 0.8


def test_tables_of_stacks(movie_and_spots):
    movie, spots = movie_and_spots
    volume = np.stack([movie] * 2)  # two volumes of three planes
    named = table(spots, "x", "y", "frame").rename(columns={"frame": "z"}).assign(t=1)
    fits = fit_at(volume, named, sigma=1.3)
    np.testing.assert_array_equal(fits.columns["axis_0"], 1)
    np.testing.assert_array_equal(fits.y, fit_at(movie, spots, sigma=1.3).y)
    with pytest.raises(ValueError, match="4 axes need"):
        fit_at(volume, table(spots, "x", "y", "frame"), sigma=1.3)


def test_most_places_outside_are_warned_of(movie_and_spots):
    movie, spots = movie_and_spots
    fits = localize(movie, sigma=1.3)
    in_nm = fits.points() * [1, 100, 100]
    with pytest.warns(UserWarning, match=r"of 64×64 px, such as y .*not in nm"):
        fit_at(movie, in_nm, sigma=1.3)
    some = np.vstack([spots, [0, 80, 20], [0, np.nan, 20]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_at(movie, some, sigma=1.3)
