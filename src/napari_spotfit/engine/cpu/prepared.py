"""Fits of cut-outs of one kind again and again on the CPU, in memory that is kept."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    pixel_map,
    row_bytes,
)
from .fit import SMALL_SHARE, fit_kind, fit_rois
from .layouts import HostRois


class PreparedFits:
    """Fits of cut-outs whose settings, shape and type are known, by one thread at a time.

    Parameters
    ----------
    settings : Settings
        How to fit.
    roi_shape : tuple of int
        Rows and columns of the cut-outs.
    dtype : dtype
        Their pixels' type, one that the backend reads.
    planes, variance_map : Planes, optional
        What is known of the pixels, the same for all cut-outs.
    """

    def __init__(
        self,
        settings: Settings,
        roi_shape: tuple[int, int],
        dtype: np.dtype[Any],
        planes: Planes | None = None,
        variance_map: Planes | None = None,
    ) -> None:
        self._settings, self._roi_shape = settings, roi_shape
        self._planes, self._variance_map = planes, variance_map
        self._columns: dict[str, NDArray[Any]] = {}
        self._room = self._count = -1
        self._large = max(roi_shape) > ROI_MAX
        if self._large:
            return
        self._kind = kind = fit_kind(settings, roi_shape, planes is not None)
        self._source = HostRois(
            0, *roi_shape, 0, 0, pixel_map(planes), pixel_map(variance_map), 0,
            PIXEL_TYPES[dtype.str[1:]],
        )  # fmt: skip
        if kind.encoded:
            self._source.program = ctypes.addressof(kind.encoded.program)
        self._work = np.empty(kind.work_bytes, np.uint8)
        self._fit = kind.library.functions.spotfit_fit

    def __call__(
        self, pixels: NDArray[Any], start: NDArray[np.float32] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of fits; some are the same memory in each call."""
        if self._large:  # whose fits take longer than all that could be kept
            return fit_rois(
                pixels, None, self._roi_shape, self._settings, start, planes=self._planes,
                variance_map=self._variance_map,
            )  # fmt: skip
        count = len(pixels)
        if count != self._count:
            self._take(count)
        self._source.frames = address(pixels)
        self._source.start = address(start)
        if count <= SMALL_SHARE:
            self._fit(*self._arguments)
        else:
            self._kind.fit(self._source, count, self._target)
        return self._columns

    def _take(self, count: int) -> None:
        """Have room for so many fits."""
        if count > self._room:
            self._memory = np.empty(row_bytes(self._settings) * count, np.uint8)
            self._all = Results.within(self._memory, count, self._settings).columns(
                self._settings.profile
            )
            self._target = fit_results(address(self._memory), count, self._settings)
            self._room = count
        self._columns = {name: column[:count] for name, column in self._all.items()}
        self._count, kind = count, self._kind
        self._arguments = (
            kind.library.index, kind.profile, kind.estimator, ctypes.byref(self._source), 0, count,
            *self._roi_shape, ctypes.byref(kind.numbers), address(self._work),
            ctypes.byref(self._target),
        )  # fmt: skip
