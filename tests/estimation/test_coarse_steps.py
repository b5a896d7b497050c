"""Values in steps larger than the noise hide light: they are warned of, and errors count them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from napari_spotfit import localize
from napari_spotfit.simulate import add_spots

PHOTONS, BACKGROUND, GAIN, OFFSET = 3000.0, 50.0, 2.0, 100.0
PLACES = np.array([(y, x) for y in range(12, 160, 17) for x in range(12, 160, 17)], float)


def light_of(places, photons: float, background: float):
    """Return the light of spots on a background."""
    light = np.full((160, 160), background)
    add_spots(light, pd.DataFrame(places, columns=["y", "x"]).assign(sigma=1.3, photons=photons))
    return light


def recorded(seed: int, deviation: float, photons: float = PHOTONS):
    """Return an image whose background noise is this many steps, the places and the step."""
    rng = np.random.default_rng(seed)
    places = PLACES + rng.uniform(-0.5, 0.5, PLACES.shape)
    light = light_of(places, photons, BACKGROUND)
    counts = GAIN * (rng.poisson(light) + rng.normal(0, 1.5, light.shape)) + OFFSET
    step = GAIN * np.sqrt(BACKGROUND + 1.5**2) / deviation
    return np.rint(counts / step), places, step


def fitted(image, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = localize(image, **options)
    return fits, [str(one.message) for one in caught]


def spread(fits, places):
    """Return the scatter of x over its standard errors."""
    good = fits[fits.good]
    away = np.hypot(*(good.points().T[:, :, None] - places.T[:, None]))
    nearest = away.argmin(axis=1)
    near = away.min(axis=1) < 1
    off = (good.x - places[nearest, 1])[near] / good.columns["x_stderr"][near]
    return 1.4826 * np.median(abs(off - np.median(off)))


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("photons", [1500.0, 6000.0])
def test_steps_that_hide_noise_are_warned_of(kind, photons):
    for seed in range(3):
        image, *_ = recorded(seed, 0.2, photons)
        (said,) = fitted(image.astype(kind))[1]
        assert said.startswith("values come in steps of 1, ")
        assert "all of its bits" in said


@pytest.mark.parametrize("deviation", [0.35, 0.5, 1.0, 3.0])
def test_steps_that_leave_noise_are_not_warned_of(deviation):
    for seed in range(3):
        image, places, _ = recorded(seed, deviation)
        fits, said = fitted(image.astype(np.uint16))
        assert not said
        assert 0.7 < spread(fits, places) < 1.3


@pytest.mark.parametrize("seed", range(4))
def test_no_noise_is_called_a_filters_where_steps_hide_it(seed):
    """Its errors were up to 4.5 times too small, as it was called deconvolved."""
    image, places, _ = recorded(seed, 0.25)
    fits, (said,) = fitted(image.astype(np.uint8))
    assert said.startswith("values come in steps")
    assert not fits.settings.noise.process
    assert 0.6 < spread(fits, places) < 2.0


@pytest.mark.parametrize("variance", [None, 9.0])
def test_a_camera_without_rounding_is_given_its_variance(variance):
    image, places, step = recorded(5, 0.35)
    known = {"gain": GAIN, "offset": OFFSET, "variance": variance}
    (said,) = fitted(np.float32(image * step), **known)[1]
    wanted = (variance or 0) + step**2 / 12
    assert f"Give variance={wanted:.4g}" in said
    fits, said = fitted(np.float32(image * step), **(known | {"variance": wanted}))
    assert not said
    assert 0.8 < spread(fits, places) < 1.2


def test_a_camera_that_counts_in_fine_steps_is_not_warned_of():
    image, _, step = recorded(6, 0.6)
    known = {"gain": GAIN, "offset": OFFSET, "variance": 9.0}
    assert not fitted(np.float32(image * step), **known)[1]


@pytest.mark.parametrize("light", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("known", [{}, {"gain": 1.0}], ids=["unknown", "known"])
def test_single_photons_are_no_steps(light, known):
    rng = np.random.default_rng(7)
    spots = light_of(PLACES, 100.0, light)
    said = fitted(rng.poisson(spots).astype(np.uint16), **known)[1]
    assert not any("steps" in one for one in said)
