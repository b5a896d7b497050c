"""Filters that leave fine detail nearly as it was are named, and have few false spots."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from noisy_scenes import hits
from scenes import light
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.blue_noise import along_over_both, has_checkerboard
from napari_spotfit.estimation.measured_noise import measured_blocks
from napari_spotfit.estimation.photon_transfer import fine_detail, photon_transfer
from napari_spotfit.estimation.raw_detail import is_surely_blue
from napari_spotfit.settings.settings import Settings

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


def counts_on(kind, seed=1):
    """Return counts of spots on a flat field, a gradient, or beside a few large cells; y and x."""
    rng = np.random.default_rng([seed, SIDE])
    base = np.full(SHAPE, 25.0)
    if kind == "gradient":
        base = base * (0.3 + 5 * np.indices(SHAPE)[1] / SIDE)
    if kind == "cells":
        inside = (np.indices(SHAPE) // 96).sum(axis=0) % 2
        base = base + 150 * ndimage.gaussian_filter(inside.astype(float), 2.0)
    places = rng.uniform(12, SIDE - 12, (40, 2))
    height = 15 * np.sqrt(base[tuple(np.rint(places).astype(int).T)])
    spots = light(places, height * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)
    return rng.poisson(base + spots) + 100.0, places


def without_outliers(image, threshold=8.0):
    """Take the median where a pixel differs from it by more than a threshold."""
    middle = ndimage.median_filter(image, 3, mode="mirror")
    return np.where(abs(image - middle) > threshold, middle, image)


def from_neighbours(image):
    kernel = np.exp(-(np.hypot(*np.mgrid[-2:3, -2:3]) ** 2) / 2)
    kernel[2, 2] = 0
    return ndimage.convolve(image, kernel / kernel.sum(), mode="mirror")


def with_shifted(image):
    """Average an image and its copy half a pixel away."""
    return (image + ndimage.shift(image, (0.5, 0.5), order=1, mode="mirror")) / 2


def between_gaussians(image):
    return ndimage.gaussian_filter(image, 1.3) - ndimage.gaussian_filter(image, 3)


FILTERS = {"without outliers": without_outliers, "from neighbours": from_neighbours,
           "with shifted": with_shifted, "between Gaussians": between_gaussians}  # fmt: skip


def looked_at(image, sigma=SIGMA):
    """Return y and x of the good fits, and whether a warning says what was probably done."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fits = localize(image, sigma=sigma, backend="cpu")
    places = np.column_stack([fits.y, fits.x])[fits.good].astype(float)
    return places, any("probably" in str(one.message) for one in said)


@pytest.mark.parametrize("sigma", [SIGMA, None])
@pytest.mark.parametrize(("name", "kind"), [
    ("without outliers", "flat"), ("without outliers", "gradient"),
    ("from neighbours", "flat"), ("from neighbours", "gradient"),
    ("with shifted", "flat"), ("with shifted", "gradient"), ("between Gaussians", "cells"),
])  # fmt: skip
def test_partly_filtered_images_are_named_and_have_few_false_spots(name, kind, sigma):
    """They had up to 200 good fits of nothing, in silence."""
    counts, truth = counts_on(kind)
    places, said = looked_at(FILTERS[name](counts), sigma)
    assert said
    assert len(places) - hits(places, truth, 2) <= 6


@pytest.mark.parametrize("sigma", [SIGMA, None])
@pytest.mark.parametrize("kind", ["flat", "gradient", "cells"])
def test_raw_images_are_not_called_filtered(kind, sigma):
    assert not looked_at(counts_on(kind)[0], sigma)[1]


@pytest.mark.parametrize("sigma", [SIGMA, None])
@pytest.mark.parametrize("kind", ["flat", "cells"])
def test_a_checkerboard_of_offsets_is_a_cameras(kind, sigma):
    """A real image has one, all over the field."""
    board = np.indices(SHAPE).sum(axis=0) % 2
    assert not looked_at(counts_on(kind)[0] + 2 * board, sigma)[1]


@pytest.mark.parametrize("name", ["from neighbours", "with shifted", "between Gaussians"])
def test_filters_leave_no_checkerboard(name):
    for kind in ("flat", "gradient", "cells"):
        assert not has_checkerboard(FILTERS[name](counts_on(kind)[0])[np.newaxis])


def blocks_of(movie):
    return measured_blocks(movie, Settings(sigma=SIGMA, threads=1)).blocks


def is_blue(movie, step=1.0):
    blocks = blocks_of(movie)
    return is_surely_blue(fine_detail(blocks, photon_transfer(blocks, step), step))


def test_blue_noise_is_that_of_no_camera():
    white = np.random.default_rng(1).normal(100, 3, (1, *SHAPE))
    blue = white + 0.4 * ndimage.uniform_filter(white, (1, 3, 3))
    assert is_blue(blue)
    assert not is_blue(blue[:, :64, :64])  # by chance
    assert not is_blue(white + 0.03 * ndimage.uniform_filter(white, (1, 3, 3)))
    assert not is_blue(blue, step=5.0)  # rounded, or of few counts


def test_frames_of_two_kinds_have_no_blue_noise():
    """The median over blocks of both kinds lies between them, and is anything."""
    rng = np.random.default_rng(2)
    deviation = np.where(np.arange(40) % 2, 2.0, 20.0)[:, np.newaxis, np.newaxis]
    for _ in range(5):
        assert not is_blue(rng.normal(100, deviation, (40, 128, 128)))


def test_noise_that_frames_share_counts_once():
    rng = np.random.default_rng(3)
    same = rng.normal(100, 3, (1, 96, 96))
    one, many = (along_over_both(blocks_of(same.repeat(count, 0)))[1] for count in (1, 40))
    own = along_over_both(blocks_of(rng.normal(100, 3, (40, 96, 96))))[1]
    assert many == pytest.approx(one)
    assert own < 0.6 * one
