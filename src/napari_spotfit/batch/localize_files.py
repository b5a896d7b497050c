"""Fit the spots of many image files from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from ..settings.options import Options, merged, takes_settings
from ..settings.settings import Settings
from .outcome import Outcome
from .request import ENDING, Batch, image_files
from .run import run_batch


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def localize_files(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    frames: slice | None = None,
    channel: int | str | None = None,
    labels: str | os.PathLike[str] | None = None,
    workers: int = 1,
    ending: str = ENDING,
    fresh: bool = False,
    pixel_size: float | None = None,
    progress: Callable[[Outcome], object] | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> list[Outcome]:
    """Find and fit the spots of image files, and write them to tables.

    The page *Files* of *Fit spots* and the command ``napari-spotfit localize`` do the same. A file
    that fails does not stop the others. A second call with the same arguments keeps completed
    tables, and resumes the movie in which a run was killed.

    Parameters
    ----------
    files : path or sequence of path
        Image files, patterns such as ``"*.tif"``, and folders of images.
    output : path
        A folder for one table per file, or one table such as ``"all.spots.parquet"`` for the spots
        of all files, with a column ``file``. Tables of files with the same name, ``day1/a.tif`` and
        ``day2/a.tif``, are prefixed by the folder: ``day1_a.tif.spots.parquet``.
    frames : slice, optional
        Frames of each movie; all by default.
    channel : int or str, optional
        Number or name of the channel in images with several; "all" fits each separately, and adds
        a column ``channel``. Without it, files of several channels fail.
    labels : str or path, optional
        Where to find each image's mask of cells: a folder, a pattern with ``*`` for the image's
        name, an ending such as ``"_cells.tif"`` of masks in the images' folders, or one file for
        all. Spots get a column ``label``, and each table is accompanied by one of cells.
    workers : int, default 1
        Number of files at a time, if each has its own table.
    ending : str, default ".spots.parquet"
        Ending of tables in a folder, which sets their format, such as ``"_locs.hdf5"``.
    fresh : bool, default False
        Whether to ignore the results of earlier runs.
    pixel_size : float, optional
        Side of a pixel in nm, for tables of other programs.
    progress : callable, optional
        Called with the outcome of a file whenever it changes, in the thread that fits the file.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    list of Outcome
        For each file: ``file``, ``state`` (``"done"``, ``"kept"`` from an earlier run or
        ``"failed"``), ``output`` and ``cells`` (the paths of its tables), ``frames``, ``spots``,
        ``good``, ``sigma`` in pixels, ``seconds``, ``warnings``, and ``error``, empty without one.

    Raises
    ------
    TypeError, ValueError
        If there are no such files, several would have the same table, or settings are invalid.
    OSError
        If the output cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from napari_spotfit import localize_files, simulate_movie
    >>> with TemporaryDirectory() as folder:
    ...     for seed in (1, 2):
    ...         movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=seed)
    ...         np.save(Path(folder) / f"{seed}.npy", movie)
    ...     outcomes = localize_files(f"{folder}/*.npy", f"{folder}/spots", sigma=1.3)
    ...     [(outcome.state, Path(outcome.output).name) for outcome in outcomes]
    [('done', '1.npy.spots.parquet'), ('done', '2.npy.spots.parquet')]
    """
    settings = merged(settings, options, localize_files)
    if not (frames is None or isinstance(frames, slice)):
        raise TypeError(f"frames must be a slice of each movie's frames; got {frames!r}")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers must be a whole number of files at a time, 1 or more: {workers}")
    names = [files] if isinstance(files, (str, os.PathLike)) else files
    batch = Batch(
        image_files([os.fspath(name) for name in names]),
        Path(output),
        settings,
        ending,
        frames,
        channel,
        None if labels is None else os.fspath(labels),
        workers,
        fresh=fresh,
        pixel_size=pixel_size,
    )
    return run_batch(batch, progress)
