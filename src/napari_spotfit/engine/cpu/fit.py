"""Fits on the CPU, by the compiled library: ROIs cut into shares for threads."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from .. import threads
from ..fit_settings import make_fit_settings
from ..kernel_arguments import FitResults, PixelMap, Results, address, row_bytes
from .interface import EXPRESSION_SIZES, PIXEL_TYPES, HostRois
from .library import load

if TYPE_CHECKING:
    from .expression import Encoded

#: Pixels of a thread's share, at most, and its fits at least: small enough to share the work
#: evenly and to be done soon after an interruption, large enough for Python's part to be small.
_LARGE_SHARE, _SMALL_SHARE = 1 << 20, 1024


def fit_rois(
    frames: NDArray[Any],
    corners: NDArray[np.int64] | None,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: NDArray[np.float32] | None = None,
    *,
    planes: Planes | None = None,
    variance_map: Planes | None = None,
) -> dict[str, NDArray[Any]]:
    """Fit ROIs where they lie in the frames.

    Parameters
    ----------
    frames : ndarray, shape (n_frames, Y, X)
        C-contiguous uint8, uint16, int16, float32 or float64 in native byte order.
    corners : ndarray of int64, shape (n, 3), or None
        Frame, first row and first column of each ROI; a negative frame stands for a
        ROI outside the image, whose fit is INVALID. None: every frame is a ROI.
    roi_shape : tuple of int
        Rows and columns of the ROIs.
    settings : Settings
        How to fit.
    start : ndarray of float32, shape (n, K), optional
        Start values of the shape parameters in the order of the profile, y and x from
        the ROI's first pixel; NaN asks for the built-in value.
    planes : Planes, optional
        Weights for least squares, read-out variances for maximum likelihood.
    variance_map : Planes, optional
        Read-out variances in counts², which the standard errors of least squares count
        where the gain is known; by default the settings' one number.

    Returns
    -------
    dict of ndarray
        The columns of SpotFits, with y and x from the ROI's first pixel.
    """
    library = load()
    count = len(frames) if corners is None else len(corners)
    memory = np.empty(row_bytes(settings) * count, np.uint8)
    results = Results.within(memory, count, settings)
    target = FitResults.at(address(memory), count, settings)
    source = HostRois(
        frames=address(frames),
        height=frames.shape[1],
        width=frames.shape[2],
        corners=address(corners),
        start=address(start),
        planes=PixelMap.of(planes),
        variance=PixelMap.of(variance_map),
        pixel_type=PIXEL_TYPES[frames.dtype.str[1:]],
    )
    if max(roi_shape) > ROI_MAX:
        from . import large_rois

        inside = corners[:, 0] >= 0 if corners is not None else np.ones(count, bool)
        large_rois.fit_rois(source, inside, roi_shape, settings, target)
        return results.columns(settings.profile)
    numbers = make_fit_settings(settings, roi_shape)
    profile, encoded = _profile(settings, roi_shape)
    if encoded:
        source.program = ctypes.addressof(encoded.program)
    estimator = 2 * (settings.estimator == "mle") + (planes is not None)
    lanes = encoded.lanes if encoded else 0
    work_bytes = library.functions.spotfit_fit_bytes(library.index, *roi_shape, lanes)

    def fit_share(first: int, last: int) -> None:
        work = np.empty(work_bytes, np.uint8)
        library.functions.spotfit_fit(
            library.index, profile, estimator, ctypes.byref(source), first, last, *roi_shape,
            ctypes.byref(numbers), address(work), ctypes.byref(target),
        )  # fmt: skip

    share = count // (4 * (settings.threads or threads.available()))
    largest = _LARGE_SHARE // (roi_shape[0] * roi_shape[1])
    share = max(min(share, largest), _SMALL_SHARE)
    threads.in_pieces(fit_share, count, share, settings.threads)
    return results.columns(settings.profile)


def _profile(settings: Settings, roi_shape: tuple[int, int]) -> tuple[int, Encoded | None]:
    """Return a profile's number, and an expression's program, whose memory must outlast fits."""
    expression = settings.profile.expression
    if expression is None:
        return settings.profile.place(settings.pixel), None
    from .expression import encode

    parameters = len(settings.profile.shape)
    number = next(i for i, size in enumerate(EXPRESSION_SIZES) if parameters <= size)
    return load().functions.spotfit_built_in_profiles() + number, encode(expression, roi_shape)
