"""Fits that were saved, as they were."""

from __future__ import annotations

import os

from ..files.formats import read
from ..files.table import FIT, SpotTable
from .spot_fits import SpotFits


def load_fits(path: str | os.PathLike[str]) -> SpotFits:
    """Return fits from a file that :meth:`SpotFits.save` or napari's *File ▸ Save* has written.

    Parameters
    ----------
    path : str or path
        The file: ``.parquet`` or ``.csv``.

    Returns
    -------
    SpotFits
        The same fits to the bit, with the settings they were made with.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer version of the package, or something else; the message
        says what.
    OSError
        If there is no such file, or it cannot be read.
    ImportError
        If it is a Parquet file and pyarrow is missing.

    Examples
    --------
    >>> from napari_spotfit import load_fits
    >>> load_fits("spots.txt")
    Traceback (most recent call last):
    ...
    ValueError: the name of a file of spots must end in .spots.parquet or .spots.csv, ...
    """
    return fits_of(read(path))


def fits_of(table: SpotTable) -> SpotFits:
    """Return the fits of a table that was read from a file."""
    about = table.about
    known = about.columns
    columns = {name: values for name, values in table.columns.items() if known[name].role == FIT}
    return SpotFits(columns, about.index, about.settings, about.roi_shape)
