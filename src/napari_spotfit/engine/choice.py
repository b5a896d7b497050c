"""What ``backend="auto"`` takes: one rule, by what is to be done, whatever the machine.

A GPU is taken for what lies in its memory. For what comes from the host it is taken if one core
would work longer than a GPU takes to begin. The numbers are those of an NVIDIA H200 and an Intel
Xeon with 32 cores, 2026-11-23 (docs/performance.md).
"""

from __future__ import annotations

from ..settings.settings import Settings
from ..settings.validation import ROI_MAX

#: Nanoseconds of a core for a fit: for each, and for each of its pixels.
#: Sums along the axes (separable models, least squares); sums over the pixels (all others).
_SEPARABLE, _PIXELWISE = (130.0, 1.1), (0.0, 9.0)
#: Nanoseconds of a core from which on a GPU is worth its beginning: of fits of cut-outs and at
#: places.
_WORTH_A_GPU = 110_000.0
#: Pixels of large ROIs, one by one, for which it is, and pixels that are searched for spots.
_LARGE_PIXELS, _SEARCHED_PIXELS = 81_000, 1 << 18


def worth_for_fits(
    settings: Settings, count: int, roi_shape: tuple[int, int], *, weighted: bool = False
) -> bool:
    """Whether a GPU is worth its beginning for fits of ROIs in the host's memory.

    Parameters
    ----------
    settings : Settings
        The model and the estimator count here.
    count : int
        How many fits are to come.
    roi_shape : tuple of int
        Rows and columns of the ROIs.
    weighted : bool
        Whether pixels have weights, or some are bad.

    Examples
    --------
    >>> worth_for_fits(Settings(), 100, (9, 9)), worth_for_fits(Settings(), 1000, (9, 9))
    (False, True)
    """
    pixels = roi_shape[0] * roi_shape[1]
    if max(roi_shape) > ROI_MAX:
        return count * pixels >= _LARGE_PIXELS
    is_fast = settings.profile.separable and settings.estimator_kind.is_separable and not weighted
    each, per_pixel = _SEPARABLE if is_fast else _PIXELWISE
    return count * (each + per_pixel * pixels) >= _WORTH_A_GPU


def worth_for_search(pixels: int) -> bool:
    """Whether a GPU is worth its beginning to find spots in so many pixels of the host.

    Examples
    --------
    >>> worth_for_search(256 * 256), worth_for_search(4 * 256 * 256)
    (False, True)
    """
    return pixels >= _SEARCHED_PIXELS
