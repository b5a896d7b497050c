"""Lone pixels in ROIs on the CPU: those that stand out as no spot's can, hot or dead."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from .. import threads
from ..detection.band import make_bands
from ..detection.detection_settings import detection_source, make_detection_settings
from ..kernel_arguments import address
from ..own_pixels import Lost
from .library import load

#: ROIs of a thread's share.
_SHARE = 1 << 12


def lone_pixels(
    frames: NDArray[Any],
    corners: NDArray[np.int64],
    roi_shape: tuple[int, ...],
    settings: Settings,
    level: float | None = None,
) -> Lost | None:
    """Return the lone pixels of ROIs, which are no light of a spot; None if none has any.

    They are higher than all of their neighbours by more than six standard deviations, and by more
    than the middle of a spot can be, as those that detection leaves out; or lower by as much. Those
    that rare, skewed noise may make, with few photons or after an EMCCD, are not among them.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        As detection takes them, NaN where pixels are bad.
    corners : ndarray of int64, shape (n, 3)
        Frame, first row and first column of each ROI; a negative frame stands for none.
    roi_shape : tuple of int
        Rows and columns of the ROIs.
    settings : Settings
        ``sigma``, ``noise`` and ``threads``.
    level : float, optional
        That of a frame of which they are a part.
    """
    bands = make_bands(settings.known_sigma, frames.shape[1:])
    given = make_detection_settings(settings, bands, address, level=level)
    source = detection_source(frames, given)
    library = load()

    def look(corners: NDArray[np.int64], pixels: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        found = np.empty(len(corners), bool)

        def work(first: int, last: int) -> None:
            library.functions.spotfit_find_lone_pixels(
                library.index, ctypes.byref(source), address(corners), first, last, *roi_shape,
                address(found), None if pixels is None else address(pixels),
            )  # fmt: skip

        threads.in_pieces(work, len(corners), _SHARE, settings.threads)
        return found

    rois = np.flatnonzero(look(np.ascontiguousarray(corners), None))
    if not len(rois):
        return None
    pixels = np.empty((len(rois), *roi_shape), bool)
    look(np.ascontiguousarray(corners[rois]), pixels)
    return Lost(rois, pixels)
