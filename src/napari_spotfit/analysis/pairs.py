"""Count pairs of spots in two channels, and pairs expected by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine import threads
from ..files.exchange.image_info import as_shape
from ..models.columns import IN_PLANE, STDERR
from ..models.number_checks import number
from ..results.spot_fits import SpotFits
from .depth import column_of_z, pixels_per_z
from .labels import label_spots, sizes_and_planes
from .linking import (
    ALONE,
    Floats,
    Integers,
    common_frames,
    in_order,
    measured_once,
    of_one_channel,
    partners,
)

if TYPE_CHECKING:
    import pandas as pd

#: Shifts of one channel in radii, beyond true partners, which are within two. The number of pairs
#: falls with the square of the shift, so that two shifts allow to extrapolate to none.
_NEAR, _FAR = 2.1, 3.0
#: Numbers of directions of shifts; fewer if a channel has more than `_MANY` spots.
_DIRECTIONS, _LEAST_DIRECTIONS, _MANY = 8, 3, 4_000_000
#: Systematic relative error of chance measured by shifts: near the borders of cells fewer spots
#: are shifted, and textures are less smooth than assumed.
_KNOWN = 0.015


@dataclass(frozen=True)
class SpotPairs:
    """Pairs of spots of two channels, and the number expected by chance.

    Threads: any number may share it, as it is immutable; do not modify its arrays.

    Attributes
    ----------
    a, b : ndarray of int64, shape (pairs,)
        Rows of the spots in the fits of the two channels.
    distance, distance_stderr : ndarray of float64, shape (pairs,)
        Their distances in pixels with standard errors, NaN if fits have none.
    label : ndarray of int64, shape (pairs,)
        The label of both; 0 without labels.
    radius : float
        The largest distance in pixels.
    observed : int
        Number of pairs.
    expected : float
        Number of pairs by chance if spots were distributed uniformly in each label and frame.
    expected_shifted : float
        Number of pairs by chance measured by shifting one channel, so that the density may vary
        within a cell, in both channels alike.
    excess, stderr : float
        ``observed - expected_shifted``, and its standard error. It does not include true pairs
        that would be pairs by chance, too.
    by_label : DataFrame
        One row per label (or for all spots without labels): ``label``, ``pixels``, ``count_a``,
        ``count_b``, ``observed``, ``expected``, ``expected_shifted``, ``excess`` and ``stderr``.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, pair_spots
    >>> y, x = np.random.default_rng(2).uniform(0, 400, (2, 60))
    >>> pairs = pair_spots(SpotFits({"y": y, "x": x}), SpotFits({"y": y + 0.3, "x": x}), radius=2)
    >>> pairs.observed, len(pairs.to_dataframe()), round(float(pairs.distance.mean()), 3)
    (60, 60, 0.3)
    """

    a: Integers
    b: Integers
    distance: Floats
    distance_stderr: Floats
    label: Integers
    radius: float
    observed: int
    expected: float
    expected_shifted: float
    excess: float
    stderr: float
    by_label: pd.DataFrame = field(repr=False)

    def __len__(self) -> int:
        return len(self.a)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a table: a, b, distance, distance_stderr, label."""
        import pandas as pd

        names = ("a", "b", "distance", "distance_stderr", "label")
        return pd.DataFrame({name: getattr(self, name) for name in names})


def pair_spots(
    a: SpotFits,
    b: SpotFits,
    radius: float,
    *,
    labels: Any = None,
    to_labels: ArrayLike | None = None,
    shape: Sequence[int] | None = None,
    z_scale: float | None = None,
) -> SpotPairs:
    """Pair the spots of two channels, and measure the number of pairs by chance.

    Spots of the same frame within the radius are paired one to one. The pairs minimise the sum of
    squared distances, in which a spot without a partner counts as one at the radius.

    Chance is measured on the spots themselves: one channel is shifted in several directions, just
    beyond true pairs and half as far again, and the number of pairs is extrapolated to no shift.
    Textures that both channels share, such as a nucleus without spots, do not matter unless they
    are finer than a few radii.

    Parameters
    ----------
    a, b : SpotFits
        The fits to pair, such as ``fits[fits.good]``, of images with the same leading axes. If
        channels do not coincide, map one onto the other by :func:`register_channels`. Spots of
        frames that were stored twice, and rows that are there twice, count once.
    radius : float
        The largest distance in pixels.
    labels, to_labels
        As in :func:`label_spots`, such as cells. Pairs are then within one label, and spots outside
        are ignored.
    shape : sequence of int, optional
        Shape of the image, (…, Y, X), or of a frame; by default the extent of the spots. Ignored
        with labels.
    z_scale : float, optional
        Pixels per unit of z, for fits with z; by default that of the voxel size of fits in stacks.
        With 0, z is ignored.

    Returns
    -------
    SpotPairs
        The pairs, and the numbers by chance, in total and by label.

    Raises
    ------
    ValueError
        If the radius is not positive, or so large that spots have many partners; if the channels
        have different axes; or if z_scale is needed.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import fit_at, pair_spots, simulate_movie
    >>> image = simulate_movie(1, shape=(64, 64), photons=3000, seed=0)[0][0]
    >>> a = fit_at(image, [(12, 12), (40, 30)])
    >>> pairs = pair_spots(a, a[1:], radius=2)
    >>> pairs.to_dataframe()[["a", "b", "distance"]].values.tolist()
    [[1.0, 0.0, 0.0]]
    """
    shape = as_shape(shape)
    radius = number("radius", radius, 0, above=True, unit="pixels")
    channels = [of_one_channel(fits) for fits in (a, b)]
    rows = [np.flatnonzero(measured_once(fits)) for fits in channels]
    channels = [
        fits if len(own) == len(fits) else fits[own]
        for fits, own in zip(channels, rows, strict=True)
    ]
    scale = _scale(channels[0], channels[1], z_scale)
    axes = ("z", *IN_PLANE) if scale else IN_PLANE
    region = _region(channels, labels, to_labels, shape, scale if "z" in axes else None)
    one, other = threads.pool().map(
        lambda fits, frame: _channel(fits, frame, region, axes, radius, scale),
        channels, common_frames(*channels),
    )  # fmt: skip
    found = partners(one.places, other.places, one.unit, other.unit, radius)
    paired = np.flatnonzero(found != ALONE)
    paired = paired[np.argsort(one.row[paired])]
    partner = found[paired]
    distance, errors = _distances(
        one.places[paired] - other.places[partner], one.errors[paired], other.errors[partner]
    )
    counts, sums = _by_cell(one, other, region, radius, one.cell[paired])
    import pandas as pd

    return SpotPairs(
        rows[0][one.row[paired]], rows[1][other.row[partner]], distance, errors,
        region.label[one.cell[paired]], radius, len(paired), *sums,
        pd.DataFrame({"label": region.label, "pixels": region.pixels, **counts}),
    )  # fmt: skip


def _scale(a: SpotFits, b: SpotFits, z_scale: float | None) -> float:
    """Return how many pixels one unit of z is, 0 to measure distances in the plane; or raise."""
    own = [column_of_z(fits) for fits in (a, b)]
    if own == [None, None] or z_scale == 0:
        return 0.0
    if None in own:
        raise ValueError(
            "only one of the channels has z: pass z_scale=0 to pair spots in the plane"
        )
    if z_scale is None and all(
        "z" in fits.axes and fits.settings is not None and fits.settings.voxel_size is not None
        for fits in (a, b)
    ):
        scales = [pixels_per_z(fits, None) for fits in (a, b)]
        if scales[0] == scales[1]:
            return scales[0]
    if z_scale is None or not (z_scale > 0 and math.isfinite(z_scale)):
        raise ValueError(
            f"these fits have z in {a.units.get('z', 'planes')}: z_scale must be how many pixels "
            f"one of these is, or 0 to pair spots in the plane; got {z_scale!r}"
        )
    return float(z_scale)


class _Region(NamedTuple):
    """Where spots can be: in the cells of labels, or in the frame as the only cell."""

    label: Integers
    #: Number of pixels of each cell in all frames, and its size in one frame in px² or px³.
    pixels: Integers
    sizes: Floats
    labels: Any
    to_labels: ArrayLike | None
    #: First corner and sides of the frame.
    corner: Floats
    sides: Floats

    def cells(self, fits: SpotFits) -> Integers:
        """Return the number of each spot's cell, -1 for none."""
        if self.labels is None:
            return np.where(np.isfinite(fits.y + fits.x), 0, ALONE)
        label = label_spots(fits, self.labels, self.to_labels)
        if not len(self.label):
            return np.full(len(fits), ALONE)
        cell = np.minimum(np.searchsorted(self.label, label), len(self.label) - 1)
        return np.where(self.label[cell] == label, cell, ALONE)


def _region(
    channels: Sequence[SpotFits],
    labels: Any,
    to_labels: ArrayLike | None,
    shape: Sequence[int] | None,
    z_scale: float | None,
) -> _Region:
    """Return where spots can be; `z_scale` is None for fits in the plane."""
    names = IN_PLANE if z_scale is None else ("z", *IN_PLANE)
    places = np.concatenate([_columns(fits, names) for fits in channels])
    places = places[np.isfinite(places).all(axis=1)]
    low, high = (
        end(places, axis=0) if len(places) else np.zeros(len(names)) for end in (np.min, np.max)
    )
    if shape is not None:
        low[-2:], high[-2:] = -0.5, np.array(shape[-2:], float) - 0.5
    sides = np.where(high > low, high - low, 1.0)
    depth = 1.0 if z_scale is None else z_scale * sides[0]
    if labels is None:
        area = float(sides[-2:].prod())
        return _Region(
            np.zeros(1, np.int64), np.array([round(area)]), np.array([area * depth]), None, None,
            low[-2:], sides[-2:],
        )  # fmt: skip
    known = sizes_and_planes(labels)
    label = np.fromiter(known, np.int64, len(known))
    pixels, planes = np.array(list(known.values()), np.int64).reshape(-1, 2).T
    if z_scale is not None and np.ndim(labels) > 2:  # labels of voxels
        planes, depth = np.maximum(planes // np.shape(labels)[-3], 1), z_scale
    return _Region(label, pixels, pixels / planes * depth, labels, to_labels, low[-2:], sides[-2:])


def _columns(fits: SpotFits, names: Sequence[str]) -> Floats:
    """Return columns as an array, NaN for missing ones; z is that of other programs, too."""
    columns, depth = fits.columns, column_of_z(fits) or "z"
    places = np.full((len(fits), len(names)), math.nan)
    for axis, name in enumerate(names):
        own = depth + name[1:] if name in ("z", "z" + STDERR) else name
        if own in columns:
            places[:, axis] = columns[own]
    return places


class _Channel(NamedTuple):
    """The spots of a channel that are in cells, sorted so that neighbours are adjacent."""

    fits: SpotFits
    row: Integers
    cell: Integers
    #: Number of each spot's frame and cell, within which spots are paired.
    unit: Integers
    #: Positions in pixels along all axes, and their standard errors.
    places: Floats
    errors: Floats


def _channel(
    fits: SpotFits, frame: Integers, region: _Region, axes: Sequence[str], radius: float,
    z_scale: float,
) -> _Channel:  # fmt: skip
    scale = np.array([z_scale if axis == "z" else 1.0 for axis in axes])
    places = _columns(fits, axes) * scale
    errors = _columns(fits, [axis + STDERR for axis in axes]) * scale
    cell = region.cells(fits)
    unit = frame * max(len(region.label), 1) + cell
    rows = in_order(np.where(cell[:, np.newaxis] == ALONE, math.nan, places), unit, 2 * radius)
    names = (*fits.index_names, *fits.axes)
    columns = {name: fits.columns[name][rows] for name in names}
    own = SpotFits(columns, fits.index_names, fits.settings)
    return _Channel(own, rows, cell[rows], unit[rows], places[rows], errors[rows])


def _distances(apart: Floats, one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return distances with standard errors, from differences and errors along each axis."""
    distance = np.sqrt((apart**2).sum(axis=1))
    variance = one**2 + other**2
    with np.errstate(invalid="ignore", divide="ignore"):
        along = (apart**2 * variance).sum(axis=1) / distance**2
    # A distance of 0 has no direction, so use the mean variance.
    return distance, np.sqrt(np.where(distance > 0, along, variance.mean(axis=1)))


def _by_cell(
    one: _Channel, other: _Channel, region: _Region, radius: float, paired: Integers
) -> tuple[dict[str, NDArray[Any]], tuple[float, float, float, float]]:
    """Return counts of each cell, and expected, expected_shifted, excess, stderr of all."""
    count = [np.bincount(side.cell, minlength=len(region.label)) for side in (one, other)]
    observed = np.bincount(paired, minlength=len(region.label))
    expected = _by_density(one, other, region, radius)
    shifted, spread = _by_shifts(one, other, region, radius, count[0], expected)
    share = shifted.sum() / max(count[0].sum(), 1)
    by_chance = float(shifted.sum())
    variance = by_chance * (1 - share) + spread + (_KNOWN * by_chance) ** 2
    # In cells with few shifted spots, the density is more reliable.
    each = np.maximum(shifted, expected)
    ratio = variance / max(float(each.sum()), 1e-300)
    counts = {
        "count_a": count[0], "count_b": count[1], "observed": observed, "expected": expected,
        "expected_shifted": shifted, "excess": observed - shifted, "stderr": np.sqrt(each * ratio),
    }  # fmt: skip
    return counts, (
        float(expected.sum()), by_chance, float(observed.sum()) - by_chance,
        math.sqrt(variance),
    )  # fmt: skip


def _by_density(one: _Channel, other: _Channel, region: _Region, radius: float) -> Floats:
    """Return the number of pairs by chance in each cell, for uniformly distributed spots."""
    axes = one.places.shape[1]
    reach = math.pi * radius**2 if axes == 2 else 4 / 3 * math.pi * radius**3
    units, counts = np.unique(other.unit, return_counts=True)
    if not len(units):
        return np.zeros(len(region.label))
    place = np.minimum(np.searchsorted(units, one.unit), len(units) - 1)
    there = np.where(units[place] == one.unit, counts[place], 0)
    chance = -np.expm1(-there * reach / region.sizes[one.cell])
    return np.asarray(np.bincount(one.cell, chance, len(region.label)), float)


def _by_shifts(
    one: _Channel, other: _Channel, region: _Region, radius: float, count: Integers,
    expected: Floats,
) -> tuple[Floats, float]:  # fmt: skip
    """Return the number of pairs by chance in each cell by shifts, and the variance of its sum."""
    cells, total = len(region.label), int(count.sum())
    most = _MANY // max(len(one.row) + len(other.row), 1)
    directions = min(max(most, _LEAST_DIRECTIONS), _DIRECTIONS)
    angles = 2 * math.pi * (np.arange(directions) + 0.37) / directions
    around = radius * np.column_stack([np.sin(angles), np.cos(angles)])

    def shifted(shift: Floats) -> NDArray[np.int64]:
        places = one.places.copy()
        places[:, -2:] += shift
        if region.labels is None:
            places[:, -2:] = (places[:, -2:] - region.corner) % region.sides + region.corner
            kept = np.ones(len(places), bool)
        else:
            columns = one.fits.columns | {"y": places[:, -2], "x": places[:, -1]}
            moved = SpotFits(columns, one.fits.index_names, one.fits.settings)
            kept = region.cells(moved) == one.cell
        cell, unit = one.cell[kept], one.unit[kept]
        paired = partners(places[kept], other.places, unit, other.unit, radius) != ALONE
        return np.array(
            [np.bincount(cell[paired], minlength=cells), np.bincount(cell, minlength=cells)]
        )

    found = np.array(list(threads.pool().map(shifted, [*(_NEAR * around), *(_FAR * around)])))
    by_way = found.reshape(2, directions, 2, cells).astype(float)
    further = _NEAR**2 / (_FAR**2 - _NEAR**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        near, far = (count * way[:, 0].sum(axis=0) / way[:, 1].sum(axis=0) for way in by_way)
        each = total * by_way[:, :, 0].sum(axis=2) / by_way[:, :, 1].sum(axis=2)
    known = np.isfinite(near + far)
    sums = near[known].sum(), far[known].sum()
    # Extrapolate along the squared shift, jointly for all cells, as each has few pairs.
    factor = max(1 + further * (1 - sums[1] / sums[0]), 0.0) if sums[0] > 0 else 1.0
    without = each[0] * (1 + further) - each[1] * further
    spread = float(np.nan_to_num(np.var(without, ddof=1))) / directions
    # If shifts move all spots out of their cell, only the density is left.
    return np.where(known, near * factor, expected), spread
