"""Tell noise that has more detail fine along both axes than along one, which no light has.

White noise has as much of both. Each block is compared with itself, so that it does not matter how
much light it has, or how many kinds of frames there are. Some cameras have it, where pixels in the
manner of a checkerboard have offsets of their own: these are the same everywhere, noise is not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .noise_line import is_usable, median

#: The standard error of the logarithm of that ratio, of one block of white noise.
_OF_BLOCK = 0.78
#: Fewer blocks of a frame do not tell by how much frames differ.
_FEWEST_BLOCKS = 4
#: Side of the squares, even, in which pixels of both colours of a checkerboard are compared; and by
#: how many of its standard errors their difference is not that of noise.
_SQUARE, _NO_CHANCE = 16, 6.0
_TINY = float(np.finfo(float).tiny)


def along_over_both(blocks: NDArray[np.void]) -> tuple[float, float]:
    """Return the lower ratio of detail along one axis over that along both, and its error.

    Both of its logarithm. Frames may share their noise, as a pattern that stays, or a simulation:
    they count as far as they differ as those that do not share any.

    Parameters
    ----------
    blocks : ndarray, shape (frames, rows, columns)
        What was measured in the blocks of each frame.

    Examples
    --------
    >>> blocks = np.ones((2, 3, 4), [(name, "f8") for name in ("both", "along_x", "along_y")])
    >>> blocks["along_x"] = 0.5
    >>> [round(number, 2) for number in along_over_both(blocks)]
    [-0.69, 0.23]
    """
    known = is_usable(blocks)
    if not known.any():
        return 0.0, math.inf
    lowest, least_error = math.inf, math.inf
    for name in ("along_y", "along_x"):
        ratios = np.zeros(blocks.shape)
        ratios[known] = np.log(np.maximum(blocks[name][known], _TINY) / blocks["both"][known])
        middle = median(ratios[known])
        if middle < lowest:
            lowest, least_error = middle, _error(ratios, known)
    return lowest, least_error


def _error(ratios: NDArray[np.float64], known: NDArray[np.bool_]) -> float:
    """Return the standard error of the median of the known numbers of all frames."""
    own = [one[there] for one, there in zip(ratios, known, strict=True)]
    own = [one for one in own if len(one) >= _FEWEST_BLOCKS]
    if len(own) < 2:
        return _OF_BLOCK / math.sqrt(max(map(np.count_nonzero, known)))
    chance = np.array([_OF_BLOCK**2 / len(one) for one in own])
    middles = np.array([median(one) for one in own])
    differ = float(np.mean(np.square(middles - middles.mean()) / chance)) * len(own)
    # How much of the noise is shared, and by how much that may be off.
    shared = 1 - differ / (len(own) - 1) + math.sqrt(2 / len(own))
    shared = min(max(shared, 0.0), 1.0)
    mean = float(chance.mean())
    return math.sqrt(mean * (shared + (1 - shared) / len(own)))


def has_checkerboard(frames: NDArray[Any]) -> bool:
    """Whether every second pixel is brighter, in the manner of a checkerboard, all over the field.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.

    Examples
    --------
    >>> white = np.random.default_rng(1).normal(100.0, 5.0, (1, 128, 128))
    >>> has_checkerboard(white), has_checkerboard(white + np.indices((128, 128)).sum(axis=0) % 2)
    (False, True)
    """
    rows, columns = (size // _SQUARE for size in frames.shape[1:])
    whole = frames[:, : rows * _SQUARE, : columns * _SQUARE].astype(np.float64)
    signs = 1.0 - 2.0 * (np.indices((_SQUARE, _SQUARE)).sum(axis=0) % 2)
    squares = whole.reshape(len(frames), rows, _SQUARE, columns, _SQUARE)
    differences = np.einsum("nrycx,yx->rc", squares, signs).ravel() / len(frames)
    differences = differences[np.isfinite(differences)]
    if len(differences) < 2:
        return False
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return abs(float(differences.mean())) > _NO_CHANCE * error
