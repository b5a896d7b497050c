"""The noise of spots' light, from what their fits leave."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import light
from scipy.spatial import cKDTree

import napari_spotfit as spotfit
from napari_spotfit.models.profiles import GAUSSIAN_ROTATED

SIDE, FRAMES, APART, OFFSET = 256, 8, 22, 1000


def movie_of(
    *, photons=2000.0, background=0.0, read=0.0, gain=1.0, sigma=1.3, emccd=False, apart=APART
):
    """Return a camera's movie of spots that stand alone, and their places."""
    rng = np.random.default_rng([3, round(photons), round(10 * read), round(10 * gain)])
    grid = np.stack(np.meshgrid(*2 * [np.arange(apart, SIDE - 10, apart)], indexing="ij"), -1)
    frames, places = [], []
    for frame in range(FRAMES):
        own = grid.reshape(-1, 2) + rng.uniform(-3, 3, (grid.size // 2, 2))
        electrons = rng.poisson(background + light(own, photons, sigma, (SIDE, SIDE))).astype(float)
        if emccd:
            electrons = rng.gamma(np.maximum(electrons, 1)) * (electrons > 0)
        counts = gain * (electrons + rng.normal(0, read, electrons.shape)) + OFFSET
        frames.append(np.rint(counts).astype(np.uint16))
        places.append(np.column_stack([np.full(len(own), frame), own]))
    return np.stack(frames), np.concatenate(places)


def spread_of(movie, places, **known):
    """Return the spread of the places of good fits in their standard errors."""
    fits = spotfit.localize(movie, **known)
    fits = fits[fits.good]
    apart = np.array([1e6, 1, 1])
    distance, row = cKDTree(places * apart).query(fits.points() * apart)
    assert np.count_nonzero(distance < 1) > 0.95 * len(places)
    off = [
        (fits.columns[name] - places[row, axis]) / fits.columns[f"{name}_stderr"]
        for axis, name in ((1, "y"), (2, "x"))
    ]
    return float(np.std(np.concatenate([one[distance < 1] for one in off])))


@pytest.mark.parametrize(
    "scene",
    [
        {"photons": 500, "read": 5}, {"photons": 2000, "read": 10, "background": 2, "gain": 10},
        {"photons": 2000, "read": 20}, {"photons": 5000, "read": 10, "gain": 0.5},
        {"photons": 2000, "background": 100, "read": 2}, {"photons": 2000, "read": 5, "sigma": 1.9},
        {"photons": 5000, "read": 10, "emccd": True}, {"photons": 300}, {"photons": 30_000},
    ],
    ids=str,
)  # fmt: skip
def test_errors_without_a_gain(scene):
    """Read-out noise, or no noise at all, hides the light between spots, not that of spots."""
    movie, places = movie_of(**scene)
    assert spread_of(movie, places) == pytest.approx(1, abs=0.09)
    noise = spotfit.noise_model(movie)
    true = scene.get("gain", 1.0) * (2 if scene.get("emccd") else 1)
    assert noise.slope == pytest.approx(true, rel=0.25)


def test_white_noise_has_no_light():
    rng = np.random.default_rng(4)
    image = light(rng.uniform(0, SIDE, (80, 2)), 15_000, 1.3, (SIDE, SIDE)) + 100
    noise = spotfit.noise_model(rng.normal(image, 10, (4, SIDE, SIDE)).astype(np.float32))
    assert noise.slope < 0.1
    assert noise.variance(100) == pytest.approx(100, rel=0.05)


def test_a_crowd_is_no_noise():
    """Neighbours are in the residuals of a crowd, and brightness between them is no background."""
    rng = np.random.default_rng(5)
    places = rng.uniform(0, SIDE, (2 * SIDE**2 // 100, 2))
    image = light(places, 10_000, 1.0, (SIDE, SIDE)) + rng.normal(0, 10, (4, SIDE, SIDE))
    movie = np.rint(rng.poisson(np.maximum(image, 0)) + OFFSET).astype(np.uint16)
    assert spotfit.noise_model(movie).slope < 1.5


def test_bright_spots_are_no_filter():
    """The light of narrow bright spots is coarser than noise, which is white all the same."""
    rng = np.random.default_rng(6)
    places = rng.uniform(0, SIDE, (600, 2))
    image = light(places, 30_000, 1.3, (SIDE, SIDE)) + 20
    movie = rng.poisson(image, (4, SIDE, SIDE)) + rng.normal(0, 5, (4, SIDE, SIDE)) + 100
    noise = spotfit.noise_model(np.rint(movie).astype(np.uint16))
    assert noise.correlation == pytest.approx(1, abs=0.03)
    assert noise.slope == pytest.approx(1, rel=0.1)


def test_the_same_slope_whatever_is_fitted():
    movie, places = movie_of(photons=1500, read=8)
    noise = spotfit.localize(movie).settings.noise
    for same in (
        spotfit.localize(movie, frames=3), spotfit.localize(movie, 13),
        spotfit.localize(movie, threshold=400), spotfit.localize(movie, threads=1),
        spotfit.fit_at(movie, places[:5], sigma=spotfit.localize(movie).settings.sigma),
    ):  # fmt: skip
        assert same.settings.noise == noise


def test_blocks_are_measured_once(monkeypatch):
    """With a gain and without its read-out noise, doubts about the camera go by them, too."""
    from napari_spotfit.estimation import measured_noise as measure

    calls, of_blocks = [], measure._blocks_of
    monkeypatch.setattr(
        measure, "_blocks_of", lambda *given: calls.append(given) or of_blocks(*given)
    )
    movie, _ = movie_of(photons=2000, background=20, read=2)
    for known in ({"gain": 1.0}, {"gain": 1.0, "variance": 4.0}, {}):
        calls.clear()
        spotfit.localize(movie, sigma=1.3, offset=OFFSET, **known)
        assert len(calls) == 1


def counted(scene, frames=4, seed=7):
    """Return frames of spots, whose places are random, and the noise measured in them."""
    rng = np.random.default_rng(seed)
    density, photons, sigma, background, read, gain = scene
    made = []
    for _ in range(frames):
        places = rng.uniform(0, SIDE, (round(density * SIDE**2 / 100), 2))
        electrons = rng.poisson(background + light(places, photons, sigma, (SIDE, SIDE)))
        made.append(np.rint(gain * (electrons + rng.normal(0, read, electrons.shape)) + OFFSET))
    return np.stack(made).astype(np.uint16)


@pytest.mark.parametrize(
    "scene",
    [
        (0.4, 1400, 1.5, 0, 0, 8.1), (0.9, 20_000, 1.45, 0.9, 0.1, 0.12),
        (0.3, 135, 1.9, 0, 0, 2.6), (1.0, 1000, 1.6, 0, 0, 5.1), (1.0, 1200, 1.0, 0, 0, 1.8),
        (0.15, 18_000, 1.45, 0, 0, 5.2), (0.8, 18_000, 1.03, 0, 0.3, 1.9),
    ],
    ids=str,
)  # fmt: skip
def test_bright_spots_on_nothing(scene, recwarn):
    """They were said to be cut off, thresholded or filtered, and up to all of them were lost."""
    movie = counted(scene)
    fits = spotfit.localize(movie)
    noise = fits.settings.noise
    assert (noise.process, noise.correlation) == ("", 1.0)
    assert noise.slope == pytest.approx(scene[-1], rel=0.2)
    assert fits.good.sum() > 0.75 * scene[0] * movie.size / 100
    assert not recwarn


@pytest.mark.parametrize("deviations", [1, 2, 3, 5])
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_what_was_subtracted_and_cut_off(gain, deviations):
    """Without noise beside spots, errors were up to 190 times too small."""
    movie, places = movie_of(photons=2500, background=100, read=1.5, gain=gain)
    away = movie.astype(float) - np.median(movie)
    deviation = 1.4826 * np.median(abs(away))
    movie = np.maximum(away - deviations * deviation, 0).astype(np.uint16)
    assert 0.65 < spread_of(movie, places) < 1.1


def test_single_electrons_that_were_multiplied_are_not_denoised(recwarn):
    rng = np.random.default_rng(8)
    places = rng.uniform(8, SIDE - 8, (40, 2))
    electrons = rng.poisson(0.02 + light(places, 100, 1.3, (4, SIDE, SIDE)[1:]))
    counts = rng.gamma(np.maximum(electrons, 1), 100) * (electrons > 0)
    image = np.rint(counts + rng.normal(100, 5, counts.shape)).astype(np.uint16)
    assert spotfit.localize(image, sigma=1.3).settings.noise.process == ""
    assert not recwarn


@pytest.mark.parametrize("angle", [0, 30])
@pytest.mark.parametrize(("ratio", "photons"), [(1.15, 2000), (1.35, 2000), (1.1, 20_000)])
def test_the_shape_of_elongated_spots_is_no_noise(angle, ratio, photons):
    """Round fits of them leave a shape that is up to half of the noise."""
    slopes = []
    for seed in range(3):
        rng = np.random.default_rng([seed, angle, round(100 * ratio)])
        grid = np.mgrid[12:190:20, 12:190:20].reshape(2, -1).T
        y, x = np.indices((200, 200))
        height = photons / (2 * np.pi * 1.3**2 * ratio)
        shape = {"sigma_x": 1.3 * ratio, "sigma_y": 1.3, "angle": angle, "amplitude": height}
        frames = np.full((3, 200, 200), 10.0)
        for frame in frames:
            for down, right in grid + rng.uniform(-1, 1, grid.shape):
                part = np.s_[int(down) - 10 : int(down) + 11, int(right) - 10 : int(right) + 11]
                own = shape | {"y": down, "x": right, "background": 0}
                frame[part] += GAUSSIAN_ROTATED.evaluate((y[part], x[part]), own)
        movie = rng.poisson(frames) + rng.normal(100, 1.5, frames.shape)
        slopes.append(spotfit.localize(np.rint(movie).astype(np.uint16)).settings.noise.slope)
    assert np.mean(slopes) == pytest.approx(1, abs=0.12)
    assert np.ptp(slopes) < 0.4
