"""Fits that come in parts, saved while the next ones are made."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..files.formats import write_parts
from .spot_fits import SpotFits


def save_fits(parts: Iterable[SpotFits], path: str | os.PathLike[str]) -> int:
    """Save fits that come in parts as one file, each part as it comes.

    With :func:`~napari_spotfit.localize_iter`, no more than a few frames and their spots are in
    memory, however long the movie is. The file is that of :meth:`SpotFits.save` of the parts
    joined.

    Parameters
    ----------
    parts : iterable of SpotFits
        One at least, all of the same columns; their settings are taken to be the first one's.
    path : str or path
        A name that ends in ``.spots.parquet`` or ``.spots.csv``.

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
    return write_parts(path, (part.to_table() for part in parts))
