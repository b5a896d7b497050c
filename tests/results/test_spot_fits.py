"""SpotFits: columns, slices, tables."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from volume_fits import fits_in_volumes

from napari_spotfit import (
    Settings,
    SpotFits,
    StopCondition,
    fit_at,
    fit_spots,
    load_fits,
    localize,
    simulate_movie,
    simulate_spots,
)
from napari_spotfit.models.profiles import MODELS
from napari_spotfit.results.columns import units_of


@pytest.fixture(scope="module")
def fits():
    movie, _ = simulate_movie(4, shape=(64, 64), spots_per_frame=4, seed=0)
    return localize(movie, neighbours="exclude")


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
    assert list(table) == [*fits.columns, "good"]
    np.testing.assert_array_equal(table["flags"], fits.flags)
    np.testing.assert_array_equal(table["good"], fits.good)
    assert set(table["stop_condition"]) <= {condition.name for condition in StopCondition}
    assert table.attrs["units"]["photons_stderr"] == "counts"  # as the gain is not known
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
    for name in fits.columns:
        np.testing.assert_array_equal(joined.columns[name], fits.columns[name], name)


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
        for name in (parameter.name, f"{parameter.name}_stderr"):
            assert units.get(name, "") == parameter.unit, name
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
        # (1 + r²/w²)^-2 is one half at w √(√2 - 1).
        ("moffat", {"width": 1.5**0.5 * (2 * np.log(2) / (2**0.5 - 1)) ** 0.5, "exponent": 2.0}),
    ):
        fits = made_up(Settings(model=model, gain=2.5), **widths, **light)
        np.testing.assert_allclose(fits.mean_sigma, 1.5**0.5, rtol=1e-6)


def test_columns_are_found_by_name(fits):
    assert "sigma" in fits
    assert "sigma_x" not in fits


def test_a_table_is_a_copy(fits):
    before = fits.x.copy()
    table = fits.to_dataframe()
    table.loc[0, "x"] = -1.0
    table["y"].to_numpy(copy=False)
    np.testing.assert_array_equal(fits.x, before)
    assert not any(
        np.shares_memory(fits.columns[name], table[name].to_numpy())
        for name in fits.columns
        if name != "stop_condition"
    )


def test_fits_stay_as_they_are(fits):
    for name in ("x", "sigma", "settings", "converged", "anything", "_columns"):
        with pytest.raises(AttributeError, match=f"{name} cannot be set, as fits are immutable"):
            setattr(fits, name, 1)
    with pytest.raises(AttributeError, match="x cannot be deleted"):
        del fits.x
    again = pickle.loads(pickle.dumps(copy.deepcopy(copy.copy(fits))))
    assert again.settings == fits.settings
    np.testing.assert_array_equal(again.x, fits.x)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (None, TypeError, "chosen by a mask, a slice, row numbers or one of them; got None"),
        ("x", TypeError, r"got 'x'. The column is fits.x"),
        ((0, 1), TypeError, r"got \(0, 1\)"),
        (1.0, TypeError, "got 1.0"),
        ([[0, 1]], IndexError, r"one row of numbers; got shape \(1, 2\)"),
        (1000, IndexError, "out of bounds"),
    ],
)
def test_what_chooses_no_rows_is_named(fits, rows, error, words):
    with pytest.raises(error, match=words):
        fits[rows]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"errors": False}, "different columns cannot be joined: some have no amplitude_stderr"),
        ({"model": "gaussian_elliptical"}, "different columns cannot be joined"),
        ({"estimator": "mle"}, "a different estimator cannot be joined: 'lse' and 'mle'"),
        ({"gain": 2.0}, "a different gain cannot be joined: None and 2.0"),
        ({"pixel": "integrated"}, "a different pixel cannot be joined"),
    ],
)
def test_fits_that_mean_different_things_are_not_joined(change, words):
    spots, _ = simulate_spots(5, seed=0)
    one, other = fit_spots(spots), fit_spots(spots, **change)
    for parts in ([one, other], [other, one], [one, one, other]):
        with pytest.raises(ValueError, match=words if parts[0] is one else "cannot be joined"):
            SpotFits.concatenate(parts)


def test_fits_that_were_stopped_otherwise_are_joined():
    spots, _ = simulate_spots(5, seed=0)
    one, other = fit_spots(spots), fit_spots(spots, max_iterations=50)
    joined = SpotFits.concatenate([one, other])
    assert len(joined) == 10
    assert joined.settings == one.settings
    with pytest.raises(ValueError, match="different axes cannot be joined"):
        SpotFits.concatenate([SpotFits(one.columns, ["x"], one.settings), one])


def test_nothing_cannot_be_joined():
    with pytest.raises(ValueError, match="there are no fits to join"):
        SpotFits.concatenate([])


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("errors", [True, False])
def test_rows_of_invalid_fits_are_those_of_a_fit(model, errors):
    settings = Settings(model=model, errors=errors, backend="cpu")
    image = np.zeros((20, 20))  # constant: no fit is valid there
    fitted = fit_at(image, [[10, 10]], settings=settings)
    outside = fit_at(image, [[-10, 10]], settings=settings)
    assert list(outside.columns) == list(fitted.columns)
    for name, values in outside.columns.items():
        assert values.dtype == fitted.columns[name].dtype, name
        if "roi" not in name:
            np.testing.assert_array_equal(values, fitted.columns[name], err_msg=name)
    assert outside.roi_y[0] == -1


def test_fits_in_volumes_have_a_place_along_each_axis():
    fits = fits_in_volumes(6)
    assert fits.axes == ("z", "y", "x")
    columns = (fits.frame, fits.z, fits.y, fits.x)
    np.testing.assert_array_equal(fits.points(), np.column_stack(columns))
    assert fits.units["z"] == fits.units["z_stderr"] == fits.units["roi_z"] == "planes"
    assert fits.units["y"] == "px"
    joined = SpotFits.concatenate([fits[:2], fits[2:]])
    assert joined.axes == fits.axes
    np.testing.assert_array_equal(joined.z, fits.z)
    # A z of another program, in nm, is no axis of the image.
    imported = SpotFits(fits.columns, ("frame",), None, units={"z": "nm"})
    assert imported.axes == ("y", "x")
    assert (imported.points().shape[1], imported.units["z"]) == (3, "nm")


@pytest.mark.parametrize("ending", ["spots.csv", "spots.parquet"])
def test_tables_made_by_hand_are_tables_and_files(ending, tmp_path):
    made = SpotFits({"frame": np.arange(2), "y": np.array([0.5, np.nan]), "x": np.ones(2)})
    assert list(made.to_dataframe())[:3] == ["frame", "y", "x"]
    made.save(tmp_path / f"made.{ending}")
    again = load_fits(tmp_path / f"made.{ending}")
    np.testing.assert_array_equal(again.y, made.y)
    assert again.accepted.tolist() == made.accepted.tolist()
