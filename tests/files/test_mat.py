"""SMAP's MATLAB files, and HDF5 files with external or missing data."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import real_files
from scipy.io import savemat

from napari_spotfit import load_fits
from napari_spotfit.files.formats import read
from napari_spotfit.files.table import UnreadableFileError

#: Two spots at x = 1.5, 4 and y = 2.5, 3, of pixels 100 nm wide and 120 nm high.
LOCS = {
    "frame": [1.0, 2.0], "xnm": [250.0, 500.0], "ynm": [420.0, 480.0], "znm": [-50.0, 30.0],
    "phot": [900.0, 800.0], "bg": [7.0, 8.0], "locprecnm": [11.0, 12.0], "xnmerr": [10.0, 12.0],
    "ynmerr": [12.0, 24.0], "locprecznm": [40.0, 41.0], "PSFxnm": [130.0, 140.0],
    "PSFynm": [144.0, 156.0], "filenumber": [1.0, 1.0],
}  # fmt: skip
INFO = {"cam_pixelsize_um": [0.1, 0.12], "Width": 64.0, "Height": 48.0, "numberOfFrames": 9.0}


def version_7(path, locs=LOCS, info=INFO):
    columns = {name: np.array(values)[:, None] for name, values in locs.items()}
    saved = {"loc": columns, "file": {"info": info, "name": "a.tif"}, "history": "x"}
    savemat(path, {"saveloc": saved}, do_compression=True)


def version_73(path, locs=LOCS, info=INFO):
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in locs.items():
            file[f"saveloc/loc/{name}"] = np.array(values, "f4")[None]
        for name, value in info.items():
            file[f"saveloc/file/info/{name}"] = np.atleast_2d(value).T
        file["saveloc/file/info/comment"] = np.zeros((5, 1), "u2")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: PCWIN64, HDF5 schema 1.00 .".ljust(124))


WRITERS = pytest.mark.parametrize("write", [version_7, version_73])


@WRITERS
def test_smaps_saved_tables(write, tmp_path):
    path = tmp_path / "a_sml.mat"
    write(path)
    found = load_fits(path)
    known = {
        "frame": [0, 1], "x": [1.5, 4], "y": [2.5, 3], "z": [-50, 30], "photons": [900, 800],
        "background": [7, 8], "x_stderr": [0.1, 0.12], "y_stderr": [0.1, 0.2],
        "z_stderr": [40, 41], "sigma": [1.3, 1.4], "filenumber": [1, 1],
    }  # fmt: skip
    for name, values in known.items():
        if name == "sigma":
            np.testing.assert_allclose(found.sigma_x, values, rtol=1e-6)
            np.testing.assert_allclose(found.sigma_y, [1.2, 1.3], rtol=1e-6)
        else:
            np.testing.assert_allclose(found.columns[name], values, rtol=1e-6, err_msg=name)
    assert read(path).about.image == {"shape": [9, 48, 64]}
    assert load_fits(path, pixel_size=50).x.tolist() == [4, 9]


@WRITERS
def test_smaps_saved_tables_that_say_less(write, tmp_path):
    path = tmp_path / "a_sml.mat"
    few = {name: LOCS[name] for name in ("frame", "xnm", "ynm", "locprecnm")}
    write(path, few, {})
    with pytest.raises(ValueError, match=r"a_sml.mat.*size of a pixel is unknown"):
        load_fits(path)
    assert load_fits(path, pixel_size=100).x_stderr.tolist() == [np.float32(0.11), np.float32(0.12)]
    write(path, few | {"xnm": [1.0, 2.0, 3.0]}, {})
    with pytest.raises(UnreadableFileError, match="columns have different lengths"):
        load_fits(path, pixel_size=100)
    write(path, few, INFO | {"roi": [10.0, 20.0, 64.0, 48.0]})
    with pytest.warns(UserWarning, match="the movie begins at x = 10, y = 20"):
        load_fits(path)


@WRITERS
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_smaps_saved_tables_that_were_cut_off(write, share, tmp_path):
    path = tmp_path / "a_sml.mat"
    write(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(UnreadableFileError, match=r"“a_sml.mat” cannot be opened as SMAP"):
        load_fits(path)


def test_other_files_of_matlab(tmp_path):
    savemat(tmp_path / "a.mat", {"x": np.arange(3)})
    with pytest.raises(UnreadableFileError, match=r"no “saveloc.loc” of SMAP's"):
        load_fits(tmp_path / "a.mat")


@pytest.mark.real_files
def test_a_real_file_of_smap():
    path = real_files.FOLDER / "formats" / "smap_dstorm_data.mat"
    if not path.exists():
        pytest.skip(f"needs the file {path.name}")
    found = load_fits(path)
    assert len(found) == 4884
    np.testing.assert_allclose(found.x, found.xpix - 1, atol=1e-3)
    np.testing.assert_allclose(found.y, found.ypix - 1, atol=1e-3)


def outside(path, kind):
    """Write a Picasso file whose rows are in another file, or missing."""
    rows = np.zeros(3, [("frame", "u4"), ("x", "f4"), ("y", "f4")])
    other = path.with_name("other.h5")
    with h5py.File(other, "w") as file:
        file["locs"] = rows
    with h5py.File(path, "w") as file:
        if kind == "link":
            file["locs"] = h5py.ExternalLink(other.name, "locs")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3,), rows.dtype)
            layout[:] = h5py.VirtualSource(other.name, "locs", (3,), rows.dtype)
            file.create_virtual_dataset("locs", layout)
        elif kind == "external":
            external = [(str(other), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("locs", (3,), rows.dtype, external=external)
        else:
            file.create_dataset("locs", (10**11,), rows.dtype, chunks=(1 << 16,))


@pytest.mark.parametrize("kind", ["link", "virtual", "external", "nothing"])
def test_numbers_that_are_not_in_the_file(kind, tmp_path):
    path = tmp_path / "a_locs.hdf5"
    outside(path, kind)
    message = "promises .* bytes in a file of" if kind == "nothing" else "lies in another file"
    with pytest.raises(UnreadableFileError, match=message):
        load_fits(path)
