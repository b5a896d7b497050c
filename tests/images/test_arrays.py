"""Dask chunks are stored into existing memory by threads, and checked."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit.images.arrays import is_local_dask
from napari_spotfit.images.frames import FrameReader

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")


def image_of(pixels, made=lambda block: block):
    """Return a Dask image with chunks from a function of the expected ones."""
    return da.from_array(pixels, chunks=(*[1] * (pixels.ndim - 2), 16, 16)).map_blocks(
        made, dtype=pixels.dtype, meta=np.empty((0,) * pixels.ndim, pixels.dtype)
    )


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
@pytest.mark.parametrize("dtype", ["u2", ">u2", "f4"])
def test_rows_come_as_they_are(scheduler, dtype):
    pixels = np.random.default_rng(1).integers(0, 999, (3, 40, 50)).astype(dtype)
    reader = FrameReader(image_of(pixels))
    with dask.config.set(scheduler=scheduler):
        room = np.zeros((40, 50), pixels.dtype.newbyteorder("="))
        reader.read_part_into(room[16:32, 5:], 2, (slice(16, 32), slice(5, 50)))
    np.testing.assert_array_equal(room[16:32, 5:], pixels[2, 16:32, 5:])
    assert not room[:16].any()
    assert not room[:, :5].any()


def test_what_other_processes_compute_is_not_put_into_this_ones_memory():
    image = image_of(np.zeros((32, 32)))
    for scheduler, here in (("threads", True), ("sync", True), ("processes", False)):
        with dask.config.set(scheduler=scheduler):
            assert is_local_dask(image) == here
    assert not is_local_dask(da.ma.masked_equal(image, 1))
    assert not is_local_dask(np.zeros((32, 32)))


@pytest.mark.parametrize("rows", [slice(0, 3), slice(0, 0), slice(0, 1)])
def test_a_chunk_of_another_shape_is_an_error(rows):
    image = image_of(np.ones((32, 48), np.uint16), lambda block: block[rows])
    room = np.zeros((32, 48), np.uint16)
    with pytest.raises(ValueError, match=r"frame 0 of the image should have the shape .* came as"):
        FrameReader(image).read_part_into(room, 0, (slice(0, 32), slice(0, 48)))
