"""Joint fits in volumes and of elliptical spots: SciPy's joint optimum, splits along z, slabs."""

from __future__ import annotations

import numpy as np
import pytest
from same_fits import assert_same
from scipy import ndimage
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from scipy.special import erf

from napari_spotfit import Camera, Flag, Settings, SpotFits, fit_at, localize, localize_iter
from napari_spotfit.engine import joint
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.images import frames as frames_module
from napari_spotfit.images.pixel_calibration import PixelCalibration
from napari_spotfit.localization import tiles

BACKGROUND = 10.0
KNOWN = {"pixel": "integrated", "gain": 1.0, "estimator": "mle", "backend": "cpu"}
#: Settings by model, and its widths along each axis of the image.
VOLUME = {"model": "gaussian_3d", "sigma": 1.3, "sigma_z": 1.7}
ELLIPTICAL = {"model": "gaussian_elliptical", "sigma": 1.3,
              "fixed": {"sigma_x": 1.2, "sigma_y": 1.6}}  # fmt: skip
DEEP_ELLIPTICAL = {"model": "gaussian_3d_elliptical", "sigma": 1.3, "sigma_z": 1.7,
                   "fixed": {"sigma_x": 1.2, "sigma_y": 1.6}}  # fmt: skip
WIDTHS = (1.7, 1.3, 1.3)


def shares(place, sigma, side, pixel):
    """Return the light of spots of unit light along one axis of an image."""
    if pixel == "sampled":
        apart = np.arange(side) - place
        return np.exp(-(apart**2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
    edges = np.arange(side + 1) - 0.5
    return np.diff(0.5 * erf((edges - place) / (sigma * 2**0.5)))


def light_of(places, photons, shape, widths=WIDTHS, pixel="integrated"):
    """Return the light of spots, without a background."""
    total = np.zeros(shape)
    for place, light in zip(places, np.broadcast_to(photons, len(places)), strict=True):
        lines = [shares(*one, pixel) for one in zip(place, widths, shape, strict=True)]
        spot = lines[0]
        for line in lines[1:]:
            spot = spot[..., np.newaxis] * line
        total += light * spot
    return total


def stack_of(places, photons, shape, seed):
    """Return a stack of spots with the noise of photons."""
    light = BACKGROUND + light_of(places, photons, shape)
    return np.random.default_rng(seed).poisson(light).astype(np.uint16)


@pytest.mark.parametrize("pixel", ["integrated", "sampled"])
@pytest.mark.parametrize(
    ("model", "widths", "places"),
    [
        (VOLUME, WIDTHS, [[9.2, 12.1, 11.8], [11.9, 13.3, 12.4], [8.1, 14.8, 13.9]]),
        (DEEP_ELLIPTICAL, (1.7, 1.6, 1.2), [[9.2, 12.1, 11.8], [11.9, 13.3, 12.4]]),
        (ELLIPTICAL, (1.6, 1.2), [[12.1, 11.8], [14.3, 12.4], [12.8, 14.1]]),
    ],
)
def test_joint_fits_are_scipys_joint_optimum(model, widths, places, pixel):
    truth = np.array(places)
    count, axes = truth.shape
    shape = (20, 26, 25)[3 - axes :]
    middle = (np.array(shape) - 1) / 2
    mean = BACKGROUND + light_of(truth, 2500.0, shape, widths, pixel)
    image = np.random.default_rng(count).poisson(mean).astype(np.uint16)
    settings = Settings(**KNOWN | {"pixel": pixel} | model, neighbours="joint", roi_size=9,
                        max_iterations=200)  # fmt: skip
    calibration = PixelCalibration((1, *shape), settings)
    calibration = calibration.with_noise(calibration.camera_noise)
    job = FitJob.of(calibration, image.dtype)
    block, positions = Block.of(calibration, np.zeros(1, int), image[np.newaxis]), Positions(truth)
    single = Cpu(1).fit(job, block, positions)
    start = np.column_stack([single[axis] for axis in job.axes])
    at = np.indices(shape).reshape(axes, -1).T
    # The pixels of a crowd are those near its spots, in units in which these are round.
    scale = widths[-1] / np.array(widths)
    reach = int(4.5 * widths[-1]) + 1.5
    apart = (((at[:, np.newaxis] - start) * scale) ** 2).sum(axis=2)
    box = (abs(at[:, np.newaxis] - np.floor(start + 0.5)) <= 4.5 * np.array(widths) + 1).all(axis=2)
    near = ((apart <= reach**2) & box).any(axis=1)
    data = image.ravel()[near].astype(float)
    light = slice(axes * count, axes * count + count)

    def ground(parameters, places):
        return 10 * parameters[light.stop] + (places - middle) @ parameters[light.stop + 1 :] / 10

    def expected(parameters):
        own = parameters[: light.start].reshape(-1, axes)
        spots = light_of(own, parameters[light] * 1000, shape, widths, pixel)
        return np.maximum(spots.ravel()[near] + ground(parameters, at[near]), 0.05)

    def lost(parameters):
        own = expected(parameters)
        return (own - data * np.log(own)).sum()

    begin = np.concatenate([truth.ravel(), np.full(count, 2.5), [1.0], np.zeros(axes)])
    best = minimize(lost, begin, method="BFGS", options={"gtol": 1e-4}).x
    columns = joint.fit_crowds(Cpu(1), job, block, positions, single)
    np.testing.assert_array_equal(columns["group"], 0)
    found = np.column_stack([columns[axis] for axis in job.axes])
    np.testing.assert_allclose(found, best[: light.start].reshape(-1, axes), atol=2e-3)
    np.testing.assert_allclose(columns["photons"], 1000 * best[light], rtol=2e-3)
    np.testing.assert_allclose(columns["background"], ground(best, np.rint(found)), rtol=4e-3)
    height = columns["photons"] / np.prod(np.sqrt(2 * np.pi) * np.array(widths))
    np.testing.assert_allclose(columns["amplitude"], height, rtol=1e-5)
    # The errors are those of the Fisher information of all parameters together.
    steps = 1e-4 * np.eye(len(best))
    slopes = np.array([(expected(best + step) - expected(best - step)) / 2e-4 for step in steps])
    errors = np.sqrt(np.diag(np.linalg.inv((slopes / expected(best)) @ slopes.T)))
    for k, axis in enumerate(job.axes):
        own = columns[f"{axis}_stderr"]
        np.testing.assert_allclose(own, errors[k : light.start : axes], rtol=0.01)
    np.testing.assert_allclose(columns["photons_stderr"], 1000 * errors[light], rtol=0.01)


@pytest.mark.parametrize("direction", [(1, 0, 0), (0, 0, 1), (0.7, 0.5, 0.5)])
def test_two_spots_in_one_maximum_of_a_stack_are_two(direction):
    along = np.array(direction) / np.linalg.norm(direction) * WIDTHS
    known = KNOWN | VOLUME | {"neighbours": "joint"}
    for apart, most in ((1.6, 2), (0.4, 1)):
        counts = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            middle = np.add(rng.uniform(9, 10, 3), (0, 2, 2))
            places = [middle + apart / 2 * along, middle - apart / 2 * along]
            fits = localize(stack_of(places, 3000.0, (20, 24, 24), seed), **known)
            counts.append(fits.good.sum())
        assert np.mean(np.array(counts) == most) > 0.9


def scene(count, shape, seed, photons=3000.0):
    """Return a stack of spots at random places, and these."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(2, np.array(shape) - 3, (count, 3))
    return stack_of(places, photons, shape, seed), places


def test_crowded_stacks_are_found_with_right_errors():
    scaled, found, true = [], 0, 0
    for seed in range(3):
        stack, places = scene(150, (20, 72, 72), seed)
        fits = localize(stack, **KNOWN | VOLUME, neighbours="joint", noise=None)
        fits = fits[fits.good]
        at = np.column_stack([fits.z, fits.y, fits.x])
        errors = np.column_stack([fits.z_stderr, fits.y_stderr, fits.x_stderr])
        apart = (((at[:, np.newaxis] - places) / WIDTHS) ** 2).sum(axis=2)
        nearest, is_true = apart.argmin(axis=1), apart.min(axis=1) < 0.5
        assert is_true.mean() > 0.97
        found, true = found + len(np.unique(nearest[is_true])), true + len(places)
        scaled.append(((at - places[nearest]) / errors)[is_true])
        assert (fits.group_size > 1).mean() > 0.5
    assert found / true > 0.95
    z = np.concatenate(scaled)
    spread = (np.percentile(z, 84.13, axis=0) - np.percentile(z, 15.87, axis=0)) / 2
    np.testing.assert_allclose(spread, 1, atol=0.15)


@pytest.mark.parametrize(("voxel", "per_plane"), [(None, 1.3 / 1.7), ((300, 120, 120), 2.5)])
def test_columns_of_a_stack(voxel, per_plane):
    stack, _ = scene(90, (18, 64, 64), 5)
    fits = localize(stack, **KNOWN | VOLUME, voxel_size=voxel, neighbours="joint")
    joint_ones = fits.group_size > 1
    assert joint_ones.sum() > 20
    assert (fits.sigma[joint_ones] == np.float32(1.3)).all()
    assert (fits.sigma_z[joint_ones] == np.float32(1.7)).all()
    at = np.column_stack([fits.z, fits.y, fits.x])
    apart, of_psf = (
        np.sqrt((((at[:, np.newaxis] - at) * (scale, 1, 1)) ** 2).sum(axis=2))
        for scale in (per_plane, 1.3 / 1.7)
    )
    for one in (apart, of_psf):
        np.fill_diagonal(one, np.inf)
    least = np.where(apart.min(axis=1) <= 13, apart.min(axis=1), np.nan)
    np.testing.assert_allclose(fits.neighbour_distance, least, rtol=1e-4)
    alone = (fits.group_size == 1)[:, np.newaxis] & (of_psf < 4 * 1.3)
    assert not alone.any()


def test_fits_at_given_places_of_a_stack():
    stack, places = scene(60, (18, 56, 56), 6)
    places = np.concatenate([places, [[-30.0, 5, 5]]])
    fits = fit_at(stack, places, **KNOWN | VOLUME, neighbours="joint")
    order = np.random.default_rng(0).permutation(len(places))
    other = fit_at(stack, places[order], **KNOWN | VOLUME, neighbours="joint")
    for name in ("z", "y", "x", "photons", "z_stderr", "evidence", "group_size"):
        np.testing.assert_array_equal(other.columns[name], fits.columns[name][order], err_msg=name)
    assert np.median(abs(fits.z[:-1] - places[:-1, 0])) < 0.1


def test_auto_is_exclude_in_sparse_stacks():
    rng = np.random.default_rng(7)
    places = np.mgrid[10:31:20, 9:64:15, 9:64:15].reshape(3, -1).T + rng.uniform(-1, 1, (32, 3))
    stack = stack_of(places, 3000.0, (40, 64, 64), 7)
    single = localize(stack, **KNOWN | VOLUME, neighbours="exclude")
    auto = localize(stack, **KNOWN | VOLUME, neighbours="auto")
    assert len(single) == len(auto) == 32
    for name, column in single.columns.items():
        np.testing.assert_array_equal(auto.columns[name], column, err_msg=name)


def test_empty_stacks_have_no_more_false_spots():
    stack = np.random.default_rng(8).poisson(BACKGROUND, (4, 24, 160, 160)).astype(np.uint16)
    known = KNOWN | VOLUME | {"false_spots": 10.0}
    single = localize(stack, **known, neighbours="exclude")
    assert len(localize(stack, **known, neighbours="joint")) <= len(single) + 2


def test_spots_at_the_ends_of_stacks():
    places = np.array([[-0.3, 15.0, 13.0], [0.2, 15.0, 17.5], [9.8, 15.0, 15.0]])
    fits = localize(stack_of(places, 6000.0, (10, 30, 30), 9), **KNOWN | VOLUME, neighbours="joint")
    assert len(fits) == 3
    assert (fits.flags & Flag.EDGE != 0).all()
    outside = fits.flags & Flag.OUTSIDE_STACK != 0
    np.testing.assert_array_equal(outside, (fits.z <= -0.5) | (fits.z >= 9.5))


def test_slabs_have_the_rows_of_whole_stacks(monkeypatch):
    rng = np.random.default_rng(10)
    pairs = np.arange(8.0, 395, 13)
    middle = np.column_stack([pairs, *rng.uniform(12, 20, (2, len(pairs)))])
    places = np.concatenate([middle, middle + rng.normal(0, 1, middle.shape) * 2.2])
    stack = stack_of(places, 4000.0, (404, 32, 32), 10)
    known = KNOWN | VOLUME | {"neighbours": "joint"}
    whole = localize(stack, **known)
    assert (whole.group_size == 2).sum() > 20
    monkeypatch.setattr(tiles, "VOLUMES", 0)
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 8 * stack[0].nbytes)
    parts = list(localize_iter(stack, **known | {"noise": whole.settings.noise}))
    assert len(parts) > 1
    assert_same(SpotFits.concatenate(parts), whole)
    assert_same(localize(stack, **known, threads=1), whole)


def far_from(fits, places):
    """Return how many fits are no spots of their frames."""
    at = np.column_stack([fits.y, fits.x])
    return sum(
        int((cKDTree(own).query(at[fits.frame == frame])[0] > 2.5).sum())
        for frame, own in enumerate(places)
    )


@pytest.mark.parametrize("known", [{"estimator": "mle"}, {}])
@pytest.mark.parametrize(("share", "noisy"), [(0.1, 1600.0), (0.3, 900.0)])
@pytest.mark.parametrize("by_frame", [False, True])
@pytest.mark.filterwarnings("ignore:the image has .* times the noise")  # than most pixels have
def test_pixels_count_by_their_own_variance(known, by_frame, share, noisy):
    """Without their map, the r.m.s. error is 0.146 to 0.150, and noisy pixels are spots."""
    rng, side, frames = np.random.default_rng(11), 64, 16
    variance = np.where(rng.random((side, side)) < share, noisy, 4.0)
    gain, offset = rng.uniform(1.8, 2.2, (side, side)), rng.uniform(90, 110, (side, side))
    scaled, places, movie, off = [], [], [], []
    for _ in range(frames):
        places.append(rng.uniform(3, side - 4, (40, 2)))
        light = rng.poisson(BACKGROUND + light_of(places[-1], 2000.0, (side, side), (1.3, 1.3)))
        movie.append(offset + gain * light + rng.normal(0, variance**0.5))
    if by_frame:
        variance = np.broadcast_to(variance, (frames, side, side))
    settings = {"pixel": "integrated", "backend": "cpu", "sigma": 1.3, "neighbours": "joint"}
    camera = Camera(offset, gain, variance)
    fits = localize(np.array(movie, np.float32), camera=camera, **settings | known)
    fits, found = fits[fits.good], 0
    # The default of false_spots allows 0.7; where each frame has a map of its own, detection goes
    # by none, and single fits find some on noisy pixels.
    most = 2
    if by_frame:
        settings["neighbours"] = "exclude"
        single = localize(np.array(movie, np.float32), camera=camera, **settings | known)
        most = 1 + far_from(single[single.good], places)
    for frame, truth in enumerate(places):
        own = fits[fits.frame == frame]
        at = np.column_stack([own.y, own.x])
        apart = np.hypot(*(at[:, np.newaxis] - truth).transpose(2, 0, 1))
        is_true = apart.min(axis=1) < 1
        found += is_true.sum()
        errors = np.column_stack([own.y_stderr, own.x_stderr])
        scaled.append(((at - truth[apart.argmin(axis=1)]) / errors)[is_true])
        off.append(apart.min(axis=1))
    z, off = np.concatenate(scaled), np.concatenate(off)
    assert (off > 2.5).sum() <= most
    assert np.sqrt(np.mean(off[off < 1] ** 2)) < 0.144
    assert found > 0.95 * 40 * frames
    spread = (np.percentile(z, 84.13) - np.percentile(z, 15.87)) / 2
    assert abs(spread - 1) < 0.1


def test_weights_of_pixels_are_an_error():
    light = BACKGROUND + light_of([[10.0, 9.0], [10.0, 12.0]], 1000.0, (24, 24), (1.3, 1.3))
    image = np.random.default_rng(12).poisson(light).astype(np.uint16)
    weights = np.random.default_rng(13).uniform(0.5, 2, image.shape)
    given = {"estimator": "wlse", "weights": weights, "sigma": 1.3, "backend": "cpu"}
    for camera in (None, Camera(gain=1.0, variance=np.full(image.shape, 4.0))):
        with pytest.raises(ValueError, match="without a map of weights"):
            localize(image, **given, camera=camera, neighbours="joint")
        alone = localize(image, **given, camera=camera, neighbours="auto")
        assert (alone.group_size == 1).all()
    alike = localize(image, gain=1.0, variance=2.0, estimator="mle", sigma=1.3, neighbours="joint")
    assert len(alike) == 2


def test_the_texture_of_a_cell_is_no_row_of_hidden_spots():
    rng = np.random.default_rng(5)
    shape, widths = (20, 160, 160), np.array([1.5, 1.3, 1.3])
    texture = ndimage.gaussian_filter(rng.normal(size=shape), (3, 4, 4))
    light = 60 * (1 + 0.12 * texture / texture.std())
    middles = np.stack(np.meshgrid([6, 13], *[np.arange(12, 150, 17)] * 2), -1).reshape(-1, 3)
    pairs = middles[:, np.newaxis] + rng.uniform(-0.5, 0.5, (len(middles), 1, 3))
    half = rng.normal(size=middles.shape)
    half *= 1.2 * widths / np.linalg.norm(half, axis=1, keepdims=True)
    truth = (pairs + np.stack([-half, half], 1)).reshape(-1, 3)
    for place in truth:
        lines = [
            np.exp(-0.5 * ((np.arange(size) - at) / width) ** 2)
            for size, at, width in zip(shape, place, widths, strict=True)
        ]
        light += 70 * np.einsum("z,y,x->zyx", *lines)
    known = {"model": "gaussian_3d", "sigma": 1.3, "sigma_z": 1.5, "false_spots": 0.1}
    counts, away = {}, {}
    stack = rng.poisson(light).astype(np.uint16)
    for neighbours in ("exclude", "auto"):
        fits = localize(stack, **known, neighbours=neighbours, backend="cpu")
        places = np.column_stack([fits.z, fits.y, fits.x])[fits.good] / widths
        counts[neighbours] = len(places)
        away[neighbours] = cKDTree(truth / widths).query(places)[0]
    # Detection takes some texture for spots; what is hidden in it is none.
    assert (away["auto"] > 1).sum() <= (away["exclude"] > 1).sum() + 3
    assert counts["auto"] > 1.2 * counts["exclude"]
    assert (away["auto"] < 0.5).sum() > 0.8 * len(truth)
