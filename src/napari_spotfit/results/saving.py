"""Load fits from files, and save those that come in parts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..files.exchange.registry import lists_formats
from ..files.formats import read
from ..files.streaming import write_parts
from ..files.table import FIT, SpotTable
from .spot_fits import SpotFits


@lists_formats
def load_fits(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    pixel_size: float | Sequence[float] | None = None,
) -> SpotFits:
    """Return fits from a file of ours, or localisations from one of another program.

    Parameters
    ----------
    path : str or path
        A file that :meth:`SpotFits.save` or napari's *File ▸ Save* has written, to the bit; or one
        of another program. docs/formats.md has all about them.
    format : str, optional
        Its format, by default what its name says, or else its beginning:
        {formats}.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for formats that have nm or µm and do not say it.

    Returns
    -------
    SpotFits
        Of our files the same fits to the bit, with the settings they were made with. Of others
        centres in pixels from the centre of the first, frames from 0; what has no name here keeps
        its own. Without stop conditions these are UNKNOWN, and the spots neither flagged nor good.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer version of the package, or something else; the message
        says what. Or if it needs the size of a pixel.
    OSError
        If there is no such file, or it cannot be read.
    ImportError
        If it is a Parquet file and pyarrow is missing, or an HDF5 file and h5py is.

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
    return SpotFits(columns, about.index, about.settings, about.roi_shape, own)


def save_fits(
    parts: Iterable[SpotFits],
    path: str | os.PathLike[str],
    *,
    pixel_size: float | Sequence[float] | None = None,
    shape: Sequence[int] | None = None,
) -> int:
    """Save fits that come in parts as one file, each part as it comes.

    With :func:`~napari_spotfit.localize_iter`, no more than a few frames and their spots are in
    memory, however long the movie is. The file is that of :meth:`SpotFits.save` of the parts
    joined.

    Parameters
    ----------
    parts : iterable of SpotFits
        One at least, all of the same columns; their settings are taken to be the first one's.
    path : str or path
        A name that ends in ``.spots.parquet`` or ``.spots.csv``; or as files of another program do,
        such as in ``.hdf5``: then all spots are in memory at the end.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for formats with nm or µm.
    shape : sequence of int, optional
        Shape of the image, for Picasso; by default the smallest that has all spots.

    Returns
    -------
    int
        How many spots were saved.

    Raises
    ------
    ValueError
        If the name ends otherwise, or there are no parts.
    OSError
        If the file cannot be written. Whatever had its name is as it was then, and so it is if
        the parts end with an error.

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
    tables = (part.to_table() for part in parts)
    return write_parts(path, tables, pixel_size=pixel_size, shape=shape)
