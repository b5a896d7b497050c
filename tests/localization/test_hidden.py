"""Spots of volumes that brighter ones beside them hide."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from napari_spotfit import detect_spots, localize

WIDTHS = np.array([1.5, 1.3, 1.3])
KNOWN = {"sigma": 1.3, "sigma_z": 1.5}


def stack_of(places, heights, shape=(30, 96, 96), seed=1):
    """Return a stack of spots with shot noise."""
    light = np.zeros(shape)
    at = np.stack(np.indices(shape), axis=-1)
    for place, height in zip(places, heights, strict=True):
        low = np.maximum(np.floor(place).astype(int) - 8, 0)
        part = tuple(slice(begin, begin + 17) for begin in low)
        u = (at[part] - place) / WIDTHS
        light[part] += height * np.exp(-0.5 * (u**2).sum(axis=-1))
    return np.random.default_rng(seed).poisson(light + 30).astype(np.uint16)


def near(places, found):
    """Return how many places have a spot beside them."""
    return np.count_nonzero(cKDTree(found / WIDTHS).query(places / WIDTHS)[0] < 0.8)


def test_spots_beside_brighter_ones_are_found():
    rng = np.random.default_rng(2)
    places = rng.uniform((3, 5, 5), (26, 90, 90), (300, 3))
    stack = stack_of(places, 150 * np.exp(0.4 * rng.normal(size=300)))
    detected = detect_spots(stack, dimensions=3, **KNOWN)
    fits = localize(stack, model="gaussian_3d", **KNOWN)
    assert len(fits) > len(detected)
    assert np.isfinite(fits.score).all()
    good = fits[fits.good].points()
    assert near(places, good) > 1.03 * near(places, detected.astype(float))
    assert near(good, places) > 0.95 * len(good)


def test_apart_they_are_what_is_detected():
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid([7, 22], range(12, 96, 24), range(12, 96, 24)), axis=-1)
    places = grid.reshape(-1, 3) + rng.uniform(-0.5, 0.5, (32, 3))
    stack = stack_of(places, np.full(32, 500.0))
    fits = localize(stack, model="gaussian_3d", **KNOWN)
    assert len(fits) == len(detect_spots(stack, dimensions=3, **KNOWN))
