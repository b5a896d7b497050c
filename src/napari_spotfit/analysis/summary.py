"""Summarise fits: medians and spreads, counts per frame, and groups of spots that overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..estimation.noise_line import SIGMA_PER_MAD
from ..files.exchange.image_info import as_shape
from ..images.frames import FrameSelection, indices_along
from ..models.columns import AXES, GROUP, GROUP_SIZE, IN_PLANE, STDERR, describe
from ..models.number_checks import shown
from ..results.repeats import without_duplicates
from ..results.spot_fits import SpotFits, on_host

if TYPE_CHECKING:
    import pandas as pd

#: The full width of a Gaussian at half maximum, over its standard deviation.
_FWHM = math.sqrt(8 * math.log(2))
#: Percentiles between which most fits lie.
_PERCENTILES = (5.0, 95.0)
Integers = NDArray[np.int64]

#: Quantiles between which the field is.
_FIELD = (0.01, 0.99)
#: Those between which most are, and how many times as far away none belongs to the field.
_INNER, _FAR = (0.1, 0.9), 100.0


def summarize(fits: SpotFits, columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Return the median and the spread of quantities over all fits.

    Parameters
    ----------
    fits : SpotFits
        The fits to use, such as ``fits[fits.good]``.
    columns : iterable of str, optional
        Numeric columns; by default shape, photons and background, and the standard errors of these
        and of the centre. By default also, for Gaussians that are not rotated and voxels of a known
        size, the full width at half maximum along each axis in nm, ``fwhm_z``, ``fwhm_y`` and
        ``fwhm_x``.

    Returns
    -------
    pandas.DataFrame
        One row per quantity: ``count``, the number of finite values; ``median``; ``spread``,
        1.4826 times the median absolute deviation, which equals the standard deviation of normally
        distributed values and is robust against outliers; ``low`` and ``high``, the 5th and the
        95th percentile.

    Examples
    --------
    >>> from napari_spotfit import fit_spots, simulate_spots, summarize
    >>> spots, truth = simulate_spots(1000, sigma=1.3, photons=2000, seed=1)
    >>> table = summarize(fit_spots(spots))
    >>> round(float(table.loc["sigma", "median"]), 2), int(table.loc["sigma", "count"])
    (1.3, 1000)
    """
    import pandas as pd

    fits = without_duplicates(fits)
    names = usual_columns(fits) if columns is None else check_columns(fits, columns)
    rows = {name: _robust(fits.columns[name]) for name in names}
    if columns is None:
        rows |= {name: _robust(values) for name, values in _full_widths(fits).items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(_ROBUST))
    return table.astype({"count": np.int64})


def per_frame(
    fits: SpotFits,
    shape: Sequence[int] | None = None,
    frames: FrameSelection = None,
    columns: Iterable[str] = (),
) -> pd.DataFrame:
    """Return the number of spots in each frame, including frames without any.

    Parameters
    ----------
    fits : SpotFits
        The fits to count.
    shape : sequence of int, optional
        Shape of the image, (…, Y, X). Without it, frames end with the last one that has a spot,
        and there is no density.
    frames : optional
        The frames that were fitted, as in :func:`~napari_spotfit.localize`; by default all.
    columns : iterable of str
        Columns whose median in each frame is returned.

    Returns
    -------
    pandas.DataFrame
        One row per frame: its indices along the leading axes (``frame``), ``count``, ``density`` in
        spots per pixel if the shape is known, and ``…_median`` of each column, NaN without values.

    Raises
    ------
    ValueError
        If the shape has other axes than the fits, or a spot lies in a frame outside `frames`.

    Examples
    --------
    >>> from napari_spotfit import localize, per_frame, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), seed=0)
    >>> table = per_frame(localize(movie), movie.shape)
    >>> list(table), table["frame"].tolist()
    (['frame', 'count', 'density'], [0, 1, 2])
    """
    import pandas as pd

    fits = without_duplicates(fits)
    names = check_columns(fits, columns)
    index = fits.index_names
    places = np.column_stack([fits.columns[name] for name in index]) if index else None
    along = _frames_of(fits, shape, frames)
    lengths = tuple(len(chosen) for chosen in along)
    row = _rows_of(places, along, len(fits))
    total = int(np.prod(lengths, dtype=np.int64))
    grid = np.meshgrid(*along, indexing="ij") if along else []
    table: dict[str, Any] = {name: values.ravel() for name, values in zip(index, grid, strict=True)}
    table["count"] = np.bincount(row, minlength=total)
    if shape is not None:
        table["density"] = table["count"] / math.prod(shape[len(index) :])
    for name in names:
        medians = pd.Series(finite(fits.columns[name])).groupby(row).median()
        table[f"{name}_median"] = medians.reindex(range(total)).to_numpy()
    return pd.DataFrame(table)


def usual_columns(fits: SpotFits) -> list[str]:
    """Return the default columns: shape, photons, background, and standard errors."""
    shape = () if fits.settings is None else fits.settings.profile.shape
    known = [describe(name, [one.column for one in shape]) for name in fits.columns]
    values = [one.name for one in known if one.group == "shape" and not one.error_of]
    if "z" in fits and "z" not in (*fits.axes, *values):  # from the widths, by a calibration
        values.insert(0, "z")
    values += [name for name in ("photons", "background") if name in fits]
    errors = [name + STDERR for name in (*fits.axes, *values)]
    return values + [name for name in errors if name in fits]


def _full_widths(fits: SpotFits) -> dict[str, NDArray[Any]]:
    """Return the full widths at half maximum along the axes in nm, as far as they are known."""
    settings = fits.settings
    if settings is None or settings.voxel_size is None or "angle" in fits:
        return {}
    widths = {}
    for axis, size in zip(AXES, settings.voxel_size, strict=True):
        name = next((one for one in (f"sigma_{axis}", "sigma") if one in fits), None)
        if axis in fits.axes and name is not None:
            widths[f"fwhm_{axis}"] = _FWHM * size * fits.columns[name]
    return widths


#: The columns of a summary.
_ROBUST = ("count", "median", "spread", "low", "high")


def _robust(values: NDArray[Any]) -> tuple[float, ...]:
    values = values[np.isfinite(values)].astype(np.float64)
    if not len(values):
        return 0, *(np.nan,) * 4
    low, median, high = np.percentile(values, (_PERCENTILES[0], 50, _PERCENTILES[1]))
    spread = SIGMA_PER_MAD * np.median(np.abs(values - median))
    return len(values), float(median), float(spread), float(low), float(high)


def check_columns(fits: SpotFits, columns: Iterable[str]) -> list[str]:
    """Check that columns are numeric, and return their names."""
    if not isinstance(columns, Iterable):
        raise TypeError(f"columns must be names of columns; got {shown(columns)}")
    names = [columns] if isinstance(columns, str) else list(columns)
    numbers = [name for name, values in fits.columns.items() if values.dtype.kind in "fiub"]
    for name in names:
        if not isinstance(name, str) or name not in numbers:
            raise ValueError(
                f"columns must be columns of numbers, {', '.join(numbers)}; got {shown(name)}"
            )
    return names


def finite(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers in double precision, with infinity replaced by NaN."""
    values = values.astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _frames_of(
    fits: SpotFits, shape: Sequence[int] | None, frames: FrameSelection
) -> list[NDArray[np.int64]]:
    """Return the indices of the listed frames along each leading axis."""
    axes, shape = len(fits.index_names), as_shape(shape)
    if shape is None:
        lengths = [fits.columns[name].max(initial=-1) + 1 for name in fits.index_names]
    elif len(shape) != axes + len(fits.axes):
        raise ValueError(
            f"shape must be that of the image, {axes} leading axes and {' and '.join(fits.axes)}; "
            f"got {shape!r}"
        )
    else:
        lengths = list(shape[:axes])
    chosen = (slice(None),) * axes if frames is None else frames
    chosen = chosen if isinstance(chosen, tuple) else (chosen,)
    if len(chosen) != axes:
        raise ValueError(f"frames must choose along {axes} leading axes; got {frames!r}")
    return [
        np.unique(indices_along(one, int(size)))
        for one, size in zip(chosen, lengths, strict=True)
    ]  # fmt: skip


def _rows_of(
    places: NDArray[Any] | None, along: list[NDArray[np.int64]], count: int
) -> NDArray[np.int64]:
    """Return each spot's row in a table of frames."""
    row = np.zeros(count, np.int64)
    for axis, chosen in enumerate(along):
        assert places is not None
        place = np.searchsorted(chosen, places[:, axis])
        known = place < len(chosen)
        known[known] = chosen[place[known]] == places[known, axis]
        if not known.all():
            raise ValueError(
                f"a spot lies in frame {places[~known, axis][0]:g} along axis {axis}, which is "
                "not among the chosen frames of the image"
            )
        row = row * len(chosen) + place
    return row


def summarize_groups(fits: SpotFits) -> pd.DataFrame:
    """Return how many spots each group has, and how many times a single spot's light.

    Of spots that are nearer to each other than 0.6 σ, fits show one: the count is a lower bound.
    Their light is all there, so that photons over those of a single spot count those, too.

    Parameters
    ----------
    fits : SpotFits
        The fits that count, such as ``fits[fits.good]``, with ``neighbours="joint"`` or ``"auto"``.

    Returns
    -------
    pandas.DataFrame
        A row for each group, single spots too: its number, the index of its frame; ``y``, ``x``,
        the centre of its light; ``count``; ``photons``, their sum; and ``photons_over_single``,
        that over the median single spot's: NaN where no spot stands alone.

    Raises
    ------
    ValueError
        If the fits have no groups.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie, summarize_groups
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=20, seed=1)
    >>> fits = localize(movie, neighbours="joint")
    >>> table = summarize_groups(fits)
    >>> int(table["count"].sum()) == len(fits)
    True
    """
    import pandas as pd

    fits = on_host(fits)
    if GROUP not in fits:
        raise ValueError('the fits have no groups; fit with neighbours="joint" or "auto"')
    columns = fits.columns
    groups, first, row = np.unique(columns[GROUP], return_index=True, return_inverse=True)
    photons = columns["photons"].astype(float)
    total = np.bincount(row, photons, minlength=len(groups))
    table = {GROUP: groups} | {name: columns[name][first] for name in fits.index_names}
    with np.errstate(all="ignore"):
        for axis in fits.axes:
            table[axis] = np.bincount(row, photons * columns[axis], minlength=len(groups)) / total
    is_single = (columns[GROUP_SIZE] == 1) & np.isfinite(photons)
    single = float(np.median(photons[is_single])) if is_single.any() else np.nan
    table["count"] = np.bincount(row, minlength=len(groups))
    table |= {"photons": total, "photons_over_single": total / single}
    return pd.DataFrame(table)


def in_field(columns: Mapping[str, NDArray[Any]], rows: Integers) -> Integers:
    """Return rows without those far from the field of all others, and warn of them.

    The field is that of 98 % of the rows, and as much around it; at most a hundred times what 80 %
    are in, so that some that are very far away do not make it large.
    """
    if not len(rows):
        return rows
    places = [taken(columns[axis], rows) for axis in IN_PLANE]
    if all(map(_fills_its_thirds, places)):
        return rows
    outside = np.zeros(len(rows), bool)
    for shares, times in ((_FIELD, 1.0), (_INNER, _FAR)):
        low, high = np.quantile(places, shares, axis=1)[..., np.newaxis]
        margin = times * (high - low).max()
        if margin > 0:
            outside |= ((places < low - margin) | (places > high + margin)).any(axis=0)
    if outside.any():
        warn_caller(
            f"{np.count_nonzero(outside)} of {len(rows)} fits are far outside of the field of all "
            "others, and left out"
        )
        rows = np.compress(~outside, rows)
    return rows


def taken(values: NDArray[Any], rows: Integers) -> NDArray[Any]:
    """Return the values of rows that rise; the values themselves if these are all."""
    return values if len(rows) == len(values) else values[rows]


def _fills_its_thirds(places: NDArray[Any]) -> bool:
    """Whether each outer third of positions has enough that none is far from the field.

    Both quantiles are in these thirds then, and so no farther from the ends than from each other.
    That is found much sooner than the quantiles are.
    """
    low, high = float(places.min()), float(places.max())
    third, least = (high - low) / 3, _INNER[0] * len(places) + 2
    return bool(
        np.count_nonzero(places < low + third) > least
        and np.count_nonzero(places > high - third) > least
    )
