"""Fixtures for spots that are stored in several parts."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import simulate_movie
from napari_spotfit.localization import stored


@pytest.fixture(scope="module")
def movie() -> np.ndarray:
    return simulate_movie(24, shape=(64, 72), spots_per_frame=9, photons=3000, seed=5)[0]


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch, movie: np.ndarray) -> None:
    """Store four frames per part."""
    monkeypatch.setattr(stored, "_PART_BYTES", 4 * movie[0].nbytes)


@pytest.fixture
def short_parts_of_joint_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store two jointly fitted frames per part."""
    monkeypatch.setattr(stored, "_PART_BYTES", 2 * 80 * 100 * 2)
