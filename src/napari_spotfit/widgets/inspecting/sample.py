"""Data, model and residual of one spot, cut out of its frame."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.block import Block, Positions
from ...engine.depth import apparent_places
from ...engine.excluded import ExcludedPixels, excluded_pixels
from ...engine.fit_job import FitJob
from ...engine.quality.verdicts import mean_sigma
from ...estimation.estimates import without_map
from ...models.stopping import ROUNDING
from ...settings.settings import Settings

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


class FittedFrame(NamedTuple):
    """A frame as its spots were fitted.

    Attributes
    ----------
    pixels : ndarray, shape (Y, X)
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
        return fitted

    def is_of(self, chi_square: float) -> bool:
        """Whether the residual is that of a fit with this χ²; not so if pixels have changed.

        Where only the number of excluded pixels is known, χ² lies between the sums of the least
        and of the largest residuals.
        """
        rounding = ROUNDING * max(float(np.nanmax(np.abs(self.data))), 1e-30)
        tolerance = _SAME * chi_square + self.data.size * (_ROUNDINGS * rounding) ** 2
        squares = np.sort(self._fitted**2)
        least, most = squares[: self.counted].sum(), squares[-self.counted :].sum()
        return bool(least - tolerance <= chi_square <= most + tolerance)


def settings_of(values: Mapping[str, float], settings: Mapping[str, Any]) -> Settings:
    """Return what a spot was fitted with.

    Picked spots may each have a size of the ROI and a camera offset of their own.
    """
    known = Settings(**settings)
    if np.isfinite(values.get("roi_size", np.nan)):
        known = known.changed(roi_size=round(values["roi_size"]))
    if np.isfinite(values.get("offset", np.nan)):
        known = known.changed(offset=float(values["offset"]))
    return known


def camera_settings(settings: Settings, roles: Collection[str]) -> Settings:
    """Return a fit's offset and gain, unless its maps of these roles replace them.

    Without maps neither counts, so that all spots share a frame.
    """
    known = ("offset", "gain") if roles else ()
    return Settings(**{name: getattr(settings, name) for name in known if name not in roles})


def roi_of(
    values: Mapping[str, float], settings: Mapping[str, Any], shape: tuple[int, int] | None = None
) -> Roi:
    """Return the region that was fitted.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns. Without ``roi_y`` and ``roi_x`` the region lies around the
        centre; ``roi_size`` is the size of this one spot's region.
    settings : mapping
        Settings of the fit; ``roi_size`` counts.
    shape : (int, int), optional
        Rows and columns of the frame, into which a region around the centre is shifted.
    """
    size = settings_of(values, settings).roi_size or _USUAL_ROI
    rows, columns = (int(n) for n in (size if isinstance(size, (tuple, list)) else (size, size)))
    corner = values.get("roi_y", np.nan), values.get("roi_x", np.nan)
    if np.all(np.isfinite(corner)):
        return Roi(round(corner[0]), round(corner[1]), rows, columns)
    if shape is not None:
        rows, columns = min(rows, shape[0]), min(columns, shape[1])
    y, x = (round(values[name]) - side // 2 for name, side in (("y", rows), ("x", columns)))
    if shape is not None:
        y, x = min(max(y, 0), shape[0] - rows), min(max(x, 0), shape[1] - columns)
    return Roi(y, x, rows, columns)


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
    positions : ndarray, shape (n, 2), optional
        y and x where the fits of the frame's spots began, this one's first, as far as is known.

    Raises
    ------
    ValueError
        If the region lies outside the frame or has pixels that are no numbers.
    """
    roi = roi_of(values, settings, (frame.pixels.shape[0], frame.pixels.shape[1]))
    window = slice(roi.y, roi.y + roi.rows), slice(roi.x, roi.x + roi.columns)
    data = _pixels_of(frame.pixels, roi, False if frame.bad is None else frame.bad[window])
    known = settings_of(values, settings)
    # Own models may know x and y themselves, which count from the ROI's first pixel.
    apparent = apparent_places(values, known)
    own = {**values, "y": float(apparent["y"]) - roi.y, "x": float(apparent["x"]) - roi.x}

    def model_at(y: Array, x: Array) -> Array:
        model = known.profile.evaluate((y - roi.y, x - roi.x), own, known.pixel)
        return np.asarray(model + known.offset, float)

    rows, columns = (np.arange(part.start, part.stop, dtype=float) for part in window)
    at_row, at_column = (
        min(max(round(values[name]), part.start), part.stop - 1)
        for name, part in zip("yx", window, strict=True)
    )
    fine_y, fine_x = _fine(rows), _fine(columns)
    along_row = model_at(np.full_like(fine_x, at_row), fine_x)
    along_column = model_at(fine_y, np.full_like(fine_y, at_column))
    model = model_at(rows[:, None], columns)
    counted = counted_pixels(values, known, data.size)
    bad = ~np.isfinite(data) if frame.bad is None else frame.bad[window]
    if positions is None:
        positions = np.array([[values["y"], values["x"]]])
    detection = without_map(known, frame.variances)
    excluded, unknown = _excluded(roi, bad, frame, detection, positions, counted)
    return SpotSample(
        roi=roi,
        data=data,
        model=model,
        residual=data - model,
        row=Line(at_row, columns, data[at_row - roi.y], fine_x, along_row),
        column=Line(at_column, rows, data[:, at_column - roi.x], fine_y, along_column),
        y=values["y"],
        x=values["x"],
        width=outline(values, known.gain or 1.0),
        counted=counted,
        excluded=excluded,
        unknown=unknown,
    )


def _excluded(
    roi: Roi, bad: Mask, frame: FittedFrame, detection: Settings, positions: Array, counted: int
) -> tuple[ExcludedPixels, int]:
    """Return the pixels of a ROI that a fit has excluded, and how many more are not known.

    Where the positions do not explain how many pixels have counted, the fit is of a time with
    other neighbours, or without the masks of today.
    """
    known = None if detection.sigma is None or detection.noise is None else detection
    job = FitJob(detection, (roi.rows, roi.columns), "f8", detection.sigma, known)
    block = Block(frame.fitted[np.newaxis], frame.raw[np.newaxis])
    found = excluded_pixels(job, block, Positions(positions), (roi.y, roi.x), bad)
    none = np.zeros_like(bad)
    missing = int((~found._replace(neighbour=none).pixels).sum()) - counted
    if missing < 0:
        missing, found = missing + int(found.hot.sum()), found._replace(hot=none)
    if missing < 0:
        missing, found = missing + int(found.padding.sum()), found._replace(padding=none)
    if missing > 0 and int(found.neighbour.sum()) == missing:
        return found, 0
    return found._replace(neighbour=none), max(missing, 0)


def _pixels_of(frame: NDArray[Any], roi: Roi, bad: NDArray[np.bool_] | bool) -> Array:
    """Return a region's pixels, or raise an error that says how the image has changed."""
    height, width = frame.shape
    if min(roi.y, roi.x) < 0 or roi.y + roi.rows > height or roi.x + roi.columns > width:
        raise ValueError(
            f"The image has {height}×{width} pixels and no longer reaches as far as this spot: its "
            "data was replaced. Fit the image again."
        )
    data = frame[roi.y : roi.y + roi.rows, roi.x : roi.x + roi.columns].astype(float)
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


def outline(values: Mapping[str, float], gain: float = 1.0) -> Ellipse:
    """Return the ellipse of one σ of a spot, or the circle where it has one width.

    Parameters
    ----------
    values : mapping of str to float
        The spot's columns.
    gain : float
        Counts per photon with which its photons were computed.
    """
    along, across = values.get("sigma_x", math.nan), values.get("sigma_y", math.nan)
    if math.isfinite(along) and math.isfinite(across):
        return Ellipse(along, across, values.get("angle", 0.0))
    columns = {name: np.float64(value) for name, value in values.items()}
    sigma = float(mean_sigma(columns, gain))
    return Ellipse(sigma, sigma, 0.0)
