"""Why there are no spots, or some that could not be fitted: what the pixels say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...images.frames import FrameReader, FrameSelection
from ...results.spot_fits import SpotFits
from ..layers.maps import LayerMaps

#: So many bytes of the image are read at once.
_BLOCK = 1 << 26
_NO_NUMBERS = (
    "there are pixels in their ROIs that are no numbers (NaN). Mark these in a layer, and choose "
    "it under Advanced ▸ Bad pixels, so that they are left out"
)


def check_searched(
    image: Any, frames: FrameSelection, maps: LayerMaps, read: Mapping[str, Any]
) -> None:
    """Raise a ValueError that says why no spot can be found, if there is no pixel to search.

    Of an image that has such pixels in its first frame no other one is read.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The image.
    frames : FrameSelection
        Which of its frames were searched.
    maps : LayerMaps
        The layers that say something of its pixels.
    read : mapping
        What they say.
    """
    mask = read.get("mask")
    if mask is not None and not bool(mask.any()):
        raise ValueError(
            f"“{maps.names['mask']}” marks no pixel of the image: mark where to search in it, or "
            "search the whole image"
        )
    if not _any_finite(image, frames):
        raise ValueError(
            "the image has no finite pixel in these frames, only NaN or infinite ones: choose "
            "another image, or other frames"
        )


def why_invalid(image: Any, fits: SpotFits) -> str:
    """Say why spots of an image could not be fitted, if it is for pixels that are no numbers.

    The first of them speaks for all: so only one frame is read again.
    """
    rows = np.flatnonzero(~fits.valid)
    if not len(rows) or fits.settings is None or np.dtype(image.dtype).kind != "f":
        return ""
    columns, row = fits.columns, rows[0]
    index = tuple(int(columns[name][row]) for name in fits.index_names)
    y, x = (int(columns[name][row]) for name in ("roi_y", "roi_x"))
    height, width = fits.settings.roi_shape
    roi = np.asarray(image[index][y : y + height, x : x + width])
    return "" if np.isfinite(roi).all() else _NO_NUMBERS


def _any_finite(image: Any, frames: FrameSelection) -> bool:
    reader = FrameReader(image)
    if np.dtype(image.dtype).kind != "f":
        return True
    blocks = reader.blocks(reader.select(frames), 1, _BLOCK)
    return any(bool(np.isfinite(reader.read_here(block)).any()) for block in blocks)
