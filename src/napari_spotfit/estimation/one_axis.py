"""Find noise that pixels share with others along one axis, and not along the other.

A camera may add noise to whole rows, or to columns. What was stretched, shifted or filtered along
one axis, or had every second row made up from those beside it, has alike neighbours along that.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import UNLIKE
from .measured_noise import Measured
from .noise_line import SIGMA_PER_MAD
from .photon_transfer import detail_along

#: Pixels that are looked at.
_PIXELS = 1 << 18
#: Detail is cut off at this many deviations: beyond are spots.
_USUAL = 3.0
#: How far apart pixels of a line are that a filter leaves alone, and spots do not reach.
_FAR = (16, 24, 31)
#: What chance may add to the ratio of the variances of one block.
_CHANCE = 1.5
#: What far neighbours share of what near ones do, where all of a line do; and by how much more near
#: neighbours of a filtered image are alike along one axis than along the other.
_SHARED, _ONE_SIDED = 0.5, 0.2

#: The least that counts: a bright spot makes some.
_LEAST_SHARE = 0.3
#: Of noise that lines share and that is all there is, far pixels have more in common than the first
#: number. Beside that, near ones are alike by spots alone: no more than those across, by chance,
#: which have no more than the last.
_STRONG, _UNALIKE, _BESIDE_SPOTS = 0.15, 0.1, 0.3


class LineNoise(NamedTuple):
    """Noise that all pixels of a line have in common."""

    #: ``"row"`` or ``"column"``.
    line: str
    #: Its standard deviation over that of a pixel's own.
    share: float


def lines_of_noise(measured: Measured) -> LineNoise | None:
    """Return the noise that rows, or columns, have in common; None without."""
    of_rows, of_columns = detail_along(measured.blocks, measured.step)
    most = UNLIKE + _CHANCE / math.sqrt(max(measured.blocks.size, 1))
    for line, own, other, axis in (
        ("row", of_rows, of_columns, 2), ("column", of_columns, of_rows, 1),
    ):  # fmt: skip
        # Structures are smooth along both axes.
        if most < own < math.inf and own > most * other:
            near, far = _alike(measured.frames, axis)
            lines = _line_noise(line, measured.frames, axis)
            return lines if far > _SHARED * near and lines.share > _LEAST_SHARE else None
    return None


def only_lines_of_noise(frames: NDArray[Any]) -> LineNoise | None:
    """Return the noise that lines share, if that is all there is of what seems to be a filter.

    Near pixels of a line are not more alike than far ones, and those across are not alike.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        Pixels; NaN where they are bad.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> frames = rng.normal(0, 2.0, (2, 96, 96)) + rng.normal(0, 2.0, (2, 96, 1))
    >>> found = only_lines_of_noise(frames)
    >>> found.line, 0.8 < found.share < 1.25
    ('row', True)
    """
    of_rows, of_columns = _alike(frames, 2), _alike(frames, 1)
    for line, axis, (near, far), (across, far_across) in (
        ("row", 2, of_rows, of_columns), ("column", 1, of_columns, of_rows),
    ):  # fmt: skip
        if not far > max(_STRONG, 2 * far_across) or across > _BESIDE_SPOTS:
            continue
        if (near - far) / (1 - far) < across + _UNALIKE:
            return _line_noise(line, frames, axis)
    return None


def _line_noise(line: str, frames: NDArray[Any], axis: int) -> LineNoise:
    """Return the noise of lines along an axis, by the middle of each."""
    across = _without_slopes(frames, axis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # lines without a good pixel
        middle = np.nanmedian(across, axis=-1, keepdims=True)
    own = float(np.nanmedian(abs(across - middle))) ** 2
    by_chance = own * math.pi / 2 / across.shape[-1]
    shared = max(float(np.nanmedian(abs(middle))) ** 2 - by_chance, 0.0)
    return LineNoise(line, math.sqrt(shared / own) if own > 0 else math.inf)


def is_one_sided(measured: Measured) -> bool:
    """Whether neighbours of a filtered image are more alike along one axis than the other."""
    along_y, along_x = (_alike(measured.frames, axis)[0] for axis in (1, 2))
    return abs(along_y - along_x) > _ONE_SIDED


def _alike(frames: NDArray[Any], axis: int) -> tuple[float, float]:
    """Return the correlation of near pixels along an axis, and of far ones; without slopes across.

    It is 0 where frames are too small.
    """
    across = _without_slopes(frames, axis)
    known = np.isfinite(across)
    if across.shape[-1] <= _FAR[-1] or not known.any():
        return 0.0, 0.0
    usual = _USUAL * SIGMA_PER_MAD * float(np.median(abs(across[known])))
    across = np.where(known, np.clip(across, -usual, usual), 0.0)
    power = float(np.mean(across**2))
    if not power > 0:
        return 0.0, 0.0
    near, *far = (
        float(np.mean(across[..., apart:] * across[..., :-apart])) / power for apart in (1, *_FAR)
    )
    return near, float(np.mean(far))


def _without_slopes(frames: NDArray[Any], axis: int) -> NDArray[np.float64]:
    """Return by how much pixels differ from those beside their line; lines are the last axis."""
    step = max(frames.size // _PIXELS, 1)
    values = np.moveaxis(frames[::step].astype(np.float64), axis, -1)
    across: NDArray[np.float64] = values[:, 1:-1] - (values[:, :-2] + values[:, 2:]) / 2
    return across
