"""Which fits get which flags: the rules of kernels/verdict.h, on columns where they lie."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.arrays import to_host
from ...settings.settings import Settings
from .. import threads
from ..cpu.layouts import MAX_SHAPE, WORK_OF_VERDICT, FitColumns, ImageFits
from ..cpu.library import load
from ..filtered_noise import error_columns, filtered_noise
from ..kernel_arguments import address
from ..own_pixels import Lost
from .verdict_settings import COLUMNS, verdict_settings

Columns = Mapping[str, Any]

_BYTE, _INTEGER, _SINGLE, _DOUBLE, _LONG = map(np.dtype, ("u1", "i4", "f4", "f8", "i8"))
#: The columns' types, as kernels/layouts/verdicts.h has them.
_TYPES = (_BYTE, _INTEGER, _INTEGER, *(len(COLUMNS) - 3 + MAX_SHAPE) * [_SINGLE])
#: Fits of a thread's share.
_SHARE = 1 << 14

#: ctypes would take longer to fill them in than a hundred fits take to be judged.
_FIT_COLUMNS, _IMAGE_FITS = struct.Struct(FitColumns.FORMAT), struct.Struct(ImageFits.FORMAT)


class Origin(NamedTuple):
    """Where in an image fits began, and what is known of its pixels."""

    #: Frame, first row and first column of each ROI; the frames rise, and all their fits are there.
    corners: NDArray[np.int64]
    #: y and x from which each fit began, in pixels.
    places: NDArray[np.float64]
    #: Rows and columns of a frame.
    shape: tuple[int, int]
    #: The PSF's σ; None where nobody has said it.
    sigma: float | None
    #: Which pixels are bad, (1, Y, X) or (frames, Y, X).
    bad: Any = None
    #: Pixels of the ROIs that no fit has counted: those with more light, and those that tell none.
    saturated: Lost | None = None
    lone: Lost | None = None


def judge(
    columns: Columns, settings: Settings | None, roi_shape: tuple[int, int] | None
) -> NDArray[np.uint32]:
    """Return the flags of fits that follow from their numbers alone, :class:`Flag` by bits.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The fits' columns; what is missing sets no flag.
    settings : Settings or None
        What the fits were made with; without, no bound and no noise is known.
    roi_shape : (int, int) or None
        Rows and columns of the ROIs.

    Examples
    --------
    >>> columns = {"stop_condition": [0, 2], "amplitude": [5, 5], "photons": [9, -9]}
    >>> judge({name: np.array(values) for name, values in columns.items()}, None, None)
    array([ 1, 64], dtype=uint32)
    """
    names, numbers = verdict_settings(settings, roi_shape)
    count = len(columns["stop_condition"])
    found = np.empty(count, np.uint32)
    where, doubles, _kept = _places_of(columns, names)
    library = load()
    library.functions.spotfit_judge(
        library.index, _FIT_COLUMNS.pack(*where, doubles), ctypes.byref(numbers), 0, count,
        address(found),
    )  # fmt: skip
    return found


def judge_in_image(columns: dict[str, Any], settings: Settings, origin: Origin) -> None:
    """Make the columns of fits in ROIs those of an image, with all of their flags.

    y and x become pixels of the image, and standard errors those that the noise of a filtered one
    gives, both in place; ``roi_y``, ``roi_x`` and ``flags`` are added.

    Parameters
    ----------
    columns : dict of str to ndarray
        As a backend returns them.
    settings : Settings
        What the fits were made with.
    origin : Origin
        Where the fits began.
    """
    ImageVerdicts(columns, settings).judge(origin)


class ImageVerdicts:
    """What :func:`judge_in_image` does, for columns whose memory is filled again and again.

    Parameters
    ----------
    columns : dict of str to ndarray
        As a backend returns them; ``roi_y``, ``roi_x`` and ``flags`` are added.
    settings : Settings
        What the fits are made with.
    """

    def __init__(self, columns: dict[str, Any], settings: Settings) -> None:
        names, self.numbers = verdict_settings(settings, settings.roi_shape)
        where, doubles, *kept = _places_of(columns, names)
        where[1:3] = 0, 0  # y and x are those in the ROIs, whatever the columns were before
        count = self._count = len(columns["y"])
        made, work = np.empty((3, count), _INTEGER), np.empty(WORK_OF_VERDICT * count, _BYTE)
        columns.update(roi_y=made[0], roi_x=made[1], flags=made[2].view(np.uint32))
        filtered = filtered_noise(settings, settings.roi_shape)
        errors = None if filtered is None else error_columns(columns, filtered.columns)
        #: What must outlast the addresses.
        self._kept = kept, made, work, filtered, errors
        #: The columns, packed as FitColumns.
        self.fits = _FIT_COLUMNS.pack(*where, doubles)
        self._threads = settings.threads
        self._library, self._numbers_at = load(), ctypes.byref(self.numbers)
        first = address(made)
        self._memory = (
            ctypes.addressof(filtered.noise) if filtered else 0,
            ctypes.addressof(errors) if errors else 0, address(work),
            *where[len(COLUMNS) : len(COLUMNS) + 2], first, first + 4 * count, first + 8 * count,
        )  # fmt: skip

    def judge(self, origin: Origin) -> None:
        """Make the columns those of an image."""
        corners = np.ascontiguousarray(origin.corners, _LONG)
        places = np.ascontiguousarray(origin.places, _DOUBLE)
        bad = None if origin.bad is None else np.ascontiguousarray(to_host(origin.bad))
        image = self.image(
            corners, places, origin.shape, origin.sigma, bad, origin.saturated, origin.lone
        )
        library, fits, numbers = self._library, self.fits, self._numbers_at

        def work(first: int, last: int) -> None:
            library.functions.spotfit_judge_in_image(
                library.index, fits, numbers, image, first, last
            )

        if self._count <= _SHARE or self._threads == 1:
            work(0, self._count)
        else:
            threads.in_pieces(work, self._count, _SHARE, self._threads)

    def image(
        self,
        corners: NDArray[np.int64],
        places: NDArray[np.float64],
        shape: tuple[int, int],
        sigma: float | None,
        bad: NDArray[np.bool_] | None,
        saturated: Lost | None = None,
        lone: Lost | None = None,
        first_row: int = 0,
    ) -> bytes:
        """Return ImageFits, packed; the arrays must outlast it."""
        return _IMAGE_FITS.pack(
            address(corners), address(places), self._count, *shape,
            math.nan if sigma is None else sigma, address(bad), 0 if bad is None else len(bad),
            *_lost(saturated), *_lost(lone), *self._memory, first_row,
        )  # fmt: skip


def _places_of(columns: Columns, names: tuple[str, ...]) -> tuple[list[int], int, list[Any]]:
    """Return where columns are, which are of double precision, and what must outlast that."""
    where, doubles, kept = [0] * len(_TYPES), 0, []
    for place, name in enumerate(names):
        column: Any = columns.get(name)
        if column is None:
            continue
        if column.dtype is not _TYPES[place]:
            column = np.ascontiguousarray(column, _DOUBLE)
            doubles |= 1 << place
        try:  # what `address` does, without a call for each of a dozen columns
            where[place] = ctypes.addressof(ctypes.c_char.from_buffer(column))
        except (TypeError, ValueError):  # nothing in it, read-only, or not in one piece
            column = np.ascontiguousarray(column)
            where[place] = address(column)
        kept.append(column)
    return where, doubles, kept


def _lost(pixels: Lost | None) -> tuple[int, int, int]:
    """Return where the lost pixels of ROIs are."""
    if pixels is None:
        return 0, 0, 0
    return address(pixels.rois), address(pixels.pixels), len(pixels.rois)
