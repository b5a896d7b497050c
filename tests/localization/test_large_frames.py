"""Buffers of rows of a large frame."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit.localization.chunks import RowBuffer


@pytest.mark.parametrize("dtype", [np.uint16, np.float64])
def test_rows_come_and_go(dtype):
    shape, rng = (4000, 3001), np.random.default_rng(1)
    frame = rng.integers(1, 99, shape).astype(dtype)
    window = RowBuffer(shape, frame.dtype)
    for first in range(0, 4000, 20):
        window.add(frame[first : first + 20])
        begin = max(first - 100, 0)
        window.forget(begin)
        assert (window.first, window.last) == (begin, first + 20)
        np.testing.assert_array_equal(
            window.frames[0, begin : first + 20], frame[begin : first + 20]
        )


def test_what_is_forgotten_takes_no_memory():
    shape = (4000, 4096)
    window = RowBuffer(shape, np.dtype(np.uint16))
    window.add(np.full((3000, 4096), 9, np.uint16))
    window.forget(2000)
    assert window.frames[0, 2000:3000].min() == 9
    gone = window.frames[0, :1999] == 0
    if window._memory is not None:  # where the system gives memory back
        assert gone.mean() > 0.99


@pytest.mark.parametrize("reserved", [True, False])
def test_rows_are_added_in_the_memory_that_was_made_for_them(reserved, monkeypatch):
    if not reserved:  # as on systems that have none such
        monkeypatch.setattr("napari_spotfit.localization.chunks._reserved", lambda size: None)
    pixels = np.random.default_rng(1).integers(1, 999, (60, 5000)).astype(np.uint16)
    window = RowBuffer(pixels.shape, pixels.dtype)
    for first in range(0, 60, 20):
        room = window.room(first, first + 20)
        room[...] = pixels[first : first + 20]
        window.add(room)
        window.forget(first - 5)
        begin = max(first - 5, 0)
        assert (window.first, window.last) == (begin, first + 20)
        there = window.frames[0, begin : first + 20]
        np.testing.assert_array_equal(there, pixels[begin : first + 20])


@pytest.mark.parametrize("reserved", [True, False])
def test_planes_of_a_volume_come_and_go(reserved, monkeypatch):
    if not reserved:
        monkeypatch.setattr("napari_spotfit.localization.chunks._reserved", lambda size: None)
    volume = np.random.default_rng(1).integers(1, 99, (40, 60, 51)).astype(np.uint16)
    window = RowBuffer(volume.shape, volume.dtype)
    for first in range(0, 40, 4):
        room = window.room(first, first + 4)
        room[...] = volume[first : first + 4]
        window.add(room)
        window.forget(first - 3)
        begin = max(first - 3, 0)
        np.testing.assert_array_equal(
            window.frames[0, begin : first + 4], volume[begin : first + 4]
        )
