"""What fits of a kind share, and large ROIs: one fit worked on by all threads, or by a GPU.

The work is cut into the same pieces however many threads there are, and their sums are added in
the same order: results do not depend on threads, to the bit.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ...workers import Workers
from ..fit_job import make_fit_settings
from ..kernel_arguments import EncodedPsf, address, encode_psf, shape_of_roi
from .layouts import EXPRESSION_SIZES, FitResults, FitSettings, HostRois, LargePlanes, LargeRequest
from .library import Library, load

if TYPE_CHECKING:
    from .expression import Encoded

#: Rows and vectors of a block of pixels of large ROIs that the library works on, at most.
_ROWS_OF_BLOCK, _VECTORS_OF_BLOCK = 32, 32
#: Calls a function with the number of a thread and of a piece, for a number of pieces.
Share = Callable[[Callable[[int, int], None], int], None]


def fit_kind(settings: Settings, roi_shape: tuple[int, ...], planes: bool) -> FitKind:
    """Return what is the same for all fits of a kind."""
    return _fit_kind(load(), settings, roi_shape, planes)


@lru_cache(maxsize=64)
def _fit_kind(
    library: Library, settings: Settings, roi_shape: tuple[int, ...], planes: bool
) -> FitKind:
    profile = _profile_number(library, settings, roi_shape)
    encoded = _encoded(library, settings, roi_shape)
    lanes = encoded.lanes if encoded else 0
    roi = shape_of_roi(roi_shape)
    return FitKind(
        library, profile, encoded, 2 * settings.estimator_kind.is_likelihood + planes,
        make_fit_settings(settings, roi_shape),
        library.functions.spotfit_fit_bytes(library.index, profile, ctypes.byref(roi), lanes),
    )  # fmt: skip


class FitKind(NamedTuple):
    """What is the same for all fits of a kind, and only read."""

    library: Library
    profile: int
    encoded: Encoded | EncodedPsf | None
    estimator: int
    numbers: FitSettings
    #: Memory that a thread needs.
    work_bytes: int


def _profile_number(library: Library, settings: Settings, roi_shape: tuple[int, ...]) -> int:
    """Return a profile's number; expressions come late, by the number of their parameters."""
    if settings.profile.lattice is not None:
        built_in: int = library.functions.spotfit_built_in_profiles()
        return built_in + len(EXPRESSION_SIZES)
    if settings.profile.expression is None:
        return settings.profile.place(settings.pixel)
    parameters = len(settings.profile.shape)
    place = next(i for i, size in enumerate(EXPRESSION_SIZES) if parameters <= size)
    built_in = library.functions.spotfit_built_in_profiles()
    return built_in + (place if max(roi_shape) <= ROI_MAX else parameters - EXPRESSION_SIZES[0])


def _encoded(
    library: Library, settings: Settings, roi_shape: tuple[int, ...]
) -> Encoded | EncodedPsf | None:
    """Return the constants of a profile, whose memory must outlast fits."""
    if settings.profile.lattice is not None:
        lane_width = library.functions.spotfit_lane_width(library.index)
        return encode_psf(settings.profile.lattice, roi_shape, lane_width)
    if settings.profile.expression is None:
        return None
    from .expression import encode

    if max(roi_shape) > ROI_MAX:
        vectors = -(-roi_shape[1] // library.functions.spotfit_lane_width(library.index))
        roi_shape = _ROWS_OF_BLOCK, min(vectors, _VECTORS_OF_BLOCK)
    return encode(settings.profile.expression, roi_shape)


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
