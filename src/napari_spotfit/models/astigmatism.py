"""A calibration of the widths of astigmatic spots against z, and z from fitted widths.

A cylindrical lens makes the two widths of a spot depend on its height z. z is found by generalised
least squares: with r = σ - σ(z) and C the covariance of both widths, it minimises r' C⁻¹ r. Its
variance is 1 / (a' C⁻¹ a), a = dσ/dz, and the minimum follows χ² with one degree of freedom.

Widths say less than the image. Where the calibration has that of the beads, a measured PSF, fits go
on with it from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .calibration import TABLE, Calibration, Curve, Orientation, unique_range
from .columns import COLUMNS, STDERR, Column
from .measured_psf import MeasuredPsf
from .number_checks import nanometres, number
from .profiles import GAUSSIAN_ELLIPTICAL, GAUSSIAN_ROTATED, Profile

Array = NDArray[np.float64]

#: The columns of depth: z is 0 where a spot is round.
_Z = replace(
    COLUMNS["z"],
    unit="nm",
    meaning="Height of the spot, which rises with the planes of the bead stack; 0 where its widths "
    "are equal.",
)
P_VALUE = COLUMNS["z_p_value"]
#: Heights where the search begins; spots at a time.
_BEGINNINGS, _PIECE = 41, 1 << 14
#: No spot has less background for its light, and no z scatters less than this part of its error.
_STEPS, _LEAST_LEVEL, _LEAST_EXCESS = 12, 1e-9, 0.5
#: Steps in nm that no longer matter.
_SETTLED = 1e-3


class Level(NamedTuple):
    """The curves of dimmer spots, whose wings drown in the background: they appear narrower."""

    #: Background per pixel over the light of a spot.
    level: float
    x: Curve
    y: Curve
    wobble_x: Curve
    wobble_y: Curve
    excess: Curve


class Quality(NamedTuple):
    """How well z was found for the beads themselves, each left out of the calibration in turn."""

    #: Heights in nm; mean and standard deviation of the error of z there; and the latter's bound.
    z: tuple[float, ...]
    bias: tuple[float, ...]
    scatter: tuple[float, ...]
    bound: tuple[float, ...]


class Bead(NamedTuple):
    """A bead of the stack, and what became of it."""

    y: float
    x: float
    #: Its own height in nm: it is round at this z of the stack.
    z: float
    #: Photons, or counts, in its brightest plane, and the rms distance of its widths from the
    #: curves in pixels.
    photons: float
    residual: float
    used: bool
    #: Why it was not used; "used" otherwise.
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class AstigmatismCalibration(Calibration):
    """Widths of spots against z, made by :func:`~napari_spotfit.calibrate_astigmatism`.

    Threads: it does not change, so that any number may use one.

    Parameters
    ----------
    x, y : Curve
        The widths along x and y, or along axes turned by `angle`, in pixels.
    low, high : float
        The range in nm in which widths determine z.
    angle : float
        Degrees from the x axis to the first of the lens' axes, positive towards y.
    wobble_x, wobble_y : Curve, optional
        How far a spot appears from where it is at z = 0, in pixels.
    excess : Curve, optional
        How many times the scatter of z is what the widths' standard errors say: spots are no
        Gaussians.
    index_factor : float
        Heights of results are those of the stage times this factor, and so are their errors: 1
        for beads on the glass, less where the sample refracts less than the immersion.
    level : float
        Background per pixel over the light of the beads.
    dimmer : tuple of Level
        The curves of dimmer spots, in the order of their levels.
    pixel_size : float, optional
        Side of a pixel of the camera in nm.
    roi_size : tuple of int, optional
        ROI of the fits that the curves are of.
    pixel, estimator : str
        How these fits were made.
    points : tuple of tuple of float
        z in nm and both widths, averaged over the beads.
    quality : Quality, optional
        Errors of z by leaving out each bead in turn.
    beads : tuple of Bead
        Every bead that was found.
    psf : MeasuredPsf, optional
        Their mean image, by heights of the stage, with y, x and z of a spot where the curves have
        them: by it, fits that have found z by their widths go on.
    unlike : Curve, optional
        How far z of a bead by the image of the others is off, beyond noise, in nm: real beads are
        not alike, and neither are spots.

    Examples
    --------
    >>> from napari_spotfit.models.astigmatism import AstigmatismCalibration
    >>> from napari_spotfit.models.calibration import Curve
    >>> x, y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
    >>> calibration = AstigmatismCalibration(x, y, -400.0, 400.0)
    >>> z, error, p = calibration.locate(1.3, calibration.y(250.0), 0.02, 0.03, 0.1)
    >>> float(z.round(2))
    250.0
    """

    kind: ClassVar[str] = "astigmatism"

    x: Curve
    y: Curve
    low: float
    high: float
    angle: float = 0.0
    wobble_x: Curve | None = None
    wobble_y: Curve | None = None
    excess: Curve | None = None
    index_factor: float = 1.0
    level: float = 0.0
    dimmer: tuple[Level, ...] = ()
    pixel_size: float | None = None
    roi_size: tuple[int, ...] | None = None
    pixel: str = "sampled"
    estimator: str = "mle"
    points: tuple[tuple[float, ...], ...] = ()
    quality: Quality | None = None
    beads: tuple[Bead, ...] = ()
    psf: MeasuredPsf | None = None
    unlike: Curve | None = None

    def __post_init__(self) -> None:
        for name in ("x", "y", "wobble_x", "wobble_y", "excess", "unlike"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, Curve(*value).checked(name))
        dimmer = tuple(
            Level(number("level", level), *(Curve(*one).checked("of a level") for one in curves))
            for level, *curves in self.dimmer
        )
        object.__setattr__(self, "dimmer", dimmer)
        for name in ("low", "high", "angle", "index_factor", "level"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        number("index_factor", self.index_factor, 0, above=True)
        if self.pixel_size is not None:
            size = nanometres("pixel_size", self.pixel_size)
            object.__setattr__(self, "pixel_size", size)
        if self.quality is not None:
            object.__setattr__(self, "quality", Quality(*self.quality))
        object.__setattr__(self, "beads", tuple(Bead(*bead) for bead in self.beads))
        if not self.low < self.high:
            raise ValueError(f"low must be below high; got {self.low:g} and {self.high:g} nm")
        levels = [self.level, *(one.level for one in dimmer)]
        if dimmer and not (self.level > 0 and np.all(np.diff(levels) > 0)):
            raise ValueError(f"the levels of dimmer spots must rise, from above 0; got {levels}")
        z = np.linspace(self.low, self.high, TABLE)
        for x, y in ((self.x, self.y), *((one.x, one.y) for one in dimmer)):
            if not min(x(z).min(), y(z).min()) > 0:
                raise ValueError("the curves x and y must be above 0 px in the range")
            if unique_range(x, y, self.low, self.high) != (self.low, self.high):
                raise ValueError(
                    f"the widths do not determine z from {self.low:g} to {self.high:g} nm: the "
                    "difference of both must rise or fall all the way. Choose a shorter range"
                )

    @property
    def profile(self) -> Profile:
        """The elliptical Gaussian, rotated if the lens is."""
        return GAUSSIAN_ROTATED if self.angle else GAUSSIAN_ELLIPTICAL

    @property
    def words(self) -> str:
        """What it is, in a few words."""
        low, high = self.range
        used = sum(bead.used for bead in self.beads)
        beads = f", {used} bead{'s' * (used != 1)}" if self.beads else ""
        return f"astigmatism, z from {low:.0f} to {high:.0f} nm{beads}"

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest z of results, in nm."""
        return self.low * self.index_factor, self.high * self.index_factor

    @property
    def columns(self) -> tuple[Column, ...]:
        """Z in nm, its standard error, and how well both widths go with a z."""
        return _Z, P_VALUE, _Z.standard_error()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Fits as those of the beads, whose widths depend on how they are fitted."""
        z = np.linspace(self.low, self.high, _BEGINNINGS)
        width = float(np.median(np.sqrt(self.x(z) * self.y(z))))
        given = {"estimator": self.estimator, "pixel": self.pixel, "sigma": round(width, 3)}
        # Noise makes several maxima along a wide spot.
        given["min_distance"] = float(np.ceil(max(self.x(z).max(), self.y(z).max())))
        return given if self.roi_size is None else {**given, "roi_size": self.roi_size}

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise a ValueError if fits with such settings have other widths."""
        for name in ("estimator", "pixel", "roi_size"):
            own = getattr(self, name)
            value = given.get(name, own)
            if isinstance(value, int):
                value = (value, value)
            if own is not None and value != own:
                raise ValueError(
                    f"{name} must be {own!r}, as in the fits of the beads: widths depend on it; "
                    f"got {given[name]!r}. Calibrate with this {name}, or leave it out"
                )
        super().check(given)
        shape = {"sigma_x", "sigma_y", "angle"}
        limited = shape & {*given.get("fixed", ()), *given.get("bounds", ())}
        if limited or {"sigma_min", "sigma_max"} & given.keys():
            raise ValueError(
                "the widths of a calibration's model cannot be fixed or bounded: they determine z"
            )

    def with_index(self, factor: float) -> AstigmatismCalibration:
        """Return the same for a sample in which z of the stage appears times a factor.

        Examples
        --------
        >>> from napari_spotfit.models.astigmatism import AstigmatismCalibration
        >>> from napari_spotfit.models.calibration import Curve
        >>> x, y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
        >>> AstigmatismCalibration(x, y, -400.0, 400.0).with_index(0.75).range
        (-300.0, 300.0)
        """
        return replace(self, index_factor=factor)

    def _turned(self, how: Orientation) -> AstigmatismCalibration:
        def turned(part: Any) -> dict[str, Any]:
            x, y, wobble_x, wobble_y = part.x, part.y, part.wobble_x, part.wobble_y
            if how.exchanged:
                x, y, wobble_x, wobble_y = y, x, wobble_y, wobble_x
            wobble_x = wobble_x.mirrored() if wobble_x and how.flipped_x else wobble_x
            wobble_y = wobble_y.mirrored() if wobble_y and how.flipped_y else wobble_y
            return {"x": x, "y": y, "wobble_x": wobble_x, "wobble_y": wobble_y}

        own = turned(self)
        own["dimmer"] = tuple(one._replace(**turned(one)) for one in self.dimmer)
        own["psf"] = self.psf and self.psf._turned(how)
        if (how.exchanged + how.flipped_y + how.flipped_x) % 2:
            own["angle"] = -self.angle
        if how.exchanged:
            own["points"] = tuple((z, y, x, *others) for z, x, y, *others in self.points)
            own["roi_size"] = self.roi_size and self.roi_size[::-1]
        return replace(self, **own)

    @cached_property
    def _table(self) -> tuple[Array, Array, Array]:
        """Logarithms of the levels; heights; and by both, the columns of :class:`_Row`."""
        still, alike = (Curve("polynomial", (value,)) for value in (0.0, 1.0))
        shifts = self.wobble_x or still, self.wobble_y or still
        levels = Level(self.level, self.x, self.y, *shifts, self.excess or alike), *self.dimmer
        z = np.linspace(self.low, self.high, TABLE)
        values = np.empty((len(levels), TABLE, len(_Row._fields)))
        for rows, (_, *curves, excess) in zip(values, levels, strict=True):
            own = [curve(z) for curve in curves]
            slopes = [np.gradient(one, z) for one in own]
            rows[:] = np.stack([*own, *slopes, np.maximum(excess(z), _LEAST_EXCESS)], axis=1)
        return np.log([max(one.level, _LEAST_LEVEL) for one in levels]), z, values

    def locate(
        self,
        sigma_x: Any,
        sigma_y: Any,
        error_x: Any,
        error_y: Any,
        correlation: Any = 0.0,
        level: Any = 0.0,
    ) -> tuple[Array, Array, Array]:
        """Return z, its standard error, and the probability of widths so far from the curves.

        Parameters
        ----------
        sigma_x, sigma_y : float or array
            Fitted widths in pixels.
        error_x, error_y : float or array
            Their standard errors.
        correlation : float or array
            Of the errors of both.
        level : float or array
            Background per pixel over the light of the spot.

        Returns
        -------
        z, stderr, p_value : ndarray of float64
            In nm, those of the stage times the factor of refraction. NaN where a width is; at an
            end of the range z is this end, without an error.
        """
        given = np.broadcast_arrays(sigma_x, sigma_y, error_x, error_y, correlation, level)
        shape, rows = given[0].shape, [np.ravel(one).astype(float) for one in given]
        found = np.empty((3, rows[0].size))
        for first in range(0, rows[0].size, _PIECE):
            part = slice(first, first + _PIECE)
            found[:, part] = self._located(*(one[part] for one in rows))
        found[:2] *= self.index_factor
        z, error, p = found.reshape(3, *shape)
        return z, error, p

    def _located(self, *given: Array) -> tuple[Array, Array, Array]:
        width_x, width_y, *errors, level = given
        heights, values = self._table[1:]
        xx, xy, yy = _inverse(*errors)
        place = self._between_levels(level)

        def distance(x: Array, y: Array) -> Array:
            dx, dy = x - width_x, y - width_y
            return xx * dx * dx + 2 * xy * dx * dy + yy * dy * dy

        step = (TABLE - 1) // (_BEGINNINGS - 1)
        z, least = np.full(width_x.shape, np.nan), np.full(width_x.shape, np.inf)
        for node in range(0, TABLE, step):
            own = distance(*(_mixed(values[:, node, one], place) for one in (0, 1)))
            nearer = own < least
            z[nearer], least[nearer] = heights[node], own[nearer]
        # Newton's steps between two heights with the minimum between them; else half way.
        longest = step * (heights[1] - heights[0])
        below, above = np.maximum(z - longest, self.low), np.minimum(z + longest, self.high)
        for round_ in range(_STEPS):
            row = self._at(z, place)
            dx, dy = width_x - row.x, width_y - row.y
            along = row.slope_x * (xx * dx + xy * dy) + row.slope_y * (xy * dx + yy * dy)
            if not round_:
                beyond = ((z == self.low) & (along <= 0)) | ((z == self.high) & (along >= 0))
                ends = z[beyond]
            below, above = np.where(along > 0, z, below), np.where(along < 0, z, above)
            step_z = along / _information(row.slope_x, row.slope_y, xx, xy, yy)
            before, z = z, z + step_z
            # A step lost in rounding ends at a limit, but is right.
            taken = ((z > below) & (z < above)) | (np.abs(step_z) < _SETTLED)
            z = np.where(taken, z, (below + above) / 2)
            if round_ and np.nanmax(np.abs(z - before), initial=0.0) < _SETTLED:
                break
        z[beyond] = ends
        row = self._at(z, place)
        error = row.excess * _information(row.slope_x, row.slope_y, xx, xy, yy) ** -0.5
        error[(z <= self.low) | (z >= self.high)] = np.nan
        from scipy.special import erfc  # here, as SciPy takes its time to import

        return z, error, erfc(np.sqrt(distance(row.x, row.y) / 2) / row.excess)

    def _between_levels(self, level: Array) -> tuple[NDArray[np.int64], Array]:
        """Return the lower of the two levels that a spot is between, and how far it is from it."""
        levels = self._table[0]
        with np.errstate(invalid="ignore", divide="ignore"):
            place = np.interp(np.log(np.fmax(level, _LEAST_LEVEL)), levels, np.arange(len(levels)))
        first = np.clip(place.astype(int), 0, max(len(levels) - 2, 0))
        return first, place - first

    def _at(self, z: Array, place: tuple[NDArray[np.int64], Array]) -> _Row:
        """Return what the table has at heights, between two levels each."""
        values = self._table[2]
        position = (np.nan_to_num(z, nan=self.low) - self.low) / (self.high - self.low)
        position = np.clip(position * (TABLE - 1), 0, TABLE - 1.000001)
        node = position.astype(int)
        part, (level, above) = (position - node)[:, None], place
        found = values[level, node] * (1 - part) + values[level, node + 1] * part
        if len(values) > 1:
            upper = values[level + 1, node] * (1 - part) + values[level + 1, node + 1] * part
            found += (upper - found) * above[:, None]
        found[np.isnan(z)] = np.nan
        return _Row(*found.T)

    def shift(self, z: Array, level: Array) -> dict[str, tuple[Array, Array]]:
        """Return how far spots appear from where they are along y and x, and how that grows.

        Parameters
        ----------
        z : ndarray, shape (n,)
            Heights of results.
        level : ndarray, shape (n,)
            Background per pixel over light.

        Returns
        -------
        dict of str to (ndarray, ndarray)
            For each axis pixels, and pixels per nm of z; 0 where z is no number.
        """
        stage = np.clip(np.nan_to_num(z) / self.index_factor, self.low, self.high)
        row = self._at(stage, self._between_levels(level))
        factor = self.index_factor
        return {
            "y": (row.wobble_y, row.wobble_slope_y / factor),
            "x": (row.wobble_x, row.wobble_slope_x / factor),
        }


class _Row(NamedTuple):
    """What the table of a calibration has at a height."""

    x: Array
    y: Array
    wobble_x: Array
    wobble_y: Array
    slope_x: Array
    slope_y: Array
    wobble_slope_x: Array
    wobble_slope_y: Array
    excess: Array


def _mixed(values: Array, place: tuple[NDArray[np.int64], Array]) -> Array:
    """Return one value of each level, between the two levels of each spot."""
    level, above = place
    if len(values) == 1:
        return values
    return values[level] + (values[level + 1] - values[level]) * above


def _inverse(error_x: Array, error_y: Array, correlation: Array) -> tuple[Array, Array, Array]:
    """Return the inverse of a covariance of two numbers: xx, xy and yy."""
    common = 1 / (1 - correlation**2)
    xy = -correlation * common / (error_x * error_y)
    return common / error_x**2, xy, common / error_y**2


def _information(x: Array, y: Array, xx: Array, xy: Array, yy: Array) -> Array:
    """Return what both widths say of z, given their slopes."""
    return xx * x * x + 2 * xy * x * y + yy * y * y


#: The names of the columns that results have beside those of the profile.
DEPTH_COLUMNS = ("z", P_VALUE.name, "z" + STDERR)
