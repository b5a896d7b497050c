"""A Fitter gives the rows of fit_spots and fit_at to the bit, call after call."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from model_spots import SUPER
from same_fits import assert_same

from napari_spotfit import (
    Camera,
    Fitter,
    NoiseModel,
    Settings,
    SpotFits,
    fit_at,
    fit_spots,
    simulate_movie,
    simulate_spots,
)

NOISE = NoiseModel(1.0, 0.0, 1.0)


def camera_maps(rng):
    return {
        "offset": rng.normal(100, 2, (9, 9)),
        "gain": rng.normal(2, 0.1, (9, 9)),
        "variance": rng.uniform(1, 9, (9, 9)),
    }


MAPS = camera_maps(np.random.default_rng(3))
WEIGHTS = np.random.default_rng(4).uniform(1, 2, (9, 9))
BAD = np.zeros((9, 9), bool)
BAD[2, 3:5] = True
KINDS = {
    "plain": {},
    "without errors": {"errors": False},
    "rotated": {"model": "gaussian_rotated"},
    "integrated, likelihood": {"pixel": "integrated", "estimator": "mle", "gain": 2.0},
    "weights": {"estimator": "wlse", "weights": WEIGHTS},
    "camera": {"camera": Camera(**MAPS)},
    "camera, likelihood": {"camera": Camera(**MAPS), "estimator": "mle"},
    "bad pixels": {"bad_pixels": BAD},
    "held": {"fixed": {"sigma": 1.3}, "bounds": {"x": (-1, 1)}},
    "filtered": {"noise": NoiseModel(1.0, 5.0, 1.0, 3.0, 0.1, 99, 1.0, 3.0)},
    "own": {"model": SUPER},
}


@pytest.fixture(scope="module")
def spots():
    pixels, _ = simulate_spots(300, 9, photons=900, offset=100, gain=2, sigma=(1, 1.6), seed=4)
    pixels[7], pixels[8, 3, 3] = 5.0, 65535.0
    return pixels.astype(np.uint16)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_rows_are_those_of_fit_spots(backend, spots, kind):
    known = {name: kind[name] for name in ("weights", "camera", "bad_pixels") if name in kind}
    settings = Settings(
        backend=backend, **{name: value for name, value in kind.items() if name not in known}
    )
    with Fitter(settings=settings, **known) as fitter:
        for some in (spots[:0], spots[:40], spots, spots[200:], spots[:0], spots[::3]):
            ours, theirs = fitter.fit(some), fit_spots(some, settings=settings, **known)
            assert_same(ours, theirs)
            assert ours.settings == theirs.settings
            np.testing.assert_array_equal(ours.flags, theirs.flags)
        # Those of many spots go another way.
        many = fit_spots(np.resize(spots, (1100, 9, 9)), settings=settings, **known)
        assert_same(fitter.fit(spots), many[: len(spots)])


@pytest.mark.parametrize("dtype", ["u1", ">u2", "i4", "f4", "f8"])
def test_every_type_is_taken(backend, spots, dtype):
    pixels = (spots[20:60] % 200).astype(dtype)
    with Fitter(backend=backend) as fitter:
        assert_same(fitter.fit(pixels), fit_spots(pixels, backend=backend))


def test_start_values_count(backend, spots):
    start = np.full((len(spots), 3), np.nan, np.float32)
    start[:, :2] = np.random.default_rng(1).uniform(3, 5, (len(spots), 2))
    with Fitter(backend=backend) as fitter:
        assert_same(fitter.fit(spots, start), fit_spots(spots, start=start, backend=backend))
        assert_same(fitter.fit(spots), fit_spots(spots, backend=backend))


def test_many_and_large_cutouts_are_fitted_too(backend):
    for count, size in ((3000, 7), (2, 40)):
        pixels, _ = simulate_spots(count, size, photons=20_000, seed=size)
        with Fitter(backend=backend) as fitter:
            assert_same(fitter.fit(pixels), fit_spots(pixels, backend=backend))
            assert_same(fitter.fit(pixels[1:]), fit_spots(pixels[1:], backend=backend))


def test_fits_are_valid_until_the_next_call(backend, spots):
    with Fitter(backend=backend) as fitter:
        first = fitter.fit(spots[:50])
        kept = first.copy()
        fitter.fit(spots[50:100])
        assert_same(kept, fit_spots(spots[:50], backend=backend))
        assert_same(first, fit_spots(spots[50:100], backend=backend))
    assert len(kept) == 50  # whatever the Fitter has freed


def test_what_it_was_made_for_is_said(spots):
    frame = np.ones((40, 50), np.uint16)
    with Fitter(9, sigma=1.3, noise=NOISE, backend="cpu") as fitter:
        with pytest.raises(ValueError, match=r"made for ROIs of 9×9 px; got .*\(300, 8, 9\)"):
            fitter.fit(spots[:, 1:])
        fitter.fit(spots)
        for other in (spots[0], spots[:, 1:], spots.astype(float)):
            with pytest.raises(ValueError, match=r"made for .*\(n, 9, 9\) and dtype uint16; got"):
                fitter.fit(other)
        fitter.fit_at(frame, np.full((1, 2), 20.0))
        for other in (frame[1:], frame.astype(np.float32), frame[np.newaxis]):
            with pytest.raises(ValueError, match=r"made for frames .*\(40, 50\) and dtype uint16"):
                fitter.fit_at(other, np.full((1, 2), 20.0))
        with pytest.raises(ValueError, match=r"centers must have the shape \(n, 2\)"):
            fitter.fit_at(frame, np.zeros((4, 3)))
        # What was wrong has changed nothing.
        assert_same(fitter.fit(spots), fit_spots(spots, backend="cpu", settings=fitter.settings))


def test_wrong_settings_are_named():
    with pytest.raises(TypeError, match="false_spots has no effect in Fitter"):
        Fitter(false_spots=3)
    with pytest.raises(ValueError, match="roi_size must be odd"):
        Fitter(roi_size=8)
    with pytest.raises(ValueError, match="needs weights"), Fitter(estimator="wlse") as fitter:
        fitter.fit(np.ones((2, 9, 9)))


def test_a_closed_one_says_so(spots):
    with Fitter(backend="cpu") as fitter:
        fitter.fit(spots)
    fitter.close()
    for work in (
        lambda: fitter.fit(spots),
        lambda: fitter.fit_at(spots[0], np.full((1, 2), 4.0)),
        fitter.__enter__,
    ):
        with pytest.raises(ValueError, match="this Fitter is closed"):
            work()
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(fitter)


@pytest.fixture(scope="module")
def movie():
    """Crowded, with saturated, hot and bad pixels; places at the edge and outside, too."""
    movie, truth = simulate_movie(4, shape=(60, 64), spots_per_frame=40, photons=2500, seed=5)
    movie = movie.astype(np.uint16)
    movie[1, 20:23, 30:33] = 65535
    movie[2, 11, 11], movie[3, 40, 40] = 20_000, 0
    places = [truth[truth["frame"] == number][["y", "x"]].to_numpy() for number in range(4)]
    places[1] = np.vstack([[[21.0, 31.0]], places[1], [[-3.0, 5.0], [np.nan, 1.0]]])
    places[2] = np.vstack([places[2][:7], [[-0.4, 63.2], [11.0, 12.0]]])
    return movie, places


FRAME_MAPS = {
    "bad_pixels": np.random.default_rng(5).random((60, 64)) < 0.01,
    "camera": Camera(
        offset=np.random.default_rng(6).normal(0, 1, (60, 64)), gain=1.0, variance=2.0
    ),
}
#: A Fitter fits each spot by itself.
IN_FRAME = {"roi_size": 9, "sigma": 1.3, "noise": NOISE, "neighbours": "exclude"}
IN_FRAMES = {
    "plain": {},
    "all pixels": {"neighbours": "ignore"},
    "likelihood": {"estimator": "mle", "gain": 1.0},
    "elliptical": {"model": "gaussian_elliptical", "roi_size": (7, 11)},
    "bad pixels": {"bad_pixels": FRAME_MAPS["bad_pixels"]},
    "camera": {"camera": FRAME_MAPS["camera"]},
    "filtered": {"noise": NoiseModel(1.0, 5.0, 1.0, 3.0, 0.1, 99, 1.0, 3.0)},
    "large": {"roi_size": 35},
    "no width": {"sigma": None},
}


@pytest.mark.parametrize("kind", IN_FRAMES.values(), ids=IN_FRAMES)
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_rows_are_those_of_fit_at(backend, movie, kind, dtype):
    known = {name: kind[name] for name in FRAME_MAPS if name in kind}
    changes = {name: value for name, value in kind.items() if name not in known}
    settings = Settings(**IN_FRAME, backend=backend).changed(**changes)
    frames, places = movie[0].astype(dtype), movie[1]
    with Fitter(settings=settings, **known) as fitter:
        for frame, centers in [*zip(frames, places, strict=True), (frames[0], np.empty((0, 2)))]:
            ours = fitter.fit_at(frame, centers)
            completed = fitter.settings if settings.sigma is None else settings
            theirs = fit_at(frame, centers, settings=completed, **known)
            assert_same(ours, theirs)
            assert ours.settings == theirs.settings
            # Those of a stack go another way.
            stacked = np.column_stack([np.zeros(len(centers)), centers])
            stacked = np.vstack([stacked, [[1, 30, 30]]])
            of_stack = fit_at(np.stack([frame, frame]), stacked, settings=completed, **known)[
                :-1
            ].columns
            del of_stack["frame"]
            assert_same(ours, SpotFits(of_stack))


def test_what_is_left_open_is_measured_in_the_first_frame(backend, movie):
    frames, places = movie
    with Fitter(neighbours="exclude", backend=backend) as fitter:
        assert fitter.settings.sigma is None
        fits = fitter.fit_at(frames[0], places[0]).copy()
        assert_same(fits, fit_at(frames[0], places[0], neighbours="exclude", backend=backend))
        completed = fits.settings
        assert fitter.settings == completed
        assert None not in (completed.sigma, completed.noise, completed.roi_size)
        assert fitter.fit_at(frames[1], places[1]).settings == completed


def test_threads_have_a_fitter_each(backend, spots, movie):
    frames, places = movie
    settings = Settings(**IN_FRAME, backend=backend, threads=1)
    spot_fits = [fit_spots(spots[i : i + 60], settings=settings) for i in range(4)]
    frame_fits = [fit_at(*both, settings=settings) for both in zip(frames, places, strict=True)]

    def work(number):
        with Fitter(settings=settings) as fitter:
            for _ in range(20):
                assert_same(fitter.fit(spots[number : number + 60]), spot_fits[number])
                assert_same(fitter.fit_at(frames[number], places[number]), frame_fits[number])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_whoever_gives_no_gain_is_warned_once(movie):
    frames, places = movie
    with Fitter(estimator="mle", backend="cpu") as fitter:
        with pytest.warns(UserWarning, match="estimator='mle' needs the camera's gain") as warned:
            fitter.fit_at(frames[0], places[0])
        assert warned[0].filename == __file__
        fitter.fit_at(frames[0], places[0])
    fitter = Fitter(estimator="mle", offset=200.0, gain=1.0, backend="cpu")
    with pytest.raises(ValueError, match="lie below the camera's offset"):
        fitter.fit(np.full((3, 9, 9), 150.0))
