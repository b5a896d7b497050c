"""Lines, rings, scratches and granules are flagged as elongated; true spots are not."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from detection_on_host import HOST
from scenes import light

from napari_spotfit import Flag, Settings, fit_at, localize
from napari_spotfit.engine.cpu.layouts import FittedSpot
from napari_spotfit.engine.cpu.library import INSTRUCTION_SET, load
from napari_spotfit.engine.cuda.roi_kernels import flags_by_surroundings
from napari_spotfit.engine.flags import NOT_GOOD
from napari_spotfit.engine.verdicts import verdict_settings

#: Images of lines alone are warned of, which is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:only .* fits are good, as")

SIZE, BACKGROUND, SIGMA = 256, 20.0, 1.3
Y, X = np.indices((SIZE, SIZE))
OTHERS = int(NOT_GOOD) & ~int(Flag.ELONGATED)


def is_long(fits):
    return (fits.flags & int(Flag.ELONGATED)) != 0


def taken(lights, seed=1):
    """Return the counts of a camera."""
    return np.random.default_rng(seed).poisson(BACKGROUND + lights).astype(np.float32)


def ridges(height, period=32, degrees=0.0, width=SIGMA):
    """Return parallel straight lines."""
    angle = np.deg2rad(degrees)
    away = (Y * np.cos(angle) + X * np.sin(angle)) % period - period / 2
    return height * np.exp(-(away**2) / (2 * width**2))


def rings(height, radius):
    rng, lights = np.random.default_rng(3), np.zeros((SIZE, SIZE))
    for y, x in rng.uniform(25, SIZE - 25, (12, 2)):
        away = np.hypot(Y - y, X - x) - radius
        lights += height * np.exp(-(away**2) / (2 * SIGMA**2))
    return lights


def granules(height, times):
    """Return ellipses with this ratio of length and width."""
    rng, lights = np.random.default_rng(4), np.zeros((SIZE, SIZE))
    for y, x in np.mgrid[16:240:24, 16:240:24].reshape(2, -1).T + rng.uniform(-2, 2, (100, 2)):
        angle = rng.uniform(0, np.pi)
        along = (X - x) * np.cos(angle) + (Y - y) * np.sin(angle)
        across = (Y - y) * np.cos(angle) - (X - x) * np.sin(angle)
        lights += height * np.exp(-((along / times) ** 2 + across**2) / (2 * SIGMA**2))
    return lights


def points(height, sigma=SIGMA, seed=5):
    """Return centres of isolated spots, and their light."""
    rng = np.random.default_rng(seed)
    places = np.mgrid[14:244:20, 14:244:20].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (144, 2))
    lights = sum(
        light(place[None], height * 2 * np.pi * sigma**2, sigma, (SIZE, SIZE)) for place in places
    )
    return places, lights


@pytest.mark.parametrize("degrees", [0, 30, 45])
@pytest.mark.parametrize(("height", "most"), [(5, 8), (10, 5), (15, 5), (30, 5), (200, 5)])
def test_lines_are_no_spots(height, most, degrees):
    lines = ridges(height, degrees=degrees)
    # What is flagged is fitted alone and, in the end, together: most of the time of all.
    ways = 2 * ["auto"] + 6 * ["exclude"]
    good = [
        localize(taken(lines, seed), sigma=SIGMA, neighbours=way).good.sum()
        for seed, way in enumerate(ways)
    ]
    # The most in 512×512 pixels; without the flag there are 25 to 1500.
    assert 4 * np.mean(good) <= most + 2


SHAPES = {
    "stripes": (ridges(40, period=9, degrees=20), 0.02),
    "wide stripes": (ridges(40, period=24, degrees=70, width=2), 0.1),
    "rings": (rings(80, 7), 0.08),
    "large rings": (rings(80, 12), 0.05),
    "granules": (granules(150, 3.0), 0.1),
    "short granules": (granules(150, 2.0), 0.2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_other_shapes_are_none(name):
    lights, most = SHAPES[name]
    fits = localize(taken(lights), sigma=SIGMA)
    known = (fits.flags & OTHERS) == 0
    assert known.sum() > 60
    assert fits.good.sum() <= max(most * known.sum(), 3)


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0])
@pytest.mark.parametrize(("height", "share"), [(16, 0.04), (25, 0.02), (60, 0.01), (3000, 0.01)])
def test_true_spots_are_kept(height, share, sigma):
    lost = []
    for seed in range(4):
        places, lights = points(height * SIGMA / sigma, sigma, seed)
        fits = fit_at(taken(lights, seed), places, sigma=sigma)
        lost.append(is_long(fits)[(fits.flags & OTHERS) == 0].mean())
    assert np.mean(lost) <= share


def test_a_neighbour_makes_none_long():
    """It lies on one side; a line goes on at both."""
    places, lights = points(100)
    rng = np.random.default_rng(6)
    for y, x in places:
        angle = rng.uniform(0, 2 * np.pi)
        beside = np.array([[y + 6 * np.sin(angle), x + 6 * np.cos(angle)]])
        lights = lights + light(beside, 100 * 2 * np.pi * SIGMA**2, SIGMA, (SIZE, SIZE))
    fits = localize(taken(lights), sigma=SIGMA)
    assert is_long(fits).mean() <= 0.02


@pytest.mark.parametrize(("density", "sigma"), [(1, 1.3), (2, 1.0), (2, 1.3), (1.5, 2.0), (4, 1.3)])
def test_a_crowd_has_no_lines(density, sigma):
    """Pairs that are fitted as one are as long as short lines, but most around are round."""
    rng = np.random.default_rng(9)
    places = rng.uniform(-0.5, SIZE - 0.5, (round(density * SIZE**2 / 100), 2))
    lights = light(places, 1000, sigma, (SIZE, SIZE))
    fits = localize(taken(lights), sigma=sigma)
    known = (fits.flags & OTHERS) == 0
    assert known.sum() > 300
    assert is_long(fits)[known].mean() <= 0.006


@pytest.mark.parametrize("name", ["lines", "crowd"])
def test_every_instruction_set_flags_the_same(instruction_set, monkeypatch, name):
    rng = np.random.default_rng(9)
    crowd = light(rng.uniform(-0.5, SIZE - 0.5, (1300, 2)), 1000, SIGMA, (SIZE, SIZE))
    frame = taken({"lines": ridges(15, degrees=30), "crowd": crowd}[name])
    found = localize(frame, sigma=SIGMA, neighbours="exclude")
    monkeypatch.setenv(INSTRUCTION_SET, load().instruction_sets[0])
    first = localize(frame, sigma=SIGMA, neighbours="exclude")
    assert len(found) == len(first) > 200
    assert (is_long(first).mean() > 0.5) == (name == "lines")
    assert (is_long(found) != is_long(first)).mean() < 0.01  # sums in another order


def test_lines_among_spots_are_long():
    """Spots that are few beside lines change little."""
    rng = np.random.default_rng(10)
    places = rng.uniform(4, SIZE - 5, (20, 2))
    fits = localize(taken(ridges(60, 64) + light(places, 1500, SIGMA, (SIZE, SIZE))))
    away = abs(fits.y % 64 - 32)
    assert (fits.good & (away < 1)).sum() <= 12
    assert (is_long(fits) & (away < 1)).sum() >= 60


@pytest.mark.parametrize("model", ["gaussian_elliptical", "gaussian_rotated"])
def test_elliptical_models_are_exempt(model):
    fits = localize(taken(granules(150, 2.0)), sigma=SIGMA, model=model)
    assert not is_long(fits).any()


def test_any_type_of_pixel_and_offset():
    frame = taken(ridges(30, degrees=10))
    expected = is_long(localize(frame, sigma=SIGMA))
    assert expected.sum() > 100
    for dtype in (np.uint16, np.int16, np.float64):
        found = localize((frame + 1000).astype(dtype), sigma=SIGMA, offset=1000.0)
        assert abs(int(is_long(found).sum()) - int(expected.sum())) <= 0.02 * expected.sum() + 2


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.float64])
def test_a_gpu_finds_the_same(dtype):
    """The kernel on the host, with threads one after the other."""
    frames = np.stack([taken(ridges(12, degrees=15)), taken(points(30)[1])]).astype(dtype)
    fits = localize(frames, sigma=SIGMA)
    noise = fits.settings.noise
    rows = np.flatnonzero((fits.flags & int(Flag.NOT_CONVERGED | Flag.AT_BOUND | Flag.WEAK)) == 0)
    spots = (FittedSpot * len(rows))()
    for spot, i in zip(spots, rows, strict=True):
        dark = max(noise.slope * fits.background[i] + noise.intercept, noise.least)
        spot.fit, spot.frame, spot.y, spot.x = i, fits.frame[i], fits.y[i], fits.x[i]
        spot.level, spot.height, spot.dark = fits.background[i], fits.amplitude[i], dark
        spot.curvature, spot.slope = 1 / fits.sigma[i] ** 2, noise.slope
        spot.lowest = -4 * np.sqrt(dark + noise.slope * fits.amplitude[i])
        spot.coarse = noise.correlation**2
    packed = np.frombuffer(spots, np.uint8).reshape(len(rows), ctypes.sizeof(FittedSpot))
    _, rules = verdict_settings(fits.settings, fits.settings.roi_shape)
    flags = flags_by_surroundings(HOST, frames, packed, len(rows), SIGMA, rules)
    found = (flags & int(Flag.ELONGATED)) != 0
    assert 20 < found.sum() < len(rows) - 20
    assert (found != is_long(fits)[rows]).sum() <= 1  # sums in another order


def test_without_a_known_psf_none_is_flagged():
    frame = taken(ridges(30))
    fits = fit_at(frame, [(16.0, 40.0), (48.0, 70.0)], settings=Settings(roi_size=9))
    assert fits.settings.sigma is None
    assert not is_long(fits).any()
