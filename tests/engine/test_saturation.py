"""Saturated pixels are excluded from fits: which they are, and the effect on fits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from detection_on_host import HOST
from excluding import excluded, excluded_on_device
from scenes import DTYPES, light
from scipy import ndimage

from napari_spotfit import Camera, Flag, StopCondition, fit_at, localize
from napari_spotfit.engine.cpu import layouts
from napari_spotfit.engine.cpu.block_fits import LEAST_COUNT, PLATEAU
from napari_spotfit.engine.cuda import roi_kernels as there

SHAPE = (60, 70)
CENTRES = np.array([(14.2, 15.3), (15.8, 47.4), (42.7, 20.1), (44.0, 52.6)])
#: The last spot is so bright that it is cut off.
#: From this count on any plateau counts: below, the top of a spot may be flat as it is rounded.
MANY_COUNTS = 255
PHOTONS = np.array([3000, 4000, 5000, 80_000])


def scene(rng, frames=1, level=4095):
    """Return frames of a 12-bit camera whose last spot is cut off."""
    lights = sum(
        light(centre[None], photons, 1.3, SHAPE)
        for centre, photons in zip(CENTRES, PHOTONS, strict=True)
    )
    return np.minimum(rng.poisson(lights + 30, (frames, *SHAPE)) + 100, level)


def by_hand(frames, corner, roi_shape):
    """Return the saturated pixels of a ROI."""
    window = tuple(slice(n, n + m) for n, m in zip(corner[1:], roi_shape, strict=True))
    frame, roi = frames[corner[0]], frames[corner[0]][window]
    whole = frame.dtype.kind in "iu"
    lost = roi == np.iinfo(frame.dtype).max if whole else np.zeros(roi.shape, bool)
    top = roi == np.nanmax(frame)
    highest, known = np.nanmax(frame), roi[np.isfinite(roi)]
    steep = highest >= LEAST_COUNT and 2 * (roi == highest - 1).sum() <= top.sum()
    if not (highest >= MANY_COUNTS or steep or (known % 1 != 0).any()):
        return lost
    around = ndimage.convolve(top.astype(int), np.ones((3, 3), int), mode="constant")
    return lost | top if around.max() >= PLATEAU else lost


@cache
def in_a_loop(dtype, roi_shape):
    """Return frames, ROIs, and which pixels of these are saturated, for all instruction sets."""
    rng = np.random.default_rng([*roi_shape, np.dtype(dtype).itemsize])
    frames = rng.integers(0, 200, (6, 50, 60)).astype(dtype)
    top = 255 if dtype == np.uint8 else 4095
    frames[1, 20:23, 30:32] = top  # a ROI may have any part of it
    frames[2, 5, 5:8] = top  # too few for a plateau
    frames[3, 10:13, 10:13] = 220  # not the highest
    frames[3, 40, 40] = 230
    frames[4, 30, 30] = np.iinfo(dtype).max if frames.dtype.kind in "iu" else np.nan
    if frames.dtype.kind == "f":
        frames[5] = 0.5
    corners = np.column_stack(
        [
            np.sort(rng.integers(-1, 6, 500)),
            *(rng.integers(0, n - m + 1, 500) for n, m in zip((50, 60), roi_shape, strict=True)),
        ]
    )
    none = np.zeros(roi_shape, bool)
    expected = [none if corner[0] < 0 else by_hand(frames, corner, roi_shape) for corner in corners]
    return frames, corners, expected


@pytest.mark.parametrize("roi_shape", [(9, 9), (5, 13), (7, 6), (33, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_they_are_those_of_a_loop(instruction_set, dtype, roi_shape):
    frames, corners, expected = in_a_loop(dtype, roi_shape)
    assert np.any(expected)
    for look in (excluded, excluded_on_device):
        np.testing.assert_array_equal(look(frames, corners, roi_shape).saturated, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("roi_shape", [(9, 9), (5, 14)])
def test_a_gpu_suspects_only_rois_with_flat_tops(dtype, roi_shape):
    rng = np.random.default_rng([8, *roi_shape])
    frames = rng.integers(240, 262, (4, 40, 50)).astype(dtype)
    if frames.dtype.kind == "f":
        frames[rng.random(frames.shape) < 0.3] = np.nan
        frames[3] = np.nan
    corners = np.column_stack(
        [rng.integers(low, high, 300) for low, high in ((-1, 4), (0, 31), (0, 36))]
    )
    for top in (256, 258, 300):
        rule = layouts.FlatAreaRule(top, 250.0, 0.0, 0.5, PLATEAU)
        areas = there.find_flat_areas(HOST, HOST.commands(), frames, corners, roi_shape, rule)
        found = (areas & layouts.FLAT_TOP) != 0
        expected = np.zeros(300, bool)
        for n, (frame, y, x) in enumerate(corners):
            roi = frames[frame, y : y + roi_shape[0], x : x + roi_shape[1]]
            if frame >= 0 and not np.isnan(roi).all():
                highest = np.nanmax(roi)
                expected[n] = highest >= top
                expected[n] |= highest >= 250 and (roi == highest).sum() >= PLATEAU
        np.testing.assert_array_equal(found, expected)
    assert not found.all()


def test_none_is_none():
    frames = np.random.default_rng(1).poisson(500, (2, 40, 40)).astype(np.uint16)
    corners = np.array([[0, 3, 3], [1, 20, 20]])
    assert not excluded(frames, corners, (9, 9)).pixels.any()


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("neighbours", ["exclude", "ignore"])
def test_a_fit_without_them_finds_the_light_that_was_cut_off(estimator, neighbours):
    frames = scene(np.random.default_rng(2), 20)
    known = {"sigma": 1.3, "estimator": estimator, "gain": 1.0, "offset": 100.0, "variance": 0.0}
    fits = localize(frames.astype(np.uint16), neighbours=neighbours, **known)
    assert len(fits) == 80
    cut_off = np.hypot(fits.y - CENTRES[3, 0], fits.x - CENTRES[3, 1]) < 1
    assert cut_off.sum() == 20
    assert ((fits.flags[cut_off] & Flag.SATURATED) != 0).all()
    np.testing.assert_allclose(fits.sigma[cut_off].mean(), 1.3, atol=0.06)
    np.testing.assert_allclose(fits.photons[cut_off].mean(), 80_000, rtol=0.04)


@pytest.mark.parametrize("more", [{}, {"estimator": "mle", "gain": 1.0, "offset": 100.0}])
def test_fits_at_places_are_those_with_bad_pixels(more):
    frames = scene(np.random.default_rng(3), 3)
    places = np.array([(n, *centre) for n in range(3) for centre in CENTRES])
    known = {"sigma": 1.3, "roi_size": 9, **more}
    noise = localize(frames.astype(np.uint16), **known).settings.noise
    known["noise"] = noise
    fits = fit_at(frames.astype(np.uint16), places, **known)
    # Nothing is the highest any more, as one pixel is higher.
    higher = frames.astype(np.uint16)
    higher[:, 0, 0] = 5000
    named = fit_at(higher, places, bad_pixels=frames >= 4095, **known)
    plain = fit_at(higher, places, **known)
    for name in ("y", "x", "sigma", "photons", "sigma_stderr", "chi_square"):
        np.testing.assert_allclose(fits.columns[name], named.columns[name], rtol=1e-5)
        rows = places[:, 1] != CENTRES[3, 0]
        np.testing.assert_array_equal(fits.columns[name][rows], plain.columns[name][rows])
    assert (abs(plain.sigma[3::4] - 1.3) > 2 * abs(fits.sigma[3::4] - 1.3)).all()


def test_they_are_those_that_the_camera_took():
    frames = scene(np.random.default_rng(4), 2)
    offset = np.random.default_rng(5).normal(100, 3, SHAPE)
    fits = localize(frames.astype(np.uint16), sigma=1.3, camera=Camera(offset=offset, gain=1.0))
    cut_off = (fits.flags & Flag.SATURATED) != 0
    assert cut_off.sum() == 2
    np.testing.assert_allclose(fits.sigma[cut_off], 1.3, atol=0.1)


def test_what_is_all_saturated_is_invalid():
    frame = np.full((1, 40, 40), 100, np.uint16) + np.random.default_rng(0).poisson(
        9, (1, 40, 40)
    ).astype(np.uint16)
    frame[0, 8:30, 8:30] = 65535
    fits = fit_at(frame, [[0, 19, 19]], 9, sigma=1.3)
    assert fits.stop_condition[0] == StopCondition.INVALID


def crowded(rng, shape=(256, 256)):
    """Return a 12-bit frame of spots that are cut off at half their height and more."""
    grid = np.mgrid[20:240:24, 20:240:24].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (100, 2))
    lights = sum(light(one[None], rng.uniform(8e4, 3e5), 1.3, shape) for one in grid)
    return np.minimum(rng.poisson(lights + 20), 4095)


@pytest.mark.parametrize(
    "scaled",
    [
        lambda frame: frame.astype("u2"),
        lambda frame: (frame / 4095).astype("f4"),
        lambda frame: frame / 4095,
        lambda frame: (frame - frame.min()) / (4095 - frame.min()),
        lambda frame: (2 * (frame / 4095) - 1).astype("f4"),
        lambda frame: (frame / 4095 * 100).astype("f4"),
        lambda frame: (frame >> 4).astype("u1"),
        lambda frame: (frame >> 5).astype("u1"),
        lambda frame: (frame >> 5).astype("f4"),
        lambda frame: (frame >> 6).astype("u1"),
        lambda frame: ((frame >> 5) / 127).astype("f4"),
    ],
    ids=[
        "12 bits",
        "to 1",
        "double",
        "min to max",
        "-1 to 1",
        "%",
        "8",
        "7",
        "7 as f4",
        "6",
        "7/127",
    ],
)
@pytest.mark.filterwarnings("ignore:the image probably")  # of few counts little noise is left
def test_images_divided_by_their_maximum_are_saturated(scaled):
    fits = localize(scaled(crowded(np.random.default_rng(1))), sigma=1.3)
    saturated = (fits.flags & int(Flag.SATURATED)) != 0
    assert saturated.sum() >= 98
    assert not fits.good.any() or fits.good.mean() < 0.03


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0, 3.5])
def test_rounded_tops_are_not(sigma):
    """Spots without noise, rounded to few counts, have flat tops of their own."""
    rng = np.random.default_rng(2)
    grid = np.mgrid[25:240:32, 25:240:32].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (49, 2))
    lights = sum(light(one[None], 1.0, sigma, (256, 256)) for one in grid)
    for top in (40, 60, 100, 127, 200):
        frame = np.rint(lights / lights.max() * top).astype("u1")
        fits = fit_at(frame, grid, sigma=sigma)
        assert not (fits.flags & int(Flag.SATURATED)).any()
