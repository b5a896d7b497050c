"""Fit the spots of crowds together, on the CPU: a spot's neighbours are part of its model.

First each spot is fitted by itself, without the pixels of its neighbours. Spots that stand alone
keep these fits; those of a crowd are where the joint fit begins.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.arrays import to_host, to_native
from ..models.columns import DISTANCE, EVIDENCE, GROUP, STDERR, STOP
from ..models.profiles import ALL_MODELS
from ..models.stopping import StopCondition
from ..settings.camera_noise import noise_of
from ..settings.noise_model import NoiseModel
from . import threads
from .backend import Columns
from .block import Block, Positions
from .cpu.layouts import JointFits, JointSpot
from .cpu.library import load
from .detection.detection_settings import score_for
from .fit_job import FitJob
from .groups import POSITION, link_positions
from .kernel_arguments import PIXEL_TYPES, address
from .quality.flags import LEAST_ERRORS, Flag, good

#: In units of σ: spots that are nearer to each other than this overlap; spots that are farther
#: apart than this share no pixels, so that they are fitted apart.
OVERLAP, LINKED = 4.0, 6.0
#: Widths of a spot alone, over that of the PSF, and errors beyond it, from which on it may be two.
_TWO_SPOTS, _ERRORS = 1.04, 2.0
#: Crowds of a thread's share; of white noise, a pixel's mean over its deviation.
_SHARE, _WHITE = 64, 1000.0
#: The largest memory of a crowd.
_MOST_BYTES = 2 << 30
#: Crowds whose spots come nearer to each other than this, in units of σ, are one; and how often
#: crowds are fitted for that, at most.
_MEET, _PASSES = 3.0, 4
#: How many times the deviance that noise explains that of a blob is; how far neighbours are looked
#: for, in units of σ.
_BLOB, _FAR = 1.5, 10.0

_SPOT = np.dtype(JointSpot)


class Scale(NamedTuple):
    """Conversion of counts to numbers whose variance is their mean: counts / unit + shift."""

    unit: float
    shift: float

    @classmethod
    def of(cls, noise: NoiseModel) -> Scale:
        """Return that of pixels with a noise.

        Examples
        --------
        >>> Scale.of(NoiseModel.of_camera(2.0, 100.0, 8.0))
        Scale(unit=2.0, shift=-48.0)
        """
        factor = noise.correlation**2
        slope, intercept = factor * noise.slope, factor * noise.intercept
        least = factor * noise.least
        unit = max(slope, math.sqrt(max(least, 0.0 if slope else intercept)) / _WHITE)
        if unit > slope:  # white noise, or nearly
            intercept = max(intercept, least)
        return cls(unit, intercept / unit**2)


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
    if settings.model not in ("gaussian", ALL_MODELS["gaussian"]):
        wrong = f"the model 'gaussian'; got {settings.profile.name!r}"
    elif job.sigma is None:
        wrong = "the PSF's sigma; it is unknown"
    elif _noise_of(job) is None:
        wrong = "noise that is known; the image shows none"
    elif block.variances is not None or not _are_alike(block):
        wrong = "images without maps of weights or variances"
    elif settings.bounds or set(settings.fixed) - {"sigma"}:
        wrong = "no bounds, and no fixed parameter but sigma"
    if wrong and settings.neighbours == "joint":
        raise ValueError(
            f"neighbours='joint' needs {wrong}. Choose neighbours='exclude', or 'auto', which fits "
            "spots together where it can"
        )
    return not wrong


def _noise_of(job: FitJob) -> NoiseModel | None:
    """Return the noise of the image or, where it was not measured, that of the camera."""
    noise = job.noise
    return noise if noise is not None and noise.blocks else noise_of(job.settings)


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
        self._job, self._block, self._positions, self._single = job, block, positions, columns
        fixed = job.settings.fixed.get("sigma")
        assert job.sigma is not None
        self._sigma = float(fixed or job.sigma)
        noise = _noise_of(job)
        assert noise is not None
        self._scale = Scale.of(noise)
        self._shape = block.frame_shape
        flags = columns["flags"]
        can_move = columns[STOP] != int(StopCondition.INVALID)
        #: Whose place, and light, is where joint fits begin.
        self._good = good(flags) & can_move
        start = np.where(self._good[:, np.newaxis], np.column_stack([columns["y"], columns["x"]]),
                         positions.places)  # fmt: skip
        self._start = np.where(np.isfinite(start), start, -10.0 * max(self._shape))
        #: Those that take part in joint fits.
        self._there = can_move & (flags & int(Flag.SATURATED) == 0)
        self._crowd = self._linked(LINKED)
        self._frame_of_crowd = np.zeros(self._crowd.max(initial=-1) + 1, np.int64)
        self._frame_of_crowd[self._crowd] = positions.frames
        overlap = self._linked(OVERLAP)
        self._is_alone = np.bincount(overlap, minlength=1)[overlap] == 1

    def _linked(self, reach: float) -> NDArray[np.int64]:
        """Return the group of each position, those that take no part alone."""
        places = np.where(self._there[:, np.newaxis], self._start, np.nan)
        linked = Positions(places, self._positions.frame)
        return link_positions(linked, reach * self._sigma, self._shape, self._job.threads)

    def fit(self) -> Columns:
        """Return the columns of all spots, by the fits that they belong to."""
        self._in_crowd = np.isin(self._crowd, self._fitted_crowds()) & self._there
        points, is_fitted = np.zeros(len(self._crowd), _SPOT), self._in_crowd
        light = self._single["photons"] * (self._job.settings.gain or 1.0) / self._scale.unit
        points["y"], points["x"] = self._start.T
        points["light"] = np.where(self._good, light, 0.0)
        points["candidate"], points["crowd"] = np.arange(len(points)), self._crowd
        for _ in range(1 if self._job.one_row_per_position else _PASSES):
            points = np.concatenate([points[~is_fitted], self._joint(points, is_fitted)])
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
        places = np.where(takes_part, [points["y"], points["x"]], np.nan).T
        group = np.empty(len(points), np.int64)
        group[order] = link_positions(
            Positions(places[order], frame[order]), _MEET * self._sigma, self._shape,
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
        if "sigma" not in self._job.settings.fixed:
            least = _TWO_SPOTS * self._sigma
            if self._job.settings.errors:
                least = least + _ERRORS * np.nan_to_num(columns["sigma" + STDERR])
            is_wide = columns["sigma"] > least
        doubtful = Flag.ELONGATED | Flag.POOR_FIT | Flag.WIDE
        found: NDArray[np.bool_] = is_wide | (flags & int(doubtful) != 0)
        return found

    def _joint(self, points: NDArray[np.void], is_fitted: NDArray[np.bool_]) -> NDArray[np.void]:
        """Return the spots of the crowds that some of the points are, crowd by crowd."""
        job, block, settings = self._job, self._block, self._job.settings
        pixels = np.ascontiguousarray(to_native(to_host(block.pixels)))
        frame = self._frame_of_crowd[points["crowd"]]
        order = np.lexsort([points["x"], points["y"], frame])
        points, frame = points[order], frame[order]
        places = np.column_stack([points["y"], points["x"]])
        light = np.ascontiguousarray(points["light"])
        members = np.flatnonzero(is_fitted[order])
        members = members[np.argsort(points["crowd"][members], kind="stable")]
        crowds, first = np.unique(points["crowd"][members], return_index=True)
        first = np.append(first, len(members))
        library = load()
        given = JointFits(
            address(pixels), *pixels.shape[1:], block.first_row,
            PIXEL_TYPES[pixels.dtype.str[1:]], settings.pixel == "integrated",
            1 / self._scale.unit, self._scale.shift, self._sigma,
            score_for(settings.false_spots, min(max(self._sigma, 0.5), 10.0)),
            not job.one_row_per_position, settings.max_iterations, address(frame), address(places),
            address(light), len(points), address(members), address(first),
        )  # fmt: skip
        parts: dict[int, list[NDArray[np.void]]] = {}

        def work(begin: int, end: int) -> None:
            functions, by_reference = library.functions, ctypes.byref(given)
            size = functions.spotfit_joint_bytes(library.index, by_reference, begin, end)
            if size > _MOST_BYTES:
                raise ValueError(
                    f"a crowd of spots linked within {LINKED:g} σ takes {size >> 20} MB to "
                    f"fit together, more than {_MOST_BYTES >> 20}: allow fewer false spots, give "
                    "parts of the image, or neighbours='exclude'"
                )
            memory = np.empty(size, np.uint8)
            largest = int(np.diff(first[begin : end + 1]).max())
            room = functions.spotfit_most_joint_spots(library.index, largest)
            room = max(room, 2 * int(first[end] - first[begin]))
            found, count, own = np.empty(room, _SPOT), ctypes.c_longlong(), []
            at = begin
            while at < end:
                at = functions.spotfit_fit_joint(
                    library.index, by_reference, at, end, address(memory), address(found), room,
                    ctypes.byref(count),
                )  # fmt: skip
                own.append(found[: count.value].copy())
            parts[begin] = own

        threads.in_pieces(work, len(crowds), _SHARE, job.threads)
        made: NDArray[np.void] = np.concatenate(
            [np.empty(0, _SPOT), *(part for begin in sorted(parts) for part in parts[begin])]
        )
        is_known = made["candidate"] >= 0
        made["candidate"][is_known] = points["candidate"][made["candidate"][is_known]]
        made["crowd"] = crowds[made["crowd"]]
        return made

    def _in_place(self, spots: NDArray[np.void]) -> Columns:
        """Return a row for each position."""
        rows = spots["candidate"]
        columns = {name: column.copy() for name, column in self._single.items()}
        for name, values in self._columns_of(spots, rows).items():
            columns[name][rows] = values
        places = np.column_stack([columns["y"], columns["x"]])
        linked = Positions(places, self._positions.frame)
        reach = OVERLAP * self._sigma
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
        places = np.concatenate([self._start[kept], np.column_stack([spots["y"], spots["x"]])])
        order = np.argsort(frames[position], kind="stable")
        group = np.empty(len(order), np.int64)
        linked = Positions(places[order], frames[position[order]])
        reach = OVERLAP * self._sigma
        group[order] = link_positions(linked, reach, self._shape, self._job.threads)
        size = np.bincount(group, minlength=1)[group]
        stays = (spot < 0) | (~is_added & self._is_alone[position] & (size == 1))
        # Hidden ones are at the place of another spot of their fit.
        least = np.full(len(position), count)
        np.minimum.at(least, group, np.where(is_added, count, position))
        position = np.where(is_added & (least[group] < count), least[group], position)
        np.minimum.at(least, group, position)
        left = ~((spot < 0) & in_crowd[position] & (size > 1))
        order = np.lexsort([places[:, 1], places[:, 0], position, is_added, group, least[group]])
        order = order[left[order]]
        position, spot, stays = position[order], spot[order], stays[order]
        columns: Columns = {name: column[position] for name, column in self._single.items()}
        joint = np.flatnonzero(~stays)
        for name, values in self._columns_of(spots[spot[joint]], position[joint]).items():
            columns[name][joint] = values
        evidence = self._single_evidence()[position]
        evidence[joint] = spots["evidence"][spot[joint]]
        columns[GROUP] = group[order]
        final = np.column_stack([columns["y"], columns["x"]])
        columns |= self._of_neighbours(final, frames[position], evidence)
        return columns | {POSITION: position}

    def _columns_of(self, spots: NDArray[np.void], position: NDArray[np.int64]) -> Columns:
        """Return the columns of spots that were fitted together, all of one width."""
        settings, unit = self._job.settings, self._scale.unit
        area = 2 * math.pi * self._sigma**2
        per_photon = unit / (settings.gain or 1.0)
        degrees = np.maximum(spots["pixels"] - 3 * spots["spots"] - 1, 1)
        chi = spots["squares"] * unit**2
        if settings.estimator_kind.is_likelihood:
            chi = spots["deviance"]
        columns: Columns = {
            "y": spots["y"], "x": spots["x"], "sigma": self._sigma,
            "amplitude": spots["light"] * unit / area,
            "background": (spots["background"] - self._scale.shift) * unit - settings.offset,
            "photons": spots["light"] * per_photon,
            "chi_square": chi, "reduced_chi_square": chi / degrees,
            "iterations": np.minimum(spots["iterations"], np.iinfo(np.uint16).max),
            STOP: np.where(
                spots["is_settled"] != 0, StopCondition.MIN_DELTA, StopCondition.MAX_ITERATIONS
            ),
        }  # fmt: skip
        if settings.errors:
            errors = {
                "y": spots["y_error"], "x": spots["x_error"], "sigma": np.nan,
                "amplitude": spots["light_error"] * unit / area,
                "background": spots["background_error"] * unit,
                "photons": spots["light_error"] * per_photon,
            }  # fmt: skip
            columns |= {name + STDERR: values for name, values in errors.items()}
        sides = self._job.roi_shape
        for axis, side, size in zip("yx", sides, self._shape, strict=True):
            middle = np.rint(spots[axis]).astype(np.int64) - side // 2
            columns[f"roi_{axis}"] = np.clip(middle, 0, size - side)
        return columns | {"flags": self._flags_of(spots, position)}

    def _flags_of(self, spots: NDArray[np.void], position: NDArray[np.int64]) -> NDArray[Any]:
        """Return what may be wrong with spots that were fitted together."""
        of_pixels = Flag.BAD_PIXELS | Flag.SATURATED
        flags: NDArray[Any] = self._single["flags"][position] & np.uint32(of_pixels)
        y, x, edge = spots["y"], spots["x"], self._sigma - 0.5
        height, width = self._shape
        is_at_edge = (y < edge) | (x < edge) | (y > height - 1 - edge) | (x > width - 1 - edge)
        for flag, where in (
            (Flag.EDGE, is_at_edge),
            (Flag.WEAK, ~(spots["evidence"] > LEAST_ERRORS**2 / 2)),
            (Flag.GROUP_NOT_SETTLED, spots["is_settled"] == 0),
            (Flag.BLOB, spots["deviance"] > _BLOB * spots["tolerated"]),
            (Flag.POOR_FIT, spots["deviance"] > spots["tolerated"]),
        ):
            flags |= np.where(where, np.uint32(flag), np.uint32(0))
        return flags

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
        distance = nearest(places, frames, _FAR * self._sigma)
        return {DISTANCE: distance, EVIDENCE: evidence.astype(np.float32)}


def nearest(
    places: NDArray[np.float64], frames: NDArray[np.int64], most: float
) -> NDArray[np.float32]:
    """Return the distance of each position to the nearest one of its frame; NaN if above ``most``.

    Examples
    --------
    >>> places = np.array([[3.0, 3.0], [3.0, 5.0], [30.0, 3.0]])
    >>> nearest(places, np.zeros(3, int), 10.0)
    array([ 2.,  2., nan], dtype=float32)
    """
    order = np.lexsort([places[:, 0], frames])
    y, x, frame = places[order, 0], places[order, 1], frames[order]
    least = np.full(len(order), np.inf)
    for step in range(1, len(order)):
        apart = y[step:] - y[:-step]
        near = np.flatnonzero((apart <= most) & (frame[step:] == frame[:-step]))
        if not len(near):
            break
        far = np.hypot(apart[near], x[near + step] - x[near])
        np.minimum.at(least, near, far)
        np.minimum.at(least, near + step, far)
    result = np.full(len(order), np.nan, np.float32)
    result[order] = np.where(least <= most, least, np.nan)
    return result
