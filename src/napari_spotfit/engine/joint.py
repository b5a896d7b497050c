"""Fit the spots of crowds together, on the CPU: a spot's neighbours are part of its model.

First each spot is fitted by itself, without the pixels of its neighbours. Spots that stand alone
keep these fits; those of a crowd are where the joint fit begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host
from ..models.columns import DISTANCE, EVIDENCE, GROUP, STDERR, STOP
from ..models.profiles import ALL_MODELS
from ..models.stopping import StopCondition
from .backend import Columns
from .block import Block, Positions
from .fit_job import FitJob
from .groups import POSITION, link_positions
from .joint_columns import columns_of, nearest
from .joint_fits import LINKED, SPOT, JointFitter, joint_noise
from .quality.flags import Flag, good

#: Spots that are nearer to each other than this, in units of σ, overlap.
OVERLAP = 4.0
#: Widths of a spot alone, over that of the PSF, and errors beyond it, from which on it may be two.
_TWO_SPOTS, _ERRORS = 1.04, 2.0
#: Crowds whose spots come nearer to each other than this, in units of σ, are one; and how often
#: crowds are fitted for that, at most.
_MEET, _PASSES = 3.0, 4
#: A line has so many spots that are long by themselves, at least, and of all of its spots this
#: share is.
_LINE, _LONG = 3, 2 / 3
#: How far neighbours are looked for, in units of σ.
_FAR = 10.0
#: The models of spots that are a product of Gaussians along the axes.
_MODELS = ("gaussian", "gaussian_elliptical", "gaussian_3d", "gaussian_3d_elliptical")


def takes_joint_fits(job: FitJob, block: Block) -> bool:
    """Whether spots of a job are fitted together; by ``"auto"`` only where they can be.

    Raises
    ------
    ValueError
        If it was asked for and cannot be done; the message says what is accepted.
    """
    settings = job.settings
    if settings.neighbours not in ("joint", "auto"):
        return False
    wrong = ""
    if settings.model not in (*_MODELS, *(ALL_MODELS[name] for name in _MODELS)):
        wrong = f"one of the models {', '.join(_MODELS)}; got {settings.profile.name!r}"
    elif unknown := [name for name, width in _widths(job) if not width]:
        wrong = f"the PSF's {unknown[0]}; it is unknown and not fixed"
    elif joint_noise(job) is None:
        wrong = "noise that is known; the image shows none"
    elif block.variances is not None or not _are_alike(block):
        wrong = "images without maps of weights or variances"
    elif settings.bounds or set(settings.fixed) - set(settings.profile.widths):
        wrong = "no bounds, and no fixed parameter but widths"
    if wrong and settings.neighbours == "joint":
        raise ValueError(
            f"neighbours='joint' needs {wrong}. Choose neighbours='exclude', or 'auto', which fits "
            "spots together where it can"
        )
    return not wrong


def _widths(job: FitJob) -> list[tuple[str, float | None]]:
    """Return the name of the width along each axis, and the PSF's, None if that is unknown."""
    known = {"sigma": job.sigma, "sigma_z": job.sigma_z} | {
        name: value for name, value in job.settings.fixed.items() if value
    }
    names = [f"sigma_{axis}" for axis in job.axes]
    own = (name if name in job.model.widths else "sigma" for name in names)
    return [(name, known.get(name)) for name in own]


def _are_alike(block: Block) -> bool:
    """Whether nothing is known of pixels but which are bad."""
    if block.planes is None:
        return True
    values = to_host(block.planes.values)
    if block.bad is None:
        return False
    rows = slice(block.first_row, block.first_row + values.shape[1])
    is_good, known = np.broadcast_arrays(~to_host(block.bad)[:, rows], values)
    usable = known[is_good]
    return bool((usable == usable[:1]).all())


def fit_crowds(job: FitJob, block: Block, positions: Positions, columns: Columns) -> Columns:
    """Return the columns of :meth:`.Backend.fit`, with the spots of crowds fitted together."""
    if not takes_joint_fits(job, block):
        return columns
    return _Crowds(job, block, positions, columns).fit()


class _Crowds:
    """The spots of a block, fitted by themselves, and what joint fits make of them."""

    def __init__(self, job: FitJob, block: Block, positions: Positions, columns: Columns) -> None:
        self._job, self._positions, self._single = job, positions, columns
        self._axes = job.axes
        #: Along each axis.
        self._widths = np.array([width for _, width in _widths(job)], float)
        self._fitter = JointFitter(job, block, self._widths)
        self._shape = block.frame_shape
        flags = columns["flags"]
        can_move = columns[STOP] != int(StopCondition.INVALID)
        #: Whose place, and light, is where joint fits begin.
        self._good = good(flags) & can_move
        start = np.where(self._good[:, np.newaxis], self._places(columns), positions.places)
        self._start = np.where(np.isfinite(start), start, -10.0 * max(self._shape))
        #: Those that take part in joint fits.
        self._there = can_move & (flags & int(Flag.SATURATED) == 0)
        self._crowd = self._linked(LINKED)
        self._frame_of_crowd = np.zeros(self._crowd.max(initial=-1) + 1, np.int64)
        self._frame_of_crowd[self._crowd] = positions.frames
        overlap = self._linked(OVERLAP)
        self._is_alone = np.bincount(overlap, minlength=1)[overlap] == 1

    def _places(self, columns: Columns | NDArray[np.void]) -> NDArray[np.float64]:
        return np.column_stack([columns[axis] for axis in self._axes])

    def _linked(self, reach: float) -> NDArray[np.int64]:
        """Return the group of each position, those that take no part alone."""
        places = np.where(self._there[:, np.newaxis], self._start, np.nan)
        linked = Positions(places, self._positions.frame)
        return link_positions(linked, reach * self._widths, self._shape, self._job.threads)

    def fit(self) -> Columns:
        """Return the columns of all spots, by the fits that they belong to."""
        self._in_crowd = np.isin(self._crowd, self._fitted_crowds()) & self._there
        points, is_fitted = np.zeros(len(self._crowd), SPOT), self._in_crowd
        light = self._single["photons"] * (self._job.settings.gain or 1.0) / self._fitter.scale.unit
        for axis, start in zip(self._axes, self._start.T, strict=True):
            points[axis] = start
        points["light"] = np.where(self._good, light, 0.0)
        points["candidate"], points["crowd"] = np.arange(len(points)), self._crowd
        for _ in range(1 if self._job.one_row_per_position else _PASSES):
            fitted = self._fitter.fit(
                points, is_fitted, self._frame_of_crowd[points["crowd"]],
                counts_spots=not self._job.one_row_per_position,
            )  # fmt: skip
            points = np.concatenate([points[~is_fitted], fitted])
            is_fitted = self._joined_crowds(points)
            if not is_fitted.any():
                break
        spots = points[points["pixels"] > 0]
        return self._in_place(spots) if self._job.one_row_per_position else self._rows(spots)

    def _joined_crowds(self, points: NDArray[np.void]) -> NDArray[np.bool_]:
        """Make crowds one that have met; return which points these have."""
        frame = self._frame_of_crowd[points["crowd"]]
        order = np.argsort(frame, kind="stable")
        takes_part = (points["candidate"] < 0) | self._there[points["candidate"]]
        places = np.where(takes_part[:, np.newaxis], self._places(points), np.nan)
        group = np.empty(len(points), np.int64)
        group[order] = link_positions(
            Positions(places[order], frame[order]), _MEET * self._widths, self._shape,
            self._job.threads,
        )  # fmt: skip
        label = np.arange(len(self._frame_of_crowd))
        while True:
            least = np.full(len(points), len(label))
            np.minimum.at(least, group, label[points["crowd"]])
            better = label.copy()
            np.minimum.at(better, points["crowd"], least[group])
            if (better == label).all():
                break
            label = better
        changed = np.unique(label[label != np.arange(len(label))])
        self._crowd, points["crowd"] = label[self._crowd], label[points["crowd"]]
        self._in_crowd = self._in_crowd | (np.isin(self._crowd, changed) & self._there)
        joined: NDArray[np.bool_] = np.isin(points["crowd"], changed) & takes_part
        return joined

    def _fitted_crowds(self) -> NDArray[np.int64]:
        """Return the numbers of the crowds that are fitted together."""
        is_crowded = self._there.copy()
        if self._job.settings.neighbours == "auto" or self._job.one_row_per_position:
            is_crowded &= ~self._is_alone | self._may_be_two()
        return np.unique(self._crowd[is_crowded])

    def _may_be_two(self) -> NDArray[np.bool_]:
        """Return which spots are wider than the PSF, or longer than wide."""
        if self._job.one_row_per_position:
            return np.zeros(len(self._crowd), np.bool_)
        columns, flags = self._single, self._single["flags"]
        is_wide = np.zeros(len(flags), np.bool_)
        if "sigma" in self._job.model.widths and "sigma" not in self._job.settings.fixed:
            least = _TWO_SPOTS * self._widths[-1]
            if self._job.settings.errors:
                least = least + _ERRORS * np.nan_to_num(columns["sigma" + STDERR])
            is_wide = columns["sigma"] > least
        doubtful = Flag.ELONGATED | Flag.POOR_FIT | Flag.WIDE
        found: NDArray[np.bool_] = is_wide | (flags & int(doubtful) != 0)
        return found

    def _in_place(self, spots: NDArray[np.void]) -> Columns:
        """Return a row for each position."""
        rows = spots["candidate"]
        columns = {name: column.copy() for name, column in self._single.items()}
        for name, values in self._joint_columns(spots, rows).items():
            columns[name][rows] = values
        places = self._places(columns)
        linked = Positions(places, self._positions.frame)
        reach = OVERLAP * self._widths
        columns[GROUP] = link_positions(linked, reach, self._shape, self._job.threads)
        evidence = self._single_evidence()
        evidence[rows] = spots["evidence"]
        return columns | self._of_neighbours(places, self._positions.frames, evidence)

    def _rows(self, spots: NDArray[np.void]) -> Columns:
        """Return a row for each spot; those that overlap are of one fit."""
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
        places = np.concatenate([self._start[kept], self._places(spots)])
        order = np.argsort(frames[position], kind="stable")
        group = np.empty(len(order), np.int64)
        linked = Positions(places[order], frames[position[order]])
        reach = OVERLAP * self._widths
        group[order] = link_positions(linked, reach, self._shape, self._job.threads)
        size = np.bincount(group, minlength=1)[group]
        stays = (spot < 0) | (~is_added & self._is_alone[position] & (size == 1))
        # Hidden ones are at the place of another spot of their fit.
        least = np.full(len(position), count)
        np.minimum.at(least, group, np.where(is_added, count, position))
        position = np.where(is_added & (least[group] < count), least[group], position)
        np.minimum.at(least, group, position)
        left = ~((spot < 0) & in_crowd[position] & (size > 1))
        order = np.lexsort([*places.T[::-1], position, is_added, group, least[group]])
        order = order[left[order]]
        position, spot, stays = position[order], spot[order], stays[order]
        columns: Columns = {name: column[position] for name, column in self._single.items()}
        joint = np.flatnonzero(~stays)
        for name, values in self._joint_columns(spots[spot[joint]], position[joint]).items():
            columns[name][joint] = values
        evidence = self._single_evidence()[position]
        evidence[joint] = spots["evidence"][spot[joint]]
        columns[GROUP] = group[order]
        columns |= self._of_neighbours(self._places(columns), frames[position], evidence)
        return columns | {POSITION: position}

    def _joint_columns(self, spots: NDArray[np.void], position: NDArray[np.int64]) -> Columns:
        flags = self._single["flags"][position]
        long = np.uint32(Flag.ELONGATED)
        flags = flags & ~long | np.where(self._is_line()[spots["crowd"]], long, np.uint32(0))
        return columns_of(self._fitter, self._job, self._shape, spots, flags)

    def _is_line(self) -> NDArray[np.bool_]:
        """Return which crowds are lines: of several spots, most were long by themselves."""
        is_long = self._there & (self._single["flags"] & int(Flag.ELONGATED) != 0)
        crowds = len(self._frame_of_crowd)
        long = np.bincount(self._crowd[is_long], minlength=crowds)
        count = np.bincount(self._crowd[self._there], minlength=crowds)
        found: NDArray[np.bool_] = (long >= _LINE) & (long >= _LONG * count)
        return found

    def _single_evidence(self) -> NDArray[np.float32]:
        """Return how much likelier each single spot makes the data, as a logarithm."""
        if not self._job.settings.errors:
            return np.full(len(self._crowd), np.nan, np.float32)
        with np.errstate(all="ignore"):
            score = self._single["amplitude"] / self._single["amplitude" + STDERR]
        evidence: NDArray[np.float32] = (score**2 / 2).astype(np.float32)
        return evidence

    def _of_neighbours(
        self, places: NDArray[np.float64], frames: NDArray[np.int64], evidence: NDArray[Any]
    ) -> Columns:
        """Return the columns of what is around spots, and of how sure they are."""
        # Planes are as far apart as the PSF is longer along z than across.
        per_pixel = np.where(np.array(self._axes) == "z", self._job.per_plane, 1.0)
        distance = nearest(places * per_pixel, frames, _FAR * self._widths[-1])
        return {DISTANCE: distance, EVIDENCE: evidence.astype(np.float32)}
