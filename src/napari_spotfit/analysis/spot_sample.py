"""Data, model and residual of one spot, cut out of its frame."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Block, Positions
from ..engine.depth import apparent_places
from ..engine.fit_job import FitJob
from ..engine.positions import ExcludedPixels, excluded_pixels
from ..engine.verdicts import mean_sigma
from ..estimation.detection_noise import without_map
from ..models.estimators import ROUNDING
from ..settings.options import settings_from
from ..settings.settings import Settings

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Side of the ROI where a fit does not record it.
_USUAL_ROI = 9
#: Points of the model's curve per pixel.
_FINE = 8
#: The sum of the squared residuals is the fit's χ² within this fraction of it, and within
#: this multiple of the fit's rounding errors.
_SAME, _ROUNDINGS = 2e-3, 100.0


class Roi(NamedTuple):
    """First pixel and size of the region that was fitted."""

    y: int
    x: int
    rows: int
    columns: int
    #: In volumes.
    z: int = 0
    planes: int = 1

    @property
    def corner(self) -> tuple[int, int, int]:
        """First pixel along z, y and x."""
        return self.z, self.y, self.x

    @property
    def shape(self) -> tuple[int, int, int]:
        """Planes, rows and columns."""
        return self.planes, self.rows, self.columns


class FittedFrame(NamedTuple):
    """A frame as its spots were fitted.

    Attributes
    ----------
    pixels : ndarray, shape (Y, X) or (Z, Y, X)
        Counts, as a camera of one offset and one gain would have taken them; of bad pixels,
        NaN.
    bad : ndarray of bool, shape (Y, X), or None
        Which pixels are bad, if any are known.
    raw, fitted : ndarray, shape (Y, X)
        Counts as the camera gave them, and as the fits took them: less the map of offsets.
    variances : ndarray, shape (Y, X), or None
        The map of read-out variances, as the detection takes it.
    """

    pixels: NDArray[Any]
    bad: Mask | None
    raw: NDArray[Any]
    fitted: NDArray[Any]
    variances: NDArray[np.float32] | None = None


class Line(NamedTuple):
    """The pixels along one row or column of the ROI, and the model along the same line."""

    #: Number of the row or column in the image.
    at: int
    places: Array
    data: Array
    #: The model's curve, with several points a pixel.
    fine: Array
    curve: Array
    #: The same of one of several spots that were fitted together.
    own: Array | None = None


@dataclass(frozen=True)
class SpotSample:
    """One spot's pixels in counts, beside the fit's model of them.

    Attributes
    ----------
    roi : Roi
        Where the pixels lie in the image.
    data, model, residual : ndarray of float64, shape (rows, columns)
        The image, the model with the camera offset, and what the model leaves over; data and
        residual of bad pixels are NaN.
    row, column : Line
        Data and model through the pixel that is nearest to the centre.
    y, x : float
        Centre in image pixels.
    width : Ellipse
        One σ around it.
    """

    roi: Roi
    data: Array
    model: Array
    residual: Array
    row: Line
    column: Line
    y: float
    x: float
    width: Ellipse
    #: How many pixels the fit has counted; those that it has excluded, as far as they are known;
    #: and how many more it has excluded.
    counted: int
    excluded: ExcludedPixels
    unknown: int
    #: In volumes, the cuts along x and z, and along y and z, beside this one along x and y.
    cuts: tuple[SpotSample, ...] = ()
    #: In volumes, the residual of all pixels that count.
    whole: Array | None = None
    #: Of a spot that was fitted together with others: where these are (down, right), and whether
    #: the pixels are those of the fit.
    others: tuple[tuple[float, float], ...] = ()
    same: bool | None = None

    @property
    def levels(self) -> tuple[float, float]:
        """Least and largest count of data and model."""
        both = np.stack([self.data, self.model])
        return float(np.nanmin(both)), float(np.nanmax(both))

    @property
    def largest(self) -> float:
        """Largest absolute residual of a pixel that counts."""
        return float(np.max(np.abs(self._fitted), initial=0.0))

    @property
    def excluded_in_words(self) -> str:
        """How many pixels were excluded and why, in words; nothing where all have counted."""
        found = self.excluded
        reasons = {
            "nearer to a neighbour": int(found.neighbour.sum()) or self.unknown,
            "saturated": int(found.saturated.sum()),
            "hot or dead": int(found.hot.sum()),
            "no data but padding": int(found.padding.sum()),
            "bad": int(found.bad.sum()),
        }
        parts = [f"{count} px {reason}" for reason, count in reasons.items() if count]
        if not parts:
            return ""
        hidden = " (which these are is not known)" if self.unknown else ""
        return f"Not fitted: {', '.join(parts).replace('neighbour', f'neighbour{hidden}')}"

    @property
    def _fitted(self) -> Array:
        """The residual of the pixels that count, as far as these are known."""
        fitted: Array = self.residual[~self.excluded.pixels]
        return fitted if self.whole is None else self.whole

    def is_of(self, chi_square: float) -> bool:
        """Whether the residual is that of a fit with this χ²; not so if pixels have changed.

        Where only the number of excluded pixels is known, χ² lies between the sums of the least
        and of the largest residuals. That of a joint fit has pixels elsewhere, too: there it is
        looked at whether the fit would stay.
        """
        if self.same is not None:
            return self.same
        rounding = ROUNDING * max(float(np.nanmax(np.abs(self.data))), 1e-30)
        tolerance = _SAME * chi_square + len(self._fitted) * (_ROUNDINGS * rounding) ** 2
        squares = np.sort(self._fitted**2)
        least, most = squares[: self.counted].sum(), squares[-self.counted :].sum()
        return bool(least - tolerance <= chi_square <= most + tolerance)


def settings_of(values: Mapping[str, float], settings: Mapping[str, Any]) -> Settings:
    """Return what a spot was fitted with.

    Picked spots may each have a size of the ROI and a camera offset of their own.
    """
    known = settings_from(settings)
    size, offset = (values.get(name, math.nan) for name in ("roi_size", "offset"))
    own: dict[str, Any] = {}
    if math.isfinite(size) and round(size) != known.roi_size:
        own["roi_size"] = round(size)
    if math.isfinite(offset) and offset != known.offset:
        own["offset"] = float(offset)
    return known.changed(**own) if own else known


def camera_settings(settings: Settings, roles: Collection[str]) -> Settings:
    """Return a fit's offset and gain, unless its maps of these roles replace them.

    Without maps neither counts, so that all spots share a frame.
    """
    known = ("offset", "gain") if roles else ()
    return Settings(**{name: getattr(settings, name) for name in known if name not in roles})


def roi_of(
    values: Mapping[str, float], settings: Mapping[str, Any], shape: tuple[int, ...] | None = None
) -> Roi:
    """Return the region that was fitted.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns. Without ``roi_y`` and ``roi_x`` the region lies around the
        centre; ``roi_size`` is the size of this one spot's region.
    settings : mapping
        Settings of the fit; ``roi_size`` counts.
    shape : tuple of int, optional
        That of the frame, into which a region around the centre is shifted.
    """
    known = settings_of(values, settings)
    axes, size = known.profile.axes, known.roi_size or _USUAL_ROI
    sides = [int(n) for n in (size if isinstance(size, (tuple, list)) else (size,) * len(axes))]
    corner = [values.get(f"roi_{axis}", np.nan) for axis in axes]
    if not np.all(np.isfinite(corner)):
        if shape is not None:
            sides = [min(side, length) for side, length in zip(sides, shape, strict=True)]
        corner = [round(values[axis]) - side // 2 for axis, side in zip(axes, sides, strict=True)]
        if shape is not None:
            corner = [
                min(max(first, 0), length - side)
                for first, length, side in zip(corner, shape, sides, strict=True)
            ]
    (y, x), (rows, columns) = map(round, corner[-2:]), sides[-2:]
    return Roi(y, x, rows, columns, *((round(corner[0]), sides[0]) if len(axes) > 2 else ()))


def sample_spot(
    values: Mapping[str, float],
    settings: Mapping[str, Any],
    frame: FittedFrame,
    positions: Array | None = None,
) -> SpotSample:
    """Cut a spot out of its frame and lay the model beside it.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns, positions in image pixels; ``roi_size`` and ``offset`` are those
        of this one spot.
    settings : mapping
        Settings of the fit: ``roi_size``, ``model`` and ``offset`` count.
    frame : FittedFrame
        The frame.
    positions : ndarray, shape (n, 2) or (n, 3), optional
        Where the fits of the frame's spots began, this one's first, as far as is known.

    Raises
    ------
    ValueError
        If the region lies outside the frame or has pixels that are no numbers.
    """
    known = settings_of(values, settings)
    axes, roi = known.profile.axes, roi_of(values, settings, frame.pixels.shape)
    first, shape = roi.corner[-len(axes) :], roi.shape[-len(axes) :]
    window = tuple(slice(at, at + side) for at, side in zip(first, shape, strict=True))
    bad = None if frame.bad is None else np.broadcast_to(frame.bad, frame.pixels.shape)[window]
    data = pixels_of(frame.pixels, window, False if bad is None else bad)
    counted = counted_pixels(values, known, data.size)
    if positions is None:
        positions = np.array([[values[axis] for axis in axes]])
    detection = without_map(known, frame.variances)
    not_finite = ~np.isfinite(data) if bad is None else bad
    excluded, unknown = excluded_of(
        (first, shape), not_finite, frame, detection, positions, counted
    )
    region = SampledRegion(values, known, first, data, counted, excluded, unknown)
    sample = region.cut(len(axes) - 2, len(axes) - 1)
    if len(axes) == 2:
        return sample
    whole = (data - region.model)[~excluded.pixels]
    return replace(sample, cuts=(region.cut(0, 2), region.cut(0, 1)), whole=whole)


@dataclass(frozen=True)
class SampledRegion:
    """The pixels of a ROI along all axes of the model, which is evaluated in it."""

    values: Mapping[str, float]
    settings: Settings
    first: tuple[int, ...]
    data: Array
    counted: int
    excluded: ExcludedPixels
    unknown: int

    @cached_property
    def model(self) -> Array:
        """The model of every pixel."""
        return self.model_at(*np.meshgrid(*self._lines, indexing="ij", sparse=True))

    @cached_property
    def _lines(self) -> list[Array]:
        sides = zip(self.first, self.data.shape, strict=True)
        return [np.arange(at, at + side, dtype=float) for at, side in sides]

    @cached_property
    def _nearest(self) -> list[int]:
        """The pixel nearest to the centre, from the ROI's first one."""
        axes, sides = self.settings.profile.axes, self.data.shape
        return [
            min(max(round(self.values[axis]) - at, 0), side - 1)
            for axis, at, side in zip(axes, self.first, sides, strict=True)
        ]

    @cached_property
    def _own(self) -> dict[str, float]:
        # Own models may know x and y themselves, which count from the ROI's first pixel.
        apparent = {**self.values, **apparent_places(self.values, self.settings)}
        moved = zip(self.settings.profile.axes, self.first, strict=True)
        return {**self.values, **{axis: float(apparent[axis]) - at for axis, at in moved}}

    def model_at(self, *places: Array) -> Array:
        """Return the model at places in the image, along each axis."""
        known = self.settings
        moved = tuple(place - at for place, at in zip(places, self.first, strict=True))
        light = known.profile.evaluate(moved, self._own, known.pixel)
        return np.asarray(light + known.offset, float)

    def _through(self, *along: int) -> tuple[Any, ...]:
        """Return the index of all pixels along some axes, through the nearest one."""
        return tuple(slice(None) if k in along else at for k, at in enumerate(self._nearest))

    def line(self, along: int, other: int) -> Line:
        """Return the pixels along an axis, through the one nearest to the centre."""
        fine = _fine(self._lines[along])
        nearest = [at + first for at, first in zip(self._nearest, self.first, strict=True)]
        places = [np.full_like(fine, at) for at in nearest]
        places[along] = fine
        through = self.data[self._through(along)]
        curve, own = self.model_at(*places), self.own_at(*places)
        return Line(nearest[other], self._lines[along], through, fine, curve, own)

    def own_at(self, *places: Array) -> Array | None:
        """Return the same of this spot alone, if others were fitted together with it."""
        return None

    def others(self, down: int, right: int) -> tuple[tuple[float, float], ...]:
        """Return where others are that were fitted together with it, along two axes."""
        return ()

    def cut(self, down: int, right: int) -> SpotSample:
        """Return the pixels along two axes, through the one nearest to the centre."""
        here, axes = self._through(down, right), self.settings.profile.axes
        excluded = ExcludedPixels(self.excluded.corner, *(mask[here] for mask in self.excluded[1:]))
        return SpotSample(
            roi=Roi(
                self.first[down], self.first[right], self.data.shape[down], self.data.shape[right]
            ),
            data=self.data[here],
            model=self.model[here],
            residual=(self.data - self.model)[here],
            row=self.line(right, down),
            column=self.line(down, right),
            y=self.values[axes[down]],
            x=self.values[axes[right]],
            width=outline(self.values, self.settings.gain or 1.0, (axes[down], axes[right])),
            counted=self.counted,
            excluded=excluded,
            unknown=self.unknown,
            others=self.others(down, right),
        )


def excluded_of(
    roi: tuple[tuple[int, ...], tuple[int, ...]], bad: Mask, frame: FittedFrame,
    detection: Settings, positions: Array, counted: int | None,
) -> tuple[ExcludedPixels, int]:  # fmt: skip
    """Return the pixels of a ROI that a fit has excluded, and how many more are not known.

    Where the positions do not explain how many pixels have counted, the fit is of a time with
    other neighbours, or without the masks of today.
    """
    known = None if detection.sigma is None or detection.noise is None else detection
    job = FitJob(detection, roi[1], "f8", detection.sigma, known, sigma_z=detection.sigma_z)
    block = Block(frame.fitted[np.newaxis], frame.raw[np.newaxis])
    found = excluded_pixels(job, block, Positions(positions), roi[0], bad)
    none = np.zeros_like(bad)
    if counted is None:  # neighbours are fitted, too
        return found._replace(neighbour=none), 0
    missing = int((~found._replace(neighbour=none).pixels).sum()) - counted
    if missing < 0:
        missing, found = missing + int(found.hot.sum()), found._replace(hot=none)
    if missing < 0:
        missing, found = missing + int(found.padding.sum()), found._replace(padding=none)
    if missing > 0 and int(found.neighbour.sum()) == missing:
        return found, 0
    return found._replace(neighbour=none), max(missing, 0)


def pixels_of(
    frame: NDArray[Any], window: tuple[slice, ...], bad: NDArray[np.bool_] | bool
) -> Array:
    """Return a region's pixels, or raise an error that says how the image has changed."""
    ends = zip(window, frame.shape, strict=True)
    if any(part.start < 0 or part.stop > length for part, length in ends):
        raise ValueError(
            f"The image has {'×'.join(map(str, frame.shape))} pixels and no longer reaches as far "
            "as this spot: its data was replaced. Fit the image again."
        )
    data = frame[window].astype(float)
    if not (np.isfinite(data) | bad).all():
        raise ValueError(
            "The image now has NaN or infinite pixels around this spot: its data was replaced. "
            "Fit the image again."
        )
    return data


def counted_pixels(values: Mapping[str, float], settings: Settings, size: int) -> int:
    """Return how many of a ROI's pixels a fit has counted, from the two kinds of χ²."""
    chi, reduced = (values.get(name, np.nan) for name in ("chi_square", "reduced_chi_square"))
    if not (chi > 0 and 0 < reduced < np.inf):
        return size
    return min(round(chi / reduced) + settings.fitted_parameters, size)


def _fine(pixels: Array) -> Array:
    """Return places from the first pixel's edge to the last one's."""
    return np.linspace(pixels[0] - 0.5, pixels[-1] + 0.5, _FINE * len(pixels) + 1)


class Ellipse(NamedTuple):
    """Half axes in pixels, and the angle of the first from x towards y in degrees."""

    along: float
    across: float
    angle: float


def outline(
    values: Mapping[str, float], gain: float = 1.0, axes: tuple[str, ...] = ("y", "x")
) -> Ellipse:
    """Return the ellipse of one σ of a spot, or the circle where it has one width.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns.
    gain : float
        Counts per photon with which its photons were computed.
    axes : (str, str)
        The axes that run down and to the right.
    """
    if "z" in axes:
        own = values.get("sigma", math.nan)
        across, along = (values.get(f"sigma_{axis}", own) for axis in axes)
        return Ellipse(along, across, 0.0)
    along, across = values.get("sigma_x", math.nan), values.get("sigma_y", math.nan)
    if math.isfinite(along) and math.isfinite(across):
        return Ellipse(along, across, values.get("angle", 0.0))
    columns = {name: np.float64(value) for name, value in values.items()}
    sigma = float(mean_sigma(columns, gain))
    return Ellipse(sigma, sigma, 0.0)
