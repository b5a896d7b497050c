"""Render localisations as a super-resolved image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.backend import BackendFallbackWarning, BackendUnavailableError, cuda_errors
from ..engine.cell_index import CUT, Field, Floats, Part, SpotIndex
from ..engine.cuda.devices import first_line
from ..files.exchange.image_info import as_pixel_size, as_shape
from ..models.columns import IN_PLANE, PLANES, STDERR
from ..models.number_checks import number
from ..results.spot_fits import SpotFits, on_host

if TYPE_CHECKING:
    from ..engine.cell_index import GpuIndex

#: Widths above this many times their median count as that, or one bad fit would be a cloud.
_MOST_MEDIANS = 10.0
#: Number of widths from which their median is taken.
_SAMPLE = 1_000_000
#: Most slices along z.
_MOST_SLICES = 10_000
#: Pixels of an image and voxels of a volume, at most: 4 GB and 0.5 GB.
_MOST_PIXELS, _MOST_VOXELS = 1 << 30, 1 << 27
#: So much deeper a volume is, in nm, so that its last localisation lies before its end.
_NANOMETRE = 1.0
#: Localisations from which on a GPU is worth its beginning.
_LEAST_ON_GPU = 200_000
#: Colours of the palette; percentiles of a column that get the first and the last one.
_COLOURS, _ENDS = 256, (1.0, 99.0)
_NONE_INSIDE = (
    "none of the localisations lies in the image, whose first pixel has its centre at (0, 0)"
)


class _NoneInsideError(ValueError):
    """No localisation lies in the image."""


def render(
    fits: SpotFits | Iterable[SpotFits],
    oversampling: float | Sequence[float] = 10,
    *,
    shape: Sequence[int] | None = None,
    by: str | float = "precision",
    colour_by: str | None = None,
    pixel_size: float | Sequence[float] | None = None,
    z: Sequence[float] | None = None,
) -> Floats:
    """Render localisations as a super-resolved image.

    Each localisation is a Gaussian, integrated over the pixels and cut off at 3 σ, that adds
    exactly 1. σ is at least 0.7 rendered pixels, so that its centre is right to a thousandth of
    them, and at most 10 times the median.

    Parameters
    ----------
    fits : SpotFits, or iterable of them
        Localisations, such as ``fits[fits.good]``. Those that ended INVALID have no position and
        are left out. Parts, such as of :func:`load_parts`, need not fit in memory together: they
        need a `shape`, have no colours, and the largest widths are those of each part.
    oversampling : float or (float, float, float), default 10
        Rendered pixels per camera pixel. Three numbers, along z, y and x, make a volume.
    shape : sequence of int, optional
        Shape of the image that was fitted, (…, Y, X), whose field is rendered; by default the
        field ends 3 σ after the last localisation.
    by : str or float, default "precision"
        σ of each localisation: ``"precision"`` for its standard errors, ``"psf"`` for the fitted
        width of the spot, a number for the same width everywhere, in camera pixels; or
        ``"histogram"`` to count the localisations in each rendered pixel.
    colour_by : str, optional
        A column, such as ``"z"`` or ``"frame"``, shown as colour: blue up to its 1st percentile,
        red from its 99th on.
    pixel_size : float or (float, float), optional
        Height and width of a camera pixel in nm. Rendered pixels are squares then, with
        `oversampling` along x. Volumes need it if z is in nm.
    z : (float, float) or (float, float, float), optional
        Render a slice: localisations from the first z to below the second, in the unit of the
        column. With a third number, a stack of slices that are as thick.

    Returns
    -------
    ndarray of float32
        Localisations per rendered pixel, with axes (y, x), or (z, y, x) for a volume or a stack of
        slices; last red, green and blue if coloured. Its corner is that of the first camera pixel,
        (−0.5, −0.5).

    Raises
    ------
    ValueError
        If there are no localisations, their widths are missing or not above 0, or the image would
        be too large, or have no pixels.
    TypeError
        If `oversampling` is neither a number nor three.

    Examples
    --------
    >>> from napari_spotfit import localize, render, simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie)
    >>> render(fits[fits.good], 8, shape=movie.shape).shape
    (512, 512)
    """
    if not isinstance(fits, SpotFits):
        if shape is None or colour_by is not None:
            raise ValueError(
                "parts are rendered with a shape=(rows, columns), and without colour_by"
            )
        return _sum_of_parts(fits, oversampling, shape=shape, by=by, pixel_size=pixel_size, z=z)
    volume = _is_of_volume(oversampling)
    edges = None if z is None else _edges(z)
    if volume and edges is not None:
        raise ValueError("a volume has all z: leave z out, or pass one number of oversampling")
    index = RenderIndex(
        fits, shape=shape, by=by, colour_by=colour_by, pixel_size=pixel_size, volume=volume
    )
    if edges is None:
        return index.render(oversampling)
    depth = _column(fits.to_host(), "z", np.float64)
    if not ((depth >= edges[0]) & (depth < edges[-1])).any():
        unit = fits.units.get("z", "the unit of the column")
        raise _NoneInsideError(
            f"none of the localisations has z from {edges[0]:g} to {edges[-1]:g}, in {unit}"
        )
    slices = []
    for low, high in pairwise(edges):
        index.show((depth >= low) & (depth < high))
        slices.append(index.render(oversampling))
        _check_size([len(edges) - 1, *slices[0].shape], _MOST_PIXELS)
    return np.stack(slices) if z is not None and len(z) > 2 else slices[0]


def _edges(z: Any) -> list[float]:
    """Return where slices begin and end."""
    wrong = f"z must be (from, to), or (from, to, thickness of slices), in rising order; got {z!r}"
    try:
        low, high, *step = (float(one) for one in z)
    except (TypeError, ValueError):
        raise ValueError(wrong) from None
    thickness = step[0] if step else high - low
    if len(step) > 1 or not (low < high and thickness > 0) or not math.isfinite(high - low):
        raise ValueError(wrong)
    count = math.ceil((high - low) / thickness - 1e-9)
    if count > _MOST_SLICES:
        raise ValueError(
            f"z would have {count} slices, the most is {_MOST_SLICES}: make them thicker"
        )
    return [min(low + number * thickness, high) for number in range(count)] + [high]


def _is_of_volume(oversampling: Any) -> bool:
    """Return whether there are three numbers, not one; raise an error if it is neither."""
    if isinstance(oversampling, (int, float, np.number)):
        return False
    wrong = (
        "oversampling must be a finite number above 0, or for a volume three of them, (z, y, x); "
        f"got {oversampling!r}"
    )
    if isinstance(oversampling, str) or np.ndim(oversampling) != 1:
        raise TypeError(wrong)
    if len(oversampling) != 3:
        raise ValueError(wrong)
    return True


def _sum_of_parts(parts: Iterable[SpotFits], oversampling: Any, **arguments: Any) -> Floats:
    """Return the sum of the images of parts that have localisations."""
    image: Floats | None = None
    for part in parts:
        if np.isfinite(part.y).any():
            try:
                own = render(part, oversampling, **arguments)
            except _NoneInsideError:
                continue
            image = own if image is None else np.add(image, own, out=image)
    if image is None:
        raise ValueError("no part has localisations in the image: there is nothing to render")
    return image


class RenderIndex:
    """Localisations that are indexed once, to render any part of their image at any magnification.

    Threads: any number may render at once.

    Parameters
    ----------
    fits, shape, by, colour_by, pixel_size
        As in :func:`render`.
    volume : bool, default False
        Whether to render volumes.
    backend : {"auto", "cpu", "cuda"}
        Where parts are rendered: "auto" takes a GPU, if there is one, for many localisations.

    Attributes
    ----------
    shape : (float, float)
        Height and width of the field in camera pixels.
    median_sigma : float
        The smaller of the median widths along y and x, in camera pixels; 0 for a histogram.
    """

    def __init__(
        self,
        fits: SpotFits,
        *,
        shape: Sequence[int] | None = None,
        by: str | float = "precision",
        colour_by: str | None = None,
        pixel_size: float | Sequence[float] | None = None,
        volume: bool = False,
        backend: Literal["auto", "cpu", "cuda"] = "auto",
    ):
        fits, sides = on_host(fits), as_shape(shape)
        self._pixel_size = as_pixel_size(pixel_size)
        axes = (*IN_PLANE, "z") if volume else IN_PLANE
        positions = [_column(fits, axis, np.float64) for axis in axes]
        there = np.logical_and.reduce([np.isfinite(one) for one in positions])
        _check_any(there)
        if volume:  # rows without z are left out like those without y
            positions[0] = np.where(there, positions[0], np.nan)
        sigma = _widths(fits, axes, by, there)
        medians = [float(np.median(_sample(one, there))) for one in sigma]
        self.median_sigma = min(medians[:2], default=0.0)
        most = [_MOST_MEDIANS * one for one in medians]
        extents = [
            _extent(positions[k][there], sigma[k][there] if sigma else None, most[k] if most else 0)
            for k in range(len(axes))
        ]
        self.shape = _field_shape(extents, sides)
        self._depth = None
        if volume:
            per_unit, first, last = _depth(fits, extents[2], sides, self._pixel_size)
            self._depth = per_unit, last - first
            positions[2] = positions[2] - first
        self._index = SpotIndex(
            positions[0], positions[1], positions[2] if volume else None, sigma, most,
            _field(extents, self.shape, most),
        )  # fmt: skip
        if not len(self):
            raise _NoneInsideError(_NONE_INSIDE)
        self._drawer = self._index if backend == "cpu" else _on_gpu(self._index, backend)
        self._colours = None if colour_by is None else self._coloured(fits, colour_by)
        self._shown: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """Return the number of localisations in the field, and just outside of it."""
        return len(self._index)

    @property
    def channels(self) -> int:
        """3 if coloured, else 1."""
        return 1 if self._colours is None else 3

    def show(self, rows: NDArray[np.bool_] | None) -> None:
        """Render only some rows of the table from now on; None for all."""
        self._shown = None if rows is None else np.asarray(rows, bool)[self._index.row]

    def render(self, oversampling: float | Sequence[float]) -> Floats:
        """Return the whole image; see :func:`render`."""
        scale = self._scale(oversampling)
        sides = [
            math.ceil(side * one - 1e-6) for side, one in zip(self.shape, scale[-2:], strict=True)
        ]
        if self._depth is None:
            _check_size(sides, _MOST_PIXELS)
            return self.part(scale, (0, sides[0]), (0, sides[1]))
        per_unit = self._depth[0] * scale[0]
        planes = math.ceil(self._depth[1] * per_unit - 1e-6)
        _check_size([planes, *sides], _MOST_VOXELS)
        image = np.empty((planes, *sides, *[3] * (self.channels == 3)), np.float32)
        for plane in range(planes):
            part = Part((scale[1], scale[2]), 0, 0, sides[0], sides[1], per_unit, plane)
            image[plane] = self._draw(part)
        return image

    def part(
        self,
        scale: Sequence[float],
        rows: tuple[int, int],
        columns: tuple[int, int],
        unit: float = 1.0,
    ) -> Floats:
        """Return some rows and columns, from the first to before the last, of an image.

        Parameters
        ----------
        scale : (float, float)
            Rendered pixels per camera pixel along y and x.
        rows, columns : (int, int)
            The part.
        unit : float
            What each pixel is multiplied by.
        """
        sides = (rows[1] - rows[0], columns[1] - columns[0])
        return self._draw(Part((scale[0], scale[1]), rows[0], columns[0], *sides), unit)

    def _draw(self, part: Part, unit: float = 1.0) -> Floats:
        given = (part, unit, self._shown, self._colours)
        if isinstance(self._drawer, SpotIndex):
            return self._drawer.draw(*given)
        try:
            return self._drawer.draw(*given)
        except cuda_errors() as error:
            message = f"the GPU failed, so the CPU renders: {first_line(error)}"
            warn_caller(BackendFallbackWarning(message))
            self._drawer = self._index
        return self._index.draw(*given)

    def _scale(self, oversampling: float | Sequence[float]) -> tuple[float, ...]:
        """Return rendered pixels per camera pixel along each axis."""
        if self._depth is None:
            along_x = number("oversampling", oversampling, 0, above=True)
            size = self._pixel_size or (1.0, 1.0)
            return along_x * size[0] / size[1], along_x
        return tuple(number("oversampling", one, 0, above=True) for one in np.ravel(oversampling))

    def _coloured(self, fits: SpotFits, name: str) -> tuple[NDArray[np.uint8], Floats]:
        """Return the colour of each localisation in the index, and the palette."""
        values = _column(fits, name, np.float64)[self._index.row]
        unknown = np.count_nonzero(~np.isfinite(values))
        if unknown:
            raise ValueError(
                f"{unknown} localisations have no {name} to colour them by: leave them out, "
                f"fits[numpy.isfinite(fits.{name})]"
            )
        low, high = np.percentile(values, _ENDS) if len(values) else (0.0, 0.0)
        share = np.clip((values - low) / (high - low if high > low else 1.0), 0, 1)
        # From blue over green to red: the hue of brightest colours.
        hue = np.linspace(4, 0, _COLOURS)[:, np.newaxis] + np.array([0, 4, 2])
        palette = np.clip(np.abs(hue % 6 - 3) - 1, 0, 1).astype(np.float32)
        return np.rint(share * (_COLOURS - 1)).astype(np.uint8), np.ascontiguousarray(palette)


def _on_gpu(index: SpotIndex, backend: str) -> SpotIndex | GpuIndex:
    """Return the index in a GPU's memory if it pays off, or CUDA is asked for."""
    if backend == "auto" and len(index) < _LEAST_ON_GPU:
        return index
    from ..engine.cuda import devices

    try:
        devices.usable()
    except BackendUnavailableError:
        if backend == "cuda":
            raise
        return index
    from ..engine.cell_index import GpuIndex

    try:
        return GpuIndex(index)
    except cuda_errors() as error:  # there is no room for it
        if backend == "cuda":
            raise BackendUnavailableError(first_line(error)) from error
        return index


class _Extent(NamedTuple):
    """Positions along an axis: without widths, and with them."""

    lowest: float
    highest: float
    first: float
    last: float


def _check_any(there: NDArray[np.bool_]) -> None:
    """Raise a ValueError if no localisation has a position."""
    if not len(there):
        raise ValueError(
            "the table is empty: there is nothing to render. Spots of other programs have no "
            "verdict, so none is good: choose them by fits[fits.accepted]"
        )
    if not there.any():
        raise ValueError("these localisations have no positions: there is nothing to render")


def _field_shape(extents: Sequence[_Extent], sides: Sequence[int] | None) -> tuple[float, float]:
    """Return height and width of the field, by default as far as there are localisations."""
    if sides is not None:
        return float(sides[-2]), float(sides[-1])
    shape = (0.5 + extents[0].last, 0.5 + extents[1].last)
    if max(shape) > _MOST_PIXELS:
        raise ValueError(
            f"there are localisations {max(shape):.3g} camera pixels away from the first "
            "pixel: pass the shape of the fitted image, or leave them out"
        )
    return shape


def _extent(place: NDArray[np.float64], sigma: Floats | None, most: float) -> _Extent:
    ends = float(place.min()), float(place.max())
    if sigma is None:
        return _Extent(*ends, *ends)
    reach = CUT * np.minimum(sigma, np.float32(most))
    return _Extent(*ends, float((place - reach).min()), float((place + reach).max()))


def _field(extents: Sequence[_Extent], shape: tuple[float, float], most: Sequence[float]) -> Field:
    """Return where localisations lie whose light may be within the field."""
    limits: list[float] = []
    for extent, side, width in zip(extents, shape, most or (0, 0), strict=False):
        far = max(1.0, CUT * width)
        low, high = max(extent.lowest, -0.5 - far), min(extent.highest, side - 0.5 + far)
        if high < low:
            raise _NoneInsideError(_NONE_INSIDE)
        limits += [low, high]
    return Field(*limits)


def _column(fits: SpotFits, name: str, kind: type) -> NDArray[Any]:
    """Return a column of numbers in one piece of memory."""
    if name not in fits:
        raise ValueError(f"these fits have no column {name}; they have {', '.join(fits.columns)}")
    values = fits.columns[name]
    if values.dtype.kind not in "biuf":
        raise ValueError(f"the column {name} must have numbers; it has {values.dtype}")
    return np.ascontiguousarray(values, kind)


def _widths(
    fits: SpotFits, axes: tuple[str, ...], by: str | float, there: NDArray[np.bool_]
) -> list[Floats]:
    """Return the width of each localisation along each axis; none for a histogram."""
    if not isinstance(by, str):
        width = np.full(len(fits), number("by", by, 0, above=True), np.float32)
        return [width] * len(axes)
    if by == "histogram":
        return []
    if by == "precision":
        names = [f"{axis}{STDERR}" for axis in axes]
        missing = [name for name in names if name not in fits]
        if missing:
            raise ValueError(
                f"these fits have no column {missing[0]}, their precision: fit with errors=True, "
                "or pass by='histogram', by='psf', or a width in pixels"
            )
    elif by == "psf":
        names = [f"sigma_{axis}" for axis in axes]
        if "angle" in fits or not {*names[:2]} <= fits.columns.keys():
            names[:2] = ["mean_sigma"] * 2
    else:
        raise ValueError(
            f"by must be 'precision', 'histogram', 'psf' or a width in pixels; got {by!r}"
        )
    widths = []
    for name in names:
        values = fits.mean_sigma if name == "mean_sigma" else _column(fits, name, np.float32)
        unknown = np.count_nonzero(there & ~((values > 0) & (values < np.inf)))
        if unknown:
            raise ValueError(
                f"{unknown} of {np.count_nonzero(there)} localisations have no {name} above 0, "
                f"their width in the image: leave them out, fits[fits.{name} > 0], or pass "
                "by='histogram' or a width in pixels"
            )
        widths.append(np.ascontiguousarray(values))
    return widths


def _sample(values: Floats, there: NDArray[np.bool_]) -> Floats:
    """Return some of the values, evenly over the table."""
    rows = np.flatnonzero(there)
    return values[rows[:: len(rows) // _SAMPLE + 1]]


def _depth(
    fits: SpotFits, extent: _Extent, sides: tuple[int, ...] | None, size: tuple[float, float] | None
) -> tuple[float, float, float]:
    """Return a volume's planes per unit of z at an oversampling of 1, and its first and last z."""
    if fits.units.get("z") == PLANES:
        known = sides is not None and len(sides) > 2 and "z" in fits.axes
        return 1.0, -0.5, float(sides[-3]) - 0.5 if known and sides else extent.last
    if size is None:
        raise ValueError(
            "z is in nm, so a volume needs the size of camera pixels: pass pixel_size=…"
        )
    return 1 / size[1], extent.first, extent.last + _NANOMETRE


def _check_size(sides: Sequence[int], most: int) -> None:
    """Raise a ValueError if an image would be too large."""
    words = " × ".join(map(str, sides))
    if min(sides) < 1:
        raise ValueError(
            f"the image would have {words} pixels: raise the oversampling, the number of rendered "
            "pixels per camera pixel"
        )
    if math.prod(sides) > most:
        raise ValueError(
            f"the image would have {words} pixels, the most is {most}: lower the oversampling, or "
            "pass the shape of the fitted image"
        )
