"""Compare crowds that began as few spots with one elongated Gaussian in place of each of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from .backend import Block
from .crowds import joined
from .joint_fits import Scale

#: A window's radius, in units of σ: a line goes on there where spots have no light; and how far
#: beyond it spots' light counts.
_REACH, _FAR = 4.5, 3.0
#: In the same units: how far off its line the spots of a straight cluster are, root mean square, at
#: most, and how near to the line others are that may be part of it.
_CROOKED, _BESIDE = 0.4, 1.5
#: The longest and the narrowest shape, in units of σ; the least mean of a pixel.
_LONGEST, _NARROWEST, _DARKEST = 8.0, 0.8, 1e-3
#: Steps of the fit of a shape, and of a plane.
_STEPS, _STEPS_OF_PLANE = 5, 3
#: Windows that are fitted at once; the most detections of a chain; how far apart crowds are taken.
_AT_ONCE, CHAIN, _APART = 256, 4, 1e7

Array = NDArray[np.float64]


class Clusters(NamedTuple):
    """Spots around clusters, and those of a cluster that something elongated may stand for."""

    #: Where each spot is along y and x in its frame, its light, the cluster that it is near, from 0
    #: on, and whether it is one of its own.
    places: Array
    light: Array
    cluster: NDArray[np.int64]
    is_own: NDArray[np.bool_]
    #: Frame of each cluster, and about its background.
    frame: NDArray[np.int64]
    background: Array

    def some(self, begin: int, end: int) -> Clusters:
        """Return some clusters that follow each other."""
        near = (self.cluster >= begin) & (self.cluster < end)
        return Clusters(
            self.places[near], self.light[near], self.cluster[near] - begin, self.is_own[near],
            self.frame[begin:end], self.background[begin:end],
        )  # fmt: skip


class _Lines(NamedTuple):
    """Straight lines through the spots of clusters."""

    #: Of each cluster its middle along y and x, the line's angle from x to y, whether its spots are
    #: near to the line, and how many they are.
    middle: Array
    angle: Array
    is_straight: NDArray[np.bool_]
    size: NDArray[np.int64]

    @classmethod
    def through(
        cls, places: Array, cluster: NDArray[np.int64], count: int, widest: float
    ) -> _Lines:
        """Return those through spots of clusters from 0 to ``count`` - 1."""
        size = np.bincount(cluster, minlength=count)
        middle = np.column_stack([np.bincount(cluster, at, count) / size for at in places.T])
        y, x = (places - middle[cluster]).T
        yy, xy, xx = (np.bincount(cluster, a, count) / size for a in (y * y, x * y, x * x))
        across = xx + yy - np.hypot(xx - yy, 2 * xy)
        angle = np.arctan2(2 * xy, xx - yy) / 2
        return cls(middle, angle, across < 2 * (_CROOKED * widest) ** 2, size)

    def off(self, places: Array, cluster: NDArray[np.int64]) -> Array:
        """Return how far spots are off the lines of clusters."""
        y, x = (places - self.middle[cluster]).T
        off: Array = abs(y * np.cos(self.angle[cluster]) - x * np.sin(self.angle[cluster]))
        return off


class Asked(NamedTuple):
    """Clusters that may be elongated: the crowd of each, its spots, and how many detections."""

    crowd: NDArray[np.int64]
    stands_for: NDArray[np.int64]
    #: The spots of clusters, and the cluster of each, one of two at most; and the detection nearest
    #: to each spot.
    member: NDArray[np.int64]
    own: NDArray[np.int64]
    nearest: NDArray[np.int64]

    @classmethod
    def among(
        cls, spots: NDArray[np.void], begun_at: Array, crowd_there: NDArray[np.int64],
        is_long: NDArray[np.bool_], crowds: int,
    ) -> Asked:  # fmt: skip
        """Return the clusters of spots in crowds that began at detections, some of them long.

        Those are the spots nearest to a detection, three at least, or two if it was long by itself;
        and all of a crowd of a few detections.
        """
        from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

        crowd = spots["crowd"]
        # Crowds are apart along a third axis.
        at = np.column_stack([spots["y"], spots["x"], _APART * crowd])
        _, nearest = cKDTree(np.column_stack([begun_at, _APART * crowd_there])).query(at)
        size = np.bincount(nearest, minlength=len(begun_at))
        chosen = np.flatnonzero((size > 2) | ((size == 2) & is_long))
        begun = np.bincount(crowd_there, minlength=crowds)
        is_chain = (begun > 1) & (begun <= CHAIN) & (np.bincount(crowd, minlength=crowds) > 1)
        chains = np.flatnonzero(is_chain)
        number, chain = np.full(len(begun_at), -1), np.full(crowds, -1)
        number[chosen] = np.arange(len(chosen))
        chain[chains] = len(chosen) + np.arange(len(chains))
        own = np.concatenate([number[nearest], chain[crowd]])
        return cls(
            np.concatenate([crowd_there[chosen], chains]),
            np.concatenate([np.ones(len(chosen), np.int64), begun[chains]]),
            np.tile(np.arange(len(spots)), 2)[own >= 0], own[own >= 0], nearest,
        )  # fmt: skip


def clusters_of(
    spots: NDArray[np.void], asked: Asked, is_long: NDArray[np.bool_],
    others: NDArray[np.void], others_long: NDArray[np.bool_],
    frame_of_crowd: NDArray[np.int64], widths: Array, meet: float,
) -> tuple[Clusters, NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """Return the straight ones of clusters, each with the spots around it.

    ``others`` are spots of other crowds; those nearer than ``meet``, in units of σ, belong to a
    crowd that will be fitted with this one, which is looked at then.

    Returns
    -------
    Clusters
        The clusters.
    chosen, size : ndarray of int
        Which of the given ones they are, and how many spots each is of.
    """
    from scipy.spatial import cKDTree

    count, widest = len(asked.crowd), float(widths.max())
    own_places = np.column_stack([spots["y"], spots["x"]])[asked.member]
    lines = _Lines.through(own_places, asked.own, count, widest)
    frame = frame_of_crowd[asked.crowd]
    is_near = np.isin(frame_of_crowd[others["crowd"]], frame[lines.is_straight])
    every = joined([spots, others[is_near]])
    every_long = np.concatenate([is_long[asked.nearest], others_long[is_near]])
    places = np.column_stack([every["y"], every["x"]])
    # Frames are apart along a third axis.
    near = cKDTree(
        np.column_stack([places, _APART * frame_of_crowd[every["crowd"]]])
    ).query_ball_point(
        np.column_stack([lines.middle, _APART * frame])[lines.is_straight], (_REACH + _FAR) * widest
    )
    around = np.concatenate([*map(np.asarray, near), asked.member[:0]]).astype(np.int64)
    beside = np.repeat(np.flatnonzero(lines.is_straight), [*map(len, near)])
    all_own = asked.own * len(every) + asked.member
    straight_own = all_own[lines.is_straight[asked.own]]
    pair = np.unique(np.concatenate([straight_own, beside * len(every) + around]))
    cluster, spot = np.divmod(pair, len(every))
    is_own = np.isin(pair, all_own)
    # Crowds that have met may have a spot twice; they are looked at as one.
    keyed = np.column_stack([places[spot], _APART * cluster])
    strange = (every["crowd"][spot] != asked.crowd[cluster]) & ~every_long[spot]
    has_met = np.zeros(count, np.bool_)
    if strange.any():
        far, _ = cKDTree(keyed[is_own]).query(keyed[strange])
        has_met[cluster[strange][far < meet * widest]] = True
    # What is long, and in line with a cluster, may be a part of the same line.
    is_beside = lines.off(places[spot], cluster) > _BESIDE * widest
    chosen = np.flatnonzero(lines.is_straight & ~has_met)
    renumbered = np.full(count, -1)
    renumbered[chosen] = np.arange(len(chosen))
    kept = (is_own | is_beside | ~every_long[spot]) & (renumbered[cluster] >= 0)
    background = np.bincount(asked.own, spots["background"][asked.member], count) / lines.size
    made = Clusters(
        places[spot[kept]], every["light"][spot[kept]], renumbered[cluster[kept]], is_own[kept],
        frame[chosen], background[chosen],
    )  # fmt: skip
    return made, chosen, lines.size[chosen]


def gain_of_shapes(
    block: Block, scale: Scale, widths: NDArray[np.float64], is_integrated: bool, clusters: Clusters
) -> Array:
    """Return how much likelier the pixels are with one Gaussian for the spots of a cluster.

    The Gaussian has any place, light, widths and direction: as many numbers as two spots have.
    Either way the background is a plane, and other spots stay as they are. The gain of each
    cluster is a difference of logarithms, in nats.
    """
    count = len(clusters.frame)
    gains = [
        _gain(block, scale, widths**2 + is_integrated / 12, clusters.some(k, k + _AT_ONCE))
        for k in range(0, count, _AT_ONCE)
    ]
    return np.concatenate([np.empty(0), *gains])


def _gain(block: Block, scale: Scale, squares: Array, clusters: Clusters) -> Array:
    """Return :func:`gain_of_shapes` of clusters whose windows are in memory at once."""
    cluster, count = clusters.cluster, len(clusters.frame)
    own_light = clusters.light * clusters.is_own
    total = np.bincount(cluster, own_light, count)

    def mean(values: Array) -> Array:
        found: Array = np.bincount(cluster, own_light * values, count) / total
        return found

    corner = np.column_stack([np.rint(mean(along)) for along in clusters.places.T]).astype(np.int64)
    y, x = (clusters.places - corner[cluster]).T
    data, is_there, down, right = _windows(block, scale, squares, clusters.frame, corner)
    middle_y, middle_x, none = mean(y), mean(x), np.zeros(count)
    start = np.column_stack([
        middle_y, middle_x, total, squares[0] + mean(y * y) - middle_y**2,
        mean(x * y) - middle_y * middle_x, squares[1] + mean(x * x) - middle_x**2,
        clusters.background, none, none,
    ])  # fmt: skip
    square_y, square_x = np.broadcast_to(squares[:, np.newaxis], (2, len(y)))
    numbers = y, x, clusters.light, square_y, np.zeros(len(y)), square_x
    each, _ = _gaussian(numbers, down, right)
    own, others = np.zeros_like(data), np.zeros_like(data)
    np.add.at(own, cluster[clusters.is_own], each[clusters.is_own])
    np.add.at(others, cluster[~clusters.is_own], each[~clusters.is_own])
    of_spots = _lost(start, data, is_there, down, right, squares, own + others, has_shape=False)
    of_shape = _lost(start, data, is_there, down, right, squares, others, has_shape=True)
    gained: Array = (of_spots - of_shape) / 2
    return gained


def _windows(
    block: Block, scale: Scale, squares: Array, frame: NDArray[np.int64], corner: NDArray[np.int64]
) -> tuple[Array, Array, Array, Array]:
    """Return pixels around places, which of them count, and where they are."""
    pixels, first = block.pixels, block.first_row
    reach = np.ceil(_REACH * np.sqrt(squares)).astype(int)
    down, right = (np.arange(-half, half + 1.0) for half in reach)
    down, right = (grid.ravel() for grid in np.meshgrid(down, right, indexing="ij"))
    inside = (down**2 / squares[0] + right**2 / squares[1]) <= _REACH**2
    down, right = down[inside], right[inside]
    rows = corner[:, :1] + down.astype(int) - first
    columns = corner[:, 1:] + right.astype(int)
    at_y = np.clip(rows, 0, pixels.shape[-2] - 1)
    at_x = np.clip(columns, 0, pixels.shape[-1] - 1)
    at = frame[:, np.newaxis], at_y, at_x
    own = np.asarray(to_host(pixels[at]), float)
    is_there = (rows == at_y) & (columns == at_x) & np.isfinite(own)
    if block.bad is not None:
        bad = block.bad
        is_there &= ~to_host(bad[np.minimum(at[0], len(bad) - 1), at_y + first, at_x])
    data = np.where(is_there, own / scale.unit + scale.shift, 0.0)
    return data, is_there * 1.0, down, right


def _gaussian(numbers: Iterable[Array], down: Array, right: Array) -> tuple[Array, list[Array]]:
    """Return Gaussians, and their slopes by place, light and the numbers of the covariance."""
    y, x, light, yy, xy, xx = (values[:, np.newaxis] for values in numbers)
    area = yy * xx - xy**2
    v, u = down - y, right - x
    a, b = (xx * v - xy * u) / area, (yy * u - xy * v) / area
    unit = np.exp(-(a * v + b * u) / 2) / (2 * np.pi * np.sqrt(area))
    value = light * unit
    by_yy, by_xx = (a * a - xx / area) / 2, (b * b - yy / area) / 2
    return value, [value * a, value * b, unit, value * by_yy, value * (a * b + xy / area),
                   value * by_xx]  # fmt: skip


def _lost(
    numbers: Array, data: Array, is_there: Array, down: Array, right: Array, squares: Array,
    known: Array, *, has_shape: bool,
) -> Array:  # fmt: skip
    """Return the least deviance of known light on a plane, perhaps with a Gaussian, by scoring."""
    numbers, best = numbers.copy(), np.full(len(data), np.inf)
    ground = [np.ones_like(data), *(np.broadcast_to(along, data.shape) for along in (down, right))]
    light, slopes = known, list[Array]()
    for _ in range(_STEPS if has_shape else _STEPS_OF_PLANE):
        if has_shape:
            own, slopes = _gaussian(numbers.T[:6], down, right)
            light = known + own
        level = sum(n[:, None] * g for n, g in zip(numbers.T[6:], ground, strict=True))
        mean = np.maximum(light + level, _DARKEST)
        positive = np.maximum(data, 0)
        ratio = np.where(positive > 0, positive / mean, 1.0)
        lost = 2 * (is_there * (mean - data + positive * np.log(ratio))).sum(axis=1)
        best = np.minimum(best, lost)
        jacobian = np.stack([*slopes, *ground], axis=2)
        weighted = jacobian * (is_there / mean)[:, :, None]
        normal = weighted.transpose(0, 2, 1) @ jacobian
        pull = (weighted * (data - mean)[:, :, None]).sum(axis=1)
        size = np.sqrt(np.einsum("bii->bi", normal)) + 1e-30
        normal = normal / (size[:, :, None] * size[:, None]) + 1e-3 * np.eye(len(size[0]))
        step = np.linalg.solve(normal, (pull / size)[:, :, None])[:, :, 0] / size
        numbers[:, -step.shape[1] :] += step
        if has_shape:
            _bound(numbers, squares)
    return best


def _bound(numbers: Array, squares: Array) -> None:
    """Keep the widths of Gaussians within bounds, and their places near where they began."""
    square = squares.mean()
    reach = _REACH / 2 * np.sqrt(square)
    numbers[:, :2] = np.clip(numbers[:, :2], -reach, reach)
    numbers[:, 2] = np.maximum(numbers[:, 2], 0)
    covariance = numbers[:, [3, 4, 4, 5]].reshape(-1, 2, 2)
    along, axes = np.linalg.eigh(covariance)
    along = np.clip(along, _NARROWEST**2 * square, _LONGEST**2 * square)
    covariance = (axes * along[:, None]) @ axes.transpose(0, 2, 1)
    numbers[:, 3:6] = covariance.reshape(-1, 4)[:, [0, 1, 3]]
