"""Fixtures of the command line's tests."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import simulate_movie


@pytest.fixture(scope="session")
def movies():
    return [
        simulate_movie(8, shape=(48, 56), spots_per_frame=5, photons=3000, seed=seed)[0]
        for seed in (1, 2)
    ]


@pytest.fixture
def folder(movies, tmp_path, monkeypatch):
    """A folder with two movies, in which commands run."""
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", movies[0])
    np.save(tmp_path / "b.npy", movies[1])
    return tmp_path
