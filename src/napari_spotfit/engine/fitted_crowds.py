"""The spots of crowds, from their fits by themselves to what joint fits make of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.columns import EVIDENCE, IN_PLANE
from .backend import Backend, Block, Columns, Positions
from .blobs import find_blobs, unexplained_volumes
from .cpu.layouts import SpotState
from .crowds import SPOT, Candidates, Members, by_number, joined, taken
from .fit_job import FitJob
from .flags import SAME_SPOT, Flag
from .joint_columns import columns_of, is_weak, unexplained
from .joint_fits import JointFitter, reaches
from .long_crowds import LongCrowds, find_lines
from .positions import link_positions
from .regular_crowds import regular_crowds
from .single_fits import Singles, overlap_of

#: Crowds whose spots come nearer to each other than this, in units of σ, are one; and how often
#: crowds are fitted for that, at most.
_MEET, _PASSES = 3.0, 4
#: Weak spots that are as near to each other, in units of σ, may be one; how often one is dropped.
_WEAK_TOGETHER, _DROPS = 2.0, 4


def _in_rows(
    least: NDArray[np.int64], group: NDArray[np.int64], is_added: NDArray[np.bool_],
    position: NDArray[np.int64], places: NDArray[np.float64],
) -> NDArray[np.int64]:  # fmt: skip
    """Return the order of rows: by the least position of a group, the group and these."""
    rank = np.empty(len(least), np.int64)
    rank[by_number(least)] = np.arange(len(least))
    key = (2 * rank[group] + is_added) * (len(least) + 1) + position
    order = np.argsort(key, kind="stable")
    own = key[order]
    # Only those that were added at one position differ by their places alone.
    same = np.append(own[1:] == own[:-1], False)
    tied = np.flatnonzero(same | np.append(False, same[:-1]))
    rows = order[tied]
    order[tied] = rows[np.lexsort([*places[rows].T[::-1], own[tied]])]
    return order


class FittedSpots(NamedTuple):
    """Rows of spots, and where they are."""

    #: Which rows have been fitted together, and the columns of these.
    joint: NDArray[np.int64]
    columns: Columns
    #: Where each row is, its group and its position, and the first position of its group.
    places: NDArray[np.float64]
    group: NDArray[np.int64]
    position: NDArray[np.int64]
    first: NDArray[np.int64]


class FittedCrowds:
    """The spots of crowds, fitted by themselves, and what joint fits make of them."""

    def __init__(
        self, backend: Backend, job: FitJob, block: Block, widths: NDArray[np.float64],
        positions: Positions, single: Columns, singles: Singles,
    ) -> None:  # fmt: skip
        self._job, self._block, self._positions, self._widths = job, block, positions, widths
        self._widest = float(widths[-2:].max())
        self._flags, self._photons = single["flags"], single["photons"]
        #: Of a measured PSF, in nm.
        self._z = single.get("z")
        self._backend, self._shape = backend, block.frame_shape
        self._fitter = JointFitter(backend, job, block, widths)
        _, self._linking = reaches(job)
        self._overlap = overlap_of(job)
        #: Where joint fits begin.
        self._start = singles.places
        self._good = singles.state & SpotState.HAS_FIT != 0
        self._there = singles.state & SpotState.TAKES_PART != 0
        self._may_be_two = singles.state & SpotState.MAY_BE_TWO != 0
        self._is_alone = singles.state & SpotState.OVERLAPS == 0
        self._distance = singles.distance
        self._adds = not job.one_row_per_position
        self._is_auto = job.settings.neighbours == "auto"
        #: Where several positions are of one spot, the one of them that is fitted.
        self._spot = np.arange(len(self._start))
        self._long_crowds = LongCrowds(job, widths, self._shape)
        self._begin()

    def _begin(self) -> None:
        """Link positions to crowds, and fit for the first time those that are fitted together."""
        near = self._distance <= self._linking * self._widest
        self._crowd = self._linked(self._linking) if near.any() else np.arange(len(near))
        self._frame_of_crowd = np.zeros(self._crowd.max(initial=-1) + 1, np.int64)
        self._frame_of_crowd[self._crowd] = self._positions.frames
        none = np.zeros((3, len(self._frame_of_crowd)), np.bool_)
        self._is_blob, self._is_long, self._has_grown = none
        is_fitted = self._fitted_crowds()
        if self._is_auto and self._adds and len(self._widths) == len(IN_PLANE):
            # No crowd, so that it keeps the fits of single spots.
            self._is_long |= regular_crowds(self._start / self._widths, self._crowd)
            is_fitted &= ~self._is_long
        self._in_crowd = is_fitted[self._crowd] & self._there
        points, frames = self._points(), self._positions.frames
        if not self._adds and self._in_crowd.any():
            # Two spots at one place would share its light at random, and wander.
            self._spot = self._same_spots()
            points = taken(points, self._spot == np.arange(len(points)))
        self._first = Candidates(points, frames[points["candidate"]])
        if self._in_crowd.any():
            own = Positions(self._positions.places[self._in_crowd], frames[self._in_crowd])
            self._fitter.leave_out(own)
        self._fitted = self._fitter.fit(self._first, self._is_begun(), counts_spots=self._adds)

    def _is_begun(self) -> NDArray[np.bool_]:
        """Return which of the first candidates are fitted together."""
        found: NDArray[np.bool_] = self._in_crowd[self._first.points["candidate"]]
        return found

    def _same_spots(self) -> NDArray[np.int64]:
        """Return the uppermost position in a crowd that is of the same spot as each."""
        places = np.where(self._in_crowd[:, np.newaxis], self._positions.places, np.nan)
        linked = Positions(places, self._positions.frame)
        group = link_positions(linked, SAME_SPOT * self._widths, self._shape, self._job.threads)
        order = np.lexsort([*self._positions.places.T[::-1], group])
        _, first = np.unique(group[order], return_index=True)
        uppermost: NDArray[np.int64] = order[first][group]
        return uppermost

    def _members(self) -> Members:
        is_long = self._flags & int(Flag.ELONGATED) != 0
        return Members(self._crowd, self._frame_of_crowd, self._there, self._good, is_long)

    def _places(self, points: NDArray[np.void]) -> NDArray[np.float64]:
        return np.column_stack([points[axis] for axis in self._job.axes])

    def _linked(self, reach: float) -> NDArray[np.int64]:
        """Return the group of each position, those that take no part alone."""
        places = np.where(self._there[:, np.newaxis], self._start, np.nan)
        linked = Positions(places, self._positions.frame)
        return link_positions(linked, reach * self._widths, self._shape, self._job.threads)

    def are_as_before(self) -> bool:
        """Whether those to fit are alone, and each is one spot: then their fits stay."""
        candidate = self._fitted["candidate"]
        is_auto = self._is_auto and self._adds
        if not (is_auto and self._is_alone[self._in_crowd].all() and (candidate >= 0).all()):
            return False
        # Nor has one come near another: in the pixels of distances, along x.
        step = (self._places(self._fitted) - self._start[candidate]) / self._widths
        moved = np.sqrt((step * step).sum(axis=1)) * self._widest
        left = self._distance[candidate] - moved - moved.max(initial=0)
        return not (left <= self._overlap * self._widest).any()

    def _points(self) -> NDArray[np.void]:
        """Return the candidates, with the crowd of each."""
        points = np.zeros(len(self._crowd), SPOT)
        light = self._photons * (self._job.settings.gain or 1.0) / self._fitter.scale.unit
        for axis, start in zip(self._job.axes, self._start.T, strict=True):
            points[axis] = start
        if self._z is not None:
            points["z"] = np.where(self._good, self._z, 0.0)
        points["light"] = np.where(self._good, light, 0.0)
        points["candidate"], points["crowd"] = np.arange(len(points)), self._crowd
        return points

    def _fit(self) -> NDArray[np.void]:
        """Return the spots of all crowds that are fitted together."""
        candidates, fitted, is_fitted = self._first, self._fitted, self._is_begun()
        for k in range(_PASSES if self._adds else 1):
            if k:
                fitted = self._fitter.fit(candidates, is_fitted, counts_spots=self._adds)
            if self._adds:
                is_blob = find_blobs(self._fitter, self._members(), candidates, is_fitted, fitted)
                fitted, is_blob = self._without_bad_growth(candidates, fitted, is_blob)
                self._is_blob |= is_blob
                is_long = self._long_crowds.find(self._members(), fitted, self._is_blob)
                self._is_long |= is_long
                if self._is_auto:
                    # What is no crowd has the fits of single spots.
                    is_none = is_blob | is_long
                    is_none |= unexplained_volumes(self._fitter, len(is_none), fitted)
                    self._in_crowd = self._in_crowd & ~is_none[self._crowd]
                    again = taken(self._first.points, np.flatnonzero(is_none[self._crowd]))
                    again["crowd"] = self._crowd[again["candidate"]]
                    fitted = joined([taken(fitted, ~is_none[fitted["crowd"]]), again])
            points = joined([taken(candidates.points, ~is_fitted), fitted])
            is_fitted = self._crowds_to_fit_again(points)
            if not is_fitted.any():
                break
            candidates = Candidates(points, self._frame_of_crowd[points["crowd"]])
        return taken(points, points["pixels"] > 0)

    def _without_bad_growth(
        self, before: Candidates, fitted: NDArray[np.void], is_blob: NDArray[np.bool_]
    ) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """Return spots and blobs, those crowds as before that have not come to good by growing.

        They have grown into a blob, do not come to rest, or leave more than noise.
        """
        is_wrong = (fitted["is_settled"] == 0) | unexplained(fitted)
        undone = is_blob.copy()
        undone[fitted["crowd"][is_wrong]] = True
        undone &= self._has_grown
        small = taken(before.points, undone[before.points["crowd"]])
        small = taken(small, small["is_apart"] == 0)
        return joined([taken(fitted, ~undone[fitted["crowd"]]), small]), is_blob & ~undone

    def _crowds_to_fit_again(self, points: NDArray[np.void]) -> NDArray[np.bool_]:
        """Make crowds one that have met; return the points of these, and of ones that have grown.

        In planes, one has grown by a hidden spot that is far from all candidates, where it had part
        of the pixels around that. An edge looks like a spot if one side of it is seen alone.
        """
        frame = self._frame_of_crowd[points["crowd"]]
        order = by_number(frame)
        takes_part = (points["candidate"] < 0) | self._there[points["candidate"]]
        takes_part &= ~(self._is_blob | self._is_long)[points["crowd"]]
        is_sure = takes_part & (points["is_apart"] == 0)
        places = np.where(is_sure[:, np.newaxis], self._places(points), np.nan)
        group = np.empty(len(points), np.int64)
        group[order] = link_positions(
            Positions(places.take(order, axis=0), frame[order]), _MEET * self._widths, self._shape,
            self._job.threads,
        )  # fmt: skip
        label = first = np.arange(len(self._frame_of_crowd))
        while True:
            least = np.full(len(points), len(label))
            np.minimum.at(least, group, label[points["crowd"]])
            better = label.copy()
            np.minimum.at(better, points["crowd"], least[group])
            if (better == label).all():
                break
            label = better
        has_grown = np.zeros(len(label), np.bool_)
        has_grown[points["crowd"][takes_part & (points["is_apart"] != 0)]] = True
        has_grown &= ~self._has_grown
        if label is first and not has_grown.any():  # as in most blocks
            return np.zeros(len(points), np.bool_)
        changed = np.unique(label[(label != first) | has_grown])
        self._has_grown[label[self._has_grown | has_grown]] = True
        self._crowd, points["crowd"] = label[self._crowd], label[points["crowd"]]
        self._in_crowd = self._in_crowd | (np.isin(self._crowd, changed) & self._there)
        joined: NDArray[np.bool_] = np.isin(points["crowd"], changed) & takes_part
        return joined

    def _fitted_crowds(self) -> NDArray[np.bool_]:
        """Return which crowds are fitted together."""
        is_crowded = self._there.copy()
        if self._is_auto or self._job.one_row_per_position:
            is_crowded &= ~self._is_alone | self._may_be_two
        found: NDArray[np.bool_] = np.zeros(len(self._frame_of_crowd), np.bool_)
        found[self._crowd[is_crowded]] = True
        if self._is_auto and self._z is not None:
            # Rings of spots that are far out of focus look like many.
            found[self._crowd[self._flags & int(Flag.Z_AT_LIMIT) != 0]] = False
        return found

    def fit_in_place(self) -> FittedSpots:
        """Return a row for each position."""
        spots, every = self._fit_positions(), np.arange(len(self._start))
        number = np.full(len(self._start), -1)
        number[spots["candidate"]] = np.arange(len(spots))
        rows = np.flatnonzero(number[self._spot] >= 0)
        spots, places = taken(spots, number[self._spot[rows]]), self._start.copy()
        places[rows] = self._places(spots)
        linked = Positions(self._there_only(places, every), self._positions.frame)
        group = link_positions(linked, self._overlap * self._widths, self._shape, self._job.threads)
        columns = self._joint_columns(spots, rows)
        columns["flags"] |= self._duplicates(places)[rows]
        _, first = np.unique(group, return_index=True)
        return FittedSpots(rows, columns, places, first[group], every, every)

    def _fit_positions(self) -> NDArray[np.void]:
        """Return the spots of positions: of two that are near, and both weak, the brighter one.

        Each of two positions of one spot, 1 to 2 σ apart, is weak beside the other.
        """
        for _ in range(_DROPS):
            dropped, kept = self._weak_ones(self._fitted)
            if not len(dropped):
                break
            spot = np.arange(len(self._spot))
            spot[dropped] = kept
            self._spot = spot[self._spot]
            candidate = self._first.points["candidate"]
            left = taken(self._first.points, self._spot[candidate] == candidate)
            self._first = Candidates(left, self._positions.frames[left["candidate"]])
            again = np.zeros(len(self._frame_of_crowd), np.bool_)
            again[self._crowd[dropped]] = True
            fitted = self._fitter.fit(
                self._first, self._is_begun() & again[left["crowd"]], counts_spots=False
            )
            others = taken(self._fitted, ~again[self._fitted["crowd"]])
            self._fitted = joined([others, fitted])
        return self._fit()

    def _weak_ones(self, spots: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the dimmest position of each group of weak spots, and the next one of it."""
        weak = np.flatnonzero(is_weak(spots))
        if len(weak) < 2:
            return weak[:0], weak[:0]
        candidate = spots["candidate"][weak]
        order = np.argsort(candidate)
        weak, candidate = weak[order], candidate[order]
        linked = Positions(self._places(taken(spots, weak)), self._positions.frames[candidate])
        reach = _WEAK_TOGETHER * self._widths
        group = link_positions(linked, reach, self._shape, self._job.threads)
        places = self._positions.places[candidate]
        order = np.lexsort([*places.T[::-1], spots["light"][weak], group])
        _, first, count = np.unique(group[order], return_index=True, return_counts=True)
        first = first[count > 1]
        return candidate[order[first]], candidate[order[first + 1]]

    def _there_only(
        self, places: NDArray[np.float64], position: NDArray[np.int64],
        is_added: NDArray[np.bool_] | bool = False,
    ) -> NDArray[np.float64]:  # fmt: skip
        """Return places, NaN of what takes no part: what is wrong with it is not of its group."""
        takes_part = self._there[position] | is_added
        return np.where(takes_part[:, np.newaxis], places, np.nan)

    def _duplicates(self, places: NDArray[np.float64]) -> NDArray[np.uint32]:
        """Return the flags of all but the nearest of the positions of one spot."""
        step = (places - self._positions.places) / self._widths
        order = np.lexsort([(step * step).sum(axis=1), self._spot])
        flags = np.zeros(len(places), np.uint32)
        own = self._spot[order]
        flags[order[1:][own[1:] == own[:-1]]] = np.uint32(Flag.DUPLICATE)
        return flags

    def fit(self) -> FittedSpots:
        """Return a row for each spot; those that overlap are of one fit."""
        spots = self._fit()
        count, frames = len(self._crowd), self._positions.frames
        is_found = np.zeros(count, np.bool_)
        is_found[spots["candidate"][spots["candidate"] >= 0]] = True
        in_crowd = self._in_crowd
        # Spots that stand alone and were dropped come back: without neighbours, nothing changes.
        kept = np.flatnonzero(~in_crowd | (self._is_alone & ~is_found))
        first = np.full(len(self._frame_of_crowd), count)
        np.minimum.at(first, self._crowd, np.arange(count))
        hidden = spots["candidate"] < 0
        own = np.where(hidden, first[spots["crowd"]], spots["candidate"])
        position = np.concatenate([kept, own])
        spot = np.concatenate([np.full(len(kept), -1), np.arange(len(spots))])
        is_added = np.concatenate([np.zeros(len(kept), np.bool_), hidden])
        places = np.concatenate([self._start.take(kept, axis=0), self._places(spots)])
        order = by_number(frames[position])
        group = np.empty(len(order), np.int64)
        linked = Positions(
            self._there_only(places, position, is_added).take(order, axis=0),
            frames[position[order]],
        )
        reach = self._overlap * self._widths
        group[order] = link_positions(linked, reach, self._shape, self._job.threads)
        size = np.bincount(group, minlength=1)[group]
        stays = (spot < 0) | (~is_added & self._is_alone[position] & (size == 1))
        # Hidden ones are at the place of another spot of their fit.
        least = np.full(len(position), count)
        np.minimum.at(least, group, np.where(is_added, count, position))
        position = np.where(is_added & (least[group] < count), least[group], position)
        np.minimum.at(least, group, position)
        left = ~((spot < 0) & in_crowd[position] & (size > 1))
        order = _in_rows(least, group, is_added, position, places)
        order = order[left[order]]
        position, spot, stays = position[order], spot[order], stays[order]
        joint, own = np.flatnonzero(~stays), group[order]
        columns = self._joint_columns(taken(spots, spot[joint]), position[joint])
        places = places.take(order, axis=0)
        places[stays] = self._start[position[stays]]
        return FittedSpots(joint, columns, places, own, position, least[own])

    def _joint_columns(self, spots: NDArray[np.void], position: NDArray[np.int64]) -> Columns:
        flags, crowd = self._flags[position] & ~np.uint32(Flag.ELONGATED), spots["crowd"]
        is_line = find_lines(self._members()) | self._is_long
        for flag, of_crowd in ((Flag.ELONGATED, is_line), (Flag.BLOB, self._is_blob)):
            if of_crowd.any():
                flags |= np.where(of_crowd[crowd], np.uint32(flag), np.uint32(0))
        frame = self._frame_of_crowd[crowd]
        columns = columns_of(self._fitter, self._job, self._shape, spots, frame, flags)
        return columns | {EVIDENCE: spots["evidence"]}
