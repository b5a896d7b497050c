"""Load fits from files, and save fits part by part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..files.exchange.registry import lists_formats
from ..files.formats import read, write_parts
from ..files.table import FIT, SpotTable
from .spot_fits import SpotFits, on_host


@lists_formats
def load_fits(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    pixel_size: float | Sequence[float] | None = None,
) -> SpotFits:
    """Load fits from our files, or localisations from another program's.

    Parameters
    ----------
    path : str or path
        A file written by :meth:`SpotFits.save`, by napari's *File ▸ Save* or by another program;
        see docs/formats.md.
    format : str, optional
        Its format, by default recognised by the ending, or else the content:
        {formats}.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for formats in nm or µm that do not contain it.

    Returns
    -------
    SpotFits
        From our files the same fits to the bit, with their settings. From others, centres in
        pixels from the first pixel's centre, frames from 0, and unknown columns under their own
        names. Missing stop conditions are UNKNOWN, and such spots neither flagged nor good.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer version of the package or of another kind (the message
        says which), or needs the size of a pixel.
    OSError
        If the file is missing or cannot be read.
    ImportError
        If a Parquet file needs pyarrow or an HDF5 file h5py, and it is missing.

    Examples
    --------
    >>> from napari_spotfit import load_fits
    >>> load_fits("spots.txt")
    Traceback (most recent call last):
    ...
    ValueError: the name of a file of spots must end in .spots.parquet or .spots.csv, ...
    """
    return fits_of(read(path, format, pixel_size=pixel_size))


def fits_of(table: SpotTable) -> SpotFits:
    """Return the fits of a table that was read from a file."""
    about = table.about
    known = about.columns
    columns = {name: values for name, values in table.columns.items() if known[name].role == FIT}
    units = {name: known[name].unit for name in columns if known[name].unit}
    own = units if about.settings is None else {}
    return SpotFits(
        columns, about.index, about.settings, about.roi_shape, own, about.history
    )  # fmt: skip


def save_fits(
    parts: Iterable[SpotFits],
    path: str | os.PathLike[str],
    *,
    pixel_size: float | Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
) -> int:
    """Save parts of fits to one file, each part as soon as it is available.

    With :func:`~napari_spotfit.localize_iter`, only few frames and their spots are in memory,
    however long the movie is. The file is the same as that of :meth:`SpotFits.save` for all parts.

    Parameters
    ----------
    parts : iterable of SpotFits
        At least one, with equal columns; the file gets the settings of the first.
    path : str or path
        A name that ends in ``.spots.parquet`` or ``.spots.csv``, or like another program's files,
        such as ``.hdf5``, for which all spots must fit into memory at the end.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for formats with nm or µm.
    shape : sequence of int, optional
        Shape of the image, for Picasso; by default the smallest for all spots.

    Returns
    -------
    int
        Number of spots saved.

    Raises
    ------
    ValueError
        If the ending is unknown, or there are no parts.
    OSError
        If the file cannot be written. Then, and if the parts raise an error, an older file of
        that name is kept.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import load_fits, localize_iter, save_fits, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "movie.spots.csv"
    ...     count = save_fits(localize_iter(movie), path)
    ...     len(load_fits(path)) == count
    True
    """
    tables = (on_host(part).to_table() for part in parts)
    return write_parts(path, tables, pixel_size=pixel_size, shape=shape)
