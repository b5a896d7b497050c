"""How much a sample moves beside an estimated drift, as within a segment of a movie.

Molecules of both halves of the field move together, while their errors are independent: so what
both halves are off by at the same time is motion, however few are seen at that time, and however
molecules blink or lie along structures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]

#: Most localisations that are looked at, and most that are compared with others.
MOST, QUERIES = 60_000, 16_000
#: Mean number of partners of one.
_PARTNERS = 16.0
#: Width of the overlap, within what distance partners are, and how many times as much it is for a
#: motion that is not small.
_WIDTH, REACH, WIDER = 2.0, 8.0, 4.0
#: Side of a square of the field that is taken or not, in errors.
_SQUARE = 32.0
#: Positions whose squares are found at once.
AT_ONCE = 1 << 16
#: Most bins of time.
_BINS = 2048
#: Least curvature of the overlap that counts.
_LEAST_CURVATURE = 0.25
#: Part of segments that are left out, as jumps are in these.
_LEFT_OUT = 0.1
#: Least mean square of a motion in its errors: one that is likely, that counts in its
#: segment, and that is certain.
_LIKELY, _LOCAL, _LEAST = 2.0, 4.0, 5.0


class Sample(NamedTuple):
    """Some localisations less the drift of their half of the field, in the order of frames."""

    places: Singles  # in units of their errors, shape (axes, n)
    frame: Integers
    half: NDArray[np.bool_]


class Close(NamedTuple):
    """Localisations that lie side by side."""

    own: Integers
    other: Integers
    apart: Singles  # how far the other is from the own one, shape (axes, pairs)


class Motion(NamedTuple):
    """How much a sample moves beside its drift, in errors²."""

    square: Floats  # mean square along each axis, where there is no jump; 0 if it is unlikely
    is_real: bool  # whether that is certain
    local: Floats  # the same of each segment where it is certain, shape (segments, axes)


def chosen(places: Singles, share: float) -> NDArray[np.bool_]:
    """Return which positions are in a part of the field, of many small squares."""
    down, across = (np.floor(axis / np.float32(_SQUARE)).astype(np.int64) for axis in places[:2])
    mixed = (down * 0x9E3779B1 ^ across * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed >> 15) ^ mixed) * 0x2C1B3C6D & 0xFFFFFFFF
    return np.asarray((mixed >> 12) % 4096 < share * 4096)


def close_pairs(sample: Sample, wider: float = 1.0, queries: int = QUERIES) -> Close:
    """Return pairs of localisations within reach of each other, or farther, of a part of them."""
    from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

    points = np.ascontiguousarray(sample.places[:2].T, float)
    count = len(points)
    reach = REACH * wider
    cells = np.floor((points - points.min(axis=0)) / reach).astype(np.int64)
    _, sizes = np.unique(cells[:, 0] * (cells[:, 1].max() + 1) + cells[:, 1], return_counts=True)
    every = max(1, round(np.pi * float(np.square(sizes, dtype=float).sum()) / count / _PARTNERS))
    rng = np.random.default_rng(0)
    own_queries = np.sort(rng.permutation(count)[:queries])
    others = np.sort(rng.permutation(count)[: -(-count // every)])
    tree, beside = cKDTree(points[own_queries]), cKDTree(points[others])
    near = tree.sparse_distance_matrix(beside, reach, output_type="ndarray")
    own, other = own_queries[near["i"]], others[near["j"]]
    kept = own != other
    if len(sample.places) > 2:
        depth = sample.places[2]
        kept &= np.abs(depth[own] - depth[other]) < reach
    own, other = own[kept], other[kept]
    return Close(own, other, sample.places[:, other] - sample.places[:, own])


def motion_within(
    sample: Sample,
    pairs: Close,
    starts: Integers,
    jumping: NDArray[np.bool_],
    wider: float = 1.0,
) -> Motion:
    """Return how much a sample moves beside its drift.

    Parameters
    ----------
    sample, pairs
        Localisations less drift, and which are close to each other.
    starts : ndarray of int64
        First frame of each segment, and the one after the last.
    jumping : ndarray of bool
        In which segments the sample jumps, so that the motion there is none of the movie.
    wider : float, default 1
        Larger for a motion farther than the usual reach.
    """
    segment = np.searchsorted(starts, sample.frame, side="right") - 1
    apart = pairs.apart[:, segment[pairs.own] != segment[pairs.other]]
    own = pairs.own[segment[pairs.own] != segment[pairs.other]]
    square = np.square(apart).sum(axis=0)
    width = _WIDTH * wider
    weight = np.exp(-square / (4 * width**2)).astype(float)
    span = int(starts[-1] - starts[0])
    unit = -(-span // _BINS)
    bins = -(-span // unit)
    time = (sample.frame[own] - starts[0]) // unit
    index = time + bins * sample.half[own]
    weights = np.bincount(index, weight, 2 * bins).reshape(2, bins)
    count = len(starts) - 1
    of_bin = np.clip(
        np.searchsorted(starts, starts[0] + np.arange(bins) * unit, "right") - 1, 0, count - 1
    )
    scales = [0]
    while (scales[-1] * 2 + 1) * unit < span / count / 4:
        scales.append(2 * scales[-1] + 1)
    found, local, is_real = np.zeros(len(apart)), np.zeros((count, len(apart))), False
    for axis, along in enumerate(apart):
        curvature = 1 - float(weight @ np.square(along)) / max(weight.sum(), 1e-9) / (2 * width**2)
        gain = max(curvature, _LEAST_CURVATURE) ** 2
        pulls = np.bincount(index, weight * along, 2 * bins).reshape(2, bins)
        for scale in scales:
            products = (
                pulls[0] * _around(pulls[1], scale),
                np.square(pulls[0]) * np.maximum(_around(np.square(pulls[1]), scale), 0),
                weights[0] * _around(weights[1], scale),
            )
            total, variance, norm = (np.bincount(of_bin, one, count) for one in products)
            own = np.where(total > _LOCAL * np.sqrt(variance), total / np.maximum(norm, 1e-9), 0)
            local[:, axis] = np.maximum(local[:, axis], own / gain)
            order = np.argsort(total)[: count - max(1, int(_LEFT_OUT * count))]
            kept = order[~jumping[order]]
            whole, error = float(total[kept].sum()), float(variance[kept].sum()) ** 0.5
            if error > 0 and whole > _LIKELY * error:
                is_real |= whole > _LEAST * error
                found[axis] = max(found[axis], whole / float(norm[kept].sum()) / gain)
    return Motion(found, is_real, local)


def _around(values: Floats, scale: int) -> Floats:
    """Return the sums of values and of this number before and after each."""
    sums = np.concatenate([np.zeros(scale + 1), np.cumsum(values), np.full(scale, values.sum())])
    found: Floats = sums[2 * scale + 1 :] - sums[: len(values)]
    return found
