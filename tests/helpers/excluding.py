"""Excluded pixels of ROIs by the library, for frames on the host or a GPU."""

from __future__ import annotations

from typing import NamedTuple

import cpu_fits
import detection_on_host
import numpy as np
import pytest

from napari_spotfit import Camera, Settings
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cpu.block_fits import CpuFitter
from napari_spotfit.engine.cpu.layouts import HOT_PIXEL, PADDING_PIXEL, SATURATED_PIXEL
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.cuda import block_fits
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.kernel_arguments import address
from napari_spotfit.images.pixel_calibration import PixelCalibration


class There(np.ndarray):
    """A host array that counts as one on a device."""


class Excluded(NamedTuple):
    """Masks of the pixels of each ROI, empty for ROIs outside."""

    saturated: np.ndarray
    padding: np.ndarray
    hot: np.ndarray

    @property
    def pixels(self):
        return self.saturated | self.padding | self.hot


def excluded(frames, corners, roi_shape, detection=None, **known):
    """Return the pixels excluded from fits of ROIs at corners."""
    return _by(CpuFitter, frames, corners, roi_shape, detection, known)


def excluded_on_device(frames, corners, roi_shape, detection=None, **known):
    """Return the same from GPU and library together; frames may be on the host."""
    if not isinstance(frames, np.ndarray):
        return _by(_Looking, frames, corners, roi_shape, detection, known)
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        return _by(_Looking, frames.view(There), corners, roi_shape, detection, known)


def install(patch):
    """Make the host act as a device."""
    patch.setattr(block_fits, "current_device", lambda: detection_on_host.HOST)
    patch.setattr(block_fits, "is_on_device", lambda array: isinstance(array, There))
    patch.setattr(block_fits, "like", lambda array, other: array)


def fit_on_device(patch, job, block, positions, fit=cpu_fits.fit_rois):
    """Fit as on a GPU, by the library's fits or others; return columns and calls of these."""
    install(patch)
    calls = []

    def fit_rois(*given, on_device=False, commands=None, **known):
        calls.append((len(given[0]) if given[1] is None else len(given[1]), on_device))
        return fit(*given, **known)

    patch.setattr(block_fits.fit, "fit_rois", fit_rois)
    there = block.pixels.view(There)
    taken = there if block.taken is block.pixels else block.taken
    own = Block(
        there, taken, block.planes, block.variances, block.bad,
        highest=block.highest, level=block.level,
    )  # fmt: skip
    return block_fits.DeviceFits(load(), job).fit(own, positions), calls


def known_of(rng, shape, estimator):
    """Return what may be known of pixels: some are bad, and weights or a camera's maps."""
    bad = rng.random(shape) < 0.02
    if estimator == "wlse":
        return {"weights": rng.uniform(0.5, 2, shape), "bad_pixels": bad}
    offset, gain = rng.normal(100, 3, shape), rng.uniform(0.9, 1.1, shape)
    return {"camera": Camera(offset, gain, rng.uniform(1, 9, shape)), "bad_pixels": bad}


def fits_of_both(patch, movie, centres, settings, known, cut_out_pixels):
    """Fit positions on the host and as on a GPU: the columns are the same.

    Settings without what is known of pixels are those of the fits.

    Returns
    -------
    tuple
        The columns, and the calls of the device's fits.
    """
    calibration = PixelCalibration(movie.shape[1:], settings, **known)
    job = FitJob.of(calibration, movie.dtype, None if known else settings)
    block = Block.of(calibration, np.arange(len(movie)), movie)
    frame = np.repeat(np.arange(len(movie)), len(centres))
    positions = Positions(np.tile(centres, (len(movie), 1)), frame)
    fits = Cpu(2).fit(job, block, positions)
    patch.setattr(block_fits, "_CUT_OUT_PIXELS", cut_out_pixels)
    there, calls = fit_on_device(patch, job, block, positions)
    assert list(there) == list(fits)
    for name, column in fits.items():
        np.testing.assert_array_equal(there[name], column, name)
    assert len(calls) > 2
    return fits, calls


class _Looking(block_fits.DeviceFits):
    """Finds the pixels to exclude, before they are explained."""

    def _look_at(self, corners):
        self._corners[:], self._given.taken = corners, 0
        self._device = block_fits.current_device()
        self._look(0, self._count)


def _by(fitter, frames, corners, roi_shape, detection, known):
    corners = np.asarray(corners)
    settings = Settings(neighbours="ignore", threads=1)
    job = FitJob(settings, roi_shape, frames.dtype.str[1:], None, detection)
    inside = corners[:, 0] >= 0
    found = np.zeros((len(corners), *roi_shape), np.uint8)
    if inside.any():
        own = np.ascontiguousarray(corners[inside])
        positions = Positions(own[:, 1:] + np.array(roi_shape) // 2.0, own[:, 0])
        made = fitter(load(), job)
        block = Block(frames, frames, **known)
        if fitter is _Looking:
            explain = made._library.functions.spotfit_explain
            made.explain(block, positions, own[:0])
            made._look_at(own)
            memory, reasons = np.empty(made._work_bytes, np.uint8), found[inside]
            for i, one in enumerate(reasons):
                explain(made._library.index, made._by_reference, i, address(one), address(memory))
        else:
            reasons = made.explain(block, positions, own)[1]
        found[inside] = reasons
    return Excluded(
        *((found & reason) != 0 for reason in (SATURATED_PIXEL, PADDING_PIXEL, HOT_PIXEL))
    )


def listed(frames, centres, frame, roi_shape, estimator="lse"):
    """Return which ROIs have excluded pixels, and the maps of their fits."""
    settings = Settings(estimator=estimator, threads=1)
    job = FitJob(settings, roi_shape, frames.dtype.str[1:])
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        made = block_fits.DeviceFits(load(), job)
        block, none = Block(frames.view(There), frames.view(There)), np.empty((0, 3), np.int64)
        made.explain(block, Positions(centres, frame), none)
        made._given.taken = 0
        made._step(0, len(centres), block_fits.EXCLUDE)
        rows = slice(len(centres) - made._given.cut_count, len(centres))
        return made._rois[rows].copy(), made._marked(rows)
