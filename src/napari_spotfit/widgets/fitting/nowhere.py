"""Whether a fit without any spots had pixels to search at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...images.frames import FrameReader, FrameSelection
from ..layers.maps import LayerMaps

#: So many bytes of the image are read at once.
_BLOCK = 1 << 26


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


def _any_finite(image: Any, frames: FrameSelection) -> bool:
    reader = FrameReader(image)
    if np.dtype(image.dtype).kind != "f":
        return True
    blocks = reader.blocks(reader.select(frames), 1, _BLOCK)
    return any(bool(np.isfinite(reader.read_here(block)).any()) for block in blocks)
