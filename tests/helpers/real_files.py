"""Paths and readers of real files, which are not part of the project."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Their folder; SPOTFIT_REAL_FILES sets another.
FOLDER = Path(os.environ.get("SPOTFIT_REAL_FILES") or Path(__file__).parents[3] / "shared" / "data")

#: Files of each image.
REAL_FILES = {
    "dax": ("storm-analysis/test.dax", "storm-analysis/test_truth.csv"),
    "paint": ("picasso/testdata_1000frames.raw", "picasso/testdata_locs.hdf5"),
    "hybiss": ("spotiflow/img_hybiss_2d.tif",),
    "stuck_particles": ("trackpy/stuck.tif",),
}
#: Packages to read them, which a machine with a GPU may lack.
READERS = {"dax": "pandas", "paint": "h5py", "hybiss": "tifffile", "stuck_particles": "tifffile"}


def missing(image: str) -> list[str]:
    """Return the missing files of an image, and missing packages to read them."""
    files = [f"the file {name}" for name in REAL_FILES[image] if not (FOLDER / name).exists()]
    return files if find_spec(READERS[image]) else [*files, f"the package {READERS[image]}"]


def read_dax() -> tuple[NDArray[np.uint16], Any]:
    """Return ten frames of simulated STORM, big-endian, and their true emitters."""
    import pandas

    movie, truth = (FOLDER / name for name in REAL_FILES["dax"])
    return np.fromfile(movie, ">u2").reshape(10, 256, 256), pandas.read_csv(truth)


def read_paint() -> tuple[NDArray[np.uint16], Any]:
    """Return a DNA-PAINT movie, and another fitter's localisations in it."""
    import h5py

    movie, localisations = (FOLDER / name for name in REAL_FILES["paint"])
    with h5py.File(localisations) as file:
        rows = file["locs"][:]
    return np.fromfile(movie, "<u2").reshape(1000, 32, 32), rows


def read_tiff(image: str) -> NDArray[Any]:
    """Return real HybISS spots, or five frames of real particles."""
    import tifffile

    return np.asarray(tifffile.imread(FOLDER / REAL_FILES[image][0]))
