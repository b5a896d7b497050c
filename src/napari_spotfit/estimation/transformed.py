"""Recognise intensities that a logarithm, a power below 1 or an equalised histogram has changed.

Noise of light grows with it, and that of a camera's read-out is the same everywhere. What raises
the contrast of the dark and takes it from the bright leaves less noise where it is brighter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .noise_line import is_usable, quantiles

#: Blocks at least, and the share of them that is the darkest and the brightest.
_FEWEST, _SHARE = 64, 4
#: Most of the bright ones have less than this many times the variance that most dark ones have: of
#: each, these quantiles are compared. Of raw images they are 1 at least, of white noise 1.9.
_MOST, _OF_DARK, _OF_BRIGHT = 0.75, 0.3, 0.7
#: With this share of the pixels at the highest value, bright ones are saturated.
_SATURATED = 0.005


def noise_falls(blocks: NDArray[np.void], pixels: NDArray[Any]) -> bool:
    """Whether there is less noise where it is brighter, as no camera has it.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.
    pixels : ndarray, shape (frames, Y, X)
        The frames as they were recorded, which show saturation.

    Examples
    --------
    >>> blocks = np.ones((1, 8, 8), [(name, "f8") for name in ("mean", "both")])
    >>> blocks["mean"] = np.arange(64).reshape(8, 8)
    >>> pixels = np.arange(256.0).reshape(1, 16, 16)
    >>> growing, blocks["both"] = noise_falls(blocks, pixels), 100 - blocks["mean"]
    >>> growing, noise_falls(blocks, pixels)
    (False, True)
    """
    own = blocks[is_usable(blocks)]
    if len(own) < _FEWEST:
        return False
    dark, bright = quantiles(own["mean"], 1 / _SHARE, 1 - 1 / _SHARE)
    if not dark < bright:
        return False
    least = quantiles(own["both"][own["mean"] <= dark], _OF_DARK)[0]
    most = quantiles(own["both"][own["mean"] >= bright], _OF_BRIGHT)[0]
    if not most < _MOST * least:
        return False
    known = pixels if pixels.dtype.kind in "iu" else pixels[np.isfinite(pixels)]
    return bool(np.mean(known == known.max()) < _SATURATED)
