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


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"count": -1}, ValueError, "count must be a whole number from 0; got -1"),
        ({"count": 2.5}, TypeError, "count must be a whole number"),
        ({"roi_size": 0}, ValueError, "roi_size must be a whole number from 1; got 0"),
        ({"roi_size": (7, 7, 7)}, ValueError, r"roi_size must be \(rows, columns\)"),
        ({"photons": -1}, ValueError, "photons must be a finite number from 0; got -1"),
        ({"photons": np.nan}, ValueError, "photons must be a finite number"),
        ({"photons": 10**400}, ValueError, "photons must be a finite number"),
        ({"background": None}, TypeError, "background must be a finite number from 0; got None"),
        ({"sigma": 0}, ValueError, "sigma must be a finite number above 0; got 0"),
        ({"sigma": (1, 2, 3)}, ValueError, r"sigma must be one number or two, \(lowest, highest"),
        ({"sigma": "wide"}, TypeError, "sigma must be a finite number above 0"),
        ({"sigma_y": -1}, ValueError, "sigma_y must be a finite number above 0; got -1"),
        ({"jitter": -1}, ValueError, "jitter must be a finite number from 0"),
        ({"pixel": "centre"}, ValueError, "pixel must be 'sampled' or 'integrated'"),
        ({"gain": 0}, ValueError, "gain must be finite and above 0; got 0"),
        ({"gain": np.ones((3, 4))}, ValueError, r"the shape \(9, 9\) or \(5, 9, 9\); got shape"),
        ({"variance": -1}, ValueError, "variance must be finite and not negative; got -1"),
        ({"offset": np.inf}, ValueError, "offset must be finite; got inf"),
    ],
)
def test_wrong_spots_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        simulate_spots(**({"count": 5} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"frames": -1}, ValueError, "frames must be a whole number from 0; got -1"),
        ({"frames": "two"}, TypeError, "frames must be a whole number"),
        ({"shape": (64,)}, ValueError, r"shape must be \(rows, columns\); got \(64,\)"),
        ({"shape": (64, 0)}, ValueError, "shape must be a whole number from 1"),
        ({"spots_per_frame": 1.5}, TypeError, "spots_per_frame must be a whole number"),
        ({"photons": -5}, ValueError, "photons must be"),
        ({"sigma": 0}, ValueError, "sigma must be a finite number above 0"),
        ({"pixel": None}, ValueError, "pixel must be"),
        ({"gain": -1}, ValueError, "gain must be finite and above 0"),
        ({"variance": np.ones((5, 5))}, ValueError, r"the shape \(64, 64\); got shape \(5, 5\)"),
    ],
)
def test_wrong_movies_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        simulate_movie(**({"frames": 2, "shape": (64, 64)} | arguments))
