"""fit_at, detect_spots and localize: any image, right positions, bounded memory, bad input."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from same_fits import assert_same
from scenes import nearest
from scipy.spatial import cKDTree

from napari_spotfit import (
    Settings,
    SpotFits,
    StopCondition,
    detect_spots,
    fit_at,
    fit_spots,
    localize,
    localize_iter,
    noise_model,
    simulate_movie,
)
from napari_spotfit.localization.localize import localize_parts

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")


@pytest.fixture(scope="module")
def scene():
    """A movie of bright, well-separated spots, and its truth."""
    return simulate_movie(6, shape=(80, 90), spots_per_frame=9, photons=4000, background=5, seed=3)


def test_where_each_roi_lies(scene):
    movie = scene[0]
    fits = localize(movie, roi_size=(7, 9), neighbours="ignore")
    for spot in fits[fits.converged][::5]:
        rows = slice(spot.roi_y[0], spot.roi_y[0] + 7)
        columns = slice(spot.roi_x[0], spot.roi_x[0] + 9)
        again = fit_spots(movie[spot.frame[0], rows, columns][None])
        assert again.chi_square[0] == pytest.approx(spot.chi_square[0], rel=1e-4)
        assert again.y[0] + spot.roi_y[0] == pytest.approx(spot.y[0], abs=1e-3)
    outside = fit_at(movie, [[0, -5, 3], [0, 0, 0]])
    assert list(outside.roi_y) == [-1, 0]
    assert list(outside.roi_x) == [-1, 0]


def test_fits_know_their_settings(scene):
    fits = localize(scene[0], sigma=1.3, roi_size=7, offset=3.0)
    assert fits.settings.backend in ("cpu", "cuda")
    assert fits.settings.changed(backend="auto") == Settings(
        sigma=1.3, roi_size=7, offset=3.0, noise=noise_model(scene[0], settings=Settings(sigma=1.3))
    )
    assert fits[fits.converged].settings is fits.settings
    assert SpotFits.concatenate([fits[:2], fits[2:]]).settings is fits.settings
    assert fits.to_host().settings is fits.settings
    assert fit_spots(np.zeros((2, 7, 7)), settings=fits.settings).settings is fits.settings
    at = fit_at(scene[0], [[0, 9, 9]], min_delta=1e-5)  # one does not show the PSF
    noise = fits.settings.noise
    assert at.settings == Settings(roi_size=9, min_delta=1e-5, noise=noise, backend="cpu")


def apart(places, distance):
    """Mask of positions (frame, y, x) without another within a distance in their frame."""
    spread = np.asarray(places, float) * [1e6, 1, 1]
    near = cKDTree(spread).query(spread, k=2)[0][:, 1]
    return near > distance


class TestFitAt:
    def test_equals_cut_outs(self, scene):
        movie, truth = scene
        places = truth[["frame", "y", "x"]].to_numpy()
        fits = fit_at(movie, places, 7, neighbours="ignore")
        for place, fit in zip(places, fits, strict=True):
            frame, y, x = np.rint(place).astype(int)
            top, left = np.clip([y - 3, x - 3], 0, np.array(movie.shape[1:]) - 7)
            roi = movie[frame, top : top + 7, left : left + 7][None]
            start = [[place[1] - top, place[2] - left, np.nan]]
            alone = fit_spots(roi, start=start)
            assert fit.frame[0] == frame
            assert fit.y[0] == pytest.approx(alone.y[0] + top, abs=1e-6)
            assert fit.x[0] == pytest.approx(alone.x[0] + left, abs=1e-6)
            assert fit.sigma[0] == alone.sigma[0]

    def test_any_order_gives_rows_in_that_order(self, scene):
        movie, truth = scene
        places = truth[["frame", "y", "x"]].to_numpy()
        order = np.random.default_rng(1).permutation(len(places))
        one, other = (
            fit_at(movie, those, neighbours="exclude") for those in (places, places[order])
        )
        assert_same(one[order], other)

    @pytest.mark.parametrize(
        ("shape", "frame", "words"),
        [
            pytest.param((6, 80, 90), (7,), "such as 7, where it has 0 to 5", id="movie"),
            pytest.param((6, 80, 90), (-1,), "such as -1, where it has 0 to 5", id="before"),
            pytest.param((2, 3, 80, 90), (1, 3), "3 along axis 1, where it has 0 to 2", id="axes"),
        ],
    )
    def test_frames_that_do_not_exist_are_named(self, scene, shape, frame, words):
        movie = scene[0].reshape(shape)
        first = (0,) * len(frame)
        with pytest.warns(UserWarning, match=f"1 of 2 centres are in frames .* {words}"):
            fits = fit_at(movie, [(*first, 40, 40), (*frame, 40, 40)], sigma=1.3)
        assert fits.valid.tolist() == [True, False]

    def test_places_outside_are_invalid_and_others_are_not(self, scene):
        movie, _ = scene
        places = [[0, 20, 20], [0, -3, 20], [9, 20, 20], [0, np.nan, 5], [0, 79.4, 89.4], [5, 0, 0]]
        with pytest.warns(UserWarning, match="1 of 6 centres are in frames .* such as 9"):
            fits = fit_at(movie, places, sigma=1.3)
        assert list(fits.valid) == [True, False, False, False, True, True]
        assert_same(fits[:1], fit_at(movie, places[:1], sigma=1.3))
        assert list(fits.stop_condition[1:4]) == [StopCondition.INVALID] * 3

    def test_no_places(self, scene):
        assert len(fit_at(scene[0], np.empty((0, 3)))) == 0

    def test_a_plain_image_has_no_index(self, scene):
        fits = fit_at(scene[0][0], [[30.0, 30.0]])
        assert fits.index_names == ()
        assert fits.points().shape == (1, 2)

    def test_rows_and_columns_may_differ(self, scene):
        movie, truth = scene
        places = truth[["frame", "y", "x"]].to_numpy()
        inner = (truth["y"] > 6) & (truth["y"] < 73) & (truth["x"] > 6) & (truth["x"] < 83)
        fits = fit_at(movie, places[inner & apart(places, 12)], (7, 11))
        assert fits.converged.mean() > 0.9

    @pytest.mark.parametrize(
        ("bad", "error", "words"),
        [
            ([1, 2, 3], ValueError, r"shape \(n, 3\)"),
            ([[1, 2]], ValueError, r"shape \(n, 3\)"),
            ([["a", "b", "c"]], TypeError, "centers must hold integers or real numbers"),
        ],
    )
    def test_wrong_centers_are_named(self, scene, bad, error, words):
        with pytest.raises(error, match=words):
            fit_at(scene[0], bad)


class TestLocalize:
    def test_finds_the_truth(self, scene):
        movie, truth = scene
        fits = localize(movie)
        places = truth[["frame", "y", "x"]].to_numpy()
        places = places[apart(places, 12)]
        distance = nearest(fits.points(), places, 1)
        assert np.isfinite(distance).all()
        assert np.median(distance) < 0.05

    def test_parts_are_the_whole(self, scene):
        movie, progress = np.tile(scene[0], (110, 1, 1)), []
        whole = localize(movie, min_delta=1e-5)
        parts = list(localize_iter(movie, min_delta=1e-5, progress=lambda *n: progress.append(n)))
        assert len(parts) > 1
        assert parts[0].settings == whole.settings == parts[-1].settings
        assert_same(SpotFits.concatenate(parts), whole)
        assert [done for done, _ in progress] == sorted({done for done, _ in progress})
        assert progress[-1] == (660, 660)

    def test_parts_know_wrong_options_before_they_are_asked_for(self, scene):
        with pytest.raises(ValueError, match="roi_size must be odd"):
            localize_iter(scene[0], 8)
        with pytest.raises(TypeError, match="progress must be a function"):
            localize_iter(scene[0], progress=3)

    def test_is_detect_and_fit_at(self, scene):
        movie, _ = scene
        fits = localize(movie, neighbours="exclude")
        steps = fit_at(movie, detect_spots(movie), neighbours="exclude")
        assert all(np.array_equal(fits.columns[n], steps.columns[n]) for n in steps.columns)

    @pytest.mark.parametrize("kind", ["dask", "zarr", "float64", "big-endian", "strided", "int32"])
    def test_any_kind_of_array_gives_the_same(self, scene, kind):
        movie, _ = scene
        other = {
            "dask": lambda: da.from_array(movie, chunks=(2, 40, 45)),
            "zarr": lambda: zarr.array(movie, chunks=(4, 80, 90)),
            "float64": lambda: movie.astype(float),
            "big-endian": lambda: movie.astype(">u2"),
            "strided": lambda: np.repeat(movie, 2, axis=2)[:, :, ::2],
            "int32": lambda: movie.astype(np.int32),
        }[kind]()
        assert_same(localize(movie), localize(other))

    def test_more_axes_carry_their_indices(self, scene):
        movie, _ = scene
        flat, deep = localize(movie), localize(movie.reshape(2, 3, 80, 90))
        assert deep.index_names == ("axis_0", "frame")
        assert "axis_1" not in deep
        assert np.array_equal(deep.axis_0 * 3 + deep.frame, flat.frame)
        assert deep.points().shape[1] == 4
        assert np.array_equal(deep.x, flat.x)

    def test_an_image_is_one_frame(self, scene):
        movie, _ = scene
        image, frame = localize(movie[2]), localize(movie[2:3])
        assert np.array_equal(image.x, frame.x)
        assert "frame" not in image.columns

    def test_frames_keep_their_numbers(self, scene):
        movie, _ = scene
        whole = localize(movie, neighbours="exclude")
        for frames in (slice(1, 4), [4, 1], 3, -1):
            part = localize(movie, frames=frames, neighbours="exclude")
            chosen = np.isin(whole.frame, np.atleast_1d(np.arange(6)[frames]))
            assert_same(whole[chosen], part)
        deep = movie.reshape(2, 3, 80, 90)
        part = localize(deep, frames=(1, slice(0, 2)))
        assert set(zip(part.axis_0, part.frame, strict=True)) == {(1, 0), (1, 1)}

    @pytest.mark.parametrize("full", [False, True])
    def test_a_mask_limits_the_search(self, scene, full):
        movie, _ = scene
        mask = np.zeros((80, 90), bool)
        mask[:, 45:] = True
        whole = localize(movie, neighbours="exclude")
        given = np.broadcast_to(mask, movie.shape) if full else mask
        limited = localize(movie, mask=given, neighbours="exclude")
        rows = detect_spots(movie)[:, 2] >= 45
        assert_same(whole[rows], limited)

    def test_progress_counts_frames(self, scene):
        calls = []
        localize(scene[0], progress=lambda done, total: calls.append((done, total)))
        assert calls[-1] == (6, 6)
        assert calls == sorted(calls)

    def test_no_frames_and_no_spots_have_all_columns(self, scene):
        movie, _ = scene
        names = list(localize(movie).columns)
        for empty in (localize(movie[:0]), localize(np.zeros_like(movie), sigma=1.3)):
            assert len(empty) == 0
            assert list(empty.columns) == names
            assert empty.points().shape == (0, 3)

    def test_stopping_early_is_cancelling(self, scene):
        parts = localize_parts(scene[0], Settings())
        next(parts)
        parts.close()
        assert list(parts) == []

    def test_memory_does_not_grow_with_the_movie(self):
        def peak(frames, neighbours="exclude"):
            lazy = da.zeros((frames, 512, 512), dtype=np.uint16, chunks=(1, 512, 512))
            tracemalloc.start()
            localize(lazy, sigma=1.3, threads=1, neighbours=neighbours)
            size = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return size

        peak(60)
        # Some kilobytes a frame are the graph of the lazy array itself; a block may be read ahead.
        assert peak(160) < peak(60) + 14e6
        # Where spots may overlap, blocks have up to 32 MB each; the movie has 210.
        assert peak(400, "auto") < 128e6

    def test_spots_at_the_edge_are_fitted_in_a_shifted_roi(self):
        y, x = np.indices((40, 40))
        image = 10 + 500 * np.exp(-((y - 1.2) ** 2 + (x - 38.4) ** 2) / (2 * 1.3**2))
        fits = localize(image + np.random.default_rng(0).normal(0, 1, (40, 40)), sigma=1.3)
        assert len(fits) == 1
        assert fits.y[0] == pytest.approx(1.2, abs=0.05)
        assert fits.x[0] == pytest.approx(38.4, abs=0.05)

    @settings(max_examples=25, deadline=None)
    @given(
        hnp.arrays(
            st.sampled_from([np.uint8, np.int16, np.float32]),
            st.tuples(st.integers(0, 3), st.integers(9, 20), st.integers(9, 20)),
        )
    )
    def test_any_pixels_end_in_results(self, image):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the image does not show the PSF")
            warnings.filterwarnings("ignore", "the image probably keeps only what is above")
            try:
                fits = localize(image)
            except ValueError:  # single precision has no squares of such numbers
                assert image.dtype == np.float32
                return
        assert np.array_equal(np.isfinite(fits.x), fits.valid)
        assert ((fits.x[fits.valid] >= -0.5) & (fits.x[fits.valid] < image.shape[2])).all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"image": np.zeros((30, 20)), "roi_size": 21}, ValueError, "smaller than the ROI"),
        ({"image": np.zeros((30, 20)), "roi_size": 8}, ValueError, "roi_size must be odd"),
        ({"image": np.zeros(30)}, ValueError, "axes"),
        ({"image": np.zeros((9, 9), bool)}, TypeError, "real numbers"),
        ({"image": np.zeros((9, 9)), "sigma": -1}, ValueError, "sigma must be"),
        (
            {"image": np.zeros((9, 9)), "sigma": 1.3, "mask": np.zeros((9, 8), bool)},
            ValueError,
            "mask must have",
        ),
        (
            {"image": np.zeros((9, 9)), "sigma": 1.3, "mask": np.zeros((9, 9))},
            TypeError,
            "mask must be boolean",
        ),
        ({"image": np.zeros((9, 9)), "sigma": 1.3, "frames": 0}, ValueError, "0 leading axes"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        localize(**arguments)


def test_storm_movie(machine, dax):
    """Of the true emitters at least 1.5 ROI apart ≥ 97 % found, ≤ 2 % false, ≤ 0.04 px off."""
    movie, truth = dax
    places = truth[["frame", "y", "x"]].to_numpy()
    fits = localize(movie, backend=machine)
    found = fits[fits.valid].points()
    lone = places[apart(places, 13.5)]
    distance = nearest(found, lone, 1)
    assert np.isfinite(distance).mean() >= 0.97
    assert np.median(distance[np.isfinite(distance)]) <= 0.04
    assert np.isinf(nearest(places, found, 2)).mean() <= 0.02


def test_paint_movie(machine, paint):
    """≥ 97 % of Picasso's localisations have one of ours within 0.3 px."""
    movie, theirs = paint
    fits = localize(movie, backend=machine)
    places = np.column_stack([theirs["frame"], theirs["y"], theirs["x"]])
    distance = nearest(fits[fits.valid].points(), places, 0.3)
    assert np.isfinite(distance).mean() >= 0.97


def test_real_spots_are_found_untouched(machine, hybiss, stuck_particles):
    assert 200 < len(localize(hybiss, backend=machine)) < 5000
    counts = [len(localize(frame, backend=machine)) for frame in stuck_particles]
    assert min(counts) > 20


def test_fits_name_the_places_of_other_fits():
    movie, _ = simulate_movie(3, shape=(64, 64), spots_per_frame=9, seed=3)
    found = localize(movie, sigma=1.3)
    again = fit_at(movie, found, sigma=1.3)
    assert_same(again, fit_at(movie, found.points(), sigma=1.3))
    assert again.frame.tolist() == found.frame.tolist()


def test_a_movie_that_is_fitted_as_a_volume_is_warned_of(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    rng = np.random.default_rng(1)
    z, y, x = np.ogrid[:14, :40, :44]
    light = np.exp(-0.5 * (((z - 6) / 1.5) ** 2 + ((y - 19) ** 2 + (x - 21) ** 2) / 1.3**2))
    stack = rng.poisson(200 * light + 10).astype(np.uint16)
    known = {"model": "gaussian_3d", "sigma": 1.3, "sigma_z": 1.5, "gain": 1.0, "variance": 0.0}
    for axes, number in (("TYX", 1), ("ZYX", 0)):
        tifffile.imwrite(tmp_path / "a.tif", stack, metadata={"axes": axes})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            localize(tmp_path / "a.tif", **known)
        assert sum("if it is time" in str(one.message) for one in caught) == number
