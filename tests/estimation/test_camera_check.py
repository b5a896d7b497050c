"""Warnings of an inverted gain or too high an offset, also in flat and sparse images."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from scenes import light, scattered

from napari_spotfit import (
    Camera,
    NoiseModel,
    fit_at,
    localize,
    localize_iter,
    localize_to_folder,
    simulate_movie,
)

SHAPE, OFFSET = (128, 128), 100.0
#: Few spots of one frame on an even background, and none.
SPOTS = scattered(np.random.default_rng(5), SHAPE, 25)


def taken(gain, background=20.0, photons=1500, read=1.5, seed=3):
    """Return the counts of a camera for few spots on an even background."""
    rng = np.random.default_rng(seed)
    one = sum(
        light(place[None], photons * share, 1.3, SHAPE)
        for place, share in zip(SPOTS, rng.uniform(0.4, 1.6, len(SPOTS)), strict=True)
    )
    counts = rng.poisson(one + background) * gain + OFFSET + rng.normal(0, read * gain, SHAPE)
    return np.clip(np.rint(counts), 0, 65535).astype(np.uint16)


def said_of(work):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        work()
    # That the noise of a dim image is less than a count is another thing.
    texts = (str(one.message) for one in said)
    return " ".join(text for text in texts if not text.startswith("the image probably"))


@pytest.mark.parametrize("background", [0.0, 2.0, 20.0])
@pytest.mark.parametrize("gain", [0.25, 0.5, 1.0, 2.2, 12.5])
def test_of_a_sparse_image(gain, background):
    image = taken(gain, background)
    right = {"sigma": 1.3, "gain": gain, "offset": OFFSET}
    assert not said_of(lambda: localize(image, **right))
    assert not said_of(lambda: localize(image, camera=Camera(gain=gain, offset=OFFSET), sigma=1.3))
    if gain != 1:
        upside_down = right | {"gain": 1 / gain}
        assert "counts per electron" in said_of(lambda: localize(image, **upside_down))
    high = right | {"offset": OFFSET + gain * (1.5 * background + 4)}
    assert "offset" in said_of(lambda: localize(image, **high))
    without = {"sigma": 1.3, "offset": high["offset"]}
    assert "offset" in said_of(lambda: localize(image, **without))


@pytest.mark.parametrize("gain", [2.2, 12.5])
def test_by_every_door(gain, tmp_path):
    image = np.stack([taken(gain, seed=seed) for seed in range(3)])
    given = {"sigma": 1.3, "gain": 1 / gain, "offset": OFFSET, "roi_size": 9}
    centers = [(frame, *place) for frame in range(3) for place in SPOTS]
    doors = {
        "iter": lambda: list(localize_iter(image, **given)),
        "at": lambda: fit_at(image, centers, **given),
        "folder": lambda: localize_to_folder(image, tmp_path / "parts", **given),
    }
    for name, work in doors.items():
        if name != "folder" or pytest.importorskip("pyarrow"):
            assert "the gain is in counts per electron" in said_of(work), name


@pytest.mark.parametrize("gain", [5.0, 12.5])
def test_a_flat_image_without_spots(gain):
    electrons = np.random.default_rng(1).poisson(20, SHAPE)
    image = np.rint(electrons * gain + OFFSET).astype(np.uint16)
    assert not said_of(lambda: localize(image, sigma=1.3, gain=gain, offset=OFFSET))
    assert said_of(lambda: localize(image, sigma=1.3, gain=1 / gain, offset=OFFSET))
    high = OFFSET + 21 * gain
    assert "fewer counts" in said_of(lambda: localize(image, sigma=1.3, gain=gain, offset=high))


@pytest.mark.parametrize("side", [24, 40, 64])
def test_few_blocks_tell_a_camera_that_is_far_too_noisy(side):
    movie, _ = simulate_movie(1, shape=(side, side), spots_per_frame=2, photons=3000, seed=1)
    image, known = movie[0], {"sigma": 1.3, "roi_size": 9}
    for wrong in ({"variance": 1e4}, {"variance": 1e30}, {"gain": 30.0}, {"gain": 1e30}):
        with pytest.warns(UserWarning, match="the image has"):
            localize(image, **known, **{"gain": 1.0, "offset": 100.0} | wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(image, **known, gain=1.0, offset=100.0, variance=1.0)
        localize(image, **known, gain=1.0, offset=100.0)


@pytest.mark.parametrize("neighbours", ["joint", "auto", "exclude"])
@pytest.mark.parametrize("seed", [0, 1])
def test_dense_spots_with_the_right_gain(neighbours, seed):
    """χ² of joint fits is that of all their spots; the gain was doubted by it."""
    movie, _ = simulate_movie(20, (64, 64), spots_per_frame=60, seed=seed)
    how = {"sigma": 1.3, "offset": OFFSET, "neighbours": neighbours}
    assert not said_of(lambda: localize(movie, gain=1.0, **how))
    for gain in (0.3, 3.0):
        assert "counts per electron" in said_of(lambda gain=gain: localize(movie, gain=gain, **how))


@pytest.mark.parametrize("neighbours", ["joint", "auto"])
@pytest.mark.parametrize(("gain", "background"), [(1.0, 0.0), (2.2, 2.0), (2.2, 20.0), (12.5, 2.0)])
def test_joint_fits_count_no_spots_by_a_camera_that_is_contradicted(gain, background, neighbours):
    """Each spot was up to three, all of the light being noisier than the gain says."""
    image = taken(gain, background)
    known = {"sigma": 1.3, "gain": gain, "offset": OFFSET}
    high = {"offset": OFFSET + gain * (1.5 * background + 4)}
    for wrong in ({}, {"gain": 1 / gain}, {"gain": 2 * gain}, {"gain": gain / 2}, high):
        fits = []
        for way in (neighbours, "exclude"):
            how = known | wrong | {"neighbours": way}
            words = said_of(lambda how=how, fits=fits: fits.append(localize(image, **how)))
            assert ("offset=" in words) == ("offset" in wrong)
        assert len(fits[0]) == len(fits[1]) == 25
        np.testing.assert_array_equal(fits[0].good, fits[1].good)


@pytest.mark.parametrize("neighbours", ["auto", "exclude", "ignore"])
def test_dim_crowds_on_a_bright_background_with_the_right_gain(neighbours):
    """Light of neighbours that are not resolved was taken for noise, 7 to 40 times as much."""
    movie, _ = simulate_movie(
        1, SHAPE, spots_per_frame=500, photons=600, sigma=0.9, background=300, seed=1
    )
    how = {"sigma": 0.9, "offset": OFFSET, "neighbours": neighbours}
    assert not said_of(lambda: localize(movie, gain=1.0, **how))


@pytest.mark.parametrize("background", [5.0, 20.0, 100.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_likelihood_shows_the_gain(background, seed):
    """Deviances are of more than a camera of too small a gain has; nothing said so."""
    for gain in (1.0, 2.2):
        rng = np.random.default_rng(seed)
        places = np.mgrid[10:120:16, 10:120:16].reshape(2, -1).T + rng.uniform(-1, 1, (49, 2))
        each = background + light(places, 3000, 1.3, SHAPE)
        electrons = rng.poisson(each, (3, *SHAPE))
        image = np.rint(gain * electrons + OFFSET + rng.normal(0, gain, (3, *SHAPE)))
        image = image.astype(np.uint16)
        known = {"offset": OFFSET, "sigma": 1.3, "pixel": "integrated", "estimator": "mle"}

        def words_of(given, image=image, known=known):
            return said_of(lambda: localize(image, gain=given, **known))

        assert not words_of(gain)
        for times in (5, 10):
            words = words_of(gain / times)
            found = re.findall(r"suggest a gain of ([\d.]+)", words)
            assert "read-out noise" in words or float(found[0]) == pytest.approx(gain, rel=0.5)


def test_few_spots_whose_residuals_scatter():
    """The usual one of 17 is too unsure for a warning, all of them weighted are not."""
    rng = np.random.default_rng(10)
    shape, step = (256, 256), np.arange(12, 256, 60)
    places = np.stack(np.meshgrid(step, step), axis=-1).reshape(-1, 2)
    places = places + rng.uniform(-0.5, 0.5, places.shape)
    spots = light(places, 2 * np.pi * 1.3**2 * 90, 1.3, shape)
    electrons = rng.poisson(spots + 10) + rng.normal(0, 1.5, shape)
    image = np.rint(OFFSET + 2.2 * electrons).clip(0).astype(np.uint16)
    assert not said_of(lambda: localize(image, sigma=1.3, gain=2.2, offset=OFFSET))
    said = said_of(lambda: localize(image, sigma=1.3, gain=1 / 2.2, offset=OFFSET))
    assert "times as noisy" in said


def test_joint_fits_of_small_frames_that_are_mostly_spot():
    """Their level is far above their background, whose noise was said to be a tenth."""
    rng, at = np.random.default_rng(3), np.arange(32)
    frames = []
    for _ in range(60):
        angle, apart = rng.uniform(0, 2 * np.pi), rng.uniform(2, 4) * 1.3
        first = rng.uniform(8, 24, 2)
        pair = np.stack([first, first + apart * np.array([np.sin(angle), np.cos(angle)])])
        along = np.exp(-((at - pair[..., None]) ** 2) / (2 * 1.3**2)) / (1.3 * np.sqrt(2 * np.pi))
        spots = np.einsum("n,ny,nx->yx", np.array([4000.0, 200.0]), along[:, 0], along[:, 1])
        frames.append(rng.poisson(spots + 10).astype(np.uint16))
    known = {"sigma": 1.3, "gain": 1.0, "pixel": "integrated", "neighbours": "joint"}
    fits = localize(np.stack(frames), **known)
    assert 60 <= len(fits) <= 120


def test_noise_that_a_camera_contradicts_is_no_less_in_the_dark():
    steep = NoiseModel(1.0, 0.0, 1.0, level=25.0, slope_of_spots=1.6)
    camera = NoiseModel.of_camera(1.0, 5.0, 4.0)
    counts = np.linspace(0, 100, 21)
    assert (steep.contradicting(camera).variance(counts) >= camera.variance(counts)).all()
