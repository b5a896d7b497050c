"""Assign spots to labels such as cells, and sum the spots of each label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..models.columns import CHANNEL, PLANE
from ..models.number_checks import as_numbers
from ..results.repeats import without_duplicates
from ..results.spot_fits import SpotFits, on_host
from .summary import check_columns, finite

if TYPE_CHECKING:
    import pandas as pd

#: Largest label up to which pixels are counted by one histogram.
_MOST_BINS = 1 << 24
#: The largest label that fits into a column of integers.
_LARGEST = 2**63 - 1
#: Pixels outside of the image that fits may end in.
_BEYOND = 16
#: The column that says how spots of planes are counted, and its value.
COUNTED, ONCE_PER_PLANE = "counted", "once per plane"


def label_spots(
    fits: SpotFits, labels: Any, to_labels: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Return the label at each spot's centre.

    Parameters
    ----------
    fits : SpotFits
        The fits.
    labels : array of int
        Labels, 0 for the background, of NumPy, Dask, Zarr and the like: as large as the image, or
        with fewer leading axes, to apply to all channels or frames.
    to_labels : array_like, shape (labels.ndim, n + 1) or (labels.ndim + 1, n + 1), optional
        The affine matrix that maps a spot's n coordinates (leading axes, y, x) and a 1 to pixels
        of the labels, if these lie on another grid than the image.

    Returns
    -------
    ndarray of int, shape (n,)
        The labels; 0 outside of them, and for fits without a position.

    Raises
    ------
    TypeError, ValueError
        If the labels are not integers, exceed 2⁶³ - 1 at spots, have more axes than the image, or
        are smaller than it: spots lie beyond them, and there is no ``to_labels``.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import fit_at, label_spots, simulate_movie
    >>> movie, truth = simulate_movie(1, shape=(64, 64), seed=0)
    >>> cells = np.zeros((64, 64), int)
    >>> cells[:, 32:] = 7
    >>> label_spots(fit_at(movie, [(0, 20, 10), (0, 20, 50)]), cells).tolist()
    [0, 7]
    """
    labels = _labels(labels)
    points = on_host(fits).points()
    if CHANNEL in fits.index_names and to_labels is None and labels.ndim < points.shape[1]:
        # Labels without an axis of channels apply to all channels.
        points = np.delete(points, fits.index_names.index(CHANNEL), axis=1)
    matrix = _matrix(to_labels, labels.ndim, points.shape[1])
    places = np.floor(points @ matrix[:, :-1].T + matrix[:, -1] + 0.5)
    inside = np.all((places >= 0) & (places < labels.shape), axis=1)
    if to_labels is None:
        _check_size(places, labels.shape)
    found = np.zeros(len(points), np.int64)
    found[inside] = own = _look_up(labels, places[inside].astype(np.intp))
    _check_largest(int(own.max(initial=0)))
    return found


def _check_size(places: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Check that spots lie where labels are; few end beyond the image."""
    known = places[np.isfinite(places).all(axis=1)]
    ends = [*shape[:-2], *(side + _BEYOND for side in shape[-2:])]
    beyond = (known >= ends).any(axis=1)
    if beyond.any():
        size = " x ".join(str(int(side) + 1) for side in known.max(axis=0))
        raise ValueError(
            f"labels must be as large as the image: they are {' x '.join(map(str, shape))} pixels; "
            f"spots reach as far as an image of {size}. Give the image's labels, or to_labels, "
            "the matrix from its pixels to theirs"
        )


def per_label(
    fits: SpotFits,
    labels: Any,
    columns: Iterable[str] = ("photons",),
    to_labels: ArrayLike | None = None,
) -> pd.DataFrame:
    """Return the number of spots of each label, and sums and means of their columns.

    Parameters
    ----------
    fits : SpotFits
        The fits to count, such as ``fits[fits.good]``.
    labels, to_labels
        As in :func:`label_spots`.
    columns : iterable of str
        Numeric columns.

    Returns
    -------
    pandas.DataFrame
        One row per label except 0, including those without spots: ``label``; ``pixels``, their
        number in all frames; ``count``, the number of spots; and ``…_sum`` and ``…_mean`` of each
        column, without NaN and infinity. Several channels get separate rows, with a column
        ``channel``. If planes were fitted separately, a column ``counted`` says that spots are
        counted once in each plane in which they are visible.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import fit_at, per_label, simulate_movie
    >>> movie, truth = simulate_movie(1, shape=(64, 64), seed=0)
    >>> cells = np.zeros((64, 64), int)
    >>> cells[:, :10], cells[:, 32:] = 3, 7
    >>> table = per_label(fit_at(movie, [(0, 20, 20), (0, 20, 50)]), cells)
    >>> table["label"].tolist(), table["pixels"].tolist(), table["count"].tolist()
    ([3, 7], [640, 2048], [0, 1])
    """
    fits = without_duplicates(fits)
    names, label = check_columns(fits, columns), label_spots(fits, labels, to_labels)
    return table_of_labels(label, label_sizes(labels), fits.columns, names)


def label_sizes(labels: Any) -> dict[int, int]:
    """Return the number of pixels of each label except 0, in the order of labels."""
    return {label: pixels for label, (pixels, _) in sizes_and_planes(labels).items()}


def sizes_and_planes(labels: Any) -> dict[int, tuple[int, int]]:
    """Return the numbers of pixels and planes of each label except 0."""
    sizes: dict[int, tuple[int, int]] = {}
    for plane in _planes(_labels(labels)):
        for label, count in zip(*_count(plane), strict=True):
            pixels, planes = sizes.get(label, (0, 0))
            sizes[label] = pixels + count, planes + 1
    return {label: sizes[label] for label in sorted(sizes) if label}


def table_of_labels(
    label: NDArray[Any],
    sizes: Mapping[int, int],
    columns: Mapping[str, NDArray[Any]],
    names: Iterable[str],
    by_plane: bool = False,
) -> pd.DataFrame:
    """Return the table of :func:`per_label` from the spots' labels and the labels' sizes.

    Parameters
    ----------
    label : ndarray of int
        The label of each spot.
    sizes : mapping of int to int
        The number of pixels of each label, in the order of labels.
    columns : mapping of str to ndarray
        The columns of the spots.
    names : iterable of str
        Columns to sum.
    by_plane : bool
        Whether planes were fitted separately, although the spots have no column of planes.
    """
    channels = np.unique(columns[CHANNEL]).tolist() if CHANNEL in columns else ()
    sums = LabelSums(sizes, names, channels)
    sums.add(label, columns)
    sums.by_plane |= by_plane
    return sums.table()


class LabelSums:
    """Counts the spots of each label and sums their columns, part by part.

    Parameters
    ----------
    sizes : mapping of int to int
        The number of pixels of each label, in the order of labels.
    columns : iterable of str
        Columns to sum.
    channels : sequence
        The channels of the spots, which get separate rows; empty without such a column.

    Raises
    ------
    ValueError
        If a label exceeds 2⁶³ - 1.
    """

    def __init__(
        self, sizes: Mapping[int, int], columns: Iterable[str], channels: Sequence[Any] = ()
    ) -> None:
        _check_largest(max(sizes, default=0))
        self._sizes, self._channels = sizes, list(channels)
        self._known = np.fromiter(sizes, np.int64, len(sizes))
        #: Number of rows: one per label and channel.
        self._total = len(sizes) * max(len(self._channels), 1)
        self._count = np.zeros(self._total, np.int64)
        #: Sums of each column, and the numbers of their finite values.
        self._sums = {name: (np.zeros(self._total), np.zeros(self._total)) for name in columns}
        #: Whether spots are of planes that were fitted separately.
        self.by_plane = False

    def add(self, label: NDArray[Any], columns: Mapping[str, NDArray[Any]]) -> None:
        """Add spots by label, without those of label 0."""
        known = self._known
        row = np.searchsorted(known, label)
        inside = row < len(known)
        inside[inside] = known[row[inside]] == label[inside]
        row = row[inside]
        if self._channels:
            order = {channel: place for place, channel in enumerate(self._channels)}
            places = [order[channel] for channel in columns[CHANNEL][inside].tolist()]
            row = row + len(known) * np.array(places, np.int64)
        self._count += np.bincount(row, minlength=self._total)
        for name, (sums, counts) in self._sums.items():
            chosen = finite(columns[name][inside])
            real = np.isfinite(chosen)
            sums += np.bincount(row[real], chosen[real], self._total)
            counts += np.bincount(row[real], minlength=self._total)
        self.by_plane |= PLANE in columns

    def table(self) -> pd.DataFrame:
        """Return one row per label and channel, including those without spots."""
        import pandas as pd

        times = max(len(self._channels), 1)
        table: dict[str, Any] = {"label": np.tile(self._known, times)}
        if self._channels:
            table[CHANNEL] = np.repeat(np.array(self._channels), len(self._known))
        pixels = np.fromiter(self._sizes.values(), np.int64, len(self._sizes))
        table["pixels"] = np.tile(pixels, times)
        table["count"] = self._count
        if self.by_plane:
            table[COUNTED] = ONCE_PER_PLANE
        for name, (sums, counts) in self._sums.items():
            table[f"{name}_sum"] = sums
            with np.errstate(invalid="ignore"):  # no spots
                table[f"{name}_mean"] = sums / counts
        return pd.DataFrame(table)


def _labels(labels: Any) -> Any:
    """Check labels, and return them as an array that may be lazy."""
    labels = labels if hasattr(labels, "dtype") and hasattr(labels, "ndim") else np.asarray(labels)
    if np.dtype(labels.dtype).kind not in "iub":
        raise TypeError(f"labels must be whole numbers, 0 for the background; got {labels.dtype}")
    if labels.ndim < 2:
        raise ValueError(f"labels must have the axes y and x at least; got shape {labels.shape}")
    return labels


def _check_largest(label: int) -> None:
    """Check that the largest label fits into int64; NumPy would wrap it around."""
    if label > _LARGEST:
        raise ValueError(
            f"labels must be at most {_LARGEST} (2⁶³ - 1); got {label}. Number them from 1 on, "
            "with 0 for the background"
        )


def _matrix(to_labels: ArrayLike | None, ndim: int, axes: int) -> NDArray[np.float64]:
    """Return the matrix that maps positions and a 1 to the labels' pixels."""
    if to_labels is None:
        if ndim > axes:
            raise ValueError(
                f"the labels have {ndim} axes, more than the image of the spots with {axes}: "
                "choose one plane of them, labels[…]"
            )
        return np.eye(axes + 1)[axes - ndim : axes]
    matrix = as_numbers("to_labels", to_labels)
    if matrix.shape not in ((ndim, axes + 1), (ndim + 1, axes + 1)):
        raise ValueError(
            f"to_labels must have the shape {(ndim, axes + 1)} for spots with {axes} coordinates "
            f"and labels with {ndim} axes; got {matrix.shape}"
        )
    return matrix[:ndim]


def _look_up(labels: Any, places: NDArray[np.intp]) -> NDArray[Any]:
    """Return the labels at pixels; planes of lazy labels are read once."""
    if isinstance(labels, np.ndarray):
        return np.asarray(labels[tuple(places.T)])
    found = np.zeros(len(places), labels.dtype)
    leading, pixels = places[:, :-2], places[:, -2:]
    planes, plane_of = np.unique(leading, axis=0, return_inverse=True)
    order = np.argsort(plane_of.ravel(), kind="stable")
    ends = np.searchsorted(plane_of.ravel()[order], np.arange(len(planes) + 1))
    for number, plane in enumerate(planes):
        rows = order[ends[number] : ends[number + 1]]
        found[rows] = np.asarray(labels[tuple(plane.tolist())])[tuple(pixels[rows].T)]
    return found


def _planes(labels: Any) -> Iterator[NDArray[Any]]:
    return (np.asarray(labels[index]) for index in np.ndindex(labels.shape[:-2]))


def _count(plane: NDArray[Any]) -> tuple[list[int], list[int]]:
    """Return the labels of a plane, and their numbers of pixels."""
    flat = plane.ravel()
    if not flat.size:
        return [], []
    if flat.min() >= 0 and flat.max() < _MOST_BINS:
        counts = np.bincount(flat)
        labels = np.flatnonzero(counts)
        return labels.tolist(), counts[labels].tolist()
    labels, counts = np.unique(flat, return_counts=True)
    return labels.tolist(), counts.tolist()
