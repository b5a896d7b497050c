"""The model of spots that were fitted together, and whether pixels are still those of the fit.

A joint fit leaves the background at the place of each of its spots, and one χ² of all of its
pixels, which may be many: so the light of all spots around one is laid over the plane of their
backgrounds, and pixels are those of the fit if a further step of it would move the spot hardly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.depth import apparent_places
from ..models.columns import EVIDENCE, GROUP, GROUP_SIZE, IN_PLANE, STDERR
from ..settings.settings import Settings

Array = NDArray[np.float64]

#: How far the light of a spot counts, in units of σ.
LIGHT = 5.0
#: The pixels around its spots that a joint fit has certainly counted, in the same unit; and those
#: in volumes, where light counts less far.
_CERTAIN, _CERTAIN_IN_VOLUMES = 3.0, 2.0
#: Where the image is unchanged, the parameters of one and this number of others are off by less
#: than the first of these, on the average, the background by less than the second, in units of
#: their errors; and their χ² is not exceeded by more than a factor.
_SPOTS, _STILL, _LEVEL, _MORE = 4, 0.8, 4.0, 1.3
#: How much the spots' backgrounds count beside all pixels, for the slopes of the plane.
_FIRM = 1e3
#: Steps of places in pixels, and of z in nm, for derivatives.
_STEP, _STEP_Z = 0.02, 2.0
#: The most spots that a step moves: those that are nearest.
_MOST = 40


def is_joint(values: Mapping[str, float], settings: Settings) -> bool:
    """Whether a spot was fitted together with others, whose χ² and background are theirs, too.

    Widths have no errors then, unless none have; a measured PSF has no width.
    """
    if not math.isfinite(values.get(EVIDENCE, math.nan)):
        return False
    widths = [name for name in settings.profile.widths if name != "z"]
    errors = [values.get(f"{name}{STDERR}", math.nan) for name in widths]
    if errors and math.isfinite(values.get(f"y{STDERR}", math.nan)):
        return not any(map(math.isfinite, errors))
    return values.get(GROUP_SIZE, 1.0) > 1


@dataclass(frozen=True, eq=False)
class Group:
    """The spots of a frame around one that was fitted together with others.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Those of the spots, the one that is looked at first: all that the model needs, their
        backgrounds and errors, χ² and group.
    settings : Settings
        What they were fitted with.
    """

    columns: Mapping[str, NDArray[Any]]
    settings: Settings

    @cached_property
    def places(self) -> Array:
        """Where they are, (z,) y and x."""
        axes = self.settings.profile.axes
        return np.column_stack([self.columns[axis] for axis in axes]).astype(float)

    @cached_property
    def members(self) -> NDArray[np.bool_]:
        """Which of them are of the first one's group."""
        group = self.columns.get(GROUP)
        members: NDArray[np.bool_] = np.arange(len(self.places)) == 0
        return members if group is None else members | np.equal(group, group[0])

    @cached_property
    def _fitted(self) -> NDArray[np.bool_]:
        """Which were fitted with the first one: its χ² is theirs."""
        chi = self.columns.get("chi_square")
        return self.members if chi is None else self.members | (chi == chi[0])

    @cached_property
    def widths(self) -> list[float]:
        """Along each axis, those of the first spot."""
        axes, known = self.settings.profile.axes, self.columns
        usual = self.settings.known_sigma
        widths = []
        for axis in axes:
            name = f"sigma_{axis}" if f"sigma_{axis}" in known else "sigma"
            usual_here = self.settings.known_sigma_z if axis == "z" else usual
            width = float(known[name][0]) if name in known else math.nan
            widths.append(width if width > 0 else usual_here)
        return widths

    def light(self, lines: list[Array], which: int, moved: tuple[str, float] = ("", 0.0)) -> Array:
        """Return the light of one spot at places along each axis, one of its parameters moved."""
        values = {name: float(column[which]) for name, column in self.columns.items()}
        if moved[0]:
            values[moved[0]] += moved[1]
        own = {**values, **apparent_places(values, self.settings), "background": 0.0}
        profile = self.settings.profile
        light = np.asarray(profile.evaluate(lines, own, self.settings.pixel), float)
        if profile.lattice is not None:  # beads have shown it no farther
            for line, axis in zip(lines, profile.axes, strict=True):
                light = light * (abs(line - own[axis]) <= profile.lattice.reach + 0.5)
        return light

    def near(self, lines: list[Array], reach: float = LIGHT) -> NDArray[np.intp]:
        """Return the spots whose light is within places along each axis."""
        is_near, lattice = np.ones(len(self.places), bool), self.settings.profile.lattice
        for line, at, width in zip(lines, self.places.T, self.widths, strict=True):
            far = reach * width if lattice is None or not reach else lattice.reach + 0.5
            is_near &= (at >= line.min() - far) & (at <= line.max() + far)
        return np.flatnonzero(is_near)

    def model(self, lines: list[Array], data: Array, good: NDArray[np.bool_]) -> GroupModel:
        """Return the model of a window.

        Parameters
        ----------
        lines : list of ndarray
            The pixels along each axis, in shapes that broadcast.
        data : ndarray
            The counts, less the camera's offset, at these pixels.
        good : ndarray of bool
            Which of them count.
        """
        light = sum((self.light(lines, k) for k in self.near(lines)), np.zeros(data.shape))
        middle = self.places[0]
        terms = [np.ones(data.shape)]
        terms += [
            np.broadcast_to(line - at, data.shape) for line, at in zip(lines, middle, strict=True)
        ]
        known = np.intersect1d(self.near(lines, 0.0), np.flatnonzero(self._fitted))
        background = self.columns["background"][known].astype(float)
        at_spots = np.column_stack([np.ones(len(known)), self.places[known] - middle])
        pixels = np.stack([term[good] for term in terms], axis=-1)
        firm = _FIRM * len(pixels)
        normal = pixels.T @ pixels + firm * at_spots.T @ at_spots
        pulls = pixels.T @ (data - light)[good] + firm * at_spots.T @ background
        plane = np.linalg.lstsq(normal, pulls, rcond=1e-12)[0]
        return GroupModel(self, light, plane)

    def explains(self, lines: list[Array], data: Array, good: NDArray[np.bool_]) -> bool:
        """Whether a fit that goes on from here stays, and leaves no more than it had left.

        The arguments are those of :meth:`model`, of a window with all that is around the spot.
        """
        model = self.model(lines, data, good)
        counts = model.counts(lines, model.light)
        residual = data - counts
        noise = self.settings.noise
        variance = np.ones(data.shape)
        if noise is not None:
            offset = self.settings.offset
            variance = np.maximum(noise.variance(counts + offset), 1e-12)
        fitted = np.intersect1d(self.near(lines, 0.0), np.flatnonzero(self._fitted))
        fitted = fitted[np.argsort(((self.places[fitted] - self.places[0]) ** 2).sum(axis=1))]
        counted = good & self._around(lines, fitted, LIGHT - 0.5)
        derivatives = [self._derivatives(lines, k) for k in fitted[:_MOST]]
        plane = [
            np.ones(data.shape),
            *(line - at for line, at in zip(lines, self.places[0], strict=True)),
        ]
        flat = [one[counted] for own in derivatives for one in own]
        flat += [np.broadcast_to(one, data.shape)[counted] for one in plane]
        jacobian, weight = np.stack(flat, axis=-1), 1 / variance[counted]
        normal = jacobian.T @ (weight[:, np.newaxis] * jacobian)
        covariance = np.linalg.pinv(normal, rcond=1e-10, hermitian=True)
        step = covariance @ (jacobian.T @ (weight * residual[counted]))
        off = step / np.sqrt(np.maximum(np.diagonal(covariance), 1e-30))
        own = off[: min(_SPOTS, len(derivatives)) * len(derivatives[0])]
        certain = _CERTAIN if len(lines) == len(IN_PLANE) else _CERTAIN_IN_VOLUMES
        stays = float(np.sqrt((own**2).mean())) <= _STILL
        return (
            stays
            and abs(off[-len(plane)]) <= _LEVEL
            and self._leaves_no_more(residual[good & self._around(lines, fitted, certain)])
        )

    def _leaves_no_more(self, residual: Array) -> bool:
        """Whether the residual of a part of the fit's pixels is no more than that of all."""
        chi = self.columns.get("chi_square")
        if chi is None or not self.settings.estimator_kind.chi_is_of_residual:
            return True
        return float((residual**2).sum()) <= _MORE * float(chi[0])

    def _around(self, lines: list[Array], which: NDArray[np.intp], reach: float) -> Any:
        """Return the pixels that are nearer to some spots than to any other, within a reach."""
        shape = np.broadcast_shapes(*(line.shape for line in lines))
        own, other = np.full(shape, np.inf), np.full(shape, np.inf)
        for k in self.near(lines):
            away = sum(
                (((line - at) / width) ** 2 for line, at, width
                 in zip(lines, self.places[k], self.widths, strict=True)), np.zeros(shape),
            )  # fmt: skip
            least = own if k in which else other
            np.minimum(least, away, out=least)
        return (own <= other) & (own <= reach**2)

    def _derivatives(self, lines: list[Array], which: int) -> list[Array]:
        """Return those of a spot's light by its place and its amplitude."""
        profile = self.settings.profile
        steps = dict.fromkeys(profile.axes, _STEP)
        names = [one.name for one in profile.shape]
        if "z" in names and "z" not in steps:
            steps["z"] = _STEP_Z
        found = [
            (self.light(lines, which, (name, step)) - self.light(lines, which, (name, -step)))
            / (2 * step)
            for name, step in steps.items()
        ]
        return [*found, self.light(lines, which) / float(self.columns["amplitude"][which])]


@dataclass(frozen=True, eq=False)
class GroupModel:
    """The light of a window's spots, and the background's level at the first one and its slopes."""

    group: Group
    light: Array
    plane: Array

    def counts(self, lines: list[Array], light: Array | None = None) -> Array:
        """Return light and background at places along each axis; of the window, with its light."""
        if light is None:
            near = self.group.near(lines)
            light = sum((self.group.light(lines, k) for k in near), np.zeros(1))
        away = [line - at for line, at in zip(lines, self.group.places[0], strict=True)]
        level = self.plane[0] + sum(
            slope * one for slope, one in zip(self.plane[1:], away, strict=True)
        )
        return np.asarray(light + level, float)

    def of_spot(self, lines: list[Array], which: int) -> Array:
        """Return the light of one spot and the background."""
        return self.counts(lines, self.group.light(lines, which))
