"""What the inspector computes, without a window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import napari_spotfit
from napari_spotfit import Flag, Settings, StopCondition
from napari_spotfit.analysis.fit_hints import hint
from napari_spotfit.analysis.group_region import sample_group
from napari_spotfit.analysis.spot_sample import FittedFrame, Roi, roi_of, sample_spot
from napari_spotfit.results.formatting import plain, with_error
from napari_spotfit.widgets.inspecting.spot import group_around, positions_around, spot_of

#: χ² is summed in single precision by the fit.
SAME_CHI = 5e-4


def raw(frame):
    """Return a frame that was fitted as the camera took it."""
    return FittedFrame(frame, None, frame, frame)


def rows(fits):
    """Return each fit's columns that are numbers."""
    table = fits.to_dataframe().drop(columns="stop_condition").astype(float)
    return table.to_dict("records")


def spots_of(fits):
    """Return the spots of a layer of fits, and the layer."""
    layer = napari_spotfit.to_points_layer(fits)
    return [(spot_of(layer, row), layer) for row in range(len(layer.data))]


def sampled(spot, layer, frame):
    """Return data and model of a spot as the inspector does, of all spots fitted with it."""
    if (group := group_around(layer, spot)) is not None:
        return sample_group(spot.values, spot.settings, raw(frame), group)
    positions = positions_around(layer, spot, frame.shape)
    return sample_spot(spot.values, spot.settings, raw(frame), positions)


@pytest.mark.parametrize(("offset", "gain"), [(0.0, None), (100.0, None), (250.0, 2.0)])
@pytest.mark.parametrize("roi_size", [9, (7, 11)])
def test_the_residual_is_that_of_the_fit(offset, gain, roi_size):
    movie, _ = napari_spotfit.simulate_movie(
        3, shape=(70, 60), spots_per_frame=8, photons=2000, offset=250, gain=2, seed=4
    )
    fits = napari_spotfit.localize(
        movie, roi_size=roi_size, offset=offset, gain=gain, neighbours="ignore"
    )
    settings = fits.settings.to_dict()
    assert len(fits) > 10
    for values in rows(fits[fits.valid]):
        frame = movie[int(values["frame"])]
        sample = sample_spot(values, settings, raw(frame))
        chi = (sample.residual**2).sum()
        assert chi == pytest.approx(values["chi_square"], rel=SAME_CHI)
        assert sample.is_of(values["chi_square"])
        assert not sample.is_of(2 * values["chi_square"])
        np.testing.assert_array_equal(sample.data - sample.model, sample.residual)
        assert sample.data.shape == Settings(sigma=1.3, roi_size=roi_size).roi_shape
        # A picked spot may have an offset of its own, whatever the layer's last settings.
        own = sample_spot({**values, "offset": offset}, {**settings, "offset": 7.0}, raw(frame))
        np.testing.assert_array_equal(own.residual, sample.residual)
        y, x = round(values["y"]), round(values["x"])
        if 0 <= y - sample.roi.y < sample.roi.rows and 0 <= x - sample.roi.x < sample.roi.columns:
            np.testing.assert_array_equal(sample.row.data, frame[y, sample.row.places.astype(int)])
            np.testing.assert_array_equal(
                sample.column.data, frame[sample.column.places.astype(int), x]
            )
        # The curve goes through the model's own pixels.
        on_pixels = np.interp(sample.row.places, sample.row.fine, sample.row.curve)
        np.testing.assert_allclose(on_pixels, sample.model[sample.row.at - sample.roi.y])


def test_a_spot_of_its_own_roi_size_and_one_without_corner():
    values = {"y": 3.2, "x": 20.0}
    assert roi_of(values, {"roi_size": 7}, (40, 40)) == Roi(0, 17, 7, 7)
    assert roi_of({**values, "x": 39.4}, {}, (40, 40)) == Roi(0, 31, 9, 9)
    assert roi_of(values, {}, (5, 40)) == Roi(0, 16, 5, 9)
    corner = {**values, "roi_y": 1.0, "roi_x": 15.0}
    assert roi_of(corner, {"roi_size": [7, 11]}) == Roi(1, 15, 7, 11)
    assert roi_of({**corner, "roi_size": 5.0}, {"roi_size": 7}) == Roi(1, 15, 5, 5)
    assert roi_of({**corner, "roi_size": np.nan}, {"roi_size": 7}) == Roi(1, 15, 7, 7)


def test_pixels_that_are_gone_get_a_message():
    values = {"y": 30.0, "x": 30.0, "sigma": 1.0, "amplitude": 1.0, "background": 0.0}
    values |= {"roi_y": 26.0, "roi_x": 26.0}
    with pytest.raises(ValueError, match="no longer reaches"):
        sample_spot(values, {}, raw(np.zeros((32, 40))))
    with pytest.raises(ValueError, match="NaN"):
        sample_spot(values, {}, raw(np.full((40, 40), np.nan)))


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (12.3144, 0.0213, "12.314 ± 0.021"),
        (12.3144, 0.0996, "12.31 ± 0.10"),
        (1204.4, 35.2, "1\u202f204 ± 35"),
        (123_456.0, 789.0, "123\u202f460 ± 790"),
        (-0.0004, 0.2, "0.00 ± 0.20"),
        (1.5e-5, 2.2e-6, "(1.50 ± 0.22)×10⁻⁵"),
        (2.5e8, 1.5e6, "(2.500 ± 0.015)×10⁸"),
        (12.3456, None, "12.346"),
        (12.3456, float("nan"), "12.346 ± ?"),
        (5.0, 0.0, "5 ± 0"),
        (float("nan"), 1.0, "–"),
    ],
)
def test_values_are_rounded_by_their_error(value, error, text):
    assert with_error(value, error) == text


@given(st.floats(-1e12, 1e12), st.floats(-12, 12))
def test_what_is_shown_is_the_value_within_its_error(value, power):
    error = 10.0**power
    text = with_error(value, error).replace("\u202f", "")
    text, _, exponent = text.partition("×10")
    first, second = text.strip("()").split(" ± ")
    powers = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    factor = 10.0 ** int(exponent.translate(powers) or 0)
    assert float(first) * factor == pytest.approx(value, abs=0.051 * error + 1e-9 * abs(value))
    assert float(second) * factor == pytest.approx(error, rel=0.051)


def test_plain_numbers():
    assert plain(11417.3) == "11\u202f417"
    assert plain(0.0) == "0"
    assert plain(1234.5678, decimals=3) == "1\u202f234.568"
    assert plain(49.411, digits=3) == "49.4"


GOOD = {
    "y": 20.0,
    "x": 30.0,
    "sigma": 1.3,
    "amplitude": 100.0,
    "background": 10.0,
    "photons": 531.0,
    "y_stderr": 0.1,
    "x_stderr": 0.1,
    "sigma_stderr": 0.1,
    "reduced_chi_square": 50.0,
}
ROI = Roi(16, 26, 9, 9)


@pytest.mark.parametrize(
    ("change", "settings", "words"),
    [
        ({}, {}, ""),
        ({}, {"gain": 2.0}, ""),
        ({"sigma": 0.25}, {}, "lower bound, 0.25 px"),
        ({"sigma": 0.8}, {"sigma_min": 0.8}, "lower bound, 0.8 px"),
        ({"sigma": 9.0}, {}, "upper bound, 9 px"),
        ({"sigma": 2.0}, {"sigma_max": 2.0}, "upper bound, 2 px"),
        ({"y": 15.5}, {}, "edge of the ROI"),
        ({"x": 34.4}, {}, "edge of the ROI"),
        ({"amplitude": -20.0}, {}, "not positive"),
        ({"sigma_stderr": np.nan}, {}, "no standard errors"),
        ({"x": 31.0, "x_stderr": np.nan}, {"bounds": {"x": (-1, 1)}}, "x is at its upper bound"),
        ({"y": 19.5, "y_stderr": np.nan}, {"bounds": {"y": (-0.5, 1)}}, "y is at its lower bound"),
        ({"reduced_chi_square": 4000.0}, {}, ""),
        ({"reduced_chi_square": 4000.0}, {"gain": 2.0}, "that of the noise"),
    ],
)
def test_hints(change, settings, words):
    text = hint(GOOD | change, settings, ROI)
    assert words in text
    assert bool(text) == bool(words)
    assert text.count(". ") == 0


def test_fits_without_standard_errors_get_no_hint():
    assert hint({k: v for k, v in GOOD.items() if "stderr" not in k}, {}, ROI) == ""


def test_simulated_spots_with_the_right_camera_get_no_hint():
    movie, _ = napari_spotfit.simulate_movie(
        5, shape=(128, 128), spots_per_frame=6, photons=3000, offset=100, gain=2, seed=9
    )
    fits = napari_spotfit.localize(movie, offset=100, gain=2, false_spots=1e-9)
    settings = fits.settings.to_dict()
    texts = [hint(values, settings, roi_of(values, settings)) for values in rows(fits)]
    assert len(texts) > 20
    assert np.mean([not text for text in texts]) > 0.9


def test_the_residual_of_a_fit_that_left_its_neighbours_out_is_known_again():
    movie, _ = napari_spotfit.simulate_movie(
        1, shape=(70, 60), spots_per_frame=40, photons=3000, seed=4
    )
    fits = napari_spotfit.localize(movie, neighbours="exclude")
    settings = fits.settings.to_dict()
    spots, frame = rows(fits[fits.valid]), raw(movie[0])
    samples = [(spot, sample_spot(spot, settings, frame)) for spot in spots]
    few = [sample.counted < 81 for _, sample in samples]
    assert 0.3 < np.mean(few) < 1
    for (spot, sample), some in zip(samples, few, strict=True):
        assert sample.is_of(spot["chi_square"])
        if not some:
            assert not sample.is_of(1.1 * spot["chi_square"])
        other = raw(movie[0] + 10 * np.indices((70, 60)).sum(axis=0))
        changed = sample_spot(spot, settings, other)
        assert not changed.is_of(spot["chi_square"])


@pytest.mark.parametrize("neighbours", ["exclude", "ignore"])
def test_it_is_known_which_pixels_have_counted(neighbours):
    movie, _ = napari_spotfit.simulate_movie(
        2, shape=(70, 60), spots_per_frame=40, photons=3000, seed=4
    )
    movie[1, 20:23, 30:33] = movie[1, 40, 8:11] = 65535
    movie[0, 12:60:12, 12:50:12] += 2000
    movie[1, 44:] = 0  # outside of a mask
    fits = napari_spotfit.localize(movie, neighbours=neighbours)
    layer = napari_spotfit.to_points_layer(fits)
    some, alone, masked = 0, 0, 0
    for row in range(len(layer.data)):
        spot = spot_of(layer, row)
        frame = movie[spot.index]
        positions = positions_around(layer, spot, frame.shape)
        sample = sample_spot(spot.values, spot.settings, raw(frame), positions)
        excluded, words = sample.excluded, sample.excluded_in_words
        assert sample.unknown == 0
        assert (~excluded.pixels).sum() == sample.counted
        chi = (sample.residual[~excluded.pixels] ** 2).sum()
        assert chi == pytest.approx(spot.values["chi_square"], rel=SAME_CHI)
        assert sample.is_of(spot.values["chi_square"])
        assert not sample.is_of(1.1 * spot.values["chi_square"])
        assert excluded.neighbour.any() <= (neighbours == "exclude")
        some += excluded.saturated.any()
        alone += excluded.hot.any()
        assert (f"{excluded.hot.sum()} px hot or dead" in words) == excluded.hot.any()
        masked += excluded.padding.any()
        padding = f"{excluded.padding.sum()} px no data but padding"
        assert (padding in words) == excluded.padding.any()
    assert some >= 2
    assert alone >= 5
    assert masked >= 2
    # A spot alone in its layer does not know of its neighbours.
    crowded = [row for row in range(len(fits)) if fits.flags[row] & Flag.NEIGHBOUR]
    for row in crowded if neighbours == "exclude" else ():
        alone = napari_spotfit.to_points_layer(fits[row : row + 1])
        spot = spot_of(alone, 0)
        frame = movie[spot.index]
        positions = positions_around(alone, spot, frame.shape)
        sample = sample_spot(spot.values, spot.settings, raw(frame), positions)
        assert sample.unknown > 0
        assert f"{sample.unknown} px nearer to a neighbour (which" in sample.excluded_in_words
        assert sample.is_of(spot.values["chi_square"])


@pytest.mark.parametrize("condition", StopCondition)
def test_every_stop_condition_has_one_sentence_of_advice(condition):
    assert condition.advice.endswith(".")
    assert condition.advice.count(".") == 1


@pytest.mark.filterwarnings("ignore:the image has")  # the noise of another gain
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "gaussian_elliptical"},
        {"model": "gaussian_rotated"},
        {"model": "lorentzian"},
        {"model": "lorentzian", "gain": 2.5},
        {"pixel": "integrated"},
        {"model": "gaussian_elliptical", "fixed": {"sigma_x": 1.3, "sigma_y": 1.3}},
    ],
)
def test_every_model_is_laid_beside_the_data(settings):
    movie, _ = napari_spotfit.simulate_movie(
        1, shape=(70, 60), spots_per_frame=8, photons=3000, seed=4
    )
    fits = napari_spotfit.localize(movie, **settings)
    known = fits.settings.to_dict()
    for (spot, layer), width in zip(spots_of(fits), fits.mean_sigma[fits.valid], strict=True):
        sample = sampled(spot, layer, movie[0])
        assert sample.is_of(spot.values["chi_square"])
        assert (sample.width.along * sample.width.across) ** 0.5 == pytest.approx(width)
        assert "bound" not in hint(spot.values, known, sample.roi) or not fits.settings.fixed


def test_the_likelihood_is_laid_beside_the_data():
    movie, _ = napari_spotfit.simulate_movie(1, shape=(70, 60), spots_per_frame=8, seed=4)
    fits = napari_spotfit.localize(movie, estimator="mle", offset=100.0, gain=1.0)
    for spot, layer in spots_of(fits[fits.converged]):
        sample = sampled(spot, layer, movie[0])
        # The residual of photons is about as large as their noise.
        assert (sample.residual**2 / sample.model).mean() < 10
