"""Images less a background, cut off at 0, are named where noise differs; cameras' are not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scenes import light
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.cut_alike import is_cut_alike
from napari_spotfit.settings.noise_model import Process

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


def scene(kind):
    """Return counts of spots on a gradient, or on cells."""
    rng = np.random.default_rng([7, len(kind)])
    y, x = np.indices(SHAPE)
    base = 6 + 120 * x / SIDE
    if kind == "cells":
        inside = (np.hypot(y % 128 - 64, x % 128 - 64) < 40).astype(float)
        base = 10 + 180 * ndimage.gaussian_filter(inside, 2.0)
    places = rng.uniform(12, SIDE - 12, (60, 2))
    height = 15 * np.sqrt(base[tuple(np.rint(places).astype(int).T)])
    lights = light(places, height * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)
    return rng.poisson(base + lights) + 100.0


WAYS = {
    "Gaussian 3": lambda image: image - ndimage.gaussian_filter(image, 3),
    "Gaussian 10": lambda image: image - ndimage.gaussian_filter(image, 10),
    "median 15": lambda image: image - ndimage.median_filter(image, 15),
    "median 31": lambda image: image - ndimage.median_filter(image, 31),
}


@pytest.mark.parametrize("kind", ["gradient", "cells"])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
@pytest.mark.parametrize("name", WAYS)
def test_a_background_taken_away_and_cut_off_is_named(name, dtype, kind):
    cut = np.maximum(WAYS[name](scene(kind)), 0).astype(dtype)
    assert is_cut_alike(cut, 1.0 if dtype == np.uint16 else 0.0)
    with pytest.warns(UserWarning, match="another subtracted background|cut off at its lowest"):
        fits = localize(cut, sigma=SIGMA, backend="cpu")
    assert fits.settings.noise.process in (Process.LEVELLED, Process.CUT)


@pytest.mark.parametrize("kind", ["gradient", "cells"])
def test_raw_images_are_not_named(kind):
    raw = scene(kind)
    assert not is_cut_alike(raw, 1.0)
    # What is cut off at one level is darker where that many pixels have the lowest value.
    assert not is_cut_alike(np.maximum(raw, np.median(raw)), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(raw, sigma=SIGMA, backend="cpu")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [0.3, 1.0, 4.0, 50.0])
@pytest.mark.parametrize("read_out", [0.0, 1.5, 4.0])
def test_cameras_without_an_offset_are_not_named(read_out, most, seed):
    """Of little light here and none there, amplified or not, half of the pixels may be 0."""
    rng = np.random.default_rng([seed, round(10 * most), round(10 * read_out)])
    cells = ndimage.gaussian_filter((rng.random(SHAPE) < 2e-3) * 1.0, 8)
    spots = light(rng.uniform(0, SIDE, (40, 2)), 400.0, SIGMA, SHAPE)
    photons = rng.poisson(most * cells / cells.max() + spots)
    amplified = np.where(photons, rng.gamma(np.maximum(photons, 1), 25.0), 0.0)
    for electrons in (photons, amplified):
        counts = np.maximum(np.rint(electrons + rng.normal(0, read_out, SHAPE)), 0)
        assert not is_cut_alike(counts, 1.0)
        assert not is_cut_alike(counts / 7, 1 / 7)


def test_bad_pixels_do_not_count():
    rng = np.random.default_rng(3)
    stronger = rng.normal(size=SHAPE) * np.where(np.arange(SIDE) < SIDE // 2, 1, 3)
    cut = np.where(rng.random(SHAPE) < 1e-3, np.nan, np.maximum(stronger, 0))
    assert is_cut_alike(cut, 0.0)
    assert not is_cut_alike(np.full(SHAPE, np.nan), 0.0)
    assert not is_cut_alike(cut[:8, :8], 0.0)
