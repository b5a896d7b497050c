"""Recognise the brightest of several planes or frames by noise that is more skewed than photons'.

The largest of several numbers has a longer tail above than below, however many photons there are:
of nine normal ones, its skewness is 0.56. The noise of photons is skewed by what each of them adds,
over its deviation, and that of photons that were amplified 1.5 times as much: by next to nothing
where there are hundreds. Spots and edges are skewed, too, so that blocks with these do not count,
and bright places have to show it as dark ones do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..settings.noise_model import NoiseModel
from .noise_line import is_usable, median, quantiles
from .photon_transfer import without_spots

#: Blocks at least, and the share of them that is the darkest and the brightest.
_FEWEST, _SHARE = 48, 3
#: Amplified photons are this many times as skewed as others. Fewer photons than some four in a
#: pixel, by the skewness that they have, show nothing.
_AMPLIFIED, _FEW_PHOTONS = 1.5, 0.45
#: By how much skewness is more than that of photons in bright blocks, and in dark ones, besides how
#: many of its errors. Of raw images it is less by 0.1 and more in one of the two.
_BRIGHT, _DARK = (0.1, 3.0), (0.05, 2.0)
#: Blocks without spots are at least this share, and columns of most differ in brightness by no more
#: times what noise makes, in variance: in crowds no block is without, and steep slopes look alike.
_WITHOUT_SPOTS, _ALIKE = 0.25, 2.0
#: The error of a median of blocks over their deviation without large ones, for one block.
_ERROR, _OFTEN = 1.5, (0.1, 0.9)


def is_brightest_of_many(blocks: NDArray[np.void], noise: NoiseModel) -> bool:
    """Whether the noise of many photons is skewed, in bright places as in dark ones.

    Parameters
    ----------
    blocks : ndarray
        What was measured in the blocks of frames.
    noise : NoiseModel
        The noise of their brightness, whose slope says how skewed it is.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> from napari_spotfit.estimation.measured_noise import measured_blocks
    >>> light = np.linspace(20, 60, 256)
    >>> planes = np.random.default_rng(1).poisson(light, (9, 256, 256)).astype(np.float32)
    >>> one, all_of_them = planes[:1], planes.max(axis=0, keepdims=True)
    >>> found = [measured_blocks(image, Settings(sigma=1.3)).blocks for image in (one, all_of_them)]
    >>> [is_brightest_of_many(each, NoiseModel(0.5, 0.0, 1.0)) for each in found]
    [False, True]
    """
    own = blocks[is_usable(blocks)]
    if len(own) < _FEWEST or not _is_skewed(own, noise, _BRIGHT, is_bright=True):
        return False
    least = max(_FEWEST, _WITHOUT_SPOTS * len(own))
    own = without_spots(own)
    own = own[is_usable(own)]
    return (
        len(own) >= least
        and median(own["spread"] / own["both"]) < _ALIKE
        and _is_skewed(own, noise, _BRIGHT, is_bright=True)
        and _is_skewed(own, noise, _DARK, is_bright=False)
    )


def _is_skewed(
    blocks: NDArray[np.void], noise: NoiseModel, beyond: tuple[float, float], *, is_bright: bool
) -> bool:
    """Whether the brightest blocks, or the darkest, are more skewed than photons."""
    dark, bright = quantiles(blocks["mean"], 1 / _SHARE, 1 - 1 / _SHARE)
    own = blocks[blocks["mean"] >= bright if is_bright else blocks["mean"] <= dark]
    variance = median(own["both"])
    if not variance > 0:
        return False
    of_photons = noise.slope / math.sqrt(variance)
    skewness: NDArray[Any] = own["cube"] / variance**1.5
    usual, (more, errors) = median(skewness), beyond
    least = _AMPLIFIED * of_photons + more
    if not (of_photons < _FEW_PHOTONS and usual > least):
        return False
    deviation = float(np.std(np.clip(skewness, *quantiles(skewness, *_OFTEN))))
    return usual - errors * _ERROR * deviation / math.sqrt(len(own)) > least
