"""Files of every format, and damage to them: flipped, cut, moved and foreign bytes."""

from __future__ import annotations

import io
import shutil
import warnings
import zipfile
from pathlib import Path

import image_kinds
import numpy as np
import tifffile
from exchange_cases import localised
from numcodecs import GZip
from scipy.io import savemat

from napari_spotfit import load_fits, load_settings, open_image, save_settings, simulate_movie
from napari_spotfit.files.exchange.registry import EXCHANGE

#: Endings of images.
IMAGE_ENDINGS = (".tif", ".npy", ".raw", ".dax", ".nd2", ".zarr")
#: Number of bytes at both ends of a file with most of the structure.
_HEADER, _FOOTER = 600, 200


def damaged(content: bytes, rng: np.random.Generator, others: list[bytes]) -> bytes:
    """Return content with some bytes changed, lost, moved, cut off, or from another file."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        size = max(len(changed), 1)
        ends = (
            int(rng.integers(min(_HEADER, size))),
            size - 1 - int(rng.integers(min(_FOOTER, size))),
        )
        place = (int(rng.integers(size)), *ends)[rng.integers(3)]
        length = int(rng.integers(1, 40))
        how = rng.integers(8)
        if how == 0:
            changed[place : place + 1] = bytes([int(rng.integers(256))])
        elif how == 1 and len(changed) > place:
            changed[place] ^= 1 << int(rng.integers(8))
        elif how == 2:
            del changed[place : place + length]
        elif how == 3:
            changed[place:place] = rng.bytes(length)
        elif how == 4:
            changed[place : place + 4] = b"\xff\xff\xff\x7f"[: int(rng.integers(1, 5))]
        elif how == 5:
            del changed[max(place, 1) :]
        elif how == 6:
            first, second = sorted(int(one) for one in rng.integers(0, size, 2))
            length = min(length, second - first)
            parts = changed[first : first + length], changed[second : second + length]
            changed[second : second + length], changed[first : first + length] = parts
        else:
            other = others[rng.integers(len(others))]
            begin = int(rng.integers(len(other)))
            changed[place : place + length] = other[begin : begin + length]
    return bytes(changed or b"x")


def _saved(suffix):
    def write(path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            localised(7).save(path, pixel_size=100)

    return f"a{suffix}", write


def _mat(path):
    columns = {n: np.arange(1.0, 8)[:, None] for n in ("frame", "xnm", "ynm", "phot", "PSFxnm")}
    info = {"cam_pixelsize_um": [0.1, 0.12], "Width": 64.0, "Height": 48.0, "numberOfFrames": 9.0}
    saved = {"loc": columns, "file": {"info": info}}
    savemat(path, {"saveloc": saved}, do_compression=path.stem == "packed")


def _mat_hdf5(path):
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for name in ("frame", "xnm", "ynm", "phot", "PSFxnm"):
            file[f"saveloc/loc/{name}"] = np.arange(1.0, 8)[None]
        file["saveloc/file/info/cam_pixelsize_um"] = np.array([[0.1], [0.12]])
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: PCWIN64, HDF5 schema 1.00 .".ljust(124))


#: Writers of tables by file name.
TABLES = {
    **dict(
        map(_saved, [*(one.suffix for one in EXCHANGE.values()), ".spots.csv", ".spots.parquet"])
    ),
    "plain.csv": lambda path: path.write_text("x [nm],y [nm],cell\n150,250,a\n3e2,4e2,b\n"),
    "packed.mat": _mat,
    "plain.mat": _mat,
    "seven_three.mat": _mat_hdf5,
    "a.toml": lambda path: save_settings(localised(1).settings, path),
}


def _movie(write):
    """Return a writer of a movie."""

    def written(path):
        write(path, simulate_movie(6, shape=(24, 20), spots_per_frame=2, seed=1)[0])

    return written


#: Writers of images by file name.
IMAGES = {
    name: _movie(write)
    for name, write in {
        **image_kinds.KINDS,
        "lzw.tif": lambda p, m: tifffile.imwrite(p, m, compression="lzw", predictor=True),
        "tiles.tif": lambda p, m: tifffile.imwrite(p, m, tile=(16, 16), compression="zstd"),
        "gzip.zarr": lambda p, m: image_kinds.zarred(
            p, m, chunks=(2, 24, 20), zarr_format=2, compressors=GZip()
        ),
    }.items()
}


class Damage:
    """Intact files of every kind in a folder, and damaged ones.

    Parameters
    ----------
    folder : path
        Where they are written.
    writers : mapping
        Writes a file or folder of each name.
    """

    def __init__(self, folder: Path, writers: dict) -> None:
        self._folder = folder / "damaged"
        self.names = list(writers)
        #: The intact files.
        self.whole: list[Path] = []
        self._contents: dict[str, dict[str, bytes]] = {}
        for number, (name, write) in enumerate(writers.items()):
            place = folder / "whole" / str(number)
            place.mkdir(parents=True)
            write(place / name)
            self.whole.append(place / name)
            files = sorted(one for one in place.rglob("*") if one.is_file())
            self._contents[name] = {str(one.relative_to(place)): one.read_bytes() for one in files}
        self._others = [one for files in self._contents.values() for one in files.values()]

    def path(self, seed: int) -> Path:
        """Return a damaged file; the seed determines kind and damage."""
        rng = np.random.default_rng(seed)
        name = self.names[seed % len(self.names)]
        shutil.rmtree(self._folder, ignore_errors=True)
        files = self._contents[name]
        # In a folder, choose metadata files as often as data files.
        chosen = sorted(files, key=lambda one: (rng.random() < 0.5, rng.random()))[0]
        if rng.random() < 0.5:
            chosen = min(files, key=lambda one: len(files[one]))
        for one, content in files.items():
            place = self._folder / one
            place.parent.mkdir(parents=True, exist_ok=True)
            if one == chosen:
                if rng.random() < 0.03:
                    continue  # a missing file
                inside = content.startswith(b"PK") and rng.random() < 0.7
                damage = self._damaged_inside if inside else damaged
                content = damage(content, rng, self._others)
            place.write_bytes(content)
        return self._folder / name

    @staticmethod
    def _damaged_inside(content, rng, others):
        """Return an archive with damaged files in an intact container."""
        packed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
            chosen = rng.choice(old.namelist())
            for name in old.namelist():
                inner = old.read(name)
                new.writestr(name, damaged(inner, rng, others) if name == chosen else inner)
        return packed.getvalue()


#: Proper outcomes.
GOOD = "read", "refused"


def outcome(path: Path, read) -> str:
    """Return a proper outcome, or what is wrong with the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except (ImportError, FileNotFoundError):
        return "refused"
    except ValueError as error:
        return "refused" if path.name in str(error) else f"does not name the file: {error!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def read_table(path: Path) -> None:
    """Read a table, or settings."""
    load_settings(path) if path.suffix == ".toml" else load_fits(path, pixel_size=100)


def read_image(path: Path) -> None:
    """Read an image: its first frames one by one, and all at once if they are few."""
    image = open_image(path)
    leading = image.shape[:-2]
    if np.prod(leading, dtype=float) <= 100:
        image[...]
    else:
        image[tuple(0 for _ in leading)]


#: Writers, and the matching readers.
KINDS = {"tables": (TABLES, read_table), "images": (IMAGES, read_image)}
