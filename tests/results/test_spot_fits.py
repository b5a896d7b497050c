"""SpotFits: columns, slices, tables."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import Settings, SpotFits, StopCondition, localize, simulate_movie
from napari_spotfit.models.profiles import MODELS
from napari_spotfit.results.columns import units_of


@pytest.fixture(scope="module")
def fits():
    movie, _ = simulate_movie(4, shape=(64, 64), spots_per_frame=4, seed=0)
    return localize(movie)


def test_columns_are_attributes(fits):
    assert fits.sigma is fits.columns["sigma"]
    assert "sigma" in dir(fits)
    with pytest.raises(AttributeError, match="no column 'sigma_x'; they have frame, y, x"):
        _ = fits.sigma_x


def test_slices_keep_all_columns(fits):
    mask = fits.x > 30
    assert np.array_equal(fits[mask].y, fits.y[mask])
    assert len(fits[2:4]) == 2
    assert len(fits[1]) == 1
    assert [len(fit) for fit in fits] == [1] * len(fits)
    assert fits[mask].index_names == ("frame",)


def test_points_are_naparis(fits):
    points = fits.points()
    assert np.array_equal(points, np.column_stack([fits.frame, fits.y, fits.x]))


def test_table_has_words_and_units(fits):
    table = fits.to_dataframe()
    assert list(table) == list(fits.columns)
    assert set(table["stop_condition"]) <= {condition.name for condition in StopCondition}
    assert table.attrs["units"]["photons_stderr"] == "photons"
    assert table.attrs["units"] == fits.units
    assert fits.units["chi_square"] == "counts²"
    assert set(fits.units) <= set(table)


def test_counts_and_masks(fits):
    counts = fits.stop_counts()
    assert sum(counts.values()) == len(fits)
    assert sum(n for c, n in counts.items() if c.converged) == fits.converged.sum()
    assert fits.valid.all()


def test_joining_undoes_slicing(fits):
    joined = SpotFits.concatenate([fits[:3], fits[3:]])
    assert all(np.array_equal(joined.columns[n], fits.columns[n]) for n in fits.columns)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        SpotFits({"y": np.zeros(3), "x": np.zeros(4)})


def test_repr_says_what_there_is(fits):
    assert f"{len(fits)} spots" in repr(fits)
    assert "no spots" in repr(fits[:0])


def test_every_stop_condition_is_explained():
    for condition in StopCondition:
        assert condition.explanation.endswith(".")
        assert isinstance(condition.converged, bool)


def made_up(settings, **columns):
    values = {name: np.full(3, value, np.float32) for name, value in columns.items()}
    return SpotFits({"y": np.zeros(3), "x": np.zeros(3)} | values, settings=settings)


@pytest.mark.parametrize("model", list(MODELS))
def test_units_follow_the_model(model):
    units = units_of(Settings(model=model, estimator="mle"))
    for parameter in MODELS[model].shape:
        assert units[parameter.name] == units[f"{parameter.name}_stderr"] == parameter.unit
    # A deviance has no unit.
    assert "chi_square" not in units


def test_the_mean_width_of_any_model():
    """As of a round Gaussian of the same height and light, also where there is no σ."""
    light = {"amplitude": 40.0, "photons": 2 * np.pi * 1.5 * 40 / 2.5}
    for model, widths in (
        ("gaussian", {"sigma": 1.5**0.5}),
        ("gaussian_elliptical", {"sigma_x": 2.0, "sigma_y": 0.75}),
        ("gaussian_rotated", {"sigma_x": 2.0, "sigma_y": 0.75, "angle": 20.0}),
        ("lorentzian", {"width": 9.0}),
    ):
        fits = made_up(Settings(model=model, gain=2.5), **widths, **light)
        np.testing.assert_allclose(fits.mean_sigma, 1.5**0.5, rtol=1e-6)


def test_columns_are_found_by_name(fits):
    assert "sigma" in fits
    assert "sigma_x" not in fits
