"""Volumes whose planes differ in background, from one to the next or more than a slope does."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import localize
from napari_spotfit.engine.backend import Block
from napari_spotfit.engine.joint_fits import Scale
from napari_spotfit.engine.uneven_planes import differing_volumes, uneven_volumes

KNOWN = {"model": "gaussian_3d", "sigma": 1.3, "sigma_z": 1.5, "gain": 1.0, "backend": "cpu"}
PHOTO_ELECTRONS = Scale(1.0, 0.0, 0.0)
DEPTH = np.arange(20.0)[:, np.newaxis, np.newaxis]


def noise(background: np.ndarray, seed: int = 1) -> np.ndarray:
    """Return a stack without spots."""
    light = np.broadcast_to(background, (20, 120, 120))
    return np.random.default_rng(seed).poisson(light).astype(np.uint16)


def flicker(share: float, seed: int = 2) -> np.ndarray:
    """Return by which factor each plane is brighter."""
    return np.random.default_rng(seed).uniform(1 - share, 1 + share, DEPTH.shape)


@pytest.mark.parametrize(
    ("background", "is_uneven"),
    [
        (100 * flicker(0.1), True),
        (1000 * flicker(0.05), True),
        (100 + 0 * DEPTH, False),
        (1.7 + 0 * DEPTH, False),
        (10 + 10 * DEPTH, False),
        (10 + 200 * np.exp(-DEPTH / 5), False),
    ],
    ids=["flickers", "bright", "even", "dim", "slope", "decay"],
)
def test_planes_are_uneven_that_differ_from_both_beside_them(
    background: np.ndarray, is_uneven: bool
) -> None:
    stacks = np.stack([noise(background), noise(50 + 0 * DEPTH)])
    found = uneven_volumes(Block(stacks, stacks), PHOTO_ELECTRONS)
    assert found.tolist() == [is_uneven, False]


@pytest.mark.parametrize(
    ("background", "is_bent"),
    [
        (10 + 30 * np.exp(-DEPTH / 4), True),
        (np.where(DEPTH < 9, 10.0, 20.0), True),
        (20 + 0 * DEPTH, False),
        (10 + 5 * DEPTH, False),
        (100 * np.exp(-DEPTH / 40), False),
    ],
    ids=["decay", "step", "even", "slope", "slow decay"],
)
def test_planes_are_bent_that_no_slope_explains(background: np.ndarray, is_bent: bool) -> None:
    image = noise(background)
    stacks = np.stack([image, noise(50 + 0 * DEPTH)])
    found = differing_volumes(Block(stacks, stacks), PHOTO_ELECTRONS, 1.5)
    assert found.tolist() == [is_bent, False]
    fits = localize(image, **KNOWN)
    assert fits.settings.noise.planes or not is_bent
    assert fits.good.sum() < 10


def test_flicker_is_not_explained_by_spots() -> None:
    image = noise(100 * flicker(0.1))
    for neighbours in ("auto", "exclude"):
        fits = localize(image, **KNOWN, neighbours=neighbours)
        assert fits.settings.noise.planes == "light"
        assert len(fits) < 20
