"""Flags by pixels in the middle of a spot: bad, or saturated."""

from __future__ import annotations

import numpy as np
import pytest
from excluding import excluded
from judging import Origin, judge_in_image
from scenes import light, movie_of, on_grid

from napari_spotfit import Flag, Settings, fit_at, fit_spots

SIGMA = 1.3


def has(fits, flag):
    return (fits.flags & flag) != 0


def pixel_flags(corners, places, saturated=None, hot=None):
    """Return the flags by pixels of fits that ended at the same y and x, in ROIs of 9×9."""
    columns = {name: places - corners[:, 1 + axis] for axis, name in enumerate("yx")}
    columns["stop_condition"] = np.full(len(places), 2, np.uint8)
    begun = np.column_stack([places, places])
    origin = Origin(corners, begun, (20, 20), SIGMA)
    judge_in_image(columns, Settings(roi_size=9), origin, saturated, hot)
    return columns["flags"] & np.uint32(Flag.SATURATED | Flag.BAD_PIXELS)


@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4", "u4"])
def test_saturated_spots_are_found_in_any_type(dtype):
    rng = np.random.default_rng(8)
    centres = [(12.0, 12.0), (12.0, 30.0), (30.0, 12.0)]
    image = movie_of(rng, centres, 1, (44, 44), photons=1000)[0].astype(float)
    image += light([(30.0, 30.0)], 60_000, SIGMA, (44, 44))
    full = {"u1": 255, "u2": 4095, "i2": 2**15 - 1, "f4": 0.81, "u4": 1000}[dtype]
    image = image * 0.001 if dtype == "f4" else image * (8 if dtype == "i2" else 1)
    image = np.minimum(image, full).astype(dtype)
    fits = fit_at(image, [*centres, (30.0, 30.0)], settings=Settings(sigma=SIGMA))
    np.testing.assert_array_equal(has(fits, Flag.SATURATED), [False] * 3 + [True])
    assert fits.good.tolist() == [True] * 3 + [False]


def test_a_single_full_pixel_takes_no_light_away():
    rng = np.random.default_rng(6)
    centres = on_grid(rng, (160, 160), 20)
    whole = movie_of(rng, centres, 6, (160, 160), photons=1700)
    places = [(frame, *centre) for frame in range(6) for centre in centres]
    known = Settings(sigma=SIGMA, gain=1.0, offset=100.0)
    true = fit_at(whole, places, settings=known)
    image = np.minimum(whole, 255).astype(np.uint8)
    fits = fit_at(image, places, settings=known)
    y, x = (np.rint(along).astype(int)[:, None] for along in (fits.y, fits.x))
    rows, columns = (axis.ravel() for axis in np.mgrid[-1:2, -1:2])
    full = (image[fits.frame[:, None], y + rows, x + columns] == 255).sum(axis=1)
    middle = image[fits.frame, y[:, 0], x[:, 0]] == 255
    assert (full[middle] == 1).sum() > 30
    assert (full[middle] > 1).sum() > 30
    np.testing.assert_array_equal(has(fits, Flag.SATURATED), middle & (full > 1))
    missing = (true.photons - fits.photons)[full == 1] / true.photons_stderr[full == 1]
    assert abs(np.median(missing)) < 0.3
    assert np.mean(abs(missing) > 1) < 0.05


@pytest.mark.parametrize("height", [150, 1000, 20_000])
@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0])
def test_one_clipped_pixel_takes_less_than_an_error_of_the_light(sigma, height):
    rng = np.random.default_rng(1)
    peaks = height * rng.uniform(0.8, 2.5, 3000)
    centres = rng.uniform(5.5, 6.5, (3000, 2))
    photons = peaks * 2 * np.pi * sigma**2
    spots = [
        light([centre], n, sigma, (13, 13)) for centre, n in zip(centres, photons, strict=True)
    ]
    whole = rng.poisson(np.array(spots) + 100)
    clipped = np.minimum(whole, height + 100)
    full = (clipped[:, 5:8, 5:8] == height + 100).sum(axis=(1, 2))
    true, fits = (fit_spots(these.astype(np.int32), gain=1.0) for these in (whole, clipped))
    missing = (true.photons - fits.photons) / true.photons_stderr
    assert (full == 1).sum() > 60
    assert abs(np.median(missing[full == 1])) < 1
    if sigma < 2 and height > 1000:
        assert np.median(missing[full == 4]) > 5


@pytest.mark.parametrize("level", [3, 300])
def test_few_counts_make_no_plateau(level):
    image = np.zeros((20, 20), np.uint16)
    image[9:12, 9:12] = level
    corner = np.array([[0, 6, 6]])
    full = excluded(image[None], corner, (9, 9)).saturated
    flags = pixel_flags(corner, np.array([10.0]), full)
    assert flags[0] == (Flag.SATURATED if level == 300 else 0)


def test_a_plateau_counts_where_the_fit_ends():
    places = np.array([4.0, 4.0, 6.0, np.nan])
    corners = np.array([[0, 0, 0], [0, 10, 10], [0, 0, 0], [0, 0, 0]])
    pixels = np.zeros((4, 9, 9), bool)
    pixels[0, 4, 4:6] = pixels[1, 0, :2] = pixels[2, 4, 4:6] = pixels[3, 4, 4:6] = True
    flags = pixel_flags(corners, places, pixels)
    # The second ends beyond its ROI's first pixel, the third two pixels away from them.
    assert flags.tolist() == [Flag.SATURATED, Flag.SATURATED, 0, 0]
    flags = pixel_flags(corners, places - 0.6, hot=pixels)
    assert flags.tolist() == [Flag.BAD_PIXELS, Flag.BAD_PIXELS, Flag.BAD_PIXELS, 0]


@pytest.mark.parametrize("shared", [True, False])
def test_bad_pixels_in_the_middle_are_named(shared):
    rng = np.random.default_rng(9)
    movie = movie_of(rng, [(12.0, 12.0), (12.0, 30.0)], 2, (24, 44), photons=5000)
    bad = np.zeros(movie.shape[1:], bool)
    bad[12, 13] = bad[9, 30] = True
    given = bad if shared else np.stack([bad, np.zeros_like(bad)])
    places = [(frame, 12, x) for frame in (0, 1) for x in (12, 30)]
    fits = fit_at(movie, places, bad_pixels=given, settings=Settings(sigma=SIGMA))
    np.testing.assert_array_equal(has(fits, Flag.BAD_PIXELS), [True, False, shared, False])
    assert fits.good.all()
