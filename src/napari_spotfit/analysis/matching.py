"""Find which spots of two channels are the same, however one channel lies on the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .pairing import Floats, Integers

#: Degrees and magnifications that are tried, and how many spots vote for a shift at most.
_TURNS, _SCALES = np.radians(np.arange(-10.0, 11.0, 2.0)), np.arange(0.91, 1.1, 0.03)
_VOTERS, _VOTES, _TURNED_VOTES, _BINS = 150, 300_000, 60_000, 300_000
#: Bins are this share of the distance between spots; the best few votes are followed.
_BIN, _FOLLOWED = 0.2, 3
#: Pairs count within so many standard errors along both axes: 99 % of normal ones.
WITHIN = 3.03
#: No spots are known better than so many pixels.
_FINEST = 1e-4
#: Rounds until pairs stay as they are, at most.
_ROUNDS = 60
#: Chance may bring about pairs as good as these once in so many times.
_CHANCE = math.log(1e4)
#: The field is looked at in so many parts along each axis; so few pairs in one show nothing.
_PARTS, _FEW = 3, 4
#: Another shift with this share of the votes may be the right one as well.
_RIVAL = 0.6


class Spots(NamedTuple):
    """Positions along y and x, their variances, and the frame of each."""

    places: Floats
    variances: Floats
    frame: Integers

    def part(self, rows: Integers) -> Spots:
        """Return some of the spots."""
        return Spots(self.places[rows], self.variances[rows], self.frame[rows])


class Model(NamedTuple):
    """How far a channel is from the other, in terms of the position: a polynomial of a degree."""

    degree: int
    center: Floats
    scale: float

    @property
    def powers(self) -> list[tuple[int, int]]:
        """The powers of y and x in each term."""
        return [(n - k, k) for n in range(self.degree + 1) for k in range(n + 1)]

    def terms(self, places: Floats) -> Floats:
        """Return the terms at positions, a column for each."""
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
        """Return where positions lie in the other channel."""
        return places + self.model.terms(places) @ self.coefficients

    def jacobian(self, places: Floats) -> Floats:
        """Return the derivatives of mapped positions, shape (n, 2, 2): (y, x) by (y, x)."""
        slopes: Floats = self.model.slopes(places) @ self.coefficients
        return np.eye(2) + np.moveaxis(slopes, 0, 2)

    def variances(self, places: Floats) -> Floats:
        """Return the variances of mapped positions that come from the coefficients."""
        terms = self.model.terms(places)
        found: Floats = np.einsum("ni,aij,nj->na", terms, self.inverse, terms)
        return found

    def of_both(self, a: Spots, b: Spots) -> Floats:
        """Return the variances of the distance between spots and those mapped onto them."""
        moved: Floats = np.einsum("nij,nj->ni", self.jacobian(b.places) ** 2, b.variances)
        return a.variances + moved


class Matches(NamedTuple):
    """Which spots are the same, the fit to them, and what standard errors were multiplied by."""

    a: Integers
    b: Integers
    fit: Fit
    dispersion: float


def find_matches(a: Spots, b: Spots, degree: int, *, turned: bool) -> Matches:
    """Return which spots of two channels are the same, and the polynomial that maps b onto a.

    Raises
    ------
    ValueError
        If there are no more than chance brings about, or several ways to match them.
    """
    matcher, in_part = _Matcher(a, b, degree), False
    for starts in matcher.starts(turned=turned):
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
            "the spots lie on each other in a part of the field only: register by spots that both "
            "channels show everywhere, or by a model that bends more, such as 'polynomial'"
        )
    turns = ", turned by up to 10°, magnified by up to 10 % or mirrored" if turned else ""
    raise ValueError(
        "no more spots of the channels lie on each other than by chance, however one of them is "
        f"shifted{turns}: are they of one field, and of spots that both show, such as beads?"
    )


class _Matcher:
    """The search for matches: votes for a shift, then pairs that fit better and better."""

    def __init__(self, a: Spots, b: Spots, degree: int) -> None:
        from scipy.spatial import cKDTree  # here, as SciPy takes its time to import

        self.tree_of = cKDTree
        self.a, self.b, self.degree = a, b, degree
        self.extent = float(np.ptp(a.places, axis=0).max() + np.ptp(b.places, axis=0).max())
        #: Frames are so far apart that no spots of two of them are near.
        self.apart = 100.0 * self.extent
        self.tree = self.tree_of(self.with_frame(a.places, a.frame))
        known = np.unique(self.with_frame(b.places, b.frame), axis=0)
        # The third neighbour: the first may be the same spot, found twice.
        near = self.tree_of(known).query(known, min(4, len(known)))[0][:, -1]
        self.spacing = 1.1 * float(np.median(near[np.isfinite(near)]))
        self.spacing = min(self.spacing, self.extent / 4)
        self.middle = np.median(a.places, axis=0)
        self.votes = self._votes()

    def with_frame(self, places: Floats, frame: Integers) -> Floats:
        return np.column_stack([places, frame * self.apart])

    def _votes(self) -> tuple[Integers, Integers]:
        """Return spots of a around their middle, and those of b that each may match."""
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

    def starts(self, *, turned: bool) -> Iterator[list[Fit]]:
        """Yield maps to begin with: the plain shift, then turned ones, then mirrored ones."""
        yield self._best([np.eye(2)])
        if not turned:
            return
        for mirrored in itertools.product((1.0, -1.0), repeat=2):
            maps = []
            for turn, scale in itertools.product(_TURNS, _SCALES):
                cosine, sine = scale * math.cos(turn), scale * math.sin(turn)
                maps.append(np.array([[cosine, sine], [-sine, cosine]]) @ np.diag(mirrored))
            yield self._best(maps)

    def _best(self, maps: list[Floats]) -> list[Fit]:
        """Return the few maps for which most spots vote, with the shift they vote for."""
        ranked: list[tuple[float, int, Floats, Floats]] = []
        one, other = self.votes
        if len(maps) > 1:  # near the middle, as each takes its time
            near = np.argsort(
                ((self.b.places[other] - self.middle) ** 2).sum(axis=1), kind="stable"
            )
            near = near[:_TURNED_VOTES]
            one, other = one[near], other[near]
        for number, linear in enumerate(maps):
            shifts = self.a.places[one] - self.b.places[other] @ linear.T
            score, shift, _ = self._peak(shifts, _BIN * self.spacing)
            ranked.append((score, -number, linear, shift))
        starts, best = [], sorted(ranked, key=lambda entry: entry[:2], reverse=True)
        for _, _, linear, shift in best[:_FOLLOWED]:
            model = Model(1, np.zeros(2), 1.0)
            coefficients = np.vstack([shift, (linear - np.eye(2)).T])
            starts.append(Fit(model, coefficients, np.zeros((2, 3, 3))))
        return starts

    def _peak(self, shifts: Floats, width: float) -> tuple[float, Floats, NDArray[np.float64]]:
        """Return how far the highest peak of shifts stands out, where it is, and all counts."""
        from scipy.ndimage import uniform_filter

        if not len(shifts):
            return 0.0, np.zeros(2), np.zeros((1, 1))
        low, high = shifts.min(axis=0), shifts.max(axis=0)
        width = max(width, math.sqrt(float(np.prod(high - low)) / _BINS), 1e-9)
        counts = np.ceil((high - low) / width).astype(int) + 2
        bins = np.floor((shifts - low) / width).astype(int)
        flat = np.bincount(np.ravel_multi_index(tuple(bins.T), counts), minlength=counts.prod())
        votes = flat.reshape(counts).astype(float)
        # A peak may lie on the border of bins.
        four = votes.copy()
        four[:-1] += votes[1:]
        four[:, :-1] += four[:, 1:]
        usual = 4 * uniform_filter(votes, 15, mode="constant")
        score = (four - usual) / np.sqrt(usual + 1)
        top = np.unravel_index(int(np.argmax(score)), score.shape)
        return float(score[top]), low + (np.array(top) + 1) * width, four

    def pairs(self, mapped: Floats, rows: Integers, gate: float) -> tuple[Integers, Integers]:
        """Return spots that are each other's nearest, and no farther apart than the gate."""
        own = self.with_frame(mapped[rows], self.b.frame[rows])
        distance, nearest = self.tree.query(own, distance_upper_bound=max(gate, 1e-12))
        there = np.flatnonzero(np.isfinite(distance))
        if not len(there):
            return there, there
        back = self.tree_of(own).query(self.tree.data[nearest[there]])[1]
        both = there[back == there]
        return nearest[both].astype(np.int64), rows[both]

    def grown(self, start: Fit) -> Matches | None:
        """Return the matches to which a start leads, from the middle outwards."""
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
        for turn in range(_ROUNDS):
            mapped = fit.mapped(self.b.places)
            if turn < 3:
                rows = np.flatnonzero((np.abs(mapped - middle) <= reach).all(axis=1))
            else:
                # As far out as the map is known.
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
            if same and (smaller >= gate or turn > _ROUNDS - 5):
                break
            gate = min(gate, max(smaller, 0.8 * gate)) if turn >= 2 else gate
        return self._settled(fit, Model(self.degree, center, scale), one, other, gate)

    def _settled(
        self, fit: Fit, model: Model, one: Integers, other: Integers, gate: float
    ) -> Matches | None:
        """Return the matches by the spots' own errors, once these stay as they are."""
        terms = len(model.powers)
        dispersion = 1.0
        for _ in range(_ROUNDS // 2):
            a, b = self.a.part(one), self.b.part(other)
            variances = fit.of_both(a, b)
            fit = Fit.of(model, b.places, a.places - b.places, variances)
            away = (a.places - fit.mapped(b.places)) ** 2 / variances
            # Of normal deviates along two axes, half are within this; some are cut off.
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
        """Return by how much, as a logarithm, matches are beyond what chance may bring about.

        Chance is measured by shifts, and may have tried every map that is different. And whether
        they are beyond it in all parts of their field.
        """
        a, b = self.a.part(found.a), self.b.part(found.b)
        reach = WITHIN * np.sqrt(found.dispersion * found.fit.of_both(a, b).mean())
        mapped = found.fit.mapped(self.b.places)
        low, high = a.places.min(axis=0) - reach, a.places.max(axis=0) + reach
        rows = np.flatnonzero(((mapped >= low) & (mapped <= high)).all(axis=1))
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
        area = float(np.prod(np.maximum(high - low, reach)))
        frames = np.bincount(np.unique(self.b.frame[rows], return_inverse=True)[1])
        density = float((frames**2).sum()) * math.pi * reach**2 / area
        # Of few spots, chance may show in no shift at all.
        expected = max(float(counts.mean()), density if len(rows) < 1000 else density / 10)
        scatter = max(float(counts.var()) / expected, 1.0)
        pairs = len(found.a)
        if pairs <= expected:
            return -math.inf, False
        beyond = pairs * math.log(pairs / expected) - pairs + expected
        freedom = 2 * len(found.fit.model.powers)
        tried = freedom * math.log(max(self.extent / reach, math.e)) + math.log(400)
        return beyond / scatter - tried - _CHANCE, not by_chance.any()

    def refuse_rivals(self, found: Matches) -> None:
        """Raise ValueError if nearly as many spots lie on each other after another shift."""
        one, other = self.votes
        reach = WITHIN * math.sqrt(
            found.dispersion
            * float(found.fit.of_both(self.a.part(found.a), self.b.part(found.b)).mean())
        )
        shifts = self.a.places[one] - found.fit.mapped(self.b.places[other])
        # As far as there are bins that are as narrow.
        shifts = shifts[(np.abs(shifts) <= math.sqrt(_BINS) / 2 * reach).all(axis=1)]
        inside = (np.abs(shifts) <= reach).all(axis=1)
        _, _, counts = self._peak(shifts[~inside], reach)
        usual = float(counts[counts > 0].mean()) if counts.any() else 0.0
        own = np.count_nonzero(inside)
        rival = float(counts.max()) - usual
        if rival >= _RIVAL * max(own - usual, 1.0) and rival > 3:
            raise ValueError(
                "the spots lie on each other in several ways, as those of a lattice do: after "
                "another shift nearly as many match. Register by spots in irregular places"
            )
