"""Spots of volumes that stand alone by their own fits: two above each other, or one of a long PSF.

A pair is wider than the PSF along any axis. Where most spots are longer in the same direction, that
is the PSF.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from napari_spotfit import localize

SHAPE, WIDTHS, BACKGROUND = (18, 150, 150), (1.5, 1.3, 1.3), 10.0
KNOWN = {"model": "gaussian_3d", "gain": 1.0, "backend": "cpu"}
GIVEN = KNOWN | {"sigma": WIDTHS[1], "sigma_z": WIDTHS[0]}


def places(seed: int) -> np.ndarray:
    """Return the places of spots that stand alone."""
    rng = np.random.default_rng(seed)
    rows = np.arange(14, 140, 25)
    found = np.stack(np.meshgrid([7], rows, rows, indexing="ij"), axis=-1).reshape(-1, 3)
    return found + rng.uniform((-1, -1, -1), (1, 1, 1), found.shape)


def stack(truth: np.ndarray, photons: float, shape: np.ndarray, seed: int) -> np.ndarray:
    """Return a stack of spots, whose light has a covariance, in pixels²."""
    light = np.full(SHAPE, BACKGROUND)
    inverse = np.linalg.inv(shape)
    height = photons / math.sqrt((2 * math.pi) ** 3 * np.linalg.det(shape))
    for place in truth:
        low = np.maximum(np.rint(place).astype(int) - (9, 12, 12), 0)
        part = tuple(slice(a, a + n) for a, n in zip(low, (19, 25, 25), strict=True))
        there = np.stack(np.mgrid[tuple(slice(0, n) for n in light[part].shape)], -1) + low - place
        squares = np.einsum("...i,ij,...j->...", there, inverse, there)
        light[part] += height * np.exp(-squares / 2)
    return np.random.default_rng(seed).poisson(light).astype(np.uint16)


@pytest.mark.parametrize("photons", [2000.0, 10000.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_two_spots_in_line_along_any_axis_are_two(axis: int, photons: float) -> None:
    step = np.zeros(3)
    step[axis] = 1.75 * WIDTHS[axis]
    singles = places(1)
    truth = np.concatenate([singles, singles[::2] + step])
    fits = localize(stack(truth, photons, np.diag(WIDTHS) ** 2, 2), **GIVEN)
    good = fits[fits.good]
    assert len(truth) - 1 <= len(good) <= len(truth) + 2
    assert not (good.photons > 1.6 * photons).any()


@pytest.mark.parametrize("photons", [10000.0, 30000.0])
@pytest.mark.parametrize(
    "along", [(0, 0, 1), (0, 1, 1), (1, 0.6, 0)], ids=["x", "diagonal", "tilted"]
)
def test_a_psf_that_is_longer_in_one_direction_is_one_spot(
    along: tuple[float, float, float], photons: float
) -> None:
    way = np.array(along) / np.linalg.norm(along)
    widths = np.diag(WIDTHS)
    shape = widths @ (np.eye(3) * 0.77 + 0.53 * np.outer(way, way)) @ widths
    truth = places(3)
    image = stack(truth, photons, shape, 4)
    fits = localize(image, **KNOWN)
    alone = localize(image, **KNOWN, neighbours="exclude")
    assert len(truth) <= fits.good.sum() <= alone.good.sum() + 1
    assert np.median(fits.photons[fits.good]) > 0.9 * photons
