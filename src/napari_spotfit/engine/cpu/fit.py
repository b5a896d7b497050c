"""Fits on the CPU, by the compiled library: ROIs cut into shares for threads."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from .. import threads
from ..fit_settings import make_fit_settings
from ..kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    pixel_map,
    row_bytes,
)
from .layouts import EXPRESSION_SIZES, FitResults, FitSettings, HostRois
from .library import Library, load

if TYPE_CHECKING:
    from .expression import Encoded

#: Pixels of a thread's share, at most, and its fits at least: small enough to share the work
#: evenly and to be done soon after an interruption, large enough for Python's part to be small.
_LARGE_SHARE, SMALL_SHARE = 1 << 20, 1024


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
    count = len(frames) if corners is None else len(corners)
    memory = np.empty(row_bytes(settings) * count, np.uint8)
    results = Results.within(memory, count, settings)
    target = fit_results(address(memory), count, settings)
    source = HostRois(
        address(frames), *frames.shape[1:], address(corners), address(start),
        pixel_map(planes), pixel_map(variance_map), 0, PIXEL_TYPES[frames.dtype.str[1:]],
    )  # fmt: skip
    if max(roi_shape) > ROI_MAX:
        from . import large_rois

        inside = corners[:, 0] >= 0 if corners is not None else np.ones(count, bool)
        large_rois.fit_rois(source, inside, roi_shape, settings, target)
    else:
        fit_kind(settings, roi_shape, planes is not None).fit(source, count, target)
    return results.columns(settings.profile)


def fit_kind(settings: Settings, roi_shape: tuple[int, int], planes: bool) -> FitKind:
    """Return what is the same for all fits of a kind, in ROIs of up to 32 pixels a side."""
    return _fit_kind(load(), settings, roi_shape, planes)


@lru_cache(maxsize=64)
def _fit_kind(
    library: Library, settings: Settings, roi_shape: tuple[int, int], planes: bool
) -> FitKind:
    profile, encoded = _profile(library, settings, roi_shape)
    lanes = encoded.lanes if encoded else 0
    return FitKind(
        library, profile, encoded, 2 * settings.estimator_kind.is_likelihood + planes, roi_shape,
        make_fit_settings(settings, roi_shape), settings.threads,
        library.functions.spotfit_fit_bytes(library.index, *roi_shape, lanes),
    )  # fmt: skip


class FitKind(NamedTuple):
    """What is the same for all fits of a kind, and only read."""

    library: Library
    profile: int
    encoded: Encoded | None
    estimator: int
    roi_shape: tuple[int, int]
    numbers: FitSettings
    threads: int | None
    #: Memory that a thread needs.
    work_bytes: int

    def fit(self, source: HostRois, count: int, target: FitResults) -> None:
        """Fit the ROIs of a source, which all threads share."""
        if self.encoded:
            source.program = ctypes.addressof(self.encoded.program)
        if count <= SMALL_SHARE:
            self.fit_share(source, 0, count, target, np.empty(self.work_bytes, np.uint8))
            return

        def fit_share(first: int, last: int) -> None:
            self.fit_share(source, first, last, target, np.empty(self.work_bytes, np.uint8))

        share = count // (4 * (self.threads or threads.available()))
        largest = _LARGE_SHARE // (self.roi_shape[0] * self.roi_shape[1])
        share = max(min(share, largest), SMALL_SHARE)
        threads.in_pieces(fit_share, count, share, self.threads)

    def fit_share(
        self, source: HostRois, first: int, last: int, target: FitResults, work: NDArray[Any]
    ) -> None:
        """Fit some of them in this thread, whose memory is given."""
        self.library.functions.spotfit_fit(
            self.library.index, self.profile, self.estimator, ctypes.byref(source), first, last,
            *self.roi_shape, ctypes.byref(self.numbers), address(work), ctypes.byref(target),
        )  # fmt: skip


def _profile(
    library: Library, settings: Settings, roi_shape: tuple[int, int]
) -> tuple[int, Encoded | None]:
    """Return a profile's number, and an expression's program, whose memory must outlast fits."""
    expression = settings.profile.expression
    if expression is None:
        return settings.profile.place(settings.pixel), None
    from .expression import encode

    parameters = len(settings.profile.shape)
    number = next(i for i, size in enumerate(EXPRESSION_SIZES) if parameters <= size)
    return library.functions.spotfit_built_in_profiles() + number, encode(expression, roi_shape)
