"""Detection on the CPU: its memory, and frames that it must not modify."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scenes import (
    assert_same,
    estimated,
    movie_of,
    scattered,
)

from napari_spotfit.engine.cpu.backend import detect
from napari_spotfit.settings.settings import Settings


def test_memory_does_not_grow_with_the_movie():
    movie = np.random.default_rng(29).poisson(10, (2, 128, 128)).astype(np.uint16)
    movie = np.broadcast_to(movie[:, None], (2, 300, 128, 128)).reshape(600, 128, 128)
    known = estimated(movie[:10], Settings(threads=2))
    detect(movie[:10], known)
    tracemalloc.start()
    detect(movie, known)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < movie.nbytes / 3  # 20 MB; a copy as float32 would be twice that


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flat", [False, True])
def test_memory_of_a_large_frame(threads, flat):
    frame = np.random.default_rng(35).poisson(30, (1, 2500, 3000)).astype(np.uint16)
    if flat:  # half of it is one plateau, with a maximum beside a dark spot
        frame[0, :1200] = 1000
        frame[0, 600:603, 1500] = 0
    known = estimated(frame[:, 1200:], Settings(threads=threads))
    tracemalloc.start()
    found = detect(frame, known)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.y) > 0 or not flat
    assert (frame.nbytes + peak) / frame.size < 6


def test_frames_are_only_read(tmp_path):
    rng = np.random.default_rng(30)
    movie = movie_of(rng, scattered(rng, (64, 64), 10), 3, (64, 64)).astype(np.uint16)
    known = estimated(movie, Settings())
    expected = detect(movie, known)
    copy = movie.copy()
    copy.flags.writeable = False
    assert_same(expected, detect(copy, known))
    np.testing.assert_array_equal(movie, copy)
    movie.tofile(tmp_path / "movie.raw")
    mapped = np.memmap(tmp_path / "movie.raw", np.uint16, "r", shape=movie.shape)
    assert_same(expected, detect(mapped, known))
    broken = movie.astype(np.float32)
    broken[0, 5, 5] = np.nan
    before = broken.copy()
    detect(broken, known)
    np.testing.assert_array_equal(broken, before)
