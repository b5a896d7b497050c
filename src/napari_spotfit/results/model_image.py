"""Render the light of fitted spots as an image: what the fits explain of the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..settings.settings import Settings

#: How far the light of spots is drawn, in units of their width; pixels that are made at once.
_REACH, _AT_ONCE = 5.0, 1 << 20


def light_image(
    columns: Mapping[str, NDArray[Any]],
    names: tuple[str, ...],
    settings: Settings,
    shape: tuple[int, ...],
) -> NDArray[np.float32]:
    """Return the light of all spots, without their background, as an image of a shape.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Those of the fits.
    names : tuple of str
        The columns that index the image's leading axes.
    settings : Settings
        What the fits were made with.
    shape : tuple of int
        Of the image.

    Raises
    ------
    ValueError
        If the shape does not have the axes of the fits.
    """
    profile, axes = settings.profile, settings.profile.axes
    if len(shape) != len(names) + len(axes):
        wanted = ", ".join((*names, *axes))
        raise ValueError(f"shape must have the axes ({wanted}) of the fits; got {shape}")
    own = {one.name: columns[one.column.name] for one in profile.shape}
    own["amplitude"] = columns["amplitude"]
    there = np.logical_and.reduce([np.isfinite(values) for values in own.values()])
    image = np.zeros(shape, np.float32)
    flat, widths = image.reshape(-1), [columns[name] for name in profile.widths]
    reach = [side // 2 for side in settings.roi_shape]
    if profile.has_widths and widths and there.any():
        widest = math.ceil(_REACH * float(max(np.abs(width[there]).max() for width in widths)))
        reach = [max(least, min(widest, 8 * least + 8)) for least in reach]
    window = np.indices([2 * one + 1 for one in reach]) - np.reshape(reach, (-1, *[1] * len(axes)))
    rows = np.flatnonzero(there)
    for part in np.array_split(rows, max(1, len(rows) * window[0].size // _AT_ONCE)):
        spread = (len(part), *[1] * len(axes))
        values: dict[str, Any] = {
            name: np.asarray(one[part], float).reshape(spread) for name, one in own.items()
        }
        index = [columns[name][part].astype(np.int64).reshape(spread) for name in names]
        places = [
            np.rint(values[axis]).astype(np.int64) + step
            for axis, step in zip(axes, window, strict=True)
        ]
        light = profile.evaluate(places, values | {"background": 0.0}, settings.pixel)
        pixels = np.broadcast_arrays(*index, *places)
        inside = np.logical_and.reduce(
            [(one >= 0) & (one < size) for one, size in zip(pixels, shape, strict=True)]
        )
        number = np.ravel_multi_index([one[inside] for one in pixels], shape)
        np.add.at(flat, number, light[inside])
    return image
