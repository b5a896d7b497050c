"""Image files: every kind gives the array's fits to the bit; errors name file and frame."""

from __future__ import annotations

import pickle
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import real_files
from image_kinds import KINDS, dax, looped, mixed, ndtiffs, ome_zarr, paged, raw, zarred
from nd2_writer import write_nd2
from same_fits import assert_same

from napari_spotfit import (
    Settings,
    detect_spots,
    fit_at,
    localize,
    localize_iter,
    noise_model,
    open_image,
    simulate_movie,
)
from napari_spotfit.images.files.image_file import ImageFile, UnreadableImageError

tifffile = pytest.importorskip("tifffile")
zarr = pytest.importorskip("zarr")
pytest.importorskip("nd2")


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(24, shape=(48, 56), spots_per_frame=4, photons=3000, seed=2)[0]


@pytest.fixture(scope="module")
def fits(movie):
    return localize(movie)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gives_the_fits_of_the_array(name, movie, fits, tmp_path):
    path = tmp_path / name
    KINDS[name](path, movie)
    assert_same(localize(path), fits)
    image = open_image(str(path))
    assert image.shape == movie.shape
    assert np.array_equal(image, movie)


def test_all_functions_take_files(movie, fits, tmp_path):
    path = tmp_path / "movie.npy"
    np.save(path, movie)
    assert np.array_equal(detect_spots(path), detect_spots(movie))
    assert_same(fit_at(path, fits.points()), fit_at(movie, fits.points()))
    assert noise_model(path) == noise_model(movie)


def test_frames_that_somebody_has_stay_as_they_are(movie, tmp_path):
    """Memory is reused only when all references are gone."""
    np.save(tmp_path / "movie.npy", movie)
    image = open_image(tmp_path / "movie.npy")
    first, row = image[0:2], image[2:4][1, 3]
    place = first.ctypes.data
    np.testing.assert_array_equal(image[4:6], movie[4:6])
    np.testing.assert_array_equal(first, movie[0:2])
    np.testing.assert_array_equal(row, movie[3, 3])
    del first
    again = image[6:8]
    assert again.ctypes.data == place
    np.testing.assert_array_equal(again, movie[6:8])
    again[:] = 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(image))[6:8], movie[6:8])


def test_files_that_are_open_are_taken_as_they_are(movie, fits, tmp_path):
    KINDS["compressed.tif"](tmp_path / "m.tif", movie)
    with tifffile.TiffFile(tmp_path / "m.tif") as file:
        assert_same(localize(file), fits)
        assert not file.filehandle.closed
    ome_zarr(tmp_path / "m.zarr", movie, "0.5")
    assert_same(localize(zarr.open(tmp_path / "m.zarr", mode="r")), fits)


@pytest.mark.parametrize(
    "index",
    [3, -1, slice(1, 4, 2), (slice(None), 4), (..., 2), (3, ..., slice(3)), [2, 0], (0, 1, 2)],
)
def test_indexing_is_numpys(index, movie, tmp_path):
    stack = movie.reshape(4, 6, 48, 56)
    np.save(tmp_path / "stack.npy", stack)
    zarred(tmp_path / "stack.zarr", stack, chunks=(2, 3, 48, 56))
    for name in ("stack.npy", "stack.zarr"):
        image = open_image(tmp_path / name)
        assert np.array_equal(image[index], stack[index])


def test_more_axes(movie, tmp_path):
    stack = movie.reshape(4, 6, 48, 56)
    zarred(tmp_path / "stack.zarr", stack, chunks=(2, 3, 48, 56))
    assert_same(localize(tmp_path / "stack.zarr"), localize(stack))


def test_channels_of_nd2_are_frames_of_their_own(movie, tmp_path):
    write_nd2(tmp_path / "m.nd2", movie, channels=3)
    image = open_image(tmp_path / "m.nd2")
    assert image.dims == ("t", "c", "y", "x")
    assert np.array_equal(image, movie.reshape(8, 3, 48, 56))
    assert np.array_equal(image[2:4, 1], movie.reshape(8, 3, 48, 56)[2:4, 1])


def test_axes_of_ndtiff_are_in_order(movie, tmp_path):
    stack = movie.reshape(4, 3, 2, 48, 56)
    ndtiffs(tmp_path / "m", stack, ("z", "time", "channel"), ["red", "blue"])
    image = open_image(tmp_path / "m")
    assert image.dims == ("t", "c", "z", "y", "x")
    assert np.array_equal(image, stack.transpose(1, 2, 0, 3, 4))


def test_frames_are_read_once_and_in_order(movie, fits):
    read = []

    def frames(first, count):
        read.extend(range(first, first + count))
        return movie[first : first + count]

    image = ImageFile(Path("movie"), movie.shape, movie.dtype, frames)
    assert_same(localize(image, settings=fits.settings), fits)  # nothing is left to be measured
    assert read == list(range(len(movie)))


def test_axes_have_names(movie, tmp_path):
    path = tmp_path / "stack.ome.tif"
    tifffile.imwrite(path, movie, metadata={"axes": "ZYX"})
    assert open_image(path).dims == ("z", "y", "x")
    with pytest.warns(UserWarning, match="each plane along axis z"):
        localize(path)


def cut(path, movie, size, **rest):
    tifffile.imwrite(path, movie, **rest)
    path.write_bytes(path.read_bytes()[:size])


def cut_pages(path, movie):
    paged(path, movie)
    with tifffile.TiffFile(path) as file:
        last = file.pages[9].dataoffsets[0]
    path.write_bytes(path.read_bytes()[: last + 100])


def bad_page(path, movie):
    paged(path, movie)
    with tifffile.TiffFile(path) as file:
        offset = file.pages[7].tags["StripOffsets"].valueoffset
    data = bytearray(path.read_bytes())
    data[offset : offset + 4] = struct.pack("<I", len(data) + 100)
    path.write_bytes(data)


def bad_zarr(path, movie):
    zarred(path, movie, chunks=(5, 48, 56))
    (path / "c" / "2" / "0" / "0").write_bytes(b"nothing")


def short_npy(path, movie):
    np.save(path, movie)
    path.write_bytes(path.read_bytes()[:-6000])


def short_nd2(path, movie):
    write_nd2(path, movie)
    path.write_bytes(path.read_bytes()[:90_000])


def short_ndtiff(path, movie):
    ndtiffs(path, movie)
    pixels = next(path.glob("*.tif"))
    pixels.write_bytes(pixels.read_bytes()[:60_000])


def ndtiff_without_index(path, movie):
    ndtiffs(path, movie)
    index = path / "NDTiff.index"
    index.write_bytes(index.read_bytes()[:100])


def ndtiff_of_another_folder(path, movie):
    ndtiffs(path, movie)
    index = path / "NDTiff.index"
    index.write_bytes(index.read_bytes().replace(b"NDTiffStack.tif", b"../../x/abc.tif"))


def lonely(path, movie):
    path.write_bytes(movie.tobytes())


def raw_without_size(path, movie):
    lonely(path, movie)
    path.with_suffix(".yaml").write_text("Frames: 24\nByte Order: <\n")


def raw_of_sizes(path, frames, height):
    lonely(path, np.zeros((2, 4, 5), "u2"))
    path.with_suffix(".yaml").write_text(
        f"Frames: {frames}\nHeight: {height}\nWidth: 5\nByte Order: <\nData Type: uint16\n"
    )


DAMAGED = {
    "cut.tif": (lambda p, m: cut(p, m, 60_000), "cut off.*24 frames.*ends within frame 11"),
    "cut-pages.tif": (cut_pages, "frame 9 is damaged or missing: failed to read 5376 bytes"),
    "compressed.tif": (
        lambda p, m: cut(p, m, 50_000, compression="zlib"),
        "frame 21 is damaged or missing: ",
    ),
    "mixed.tif": (mixed, r"it has 10 images \(20×56 px of uint16, .*22×56 px of uint16, …\)"),
    "no-page.tif": (lambda p, m: p.write_bytes(b"II*\0" + b"\7" * 9999), "it has no image"),
    "page.tif": (bad_page, "frame 7 is damaged or missing"),
    "empty.tif": (lambda p, m: p.touch(), "it is empty"),
    "foreign.tif": (lambda p, m: p.write_bytes(b"GIF89a" * 99), "not a TIFF file"),
    "colours.tif": (
        lambda p, m: tifffile.imwrite(p, np.zeros((40, 40, 3), "u1"), photometric="rgb"),
        "Colours are no frames",
    ),
    "bad.zarr": (bad_zarr, "frame 10 is damaged or missing"),
    "empty.zarr": (lambda p, m: zarr.create_group(p), "has 0 arrays"),
    "folder": (lambda p, m: p.mkdir(), "neither Zarr nor NDTiff"),
    "letters.tif": (lambda p, m: p.write_bytes(b"xx"), "it is damaged, or not a TIFF file$"),
    "short.nd2": (short_nd2, "it is damaged, or not an ND2 file"),
    "foreign.nd2": (lambda p, m: p.write_bytes(b"GIF89a" * 99), "or not an ND2 file$"),
    "empty.nd2": (lambda p, m: p.touch(), "it is empty"),
    "short_ndtiff": (short_ndtiff, "frame [0-9]+ is damaged or missing: .*ends before it does"),
    "ndtiff_index": (ndtiff_without_index, "“NDTiff.index” is damaged"),
    "outside_ndtiff": (ndtiff_of_another_folder, "frame 0 .*is no name of a file in this folder"),
    "short.npy": (short_npy, "ends within frame 22"),
    "empty.npy": (lambda p, m: p.touch(), "no file of numpy.save"),
    "columns.npy": (lambda p, m: np.save(p, np.asfortranarray(m)), "Fortran order"),
    "none.npy": (lambda p, m: np.save(p, m[:0]), r"shape is \(0, 48, 56\)"),
    "rows.npy": (lambda p, m: np.save(p, m[:, :0]), r"shape is \(24, 0, 56\)"),
    "line.npy": (lambda p, m: np.save(p, m[0, 0]), r"shape is \(56,\)"),
    "frames.raw": (lambda p, m: raw_of_sizes(p, -2, 4), r"shape is \(-2, 4, 5\)"),
    "height.raw": (lambda p, m: raw_of_sizes(p, 2, -4), r"shape is \(2, -4, 5\)"),
    "lonely.dax": (lonely, "“lonely.inf”, which gives its size, is not beside it"),
    "lonely.raw": (lonely, "“lonely.yaml”, which gives its size, is not beside it"),
    "size.raw": (raw_without_size, "'Height' is missing"),
    "movie.avi": (lonely, "its name must end in .tif"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_and_foreign_files_are_named(name, movie, tmp_path):
    make, words = DAMAGED[name]
    make(tmp_path / name, movie)
    with pytest.raises(UnreadableImageError, match=f"“{name}” cannot be read: .*{words}"):
        localize(tmp_path / name, sigma=1.3)


CUT = {
    "plain.tif": tifffile.imwrite,
    "imagej.tif": KINDS["imagej.tif"],
    "movie.ome.tif": KINDS["movie.ome.tif"],
    "compressed.tif": KINDS["compressed.tif"],
    "pages.tif": paged,
    "looped.tif": looped,
    "movie.npy": np.save,
    "movie.raw": raw,
    "movie.dax": dax,
}


@pytest.mark.parametrize("name", CUT)
def test_frames_before_a_cut_are_kept(name, movie, tmp_path):
    path = tmp_path / name
    CUT[name](path, movie)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert_same(
        localize(path, sigma=1.3, roi_size=9, frames=slice(10)),
        localize(movie[:10], sigma=1.3, roi_size=9, noise=noise_model(path)),
    )
    found = []
    with pytest.raises(
        UnreadableImageError, match=r"frame 1[4-6] is damaged or missing: "
    ) as message:
        found.extend(localize_iter(path, sigma=1.3))
    assert f"“{name}” cannot be read" in str(message.value)
    assert set(np.concatenate([part.frame for part in found])) >= set(range(14))


@pytest.mark.skipif(find_spec("imagecodecs") is not None, reason="imagecodecs is installed")
def test_a_compression_that_needs_imagecodecs(movie, tmp_path):
    path = tmp_path / "lzw.tif"
    KINDS["compressed.tif"](path, movie)
    with tifffile.TiffFile(path) as file:
        places = [page.tags["Compression"].valueoffset for page in file.pages]
    data = bytearray(path.read_bytes())
    for place in places:
        data[place : place + 2] = struct.pack("<H", 5)
    path.write_bytes(data)
    message = r'“lzw.tif” is compressed with LZW, .* pip install "napari-spotfit\[images\]"'
    with pytest.raises(ImportError, match=message):
        open_image(path)


@pytest.mark.parametrize("name", ["movie.raw", "movie.dax"])
def test_frames_that_the_file_beside_does_not_know(name, movie, tmp_path):
    path = tmp_path / name
    KINDS["movie.raw" if name == "movie.raw" else "little.dax"](path, movie)
    with path.open("ab") as file:
        file.write(movie[0].tobytes())
    with pytest.warns(UserWarning, match=f"“{name}” has 25 frames, but “movie.*” says 24"):
        assert len(open_image(path)) == 24


def test_a_file_that_is_not_there():
    with pytest.raises(FileNotFoundError, match=r"nothing\.tif"):
        localize("nothing.tif")


def test_a_file_that_shrinks_while_it_is_read(movie, tmp_path):
    path = tmp_path / "movie.npy"
    np.save(path, movie)
    image = open_image(path)
    path.write_bytes(path.read_bytes()[: movie[:5].nbytes + 1000])
    with pytest.raises(UnreadableImageError, match=r"frame 5 .*it has become shorter"):
        image[2:9]


def test_nd2_that_shrinks_gives_no_zeros(movie, tmp_path):
    path = tmp_path / "movie.nd2"
    write_nd2(path, movie)
    image = open_image(path)
    path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(UnreadableImageError, match=r"frame 2 .*has become shorter"):
        image[2:9]


def test_a_frame_of_ndtiff_that_was_never_taken(movie, tmp_path):
    stack = movie.reshape(12, 2, 48, 56)
    ndtiffs(tmp_path / "m", stack, ("time", "position"), count=-1)
    image = open_image(tmp_path / "m")
    stack = stack.transpose(1, 0, 2, 3)
    assert image.dims == ("p", "t", "y", "x")
    assert np.array_equal(image[0], stack[0])
    with pytest.raises(UnreadableImageError, match=r"frame 23 .*never taken"):
        localize(image, sigma=1.3)


def test_a_real_dax(machine, dax):
    fits = localize(real_files.FOLDER / real_files.REAL_FILES["dax"][0], sigma=1.0, backend=machine)
    assert_same(fits, localize(dax[0], sigma=1.0, backend=machine))


def test_a_real_raw(machine, paint):
    chosen = Settings(sigma=0.87, backend=machine)
    fits = localize(real_files.FOLDER / real_files.REAL_FILES["paint"][0], settings=chosen)
    assert_same(fits, localize(paint[0], settings=chosen))


def test_a_real_tiff(machine, stuck_particles):
    with pytest.warns(UserWarning, match="each plane along axis z"):
        fits = localize(
            real_files.FOLDER / real_files.REAL_FILES["stuck_particles"][0], backend=machine
        )
    # Its axis is called z, so that each spot has the number of its plane, too.
    expected = localize(stuck_particles, backend=machine)
    columns = {**expected.columns, "plane": expected.frame}
    assert fits.columns.keys() == columns.keys()
    for name, values in columns.items():
        np.testing.assert_array_equal(fits.columns[name], values, err_msg=name)
