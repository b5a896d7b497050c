"""Tracks of tables with unusual numbers of frames, and with rows without a position."""

import numpy as np
import pytest

from napari_spotfit import SpotFits, link_spots


def walkers(seed: int = 0) -> SpotFits:
    """Return spots that move by up to a pixel, and are not seen in some frames."""
    random = np.random.default_rng(seed)
    frame, walker = np.indices((40, 12)).reshape(2, -1)
    places = np.cumsum(random.normal(0, 0.3, (40, 12, 2)), axis=0).reshape(-1, 2)
    places += random.uniform(0, 60, (12, 2))[walker]
    kept = random.random(len(frame)) < 0.9
    stops = np.full(kept.sum(), 3, np.uint8)
    y, x = places[kept].T
    return SpotFits({"frame": frame[kept], "y": y, "x": x, "stop_condition": stops}, ["frame"])


@pytest.mark.parametrize("memory", [0, 1, 5])
@pytest.mark.parametrize("first", [-17, 10**6, 10**15])
def test_tracks_do_not_depend_on_the_first_frame(first: int, memory: int) -> None:
    fits = walkers()
    later = fits.with_columns(fits.columns | {"frame": fits.frame + first})
    expected = link_spots(fits, 1.5, memory=memory)
    assert np.array_equal(link_spots(later, 1.5, memory=memory).track, expected.track)


@pytest.mark.parametrize(
    ("memory", "tracks"), [(0, [0, 0, 1, 2]), (3, [0, 0, 0, 1]), (4, [0, 0, 0, 1])]
)
def test_the_memory_counts_frames_without_spots(memory: int, tracks: list[int]) -> None:
    columns = {"frame": np.array([0, 1, 5, 10**9]), "y": np.zeros(4), "x": np.full(4, 0.5)}
    fits = SpotFits(columns | {"stop_condition": np.full(4, 3, np.uint8)}, ["frame"])
    assert link_spots(fits, 1.0, memory=memory).track.tolist() == tracks


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_without_a_position_are_in_no_track(value: float) -> None:
    fits = walkers()
    y = fits.y.copy()
    y[[3, 50]] = value
    found = link_spots(fits.with_columns(fits.columns | {"y": y}), 1.5)
    kept = np.delete(np.arange(len(fits)), [3, 50])
    assert found.track[[3, 50]].tolist() == [-1, -1]
    assert np.array_equal(found.track[kept], link_spots(fits[kept], 1.5).track)


def test_movies_are_apart_whatever_their_frames() -> None:
    one, other = walkers(0), walkers(1)
    both = SpotFits.concatenate([one, other])
    names = np.repeat(["a", "b"], [len(one), len(other)])
    far = np.concatenate([one.frame, other.frame - 10**9])
    found = link_spots(both.with_columns(both.columns | {"file": names, "frame": far}), 1.5)
    first, second = found.track[: len(one)], found.track[len(one) :]
    assert not set(first) & set(second)
    assert np.array_equal(np.unique(second, return_inverse=True)[1], link_spots(other, 1.5).track)
