"""Compute flags of arbitrary fits by the library."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from napari_spotfit.engine import threads
from napari_spotfit.engine.cpu.block_fits import rule_for
from napari_spotfit.engine.cpu.layouts import (
    FLAG_TOGETHER,
    FLAT_TOP,
    JOIN,
    BlockFits,
    DeviceLooks,
    PixelType,
)
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.kernel_arguments import address, shape_of_roi
from napari_spotfit.engine.verdicts import ImageVerdicts


class Origin(NamedTuple):
    """Initial positions of fits, and known settings of their image."""

    corners: np.ndarray
    places: np.ndarray
    shape: tuple[int, int]
    sigma: float | None
    bad: Any = None


def judge_in_image(columns, settings, origin, saturated=None, hot=None):
    """Convert columns of ROIs to those of an image, with all flags.

    Of each ROI, masks say which pixels were saturated, and which were hot.
    """
    count, roi_shape, library = len(columns["y"]), settings.roi_shape, load()
    verdicts = ImageVerdicts(columns, settings, roi_shape)
    columns["flags"][:] = 0
    corners = np.ascontiguousarray(origin.corners, np.int64)
    places = np.ascontiguousarray(origin.places, float)
    bad = None if origin.bad is None else np.ascontiguousarray(origin.bad)
    image = verdicts.image(corners, places, origin.shape, origin.sigma, bad)
    given = BlockFits(roi=shape_of_roi(roi_shape))
    given.source.corners, given.quality = address(corners), ctypes.addressof(verdicts.numbers)
    given.fits, given.image = (
        ctypes.cast(ctypes.c_char_p(packed), ctypes.c_void_p).value
        for packed in (verdicts.fits, image)
    )
    positions = np.array([columns["y"], columns["x"]])
    given.results.positions, given.results.length = address(positions), count
    if saturated is not None or hot is not None:
        # As of a device, which has found them.
        areas = np.full(count, 0 if saturated is None else FLAT_TOP, np.uint8)
        is_hot, place = np.full(count, hot is not None), np.arange(count)
        pixels = None if saturated is None else np.where(saturated, np.uint8(255), np.uint8(0))
        looks = DeviceLooks(*map(address, (areas, is_hot, place, pixels, hot)))
        given.device, given.taken_type = ctypes.addressof(looks), PixelType.UINT8
        given.areas, highest = rule_for(np.dtype(np.uint8)), np.full(1, 255.0)
        given.highest = address(highest)

    def work(first, last, steps=FLAG_TOGETHER):
        memory = np.empty(library.functions.spotfit_block_bytes(*call), np.uint8)
        library.functions.spotfit_fit_block(*call, first, last, address(memory), steps)

    call = library.index, ctypes.byref(given)
    work(0, count, JOIN)
    threads.in_pieces(work, count, 1 << 14, settings.threads)
