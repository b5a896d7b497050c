"""The pixel size and the shape of an image, which other programs' files need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...models.number_checks import is_plausible_nm, nanometres, shown
from ..table import SpotTable, UnreadableFileError

#: Units of layers in nm.
_NANOMETRES = {
    **dict.fromkeys(("nm", "nanometer", "nanometers", "nanometre"), 1.0),
    **dict.fromkeys(("um", "µm", "μm", "micron", "microns", "micrometer", "micrometre"), 1e3),
    **dict.fromkeys(("mm", "millimeter", "millimetre"), 1e6),
    **dict.fromkeys(("m", "meter", "metre"), 1e9),
    **dict.fromkeys(("Å", "angstrom"), 0.1),
}
#: Names of the unit pixel in files.
PIXEL_UNITS = frozenset({"px", "pixel", "pixels"})


class PixelSizeNeededError(UnreadableFileError):
    """The format has lengths in nm or µm, and the size of a pixel is unknown."""


@dataclass(frozen=True)
class ImageInfo:
    """Pixel size and shape of the image that was fitted.

    Parameters
    ----------
    pixel_size : (float, float) or None
        Height and width of a pixel in nm.
    shape : tuple of int or None
        The image's shape; y and x last, frames before them.
    """

    pixel_size: tuple[float, float] | None = None
    shape: tuple[int, ...] | None = None

    def pixel_in(self, axis: str, unit: float) -> float:
        """Return the size of a pixel along an axis in a unit of length.

        Parameters
        ----------
        axis : str
            ``"y"``, ``"x"``, or ``""`` for the geometric mean of both.
        unit : float
            The unit in nm.

        Raises
        ------
        PixelSizeNeededError
            If the size of a pixel is unknown.
        """
        if self.pixel_size is None:
            raise PixelSizeNeededError(
                "this format has lengths in nm or µm, and the size of a pixel is unknown: pass "
                "pixel_size=… in nm, or give the image layer a scale with a unit such as µm"
            )
        height, width = self.pixel_size
        return {"y": height, "x": width}.get(axis, math.sqrt(height * width)) / unit


def as_pixel_size(value: float | Sequence[float] | None) -> tuple[float, float] | None:
    """Return the height and width of a pixel in nm.

    Raises
    ------
    TypeError, ValueError
        If the value is not one or two plausible lengths in nm.

    Examples
    --------
    >>> as_pixel_size(100), as_pixel_size((117, 127))
    ((100.0, 100.0), (117.0, 127.0))
    """
    if value is None:
        return None
    wrong = f"pixel_size must be nm, one number or (y, x), above 0; got {value!r}"
    try:
        sizes = [float(value)] * 2 if isinstance(value, (int, float)) else [*map(float, value)]
    except (TypeError, ValueError):
        raise TypeError(wrong) from None
    if len(sizes) != 2 or not all(math.isfinite(size) and size > 0 for size in sizes):
        raise ValueError(wrong)
    height, width = (nanometres("pixel_size", size) for size in sizes)
    return height, width


def as_shape(value: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return an image's shape as integers.

    Raises
    ------
    TypeError, ValueError
        If the value is no shape of an image.
    """
    if value is None:
        return None
    try:
        shape = tuple(int(size) for size in value)
    except (TypeError, ValueError):
        raise TypeError(f"shape must be that of the image, (…, Y, X); got {shown(value)}") from None
    if len(shape) < 2 or min(shape) < 1:
        raise ValueError(f"shape must be that of the image, (…, Y, X); got {value!r}")
    return shape


def image_info_of(
    table: SpotTable, pixel_size: tuple[float, float] | None, shape: tuple[int, ...] | None
) -> ImageInfo:
    """Return pixel size and shape as given, by default those stored in a table."""
    if shape is None and table.about.image is not None:
        known = table.about.image.get("shape")
        shape = None if known is None else as_shape(known)
    layer = table.about.layer or {}
    return ImageInfo(pixel_size or size_of_layer(layer.get("scale"), layer.get("units")), shape)


def layer_of(pixel_size: tuple[float, float], ndim: int) -> dict[str, Any]:
    """Return scale and units of a layer, in µm along y and x."""
    return {
        "scale": [*[1.0] * (ndim - 2), *(size / 1e3 for size in pixel_size)],
        "units": [*["pixel"] * (ndim - 2), "micrometer", "micrometer"],
    }


def nanometres_of(unit: str) -> float | None:
    """Convert a unit of length to nm; None if it is not one.

    Examples
    --------
    >>> nanometres_of("micron"), nanometres_of("pixel")
    (1000.0, None)
    """
    return _NANOMETRES.get(unit.strip())


def size_of_layer(
    scale: Sequence[float] | None, units: Sequence[Any] | None
) -> tuple[float, float] | None:
    """Return height and width of a pixel in nm, if the layer's units are plausible lengths."""
    if scale is None or units is None or len(scale) < 2 or len(units) < 2:
        return None
    lengths = [nanometres_of(str(unit)) for unit in list(units)[-2:]]
    sizes = [
        None if length is None else abs(float(size)) * length
        for size, length in zip(list(scale)[-2:], lengths, strict=True)
    ]
    y, x = sizes
    return (y, x) if y and x and is_plausible_nm(y) and is_plausible_nm(x) else None
