"""Sharp spots, crowds and single photons are raw images: spots are found, and none is warned of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from noisy_scenes import hits
from scenes import light, looked_at
from scipy import ndimage
from scipy.spatial import cKDTree

from napari_spotfit import localize

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


@pytest.mark.parametrize("sigma", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("background", [0.01, 0.05, 0.2])
def test_single_photons_are_raw(background, sigma):
    """Most pixels count none, and nothing was cut off."""
    for density, photons in ((0.02, 100), (0.1, 60), (0.5, 40)):
        rng = np.random.default_rng([8, int(100 * density)])
        places = rng.uniform(0, SIDE - 1, (round(density * SIDE**2 / 100), 2))
        counts = rng.poisson(background + light(places, photons * sigma, sigma, SHAPE))
        for image in (counts.astype(np.uint16), 3 * counts + 100):
            _, noise, said = looked_at(image, sigma=sigma)
            assert noise.process == ""
            assert not said


def test_spots_without_a_background_are_raw():
    """All pixels but those of spots have one value, the lowest."""
    rng = np.random.default_rng(6)
    places = rng.uniform(8, SIDE - 8, (30, 2))
    for gain, photons in ((0.25, 3000), (0.5, 600), (1.0, 1000), (4.0, 3000)):
        lights = light(places, photons, SIGMA, SHAPE)
        image = np.rint(100 + gain * rng.poisson(lights)).astype(np.uint16)
        found, noise, said = looked_at(image)
        assert noise.process == ""
        assert not said
        assert hits(found, places, 1.5) >= 29
        assert len(found) <= 30


@pytest.mark.parametrize(("sigma", "photons", "density"), [
    (0.6, 100_000, 2.5), (0.7, 3000, 2.5), (0.8, 10_000, 2.0), (0.8, 50_000, 1.5),
    (0.9, 100_000, 1.0), (1.0, 100_000, 2.5), (1.1, 10_000, 2.5), (0.8, 500, 0.3),
])  # fmt: skip
@pytest.mark.parametrize("given", [{}, {"gain": 1.0, "offset": 0.0}])
def test_sharp_bright_spots(sigma, photons, density, given):
    """Their light was taken for noise, and none was found."""
    rng = np.random.default_rng(4)
    truth = rng.uniform(4, 187, (round(density * 192**2 / 100), 2))
    image = rng.poisson(50 + light(truth, photons, sigma, (192, 192)))
    fits = localize(np.minimum(image, 65535).astype(np.uint16), sigma=sigma, **given)
    found = np.column_stack([fits.y, fits.x]).astype(float)
    found = found[np.isfinite(found).all(axis=1)]
    alone = cKDTree(truth).query(truth, 2)[0][:, 1] > 4 * sigma
    near = cKDTree(found).query(truth)[0] < 1
    assert near[alone].mean() >= 0.97
    assert near.mean() > 0.7
    assert fits.settings.noise.process == ""


def test_sharp_spots_on_a_grid():
    """Ten σ apart, with more photons than 3000, none was found."""
    rng = np.random.default_rng(4)
    truth = np.mgrid[8:121:8, 8:121:8].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (225, 2))
    for photons in (1000, 10_000, 30_000):
        image = rng.poisson(50 + light(truth, photons, 0.8, (128, 128))).astype(np.uint16)
        places, _, said = looked_at(image, sigma=0.8)
        assert hits(places, truth, 1) == 225 == len(places)
        assert not said


@pytest.mark.parametrize(("sigma", "photons", "density"), [
    (1.3, 100_000, 4), (1.3, 1000, 2), (1.6, 10_000, 4), (2.0, 100_000, 2), (1.0, 3000, 4),
    (1.3, 100_000, 1),
])  # fmt: skip
def test_crowds_are_no_noise(sigma, photons, density):
    rng = np.random.default_rng(3)
    truth = rng.uniform(0, SIDE - 1, (round(density * SIDE**2 / 100), 2))
    image = np.minimum(rng.poisson(20 + light(truth, photons, sigma, SHAPE)), 65535)
    noise = looked_at(image.astype(np.uint16), sigma=sigma, neighbours="exclude")[1]
    assert noise.process == ""
    # A pixel as bright as most has noise of its own light; of narrow spots, up to twice as much.
    level = float(np.median(image))
    assert 0.5 < noise.variance(level) / level < (9 if sigma <= 1.3 else 2)


def counts_of(camera, expected, rng):
    """Return what a camera counts of expected photons."""
    electrons = rng.poisson(expected)
    if camera == "EMCCD":
        return np.rint(rng.gamma(np.maximum(electrons, 1), 25.0) * (electrons > 0)) + 100.0
    if camera == "8 bits":
        return (electrons * (255 / electrons.max())).astype(np.uint8)
    return {"counts": electrons + 100, "in [0, 1]": electrons / np.float32(65535)}[camera]


@pytest.mark.parametrize(("sigma", "photons", "density"), [
    (0.6, 3000, 12), (0.6, 100_000, 8), (0.8, 30_000, 5), (0.8, 30_000, 8), (0.8, 3000, 12),
    (0.95, 30_000, 8), (1.1, 100_000, 5), (1.1, 30_000, 12),
])  # fmt: skip
@pytest.mark.parametrize(("camera", "frames", "side", "known"), [
    ("counts", 1, SIDE, True), ("counts", 1, SIDE, False), ("counts", 8, 96, False),
    ("counts", 1, 64, True), ("EMCCD", 1, SIDE, True), ("in [0, 1]", 1, SIDE, True),
    ("8 bits", 1, SIDE, True),
])  # fmt: skip
def test_spots_without_a_background_between_them(
    sigma, photons, density, camera, frames, side, known
):
    """All light was taken for noise of a filtered image, and none was found, in silence."""
    rng, shape = np.random.default_rng(1), (side, side)
    truth = [rng.uniform(-0.5, side - 0.5, (round(density * side**2 / 100), 2))
             for _ in range(frames)]  # fmt: skip
    movie = np.stack([counts_of(camera, 10 + light(places, photons, sigma, shape), rng)
                      for places in truth])  # fmt: skip
    with warnings.catch_warnings():
        # Of σ 0.6 px noise is hidden by spots, and so are errors.
        warnings.filterwarnings("ignore", message="spots of σ 0.6")
        # Fits together change no noise, and take their time: they are made of the smallest image.
        options = {"sigma": sigma} if known else {}
        fits = localize(movie, neighbours="auto" if side == 64 else "exclude", **options)
    fits = fits[np.isfinite(fits.y) & np.isfinite(fits.x)]
    places = np.column_stack([fits.y, fits.x]).astype(float)
    frame = fits.frame if frames > 1 else np.zeros(len(fits), int)
    found = sum(hits(places[frame == i], truth[i], 1) for i in range(frames))
    highest = movie == ndimage.maximum_filter(movie, (0, 3, 3))
    maxima = [np.argwhere(one & (own > np.median(own))).astype(float)
              for one, own in zip(highest, movie, strict=True)]  # fmt: skip
    count = sum(len(places) for places in truth)
    plain = sum(hits(places, own, 1) for places, own in zip(maxima, truth, strict=True))
    assert found / count > plain / count - 0.05
    right = sum(hits(places[(frame == i) & fits.good], truth[i], 1) for i in range(frames))
    assert right > 0.85 * fits.good.sum()
    assert fits.settings.noise.process == ""


@pytest.mark.parametrize("background", [0.05, 0.3, 1])
def test_a_crowd_in_the_dark_is_no_blurred_noise(background):
    rng = np.random.default_rng(1)
    truth = rng.uniform(-0.5, SIDE - 0.5, (3277, 2))
    image = rng.poisson(background + light(truth, 3000, 0.6, SHAPE))
    places, noise, _ = looked_at(image, sigma=0.6)
    assert hits(places, truth, 1) > 0.7 * len(truth)
    assert noise.process == ""
