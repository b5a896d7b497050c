"""The library's functions at edges: frames of 0 to 8 pixels a side, ROIs and positions outside.

Ten thousand random calls. The sanitizers look at the memory, see tools/sanitize_library.sh; here,
ROIs that are in a frame have the fits of their pixels alone, and all others none.
"""

from __future__ import annotations

import ctypes
from collections import Counter

import numpy as np
import pytest
from cpu_fits import fit_rois

from napari_spotfit import Settings, StopCondition
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu.backend import Detector, detect
from napari_spotfit.engine.cpu.block_fits import CpuFitter
from napari_spotfit.engine.cpu.fit_kind import LargeFit
from napari_spotfit.engine.cpu.layouts import NEIGHBOUR_PIXEL, HostRois, LinkedSpots
from napari_spotfit.engine.cpu.library import INSTRUCTION_SET, load
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.kernel_arguments import PIXEL_TYPES, address, frame_sizes
from napari_spotfit.estimation.measured_noise import measure_noise
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.settings.noise_model import NoiseModel

CALLS = 10_000
TYPES = ("u1", "u2", "i2", "f4", "f8")
FAR = (-1, -8, 9, 2**31, -(2**31), 2**40, -(2**40), 2**62, -(2**62))
WILD = (np.nan, np.inf, -np.inf, 1e300, -1e300, -0.5, 7.5, 8.5)
NOISE = NoiseModel(slope=1.0, intercept=1.0, least=1.0)


def random_frames(rng, least=0, dtype=None):
    """Return a few frames of 0 to 8 pixels a side, with spots, flat areas, and NaN."""
    shape = (rng.integers(1, 4), *rng.integers(least, 9, 2))
    frames = rng.poisson(rng.choice([3, 40]), shape).astype(dtype or rng.choice(TYPES))
    if rng.random() < 0.3:
        frames[rng.random(shape) < 0.3] = frames.max(initial=0)
    if frames.dtype.kind == "f" and rng.random() < 0.3:
        frames[rng.random(shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf, 3e38])
    return np.ascontiguousarray(frames)


def random_corners(rng, frames, sides):
    """Return corners of ROIs, some outside the frames, and which ROIs are inside."""
    count = rng.integers(1, 40)
    room = np.array(frames.shape) - (1, *sides)
    inner = rng.integers(0, np.maximum(room, 0) + 1, (count, 3))
    corners = np.where(rng.random((count, 3)) < 0.2, rng.choice(FAR, (count, 3)), inner)
    corners[:, 0] = np.where(rng.random(count) < 0.2, -1, inner[:, 0])
    inside = ((corners >= 0) & (corners <= room)).all(axis=1)
    return np.ascontiguousarray(corners, np.int64), inside


def fits_at_corners(rng):
    frames = random_frames(rng)
    sides = tuple(rng.integers(4, 9, 2).tolist())
    corners, inside = random_corners(rng, frames, sides)
    estimator = str(rng.choice(["lse", "wlse", "mle"]))
    settings = Settings(
        model=str(rng.choice(["gaussian", "gaussian_rotated"])), estimator=estimator,
        max_iterations=3,
    )  # fmt: skip
    planes = None
    if estimator == "wlse" or rng.random() < 0.5:
        planes = Planes(rng.random((1, *frames.shape[1:]), np.float32))
    fits = fit_rois(frames, corners, sides, settings, planes=planes)
    assert (fits["stop_condition"][~inside] == StopCondition.INVALID).all()
    assert np.isnan(fits["y"][~inside]).all()
    if not inside.any():
        return

    def cut(values, shared):
        at = corners[inside] * (not shared, 1, 1)
        rois = [values[(f, *map(slice, yx, np.add(yx, sides)))] for f, *yx in at.tolist()]
        return np.ascontiguousarray(rois)

    alone = fit_rois(
        cut(frames, shared=False), None, sides, settings,
        planes=planes and Planes(cut(planes.values, shared=True)),
    )  # fmt: skip
    for name, values in alone.items():
        np.testing.assert_array_equal(fits[name][inside], values, name)


def large_fits(rng):
    frames = random_frames(rng)
    sides = tuple(rng.integers(33, 50, 2).tolist())
    corners, _ = random_corners(rng, frames, sides)
    fits = fit_rois(frames, corners, sides, Settings())
    assert (fits["stop_condition"] == StopCondition.INVALID).all()
    source = HostRois(
        address(frames), **frame_sizes(frames.shape[1:]), corners=address(corners),
        pixel_type=PIXEL_TYPES[frames.dtype.str[1:]],
    )  # fmt: skip
    fit = LargeFit(Settings(), sides, planes=False)
    level = load().functions.spotfit_large_level(ctypes.byref(source), 0, 0, *sides)
    assert np.isnan(level)
    fit.begin(None, level)
    assert not fit.request.task


def fits_at_places(rng):
    frames = random_frames(rng)
    sides = tuple(int(side) for side in rng.choice([5, 7, 9, 41], 2, p=[0.4, 0.3, 0.2, 0.1]))
    count = rng.integers(1, 20)
    places = rng.uniform(-0.5, np.array(frames.shape[1:]) - 0.5, (count, 2))
    if rng.random() < 0.3:
        places[rng.random((count, 2)) < 0.3] = rng.choice(WILD)
    frame = np.sort(rng.integers(0, len(frames), count))
    settings = Settings(
        model=str(rng.choice(["gaussian", "gaussian_elliptical"])), sigma=1.3, roi_size=9,
        neighbours=str(rng.choice(["exclude", "ignore"])), noise=NOISE, max_iterations=3,
    )  # fmt: skip
    detection = settings if frames.size and rng.random() < 0.7 else None
    job = FitJob(settings, sides, frames.dtype.str[1:], 1.3, detection)
    block, fitter = Block(frames, frames), CpuFitter(load(), job)
    if rng.random() < 0.3:
        block.bad = rng.random((1, *frames.shape[1:])) < 0.2
    there = ((places >= -0.5) & (places <= np.array(frames.shape[1:]) - 0.5)).all(axis=1)
    if there.all() or (frame == 0).all():
        fits = fitter.fit(block, Positions(places, frame if frame.any() else None))
        if (np.array(sides) > frames.shape[1:]).any():
            assert (fits["stop_condition"] == StopCondition.INVALID).all()
        assert (fits["stop_condition"][~there] == StopCondition.INVALID).all()
        assert len(fits["flags"]) == count
    if there.all():
        # No pixel of a non-existent frame is read.
        frame[-1] = rng.choice([len(frames), 2**40])
        fits = fitter.fit(block, Positions(places, frame))
        assert fits["stop_condition"][-1] == StopCondition.INVALID
        corners, inside = random_corners(rng, frames, sides)
        corners, inside = corners[:count], inside[:count]
        _, reasons = fitter.explain(block, Positions(places, frame), corners)
        assert set(np.unique(reasons[~inside])) <= {0, NEIGHBOUR_PIXEL}


def detections(rng):
    frames = random_frames(rng)
    settings = Settings(sigma=float(rng.choice([0.5, 1.3, 4.0])), noise=NOISE)
    map_of_variance = rng.random(frames.shape[1:], np.float32) if rng.random() < 0.3 else None
    mask = rng.random(frames.shape[1:]) < 0.5 if rng.random() < 0.3 else None
    found = detect(frames, settings, mask, map_of_variance)
    places = np.column_stack([found.frame, found.y, found.x])
    assert (places >= 0).all()
    assert (places < frames.shape).all()


def noise_of_frames(rng):
    frames = random_frames(rng, least=1)
    with np.errstate(all="ignore"):
        noise = measure_noise(frames, Settings(sigma=1.3, noise=None))
    assert not np.isnan(noise.slope)


def empty_frames(rng):
    """Functions of detection and noise return nothing for frames without pixels."""
    detector = Detector(np.zeros((2, 5, 5), rng.choice(TYPES)), Settings(sigma=1.3, noise=NOISE))
    detector.settings.height, detector.settings.width = [(0, 0), (0, 5), (5, 0)][rng.integers(3)]
    functions, index, source = load().functions, load().index, detector._source
    count, memory = ctypes.c_longlong(), np.empty(1 << 16, np.uint8)
    functions.spotfit_find_maxima(
        index, ctypes.byref(source), 0, 2, address(memory), address(memory), 9, ctypes.byref(count)
    )
    assert count.value == 0
    assert functions.spotfit_noise_block_count(index, source.settings, 1) == 0
    assert functions.spotfit_sample_size(index, source.settings) == 0
    work = np.empty(functions.spotfit_noise_bytes(index, source.settings), np.uint8)
    functions.spotfit_measure_noise_blocks(
        index, ctypes.byref(source), 1, 1, address(work), address(memory)
    )
    functions.spotfit_sample_ratios(index, ctypes.byref(source), 1, 1, address(work), 0)
    assert functions.spotfit_deviation(index, 0, 0) == 0


def links(rng):
    count, axes = rng.integers(1, 30), int(rng.integers(2, 4))
    places = rng.uniform(0, 8, (count, axes))
    if rng.random() < 0.5:
        places[rng.random((count, axes)) < 0.2] = rng.choice([*WILD, 1.7e308, -1.7e308, 5e-324])
    reach = np.full(axes, rng.choice([1e-300, 1.0, 1e300]))
    frame = np.sort(rng.integers(0, 3, count))
    heads, after, group = np.empty((3, count), np.int64)
    given = LinkedSpots(
        address(places), address(frame), address(reach), count, axes,
        address(heads), address(after), address(group),
    )  # fmt: skip
    load().functions.spotfit_link_spots(ctypes.byref(given), 0, count)
    own = np.arange(count)
    assert (group[group] == group).all()
    assert (group <= own).all()
    assert (frame[group] == frame).all()
    with np.errstate(all="ignore"):
        apart = (((places[:, None] - places) / reach) ** 2).sum(axis=2)
    linked = (apart <= 1) & (frame[:, None] == frame)
    np.testing.assert_array_equal((group[:, None] == group)[linked], True)
    alone = (linked.sum(axis=1) <= 1) | ~np.isfinite(places).all(axis=1)
    np.testing.assert_array_equal(group[alone], own[alone])


#: How many of the calls each has, in a thousand.
KINDS = {
    fits_at_corners: 350, fits_at_places: 250, large_fits: 50, detections: 150,
    noise_of_frames: 20, empty_frames: 30, links: 150,
}  # fmt: skip


@pytest.mark.parametrize("part", range(4))
def test_random_calls(part, monkeypatch):
    sets = load().instruction_sets
    monkeypatch.setenv(INSTRUCTION_SET, sets[part % len(sets)])
    rng = np.random.default_rng(part)
    kinds, weights = list(KINDS), np.array(list(KINDS.values()), float)
    done = Counter()
    for number in rng.choice(len(kinds), CALLS // 4, p=weights / weights.sum()):
        kinds[number](rng)
        done[kinds[number]] += 1
    assert set(done) == set(KINDS)
