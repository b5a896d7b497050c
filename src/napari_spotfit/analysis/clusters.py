"""Find clusters of localisations, by scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..files.table import Step
from ..models import number_checks
from ..models.columns import CLUSTER, numbered
from ..results.spot_fits import SpotFits, on_host
from .depth import places_in_pixels
from .linking import measured_once, movies_of

if TYPE_CHECKING:
    import pandas as pd

#: The number of spots that are in no cluster.
NO_CLUSTER = -1


def cluster(
    fits: SpotFits,
    method: Literal["dbscan", "hdbscan"] = "dbscan",
    *,
    radius: float | None = None,
    least: int = 10,
    z_scale: float | None = None,
) -> SpotFits:
    """Find clusters of spots in all frames, and return the fits with a column ``cluster``.

    Parameters
    ----------
    fits : SpotFits
        Fits, best after merging and without drift; files, channels and positions are clustered
        separately. Only good fits are used, or spots that another program has found.
    method : {"dbscan", "hdbscan"}
        ``"dbscan"`` needs a radius; ``"hdbscan"`` finds clusters of different densities.
    radius : float, optional
        Largest distance of neighbours in pixels, along y and x, and along z where z was fitted in a
        stack.
    least : int, default 10
        Least number of spots: within the radius, or for ``"hdbscan"`` in a cluster.
    z_scale : float, optional
        Pixels per unit of z; by default that of the voxel size of fits in stacks, and 0 otherwise,
        which leaves z out.

    Returns
    -------
    SpotFits
        The same rows with a column ``cluster``: numbers from 0 on, and -1 for spots in none.

    Raises
    ------
    ImportError
        If scikit-learn is missing.
    TypeError, ValueError
        If an argument is out of range, missing, or `least` no whole number; or if z is in planes
        whose distance is unknown.

    Warns
    -----
    UserWarning
        If z is known in other units and left out.

    Examples
    --------
    >>> from napari_spotfit import cluster, load_fits
    >>> fits = cluster(load_fits("merged.spots.parquet"), radius=0.3)  # doctest: +SKIP
    """
    fits = on_host(fits)
    number_checks.one_of("method", method, ("dbscan", "hdbscan"))
    if method == "dbscan":
        if radius is None:
            raise ValueError('"dbscan" needs a radius in pixels: pass radius=…')
        radius = number_checks.number("radius", radius, 0, above=True, unit="pixels")
    elif radius is not None:
        raise ValueError('"hdbscan" has no radius: leave it out, or take "dbscan"')
    least = number_checks.whole("least", least, 2)
    try:
        from sklearn import cluster as methods
    except ImportError:
        raise ImportError(
            "clustering needs scikit-learn, which is missing: pip install "
            '"napari-spotfit[analysis]"'
        ) from None
    if z_scale is None and "z" in fits and "z" not in fits.axes:
        depth = fits.columns["z"]
        if np.unique(depth[np.isfinite(depth)]).size > 1:
            warn_caller(
                "z is left out: spots at different heights may be in one cluster, as only y and x "
                "are in pixels; pass z_scale=…, how many pixels one unit of z is, or 0"
            )
    places = places_in_pixels(fits, z_scale)
    known = fits.accepted & np.isfinite(places).all(axis=1) & measured_once(fits)
    movie, number = movies_of(fits), np.full(len(fits), NO_CLUSTER, np.int64)
    for one in np.unique(movie[known]):
        rows = np.flatnonzero(known & (movie == one))
        if len(rows) < least:
            continue
        found = (
            methods.DBSCAN(eps=radius, min_samples=least) if method == "dbscan" else
            methods.HDBSCAN(min_cluster_size=least, copy=True)
        ).fit(places[rows]).labels_  # fmt: skip
        inside = rows[found >= 0]
        number[inside] = numbered(found[found >= 0]) + number.max() + 1
    arguments = {"method": method, "radius": radius, "least": least}
    step = Step("cluster", arguments | ({} if z_scale is None else {"z_scale": z_scale}))
    return fits.with_columns(fits.columns | {CLUSTER: number}, step)


def summarize_clusters(fits: SpotFits, *, z_scale: float | None = None) -> pd.DataFrame:
    """Return a table of clusters.

    Parameters
    ----------
    fits : SpotFits
        Fits with a column ``cluster``.
    z_scale : float, optional
        Pixels per unit of z for ``rms``, as in :func:`cluster`.

    Returns
    -------
    pandas.DataFrame
        A row for each cluster: ``cluster``, ``count``, the mean position along each axis in its
        unit, ``rms``, the root mean square distance from it in pixels, ``area`` of the convex hull
        along y and x, NaN for less than three spots, ``photons``, their sum, and ``first_frame``
        and ``last_frame``.

    Raises
    ------
    ValueError
        If the fits have no clusters, or z is in planes whose distance is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, summarize_clusters
    >>> columns = {"y": np.array([0.0, 0, 2, 2]), "x": np.array([0.0, 2, 0, 2])}
    >>> table = summarize_clusters(SpotFits(columns | {"cluster": np.zeros(4, int)}))
    >>> table[["count", "y", "x", "area"]].values.tolist()
    [[4.0, 1.0, 1.0, 4.0]]
    """
    import pandas as pd

    fits = on_host(fits)
    if CLUSTER not in fits:
        raise ValueError("these fits have no column cluster: call cluster")
    columns = fits.columns
    own = np.flatnonzero(columns[CLUSTER] >= 0)
    numbers, row = np.unique(columns[CLUSTER][own], return_inverse=True)
    count = np.bincount(row, minlength=len(numbers))
    table: dict[str, NDArray[Any]] = {CLUSTER: numbers, "count": count}
    for axis in fits.axes:
        table[axis] = np.bincount(row, columns[axis][own].astype(float), len(numbers)) / count
    square = np.zeros(len(numbers))
    for place in places_in_pixels(fits, z_scale)[own].T:
        mean = np.bincount(row, place, len(numbers)) / count
        square += np.bincount(row, (place - mean[row]) ** 2, len(numbers)) / count
    table["rms"] = np.sqrt(square)
    order = np.argsort(row, kind="stable")
    places = np.stack([columns["y"][own], columns["x"][own]], axis=1)[order]
    table["area"] = np.array(
        [_area(part) for part in np.split(places, np.cumsum(count)[:-1])] if len(numbers) else []
    )
    if "photons" in columns:
        table["photons"] = np.bincount(row, columns["photons"][own], len(numbers))
    if "frame" in columns:
        for name, joined in (("first_frame", np.minimum), ("last_frame", np.maximum)):
            ends = columns["frame"][own][order]
            starts = np.cumsum(count) - count
            table[name] = joined.reduceat(ends, starts) if len(numbers) else ends
    return pd.DataFrame(table)


def _area(places: NDArray[np.float64]) -> float:
    """Return the area of the convex hull; NaN if there is none."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return float(ConvexHull(places).volume) if len(places) > 2 else np.nan
    except QhullError:  # on a line
        return 0.0


def mean_square_displacements(
    fits: SpotFits, most: int | None = None, *, z_scale: float | None = None
) -> pd.DataFrame:
    """Return the mean square displacement of each track over time.

    It is the sum of those along y and x, and along z where z was fitted in a stack.

    Parameters
    ----------
    fits : SpotFits
        Fits with a column ``track`` (see :func:`link_spots`).
    most : int, optional
        Largest number of frames; by default a quarter of the longest track.
    z_scale : float, optional
        Pixels per unit of z, as in :func:`link_spots`.

    Returns
    -------
    pandas.DataFrame
        A row for each track and number of frames with pairs of its spots: ``track``, ``frames``,
        ``msd`` in px², and ``count``, the number of pairs that were averaged.

    Raises
    ------
    ValueError
        If the fits have no tracks, or z is in planes whose distance is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, mean_square_displacements
    >>> columns = {"frame": np.arange(9), "y": np.arange(9.0), "x": np.zeros(9)}
    >>> fits = SpotFits(columns | {"track": np.zeros(9, int)}, ["frame"])
    >>> mean_square_displacements(fits)[["frames", "msd", "count"]].values.tolist()
    [[1.0, 1.0, 8.0], [2.0, 4.0, 7.0]]
    """
    import pandas as pd

    fits = on_host(fits)
    for name in ("track", "frame"):
        if name not in fits:
            raise ValueError(f"these fits have no column {name}: call link_spots")
    columns = fits.columns
    tracks = np.unique([columns["track"], movies_of(fits)], axis=1)[0]
    tracks = tracks[tracks >= 0]
    if len(np.unique(tracks)) < len(tracks):
        raise ValueError(
            "some tracks are of several files, channels or positions: call link_spots, which gives "
            "the tracks of each their own numbers"
        )
    places = places_in_pixels(fits, z_scale)
    known = (columns["track"] >= 0) & np.isfinite(places).all(axis=1)
    rows = np.flatnonzero(known & measured_once(fits))
    rows = rows[np.lexsort((columns["frame"][rows], columns["track"][rows]))]
    track, frame, places = columns["track"][rows], columns["frame"][rows], places[rows]
    numbers, own = np.unique(track, return_inverse=True)
    if most is not None:
        number_checks.whole("most", most, 1)
    else:
        most = int(np.bincount(own).max()) // 4 if len(rows) else 0
    sums: dict[int, list[NDArray[Any]]] = {}
    for apart in range(1, len(rows)):
        gap = frame[apart:] - frame[:-apart]
        near = np.flatnonzero((own[apart:] == own[:-apart]) & (gap <= most))
        if not len(near):
            break
        square = ((places[near + apart] - places[near]) ** 2).sum(axis=1)
        sums[apart] = [own[near], gap[near], square]
    if not sums:
        return pd.DataFrame({"track": [], "frames": [], "msd": [], "count": []})
    of, gap, square = (np.concatenate(parts) for parts in zip(*sums.values(), strict=True))
    pairs = pd.DataFrame({"track": numbers[of], "frames": gap, "msd": square})
    table = pairs.groupby(["track", "frames"])["msd"].agg(["mean", "count"]).reset_index()
    return table.rename(columns={"mean": "msd"})
