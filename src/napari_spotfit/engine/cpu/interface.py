"""What the library shows through C, as ctypes has it: kernels/cpu/interface.h explains it."""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..detection.detection_settings import DetectionSettings
from ..fit_settings import MAX_SHAPE
from ..kernel_arguments import RoiSource, address

#: Types of pixels by their numbers.
PIXEL_TYPES = {"u1": 0, "u2": 1, "i2": 2, "f4": 3, "f8": 4}

#: Profiles by their numbers: name of the model, and how it is averaged over a pixel.
PROFILES = {
    ("gaussian", "sampled"): 0,
    ("gaussian_elliptical", "sampled"): 1,
    ("gaussian", "integrated"): 2,
    ("gaussian_elliptical", "integrated"): 3,
    ("gaussian_rotated", "sampled"): 4,
    ("lorentzian", "sampled"): 5,
    ("moffat", "sampled"): 6,
}
#: The most shape parameters that the code for own expressions is made for; their numbers come
#: after those of the profiles.
EXPRESSION_SIZES = (3, 4, 5, 6, 8, 12)

#: A step of an expression's program.
EXPRESSION_STEP = np.dtype(
    [("operation", "u1"), ("varies", "u1"), ("by_row", "u1"), ("by_pixel", "u1")]
    + [(name, "i4") for name in ("out", "a", "b", "c")]
)


class ExpressionProgram(ctypes.Structure):
    """An expression and its derivatives, for ROIs of one size."""

    _fields_ = (
        ("steps", ctypes.c_void_p),
        ("once", ctypes.c_int),
        ("by_column", ctypes.c_int),
        ("by_row", ctypes.c_int),
        ("by_pixel", ctypes.c_int),
        ("constants", ctypes.c_void_p),
        ("constant_count", ctypes.c_int),
        ("parameters", ctypes.c_int),
        ("x", ctypes.c_int),
        ("y", ctypes.c_int),
        ("results", ctypes.c_int),
        ("rows_at_once", ctypes.c_int),
        ("pitch", ctypes.c_int),
    )


class HostRois(RoiSource):
    """ROIs where they lie in the host's frames."""

    _fields_ = (("program", ctypes.c_void_p), ("pixel_type", ctypes.c_int))


class DetectionSource(ctypes.Structure):
    """Frames that lie one after the other; they and the settings must outlast it."""

    _fields_ = (
        ("frames", ctypes.c_void_p),
        ("settings", ctypes.POINTER(DetectionSettings)),
        ("pixel_type", ctypes.c_int),
    )

    @classmethod
    def of(cls, frames: NDArray[Any], settings: DetectionSettings) -> DetectionSource:
        """Return frames (n, Y, X), C-contiguous."""
        pixel_type = PIXEL_TYPES[frames.dtype.str[1:]]
        return cls(address(frames), ctypes.pointer(settings), pixel_type)


class LargeTask(enum.IntEnum):
    """What a search in a large ROI asks for, as kernels/large_request.h says."""

    NOTHING, CELLS, RESIDUALS, DEVIANCE, FISHER, NOISE = range(6)


class LargePlanes(enum.IntEnum):
    """What planes of large ROIs are, as kernels/large_request.h says."""

    NONE, WEIGHTS, VARIANCES = range(3)

    @classmethod
    def of(cls, planes: bool, likelihood: bool) -> LargePlanes:
        """Return what there is for an estimator."""
        if not planes:
            return cls.NONE
        return cls.VARIANCES if likelihood else cls.WEIGHTS


class LargeRequest(ctypes.Structure):
    """What a search in a large ROI asks for; kernels/large_request.h explains it."""

    _fields_ = (
        ("task", ctypes.c_int),
        ("pieces", ctypes.c_int),
        ("numbers", ctypes.c_int),
        ("rows", ctypes.c_int),
        ("columns", ctypes.c_int),
        ("first_row", ctypes.c_int),
        ("end_row", ctypes.c_int),
        ("planes", ctypes.c_int),
        ("turns", ctypes.c_int),
        ("origin_x", ctypes.c_int),
        ("origin_y", ctypes.c_int),
        ("shape", ctypes.c_float * MAX_SHAPE),
        ("amplitude", ctypes.c_float),
        ("background", ctypes.c_float),
        ("weight", ctypes.c_float),
        ("level", ctypes.c_double),
        ("scale", ctypes.c_double),
        ("peak", ctypes.c_float),
        ("flat", ctypes.c_float),
        ("shot", ctypes.c_float),
        ("readout", ctypes.c_float),
        ("scale_squared", ctypes.c_float),
        ("top", ctypes.c_int),
        ("left", ctypes.c_int),
        ("cell", ctypes.c_int),
        ("cell_rows", ctypes.c_int),
        ("cell_columns", ctypes.c_int),
    )


_INT, _LONG, _POINTER, _DOUBLE = (
    ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p, ctypes.c_double
)  # fmt: skip

#: What each function takes and returns.
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "spotfit_fit_bytes": (_LONG, (_INT, _INT, _INT, _INT)),
    "spotfit_fit": (
        None,
        (_INT, _INT, _INT, _POINTER, _LONG, _LONG, _INT, _INT, _POINTER, _POINTER, _POINTER),
    ),
    "spotfit_run_steps": (None, (_INT, _POINTER, _INT, _POINTER, _INT, _INT, _INT)),
    "spotfit_large_fit_bytes": (_LONG, (_INT,)),
    "spotfit_large_bytes": (_LONG, (_INT, _INT, _INT, _INT)),
    "spotfit_large_fit": (
        None,
        (
            _INT,
            _INT,
            _INT,
            _INT,
            _INT,
            _POINTER,
            _LONG,
            _LONG,
            _INT,
            _INT,
            _POINTER,
            _POINTER,
            _POINTER,
        ),
    ),
    "spotfit_large_work_bytes": (_LONG, (_INT, _INT, _INT)),
    "spotfit_large_level": (_DOUBLE, (_POINTER, _LONG, _INT, _INT)),
    "spotfit_large_begin": (
        None,
        (_INT, _POINTER, _INT, _INT, _POINTER, _INT, _INT, _INT, _POINTER, _DOUBLE),
    ),
    "spotfit_large_sums": (
        None,
        (_INT, _INT, _POINTER, _LONG, _POINTER, _POINTER, _INT, _POINTER, _POINTER),
    ),
    "spotfit_large_take": (None, (_INT, _POINTER, _POINTER, _INT)),
    "spotfit_large_write": (None, (_INT, _POINTER, _LONG, _INT, _POINTER)),
    "spotfit_detection_bytes": (_LONG, (_INT, _POINTER, _INT)),
    "spotfit_detection_tiles": (_LONG, (_INT, _POINTER)),
    "spotfit_most_maxima": (_LONG, (_INT, _POINTER)),
    "spotfit_detect": (
        _LONG,
        (_INT, _POINTER, _LONG, _LONG, _POINTER, _POINTER, _LONG, _POINTER),
    ),
    "spotfit_has_bad_pixels": (_INT, (_INT, _POINTER, _LONG)),
    "spotfit_sample_size": (_LONG, (_INT, _POINTER, _INT, _INT)),
    "spotfit_sample": (
        None,
        (_INT, _POINTER, _LONG, _INT, _INT, _INT, _LONG, _LONG, _POINTER, _POINTER),
    ),
    "spotfit_deviation": (_DOUBLE, (_INT, _POINTER, _LONG)),
    "spotfit_noise": (_DOUBLE, (_INT, _POINTER, _POINTER)),
    "spotfit_find_maxima": (
        _LONG,
        (_INT, _POINTER, _LONG, _INT, _DOUBLE, _LONG, _LONG, _POINTER, _POINTER, _POINTER),
    ),
    "spotfit_merge_plateaus": (
        _LONG,
        (_INT, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _LONG, _POINTER),
    ),
    "spotfit_drop_neighbours": (
        None,
        (_INT, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _DOUBLE, _POINTER),
    ),
}


def declare_signatures(functions: ctypes.CDLL) -> None:
    """Tell ctypes what the library's functions take and return."""
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
