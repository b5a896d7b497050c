"""Padding is excluded from fits: which pixels it is, and the effect on fits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from detection_on_host import HOST
from excluding import excluded, excluded_on_device
from scenes import DTYPES, light
from scipy import ndimage

from napari_spotfit import Flag, StopCondition, fit_at, localize
from napari_spotfit.engine.cpu.block_fits import rule_for
from napari_spotfit.engine.cpu.layouts import FLAT_GROUND, NO_NUMBERS
from napari_spotfit.engine.cuda import roi_kernels as there

SHAPE, EDGE = (60, 70), 30
SIGMA = 1.3


def is_area(roi):
    """Whether the lowest pixels of a ROI are an area, one by one."""
    ground = roi == np.nanmin(roi)
    count = int(ground.sum())
    if count < 5 or 4 * count > 3 * ground.size:
        return False
    sides = np.count_nonzero(ground[1:] != ground[:-1])
    sides += np.count_nonzero(ground[:, 1:] != ground[:, :-1])
    return 2 * sides <= 3 * count and 2 * sides <= 3 * sum(ground.shape)


def is_far_below(roi):
    """Whether half of the others are no farther above the lowest of them than times its gap."""
    pixels = np.sort(roi[roi > np.nanmin(roi)].astype(float))
    if not len(pixels):
        return False
    gap = pixels[0] - float(np.nanmin(roi))
    if roi.dtype.kind in "iu" and gap < 4:
        return False
    with np.errstate(invalid="ignore"):
        return 2 * np.count_nonzero((pixels - pixels[0]) / 2 < gap) >= len(pixels)


def no_data(roi):
    """Return which pixels of a ROI are no data."""
    ground = roi == np.nanmin(roi)
    if not is_area(roi):
        return np.zeros(roi.shape, bool)
    others = np.unique(roi[~ground & ~np.isnan(roi)])
    if len(others) < 2:
        return np.zeros(roi.shape, bool)
    gap = others[0] - np.nanmin(roi)
    middle = np.median(roi[~ground & ~np.isnan(roi)])
    return ground & (gap > (middle - others[0]) / 2) & (gap >= 4 * np.diff(others).min())


def padded(rng, dtype):
    """Return frames that are padded in several ways, one or two counts of noise in some."""
    frames = rng.poisson(90, (8, 50, 60)).astype(float)
    frames[1, :, :20] = 0
    frames[2, 30:] = 7
    yy, xx = np.mgrid[:50, :60]
    frames[3, (yy - 25) ** 2 + (xx - 30) ** 2 > 20**2] = 0
    frames[4] = rng.poisson(1.0, frames[4].shape)
    frames[5, yy > xx] = 0
    frames[6, 20:25, 30] = 0
    frames[7] = rng.integers(0, 4, frames[7].shape)
    frames = frames.astype(dtype)
    if frames.dtype.kind == "f":
        frames[1, :, 18:22] = np.nan
        frames[0, :20, :20] = np.nan
        frames[2, 10:20, 10:20] = np.inf
        frames[3, 20:24, 28:32] = -np.inf
    return frames


@cache
def in_a_loop(dtype, roi_shape):
    """Return frames, ROIs, areas and which pixels are no data, for all instruction sets."""
    rng = np.random.default_rng([*roi_shape, np.dtype(dtype).itemsize])
    frames = padded(rng, dtype)
    corners = np.column_stack(
        [
            np.sort(rng.integers(-1, 8, 600)),
            *(rng.integers(0, n - m + 1, 600) for n, m in zip((50, 60), roi_shape, strict=True)),
        ]
    )
    areas, expected = np.zeros(600, bool), np.zeros((600, *roi_shape), bool)
    for number, (frame, y, x) in enumerate(corners):
        roi = frames[frame, y : y + roi_shape[0], x : x + roi_shape[1]]
        if frame < 0:
            continue
        expected[number] = ~np.isfinite(roi)
        if np.isnan(roi).all():
            continue
        areas[number] = is_area(roi) and is_far_below(roi)
        expected[number] |= no_data(roi.astype(float))
    return frames, corners, areas, expected


@pytest.mark.parametrize("roi_shape", [(9, 9), (5, 13), (7, 6), (4, 4), (32, 32)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_they_are_those_of_a_loop(instruction_set, dtype, roi_shape):
    frames, corners, areas, expected = in_a_loop(dtype, roi_shape)
    rule = rule_for(frames.dtype)
    suspect = there.find_flat_areas(HOST, HOST.commands(), frames, corners, roi_shape, rule)
    np.testing.assert_array_equal((suspect & FLAT_GROUND) != 0, areas)
    is_none = [
        frame >= 0
        and not np.isfinite(frames[frame, y : y + roi_shape[0], x : x + roi_shape[1]]).all()
        for frame, y, x in corners
    ]
    np.testing.assert_array_equal((suspect & NO_NUMBERS) != 0, is_none)
    assert expected.any()
    for look in (excluded, excluded_on_device):
        np.testing.assert_array_equal(look(frames, corners, roi_shape).padding, expected)


def test_none_is_looked_for_in_large_rois():
    """As in a laser beam's image, on the CPU and on a GPU alike."""
    frames = padded(np.random.default_rng(1), np.uint16)
    corners = np.array([[1, 0, 0], [5, 3, 4], [-1, 0, 0]])
    for look in (excluded, excluded_on_device):
        assert not look(frames, corners, (33, 40)).padding.any()
    # What is far below all others is looked for in small ones.
    assert excluded(frames, corners, (32, 32)).padding[0].any()


def beside_zeros(rng, photons, background, distance, count=30):
    """Return frames with a spot so far from an area of zeros, the area, and the spots' places."""
    mask = np.zeros(SHAPE, bool)
    mask[:, :EDGE] = True
    places = np.column_stack(
        [
            np.arange(count),
            30 + rng.uniform(-0.5, 0.5, count),
            EDGE - 0.5 + distance + rng.uniform(-0.2, 0.2, count),
        ]
    )
    lights = np.stack([light(place[None, 1:], photons, SIGMA, SHAPE) for place in places])
    frames = rng.poisson(lights + background)
    frames[:, mask] = 0
    return frames.astype(np.uint16), mask, places


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("distance", [1, 2, 3, 4])
@pytest.mark.parametrize(("photons", "background"), [(5000, 100), (1000, 40), (5000, 1000)])
def test_fits_beside_zeros_are_those_with_bad_pixels(photons, background, distance, estimator):
    frames, mask, places = beside_zeros(
        np.random.default_rng(distance), photons, background, distance
    )
    known = {"sigma": SIGMA, "estimator": estimator, "gain": 1.0, "offset": 0.0, "variance": 0.0}
    fits = fit_at(frames, places, 9, **known)
    named = fit_at(frames, places, 9, bad_pixels=mask, **known)
    for name in ("y", "x", "sigma", "photons", "x_stderr", "chi_square"):
        np.testing.assert_allclose(fits.columns[name], named.columns[name], rtol=2e-4, atol=2e-4)
    assert fits.good.mean() > 0.9
    np.testing.assert_allclose(np.median(fits.photons), photons, rtol=0.06)
    error = (fits.x - places[:, 2]) / fits.x_stderr
    assert abs(np.mean(error)) < 0.7
    assert np.std(error) < 1.6
    # Where it is among the nine pixels around the centre, the flag says so.
    near = (fits.flags & Flag.BAD_PIXELS) != 0
    np.testing.assert_array_equal(near, np.rint(fits.x) - 1 < EDGE)


def test_spots_of_masked_cells_are_right():
    """Outside of a cell all is 0: most ROIs have some of that."""
    rng = np.random.default_rng(5)
    yy, xx = np.mgrid[:120, :120]
    frames, places = [], []
    for number in range(6):
        angle = rng.uniform(0, 2 * np.pi, 14)
        radius = rng.uniform(20, 46, 14)
        own = np.column_stack([60 + radius * np.sin(angle), 60 + radius * np.cos(angle)])
        lights = sum(light(place[None], 3000, SIGMA, (120, 120)) for place in own)
        frame = rng.poisson(lights + 100)
        frame[(yy - 60) ** 2 + (xx - 60) ** 2 > 48**2] = 0
        frames.append(frame)
        places.append(np.column_stack([np.full(14, number), own]))
    places = np.concatenate(places)
    fits = localize(np.stack(frames).astype(np.uint16), sigma=SIGMA, gain=1.0, offset=0.0)
    there = fits.points()[:, np.newaxis] - places
    distance = np.hypot(there[..., 1], there[..., 2]) + 100 * abs(there[..., 0])
    good = fits.good
    assert (distance[good].min(axis=1) < 1).all()  # none along the edge
    # Those without another one near.
    apart = places[:, np.newaxis] - places
    alone = (np.hypot(apart[..., 1], apart[..., 2]) + 100 * abs(apart[..., 0]) < 10).sum(1) == 1
    nearest = distance[good].min(axis=0)[alone]
    assert np.quantile(nearest, 0.9) < 0.2
    which = distance[good].argmin(axis=0)[alone][nearest < 1]
    light_there = fits.photons[good][which]
    np.testing.assert_allclose(np.median(light_there), 3000, rtol=0.03)
    assert np.quantile(abs(light_there / 3000 - 1), 0.9) < 0.15


@pytest.mark.parametrize("distance", [0.5, 1, 2])
def test_spots_in_the_corner_of_a_mask_are_right(distance):
    """Up to three quarters of the ROI are no data."""
    rng = np.random.default_rng(6)
    places = np.column_stack(
        [np.arange(30), *(EDGE - 0.5 + distance + rng.uniform(-0.2, 0.2, (2, 30)))]
    )
    lights = np.stack([light(place[None, 1:], 5000, SIGMA, SHAPE) for place in places])
    frames = rng.poisson(lights + 100)
    frames[:, :EDGE] = frames[:, :, :EDGE] = 0
    fits = fit_at(frames.astype(np.uint16), places, 9, sigma=SIGMA)
    assert fits.good.mean() > 0.9
    np.testing.assert_allclose(np.median(fits.photons), 5000, rtol=0.08)
    assert abs(np.median(fits.x - places[:, 2])) < 0.1


def test_what_is_above_a_threshold_is_fitted_alone():
    rng = np.random.default_rng(7)
    places = np.mgrid[10:190:15, 10:190:15].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (144, 2))
    frame = rng.poisson(light(places, 3000, SIGMA, (200, 200)) + 100).astype(float)
    bright = ndimage.gaussian_filter(frame, 1) > 109
    frame = np.where(bright, frame, 0).astype(np.uint16)
    fits = fit_at(frame, places, 9, sigma=SIGMA)
    assert fits.good.mean() > 0.9
    # With zeros for data, 3.9 times the light.
    np.testing.assert_allclose(np.median(fits.photons[fits.good]), 3000, rtol=0.1)


SPARSE = {
    "few photons": lambda rng, lights: rng.poisson(lights + 0.5),
    "one photon": lambda rng, lights: rng.poisson(lights + 1.0),
    "steps of the gain": lambda rng, lights: 7 * rng.poisson(lights / 10 + 0.7),
    "spikes": lambda rng, lights: np.where(
        rng.poisson(lights / 50 + 0.7) > 0, rng.normal(100, 25, lights.shape).clip(40), 0
    ),
    "blurred": lambda rng, lights: np.rint(
        ndimage.gaussian_filter(rng.poisson(lights + 0.6).astype(float), (0, 1, 1))
    ),
    "cut off at the background": lambda rng, lights: (rng.poisson(lights + 60) - 60).clip(0),
    "smoothed and cut off": lambda rng, lights: (
        ndimage.gaussian_filter(rng.poisson(lights + 60).astype(float), (0, 1, 1)) - 60
    ).clip(0),
    "uneven": lambda rng, lights: rng.poisson(
        lights + np.where(np.arange(120) < 60, 20, 100)[:, np.newaxis]
    ),
}


@pytest.mark.parametrize("name", SPARSE)
def test_data_stay_data(name):
    rng = np.random.default_rng(9)
    own = np.column_stack([rng.uniform(5, 115, 120), rng.uniform(5, 115, 120)])
    lights = sum(light(place[None], 500, SIGMA, (120, 120)) for place in own)
    frames = SPARSE[name](rng, np.broadcast_to(lights, (10, 120, 120)))
    frames = frames.astype(np.float32 if name == "smoothed and cut off" else np.uint16)
    corners = np.column_stack(
        [np.sort(rng.integers(0, 10, 4000)), *rng.integers(0, 112, (2, 4000))]
    )
    padding = excluded(np.ascontiguousarray(frames), corners, (9, 9)).padding
    assert padding.any(axis=(1, 2)).sum() <= 4


def test_what_is_mostly_padding_is_fitted_as_it_is():
    """Where most of a ROI is of one value, that may be the background."""
    frame = np.zeros((1, 40, 40), np.uint16)
    frame[0] = np.rint(light(np.array([[20.0, 20.0]]), 5000, SIGMA, (40, 40)))
    fits = fit_at(frame, [[0, 20, 20]], 9, sigma=SIGMA)
    assert fits.stop_condition[0] != StopCondition.INVALID
    np.testing.assert_allclose(fits.photons, 5000, rtol=0.01)
