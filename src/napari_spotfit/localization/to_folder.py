"""Localize into a folder of parts, written as they are made, and load them."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..estimation.camera_check import CameraCheck
from ..estimation.estimates import warn_of_gain
from ..files.parts import part_path, read_run
from ..files.table import UnreadableFileError
from ..images.camera import Camera
from ..images.channels import Maps, channel_of
from ..images.frames import FrameSelection
from ..results.fit_parts import FitParts
from ..results.saving import load_fits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from .lazy import lazy_stored
from .plan import check_progress, planned
from .stored import StoredPart, parts_of, refuse_other, store_in, warn_of_other


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def localize_to_folder(
    image: Any,
    folder: str | os.PathLike[str],
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    progress: Callable[[int, int], object] | None = None,
    fresh: bool = False,
    lazy: bool = False,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> list[Any]:
    """Detect and fit the spots of an image, and write them to a folder of Parquet files.

    Each file, ``part-<number of its first frame>.parquet``, has the spots of some frames, and takes
    its name when it is complete. Called again with the same, a run that was killed goes on from the
    parts that are there; a damaged one is written again. :func:`~napari_spotfit.load_parts`,
    ``dask.dataframe.read_parquet(folder)`` and ``pandas.read_parquet(folder)`` read them.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        As :func:`~napari_spotfit.localize` takes it.
    folder : str or path
        Where; it is made where it is missing.
    roi_size : int or tuple of int, optional
        Side of the ROI, or (planes,) rows and columns; odd. By default about 6 σ along each axis,
        at least 9 pixels.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several; each has a
        folder of its own.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    weights : array, shape (Y, X) or (…, Y, X), optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    progress : callable, optional
        Called after each part with the number of frames that are done and their total.
    fresh : bool, default False
        Whether the parts of another run, of other settings or another image, are replaced.
    lazy : bool, default False
        Return tasks of Dask's instead, one for each part: ``dask.compute(*parts)`` does them, on as
        many machines as there are that see the folder. What the settings leave open is measured
        first. Needs ``napari-spotfit[dask]``.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    list of StoredPart
        ``path`` and ``spots``, their number, of each part in order; or what makes them.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, or if the folder has
        parts of another run.
    OSError
        If the folder cannot be written to. The parts that are there are kept.
    ImportError
        If pyarrow is missing.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import load_parts, localize_to_folder, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     parts = localize_to_folder(movie, folder)
    ...     parts[0].path.name, parts[0].spots == sum(len(fits) for fits in load_parts(folder))
    ('part-000000000.parquet', True)
    """
    settings = with_roi(settings, roi_size, options, localize_to_folder)
    check_progress(progress, lazy=lazy)
    maps = Maps(mask, weights, bad_pixels, camera)
    other = warn_of_other(folder) if fresh else refuse_other(folder)
    one = channel_of(image, channel, maps)
    there, maps = one.image, one.maps
    run = store_in(Path(folder).resolve(), there, settings, frames, maps, other)
    warn_of_gain(settings, run.store.settings)
    if lazy:
        return lazy_stored(there, run, maps)
    plan = planned(there, run.settings, frames, maps)
    spots, done, ends = 0, Fraction(0), np.cumsum([len(numbers) for numbers in run.ranges])
    written: list[StoredPart] = []
    check = CameraCheck(settings)
    for fits, count in parts_of(plan, run):
        spots, done = spots + len(fits), done + count
        check.add(fits)
        if done == ends[len(written)]:
            written.append(StoredPart(run.store.path(run.ranges[len(written)]), spots))
            spots = 0
            if progress is not None:
                progress(int(done), len(plan.numbers))
    check.warn()
    return written


def load_parts(folder: str | os.PathLike[str]) -> FitParts:
    """Return the fits of a folder of parts, one part after the other.

    Parameters
    ----------
    folder : str or path
        A folder of :func:`~napari_spotfit.localize_to_folder`.

    Returns
    -------
    iterable of SpotFits
        It can be iterated again and again. ``save_fits(load_parts(folder), path)`` makes one file
        of them, the same to the bit as if it had been written at once.

    Raises
    ------
    ValueError
        If the folder is none of parts, some are missing, or one is damaged; the message says
        which.
    OSError
        If the folder cannot be read.

    Examples
    --------
    >>> from napari_spotfit import load_parts
    >>> load_parts("spots")
    Traceback (most recent call last):
    ...
    napari_spotfit.files.table.UnreadableFileError: “spots” is no folder of localize_to_folder, ...
    """
    place = Path(folder)
    run = read_run(place)
    if run is None:
        raise UnreadableFileError(
            f"“{place}” is no folder of localize_to_folder, or its file _run.json is damaged; call "
            "that again with the same image and settings to mend it"
        )
    paths = [part_path(place, first) for first in run.firsts]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise UnreadableFileError(
            f"“{place}” is not complete: {len(missing)} of {len(paths)} parts are missing, the "
            f"first is {missing[0]}; call localize_to_folder again with the same image and "
            "settings to go on"
        )
    return FitParts(paths, lambda paths: map(load_fits, paths))
