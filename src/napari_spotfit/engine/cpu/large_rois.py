"""Large ROIs: one fit worked on by all threads, or by a GPU.

The work is cut into the same pieces however many threads there are, and their sums are added in
the same order: results do not depend on threads, to the bit.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ...workers import Workers
from ..kernel_arguments import address
from .fit_kind import fit_kind
from .layouts import FitResults, HostRois, LargePlanes, LargeRequest

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

    def __init__(self, settings: Settings, roi_shape: tuple[int, ...], *, planes: bool) -> None:
        self.kind = kind = fit_kind(settings, roi_shape, planes)
        self._library, self._profile, own = kind.library, kind.profile, kind.encoded
        likelihood = settings.estimator_kind.is_likelihood
        #: Of the library's functions.
        self._kind = (
            likelihood, planes_of(planes, likelihood), own.program.fixed_origin if own else 0,
        )  # fmt: skip
        self._roi_shape, self._errors = roi_shape, settings.errors
        self._parameters = len(settings.profile.shape)
        size = self._library.functions.spotfit_large_fit_bytes(self._profile)
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
            self._profile, self._memory, rows, columns, ctypes.byref(self.kind.numbers),
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
        planes, stride = self._kind[1], 4 * self._parameters
        level = functions.spotfit_large_level(ctypes.byref(source), planes, roi, *self._roi_shape)
        self.begin(source.start and source.start + stride * roi, level)
        while self.request.task:
            self.take(self.numbers(source, roi, share, workers), self.request.pieces)

    def numbers(
        self, source: HostRois, roi: int, share: Share, workers: int
    ) -> NDArray[np.float64]:
        """Return the numbers that are asked for of a ROI."""
        functions, index = self._library.functions, self._library.index
        work = np.empty((workers, self.kind.work_bytes), np.uint8)
        numbers = np.empty(self.request.numbers)

        def add_up(worker: int, piece: int) -> None:
            functions.spotfit_large_sums(
                index, self._profile, ctypes.byref(source), roi, self._memory,
                ctypes.byref(self.kind.numbers), piece, address(work[worker]), address(numbers),
            )  # fmt: skip

        share(add_up, self.request.pieces)
        return numbers


@contextmanager
def team(workers: int) -> Iterator[Share]:
    """Return what shares pieces among threads, this one and others."""
    with Workers(workers - 1, thread_name_prefix="spotfit") as pool:

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
