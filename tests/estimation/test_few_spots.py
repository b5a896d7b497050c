"""Errors in small images, where one spot is brighter than all that noise was measured in."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import light

import napari_spotfit as spotfit

IMAGES, OFFSET, SIGMA = 40, 100, 1.3


def small_images(
    side, photons, background=10.0, *, spots=1, frames=1, read=0.0, gain=1.0, apart=10.0, long=1.0
):
    """Yield images of spots, and their places in each frame."""
    rng = np.random.default_rng([side, round(photons), round(10 * background), spots, frames])
    margin = 8 if side > 20 else side / 2 - 1
    for _ in range(IMAGES):
        made, places = [], []
        for _ in range(frames):
            own = rng.uniform(margin, side - 1 - margin, (spots, 2))
            while spots > 1 and np.hypot(*(own[1:] - own[:-1]).T).min() < apart:
                own = rng.uniform(margin, side - 1 - margin, (spots, 2))
            if long == 1:
                shown = light(own, photons, SIGMA, (side, side))
            else:
                y, x = np.indices((side, side))
                away = [(y - own[0, 0]) / SIGMA, (x - own[0, 1]) / (long * SIGMA)]
                shown = np.exp(-(away[0] ** 2 + away[1] ** 2) / 2)
                shown *= photons / (2 * np.pi * long * SIGMA**2)
            electrons = rng.poisson(background + shown) + rng.normal(0, read, (side, side))
            made.append(np.rint(gain * electrons + OFFSET).clip(0, 65535).astype(np.uint16))
            places.append(own)
        yield np.stack(made), np.stack(places)


def spreads_of(images, photons, fit):
    """Return the spread of places and light in their errors, and how many fits were not good."""
    away, of_light, bad = [], [], 0
    for image, places in images:
        fits = fit(image, places)
        frames = fits.columns.get("frame", np.zeros(len(fits), int))
        for frame, own in enumerate(places):
            for y, x in own:
                distance = np.hypot(fits.y - y, fits.x - x) + 1e6 * (frames != frame)
                nearest = int(np.argmin(distance))
                if not (distance[nearest] < 2 and fits.good[nearest]):
                    bad += 1
                    continue
                one = {name: float(column[nearest]) for name, column in fits.columns.items()}
                away += [(one["y"] - y) / one["y_stderr"], (one["x"] - x) / one["x_stderr"]]
                of_light.append((one["photons"] - photons) / one["photons_stderr"])
    return float(np.std(away)), float(np.std(of_light)), bad


def localized(image, places):
    return spotfit.localize(image, sigma=SIGMA)


def fitted_at(image, places):
    return spotfit.fit_at(image[0], places[0], sigma=SIGMA)


def fitted_again(image, places):
    with spotfit.Fitter(roi_size=9, sigma=SIGMA) as fitter:
        return fitter.fit_at(image[0], places[0].tolist())


@pytest.mark.parametrize(
    ("side", "photons", "background", "more"),
    [
        (15, 2000, 10, {}), (16, 20_000, 1, {}), (24, 5000, 10, {}), (32, 500, 10, {}),
        (32, 20_000, 10, {}), (48, 20_000, 1, {}), (56, 5000, 10, {}),
        (32, 5000, 10, {"spots": 2}), (32, 5000, 10, {"frames": 3}),
        (32, 5000, 2, {"read": 5.0}), (32, 3000, 10, {"gain": 3.0}), (64, 20_000, 10, {}),
        (96, 5000, 2, {"read": 5.0}),
    ],
    ids=str,
)  # fmt: skip
def test_errors_of_single_spots(side, photons, background, more, recwarn):
    """They were 1.7 to 20 times too small, all good, without a warning."""
    images = small_images(side, photons, background, **more)
    light_in_counts = photons * more.get("gain", 1.0)
    places, of_light, bad = spreads_of(images, light_in_counts, localized)
    assert bad == 0
    assert 0.75 < places < 1.3
    assert 0.65 < of_light < 1.35
    assert not recwarn


@pytest.mark.parametrize("fit", [fitted_at, fitted_again])
def test_errors_at_given_places(fit):
    places, of_light, bad = spreads_of(small_images(32, 5000), 5000, fit)
    assert bad == 0
    assert 0.75 < places < 1.3
    assert 0.65 < of_light < 1.35


def test_errors_of_traces():
    off = []
    for image, places in small_images(32, 5000):
        trace = spotfit.trace(image[0], places[0], sigma=SIGMA)
        off.append((trace.photons[0] - 5000) / trace.photons_stderr[0])
    assert 0.65 < np.std(off) < 1.35


def test_small_volumes():
    rng, off = np.random.default_rng(1), []
    z, y, x = np.indices((7, 15, 15))
    for _ in range(IMAGES):
        place = np.array([3, 7, 7]) + rng.uniform(-0.5, 0.5, 3)
        shape = np.exp(
            -((z - place[0]) ** 2) / 4.5
            - ((y - place[1]) ** 2 + (x - place[2]) ** 2) / (2 * SIGMA**2)
        )
        image = rng.poisson(5 + 6000 * shape / shape.sum()) + OFFSET
        fits = spotfit.localize(
            image.astype(np.uint16), model="gaussian_3d", sigma=SIGMA, sigma_z=1.5
        )
        one = int(np.argmax(fits.photons))
        off += [
            (fits.columns[name][one] - true) / fits.columns[f"{name}_stderr"][one]
            for name, true in zip("zyx", place, strict=True)
        ]
    assert 0.75 < np.std(off) < 1.3


def test_the_shape_of_a_spot_is_no_noise():
    """Of spots 1.2 times as long as wide, what round ones leave would be 9 times the noise."""
    images = small_images(32, 20_000, long=1.2)
    slopes = [spotfit.noise_model(image).slope for image, _ in images]
    assert 0.5 < np.median(slopes) < 2


def test_noise_in_the_dark_is_not_that_of_the_spot():
    """The only block of a small image has the spot in it."""
    for image, _ in small_images(32, 20_000, 1):
        noise = spotfit.noise_model(image)
        assert 0.5 < noise.variance(OFFSET + 1) < 3


def test_small_images_that_were_filtered_are_named():
    from scipy.ndimage import gaussian_filter

    for image, _ in small_images(32, 5000):
        filtered = gaussian_filter(image.astype(np.float32), (0, 1, 1))
        assert spotfit.noise_model(filtered).is_filtered


def small_movies(photons, sigma, side=16, frames=8):
    """Yield movies of one wide spot in each small frame, and its places."""
    rng = np.random.default_rng(round(photons))
    for _ in range(8):
        places = rng.uniform(4, side - 5, (frames, 1, 2))
        clean = np.stack([light(own, photons, sigma, (side, side)) for own in places]) + 10
        counts = 2.0 * rng.poisson(clean) + OFFSET + rng.normal(0, 4, clean.shape)
        yield np.rint(counts), places


@pytest.mark.parametrize("photons", [20_000, 100_000])
def test_wide_spots_in_small_movies_are_no_filter(photons, recwarn):
    """Most were called filtered, with errors twice as large as they should be."""
    movies = [(movie.astype(np.uint16), places) for movie, places in small_movies(photons, 2.5)]
    fit = lambda movie, _: spotfit.localize(movie, sigma=2.52)  # noqa: E731
    places, _, bad = spreads_of(movies, 2 * photons, fit)
    assert bad == 0
    assert 0.8 < places < 1.25
    assert not recwarn


@pytest.mark.parametrize("blur", [0.8, 1.0, 1.5])
def test_wide_spots_in_small_movies_that_were_blurred_are_filtered(blur):
    from scipy.ndimage import gaussian_filter

    for movie, _ in small_movies(100_000, 2.5):
        blurred = np.rint(gaussian_filter(movie, (0, blur, blur))).astype(np.uint16)
        with pytest.warns(UserWarning, match="was filtered"):
            spotfit.localize(blurred, sigma=float(np.hypot(2.52, blur)))


def test_a_small_image_whose_only_spot_is_at_its_border(recwarn):
    """Nothing is fitted there, and of nothing there is no mean."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lit = light(np.array([[-0.5, rng.uniform(4, 27)]]), 280_000, 1.8, (32, 32))
        spotfit.noise_model((rng.poisson(lit + 0.2) + OFFSET).astype(np.float32))
    assert not [one for one in recwarn if issubclass(one.category, RuntimeWarning)]
