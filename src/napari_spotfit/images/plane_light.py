"""Volumes whose planes differ in light or background, as where a lamp flickers or light fades.

Values of each plane are brought to one background, and to one light if the light differs; what its
noise is then beyond that of other planes is added to the variances of its pixels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.columns import STDERR
from ..settings.noise_model import NoiseModel
from .arrays import to_host
from .frames import Part
from .planes_without_image import planes_without_image, step_for, type_of_sums

#: How many volumes are looked at for planes without an image, and how many must be left of these.
LOOKED_AT, LEAST_LEFT = 3, 2
#: Levels are those of the middle of planes, of at most this side, in blocks of this side.
SIDE, _BLOCK = 512, 4
#: Which blocks count, by their order: the dark ones, which have no spots, or the darkest; and how
#: many of their deviations the mean of these lies below that of all, if they differ by noise.
_DARK, _BELOW = (0.1, 0.5), 0.5586
_DARKEST, _FAR_BELOW = (0.0, 0.1), 1.755
#: The least light of a plane, of that of the reference, and the most.
_LEAST_LIGHT, _MOST_LIGHT = 0.02, 50.0
#: The share of the height of a spot that counts in the noise of its place, about.
_OF_SPOT = 0.4
#: Levels of this many volumes are kept.
_KEPT = 4096
#: The logarithm of light over z is a polynomial of this degree at most, beside which it flickers,
#: and it is known to about this part of it.
_MOST_DEGREE, _KNOWN = 3, 0.01


Array = NDArray[np.float64]


class Levels(NamedTuple):
    """The planes of volumes, each of shape (volumes, planes)."""

    #: Background in counts, light over that of the reference, and the background of that.
    level: Array
    light: Array
    reference: Array


def middle(shape: tuple[int, ...]) -> Part:
    """Return the part of volumes of a shape (Z, Y, X) by which their planes are compared."""
    depth, *plane = shape
    sides = [min(SIDE, side) for side in plane]
    across = (
        slice((side - own) // 2, (side - own) // 2 + own)
        for side, own in zip(plane, sides, strict=True)
    )
    return slice(0, depth), *across


def plane_levels(volume: NDArray[Any], noise: NoiseModel, darkest: bool = False) -> Array:
    """Return the background of each plane of a volume, NaN where it has no pixels.

    By the dark blocks, or by the darkest alone, which have less of the light of dense spots.

    Examples
    --------
    >>> light = np.broadcast_to([[[50.0]], [[100.0]]], (2, 80, 80))
    >>> volume = np.random.default_rng(1).poisson(light)
    >>> plane_levels(volume, NoiseModel(1.0, 0.0, 0.0)).round().tolist()
    [50.0, 100.0]
    """
    return PlaneBlocks(volume).levels(noise, darkest)


class PlaneBlocks:
    """The dark blocks of the planes of a volume, which show their background.

    Parameters
    ----------
    volume : ndarray, shape (Z, Y, X)
        Pixels; NaN where they are bad.

    Examples
    --------
    Light of spots that is everywhere makes dark blocks differ from those beside them:

    >>> noise = np.random.default_rng(1).poisson(50, (2, 80, 80))
    >>> noise[1] += np.random.default_rng(2).poisson(20, (20, 20)).repeat(4, 0).repeat(4, 1)
    >>> found = PlaneBlocks(noise).clutter(np.array([50.0, 70.0]), NoiseModel(1.0, 0.0, 0.0))
    >>> (found > 1).tolist()
    [False, True]
    """

    def __init__(self, volume: NDArray[Any]) -> None:
        sums = _block_sums(volume)
        self._means: Array = sums / _BLOCK**2
        self._known: list[Array] = [np.sort(_finite(own)) / _BLOCK**2 for own in sums]

    def levels(self, noise: NoiseModel, darkest: bool = False) -> Array:
        """Return the background of each plane, as :func:`plane_levels` does."""
        found = np.empty(len(self._known))
        shares, below = (_DARKEST, _FAR_BELOW) if darkest else (_DARK, _BELOW)
        for number, means in enumerate(self._known):
            first, last = (round(share * len(means)) for share in shares)
            found[number] = means[first:last].mean() if last > first else np.nan
        known = np.nan_to_num(found)
        level: Array = found + below / _BLOCK * np.sqrt(noise.variance(known))
        return level

    def clutter(self, level: Array, noise: NoiseModel) -> Array:
        """Return by how much dark blocks of each plane differ from those beside them, beyond noise.

        In counts, of planes with such a level: 0 where there is noise alone, or a background that
        changes slowly, and more where the light of spots is everywhere.
        """
        found = np.zeros(len(self._known))
        of_noise = noise.correlation**2 * noise.variance(np.nan_to_num(level)) / _BLOCK**2
        for number, (means, known) in enumerate(zip(self._means, self._known, strict=True)):
            if not len(known):
                continue
            dark = np.where(means <= _median(known), means, np.nan)
            off = np.concatenate([np.diff(dark, axis=axis).ravel() for axis in (0, 1)])
            off = off[np.isfinite(off)]
            if len(off):
                found[number] = np.sqrt(max(np.mean(off**2) / 2 - of_noise[number], 0.0))
        return found

    def of(self, planes: NDArray[np.bool_]) -> PlaneBlocks:
        """Return those of some planes."""
        some = copy.copy(self)
        some._means = self._means[planes]
        some._known = [known for known, own in zip(self._known, planes, strict=True) if own]
        return some


def _median(ordered: Array) -> float:
    """Return the median of numbers in order."""
    middle = len(ordered) // 2
    return float(ordered[middle - 1 + len(ordered) % 2 : middle + 1].mean())


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """Return the finite ones of some numbers, in a row."""
    return values.ravel() if values.dtype.kind in "iu" else values[np.isfinite(values)]


def _block_sums(volume: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of the blocks of planes that are looked at, as they lie."""
    height, width = volume.shape[1:]
    rows, columns = height // _BLOCK, width // _BLOCK
    step = step_for(rows * columns)
    blocks = volume[:, : rows * _BLOCK, : columns * _BLOCK]
    blocks = blocks.reshape(-1, rows, _BLOCK, columns, _BLOCK)[:, ::step, :, ::step]
    # Sums of a few numbers along the last axes take several times as long.
    lines = blocks[..., 0].astype(type_of_sums(volume.dtype))
    for number in range(1, _BLOCK):
        lines += blocks[..., number]
    sums: NDArray[Any] = lines[:, :, 0].copy()
    for number in range(1, _BLOCK):
        sums += lines[:, :, number]
    return sums


class PlaneLight:
    """What corrects the planes of volumes for their own background and light.

    Threads: any number may share it.

    Parameters
    ----------
    read : callable
        Returns the middle of a volume by its number, corrected for the camera.
    shape : tuple of int
        Shape of the volumes.
    noise : NoiseModel
        The noise of the pixels as they are.
    dark : float or None
        Counts without light, from which the light of planes follows; None if their light is the
        same, and the background alone differs.
    samples : ndarray of int
        Numbers of a few volumes, by whose planes spots are looked for.
    left_out : ndarray of bool, shape (Z,), optional
        Which planes hold no image.
    """

    def __init__(
        self,
        read: Callable[[int], NDArray[Any]],
        shape: tuple[int, ...],
        noise: NoiseModel,
        dark: float | None,
        samples: NDArray[np.int64],
        left_out: NDArray[np.bool_] | None = None,
    ) -> None:
        self._read, self._shape, self._samples = read, shape, samples
        self.noise, self.dark, self._left_out = noise, dark, left_out
        self._known: dict[int, Array] = {}

    def levels(self, numbers: NDArray[np.int64], pixels: Any = None) -> Levels:
        """Return the planes of volumes, which are read unless their pixels are at hand."""
        if pixels is None:
            levels = [self._level(number) for number in numbers.tolist()]
        else:
            part = middle(self._shape)
            levels = [plane_levels(to_host(own[part]), self.noise) for own in pixels]
        return self._of(np.array(levels).reshape(len(numbers), self._shape[0]))

    def _level(self, number: int) -> Array:
        if number not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[number] = plane_levels(self._read(number), self.noise)
        return self._known[number]

    def _of(self, level: Array) -> Levels:
        light, reference = np.ones_like(level), np.zeros_like(level)
        if self._left_out is not None:
            level[:, self._left_out] = np.nan
        for own, factor, common in zip(level, light, reference, strict=True):
            known = np.isfinite(own)
            if not known.any():
                own[:] = 0.0
                continue
            if self.dark is None:
                common[:] = own[known].min()
            else:
                common[:] = self.dark + _brightest(np.flatnonzero(known), own[known] - self.dark)
                ratio = (own[known] - self.dark) / (common[known] - self.dark)
                factor[known] = np.clip(ratio, _LEAST_LIGHT, _MOST_LIGHT)
            own[~known] = common[~known]
        return Levels(level, light, reference)

    def corrected(
        self, numbers: NDArray[np.int64], frames: Any, module: ModuleType, part: Part | None
    ) -> Any:
        """Return volumes, corrected for the camera, with planes of one background and light."""
        planes = self.levels(numbers, frames if part is None else None)
        own = slice(None) if part is None else part[0]
        level, light, reference = (
            module.asarray(one[:, own, np.newaxis, np.newaxis].astype(np.float32)) for one in planes
        )
        return (frames - level) / light + reference

    def excess(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the variance of planes' pixels beyond that of the reference, in counts².

        Of the background of corrected planes, of shape (volumes, Z, 1, 1).
        """
        level, light, reference = self.levels(numbers)
        own = self.noise.variance(level) / light**2 - self.noise.variance(reference)
        found: NDArray[np.float32] = own.astype(np.float32)[..., np.newaxis, np.newaxis]
        return found

    def added_to(self, variances: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return a map of variances, of shape (Z, Y, X), with what planes have more.

        What finds spots goes by one map: by the most that a few volumes have.
        """
        known = np.zeros(self._shape, np.float32) if variances is None else variances
        most: NDArray[np.float32] = known + np.maximum(self.excess(self._samples).max(axis=0), 0)
        return most

    def correct(self, columns: dict[str, Any], numbers: NDArray[np.int64]) -> None:
        """Correct fits in volumes of these numbers: standard errors, and the background.

        A spot's own noise is that of the light of its plane. Where the background alone differs, it
        is that of the plane.
        """
        if not len(numbers):
            return
        own, place = np.unique(numbers, return_inverse=True)
        at = np.clip(np.nan_to_num(columns["z"]), 0, self._shape[0] - 1)
        below = np.minimum(at.astype(np.int64), self._shape[0] - 2)
        level, light, reference = (
            (1 - at + below) * one[place, below] + (at - below) * one[place, below + 1]
            for one in self.levels(own)
        )
        spot = _OF_SPOT * self.noise.correlation**2 * self.noise.slope
        spot = spot * np.maximum(np.nan_to_num(columns["amplitude"]), 0.0)
        around = self.noise.variance(level) / light**2
        times = np.sqrt((around + spot / light) / np.maximum(around + spot, 1e-30))
        for name, values in columns.items():
            if name.endswith(STDERR) and not name.startswith("background"):
                values *= times.astype(values.dtype)
        if self.dark is None:
            columns["background"] += (level - reference).astype(columns["background"].dtype)


def _brightest(place: NDArray[np.int64], light: Array) -> float:
    """Return the light of the brightest planes, without its flicker from one to the next."""
    highest = float(light.max())
    if highest <= 0 or len(light) < _MOST_DEGREE:
        return max(highest, 1e-6)
    log = np.log(np.maximum(light, _LEAST_LIGHT * highest))
    z, best, smooth = (place - place.mean()) / np.ptp(place), np.inf, log
    for degree in range(min(_MOST_DEGREE, len(log) - 2) + 1):
        curve = np.polyval(np.polyfit(z, log, degree), z)
        cost = len(log) * np.log(np.mean((log - curve) ** 2) + _KNOWN**2)
        cost += (degree + 1) * np.log(len(log))
        if cost < best:
            best, smooth = cost, curve
    return min(float(np.exp(smooth.max())), highest)


def relative_light(volumes: NDArray[Any], noise: NoiseModel, dark: float) -> Array:
    """Return the light of each plane of volumes over that of the planes which fits refer to.

    Parameters
    ----------
    volumes : ndarray, shape (…, Z, Y, X)
        Pixels as they were recorded.
    noise : NoiseModel
        Their noise.
    dark : float
        Counts without light.

    Returns
    -------
    ndarray of float64, shape (…, Z)

    Examples
    --------
    >>> light = np.broadcast_to([[[50.0]], [[100.0]]], (2, 80, 80))
    >>> volume = np.random.default_rng(1).poisson(light) + 100.0
    >>> relative_light(volume, NoiseModel(1.0, 0.0, 100.0), 100.0).round(1).tolist()
    [0.5, 1.0]
    """
    own = volumes.reshape(-1, *volumes.shape[-3:])
    part, numbers = middle(own.shape[1:]), np.arange(len(own))
    left_out = planes_without_image(own[number][part] for number in numbers[:LOOKED_AT]).left_out
    planes = PlaneLight(
        lambda number: own[number][part], own.shape[1:], noise, dark, numbers[:1],
        None if left_out.sum() > len(left_out) - LEAST_LEFT else left_out,
    )  # fmt: skip
    light: Array = planes.levels(numbers).light.reshape(volumes.shape[:-2])
    return light
