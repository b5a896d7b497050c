"""Large ROIs on the CPU: one fit worked on by all threads, or smaller ones by a thread each.

The work is cut into the same pieces however many threads there are, and their sums are added in
the same order: results do not depend on threads, to the bit.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from .. import threads
from ..fit_job import make_fit_settings
from ..kernel_arguments import (
    PIXEL_TYPES,
    Results,
    address,
    fit_results,
    pixel_map,
    row_bytes,
)
from .expression import encode
from .layouts import FitResults, HostRois, LargePlanes, LargeRequest
from .library import load

#: ROIs of fewer pixels are fitted side by side, each by one thread.
_SHARED_PIXELS = 1 << 16

#: Rows and vectors of a block of pixels that the library works on, at most.
_ROWS_OF_BLOCK, _VECTORS_OF_BLOCK = 32, 32

#: Calls with the number of a thread and of a piece, for so many pieces.
Share = Callable[[Callable[[int, int], None], int], None]


def planes_of(planes: bool, likelihood: bool) -> int:
    """Return what planes of pixels are to an estimator, one of LargePlanes."""
    if not planes:
        return LargePlanes.NO_PLANES
    return LargePlanes.VARIANCES if likelihood else LargePlanes.WEIGHTS


class LargeFit:
    """One fit at a time: the library's memory of it, which begins with its request.

    Parameters
    ----------
    settings : Settings
        How to fit.
    roi_shape : (int, int)
        Rows and columns.
    planes : bool
        Whether the pixels have weights or variances.

    Examples
    --------
    >>> fit = LargeFit(Settings(), (100, 120), planes=False)
    >>> fit.begin(None, 100.0)
    >>> fit.request.cell_rows, fit.request.cell_columns
    (50, 60)
    """

    def __init__(self, settings: Settings, roi_shape: tuple[int, int], *, planes: bool) -> None:
        self._library = library = load()
        self._profile = _number_of(settings)
        likelihood, own = settings.estimator_kind.is_likelihood, settings.profile.expression
        #: Of the library's functions.
        self._kind = (
            likelihood,
            planes_of(planes, likelihood),
            own is not None and not own.follows_center,
        )
        self._expression = own
        self._roi_shape, self._errors = roi_shape, settings.errors
        self._parameters = len(settings.profile.shape)
        self.settings = make_fit_settings(settings, roi_shape)
        size = library.functions.spotfit_large_fit_bytes(self._profile)
        self._memory = ctypes.create_string_buffer(size)
        self.request = LargeRequest.from_buffer(self._memory)

    def begin(self, start: int | None, level: float) -> None:
        """Begin a fit.

        Parameters
        ----------
        start : int or None
            The address of the caller's start values.
        level : float
            A number near the pixels, less which they are exact in single precision.
        """
        rows, columns = self._roi_shape
        self._library.functions.spotfit_large_begin(
            self._profile, self._memory, rows, columns, ctypes.byref(self.settings),
            *self._kind, start, level,
        )  # fmt: skip

    def take(self, numbers: NDArray[np.float64], pieces: int) -> None:
        """Take the numbers that were asked for, and ask for more, or end."""
        self._library.functions.spotfit_large_take(
            self._profile, self._memory, address(numbers), pieces
        )

    def write(self, roi: int, results: FitResults) -> None:
        """Write the results of the fit that has ended."""
        self._library.functions.spotfit_large_write(
            self._profile, self._memory, roi, self._errors, ctypes.byref(results)
        )

    def run(self, source: HostRois, roi: int, share: Share, workers: int) -> None:
        """Fit a ROI where it lies, its pieces shared by threads."""
        functions = self._library.functions
        stride = 4 * self._parameters
        planes = self._kind[1]
        level = functions.spotfit_large_level(ctypes.byref(source), planes, roi, *self._roi_shape)
        self.begin(source.start and source.start + stride * roi, level)
        while self.request.task:
            self.take(self.numbers(source, roi, share, workers), self.request.pieces)

    def numbers(
        self, source: HostRois, roi: int, share: Share, workers: int
    ) -> NDArray[np.float64]:
        """Return the numbers that are asked for of a ROI."""
        functions, index = self._library.functions, self._library.index
        lanes = self._give_program(source)
        size = functions.spotfit_large_work_bytes(index, self._roi_shape[1], lanes)
        work = np.empty((workers, size), np.uint8)
        numbers = np.empty(self.request.numbers)

        def add_up(worker: int, piece: int) -> None:
            functions.spotfit_large_sums(
                index, self._profile, ctypes.byref(source), roi, self._memory,
                ctypes.byref(self.settings), piece, address(work[worker]), address(numbers),
            )  # fmt: skip

        share(add_up, self.request.pieces)
        return numbers

    def run_alone(self, source: HostRois, first: int, last: int, results: FitResults) -> None:
        """Fit the ROIs first … last - 1 by this thread; several threads may do so at once."""
        functions, index = self._library.functions, self._library.index
        rows, columns = self._roi_shape
        lanes = self._give_program(source)
        size = functions.spotfit_large_bytes(index, self._profile, columns, lanes)
        memory = np.empty(size, np.uint8)
        functions.spotfit_large_fit(
            index, self._profile, *self._kind, ctypes.byref(source), first, last, rows, columns,
            ctypes.byref(self.settings), address(memory), ctypes.byref(results),
        )  # fmt: skip

    def _give_program(self, source: HostRois) -> int:
        """Give an expression's program to the library; return how many lanes it needs."""
        if self._expression is None:
            return 0
        functions, index = self._library.functions, self._library.index
        vectors = -(-self._roi_shape[1] // functions.spotfit_lane_width(index))
        block = _ROWS_OF_BLOCK, min(vectors, _VECTORS_OF_BLOCK)
        self._encoded = encode(self._expression, block)
        source.constants = ctypes.addressof(self._encoded.program)
        return self._encoded.lanes


def _number_of(settings: Settings) -> int:
    """Return a profile's number; expressions come last, by the number of their parameters."""
    if settings.profile.expression is not None:
        built_in: int = load().functions.spotfit_built_in_profiles()
        return built_in + len(settings.profile.shape) - 3
    return settings.profile.place(settings.pixel)


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
    """Fit large ROIs where they lie in the frames, in native byte order and C-contiguous.

    Parameters and columns are those of :func:`napari_spotfit.engine.cuda.fit.fit_rois`.
    """
    count = len(frames) if corners is None else len(corners)
    memory = np.empty(row_bytes(settings) * count, np.uint8)
    results = Results.within(memory, count, settings)
    target = fit_results(address(memory), count, settings)
    source = HostRois(
        address(frames), 1, *frames.shape[1:], address(corners), address(start),
        pixel_map(planes), pixel_map(variance_map), 0, PIXEL_TYPES[frames.dtype.str[1:]],
    )  # fmt: skip
    inside = corners[:, 0] >= 0 if corners is not None else np.ones(count, bool)
    _fit(source, inside, roi_shape, settings, target)
    return results.columns(settings.profile)


def _fit(
    source: HostRois,
    inside: NDArray[np.bool_],
    roi_shape: tuple[int, int],
    settings: Settings,
    results: FitResults,
) -> None:
    """Fit large ROIs where they lie in the frames.

    Parameters
    ----------
    source : HostRois
        The ROIs.
    inside : ndarray of bool
        Whether each is in the frames.
    roi_shape : tuple of int
        Their rows and columns.
    settings : Settings
        How to fit.
    results : FitResults
        Where the results go.
    """
    fit = LargeFit(settings, roi_shape, planes=bool(source.planes.values))
    workers, count = settings.threads or threads.available(), len(inside)
    if workers == 1 or math.prod(roi_shape) < _SHARED_PIXELS:
        threads.in_pieces(
            lambda first, last: fit.run_alone(source, first, last, results),
            count, 1 + count // (8 * workers), workers,
        )  # fmt: skip
        return
    with _team(workers) as share:
        for roi, is_inside in enumerate(inside):
            if is_inside:
                fit.run(source, roi, share, workers)
                fit.write(roi, results)
            else:
                fit.run_alone(source, roi, roi + 1, results)


@contextmanager
def _team(workers: int) -> Iterator[Share]:
    """Return what shares pieces among threads, this one and others."""
    with ThreadPoolExecutor(workers - 1, thread_name_prefix="spotfit") as pool:

        def share(work: Callable[[int, int], None], pieces: int) -> None:
            left = itertools.count()  # which they take from in turn

            def take_pieces(worker: int) -> None:
                while (piece := next(left)) < pieces:
                    work(worker, piece)

            others = [pool.submit(take_pieces, i) for i in range(1, min(workers, pieces))]
            take_pieces(0)
            for other in others:
                if not other.cancel():  # nothing is left for who has not begun
                    other.result()

        yield share
