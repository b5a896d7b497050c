"""Find hot pixels where they are taken for noise, so that no spot stands out of them.

A hot pixel is bright by itself: those beside it are as dark as others, which even the sharpest spot
lights. Amplified single photons are such pixels, too, but at other places in each frame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .noise_line import SIGMA_PER_MAD, median

#: Sides of the parts of a frame: the first shows whether pixels scatter less than their noise.
_GLANCE, _PART = 128, 512
#: Most pixels scatter by less than this part of the deviation that the noise is taken for.
_LESS = 0.4
#: A lone pixel is this many deviations above most of those around; and none beside it has more than
#: this part of its height (of a spot of σ 0.5 px they have 0.14 and more).
_HIGH, _BESIDE = 30.0, 0.13
#: The share of pixels that are alone, from which on they are taken for noise; and the part of these
#: that is so in another frame, too.
_SHARE, _AGAIN = 2e-3, 0.5


def lone_pixels(frames: NDArray[Any], variance: float, *, fixed: bool) -> float:
    """Return the share of hot pixels where noise is taken for more than most have; otherwise 0.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.
    variance : float
        That of most fine detail.
    fixed : bool
        Whether only those count that are hot in the first and the last frame, as no photon is.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> frames = rng.normal(100.0, 4.0, (2, 128, 128))
    >>> frames[:, rng.random((128, 128)) < 0.02] += 900
    >>> round(lone_pixels(frames, 16000.0, fixed=True), 2)
    0.02
    """
    if (fixed and len(frames) < 2) or not _is_calm(frames[0], variance):
        return 0.0
    alone = _alone(_middle(frames[0], _PART))
    if fixed:
        again = _alone(_middle(frames[-1], _PART)) & alone
        if np.count_nonzero(again) < _AGAIN * np.count_nonzero(alone):
            return 0.0
    share = float(np.mean(alone))
    return share if share > _SHARE else 0.0


def in_words(share: float) -> str:
    """Return a warning of hot pixels."""
    return (
        f"{share:.1%} of the pixels are hot: bright by themselves, as no spot is, and so many that "
        "they are taken for noise, and hide spots. Give bad_pixels=, True where a mean of dark "
        "frames is far above its median, or a camera with maps; the gain is not to blame"
    )


def _middle(frame: NDArray[Any], side: int) -> NDArray[Any]:
    y, x = (max(size - side, 0) // 2 for size in frame.shape)
    return frame[y : y + side, x : x + side]


def _is_calm(frame: NDArray[Any], variance: float) -> bool:
    """Whether most pixels scatter by much less than what the noise is taken for."""
    part = _middle(frame, _GLANCE)[::4].astype(np.float64)
    steps = abs(part[:, 1:] - part[:, :-1])
    known = steps.ravel() if frame.dtype.kind in "iu" else steps[np.isfinite(steps)]
    if not known.size:
        return False
    scatter = SIGMA_PER_MAD * median(known) / math.sqrt(2)
    return 0 < scatter < _LESS * math.sqrt(variance)


def _alone(part: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which pixels are bright by themselves."""
    from scipy import ndimage  # takes longer to import than a few fits

    pixels = np.nan_to_num(part.astype(np.float64), nan=float(np.nanmedian(part)))
    around = ndimage.median_filter(pixels, 5)
    height = pixels - around
    scatter = SIGMA_PER_MAD * float(np.median(abs(height)))
    beside = np.maximum.reduce([np.roll(height, way, axis) for axis in (0, 1) for way in (1, -1)])
    alone: NDArray[np.bool_] = (height > _HIGH * scatter) & (beside < _BESIDE * height)
    return alone
