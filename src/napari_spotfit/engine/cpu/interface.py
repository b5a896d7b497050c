"""What the library shows through C, as ctypes has it: kernels/cpu/interface.h explains it."""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..c_types import fields
from ..detection.detection_settings import DetectionSettings
from ..fit_settings import MAX_SHAPE
from ..kernel_arguments import RoiSource, address

#: Types of pixels by their numbers.
PIXEL_TYPES = {"u1": 0, "u2": 1, "i2": 2, "f4": 3, "f8": 4}

#: The most shape parameters that the code for own expressions is made for; their numbers come
#: after those of the built-in profiles.
EXPRESSION_SIZES = (3, 4, 5, 6, 8, 12)

#: A step of an expression's program.
EXPRESSION_STEP = np.dtype(
    [("operation", "u1"), ("varies", "u1"), ("by_row", "u1"), ("by_pixel", "u1")]
    + [(name, "i4") for name in ("out", "a", "b", "c")]
)


class ExpressionProgram(ctypes.Structure):
    """An expression and its derivatives, for ROIs of one size."""

    _fields_ = fields(
        "pointer steps", "int once by_column by_row by_pixel",
        "pointer constants", "int constant_count parameters x y results rows_at_once pitch",
    )  # fmt: skip


class HostRois(RoiSource):
    """ROIs where they lie in the host's frames."""

    _fields_ = fields("pointer program", "int pixel_type")


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
        *fields("int task pieces numbers rows columns first_row end_row planes turns"),
        *fields("int origin_x origin_y"),
        ("shape", ctypes.c_float * MAX_SHAPE),
        *fields("float amplitude background weight", "double level scale"),
        *fields("float peak flat scale_squared"),
        *fields("int top left cell cell_rows cell_columns"),
    )


#: What each function takes and returns.
FUNCTIONS = """
int spotfit_built_in_profiles()
long spotfit_fit_bytes(int int int int)
void spotfit_fit(int int int pointer long long int int pointer pointer pointer)
void spotfit_run_steps(int pointer int pointer int int int)
long spotfit_large_fit_bytes(int)
long spotfit_large_bytes(int int int int)
void spotfit_large_fit(int int int int int pointer long long int int pointer pointer pointer)
long spotfit_large_work_bytes(int int int)
double spotfit_large_level(pointer int long int int)
void spotfit_large_begin(int pointer int int pointer int int int pointer double)
void spotfit_large_sums(int int pointer long pointer pointer int pointer pointer)
void spotfit_large_take(int pointer pointer int)
void spotfit_large_write(int pointer long int pointer)
long spotfit_detection_bytes(int pointer)
long spotfit_detection_strips(int pointer)
long spotfit_most_maxima(int pointer)
long spotfit_find_maxima(int pointer long long pointer pointer long pointer)
void spotfit_order_maxima(int pointer long pointer long pointer)
long spotfit_merge_plateaus(int pointer pointer long pointer pointer pointer long pointer)
void spotfit_join_bands(int pointer pointer long pointer pointer int)
long spotfit_choose_spots(int pointer pointer long)
void spotfit_sort_spots(int pointer)
void spotfit_find_crowded(int pointer long long pointer)
void spotfit_mark_own_pixels(int pointer pointer long float float pointer)
void spotfit_cut_out(int pointer int long long int pointer long int int pointer)
void spotfit_place_spots(pointer)
void spotfit_place_rois(pointer)
long spotfit_part_rois(int pointer pointer)
void spotfit_put_rows(pointer int pointer long)
long spotfit_fit_places(int pointer)
int spotfit_cut_places(int pointer)
long spotfit_prepare_cut_places(int pointer)
void spotfit_put_cut_places(int pointer long)
long spotfit_robust_mean(pointer)
void spotfit_expect_fiducials(pointer)
void spotfit_judge_fiducials(pointer)
long spotfit_move_fiducials(pointer)
void spotfit_learn_fiducials(pointer int double)
void spotfit_judge(int pointer pointer long long pointer)
void spotfit_judge_in_image(int pointer pointer pointer long long)
void spotfit_correct_errors(int pointer pointer long)
void spotfit_mean_widths(int pointer long pointer)
void spotfit_find_flat_areas(int pointer int long long pointer long long int int pointer pointer)
long spotfit_noise_bytes(int pointer)
long spotfit_noise_block_count(int pointer long)
void spotfit_measure_noise_blocks(int pointer long long pointer pointer)
long spotfit_sample_size(int pointer)
void spotfit_sample_ratios(int pointer long long pointer pointer)
double spotfit_deviation(int pointer long)
void spotfit_find_lone_pixels(int pointer pointer long long int int pointer pointer)
int spotfit_send(pointer pointer pointer)
int spotfit_feed(pointer pointer pointer int pointer)
int spotfit_carry_out(pointer pointer pointer pointer int)
void spotfit_touch(pointer long)
"""
