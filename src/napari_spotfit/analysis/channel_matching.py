"""Match the spots of two channels, whatever the transform between the channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .linking import Floats, Integers

#: Rotations and magnifications to try.
_ROTATIONS, _SCALES = np.radians(np.arange(-10.0, 11.0, 2.0)), np.arange(0.91, 1.1, 0.03)
_VOTERS, _VOTES, _ROTATED_VOTES, _BINS = 150, 300_000, 60_000, 300_000
#: Size of a bin relative to the distance of spots; number of best votes to follow.
_BIN, _FOLLOWED = 0.2, 3
#: Largest distance of pairs in standard errors, in the plane: 99 % of normal ones.
WITHIN = 3.03
#: Lower bound of standard errors in pixels.
_FINEST = 1e-4
#: Largest number of rounds until pairs do not change.
_ROUNDS = 60
#: Logarithm of the odds against chance that matches must reach.
_CHANCE = math.log(1e4)
#: Number of parts of the field along each axis; least number of pairs to judge a part.
_PARTS, _FEW = 3, 4
#: Another shift with this fraction of the votes makes the match ambiguous.
_RIVAL = 0.6


class Spots(NamedTuple):
    """Positions along y and x, their variances, and the frame of each."""

    places: Floats
    variances: Floats
    frame: Integers

    def part(self, rows: Integers) -> Spots:
        """Return the spots of some rows."""
        return Spots(self.places[rows], self.variances[rows], self.frame[rows])


class Model(NamedTuple):
    """A polynomial of the position for the shift between channels."""

    degree: int
    center: Floats
    scale: float

    @property
    def powers(self) -> list[tuple[int, int]]:
        """Powers of y and x in each term."""
        return [(n - k, k) for n in range(self.degree + 1) for k in range(n + 1)]

    def terms(self, places: Floats) -> Floats:
        """Return the terms at positions, one column each."""
        y, x = ((places - self.center) / self.scale).T
        return np.column_stack([y**m * x**n for m, n in self.powers])

    def slopes(self, places: Floats) -> Floats:
        """Return the derivatives of the terms along y and x, shape (2, n, terms)."""
        y, x = ((places - self.center) / self.scale).T
        along_y = [m * y ** max(m - 1, 0) * x**n for m, n in self.powers]
        along_x = [n * y**m * x ** max(n - 1, 0) for m, n in self.powers]
        return np.array([np.column_stack(one) for one in (along_y, along_x)]) / self.scale


class Fit(NamedTuple):
    """Coefficients of both axes by weighted least squares, and their covariances."""

    model: Model
    coefficients: Floats
    inverse: Floats

    @classmethod
    def of(cls, model: Model, places: Floats, shifts: Floats, variances: Floats) -> Fit:
        """Fit shifts at positions."""
        terms, found, inverse = model.terms(places), [], []
        for axis in range(2):
            weighted = terms.T / variances[:, axis]
            inverse.append(np.linalg.pinv(weighted @ terms))
            found.append(inverse[-1] @ (weighted @ shifts[:, axis]))
        return cls(model, np.array(found).T, np.array(inverse))

    def mapped(self, places: Floats) -> Floats:
        """Map positions to the other channel."""
        return places + self.model.terms(places) @ self.coefficients

    def jacobian(self, places: Floats) -> Floats:
        """Return the derivatives of mapped positions, shape (n, 2, 2): (y, x) by (y, x)."""
        slopes: Floats = self.model.slopes(places) @ self.coefficients
        return np.eye(2) + np.moveaxis(slopes, 0, 2)

    def variances(self, places: Floats) -> Floats:
        """Return the variances of mapped positions due to the coefficients."""
        terms = self.model.terms(places)
        found: Floats = np.einsum("ni,aij,nj->na", terms, self.inverse, terms)
        return found

    def of_both(self, a: Spots, b: Spots) -> Floats:
        """Return the variances of distances between spots and spots mapped onto them."""
        moved: Floats = np.einsum("nij,nj->ni", self.jacobian(b.places) ** 2, b.variances)
        return a.variances + moved


class Matches(NamedTuple):
    """Rows of matching spots, the fit to them, and the factor for their variances."""

    a: Integers
    b: Integers
    fit: Fit
    dispersion: float


def find_matches(a: Spots, b: Spots, degree: int, *, rotated: bool) -> Matches:
    """Match the spots of two channels, and fit the polynomial that maps b onto a.

    Raises
    ------
    ValueError
        If there are no more matches than by chance, or several ways to match.
    """
    matcher, in_part = _Matcher(a, b, degree), False
    for starts in matcher.starts(rotated=rotated):
        best: tuple[float, Matches] | None = None
        for found in filter(None, map(matcher.grown, starts)):
            certainty, everywhere = matcher.certainty(found)
            in_part |= certainty > 0
            if certainty > 0 and everywhere and (best is None or certainty > best[0]):
                best = certainty, found
        if best is not None:
            matcher.refuse_rivals(best[1])
            return best[1]
    if in_part:
        raise ValueError(
            "the spots match only in a part of the field: register by spots that both channels "
            "show everywhere, or by a more flexible model, such as 'polynomial'"
        )
    transforms = ", rotated by up to 10°, magnified by up to 10 % or mirrored" if rotated else ""
    raise ValueError(
        "no more spots of the channels lie on each other than by chance, however one of them is "
        f"shifted{transforms}: are they of one field, and of spots that both show, such as beads?"
    )


class _Matcher:
    """Searches matches: spots vote for a shift, then pairs are refined."""

    def __init__(self, a: Spots, b: Spots, degree: int) -> None:
        from scipy.spatial import cKDTree  # imported here, as that takes long

        self.tree_of = cKDTree
        self.a, self.b, self.degree = a, b, degree
        self.extent = float(np.ptp(a.places, axis=0).max() + np.ptp(b.places, axis=0).max())
        #: Distance between frames in the tree, so that spots of different frames are never near.
        self.apart = 100.0 * self.extent
        self.tree = self.tree_of(self.with_frame(a.places, a.frame))
        known = np.unique(self.with_frame(b.places, b.frame), axis=0)
        # The third neighbour, as the first may be the same spot, found twice.
        near = self.tree_of(known).query(known, min(4, len(known)))[0][:, -1]
        self.spacing = 1.1 * float(np.median(near[np.isfinite(near)]))
        self.spacing = min(self.spacing, self.extent / 4)
        self.middle = np.median(a.places, axis=0)
        self.votes = self._votes()

    def with_frame(self, places: Floats, frame: Integers) -> Floats:
        return np.column_stack([places, frame * self.apart])

    def _votes(self) -> tuple[Integers, Integers]:
        """Return central spots of a, and the spots of b that each may match."""
        middle = self.middle
        far = ((self.a.places - middle) ** 2).sum(axis=1)
        voters = np.argsort(far, kind="stable")[:_VOTERS]
        own = np.flatnonzero(np.isin(self.b.frame, self.a.frame[voters]))
        order = np.argsort(((self.b.places[own] - middle) ** 2).sum(axis=1), kind="stable")
        own = own[order]
        share = max(int(_VOTES * max(len(np.unique(self.a.frame[voters])), 1) / len(voters)), 1)
        own = own[:share]
        pairs = self.a.frame[voters][:, np.newaxis] == self.b.frame[own]
        one, other = np.nonzero(pairs)
        return voters[one], own[other]

    def starts(self, *, rotated: bool) -> Iterator[list[Fit]]:
        """Yield initial maps: the plain shift, then rotated ones, then mirrored ones."""
        yield self._best([np.eye(2)])
        if not rotated:
            return
        for mirrored in itertools.product((1.0, -1.0), repeat=2):
            maps = []
            for rotation, scale in itertools.product(_ROTATIONS, _SCALES):
                cosine, sine = scale * math.cos(rotation), scale * math.sin(rotation)
                maps.append(np.array([[cosine, sine], [-sine, cosine]]) @ np.diag(mirrored))
            yield self._best(maps)

    def _best(self, maps: list[Floats]) -> list[Fit]:
        """Return the few maps with the most votes, each with its shift."""
        ranked: list[tuple[float, int, Floats, Floats]] = []
        one, other = self.votes
        if len(maps) > 1:  # central spots only, to save time
            near = np.argsort(
                ((self.b.places[other] - self.middle) ** 2).sum(axis=1), kind="stable"
            )
            near = near[:_ROTATED_VOTES]
            one, other = one[near], other[near]
        # Each axis in a row of its own, which is several times as fast.
        here, there = (np.ascontiguousarray(places.T) for places in
                       (self.a.places[one], self.b.places[other]))  # fmt: skip
        for number, linear in enumerate(maps):
            shifts = here - linear @ there
            score, shift, _ = self._peak(shifts, _BIN * self.spacing)
            ranked.append((score, -number, linear, shift))
        starts, best = [], sorted(ranked, key=lambda entry: entry[:2], reverse=True)
        for _, _, linear, shift in best[:_FOLLOWED]:
            model = Model(1, np.zeros(2), 1.0)
            coefficients = np.vstack([shift, (linear - np.eye(2)).T])
            starts.append(Fit(model, coefficients, np.zeros((2, 3, 3))))
        return starts

    def _peak(self, shifts: Floats, width: float) -> tuple[float, Floats, NDArray[np.float64]]:
        """Return significance and position of the highest peak of shifts, and all counts.

        Each row of the shifts is an axis.
        """
        from scipy.ndimage import uniform_filter

        if not shifts.size:
            return 0.0, np.zeros(2), np.zeros((1, 1))
        low, high = shifts.min(axis=1), shifts.max(axis=1)
        width = max(width, math.sqrt(float(np.prod(high - low)) / _BINS), 1e-9)
        counts = np.ceil((high - low) / width).astype(int) + 2
        rows, columns = ((shifts - low[:, np.newaxis]) / width).astype(int)
        flat = np.bincount(rows * counts[1] + columns, minlength=counts.prod())
        votes = flat.reshape(counts).astype(float)
        # A peak may lie between bins, so sum four.
        four = votes.copy()
        four[:-1] += votes[1:]
        four[:, :-1] += four[:, 1:]
        usual = 4 * uniform_filter(votes, 15, mode="constant")
        score = (four - usual) / np.sqrt(usual + 1)
        top = np.unravel_index(int(np.argmax(score)), score.shape)
        return float(score[top]), low + (np.array(top) + 1) * width, four

    def pairs(self, mapped: Floats, rows: Integers, gate: float) -> tuple[Integers, Integers]:
        """Return spots that are mutual nearest neighbours within the gate."""
        own = self.with_frame(mapped[rows], self.b.frame[rows])
        distance, nearest = self.tree.query(own, distance_upper_bound=max(gate, 1e-12))
        there = np.flatnonzero(np.isfinite(distance))
        if not len(there):
            return there, there
        back = self.tree_of(own).query(self.tree.data[nearest[there]])[1]
        both = there[back == there]
        return nearest[both].astype(np.int64), rows[both]

    def grown(self, start: Fit) -> Matches | None:
        """Grow matches from an initial map, from the centre outwards; None if that fails."""
        if not len(self.votes[0]):
            return None
        fit, gate = start, 2 * _BIN * self.spacing
        middle = self.middle
        reach = np.abs(self.a.places[self.votes[0]] - middle).max() + self.spacing
        scale = max(float(np.ptp(self.b.places, axis=0).max()) / 2, 1e-9)
        center = self.b.places.mean(axis=0)
        terms = (self.degree + 1) * (self.degree + 2) // 2
        spread = gate / 3
        one = other = np.empty(0, np.int64)
        for iteration in range(_ROUNDS):
            mapped = fit.mapped(self.b.places)
            if iteration < 3:
                rows = np.flatnonzero((np.abs(mapped - middle) <= reach).all(axis=1))
            else:
                # Use only spots at which the map is known precisely enough.
                sure = spread**2 * fit.variances(self.b.places).sum(axis=1) <= (gate / 2) ** 2
                rows = np.flatnonzero(sure)
            before = other
            one, other = self.pairs(mapped, rows, gate)
            if len(one) < terms + 2:
                return None
            same = np.array_equal(before, other)
            degree = self.degree if len(one) >= 4 * terms else min(self.degree, 1)
            shifts = self.a.places[one] - self.b.places[other]
            even = np.ones((len(one), 2))
            fit = Fit.of(Model(degree, center, scale), self.b.places[other], shifts, even)
            away = self.a.places[one] - fit.mapped(self.b.places[other])
            spread = max(float(np.median(np.hypot(*away.T))) / 1.1774, _FINEST)
            smaller = 4 * spread
            if same and (smaller >= gate or iteration > _ROUNDS - 5):
                break
            gate = min(gate, max(smaller, 0.8 * gate)) if iteration >= 2 else gate
        return self._settled(fit, Model(self.degree, center, scale), one, other, gate)

    def _settled(
        self, fit: Fit, model: Model, one: Integers, other: Integers, gate: float
    ) -> Matches | None:
        """Match by the spots' own errors until pairs do not change; None if they do not settle."""
        terms = len(model.powers)
        dispersion = 1.0
        for _ in range(_ROUNDS // 2):
            a, b = self.a.part(one), self.b.part(other)
            variances = fit.of_both(a, b)
            fit = Fit.of(model, b.places, a.places - b.places, variances)
            away = (a.places - fit.mapped(b.places)) ** 2 / variances
            # Median of normal deviates along two axes, corrected for truncation.
            free = max(1 - terms / len(one), 0.05)
            dispersion = float(np.median(away.sum(axis=1))) / (2 * math.log(2)) / free
            dispersion = max(dispersion, _FINEST**2 / float(variances.mean()))
            mapped = fit.mapped(self.b.places)
            known = dispersion * fit.variances(self.b.places).sum(axis=1) <= (gate / 2) ** 2
            widest = WITHIN * math.sqrt(dispersion * float(variances.max()))
            new_one, new_other = self.pairs(mapped, np.flatnonzero(known), min(widest, gate))
            a, b = self.a.part(new_one), self.b.part(new_other)
            away = (a.places - mapped[new_other]) ** 2 / fit.of_both(a, b)
            near = away.sum(axis=1) <= WITHIN**2 * dispersion
            new_one, new_other = new_one[near], new_other[near]
            if len(new_one) < terms + 2:
                return None
            if np.array_equal(new_other, other) and np.array_equal(new_one, one):
                break
            one, other = new_one, new_other
        return Matches(one, other, fit, dispersion)

    def certainty(self, found: Matches) -> tuple[float, bool]:
        """Return the log odds against chance, and whether all parts of the field match.

        Chance is measured by shifts, and corrected for the number of different maps.
        """
        a, b = self.a.part(found.a), self.b.part(found.b)
        reach = WITHIN * np.sqrt(found.dispersion * found.fit.of_both(a, b).mean())
        mapped = found.fit.mapped(self.b.places)
        low, high = a.places.min(axis=0) - reach, a.places.max(axis=0) + reach
        rows = np.flatnonzero(((mapped >= low) & (mapped <= high)).all(axis=1))
        area = float(np.prod(np.maximum(high - low, reach)))
        frames = np.bincount(np.unique(self.b.frame[rows], return_inverse=True)[1])
        density = float((frames**2).sum()) * math.pi * reach**2 / area
        # With few spots, no shift may show a pair, so use the density as a lower bound.
        least = density if len(rows) < 1000 else density / 10
        pairs, freedom = len(found.a), 2 * len(found.fit.model.powers)
        tried = freedom * math.log(max(self.extent / reach, math.e)) + math.log(400)

        def odds(expected: float, scatter: float) -> float:
            if pairs <= expected:
                return -math.inf
            beyond = pairs * math.log(pairs / expected) - pairs + expected
            return beyond / scatter - tried - _CHANCE

        if odds(least, 1.0) <= 0:  # shifts cannot show that there are fewer by chance
            return -math.inf, False
        random = np.random.default_rng(0)
        times = int(np.clip(50_000 / max(len(rows), 1), 16, 400))
        angles, ways = random.uniform(0, 2 * math.pi, times), random.uniform(3, 10, times) * reach
        shifts = ways[:, np.newaxis] * np.column_stack([np.sin(angles), np.cos(angles)])
        parts = np.clip((_PARTS * (mapped - low) / (high - low)).astype(int), 0, _PARTS - 1)
        part = parts @ [_PARTS, 1]
        by_part = np.array([
            np.bincount(part[self.pairs(mapped + one, rows, reach)[1]], minlength=_PARTS**2)
            for one in shifts
        ])  # fmt: skip
        counts, own = by_part.sum(axis=1), np.bincount(part[found.b], minlength=_PARTS**2)
        by_chance = (own >= _FEW) & (own < 2 * by_part.mean(axis=0))
        expected = max(float(counts.mean()), least)
        scatter = max(float(counts.var()) / expected, 1.0)
        return odds(expected, scatter), not by_chance.any()

    def refuse_rivals(self, found: Matches) -> None:
        """Raise a ValueError if another shift matches nearly as many spots."""
        one, other = self.votes
        reach = WITHIN * math.sqrt(
            found.dispersion
            * float(found.fit.of_both(self.a.part(found.a), self.b.part(found.b)).mean())
        )
        shifts = self.a.places[one] - found.fit.mapped(self.b.places[other])
        # Only shifts within the range of bins of this width.
        shifts = shifts[(np.abs(shifts) <= math.sqrt(_BINS) / 2 * reach).all(axis=1)]
        inside = (np.abs(shifts) <= reach).all(axis=1)
        _, _, counts = self._peak(shifts[~inside].T, reach)
        usual = float(counts[counts > 0].mean()) if counts.any() else 0.0
        own = np.count_nonzero(inside)
        rival = float(counts.max()) - usual
        if rival >= _RIVAL * max(own - usual, 1.0) and rival > 3:
            raise ValueError(
                "the spots match in several ways, like those of a lattice: after another shift, "
                "nearly as many match. Register by spots at irregular positions"
            )
