"""What functions of results say of arguments that they cannot use."""

import numpy as np
import pytest

from napari_spotfit import (
    allan_deviation,
    cells_by_channel,
    cluster,
    estimate_drift,
    fourier_ring_correlation,
    link_spots,
    localization_precision,
    localize,
    mean_square_displacements,
    merge_blinks,
    nena,
    pair_spots,
    per_frame,
    per_label,
    power_spectrum,
    render,
    simulate_movie,
    summarize,
    trace,
)

MOVIE = simulate_movie(3, shape=(48, 48), spots_per_frame=5, seed=2)[0]
LABELS = np.ones((48, 48), int)
NOTHING = object()


def kind(value):
    """Return the name of a case, the same in each process."""
    return type(value).__name__


@pytest.fixture(scope="module")
def fits():
    return localize(MOVIE, sigma=1.3)


@pytest.mark.parametrize("wrong", [NOTHING, "much", np.ones((2, 3)), -1.5], ids=kind)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda fits, wrong: cluster(fits, radius=wrong), "radius"),
        (lambda fits, wrong: cluster(fits, radius=1.0, least=wrong), "least"),
        (lambda fits, wrong: cluster(fits, wrong, radius=1.0), "method"),
        (lambda fits, wrong: estimate_drift(fits, wrong), "method"),
        (lambda fits, wrong: estimate_drift(fits, segment=wrong), "segment"),
        (lambda fits, wrong: link_spots(fits, wrong), "max_distance"),
        (lambda fits, wrong: link_spots(fits, 1.0, least_frames=wrong), "least_frames"),
        (lambda fits, wrong: merge_blinks(fits, radius=wrong), "radius"),
        (lambda fits, wrong: merge_blinks(fits, rule=wrong), "rule"),
        (lambda fits, wrong: pair_spots(fits, fits, wrong), "radius"),
        (lambda fits, wrong: pair_spots(fits, fits, 1.0, shape=wrong), "shape"),
        (lambda fits, wrong: per_frame(fits, columns=wrong), "columns"),
        (lambda fits, wrong: per_label(fits, LABELS, columns=wrong), "columns"),
        (lambda fits, wrong: summarize(fits, wrong), "columns"),
        (lambda fits, wrong: cells_by_channel({"a": fits}, LABELS, columns=wrong), "columns"),
        (lambda fits, wrong: render(fits, by=wrong), "by"),
        (lambda fits, wrong: localization_precision(100, 1.3, estimator=wrong), "estimator"),
        (lambda fits, wrong: localization_precision(100, 1.3, pixel=wrong), "pixel"),
        (lambda fits, wrong: allan_deviation(np.arange(9), wrong), "rate"),
        (lambda fits, wrong: power_spectrum(np.arange(9), wrong), "rate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_argument_that_is_wrong_is_named(fits, call, name, wrong):
    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b.* must be .*got ") as caught:
        call(fits, wrong)
    assert len(str(caught.value)) < 400  # an array is described, not printed


@pytest.mark.parametrize("wrong", ["much", {"a": 1}, 10**400, ("a", "b")], ids=kind)
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda fits, wrong: per_label(fits, LABELS, to_labels=wrong), "to_labels"),
        (lambda fits, wrong: trace(MOVIE, wrong), "positions"),
        (lambda fits, wrong: localization_precision(wrong, 1.3), "photons"),
        (lambda fits, wrong: allan_deviation(wrong, 10.0), "values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_are_no_numbers_is_named(fits, call, name, wrong):
    with pytest.raises(TypeError, match=rf"{name} must be numbers; got "):
        call(fits, wrong)


@pytest.mark.parametrize(
    "function",
    [estimate_drift, fourier_ring_correlation, merge_blinks, nena, summarize, cluster],
)
@pytest.mark.parametrize("wrong", [5, None, NOTHING, "movie.csv"], ids=kind)
def test_what_are_no_fits_is_named(function, wrong):
    with pytest.raises(TypeError, match=r"fits must be SpotFits, such as localize .* got an obj"):
        function(wrong)


@pytest.mark.parametrize("most", [0, 1.5, "all"])
def test_the_longest_time_of_displacements_is_a_whole_number(fits, most):
    with pytest.raises((TypeError, ValueError), match="most must be a whole number from 1; got"):
        mean_square_displacements(link_spots(fits, 1.0), most)


def test_one_column_of_cells_is_given_by_its_name(fits):
    table = cells_by_channel({"a": fits, "b": fits}, LABELS, columns="photons")
    assert {"a_photons_sum", "b_photons_sum"} <= set(table)
