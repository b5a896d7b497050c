"""Simulated data has the statistics it claims."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import simulate_movie, simulate_spots


def test_spots_have_their_photons_and_places():
    spots, truth = simulate_spots(4000, 15, photons=800, background=2, sigma=1.5, seed=0)
    total = spots.sum((1, 2)) - 2 * 225
    assert total.mean() == pytest.approx(800, rel=5e-3)
    assert total.std() == pytest.approx(np.sqrt(800 + 450), rel=0.05)
    y, _ = np.indices((15, 15))
    centroid = ((spots - 2) * y).sum((1, 2)) / total
    assert np.mean(centroid - truth["y"]) == pytest.approx(0, abs=0.02)


def test_widths_may_vary():
    _, truth = simulate_spots(1000, sigma=(1, 2), seed=0)
    assert 1 <= truth["sigma"].min() < 1.1
    assert 1.9 < truth["sigma"].max() <= 2


def test_a_movie_has_offset_gain_and_spots_where_it_says():
    movie, truth = simulate_movie(
        20, shape=(60, 70), spots_per_frame=5, background=10, offset=100, gain=2, seed=1
    )
    assert movie.shape == (20, 60, 70)
    assert movie.dtype == np.uint16
    assert np.median(movie) == pytest.approx(120, abs=3)
    assert len(truth) == 100
    bright = truth[truth["photons"] > 1000]
    rows = bright[["frame", "y", "x"]].round().astype(int).to_numpy()
    assert np.median(movie[tuple(rows.T)]) > 250
    dark, none = simulate_movie(2, shape=(30, 30), spots_per_frame=0, seed=1)
    assert dark.mean() == pytest.approx(110, abs=1)
    assert len(none) == 0


def test_a_seed_repeats_everything():
    first, second = simulate_movie(2, seed=3), simulate_movie(2, seed=3)
    assert np.array_equal(first[0], second[0])
    assert first[1].equals(second[1])
