"""The table of columns, and what is generated from it."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import Settings, SpotFits, localize, simulate_movie
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.models.columns import (
    AXES,
    COLUMNS,
    COMMON,
    ROWS,
    as_column,
    columns_in,
    describe,
    is_index,
)
from napari_spotfit.models.profiles import ALL_MODELS, GAUSSIAN_3D, MODELS, Profile
from napari_spotfit.results.columns import units_of


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=0)[0]


@pytest.mark.parametrize("model", list(MODELS))
def test_every_column_of_fits_is_in_the_table_with_its_type(movie, model):
    fits = localize(movie, model=model, sigma=1.3)
    for name, values in fits.columns.items():
        column = describe(name)
        assert values.dtype == column.type, name
        assert is_index(name) or name in COLUMNS
        assert column.meaning.endswith(".")
    table = fits.to_dataframe()
    assert {name for name in table if not is_index(name)} <= set(COLUMNS)


def test_columns_with_a_standard_error_are_those_of_the_table(movie):
    fits = localize(movie, sigma=1.3)
    known = [COLUMNS[name] for name in fits.columns]
    errors = {one.name for one in known if one.error_of}
    assert errors == {one.standard_error().name for one in known if one.error_formats is not None}


def test_one_row_is_a_column_of_each_axis():
    for row in ROWS:
        columns = row.along_axes()
        assert [one.axis for one in columns] == ([*AXES] if "{axis}" in row.name else [row.axis])
        assert not any(set("{}") & set(one.name + one.meaning + one.label) for one in columns)
        assert not any(set("{}") & set(title) for one in columns for title in one.formats.values())
    assert COLUMNS["roi_x"].axis == COLUMNS["x_stderr"].axis == "x"
    assert COLUMNS["x_stderr"].error_of == "x"


def test_z_is_in_planes_and_called_as_its_formats_do():
    z, error, roi = (COLUMNS[name] for name in ("z", "z_stderr", "roi_z"))
    assert [one.unit for one in (z, error, roi, COLUMNS["sigma_z"])] == ["planes"] * 4
    assert set(z.formats) == {"picasso", "thunderstorm", "smap", "decode", "smlm"}
    assert error.formats["thunderstorm"] == "uncertainty_z [nm]"
    assert not {"thunderstorm"} & set(COLUMNS["x_stderr"].formats)
    assert (z.kind, COLUMNS["y"].kind) == ("number", "position")


def test_a_model_says_its_axes():
    assert {model.axes for model in ALL_MODELS.values()} == {("y", "x"), ("z", "y", "x")}
    assert GAUSSIAN_3D.widths == ("sigma", "sigma_z")
    units = units_of(Settings(model="gaussian_3d"))
    assert [units[name] for name in ("z", "z_stderr", "roi_z", "sigma_z")] == ["planes"] * 4
    top = dict.fromkeys(("z", "y", "x"), 2.0) | {"sigma": 1.3, "sigma_z": 1.7}
    image = GAUSSIAN_3D.evaluate(np.indices((5, 5, 5)), top | {"amplitude": 3, "background": 1})
    assert np.unravel_index(image.argmax(), image.shape) == (2, 2, 2)
    assert image.max() == 4


def test_z_may_be_a_parameter_of_a_model_in_a_plane():
    own = Profile.from_expression(
        "exp(-((x-x0)**2 + (y-y0)**2) / (2*(1 + z**2)))", start={"z": 0.5}
    )
    assert own.axes == ("y", "x")
    assert own.widths == ("z",)
    assert units_of(Settings(model=own)).get("z") is None


def test_formats_have_each_title_and_each_column_once():
    for name in EXCHANGE:
        titles = [column.formats[name] for column in columns_in(name)]
        assert len(set(titles)) == len(titles), name
    known = {format for column in COLUMNS.values() for format in column.formats}
    assert known <= set(EXCHANGE)


def test_units_are_those_of_the_table():
    units = units_of(Settings(gain=2.0))
    for name in ("y", "sigma", "sigma_stderr", "roi_x", "background", "photons", "chi_square"):
        assert units[name] == COLUMNS[name].unit
    assert "z" not in units  # a model in a plane has none


def test_names_that_editors_complete_have_the_types_of_the_table():
    for name, kind in SpotFits.__annotations__.items():
        if name in COLUMNS:
            assert COLUMNS[name].type in kind, name


def test_fits_explain_their_columns():
    text = SpotFits.__doc__
    other = {"frame", "channel", "plane", "label", "track", "registered", "refit"}
    other |= {name for name in COMMON if COLUMNS[name].group == "analysis"}  # not of fits
    for name in sorted(COMMON - other):
        assert f"    {name} : ndarray of {COLUMNS[name].type}" in text
    assert "{columns}" not in text


def test_shape_parameters_of_any_model_are_described():
    own = COLUMNS["width"]
    lorentzian = [one.column for one in MODELS["lorentzian"].shape]
    assert describe("width", lorentzian).meaning != own.meaning
    error = describe("width_stderr", lorentzian)
    assert (error.unit, error.error_of, error.type) == ("px", "width", "float32")


def test_whole_numbers_are_whole_again_where_they_fit():
    assert as_column("label", np.array([1.0, 2.0])).dtype == np.int64
    assert as_column("flags", np.array([-1.0])).dtype == np.float64
    assert as_column("axis_3", np.array([1.0])).dtype == np.int64
    assert as_column("photons", np.array([1.0])).dtype == np.float64
