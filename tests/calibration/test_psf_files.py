"""Measured PSFs of other programs read back to the PSF that they were made of."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from real_files import FOLDER

from napari_spotfit import load_calibration
from napari_spotfit.calibration.files import _TO_COEFFICIENTS, coefficients_of, from_spline
from napari_spotfit.files.table import UnreadableFileError
from napari_spotfit.models.lattice import spline_coefficients

h5py = pytest.importorskip("h5py")
FILES = {
    "smappy_0.4.1_3dcal.h5": 1.0,
    "picasso_0.11.3_spline_calib.hdf5": 0.79,
    "smap_layout_3dcal.mat": 1.0,
}


def powers_of(values: np.ndarray) -> np.ndarray:
    """Return 64 numbers for each voxel of the spline through values."""
    own = spline_coefficients(values)
    windows = np.lib.stride_tricks.sliding_window_view(own, (4, 4, 4)).astype(float)
    for axis in range(3):
        to_powers = np.linalg.inv(_TO_COEFFICIENTS)
        windows = np.moveaxis(np.tensordot(to_powers, windows, (1, 3 + axis)), 0, 3 + axis)
    return windows


def psf_of_planes(planes=9, side=11) -> np.ndarray:
    z, y, x = np.ogrid[:planes, :side, :side]
    width = 1.3 + 0.1 * (z - planes // 2)
    return np.exp(-((y - 5.0) ** 2) / width**2 - (x - 5.2) ** 2 / 3) / 10


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_program_is_the_psf_it_was_made_of(name):
    path = FOLDER / "3d" / "peers" / name
    if not path.exists():
        pytest.skip(f"needs the file {path}")
    truth = np.load(path.with_name("truth_psf.npz"))
    psf = load_calibration(path)
    assert psf.voxels == pytest.approx(truth["psf"], abs=1e-6 * float(truth["psf"].max()))
    assert (psf.dz, psf.plane, psf.y, psf.x) == (50, 12, 7, 7)
    assert psf.range == pytest.approx((-600 * FILES[name], 600 * FILES[name]))


def test_a_spline_of_storm_analysis_is_read():
    path = FOLDER / "3d" / "storm-analysis" / "test_spliner_psf.spline"
    if not path.exists():
        pytest.skip(f"needs the file {path}")
    psf = load_calibration(path)
    assert psf.range == pytest.approx((-750, 750))
    assert psf.pixel_size == pytest.approx(100)
    assert psf.voxels.sum(axis=(1, 2)).max() == pytest.approx(1)


def test_what_voxels_agree_on_are_the_coefficients():
    values = psf_of_planes()
    assert coefficients_of(powers_of(values)) == pytest.approx(spline_coefficients(values))


@pytest.mark.parametrize("order", [(0, 1, 2, 4, 3, 5), (1, 0, 2, 3, 4, 5), (0, 1, 2, 5, 4, 3)])
def test_a_table_whose_voxels_disagree_is_refused(order):
    with pytest.raises(UnreadableFileError, match="disagree"):
        coefficients_of(powers_of(psf_of_planes(11)).transpose(order))


def test_smap_of_version_7_3_has_its_axes_the_other_way_round(tmp_path):
    values = psf_of_planes()
    # Planes, rows, columns and powers to rows, columns, planes and the index.
    table = powers_of(values).transpose(1, 2, 0, 3, 5, 4).reshape(10, 10, 8, 64)
    path = tmp_path / "beads_3dcal.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["SXY/cspline/coeff"] = table.T
        for name, value in (("dz", 20.0), ("z0", 5.0), ("x0", 6.0)):
            file[f"SXY/cspline/{name}"] = np.array([[value]])
    psf = load_calibration(path)
    assert psf.voxels == pytest.approx(values, abs=1e-7)
    assert (psf.dz, psf.plane, psf.y) == (20, 4, 5)


def test_uipsf_is_read_by_its_voxels(tmp_path):
    values = psf_of_planes()
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["params"] = '{"pixel_size": {"x": 0.1, "y": 0.1, "z": 0.05}}'
        file["res/I_model"] = values
    psf = load_calibration(path)
    assert (psf.dz, psf.pixel_size) == (50, 100)
    expected = values - values.min()
    expected /= np.median(expected.sum(axis=(1, 2)))
    assert psf.voxels == pytest.approx(expected, abs=1e-6)


class Runs:
    def __reduce__(self):
        return Path.touch, (Path("touched"),)


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "psf.spline"
    path.write_bytes(pickle.dumps({"coeff": Runs(), "zmin": 0, "zmax": 1}))
    with pytest.raises(UnreadableFileError, match="more than arrays"):
        from_spline(path, None)
    assert not Path("touched").exists()


@pytest.mark.parametrize("suffix", [".mat", ".spline", ".h5"])
@pytest.mark.parametrize("content", [b"", b"nothing of the kind" * 50])
def test_what_is_no_calibration_is_named(tmp_path, suffix, content):
    path = tmp_path / f"psf{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"psf{suffix}"):
        load_calibration(path)
