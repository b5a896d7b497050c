"""Open files of calibrations: ours, and measured PSFs and lenses of other programs."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files.exchange.hdf5 import MAGIC, MATLAB_BLOCK, Hdf5, opened
from ..files.table import UnreadableFileError, check_format
from ..models.calibration import FORMAT, FORMAT_NAME, Calibration, need_h5py
from ..models.measured_psf import MeasuredPsf
from ..models.number_checks import nanometres
from ..untrusted import named
from . import astigmatism_files

_HDF5 = (".h5", ".hdf5")
Array = NDArray[np.float64]

#: From powers of a fraction of a voxel to B-spline coefficients, along one axis.
_TO_COEFFICIENTS = np.linalg.inv(
    np.array([[1, 4, 1, 0], [-3, 0, 3, 0], [3, -6, 3, 0], [-1, 3, -3, 1]]) / 6
)
#: How far voxels may differ in a coefficient, as a part of the largest one.
_AGREE = 1e-5
#: What a pickle of NumPy's arrays is made of.
_ARRAY_PARTS = {
    ("numpy", "ndarray"), ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
}  # fmt: skip


def load_calibration(
    path: str | os.PathLike[str], *, pixel_size: float | None = None
) -> Calibration:
    """Open the file of a calibration.

    Parameters
    ----------
    path : str or path
        A ``.h5`` or ``.hdf5`` that :meth:`Calibration.save` has written, or an astigmatism
        calibration of Picasso or ThunderSTORM (``.yaml``) or 3D-DAOSTORM (``.xml``); or a measured
        PSF of Picasso, SMAPpy or uiPSF (``.hdf5``, ``.h5``), SMAP (``.mat``) or storm-analysis
        (``.spline``).
    pixel_size : float, optional
        Side of a camera pixel in nm, for files whose widths are in nm.

    Returns
    -------
    Calibration
        What ``model=…`` takes.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer version or something else, or needs the size of pixels;
        the message says what.
    ImportError
        If h5py or PyYAML is missing, which the extra ``hdf5`` has.
    OSError
        If there is no such file, or it cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import load_calibration
    >>> from napari_spotfit.models.astigmatism import AstigmatismCalibration
    >>> from napari_spotfit.models.calibration import Curve
    >>> x, y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
    >>> calibration = AstigmatismCalibration(x, y, -400.0, 400.0)
    >>> with TemporaryDirectory() as folder:
    ...     calibration.save(Path(folder) / "lens.h5")
    ...     load_calibration(Path(folder) / "lens.h5") == calibration
    True
    """
    place = Path(path)
    if pixel_size is not None:
        pixel_size = nanometres("pixel_size", pixel_size)
    suffix = place.suffix.lower()
    with named(f"“{place.name}” cannot be opened", UnreadableFileError, (ValueError,)):
        if suffix in READERS:
            return READERS[suffix](place, pixel_size)
        if suffix not in _HDF5:
            known = ", ".join((*_HDF5, *READERS))
            raise UnreadableFileError(f"the name of a calibration's file ends in one of {known}")
        need_h5py()
        with opened(place) as file:
            if file.attributes.get("format") == FORMAT_NAME:
                return _own(file)
            for read in HDF5_READERS:
                if (found := read(file, pixel_size)) is not None:
                    return found
        raise UnreadableFileError("it is no calibration, or of a program that is not known here")


def _own(file: Hdf5) -> Calibration:
    """Return the calibration of a file that this package has written."""
    attributes: Any = file.attributes
    version = attributes.get("version")
    check_format(int(attributes["format_version"]), FORMAT, version)
    values = json.loads(file.array("calibration").item())
    kind = Calibration.kind_of(values)
    arrays = [item.name for item in fields(kind) if item.name not in values]  # type: ignore[arg-type]
    values |= {name: file.array(name) for name in arrays if file.find(name) is not None}
    return Calibration.from_dict(values)


def coefficients_of(table: NDArray[Any]) -> Array:
    """Return the B-spline coefficients of polynomials.

    Parameters
    ----------
    table : ndarray, shape (planes, rows, columns, 4, 4, 4)
        Coefficients of powers 0 to 3 of z, y and x within each voxel.

    Raises
    ------
    UnreadableFileError
        If neighbouring voxels do not agree.
    """
    if table.ndim != 6 or table.shape[3:] != (4, 4, 4) or not table.size:
        raise UnreadableFileError(f"it has no 64 numbers for each voxel; got {table.shape}")
    own = np.asarray(table, float)
    for axis in range(3):
        own = np.moveaxis(np.tensordot(_TO_COEFFICIENTS, own, (1, 3 + axis)), 0, 3 + axis)
    shape = tuple(size + 3 for size in own.shape[:3])
    total, squares, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for tap in np.ndindex(4, 4, 4):
        there = tuple(slice(i, i + n) for i, n in zip(tap, own.shape[:3], strict=True))
        total[there] += own[(..., *tap)]
        count[there] += 1
    mean = total / count
    for tap in np.ndindex(4, 4, 4):
        there = tuple(slice(i, i + n) for i, n in zip(tap, own.shape[:3], strict=True))
        squares[there] = np.maximum(squares[there], np.abs(own[(..., *tap)] - mean[there]))
    off = squares.max() / np.abs(mean).max()
    if not off <= _AGREE:
        raise UnreadableFileError(
            f"neighbouring voxels of its spline disagree by {100 * off:.2g} % of the peak: its "
            "axes are in another order, or it is damaged"
        )
    return mean


def from_smappy(file: Hdf5, pixel_size: float | None) -> MeasuredPsf | None:
    """Return the PSF of a file of SMAPpy."""
    attributes = file.attributes
    if attributes.get("format") != "smappy-spline-calibration":
        return None
    table = file.array("coeff")
    if table.ndim != 4 or table.shape[0] != 64:
        raise UnreadableFileError(f"its “coeff” must be (64, z, y, x); got {table.shape}")
    powers = table.reshape(4, 4, 4, *table.shape[1:]).transpose(3, 4, 5, 0, 1, 2)
    x = float(attributes["x0"])
    return MeasuredPsf(
        coefficients_of(powers), float(attributes["dz"]), float(attributes["z0"]), x, x, pixel_size
    )


def from_picasso(file: Hdf5, pixel_size: float | None) -> MeasuredPsf | None:
    """Return the PSF of a file of Picasso, whose highest value is 1."""
    if "metadata" not in file.attributes or file.find("coefficients") is None:
        return None
    about = json.loads(file.attributes["metadata"])
    if not isinstance(about, Mapping) or about.get("model") != "spline-3d":
        raise UnreadableFileError("it is no spline in three dimensions with one channel")
    planes, rows, columns = (int(one) for one in reversed(about["n_intervals"]))
    table = file.array("coefficients")
    if table.size != 64 * planes * rows * columns:
        raise UnreadableFileError(f"its “coefficients” are not of {about['n_intervals']} voxels")
    # Whatever the shape says, this is their order.
    powers = table.reshape(planes, rows, columns, 4, 4, 4)
    size = pixel_size or about.get("pixelsize")
    return MeasuredPsf(
        coefficients_of(powers) / float(about["photon_scale"]), float(about["z_step_nm"]),
        float(about["z_center"]), rows / 2, columns / 2, size and float(size),
        float(about.get("magnification_factor", 1.0)),
    )  # fmt: skip


def from_uipsf(file: Hdf5, pixel_size: float | None) -> MeasuredPsf | None:
    """Return the PSF of a file of uiPSF, by the values in its voxels."""
    place = next((one for one in ("res", "res/channel0") if file.find(f"{one}/I_model")), "")
    if not place or "params" not in file.attributes:
        return None
    size = json.loads(file.attributes["params"])["pixel_size"]
    values = file.array(f"{place}/I_model").astype(float)
    values -= values.min()
    pixel = pixel_size or 1000 * float(size["x"])
    return MeasuredPsf.from_planes(
        values / np.median(values.sum(axis=(1, 2))), 1000 * float(size["z"]),
        plane=(len(values) - 1) / 2, pixel_size=pixel,
    )  # fmt: skip


def from_mat(path: Path, pixel_size: float | None) -> MeasuredPsf:
    """Return the PSF of a ``_3dcal.mat`` of SMAP."""
    with path.open("rb") as content:
        is_hdf5 = content.read(MATLAB_BLOCK + len(MAGIC)).endswith(MAGIC)
    if is_hdf5:
        with opened(path) as file:
            found = {
                name: file.array(f"SXY/cspline/{name}") for name in ("coeff", "dz", "z0", "x0")
            }
        table = found["coeff"].T  # MATLAB's axes are the other way round there
    else:
        from scipy.io import loadmat  # here, as SciPy takes its time to import

        try:
            values = loadmat(path, simplify_cells=True)
        except (NotImplementedError, TypeError, KeyError, OSError, IndexError) as error:
            raise UnreadableFileError(f"it is damaged, or no MATLAB file: {error}") from None
        spline = values.get("SXY", values)
        spline = np.ravel(spline)[0] if isinstance(spline, np.ndarray) else spline
        found = spline.get("cspline", {})
        table = found.get("coeff")
        if isinstance(table, (list, tuple)) or (table is not None and table.dtype == object):
            table = table[0]
    if table is None or np.ndim(table) != 4 or np.shape(table)[-1] != 64:
        raise UnreadableFileError(
            "it has no “cspline.coeff” of a single channel, as SMAP writes it"
        )
    # Rows, columns and planes; the index is 16 for z, 4 for columns and 1 for rows.
    powers = table.reshape(*table.shape[:3], 4, 4, 4).transpose(2, 0, 1, 3, 5, 4)
    dz, z0, x0 = (float(np.ravel(found[name])[0]) for name in ("dz", "z0", "x0"))
    return MeasuredPsf(coefficients_of(powers), dz, z0 - 1, x0 - 1, x0 - 1, pixel_size)


class _OnlyArrays(pickle.Unpickler):
    """Reads pickles of plain values and NumPy's arrays, and nothing that runs."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAY_PARTS:
            raise UnreadableFileError(f"it has more than arrays in it: {module}.{name}")
        return super().find_class(module, name)


def from_spline(path: Path, pixel_size: float | None) -> MeasuredPsf:
    """Return the PSF of a ``.spline`` of storm-analysis."""
    try:
        with path.open("rb") as content:
            values = _OnlyArrays(content).load()
        table, low, high = values["coeff"], float(values["zmin"]), float(values["zmax"])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableFileError(f"it is no spline of storm-analysis: {error}") from None
    if not isinstance(table, np.ndarray) or table.ndim != 4 or table.shape[-1] != 64:
        raise UnreadableFileError("it is no spline in three dimensions")
    columns, rows, planes = table.shape[:3]
    powers = table.reshape(columns, rows, planes, 4, 4, 4).transpose(2, 1, 0, 5, 4, 3)
    dz = (high - low) / planes
    psf = MeasuredPsf(
        coefficients_of(powers), dz, -low / dz, rows / 2, columns / 2,
        pixel_size or 1000 * float(values["pixel_size"]),
    )  # fmt: skip
    # Its height is 1.
    light = psf.voxels.sum(axis=(1, 2)).max()
    return replace(psf, coefficients=psf.coefficients / light)


#: What reads the HDF5 files of other programs; each returns None of files that are not its own.
HDF5_READERS: tuple[Callable[[Hdf5, float | None], Calibration | None], ...] = (
    from_smappy,
    from_picasso,
    from_uipsf,
)
#: What reads other files, by how their names end.
READERS: Mapping[str, Callable[[Path, float | None], Calibration]] = {
    ".yaml": astigmatism_files.from_yaml,
    ".yml": astigmatism_files.from_yaml,
    ".xml": astigmatism_files.from_xml,
    ".mat": from_mat,
    ".spline": from_spline,
}
