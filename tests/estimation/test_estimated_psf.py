"""Estimates of the PSF's width and the ROI's size."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scenes import light

from napari_spotfit import (
    Settings,
    detect_spots,
    estimate_sigma,
    fit_at,
    localize,
    noise_model,
    simulate_movie,
)
from napari_spotfit.localization import localize as whole

da = pytest.importorskip("dask.array")

#: Photons of a spot at σ 1.3, spots per 100 px² there, frames.
SCENES = {
    "sparse": (1000, 0.008, 16), "dim": (180, 0.07, 4), "dense": (1000, 2.0, 2),
    "very dense": (1000, 3.0, 2), "dense and dim": (180, 2.0, 2),
}  # fmt: skip


def scene(name, sigma, side=256):
    photons, density, count = SCENES[name]
    rng = np.random.default_rng([len(name), round(10 * sigma)])
    # As dim, and as crowded, for spots of every width; few are few.
    each = density * side**2 / 100 * (1 if density < 1 else (1.3 / sigma) ** 2)
    frames = [
        rng.poisson(
            10 + light(rng.uniform(0, side, (round(each), 2)), photons * sigma / 1.3, sigma,
                       (side, side))
        ) + 100
        for _ in range(count * max(round(sigma**2 / 4), 1))
    ]  # fmt: skip
    return np.array(frames, np.uint16)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 1.3, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("name", [*SCENES])
def test_the_width_is_right_from_sparse_to_dense(name, sigma):
    width = estimate_sigma(scene(name, sigma))
    # A sampled profile on pixels that integrate.
    assert width.sigma == pytest.approx(math.hypot(sigma, 12**-0.5), rel=0.05)
    assert width.spots >= 30


class Recorded:
    """Frames, and how many of them are read."""

    def __init__(self, frames):
        self.frames, self.shape, self.dtype = frames, frames.shape, frames.dtype
        self.read = 0

    def __getitem__(self, index):
        part = self.frames[index]
        self.read += len(part)
        return part


@pytest.mark.parametrize(
    ("photons", "spots", "read"),
    [(1500, 20, 4), (150, 20, 4 + 16), (1500, 1, 4 + 16 + 64)],
    ids=["enough", "not precise enough", "few"],
)
def test_no_more_is_looked_at_than_it_takes(photons, spots, read):
    frames, _ = simulate_movie(
        80, (256, 256), photons=photons, spots_per_frame=spots, background=10, seed=9
    )
    image = Recorded(frames)
    width = estimate_sigma(image)
    assert image.read == read
    assert width.sigma == pytest.approx(1.3, rel=0.05)
    assert width.spots >= 30
    # One estimate, if sufficient, agrees with that of all frames.
    every = [estimate_sigma(frames[i::8]).sigma for i in range(8)]
    assert width.sigma == pytest.approx(np.median(every), rel=0.03)


def test_integrated_pixels_have_the_width_of_the_light():
    width = estimate_sigma(scene("sparse", 0.8), settings=Settings(pixel="integrated"))
    assert width.sigma == pytest.approx(0.8, rel=0.03)


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(40, (128, 128), sigma=2.1, photons=4000, spots_per_frame=8, seed=7)


def test_results_have_what_was_estimated_and_repeat_with_it(movie):
    frames, _ = movie
    fits = localize(frames)
    assert fits.settings.sigma == pytest.approx(2.1, rel=0.03)
    assert fits.settings.roi_size == 13
    assert fits.settings.noise == noise_model(frames)
    again = localize(frames, settings=fits.settings)
    assert again.settings == fits.settings
    for name, values in fits.columns.items():
        np.testing.assert_array_equal(again.columns[name], values, name)
    given = localize(frames, 13, sigma=fits.settings.sigma)
    np.testing.assert_array_equal(given.x, fits.x)
    spots = detect_spots(frames)
    np.testing.assert_array_equal(spots, detect_spots(frames, sigma=fits.settings.sigma))


def test_no_frame_or_chunk_has_an_estimate_of_its_own(movie):
    frames, _ = movie
    fits, lazy = localize(frames), da.from_array(frames, chunks=(3, -1, -1))
    some = localize(lazy, frames=slice(10, 14), false_spots=500.0)
    assert some.settings.sigma == fits.settings.sigma
    parts = list(whole.localize_parts(lazy, Settings(threads=1)))
    assert {part.fits.settings.sigma for part in parts} == {fits.settings.sigma}
    assert {part.fits.settings.roi_size for part in parts} == {13}


def test_given_centres_tell_their_own_width(movie):
    frames, truth = movie
    fits = fit_at(frames, truth[["frame", "y", "x"]])
    assert fits.settings.sigma == pytest.approx(2.1, rel=0.03)
    assert fits.settings.roi_size == 13
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = fit_at(frames, [truth[["frame", "y", "x"]].iloc[0]])
    assert (one.settings.sigma, one.settings.roi_size) == (None, 9)
    given = fit_at(frames, truth[["frame", "y", "x"]], 7, sigma=1.5)
    assert (given.settings.sigma, given.settings.roi_size) == (1.5, 7)


def test_centres_in_a_corner_of_large_frames_tell():
    frame = np.random.default_rng(3).poisson(10, (1500, 1500)).astype(np.uint16)
    places = np.stack(np.meshgrid([20, 60, 100, 140], [20, 60, 100]), -1).reshape(-1, 2) + 0.3
    frame[:160, :160] += (
        np.random.default_rng(4).poisson(light(places, 4000, 2.5, (160, 160))).astype(np.uint16)
    )
    assert fit_at(frame, places).settings.sigma == pytest.approx(
        math.hypot(2.5, 12**-0.5), rel=0.03
    )


@pytest.mark.parametrize("image", [
    np.zeros((40, 40)), np.full((3, 40, 40), 7, np.uint16),
    np.random.default_rng(0).normal(100, 5, (64, 64)),
], ids=["zeros", "constant", "noise"])  # fmt: skip
def test_what_does_not_tell_it_is_said_once(image):
    with pytest.warns(UserWarning, match=r"so that 1.3 px is taken.*set σ by hand") as said:
        fits = localize(image)
    assert len(said) == 1
    assert said[0].filename == __file__
    assert (fits.settings.sigma, fits.settings.roi_size) == (1.3, 9)
    assert len(localize(image, settings=fits.settings)) == len(fits)


def test_an_image_of_nan_is_said_besides():
    with pytest.warns(UserWarning, match="NaN|1.3 px") as said:
        fits = localize(np.full((30, 30), np.nan))
    assert {one.filename for one in said} == {__file__}
    texts = sorted(str(one.message) for one in said)
    assert texts[0].startswith("all pixels in which the noise is measured are NaN, or bad")
    assert "so that 1.3 px is taken" in texts[1]
    assert len(texts) == 2
    assert len(fits) == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["normal", "photons", "few photons", "movie"])
def test_noise_alone_has_no_width(kind, seed):
    rng = np.random.default_rng(seed)
    image = {
        "normal": lambda: rng.normal(100, 5, (1024, 1024)),
        "photons": lambda: rng.poisson(50, (1024, 1024)).astype(np.uint16),
        "few photons": lambda: rng.poisson(5, (1024, 1024)).astype(np.uint16),
        "movie": lambda: rng.poisson(50, (60, 256, 256)).astype(np.uint16),
    }[kind]()
    with pytest.warns(UserWarning, match=r"so that 1.3 px is taken.*which noise alone may make"):
        assert localize(image).settings.sigma == 1.3
    with pytest.raises(ValueError, match="which noise alone may make"):
        estimate_sigma(image)


def test_a_few_spots_in_much_noise_have_one():
    rng = np.random.default_rng(1)
    places = rng.uniform(20, 1000, (6, 2))
    image = rng.poisson(50 + light(places, 1500, 1.8, (1024, 1024))).astype(np.uint16)
    assert localize(image).settings.sigma == pytest.approx(1.8, rel=0.1)


def test_the_roi_is_no_larger_than_the_frame():
    image = np.random.default_rng(1).poisson(
        10 + light([[6.0, y] for y in range(15, 250, 24)], 20_000, 3.0, (14, 256))
    )
    fits = localize(image)
    assert fits.settings.roi_size in ((13, 17), (13, 19))
    assert fits.good.sum() >= 8
    with pytest.warns(UserWarning, match="does not show"):
        assert localize(np.zeros((6, 8))).settings.roi_size == (5, 7)
    with pytest.raises(ValueError, match="smaller than the ROI"):
        localize(np.zeros((4, 9)))


def test_settings_without_an_image_say_what_is_missing():
    with pytest.raises(ValueError, match="roi_size is None: it follows from an image"):
        _ = Settings().roi_shape
    with pytest.raises(ValueError, match="sigma is None: it is estimated from an image"):
        _ = Settings().known_sigma
