"""Detection in volumes: truth, an independent filter, thin stacks, and what is no spot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import cKDTree

from napari_spotfit import NoiseModel, Settings
from napari_spotfit.engine.bands import (
    WIDTHS,
    half_kernel,
    make_volume_bands,
    whole_kernel,
)
from napari_spotfit.engine.cpu import backend as cpu
from napari_spotfit.engine.detection_settings import expected_false_spots, score_for

SIGMA, SIGMA_Z = 1.3, 1.6
SHAPE = (16, 60, 150)
SHOT = NoiseModel(1.0, 0.0, 1.0)
PLAIN = NoiseModel(0.0, 1.0, 1.0)


def known(noise=SHOT, **options):
    widths = {"sigma": SIGMA, "sigma_z": SIGMA_Z} | options
    return Settings(model="gaussian_3d", noise=noise, **widths)


def light_of(places, height=150.0, shape=SHAPE, sigma=SIGMA, sigma_z=SIGMA_Z):
    """Return the light of spots."""
    along = [
        np.exp(-0.5 * ((np.arange(size) - np.asarray(places)[:, [axis]]) / width) ** 2)
        for axis, (size, width) in enumerate(zip(shape, (sigma_z, sigma, sigma), strict=True))
    ]
    return height * np.einsum("nz,ny,nx->zyx", *along, optimize=True)


def on_grid(rng, shape=SHAPE):
    """Return places that are far from each other, in all planes, at the ends too."""
    y, x = np.meshgrid(np.arange(8, shape[1] - 7, 11), np.arange(8, shape[2] - 7, 11))
    places = np.column_stack([np.zeros(y.size), y.ravel(), x.ravel()]).astype(float)
    places[:, 1:] += rng.uniform(-1, 1, (len(places), 2))
    places[:, 0] = rng.uniform(0, shape[0] - 1, len(places))
    return places


def assert_found(found, places, reach=1.0):
    """Check that each place was found once, and nothing else."""
    scale = np.array([SIGMA / SIGMA_Z, 1.0, 1.0])
    distance, nearest = cKDTree(places * scale).query(found.places() * scale)
    assert distance.max() < reach
    assert sorted(nearest) == list(range(len(places)))


def same(a, b):
    for ours, theirs in zip(a, b, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# ---- What is found ----


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
def test_every_spot_is_found_and_nothing_else(detect, dtype):
    rng = np.random.default_rng(1)
    places = on_grid(rng)
    volumes = rng.poisson(20 + light_of(places), (2, *SHAPE)).astype(dtype)
    found = detect(volumes, known(false_spots=0.5))
    for number in (0, 1):
        assert_found(found.rows(found.frame == number), places)
    assert [column.dtype for column in found] == [*3 * [np.int64], *2 * [np.float32], np.int64]
    order = np.lexsort((found.x, found.y, found.z, found.frame))
    np.testing.assert_array_equal(order, np.arange(len(order)))


@pytest.mark.parametrize("sigma_z", [0.4, 0.8, 3.0, 9.0])
def test_spots_of_any_depth_are_found(detect, sigma_z):
    rng = np.random.default_rng(2)
    shape = (40, 40, 60)
    places = np.array([[12, 10, 12], [20, 28, 15], [9.6, 15, 40], [30.3, 30, 45]], float)
    volume = rng.poisson(20 + light_of(places, 300, shape, sigma_z=sigma_z))
    found = detect(volume[np.newaxis].astype(np.uint16), known(sigma_z=sigma_z, false_spots=0.1))
    assert len(found.z) == 4
    np.testing.assert_allclose(found.places()[np.argsort(found.x)][:, 1:], places[:, 1:], atol=0.5)
    assert (abs(found.z[np.argsort(found.x)] - places[:, 0]) <= 0.5 + 0.3 * sigma_z).all()


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_thin_stacks_show_their_spots_on_any_plane(detect, depth):
    rng = np.random.default_rng(depth)
    shape = (depth, 60, 150)
    places = on_grid(rng, shape)
    places[:, 0] = np.arange(len(places)) % depth
    volume = rng.poisson(20 + light_of(places, 200, shape))
    found = detect(volume[np.newaxis].astype(np.uint16), known(false_spots=0.5))
    # Of planes that show the same light, noise says which is the brightest.
    flat = found._replace(z=np.zeros(len(found.z)))
    assert_found(flat, places * [0, 1, 1])
    nearest = cKDTree(places[:, 1:]).query(found.places()[:, 1:])[1]
    away = abs(found.z - places[nearest, 0])
    assert away.mean() < 0.35
    assert away.max() <= 2


def test_a_single_plane_is_filtered_as_a_frame(detect):
    rng = np.random.default_rng(5)
    places = on_grid(rng, (1, 60, 150))
    plane = rng.poisson(20 + light_of(places, 300, (1, 60, 150))).astype(np.uint16)
    volume = detect(plane[np.newaxis], known(false_spots=0.01))
    frame = detect(plane, Settings(sigma=SIGMA, noise=SHOT, false_spots=0.01))
    np.testing.assert_array_equal(volume.places()[:, 1:], frame.places())
    np.testing.assert_allclose(volume.height, frame.height, rtol=1e-5)
    np.testing.assert_allclose(volume.score, frame.score, rtol=1e-4)


@pytest.mark.parametrize("depth", [2, 3, 16])
def test_heights_are_those_of_an_independent_filter(detect, depth):
    rng = np.random.default_rng(6)
    shape = (depth, 60, 150)
    places = on_grid(rng, shape)
    volume = rng.normal(50 + light_of(places, 20, shape), 1).astype(np.float32)
    found = detect(volume[np.newaxis], known(PLAIN))
    smooth = []
    for width in WIDTHS[1:]:
        values = volume.astype(float)
        for axis, sigma in enumerate((SIGMA_Z, SIGMA, SIGMA)):
            kernel = whole_kernel(half_kernel(width * sigma))
            values = (
                ndimage.convolve1d(values, kernel, axis, mode="mirror") if depth > 1 else values
            )
        smooth.append(values)
    band = smooth[0] - smooth[1]
    np.testing.assert_allclose(found.height, band[found.z, found.y, found.x], rtol=1e-3, atol=1e-4)
    assert len(found.z) >= 0.95 * len(places)


def test_noise_of_each_plane_is_what_the_bands_say():
    rng = np.random.default_rng(7)
    for depth in (1, 2, 3, 12):
        noise = rng.normal(size=(depth, 400, 400))
        smooth = [
            ndimage.convolve1d(noise, whole_kernel(half_kernel(width * SIGMA_Z)), 0, mode="mirror")
            if depth > 1
            else noise
            for width in WIDTHS
        ]
        for i, width in enumerate(WIDTHS):
            kernel = whole_kernel(half_kernel(width * SIGMA))
            for axis in (1, 2):
                smooth[i] = ndimage.convolve1d(smooth[i], kernel, axis, mode="mirror")
        wide, narrow = make_volume_bands(SIGMA, SIGMA_Z, (depth, 400, 400)).volume.bands
        for band, inner in ((wide, 1), (narrow, 0)):
            values = (smooth[inner] - smooth[inner + 1])[:, 20:-20, 20:-20]
            np.testing.assert_allclose(values.std(axis=(1, 2)), band.gain, rtol=0.03)
            if depth > 1:
                pairs = np.corrcoef(values.reshape(depth, -1))
                assert pairs[0, 1] == pytest.approx(band.beside[1][0], abs=0.03)


# ---- What is no spot ----


@pytest.mark.parametrize("shape", [(40, 256, 256), (3, 512, 512), (1, 512, 512)])
@pytest.mark.parametrize("mean", [None, 5])
def test_false_spots_are_as_many_as_are_asked_for(shape, mean):
    rng = np.random.default_rng(8)
    settings = known(PLAIN if mean is None else SHOT, false_spots=100.0)
    count = pixels = 0
    while pixels < 2.5e6:
        if mean is None:
            volume = rng.normal(size=shape).astype(np.float32)
        else:
            volume = rng.poisson(mean, shape).astype(np.uint8)
        count += len(cpu.detect(volume[np.newaxis], settings).z)
        pixels += volume.size
    expected = 100 * pixels / 1e6
    assert 0.5 * expected < count < 1.3 * expected


def test_expected_false_spots_fall_with_score_and_depth():
    assert expected_false_spots(score_for(10, 1.3, 1.5, 30), 1.3, 1.5, 30) == pytest.approx(10)
    assert score_for(10, 1.3, 1.5, 30) > score_for(10, 1.3, 6.0, 30) > score_for(1000, 1.3, 6, 30)


def ramp_to(values):
    return np.clip(values, -0.5, 0.5) + 0.5


@pytest.mark.parametrize("kind", ["step in z", "step in y", "slanted step", "sheet", "line"])
def test_edges_lines_and_sheets_are_no_spots(detect, kind):
    rng = np.random.default_rng(9)
    z, y, x = np.ogrid[:30, :80, :150]
    across = {
        "step in z": z - 14.3 + 0 * (x + y), "step in y": y - 40.2 + 0 * (x + z),
        "slanted step": 0.5 * (z - 14) + 0.6 * (y - 40) + 0.6 * (x - 75),
        "sheet": z - 14.3 + 0.1 * (y - 40) + 0 * x, "line": 0 * (x + y + z),
    }[kind]  # fmt: skip
    light = 200 * ramp_to(across)
    if kind == "sheet":
        light = 200 * np.exp(-0.5 * (across / 1.6) ** 2)
    elif kind == "line":
        light = 200 * np.exp(
            -0.5 * (((z - 14.3) / 1.6) ** 2 + ((y - 40 - 0.3 * (x - 75)) / 1.3) ** 2)
        )
    found = detect(rng.poisson(50 + light).astype(np.uint16)[np.newaxis], known(false_spots=0.5))
    # Noise along 12,000 voxels of a sheet makes a few.
    assert len(found.z) <= (2 if "step" in kind else 8)


def test_hot_pixels_of_the_camera_are_no_spots(detect):
    rng = np.random.default_rng(10)
    volume = rng.poisson(20, SHAPE).astype(np.uint16)
    hot = rng.integers(5, 55, 30), rng.integers(5, 145, 30)
    volume[:, hot[0], hot[1]] += rng.integers(100, 3000, 30).astype(np.uint16)
    volume[3, 7, 9] += 500  # and a ray
    assert len(detect(volume[np.newaxis], known(false_spots=0.5)).z) == 0


@pytest.mark.parametrize("value", [0, 7, 255])
def test_constant_volumes_have_no_spots(detect, value):
    volume = np.full((1, *SHAPE), value, np.uint8)
    assert len(detect(volume, known(NoiseModel(0.0, 0.0, 0.0))).z) == 0
    assert len(detect(volume, known(threshold=0.0, noise=NoiseModel(0.0, 0.0, 0.0))).z) == 0


# ---- Bad, saturated and masked voxels ----


def test_spots_beside_bad_voxels_are_found(detect):
    rng = np.random.default_rng(11)
    places = on_grid(rng)
    volume = rng.poisson(20 + light_of(places, 300)).astype(np.float32)
    clean = detect(volume[np.newaxis], known(false_spots=0.1))
    bad = rng.random(SHAPE) < 0.02
    volume[bad] = np.where(rng.random(bad.sum()) < 0.5, np.nan, np.inf)
    volume[:, 20:24, 60:66] = np.nan
    volume[5] = np.nan
    found = detect(volume[np.newaxis], known(false_spots=0.1))
    scale = np.array([SIGMA / SIGMA_Z, 1, 1])
    far = cKDTree(found.places() * scale).query(clean.places() * scale)[0]
    assert (far < 2).mean() > 0.9
    assert len(found.z) < 1.1 * len(places)
    assert len(detect(np.full((1, *SHAPE), np.nan, np.float32), known()).z) == 0


def test_a_saturated_spot_is_one(detect):
    rng = np.random.default_rng(12)
    places = np.array([[8, 20, 30], [8, 40, 100], [0, 20, 70], [15, 40, 50]], float)
    light = light_of(places, 60_000) + light_of(places[:1], 3e6)
    volume = np.clip(rng.poisson(100 + light), 0, 65_535).astype(np.uint16)
    found = detect(volume[np.newaxis], known(false_spots=0.01))
    assert_found(found, places, reach=1.5)


def test_masks_say_where_spots_may_be_and_change_nothing_else(detect):
    rng = np.random.default_rng(13)
    places = on_grid(rng)
    volumes = rng.poisson(20 + light_of(places), (2, *SHAPE)).astype(np.uint16)
    whole = detect(volumes, known())
    for shape in (SHAPE, (2, *SHAPE)):
        mask = rng.random(shape) < 0.5
        own = np.broadcast_to(mask, (2, *SHAPE))[whole.frame, whole.z, whole.y, whole.x]
        same(detect(volumes, known(), mask), whole.rows(own))
    with pytest.raises(ValueError, match="mask must have the shape"):
        detect(volumes, known(), np.ones(SHAPE[1:], bool))


def test_a_map_of_variances_counts_as_noise_does(detect):
    rng = np.random.default_rng(14)
    variances = np.full(SHAPE, 1.0, np.float32)
    variances[:, 30:, :] = 100.0
    volume = rng.normal(size=SHAPE) * np.sqrt(variances) + 50
    own = known(NoiseModel(0.0, 0.01, 0.01), false_spots=50)
    found = detect(volume.astype(np.float32)[np.newaxis], own, None, variances)
    assert len(found.z) < 40  # of 144,000 voxels: 7
    without = detect(volume.astype(np.float32)[np.newaxis], known(PLAIN, false_spots=50))
    assert len(without.z) > 200


# ---- Ties, distances, and what must not matter ----


def test_of_equal_maxima_beside_each_other_one_is_found(detect):
    volume = np.zeros((1, *SHAPE), np.float32)
    for z, y, x in ((7, 20, 30), (8, 20, 30), (7, 40, 60), (7, 40, 61), (7, 20, 100), (8, 21, 101)):
        volume[0] += light_of([(z, y, x)], 100.0).astype(np.float32)
    found = detect(volume, known(PLAIN))
    assert len(found.z) == 3


def test_the_least_distance_counts_in_widths(detect):
    # As far apart, in widths, along z as along x.
    places = np.array([[5, 20, 30], [5 + 5 * SIGMA_Z / SIGMA, 20, 30], [8, 40, 60], [8, 40, 65]])
    light = light_of(places[[0, 2]], 300) + light_of(places[[1, 3]], 200)
    volume = (20 + light).astype(np.float32)[np.newaxis]
    assert_found(detect(volume, known(min_distance=4.5)), places)
    assert_found(detect(volume, known(min_distance=5.5)), places[[0, 2]])


def test_threads_strips_and_other_volumes_change_nothing():
    rng = np.random.default_rng(15)
    shape = (12, 300, 400)
    places = rng.uniform(0, np.array(shape) - 1, (300, 3))
    volumes = rng.poisson(20 + light_of(places, 100, shape), (3, *shape)).astype(np.float32)
    volumes[1, :, 100:120, 120:140] = np.nan
    whole = cpu.detect(volumes, known(threads=1))
    same(cpu.detect(volumes, known(threads=3)), whole)
    for number in range(3):
        alone = cpu.detect(volumes[number : number + 1], known(threads=2))
        same(alone._replace(frame=alone.frame + number), whole.rows(whole.frame == number))
    # Strips begin elsewhere in a part, whose spots away from its border are the same.
    part = np.ascontiguousarray(volumes[:1, :, 30:, 50:])
    level = float(np.median(volumes[0]))
    first = cpu.detect(volumes[:1], known(), level=level)
    moved = cpu.detect(part, known(), level=level)
    moved = moved._replace(y=moved.y + 30, x=moved.x + 50)
    inside = [spots.rows((spots.y > 50) & (spots.x > 70)) for spots in (first, moved)]
    assert len(inside[0].z) > 100
    np.testing.assert_array_equal(inside[0].places(), inside[1].places())
    np.testing.assert_allclose(inside[0].score, inside[1].score, rtol=1e-5)


@pytest.mark.parametrize("apart", [1.6, 2.2])
def test_two_spots_too_near_for_two_maxima_are_found_as_one_at_least(detect, apart):
    rng = np.random.default_rng(10)
    shape = (16, 200, 200)
    middles = on_grid(rng, shape)[::3]
    half = rng.normal(size=middles.shape)
    half *= apart / 2 / np.linalg.norm(half, axis=1, keepdims=True) * [SIGMA_Z, SIGMA, SIGMA]
    middles[:, 0] = rng.uniform(4, 11, len(middles))
    light = light_of(np.concatenate([middles - half, middles + half]), 150.0, shape)
    found = detect(rng.poisson(50 + light).astype(np.uint16)[np.newaxis], known(false_spots=0.5))
    scale = np.array([SIGMA / SIGMA_Z, 1.0, 1.0])
    away = cKDTree(found.places() * scale).query(middles * scale)[0]
    assert (away < 2 * SIGMA).mean() > 0.97
