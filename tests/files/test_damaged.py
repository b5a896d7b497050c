"""Damaged and hostile files end in the documented error, which names them, and take no memory."""

from __future__ import annotations

import json
import warnings
import zipfile

import numpy as np
import pytest
import tifffile
from exchange_cases import localised

from napari_spotfit import load_fits, open_image, simulate_movie
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.files.table import UnreadableFileError
from napari_spotfit.images.files.image_file import UnreadableImageError

TABLES = [*(one.suffix for one in EXCHANGE.values()), ".spots.csv", ".spots.parquet"]


def damaged(content, rng):
    """Return a content with some bytes changed, lost, new or cut off."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        place, how = int(rng.integers(len(content))), rng.integers(4)
        if how == 0:
            content[place] = rng.integers(256)
        elif how == 1:
            del content[place : place + int(rng.integers(1, 20))]
        elif how == 2:
            content[place:place] = rng.bytes(int(rng.integers(1, 9)))
        else:
            del content[max(place, 1) :]
        content = content or bytearray(b"x")
    return bytes(content)


def error_of(call, kinds):
    """Return what an error of these kinds says; None without one. Others fail the test."""
    try:
        call()
    except kinds as error:
        return str(error)
    return None


@pytest.mark.parametrize("ending", TABLES)
@pytest.mark.parametrize("seed", range(20))
def test_damaged_tables(ending, seed, tmp_path):
    path, rng = tmp_path / f"a{ending}", np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        localised(5).save(path, pixel_size=100)
        path.write_bytes(damaged(path.read_bytes(), rng))
        told = error_of(lambda: load_fits(path, pixel_size=100), ValueError)
    assert told is None or path.name in told


def npy(path, movie):
    np.save(path, movie)


def raw(path, movie):
    path.write_bytes(movie.tobytes())
    path.with_suffix(".yaml").write_text(
        "Frames: 6\nHeight: 24\nWidth: 20\nByte Order: <\nData Type: uint16\n"
    )


IMAGES = {
    "a.tif": tifffile.imwrite,
    "b.ome.tif": lambda path, movie: tifffile.imwrite(path, movie, metadata={"axes": "TYX"}),
    "c.tif": lambda path, movie: tifffile.imwrite(path, movie, imagej=True, compression="zlib"),
    "d.npy": npy,
    "e.raw": raw,
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("seed", range(20))
def test_damaged_images(name, seed, tmp_path):
    movie = simulate_movie(6, shape=(24, 20), spots_per_frame=2, seed=1)[0]
    path, rng = tmp_path / name, np.random.default_rng(seed)
    IMAGES[name](path, movie)
    # Headers are small beside pixels: half of the files are damaged there.
    content = path.read_bytes()
    cut = len(content) if seed % 2 else min(len(content), 400)
    path.write_bytes(damaged(content[:cut], rng) + content[cut:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A damaged compression is another one, which may need another package.
        told = error_of(lambda: open_image(path)[...], (UnreadableImageError, ImportError))
    assert told is None or path.name in told


def archive(path, change):
    localised(5).save(path, pixel_size=100)
    with zipfile.ZipFile(path) as packed:
        manifest, table = json.loads(packed.read("manifest.json")), packed.read("table.bin")
    table = change(manifest, table) or table
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("manifest.json", json.dumps(manifest))
        packed.writestr("table.bin", table)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda about, table: about["files"].extend(about["files"] * 199), "names a table twice"),
        (lambda about, table: bytes(10**8), r"has 100000000 bytes instead of"),
        (lambda about, table: about["files"][0].update(rows=10**12), r"bytes instead of"),
    ],
)
def test_archives_that_promise_much(change, told, tmp_path):
    archive(tmp_path / "a.smlm", change)
    with pytest.raises(UnreadableFileError, match=told):
        load_fits(tmp_path / "a.smlm")


def test_images_that_promise_much(tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        about = {"descr": "<u2", "fortran_order": False, "shape": (10**11, 8, 8)}
        np.lib.format.write_array_header_1_0(file, about)
        file.write(bytes(1000))
    with pytest.raises(UnreadableImageError, match="promises 100000000000 frames"):
        open_image(tmp_path / "a.npy")
