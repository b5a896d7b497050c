"""Slow frames are read a few at a time, so that there is progress."""

from __future__ import annotations

import pytest
from same_fits import assert_same

from napari_spotfit import SpotFits, localize, localize_iter, simulate_movie
from napari_spotfit.localization import chunks

SHAPE = 40, 44


class Slow:
    """A chunked movie that takes a number of seconds per frame, by a fake clock."""

    def __init__(self, movie, seconds, monkeypatch, chunks_of=(1,)):
        self.shape, self.dtype, self.chunks = movie.shape, movie.dtype, (*chunks_of, *SHAPE)
        self._movie, self._seconds = movie, seconds
        self._now, self.reads = 0.0, []
        monkeypatch.setattr(chunks.time, "perf_counter", lambda: self._now)
        monkeypatch.setattr(chunks.threads, "available", lambda: 2)

    def __getitem__(self, index):
        pixels = self._movie[index]
        frames = pixels.size // (SHAPE[0] * SHAPE[1])
        self.reads.append(frames)
        self._now += self._seconds * frames
        return pixels


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(200, SHAPE, spots_per_frame=4, photons=3000, seed=4)[0]


@pytest.fixture(scope="module")
def whole(movie):
    return localize(movie, backend="cpu")


def fitted(image, whole):
    progress = []
    parts = localize_iter(image, settings=whole.settings, progress=lambda n, _: progress.append(n))
    assert_same(SpotFits.concatenate(list(parts)), whole)
    return progress


@pytest.mark.parametrize("seconds", [0.3, 2.0])
def test_slow_frames_come_a_few_at_a_time(movie, whole, seconds, monkeypatch):
    image = Slow(movie, seconds, monkeypatch)
    progress = fitted(image, whole)
    # The first reading is longer, as nobody knows yet; then each is halved.
    assert image.reads[0] == 25
    assert max(image.reads[5:-1]) == (2 if seconds > 1 else 3)
    assert progress[-1] == 200
    assert len(progress) > 40


def test_quick_frames_come_together(movie, whole, monkeypatch):
    image = Slow(movie, 1e-6, monkeypatch)
    assert fitted(image, whole)[-1] == 200
    assert image.reads == [25, 50, 100, 25]


def test_chunks_are_read_once_however_slow_they_are(movie, whole, monkeypatch):
    image = Slow(movie, 2.0, monkeypatch, chunks_of=(30,))
    fitted(image, whole)
    assert image.reads == [30, 30, 30, 30, 30, 30, 20]


def test_chunks_that_mingle_are_read_as_they_lie(movie, whole, monkeypatch):
    image = Slow(movie.reshape(10, 20, *SHAPE), 2.0, monkeypatch, chunks_of=(5, 10))
    parts = list(localize_iter(image, settings=whole.settings))
    assert sum(map(len, parts)) == len(whole)
    assert image.reads == [200]
