"""What ``"auto"`` makes of patterns and things that points could make up: nothing."""

from __future__ import annotations

import numpy as np
import pytest
from crowd_scenes import KNOWN, SIGMA, random_spots
from scipy.ndimage import gaussian_filter

from napari_spotfit import localize
from napari_spotfit.engine.regular_crowds import regular_crowds

#: Images of lines alone are warned of, which is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:only .* fits are good, as")

SIDE = 128
Y, X = np.indices((SIDE, SIDE), float)


def wave(period, degrees):
    angle = np.deg2rad(degrees)
    return np.cos(2 * np.pi * (Y * np.cos(angle) + X * np.sin(angle)) / period)


def ridges(period, degrees):
    angle = np.deg2rad(degrees)
    away = (Y * np.cos(angle) + X * np.sin(angle)) % period
    return sum(np.exp(-((away - k * period) ** 2) / (2 * SIGMA**2)) for k in range(2))


def hexagons(period):
    turns = (10, 70, 130)
    return (sum(wave(period * np.sqrt(3) / 2, turn) for turn in turns) + 1.5) / 4.5


PATTERNS = {
    "stripes": 40 * ridges(5, 20), "steep stripes": 40 * ridges(5, 65),
    "a lattice": 20 * (1 + wave(6.3, 13)) * (1 + wave(6.3, 103)),
    "hexagons": 80 * hexagons(6.3), "moire": 20 * (1 + wave(6, 0)) * (1 + wave(7, 90)),
}  # fmt: skip


def counts(light, background=20, seed=43, frames=1):
    shape = (frames, *light.shape)
    return np.random.default_rng(seed).poisson(background + light, shape).astype(np.uint16)


def good(images, neighbours, **known):
    known = known or {"sigma": SIGMA, "backend": "cpu"}
    return int(localize(images, neighbours=neighbours, **known).good.sum())


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_have_no_more_spots_than_single_fits_find(name):
    images = counts(PATTERNS[name])
    assert good(images, "auto") <= 1.05 * good(images, "exclude") + 2


@pytest.mark.parametrize("height", [40, 80, 300])
@pytest.mark.parametrize("radius", [2.5, 3.0, 3.5])
def test_small_rings_are_no_spots(radius, height):
    y, x = np.indices((40, 40)) - 19.7
    light = height * np.exp(-((np.hypot(y, x) - radius) ** 2) / (2 * SIGMA**2))
    images = counts(light, frames=20)
    assert good(images, "auto") <= good(images, "exclude") + 6


@pytest.mark.parametrize("height", [200, 300])
def test_rods_with_sharp_ends_are_no_groups_of_spots(height):
    rng, movie = np.random.default_rng(44), []
    for angle in rng.uniform(0, np.pi, 40):
        y, x = np.indices((4 * 36, 4 * 36)) / 4 - 17.6
        along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        is_in = (abs(along) < 4) & (abs(across) < 1)
        light = gaussian_filter(is_in.astype(float), 4 * SIGMA).reshape(36, 4, 36, 4).mean((1, 3))
        movie.append(counts(height * light, seed=rng.integers(1 << 30))[0])
    movie = np.stack(movie)
    assert good(movie, "auto") <= good(movie, "exclude") + 4


def test_lines_that_the_edge_cuts_off_are_no_spots():
    light = 60 * np.exp(-(((0.5 * Y + X) * 0.894 - 6) ** 2) / (2 * SIGMA**2))
    images = counts(light + light[::-1, ::-1], frames=10)
    assert good(images, "auto") <= good(images, "exclude") + 2


@pytest.mark.parametrize("density", [0.02, 0.04])
def test_crowds_of_spots_stay_crowds(density):
    movie, _ = random_spots(6, density, 45, 64)
    together, auto = (good(movie, neighbours, **KNOWN) for neighbours in ("joint", "auto"))
    assert auto >= 0.97 * together > 300


def test_random_places_are_not_regular():
    rng, regular, tried = np.random.default_rng(46), 0, 0
    for _ in range(150):
        places, side = np.empty((0, 2)), rng.uniform(18, 60)
        for place in rng.uniform(0, side, (rng.poisson(0.15 * side**2), 2)):
            if not (np.linalg.norm(places - place, axis=1) < 2.2).any():
                places = np.append(places, [place], axis=0)
        tried += len(places) >= 20
        regular += regular_crowds(places, np.zeros(len(places), int)).any()
    assert tried > 100
    assert regular <= 2


@pytest.mark.parametrize("origin", [0.0, 17.3, 4000.0])
def test_lattices_are_regular_wherever_they_are(origin):
    rng = np.random.default_rng(47)
    lattice = 4.2 * np.indices((14, 14)).reshape(2, -1).T + origin
    places = lattice + rng.normal(0, 0.4, lattice.shape)
    far = np.array([[9000.0, 9000.0], [9003.0, 9000.0]])
    crowd = np.append(np.zeros(len(places), int), [2, 2])
    order = rng.permutation(len(crowd))
    found = regular_crowds(np.concatenate([places, far])[order], crowd[order])
    np.testing.assert_array_equal(found, [True, False, False])
