"""Open files of calibrations: ours, and those of other programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..files.exchange.hdf5 import Hdf5, opened
from ..files.table import UnreadableFileError, check_format
from ..models.bounds import number
from ..models.calibration import FORMAT, FORMAT_NAME, Calibration, need_h5py
from ..untrusted import named
from . import astigmatism_files, psf_files

#: What reads the HDF5 files of other programs; each returns None of files that are not its own.
HDF5_READERS: tuple[Callable[[Hdf5, float | None], Calibration | None], ...] = (
    psf_files.from_smappy,
    psf_files.from_picasso,
    psf_files.from_uipsf,
)
#: What reads other files, by how their names end.
READERS: Mapping[str, Callable[[Path, float | None], Calibration]] = {
    ".yaml": astigmatism_files.from_yaml,
    ".yml": astigmatism_files.from_yaml,
    ".xml": astigmatism_files.from_xml,
    ".mat": psf_files.from_mat,
    ".spline": psf_files.from_spline,
}
_HDF5 = (".h5", ".hdf5")


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
        pixel_size = number("pixel_size", pixel_size, 0, above=True)
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
