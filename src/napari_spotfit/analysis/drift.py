"""Estimate the drift of a sample from fiducials in many frames of a movie."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..files.exchange.image_info import as_pixel_size
from ..files.exchange.picasso import MARKER, convention_of
from ..files.table import Step, UnreadableFileError
from ..files.writing import unfinished
from ..models.columns import IN_PLANE, PLANES, TRACK
from ..results.fit_parts import FitParts, refuse_parts
from ..results.spot_fits import SpotFits, on_host
from ..untrusted import named
from .depth import depth_in_nm, plane_distance
from .linking import frames_of, leading_axes
from .shifts import Floats, agreed_shifts, by_track, refuse_unlinked, spans

if TYPE_CHECKING:
    import pandas as pd

#: Columns of a drift; fraction of a movie that may lack fiducials at its ends without a warning.
_COLUMNS, _UNSEEN = ("frame", "y", "x", "y_stderr", "x_stderr", "used"), 0.01
#: Columns of a drift along z.
_ALONG_Z = ("z", "z_stderr")
#: Largest number of lines before the numbers in a text file.
_LONGEST_HEADER = 50
#: Subtracting a drift in pixels spreads spots by no more than this factor, and some pixels.
_WIDER, _FEW_PIXELS = 1.5, 10.0


@dataclass(frozen=True)
class Drift:
    """The displacement of a sample in each frame of a movie.

    Threads: any number may share it, as it is immutable; do not modify its arrays.

    Attributes
    ----------
    y, x : ndarray of float64, shape (frames,)
        Displacement in pixels since the first frame with fiducials.
    y_stderr, x_stderr : ndarray of float64, shape (frames,)
        Standard errors, scaled to the scatter of the fiducials if that is larger; NaN in frames
        without fiducials, whose drift is interpolated.
    used : ndarray of int64, shape (frames,)
        Number of fiducials used, or of molecules.
    z, z_stderr : ndarray of float64, shape (frames,), optional
        The same along the optical axis in nm, as in Picasso; None if unknown.

    Raises
    ------
    ValueError
        If the columns differ in length, or a displacement is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import Drift
    >>> shift, error = np.array([0.0, 0.2]), np.array([0.01, 0.01])
    >>> drift = Drift(shift, -shift, error, error, used=np.array([5, 5]))
    >>> drift.to_dataframe()[["frame", "y", "x"]].values.tolist()
    [[0.0, 0.0, -0.0], [1.0, 0.2, -0.2]]
    """

    y: Floats
    x: Floats
    y_stderr: Floats
    x_stderr: Floats
    used: NDArray[np.int64]
    z: Floats | None = None
    z_stderr: Floats | None = None

    def __post_init__(self) -> None:
        if self.z is None and self.z_stderr is not None:
            raise ValueError("a drift with z_stderr must have z")
        columns = self._columns()
        if len({column.shape for column in columns.values()}) != 1 or columns["y"].ndim != 1:
            raise ValueError("a drift has one number for each frame in each of its columns")
        if not all(np.isfinite(columns[name]).all() for name in "yxz" if name in columns):
            raise ValueError("the drift of each frame must be a finite number")

    def __len__(self) -> int:
        return len(self.y)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a table: frame, y, x, y_stderr, x_stderr, used, and z, z_stderr if known."""
        import pandas as pd

        return pd.DataFrame({"frame": np.arange(len(self))} | self._columns())

    @property
    def extent(self) -> tuple[float, float]:
        """How far the sample has moved, and the median of the errors, in pixels."""
        error = np.nanmedian(np.hypot(self.y_stderr, self.x_stderr))
        return float(np.hypot(np.ptp(self.y), np.ptp(self.x))), float(error)

    @property
    def step(self) -> Step:
        """Its subtraction as a step in the history of fits."""
        return Step("subtract_drift", {"drift": self.fingerprint})

    @property
    def fingerprint(self) -> str:
        """A text that only equal displacements have, by which a history knows a drift."""
        columns = self._columns()
        moved = [columns[axis].astype(float).tobytes() for axis in "yxz" if axis in columns]
        return hashlib.blake2b(b"".join(moved), digest_size=8).hexdigest()

    def _columns(self) -> dict[str, NDArray[np.generic]]:
        """Return the columns that are known."""
        values = {name: getattr(self, name) for name in (*_COLUMNS[1:], *_ALONG_Z)}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}


def fiducial_drift(fits: SpotFits, frames: int | None = None, *, least_share: float = 0.5) -> Drift:
    """Estimate the drift from the tracks of fiducials.

    The drift is the mean shift, weighted by standard errors, without fiducials that deviate from
    the others in a frame. If fiducials scatter by more than their errors, as on a rotating sample,
    the drift's errors are scaled accordingly. Each fiducial has its own reference position,
    consistent over all frames, so the drift does not depend on which ones are visible in a frame.
    Fiducials that are visible one after the other can be used if they overlap for some frames.

    Parameters
    ----------
    fits : SpotFits
        Fits of one movie with a column ``track`` (see :func:`link_spots`) and standard errors. To
        choose fiducials, pass ``fits[numpy.isin(fits.track, chosen)]``.
    frames : int, optional
        Number of frames of the movie; by default up to the last one with a spot.
    least_share : float, default 0.5
        Tracks are used if they are visible in at least this fraction of the frames.

    Returns
    -------
    Drift
        Frames without fiducials are interpolated; before the first and after the last frame with
        fiducials, the drift is constant. It is along z, too, where that is known in nm: by a
        calibration, or in stacks by the voxel size.

    Raises
    ------
    ValueError
        If there are no tracks long enough, no track connects some frames to the others, the fits
        have no standard errors, or are of several files or positions, which drift differently.

    Warns
    -----
    UserWarning
        If more than 1 % of the frames are before the first or after the last one with fiducials, or
        z is left out as no fiducial's is known.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import fiducial_drift, link_spots, localize, simulate_movie
    >>> movie, truth = simulate_movie(1, shape=(64, 64), spots_per_frame=4, photons=5000, seed=3)
    >>> movie = np.stack([np.roll(movie[0], shift, axis=1) for shift in range(3)])
    >>> fits = link_spots(localize(movie, sigma=1.3), max_distance=3)
    >>> fiducial_drift(fits).x.round(2).tolist()
    [0.0, 1.0, 2.0]
    """
    refuse_parts(fits)
    fits = on_host(fits)
    columns = fits.columns
    for name, how in ((TRACK, "call link_spots"), ("y_stderr", "fit with errors=True")):
        if name not in columns:
            raise ValueError(f"these fits have no column {name}: {how}")
    refuse_several_movies(fits)
    count = frames if frames is not None else int(frames_of(fits).max(initial=-1)) + 1
    heights = depth_in_nm(fits)
    if heights is not None:
        columns = columns | heights
    axes = IN_PLANE if heights is None else (*IN_PLANE, "z")
    places, errors = by_track(columns, count, least_share, axes)
    known = np.asarray(np.isfinite((places + errors)[..., :2]).all(axis=2))
    if not known.any():
        raise ValueError("no fiducial has standard errors above 0: fit y and x, with errors=True")
    shifts, spread, used = agreed_shifts(places[..., :2], errors[..., :2], known)
    seen = np.flatnonzero(used)
    refuse_unlinked(columns, used, least_share)
    _warn_of_ends(seen, count)
    y, x = (_interpolated(shifts[:, axis], seen) for axis in (0, 1))
    drift = Drift(y, x, spread[:, 0], spread[:, 1], used)
    return drift if heights is None else _with_depth(drift, places[..., 2:], errors[..., 2:])


def _interpolated(shifts: Floats, seen: NDArray[np.int64]) -> Floats:
    """Return shifts since the first frame in which they are seen, interpolated in others."""
    since_first = shifts[seen] - shifts[seen[0]]
    return np.asarray(np.interp(np.arange(len(shifts)), seen, since_first))


def _with_depth(drift: Drift, places: Floats, errors: Floats) -> Drift:
    """Return a drift with that along z, of positions by track and frame in nm, if it is known."""
    known = np.asarray(np.isfinite(places + errors)[..., 0])
    if not known.any():
        warn_caller("no fiducial has standard errors along z above 0: the drift is without z")
        return drift
    try:
        shifts, spread, used = agreed_shifts(places, errors, known)
    except ValueError as error:
        warn_caller(f"the drift is without z: {error}")
        return drift
    z = _interpolated(shifts[:, 0], np.flatnonzero(used))
    return replace(drift, z=z, z_stderr=spread[:, 0])


def refuse_several_movies(fits: SpotFits) -> None:
    """Raise a ValueError if fits are of several files or positions, which drift differently."""
    for name in ("file", *leading_axes(fits)):
        values = fits.columns.get(name, np.empty(0))
        kinds = dict.fromkeys(values.tolist())
        if len(kinds) > 1:
            what = "files" if name == "file" else f"positions on {name}"
            raise ValueError(
                f"these fits are of {len(kinds)} {what}, but a drift is of one movie: choose one, "
                f"fits[fits.{name} == {next(iter(kinds))!r}], or make a table of each"
            )


def _warn_of_ends(seen: NDArray[np.int64], count: int) -> None:
    """Warn if the ends of a movie have no fiducials, as their drift is a guess."""
    unseen = np.concatenate([np.arange(seen[0]), np.arange(seen[-1] + 1, count)])
    if len(unseen) > _UNSEEN * count:
        warn_caller(
            f"no fiducial is seen in {spans(unseen)}: the drift there is assumed to be that of the "
            "next frame with fiducials",
        )


@overload
def subtract_drift(fits: SpotFits, drift: Drift) -> SpotFits: ...
@overload
def subtract_drift(fits: Sequence[SpotFits] | FitParts, drift: Drift) -> FitParts: ...
def subtract_drift(
    fits: SpotFits | Sequence[SpotFits] | FitParts, drift: Drift
) -> SpotFits | FitParts:
    """Subtract a drift from the positions of fits.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits of one movie: that of the drift, or one that was recorded at the same time. Of parts,
        such as of :func:`load_parts`, parts are returned, which are made as they are read.
    drift : Drift
        The drift.

    Returns
    -------
    SpotFits
        The same rows with corrected ``y`` and ``x``, and ``z`` and ``z_nm`` if both have z.
        ``roi_y`` and ``roi_x`` still say where they were fitted.

    Raises
    ------
    ValueError
        If the drift lacks frames of the fits, these are of several files or positions, or it has z
        in nm, and the fits in planes whose distance is unknown.

    Warns
    -----
    UserWarning
        If the same drift was subtracted before, or is so large that it seems to be in nm.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import Drift, localize, simulate_movie, subtract_drift
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=4, seed=3)
    >>> fits, zeros = localize(movie, sigma=1.3), np.zeros(2)
    >>> drift = Drift(np.array([0.0, 0.5]), zeros, zeros, zeros, np.ones(2, int))
    >>> moved = fits.y - subtract_drift(fits, drift).y
    >>> bool((moved.round(9) == np.where(fits.frame == 1, 0.5, 0)).all())
    True
    """
    if not isinstance(fits, SpotFits):
        return FitParts(fits, lambda parts: (subtract_drift(part, drift) for part in parts))
    fits = on_host(fits)
    if "frame" not in fits.columns:
        raise ValueError(
            "these fits have no column frame: drift can be subtracted from the fits of a movie only"
        )
    refuse_several_movies(fits)
    frame = frames_of(fits)
    if len(frame) and (frame.min() < 0 or frame.max() >= len(drift)):
        raise ValueError(
            f"the drift is of {len(drift)} frames from 0 on, the fits are of frames "
            f"{frame.min()} to {frame.max()}"
        )
    moved = {"y": fits.y - drift.y[frame], "x": fits.x - drift.x[frame]}
    if drift.z is not None and "z" in fits.columns:
        distance = plane_distance(fits)
        if distance is None and fits.units.get("z") == PLANES:
            raise ValueError(
                "the drift along z is in nm, but z of these fits in planes whose distance is "
                "unknown: leave it out, dataclasses.replace(drift, z=None, z_stderr=None), or "
                "divide it by the distance of planes and subtract it from the column z"
            )
        rise = drift.z[frame]
        moved["z"] = fits.z - rise / (distance or 1.0)
        if "z_nm" in fits.columns:
            moved["z_nm"] = fits.columns["z_nm"] - rise
    _check_unit(fits, moved)
    if drift.step in fits.history:
        warn_caller("this drift was subtracted from these fits before: now it is, twice")
    return fits.with_columns(fits.columns | moved, drift.step)


def _check_unit(fits: SpotFits, moved: Mapping[str, NDArray[Any]]) -> None:
    """Warn of a drift that spreads spots over a far larger field, as one in nm does."""
    for axis in IN_PLANE:
        there = np.isfinite(fits.columns[axis]) & np.isfinite(moved[axis])
        if not there.any():
            continue
        before, after = (float(np.ptp(one[there])) for one in (fits.columns[axis], moved[axis]))
        if after > _WIDER * before + _FEW_PIXELS:
            warn_caller(
                f"less this drift, spots along {axis} are spread over {after:.4g} px, but were "
                f"seen within {before:.4g} px: a drift is in pixels; divide nm by the size of one"
            )
            return


def save_drift(drift: Drift, path: str | os.PathLike[str]) -> None:
    """Write a drift as a CSV table, or as Picasso's ``.txt`` of only x, y and z.

    Parameters
    ----------
    drift : Drift
        The drift.
    path : str or path
        Its name ends in ``.csv`` or ``.txt``.

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from napari_spotfit import Drift, save_drift
    >>> drift = Drift(*(np.array([0.0, 0.25]) for _ in range(4)), np.array([3, 3]))
    >>> with TemporaryDirectory() as folder:
    ...     save_drift(drift, f"{folder}/movie.drift.csv")
    ...     Path(f"{folder}/movie.drift.csv").read_text().splitlines()[2]
    '1,0.25,0.25,0.25,0.25,3'
    """
    place = Path(path)
    ending = _ending(place)
    with unfinished(place) as part:
        if ending == ".csv":
            drift.to_dataframe().to_csv(part, index=False)
            return
        axes = "xy" if drift.z is None else "xyz"
        values = np.column_stack([getattr(drift, axis) for axis in axes])
        with part.open("wb") as file:  # pandas would compress a path by its ending
            titles = "\t".join(f"d{axis}" for axis in axes)
            np.savetxt(file, values, header=titles, newline="\r\n")


def load_drift(
    path: str | os.PathLike[str], *, pixel_size: float | Sequence[float] | None = None
) -> Drift:
    """Load a drift that :func:`save_drift` or Picasso has written.

    Parameters
    ----------
    path : str or path
        Its name ends in ``.csv`` or ``.txt``; the latter has no standard errors, which are NaN.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm, for a ``.txt`` of Picasso 1.0 or later, which is in nm.

    Raises
    ------
    ValueError
        If it is no file of a drift, or needs the size of a pixel.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from napari_spotfit import Drift, load_drift, save_drift
    >>> drift = Drift(*(np.array([0.0, 0.25]) for _ in range(4)), np.array([3, 3]))
    >>> with TemporaryDirectory() as folder:
    ...     save_drift(drift, f"{folder}/movie.drift.csv")
    ...     load_drift(f"{folder}/movie.drift.csv").y.tolist()
    [0.0, 0.25]
    """
    import pandas as pd

    place = Path(path)
    ending = _ending(place)
    start = f"“{place.name}” is no table of a drift"
    with named(start, UnreadableFileError, (KeyError, ValueError)):
        if ending == ".csv":
            table = pd.read_csv(place)
            if missing := [name for name in _COLUMNS if name not in table]:
                raise ValueError(
                    f"it has no column {missing[0]!r}; the columns are {', '.join(_COLUMNS)}"
                )
            table = table.sort_values("frame")
            if (table["frame"].to_numpy() != np.arange(len(table))).any():
                raise ValueError(
                    "its column frame must have each number from 0 on once; "
                    f"it has {table['frame'].nunique()} numbers from {table['frame'].min()} "
                    f"to {table['frame'].max()} in {len(table)} rows"
                )
            y, x, *errors = (table[name].to_numpy(float) for name in _COLUMNS[1:5])
            more = {name: table[name].to_numpy(float) for name in _ALONG_Z if name in table}
            return Drift(y, x, errors[0], errors[1], table["used"].to_numpy(np.int64), **more)
        return _of_picasso(place, as_pixel_size(pixel_size))


def _of_picasso(path: Path, pixel_size: tuple[float, float] | None) -> Drift:
    """Load a drift from Picasso's text: x, y and maybe z, in nm."""
    with path.open(encoding="utf-8", errors="replace") as file:
        header = [line for line in islice(file, _LONGEST_HEADER) if line.lstrip().startswith("#")]
    marker = re.search(rf"{MARKER}\W+([\w.]+)", "".join(header))
    values = np.loadtxt(path, ndmin=2)
    if values.shape[1] not in (2, 3):
        raise ValueError(f"its lines have {values.shape[1]} numbers instead of x and y, or x, y, z")
    x, y, *z = values.T
    if convention_of(marker and marker[1]).unit is not None:
        if pixel_size is None:
            raise ValueError(
                "it is in nm, but the size of a pixel is unknown: pass pixel_size=… in nm"
            )
        y, x = y / pixel_size[0], x / pixel_size[1]
    unknown = np.full(len(y), math.nan)
    errors = {} if not z else {"z": z[0], "z_stderr": unknown}
    return Drift(y, x, unknown, unknown, np.zeros(len(y), np.int64), **errors)


def _ending(path: Path) -> str:
    if path.suffix.lower() not in (".csv", ".txt"):
        raise ValueError(f"the name of a drift must end in .csv or .txt; got “{path.name}”")
    return path.suffix.lower()
