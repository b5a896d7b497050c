"""FrameReader: any image, any selection, a few frames at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napari_spotfit.images.frames import FrameReader, to_native

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")


def image(*leading):
    return np.arange(int(np.prod(leading)) * 30, dtype=np.uint16).reshape(*leading, 5, 6)


def read_all(reader, selection=None, at_least=1, block_bytes=1 << 20):
    numbers = reader.select(selection)
    return np.concatenate(
        [reader.read(block) for block in reader.blocks(numbers, at_least, block_bytes)]
    )


KINDS = {
    "numpy": lambda a: a,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "dask": lambda a: da.from_array(a, chunks=(*(2,) * (a.ndim - 2), 3, 3)),
    "zarr": lambda a: zarr.array(a, chunks=(*(2,) * (a.ndim - 2), 5, 6)),
    "list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leading", [(), (1,), (7,), (3, 5), (2, 3, 4)])
def test_all_frames_are_read_in_order(kind, leading):
    original = image(*leading)
    for block_bytes in (1, 200, 1 << 20):
        read = read_all(FrameReader(KINDS[kind](original)), block_bytes=block_bytes)
        assert np.array_equal(read, original.reshape(-1, 5, 6))
        assert read.flags.c_contiguous


@given(
    st.lists(st.one_of(st.integers(-3, 2), st.just(slice(None)), st.just(slice(None, None, 2)),
                       st.just([2, 0])), min_size=2, max_size=2),
    st.integers(1, 5),
)  # fmt: skip
def test_a_selection_is_numpys(selection, at_least):
    original = image(3, 4)
    numbers = np.arange(12).reshape(3, 4)
    first, second = (np.arange(size)[s] for size, s in zip((3, 4), selection, strict=True))
    expected = np.unique(numbers[np.ix_(np.atleast_1d(first), np.atleast_1d(second))])
    reader = FrameReader(original[:, ::-1][:, ::-1])
    assert np.array_equal(reader.select(tuple(selection)), expected)
    read = read_all(reader, tuple(selection), at_least)
    assert np.array_equal(read, original.reshape(-1, 5, 6)[expected])


def test_a_chunk_is_read_once():
    loads = []

    def load(block, block_info=None):
        loads.append(block_info[0]["chunk-location"])
        return block

    lazy = da.from_array(image(20), chunks=(5, 5, 6)).map_blocks(load, dtype=np.uint16)
    reader = FrameReader(lazy)
    loads.clear()
    read_all(reader, block_bytes=120)
    assert len(loads) == 4


def test_blocks_are_small_but_keep_all_threads_busy():
    big = np.broadcast_to(np.uint16(0), (40, 2048, 2048))
    reader = FrameReader(big)
    assert [len(b) for b in reader.blocks(reader.select(None), 4, 8 << 20)] == [4] * 10
    assert next(iter(reader.blocks(reader.select(None), 1, 8 << 20))).size == 1


@pytest.mark.parametrize(
    ("dtype", "native"),
    [("u1", "u1"), ("i1", "i2"), ("u2", "u2"), (">u2", "u2"), ("i2", "i2"), ("i4", "f8"),
     ("u8", "f8"), ("f2", "f4"), (">f4", "f4"), ("f8", "f8"), ("g", "f8")],
)  # fmt: skip
def test_native_types(dtype, native):
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)[:, ::-1]
    converted = to_native(values)
    assert converted.dtype == np.dtype(native)
    assert converted.dtype.isnative
    assert converted.flags.c_contiguous
    assert np.array_equal(converted, values)


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (np.zeros(5), ValueError, r"\(…, y, x\)"),
        (np.zeros((3, 0, 5)), ValueError, "no pixels"),
        (np.zeros((3, 5, 5), complex), TypeError, "real numbers"),
        (np.zeros((3, 5, 5), bool), TypeError, "real numbers"),
        ("image", TypeError, "real numbers"),
    ],
)
def test_wrong_images_are_named(bad, error, words):
    with pytest.raises(error, match=words):
        FrameReader(bad)


@pytest.mark.parametrize(
    ("selection", "error", "words"),
    [
        (7, ValueError, r"0…6"),
        ([0, -8], ValueError, r"0…6"),
        (1.5, TypeError, "slice, an index or indices"),
        ("all", TypeError, "slice, an index or indices"),
        ((0, 1), ValueError, "each of the 1 leading axes"),
    ],
)
def test_wrong_selections_are_named(selection, error, words):
    with pytest.raises(error, match=words):
        FrameReader(image(7)).select(selection)
