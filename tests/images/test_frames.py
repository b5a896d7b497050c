"""FrameReader: any image, any selection, a few frames at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from same_fits import assert_same

from napari_spotfit import (
    detect_spots,
    fit_at,
    fit_spots,
    localize,
    localize_iter,
    simulate_movie,
)
from napari_spotfit.images.arrays import to_native
from napari_spotfit.images.camera import PerPixel
from napari_spotfit.images.files import zarr_store
from napari_spotfit.images.frames import FrameReader, inside

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")


def image(*leading):
    return np.arange(int(np.prod(leading)) * 30, dtype=np.uint16).reshape(*leading, 5, 6)


def read_all(reader, selection=None, at_least=1, block_bytes=1 << 20):
    numbers = reader.select(selection)
    blocks = reader.blocks(numbers, at_least, block_bytes)
    assert all((np.diff(block) > 0).all() for block in blocks)
    read = np.concatenate([reader.read(block) for block in blocks])
    return read[np.argsort(np.concatenate(blocks))]


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


def counted(array, chunks, loads):
    """Return a Dask array that notes each time a chunk of it is computed."""

    def load(block, block_info=None):
        loads.append(tuple(block_info[0]["chunk-location"]))
        return block

    return da.from_array(array, chunks=chunks).map_blocks(load, dtype=array.dtype, meta=array[:0])


@pytest.mark.parametrize("block_bytes", [1, 60, 300, 1 << 20])
@pytest.mark.parametrize(
    ("leading", "chunks", "selection"),
    [
        ((20,), (5,), None),
        ((20,), (5,), slice(None, None, 2)),
        ((20,), ((1, 7, 12),), slice(3, None, 3)),
        ((20,), (20,), [0, 1, 19]),
        ((4, 6), (2, 3), None),
        ((4, 6), (4, 1), None),
        ((4, 6), (2, 3), (slice(None, None, 3), slice(1, None, 2))),
        ((3, 4, 5), (1, 2, 3), None),
        ((3, 4, 5), (3, 1, 2), ([0, 2], slice(None), slice(None, None, 2))),
    ],
)
def test_a_chunk_is_computed_once(leading, chunks, selection, block_bytes):
    loads, original = [], image(*leading)
    lazy = counted(original, (*chunks, 2, 6), loads)
    reader = FrameReader(lazy)
    loads.clear()
    read = read_all(reader, selection, block_bytes=block_bytes)
    assert np.array_equal(read, original.reshape(-1, 5, 6)[reader.select(selection)])
    assert len(loads) == len(set(loads))
    begins = [np.cumsum((0, *along))[:-1] for along in lazy.chunks[:-2]]
    index = np.unravel_index(reader.select(selection), leading)
    wanted = zip(*(np.searchsorted(b, i, "right") - 1 for b, i in zip(begins, index, strict=True)),
                 strict=True)  # fmt: skip
    assert {load[:-2] for load in loads} == set(wanted)


@pytest.mark.parametrize("options", [{}, {"sigma": 1.3}, {"gain": 1.0, "offset": 100.0}])
@pytest.mark.parametrize("lazy", [False, True])
def test_chunks_that_tell_what_is_left_open_are_computed_once_for_that(options, lazy):
    """σ, the noise and what it says against the camera come of the same few frames."""
    loads, movie = [], simulate_movie(60, shape=(64, 72), spots_per_frame=8, seed=1)[0]
    image = counted(movie, (10, 64, 72), loads)
    loads.clear()
    found = localize(image, lazy=lazy, **options)
    assert sorted(set(loads)) == [(i, 0, 0) for i in range(6)]
    assert len(loads) == (6 if lazy else 12)
    if not lazy:
        assert_same(found, localize(movie, **options))


@pytest.mark.parametrize("selection", [None, (slice(None), slice(None, None, 2))])
@pytest.mark.parametrize("as_file", [False, True])
def test_a_chunk_of_zarr_is_read_once(selection, as_file, tmp_path):
    class Counting(zarr.storage.WrapperStore):
        async def get(self, key, *rest, **more):
            if "c/" in key:
                loads.append(key)
            return await super().get(key, *rest, **more)

    loads, original = [], image(6, 8)
    store = zarr.storage.LocalStore(tmp_path / "movie.zarr")
    zarr.create_array(store, data=original, chunks=(3, 4, 5, 6))
    opened = zarr.open_array(Counting(store), mode="r")
    if as_file:
        opened = zarr_store.image_of(opened, tmp_path / "movie.zarr")
    read = read_all(FrameReader(opened), selection, block_bytes=200)
    chosen = FrameReader(original).select(selection)
    assert np.array_equal(read, original.reshape(-1, 5, 6)[chosen])
    assert sorted(loads) == [f"c/{t}/{z}/0/0" for t in range(2) for z in range(2)]


@pytest.mark.parametrize("frames", [None, (slice(None, None, 2), slice(1, 5))])
def test_localize_computes_each_chunk_once_and_gives_frames_in_order(frames):
    movie = simulate_movie(24, shape=(40, 44), spots_per_frame=3, photons=3000, seed=2)[0]
    stack, loads = movie.reshape(4, 6, 40, 44), []
    fits = localize(stack, frames=frames, backend="cpu")
    lazy = counted(stack, (2, 2, 20, 44), loads)
    loads.clear()
    found = localize(lazy, frames=frames, settings=fits.settings)
    assert_same(found, fits)
    assert len(loads) == len(set(loads)) == 12
    chosen = fits.points()[:, :2].astype(int)
    assert_same(fit_at(lazy, fits.points(), settings=fits.settings),
                fit_at(stack, fits.points(), settings=fits.settings))  # fmt: skip
    places = detect_spots(lazy, frames=frames, settings=fits.settings)
    assert np.array_equal(places[:, :2], chosen)


def test_the_parts_of_a_large_chunk_are_worked_on_one_by_one():
    movie = simulate_movie(90, shape=(256, 256), spots_per_frame=3, photons=3000, seed=2)[0]
    settings = localize(movie[:2]).settings.changed(threads=1)
    loads, lengths = [], []
    lazy = counted(movie, (90, 256, 256), loads)
    loads.clear()
    parts = localize_iter(lazy, settings=settings, progress=lambda done, of: lengths.append(done))
    assert len(list(parts)) == 2
    assert lengths == [64, 90]
    assert len(loads) == 1


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
        (b"image", TypeError, "real numbers"),
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


class Broken:
    """A lazy image whose frames have fewer pixels than its shape says."""

    def __init__(self, leading=(6,), wrong=4, dtype=np.uint16, chunks=None):
        self.shape, self.dtype = (*leading, 12, 12), np.dtype(np.uint16)
        self._wrong, self._frame = wrong, np.zeros((11, 12), dtype)

    def __getitem__(self, index):
        index = index[-1] if isinstance(index, tuple) else index
        frames = range(self.shape[-3])[index]
        if self._wrong in frames:
            return np.stack([self._frame] * len(frames))
        return np.zeros((len(frames), 12, 12), np.uint16)


PROMISE = r"should have the shape \(1, 12, 12\).*but came as \(1, 11, 12\)"


@pytest.mark.parametrize("leading", [(6,), (2, 6)])
def test_frames_that_are_smaller_than_promised_are_named(leading):
    reader = FrameReader(Broken(leading))
    assert reader.read(np.arange(4)).shape == (4, 12, 12)
    with pytest.raises(ValueError, match=f"frame 4 of the image {PROMISE}"):
        reader.read(np.array([2, 4]))
    with pytest.raises(ValueError, match=r"frames 3 to 5 of the image should have"):
        reader.read(np.arange(3, 6))


@pytest.mark.parametrize("run", [
    lambda image: localize(image, sigma=1.3, backend="cpu"),
    lambda image: detect_spots(image, sigma=1.3, backend="cpu"),
    lambda image: fit_at(image, [[4, 6, 6]], backend="cpu"),
])  # fmt: skip
def test_what_is_smaller_than_promised_is_not_fitted(run):
    with pytest.raises(ValueError, match="of the image should have the shape"):
        run(Broken())


def test_a_short_first_chunk_does_not_renumber_the_frames():
    """Dask believes what it is given as a function's result."""
    whole = da.from_array(image(8), chunks=(4, 5, 6))
    short = whole.map_blocks(lambda block: block[:3], dtype=np.uint16, chunks=whole.chunks)
    for block_bytes in (1, 1 << 20):
        with pytest.raises(ValueError, match="of the image should have the shape"):
            read_all(FrameReader(short), block_bytes=block_bytes)


def test_a_lazy_frame_and_a_lazy_map_keep_their_promise():
    frame = da.zeros((12, 12), chunks=12).map_blocks(lambda b: b[:5], dtype=float, chunks=(12, 12))
    with pytest.raises(ValueError, match=r"frame 0 of the image should have the shape"):
        FrameReader(frame).read(np.array([0]))
    with pytest.raises(ValueError, match=r"the mask promised the shape \(12, 12\), but came as"):
        PerPixel(frame, (3, 12, 12), "the mask")


def test_frames_of_another_kind_than_promised_are_named():
    with pytest.raises(TypeError, match="frame 3 of the image must hold integers or real"):
        FrameReader(Complex()).read(np.array([3, 4]))


class Complex(Broken):
    def __getitem__(self, index):
        return np.zeros((len(range(6)[index]), 12, 12), complex)


def test_unknown_shapes_are_named():
    frames = da.from_array(image(8), chunks=(4, 5, 6))
    unknown = frames[frames[:, 0, 0] > 3]
    with pytest.raises(ValueError, match=r"a shape that Dask does not know.*compute_chunk_sizes"):
        FrameReader(unknown)
    with pytest.raises(ValueError, match="weights has a shape that Dask does not know"):
        PerPixel(unknown, (8, 5, 6), "weights")
    assert FrameReader(unknown.compute_chunk_sizes()).count == 7


def masked(lazy=False):
    pixels = np.ma.masked_greater(image(3), 80)
    return da.from_array(pixels, chunks=(1, 5, 6)) if lazy else pixels


@pytest.mark.parametrize("lazy", [False, True])
def test_masked_values_are_not_overlooked(lazy):
    with pytest.raises(ValueError, match=r"masked.*pass the array's .data.*bad_pixels=numpy.ma.ge"):
        read_all(FrameReader(masked(lazy)))
    assert len(read_all(FrameReader(np.ma.masked_array(image(3))))) == 3


def test_masked_spots_and_maps_are_not_overlooked():
    spots = np.ma.masked_less(np.arange(81.0).reshape(1, 9, 9), 4)
    with pytest.raises(ValueError, match="masked"):
        fit_spots(spots)
    with pytest.raises(ValueError, match="masked"):
        fit_spots(spots.data, weights=spots[0], estimator="wlse")
    assert len(fit_spots(spots.data, bad_pixels=np.ma.getmaskarray(spots))) == 1


def test_an_image_of_no_frames_has_no_spots():
    nothing = np.zeros((0, 20, 20), np.uint16)
    fits = fit_at(nothing, np.empty((0, 3)))
    assert len(fits) == len(localize(nothing)) == len(detect_spots(nothing)) == 0
    assert fits.columns.keys() == localize(nothing).columns.keys() - {"score"}
    with pytest.warns(UserWarning, match="such as 0, where it has none"):
        outside = fit_at(nothing, [[0, 5, 5]])
    assert not outside.valid.any()
    assert len(fit_at(np.zeros((2, 20, 20)), [])) == 0
    with pytest.raises(ValueError, match=r"centers must have the shape \(n, 3\)"):
        fit_at(np.zeros((2, 20, 20)), [[]])


def test_the_outer_edges_of_an_image_are_inside():
    places = np.array([[-0.5, 3.5], [2.5, -0.5], [-0.51, 0], [0, 3.51], [np.nan, 0]])
    assert inside(places, (3, 4)).tolist() == [True, True, False, False, False]
    assert inside(places[0], (3, 4))


VOLUME = (4, 5, 6)
VOLUME_KINDS = {
    "numpy": lambda a: a,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "dask": lambda a: da.from_array(a, chunks=(*(2,) * (a.ndim - 3), 3, 2, 6)),
    "zarr": lambda a: zarr.array(a, chunks=(*(2,) * (a.ndim - 3), 3, 5, 6)),
    "list": lambda a: a.tolist(),
}


def volumes(*leading):
    return np.arange(int(np.prod(leading)) * 120, dtype=np.uint16).reshape(*leading, *VOLUME)


def parts_of_volumes():
    """Parts of a volume, by any begin and end along each axis."""
    ends = [
        st.tuples(st.integers(0, size - 1), st.integers(1, size)).filter(lambda e: e[0] < e[1])
        for size in VOLUME
    ]
    return st.tuples(*ends).map(lambda each: tuple(slice(*one) for one in each))


@pytest.mark.parametrize("kind", VOLUME_KINDS)
@pytest.mark.parametrize("leading", [(), (1,), (7,), (3, 5)])
def test_volumes_are_frames_of_three_axes(kind, leading):
    original = volumes(*leading)
    reader = FrameReader(VOLUME_KINDS[kind](original), spatial=3)
    assert (reader.leading, reader.frame_shape) == (leading, VOLUME)
    for block_bytes in (1, 500, 1 << 20):
        read = read_all(reader, block_bytes=block_bytes)
        assert np.array_equal(read, original.reshape(-1, *VOLUME))
        assert read.flags.c_contiguous
    if leading:
        chosen = reader.select((slice(None, None, 2),) * len(leading))
        assert np.array_equal(reader.read(chosen), original.reshape(-1, *VOLUME)[chosen])


@pytest.mark.parametrize("kind", VOLUME_KINDS)
@given(part=parts_of_volumes(), number=st.integers(0, 5))
def test_parts_of_volumes_are_read(kind, part, number):
    original = volumes(2, 3)
    reader = FrameReader(VOLUME_KINDS[kind](original), spatial=3)
    frame = original.reshape(-1, *VOLUME)[number]
    assert np.array_equal(reader.read_part(np.array([number]), part)[0], frame[part])
    room = np.empty(frame[part].shape, original.dtype)
    reader.read_part_into(room, number, part)
    assert np.array_equal(room, frame[part])
    places = np.array([[0, 0, 0], [3, 4, 5], [one.start for one in part]])
    points = reader.read_points(number, places)
    assert [point.shape for point in points] == [(1, 1, 1, 1)] * 3
    assert np.array_equal(np.ravel(points), frame[tuple(places.T)])


@pytest.mark.parametrize("name", ["v.npy", "v.zarr", "v.tif", "packed.tif"])
def test_files_of_volumes(name, tmp_path):
    original, path = volumes(6), tmp_path / name
    if name.endswith("npy"):
        np.save(path, original)
    elif name.endswith("zarr"):
        zarr.create_array(path, data=original, chunks=(2, 3, 5, 6))
    else:
        tifffile = pytest.importorskip("tifffile")
        packed = "zlib" if "packed" in name else None
        tifffile.imwrite(path, original, compression=packed, photometric="minisblack")
    reader = FrameReader(path, spatial=3)
    assert (reader.count, reader.frame_shape) == (6, VOLUME)
    assert np.array_equal(read_all(reader, block_bytes=500), original)
    part = slice(1, 4), slice(0, 5), slice(0, 6)
    assert np.array_equal(reader.read_part(np.array([2, 4]), part), original[[2, 4]][:, 1:4])
    assert np.array_equal(FrameReader(path).read(np.arange(4)), original[0])


def test_large_volumes_are_cut_along_z(monkeypatch, tmp_path):
    monkeypatch.setattr("napari_spotfit.images.frames.LARGE_FRAME", 100)
    monkeypatch.setattr("napari_spotfit.images.frames.TILE", 125)
    reader = FrameReader(volumes(2), spatial=3)
    assert reader.in_tiles
    assert reader.tiles() == [(0, 2), (2, 4)]
    lazy = FrameReader(da.from_array(volumes(2), chunks=(1, 3, 5, 6)), spatial=3)
    assert lazy.tiles() == [(0, 3), (3, 4)]
    assert [edges.tolist() for edges in lazy.chunk_edges()] == [[0, 3, 4], [0, 5], [0, 6]]
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "v.tif", volumes(2), compression="zlib", photometric="minisblack")
    packed = FrameReader(tmp_path / "v.tif", spatial=3)
    assert packed.in_tiles  # its planes are read one by one
    assert not FrameReader(tmp_path / "v.tif").in_tiles


def test_shapes_that_are_no_volumes():
    with pytest.raises(ValueError, match=r"must have axes \(…, z, y, x\); got shape \(5, 6\)"):
        FrameReader(image(), spatial=3)
    with pytest.raises(ValueError, match="no pixels"):
        FrameReader(np.zeros((2, 0, 5, 6)), spatial=3)
    broken = da.from_array(volumes(3), chunks=(1, *VOLUME)).map_blocks(
        lambda block: block[:, :2], meta=volumes(1)[:0]
    )
    with pytest.raises(
        ValueError, match=r"frame 1 of the image should have the shape \(1, 4, 5, 6"
    ):
        FrameReader(broken, spatial=3).read(np.array([1]))
    whole = slice(0, 4), slice(0, 5), slice(0, 6)
    with pytest.raises(ValueError, match="planes 0 to 3 of frame 1"):
        FrameReader(broken, spatial=3).read_part(np.array([1]), whole)


@pytest.mark.parametrize("shape", [VOLUME, (3, *VOLUME)])
def test_values_of_the_pixels_of_volumes(shape):
    values = np.arange(np.prod(shape)).reshape(shape) % 7 > 2
    known = PerPixel(values, (3, *VOLUME), "mask", "where to search", 3)
    assert known.shared == (shape == VOLUME)
    expected = np.broadcast_to(values, (3, *VOLUME))[1:3]
    assert np.array_equal(np.broadcast_to(known.read(np.array([1, 2])), (2, *VOLUME)), expected)
    shapes = r"must have the shape \(5, 6\) or \(4, 5, 6\) or \(3, 4, 5, 6\)"
    with pytest.raises(ValueError, match=shapes):
        PerPixel(values[..., :5], (3, *VOLUME), "mask", "where to search", 3)
    plane = values.reshape(-1, 5, 6)[0]
    of_all = PerPixel(plane, (3, *VOLUME), "mask", "where to search", 3).read(np.array([1, 2]))
    assert np.array_equal(
        np.broadcast_to(of_all, (2, *VOLUME)), np.broadcast_to(plane, (2, *VOLUME))
    )
