"""Fits of a few spots at places of single frames: one call of the library, in kept memory."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..columns import numbers_per_fit
from ..detection.band import make_bands
from ..detection.detection_settings import make_detection_settings
from ..flat_areas import rule_for
from ..kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    pixel_map,
    row_bytes,
)
from ..own_pixels import Lost
from . import layouts
from .fit import fit_kind
from .layouts import DetectionSource, HostRois, SpotCells

#: The most places of a call, and the pixels of their ROIs: with more of them, threads are of use.
_MOST, _MOST_PIXELS = 1024, 1 << 17


class Placed(NamedTuple):
    """Fits at places."""

    #: The columns, with y and x from the ROI's first pixel: the same in each call for as many.
    columns: dict[str, NDArray[Any]]
    #: Frame, first row and first column of each ROI.
    corners: NDArray[np.int64]
    #: Pixels that were no spot's.
    lone: Lost | None


class PlaceFits:
    """Fits at places of frames of one shape, by one thread at a time.

    Parameters
    ----------
    settings : Settings
        How to fit.
    detection : Settings
        By which lone pixels are found; where these know no σ, they count.
    frame_shape : tuple of int
        Rows and columns of the frames.
    planes, variance_map : Planes, optional
        What is known of the pixels, the same for all frames.
    """

    def __init__(
        self,
        settings: Settings,
        detection: Settings,
        frame_shape: tuple[int, int],
        planes: Planes | None = None,
        variance_map: Planes | None = None,
    ) -> None:
        self._settings, self._detection, self._shape = settings, detection, frame_shape
        self._planes, self._variance_map = planes, variance_map
        self._room = self._count = -1
        rows, columns = settings.roi_shape
        self._most = min(_MOST, _MOST_PIXELS // (rows * columns))
        if max(rows, columns) > ROI_MAX:
            self._most = 0
            return
        self._kind = fit_kind(settings, (rows, columns), planes is not None)
        self._library = self._kind.library

    def __call__(
        self, frame: NDArray[Any], taken: NDArray[Any], places: NDArray[np.float64]
    ) -> Placed | None:
        """Return fits at places.

        Parameters
        ----------
        frame : ndarray, shape (1, Y, X)
            A frame as backends read it, corrected, NaN where pixels are bad.
        taken : ndarray, shape (1, Y, X)
            The same as the camera took it.
        places : ndarray of float64, shape (n, 2)
            y and x in pixels.

        Returns
        -------
        Placed or None
            None where that is left to what looks at pixels more closely: too many places, such as
            are outside, or pixels that may be saturated.
        """
        count = len(places)
        if not 0 < count <= self._most:
            return None
        if count > self._room:
            self._make_room(count, frame.dtype, taken.dtype)
        given = self._given
        if count != self._count:
            self._columns = {name: values[:count] for name, values in self._all.items()}
            self._corners = self._all_corners[:count]
            given.spots.count = self._count = count
        self._places[:count] = places
        given.source.frames, given.taken = address(frame), address(taken)
        if self._lone_source is not None:
            self._lone_source.frames = given.source.frames
        cut = self._run()
        if cut < 0:
            return None
        return Placed(self._columns, self._corners, self._lost(cut) if given.lone_count else None)

    def _run(self) -> int:
        """Fit, and return how many ROIs lack some pixels; -1 where nothing is fitted."""
        cut: int = self._fit_places(self._library.index, self._by_reference)
        return cut

    def _new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return memory."""
        return np.empty(size, dtype)

    def _lost(self, cut: int) -> Lost:
        """Return the lone pixels."""
        rois = self._cut[:cut]
        having = self._lone[rois]
        return Lost(rois[having], self._lone_pixels[:cut][having])

    def _make_room(self, room: int, dtype: np.dtype[Any], taken: np.dtype[Any]) -> None:
        """Take memory for so many fits, and say once where all of it is."""
        self._room = self._count = -1  # until all is there: an error leaves no room half made
        self._kept: list[NDArray[Any]] = []
        self._allocate(room, dtype)
        self._look_for_lone_pixels(dtype)
        self._given = self._filled(room, dtype, taken)
        self._fit_places = self._library.functions.spotfit_fit_places
        self._by_reference = ctypes.byref(self._given)
        self._room = room

    def _kept_new(self, size: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return memory that is kept as long as this room."""
        self._kept.append(self._new(size, dtype))
        return self._kept[-1]

    def _allocate(self, room: int, dtype: np.dtype[Any]) -> None:
        """Take the memory that Python, too, reads or writes."""
        settings, new = self._settings, self._kept_new
        rois, shape = (room, *settings.roi_shape), (room, len(settings.profile.shape))
        size = row_bytes(settings) * room
        self._results, self._cut_results = (new((size,), np.uint8) for _ in range(2))
        self._all = Results.within(self._results, room, settings).columns(settings.profile)
        self._places, self._all_corners = new((room, 2), float), new((room, 3), np.int64)
        self._cut, self._lone = new((room,), np.int64), new((room,), bool)
        self._lone_pixels = new(rois, bool)
        self._start, self._cut_start = (new(shape, np.float32) for _ in range(2))
        self._pixels, self._whole = (new(rois, dtype) for _ in range(2))
        self._own = new(rois, np.float32)

    def _look_for_lone_pixels(self, dtype: np.dtype[Any]) -> None:
        """Prepare what finds them, if the settings of detection know a σ."""
        self._lone_source = None
        if self._detection.sigma is not None:
            self._bands = make_bands(self._detection.sigma, self._shape)
            self._numbers = make_detection_settings(self._detection, self._bands, address)
            self._lone_source = DetectionSource(
                0, ctypes.addressof(self._numbers), PIXEL_TYPES[dtype.str[1:]]
            )

    def _filled(self, room: int, dtype: np.dtype[Any], taken: np.dtype[Any]) -> layouts.PlaceFits:
        """Return what the library is given: where all memory is."""
        settings, kind, new = self._settings, self._kind, self._kept_new
        rows, columns = settings.roi_shape
        source = HostRois(
            height=self._shape[0],
            width=self._shape[1],
            corners=address(self._all_corners),
            start=address(self._start),
            planes=pixel_map(self._planes),
            variance=pixel_map(self._variance_map),
            program=ctypes.addressof(kind.encoded.program) if kind.encoded else 0,
            pixel_type=PIXEL_TYPES[dtype.str[1:]],
        )
        return layouts.PlaceFits(
            source=source,
            taken_type=PIXEL_TYPES[taken.str[1:]],
            profile=kind.profile,
            estimator=kind.estimator,
            rows=rows,
            columns=columns,
            shape=len(settings.profile.shape),
            numbers=numbers_per_fit(settings),
            settings=ctypes.addressof(kind.numbers),
            detection=ctypes.addressof(self._lone_source) if self._lone_source else 0,
            areas=rule_for(taken),
            spots=self._cells(room),
            work=address(new((kind.work_bytes,), np.uint8)),
            results=fit_results(address(self._results), room, settings),
            crowded=address(new((room,), bool)),
            lone=address(self._lone),
            cut=address(self._cut),
            lone_pixels=address(self._lone_pixels),
            pixels=address(self._pixels),
            own=address(self._own),
            planes=address(new((rows, columns), np.float32)),
            variances=address(new((room, rows, columns), np.float32)),
            start=address(self._cut_start),
            cut_results=fit_results(address(self._cut_results), room, settings),
            whole=address(self._whole),
        )

    def _cells(self, room: int) -> SpotCells:
        """Return the places by cells of a frame, none where all pixels count."""
        height, width = self._shape
        roi_shape, new = self._settings.roi_shape, self._kept_new
        side = max(*roi_shape, math.isqrt(height * width // room))
        down, across = -(-height // side), -(-width // side)
        if self._settings.neighbours != "leave out":
            down = across = 0
        return SpotCells(
            corners=address(self._all_corners),
            places=address(self._places),
            frames=1,
            down=down,
            across=across,
            starts=address(new((down * across + 1,), np.int64)),
            by_cell=address(new((room, 2), float)),
            side=side,
            rows=roi_shape[0],
            columns=roi_shape[1],
        )
