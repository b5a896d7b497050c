"""Find the drift between segments of a movie by redundant cross-correlation of their images (RCC).

Every pair of segments is correlated over half of the field in coarse pixels. The shifts that agree
say about where each segment is; then the differences of positions near there say it finely.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.threads import available
from .drift_overlap import Groups, Singles, without_drift

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Side of a coarse pixel in errors of a localisation, at least, and most pixels along an axis.
_PIXEL, _MOST_PIXELS = 3.0, 512
#: Largest shift that is searched, as part of the field.
_FARTHEST = 0.5
#: Widths of a peak, and of its surroundings that it is compared with, in coarse pixels.
_PEAK, _AROUND = 1.0, 4.0
#: Largest difference of coarse shifts that agree, in coarse pixels, and rounds to find these.
_AGREE, _TURNS = 3.0, 4
#: Least part of a segment's pairs that agree.
_LEAST_SHARE = 0.2
#: Least distance within which positions are compared, in errors, and in steps between segments.
_REACH, _STEPS = 12.0, 1.5
#: Most positions of one segment that are compared with those of another, by expected partners.
_MOST_DIFFERENCES = 30_000
#: Most iterations to the centre and width of a peak of differences, the step at which they end in
#: errors, and its least variance in errors².
_ITERATIONS, _SETTLED, _LEAST_VARIANCE = 30, 1e-3, 1.0
#: Least logarithm of likelihood by which a peak is better than none.
_LEAST_GAIN = 10.0
#: Reweightings of pairs, and the width of Cauchy's weight in units of the scatter.
_ROUNDS, _CAUCHY = 5, 3.0
#: Median absolute deviate of a normal distribution.
_MAD = 0.6745


class Correlated(NamedTuple):
    """Drift of each segment along y and x in errors, NaN where unknown: of all, and halves."""

    whole: Floats
    halves: tuple[Floats, Floats]


class _Shifts(NamedTuple):
    """How far the second segment of each pair is from the first, along y and x."""

    pairs: Integers  # the two segments of each
    shift: Floats
    weight: Floats  # 1 / error², or how far a peak stands out; 0 without a peak

    def of(self, chosen: NDArray[np.bool_]) -> _Shifts:
        return _Shifts(self.pairs[chosen], self.shift[chosen], self.weight[chosen])


def correlated_drift(
    places: Singles, segment: Groups, half: NDArray[np.bool_], segments: int
) -> Correlated:
    """Return the drift of each segment along y and x.

    Parameters
    ----------
    places : ndarray of float32, shape (2, n)
        Positions along y and x in units of their errors.
    segment : ndarray of int32, shape (n,)
        The segment of each, in rising order.
    half : ndarray of bool, shape (n,)
        In which half of the field it is.
    segments : int
        Number of segments.
    """
    coarse, pixel = _coarse_shifts(places, segment, segments)
    rough = _consistent(coarse, segments, _AGREE * pixel)
    moved = without_drift(places, np.nan_to_num(rough), segment)
    known = np.isfinite(rough[:, 0])
    steps = np.diff(rough[known], axis=0)
    reach = max(_REACH, pixel, _STEPS * float(np.abs(steps).max(initial=0)))
    starts = np.searchsorted(segment, np.arange(segments + 1))
    pairs = coarse.pairs[known[coarse.pairs].all(axis=1)]
    found = [_fine_shifts(moved, half, starts, pair, reach) for pair in pairs]
    whole, *halves = (
        rough
        + _agreeing(
            _Shifts(
                pairs,
                np.array([one[kind][:2] for one in found]).reshape(-1, 2),
                np.array([one[kind][2] for one in found]),
            ),
            segments,
        )
        for kind in range(3)
    )
    return Correlated(whole, (halves[0], halves[1]))


def _coarse_shifts(places: Singles, segment: Groups, segments: int) -> tuple[_Shifts, float]:
    """Return the shifts of all pairs by their images, and the side of a pixel of these."""
    from scipy import fft  # here, as SciPy takes its time to import

    places = places - places.min(axis=1, keepdims=True)
    padded = (1 + _FARTHEST) * places.max(axis=1)
    side = max(_PIXEL, float(padded.max()) / _MOST_PIXELS)
    pixels = (places / side).astype(np.int64)
    sizes = [fft.next_fast_len(int(one / side) + 2, real=True) for one in padded]
    index = (segment * sizes[0] + pixels[0]) * sizes[1] + pixels[1]
    counts = np.bincount(index, minlength=segments * sizes[0] * sizes[1])
    images = counts.reshape(segments, *sizes).astype(np.float32)
    spectra = fft.rfft2(images, workers=available())
    along = fft.fftfreq(sizes[0])[:, np.newaxis], fft.rfftfreq(sizes[1])
    square = 2 * (np.pi**2) * (along[0] ** 2 + along[1] ** 2)
    peaked = (np.exp(-square * _PEAK**2) - np.exp(-square * _AROUND**2)).astype(np.float32)
    filtered = np.conj(spectra) * peaked
    pairs = np.array(list(combinations(range(segments), 2)))
    half = [int(_FARTHEST * places[axis].max() / side) for axis in (0, 1)]
    found = np.array([
        _highest(fft.irfft2(filtered[a] * spectra[b], sizes, workers=available()), half)
        for a, b in pairs
    ])  # fmt: skip
    return _Shifts(pairs, found[:, :2] * side, found[:, 2]), side


def _highest(image: NDArray[np.float32], half: list[int]) -> Floats:
    """Return the place of the highest peak from the middle, and its height over the scatter."""
    reach = [np.arange(-most, most + 1) for most in half]
    near = image[np.ix_(*reach)]
    peak = np.unravel_index(near.argmax(), near.shape)
    around = tuple(slice(max(int(one) - 1, 0), int(one) + 2) for one in peak)
    weights = np.maximum(near[around], 0).astype(float)
    centre = [
        float((weights * axis).sum() / weights.sum()) + one.start - most if weights.any() else 0.0
        for axis, one, most in zip(np.indices(weights.shape), around, half, strict=True)
    ]
    height = float(near[peak]) / max(float(near.std()), 1e-9)
    return np.array([*centre, height])


def _consistent(shifts: _Shifts, segments: int, tolerance: float) -> Floats:
    """Return the place of each segment that most pairs agree with, NaN where there is none."""
    from scipy.sparse import csgraph, csr_array

    # The clearest peaks that tie all segments to each other.
    a, b = shifts.pairs.T
    strength = csr_array((-shifts.weight, (a, b)), (segments, segments))
    tree = csgraph.minimum_spanning_tree(strength).tocoo()
    chosen = np.isin(a * segments + b, tree.row.astype(np.int64) * segments + tree.col)
    for _ in range(_TURNS):
        own = shifts.of(chosen)
        places = _agreeing(own._replace(weight=np.ones(len(own.weight))), segments)
        apart = shifts.shift - (places[b] - places[a])
        chosen = np.asarray((np.abs(np.nan_to_num(apart, nan=np.inf)) < tolerance).all(axis=1))
    counts = np.bincount(shifts.pairs[chosen].ravel(), minlength=segments)
    known = counts >= max(_LEAST_SHARE * (segments - 1), 2)
    kept = chosen & known[a] & known[b]
    return _agreeing(shifts.of(kept)._replace(weight=np.ones(int(kept.sum()))), segments)


def _fine_shifts(
    places: Singles, half: NDArray[np.bool_], starts: Integers, pair: Integers, reach: float
) -> list[tuple[float, float, float]]:
    """Return shift and weight of a pair of segments, of all positions and of each half."""
    one, other = (slice(starts[number], starts[number + 1]) for number in pair)
    differences, own = _differences(places[:, one], places[:, other], reach)
    of_half = half[one][own]
    return [
        _centre(differences[:, chosen], reach)
        for chosen in (slice(None), np.flatnonzero(~of_half), np.flatnonzero(of_half))
    ]


def _differences(one: Singles, other: Singles, reach: float) -> tuple[Floats, Integers]:
    """Return how far others are from points, within a reach, along y and x; and these points."""
    from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

    points = np.ascontiguousarray(one.T, float), np.ascontiguousarray(other.T, float)
    tree = cKDTree(points[1])
    rows = np.arange(len(points[0]))
    sample = rows[:: max(len(rows) // 1000, 1)]
    usual = tree.query_ball_point(points[0][sample], reach, return_length=True).mean()
    every = max(round(len(rows) * float(usual) / _MOST_DIFFERENCES), 1)
    rows = rows[::every]
    near = cKDTree(points[0][rows]).sparse_distance_matrix(tree, reach, output_type="ndarray")
    own = rows[near["i"]]
    return np.ascontiguousarray((points[1][near["j"]] - points[0][own]).T), own


def _centre(differences: Floats, reach: float) -> tuple[float, float, float]:
    """Return the centre of a peak on a level background, and 1 / error² of it; 0 for no peak.

    Differences along y and x are those within a reach of where the peak is expected.
    """
    centre, count = np.zeros(2), differences.shape[1]
    if count < 2:
        return 0.0, 0.0, 0.0
    level = 1 / (np.pi * reach**2)
    variance, share = (reach / 3) ** 2, 0.5
    gain = members = 0.0
    for _ in range(_ITERATIONS):
        square = (differences[0] - centre[0]) ** 2 + (differences[1] - centre[1]) ** 2
        peak = share / (2 * np.pi * variance) * np.exp(-square / (2 * variance))
        total = peak + (1 - share) * level
        weights = peak / total
        members = float(weights.sum())
        gain = float(np.log(total / level).sum())
        if members < 1:
            return 0.0, 0.0, 0.0
        step = differences @ weights / members - centre
        # The mean square around the new centre.
        before, variance = variance, float(weights @ square / members - step @ step) / 2
        centre = centre + step
        variance, share = max(variance, _LEAST_VARIANCE), min(members / count, 0.999)
        if np.abs(step).max() < _SETTLED and abs(variance / before - 1) < _SETTLED:
            break
    if gain < _LEAST_GAIN:
        return 0.0, 0.0, 0.0
    return float(centre[0]), float(centre[1]), members / variance


def _agreeing(shifts: _Shifts, segments: int) -> Floats:
    """Return the places that shifts are differences of, NaN for segments that none ties to most.

    Pairs that deviate have less weight; the mean place is 0.
    """
    from scipy.sparse import csgraph, csr_array

    places = np.full((segments, 2), np.nan)
    tied = shifts.of(shifts.weight > 0)
    graph = csr_array((np.ones(len(tied.pairs)), tuple(tied.pairs.T)), (segments, segments))
    part = csgraph.connected_components(graph, directed=False)[1]
    own = np.flatnonzero(part == np.bincount(part).argmax())
    tied = tied.of(np.asarray(np.isin(tied.pairs[:, 0], own)))
    if len(own) < 2:
        return places
    row = np.arange(len(tied.pairs))
    design = np.zeros((len(row), len(own)))
    for column, sign in ((0, -1.0), (1, 1.0)):
        design[row, np.searchsorted(own, tied.pairs[:, column])] = sign
    for axis in (0, 1):
        weights, shift = tied.weight, tied.shift[:, axis]
        for _ in range(_ROUNDS):
            normal = design.T @ (weights[:, np.newaxis] * design)
            places[own, axis] = np.linalg.pinv(normal) @ (design.T @ (weights * shift))
            residuals = (shift - design @ places[own, axis]) * np.sqrt(tied.weight)
            scatter = max(float(np.median(np.abs(residuals))) / _MAD, 1e-9)
            weights = tied.weight / (1 + (residuals / (_CAUCHY * scatter)) ** 2)
    return places
