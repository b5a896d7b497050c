"""Hot and dead pixels are excluded from fits: which they are, and the effect on fits."""

from __future__ import annotations

import detection_reference as reference
import numpy as np
import pytest
from detection_cases import hot_frames
from excluding import excluded, excluded_on_device
from scenes import DTYPES, light, movie_of, on_grid

from napari_spotfit import Flag, NoiseModel, Settings, fit_at, localize
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu.block_fits import CpuFitter
from napari_spotfit.engine.cpu.layouts import HOT_PIXEL
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.fit_job import FitJob

NOISE = NoiseModel(1.0, -100.0, 4.0)


def expected(frames, sigma, noise):
    """Return the hot and dead pixels of whole frames by the reference of detection."""
    masks = []
    for frame in frames.astype(float):
        beside = reference.ndimage.correlate(frame, reference.CROSS / 4, mode="mirror")
        deviation = np.sqrt(noise.variance(beside))
        away = abs(frame - beside) / deviation
        high, low = (reference.hot_pixels(one, sigma, 6, deviation**2) for one in (frame, -frame))
        masks.append((high | low) & (reference.normal_score(away, noise.slope / deviation) > 6))
    return np.array(masks)


def hot_pixels(*given):
    """Return the hot and dead pixels of ROIs by the library."""
    return excluded(*given).hot


def corners_in(rng, frames, roi_shape, count=300):
    """Return ROIs anywhere in frames, some outside."""
    along = zip(frames.shape[1:], roi_shape, strict=True)
    first = [rng.integers(0, n - m + 1, count) for n, m in along]
    first = [np.where(rng.random(count) < 0.1, rng.choice([0, np.max(one)]), one) for one in first]
    return np.column_stack([np.sort(rng.integers(-1, len(frames), count)), *first])


def cut(masks, corners, roi_shape):
    """Return each ROI's part of masks; none has any in a negative frame."""
    rows, columns = roi_shape
    rois = [masks[n, y : y + rows, x : x + columns] & (n >= 0) for n, y, x in corners]
    return np.array(rois)


@pytest.fixture(scope="module", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def on_gpu(request):
    """Find hot and dead pixels as on a GPU."""
    if request.param == "host":
        return lambda *given: excluded_on_device(*given).hot
    request.getfixturevalue("gpu")
    import cupy

    return lambda frames, *rest: excluded_on_device(cupy.asarray(frames), *rest).hot


@pytest.mark.parametrize("roi_shape", [(9, 9), (4, 13), (40, 67), (128, 140)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_they_are_the_references(instruction_set, dtype, roi_shape):
    rng = np.random.default_rng([*roi_shape, np.dtype(dtype).itemsize])
    frames = np.clip(hot_frames(np.float32)[0], 0, 255 if dtype == np.uint8 else 6000)
    frames = np.nan_to_num(frames, nan=130)
    frames[:, 5::9, 7::31] = 3  # dead
    frames = frames.astype(dtype)
    corners = corners_in(rng, frames, roi_shape)
    masks = cut(expected(frames, 1.0, NOISE), corners, roi_shape)
    assert masks.any(axis=(1, 2)).sum() > 10
    settings = Settings(sigma=1.0, noise=NOISE)
    np.testing.assert_array_equal(hot_pixels(frames, corners, roi_shape, settings), masks)


def test_lists_have_those_of_all_rois():
    frames = hot_frames(np.uint16)[0]
    settings = Settings(sigma=1.0, noise=NOISE)
    places = np.random.default_rng(4).uniform(6, np.array(frames.shape[1:]) - 7, (200, 2))
    frame = np.sort(np.arange(200) % len(frames))
    job = FitJob(Settings(neighbours="ignore", threads=1), (9, 9), "u2", None, settings)
    fitter = CpuFitter(load(), job)
    numbers, reasons = fitter.excluded(Block(frames, frames), Positions(places, frame))
    is_near = np.zeros(frames.shape, bool)
    for n, (y, x) in zip(frame, np.rint(places).astype(int), strict=True):
        is_near[n, y - 4 : y + 5, x - 4 : x + 5] = True
    masks = expected(frames, 1.0, NOISE) & is_near
    assert masks.sum() > 10
    np.testing.assert_array_equal(numbers[reasons & HOT_PIXEL != 0], np.flatnonzero(masks))


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_a_gpu_finds_the_same(on_gpu, dtype):
    rng = np.random.default_rng(3)
    frames = hot_frames(dtype)[0]
    for roi_shape, sigma in (((9, 9), 0.7), ((11, 50), 1.3)):
        corners = corners_in(rng, frames, roi_shape)
        settings = Settings(sigma=sigma, noise=NOISE)
        ours, theirs = (look(frames, corners, roi_shape, settings) for look in (on_gpu, hot_pixels))
        assert theirs.any(axis=(1, 2)).sum() > 20
        np.testing.assert_array_equal(ours, theirs)


def test_none_is_beside_a_bad_pixel():
    frames = np.full((1, 30, 30), 100, np.float32)
    frames[0, 8, 8] = frames[0, 20, 20] = 500
    corners, settings = np.array([[0, 0, 0], [0, 15, 15]]), Settings(sigma=1.3, noise=NOISE)

    def rois():
        return np.flatnonzero(hot_pixels(frames, corners, (13, 13), settings).any(axis=(1, 2)))

    assert rois().tolist() == [0, 1]
    frames[0, 9, 9] = np.nan
    assert rois().tolist() == [1]
    frames[0, 20, 20] = np.nan
    assert rois().tolist() == []


@pytest.mark.parametrize("sigma", [0.5, 0.7, 0.8, 1.0, 1.3, 2.0])
def test_no_spot_is_one_wherever_it_lies_on_its_pixel(sigma):
    # What pixels see of a light of this width, from far below the noise to far above.
    rng = np.random.default_rng(5)
    noise, settings = NoiseModel(1.0, 0.0, 0.05), Settings(sigma=np.hypot(sigma, 12**-0.5))
    grid = np.mgrid[8:250:16, 8:250:16].reshape(2, -1).T
    lost = 0
    for photons in (20, 100, 1000, 1e5):
        for background in (0.05, 10, 300):
            centres = grid + rng.uniform(-0.5, 0.5, grid.shape)
            image = rng.poisson(light(centres, photons, sigma, (256, 256)) + background)
            corners = np.array([[0, 0, 0]])
            known = settings.changed(noise=noise)
            lost += hot_pixels(image[None].astype(float), corners, (256, 256), known).sum()
    # Of 2700; the dimmest are a few photons.
    assert lost <= 1


@pytest.mark.parametrize("sigma", [0.8, 1.3])
def test_no_spot_is_one_beside_a_brighter_one(sigma):
    rng = np.random.default_rng(6)
    centres = rng.uniform(3, 252, (2000, 2))
    photons = rng.lognormal(np.log(3000), 1.2, 2000) * sigma**2
    image = light(centres, photons, sigma, (256, 256)) + 10
    frames = rng.poisson(image).astype(np.uint16)[None]
    settings = Settings(sigma=np.hypot(sigma, 12**-0.5), noise=NoiseModel(1.0, 0.0, 1.0))
    lost = hot_pixels(frames, np.array([[0, 0, 0]]), (256, 256), settings)
    assert lost.sum() <= 1


def hot_scene(rng, frames=4, shape=(160, 160)):
    """Return a movie of spots, where they are, and the same with a wrong pixel in some ROIs."""
    centres = on_grid(rng, shape, 16)
    movie = movie_of(rng, centres, frames, shape, photons=2000)
    hot, dead = np.zeros((2, *shape), bool)
    nearest = np.rint(centres[::3]).astype(int)
    which = rng.integers(0, 5, len(nearest))
    place = nearest + np.array([[0, 1], [1, 1], [3, 0], [-4, 3], [-1, 0]])[which]
    hot[tuple(place.T)], dead[tuple(place[which == 4].T)] = True, True
    return movie, centres, np.where(dead, 0, movie + hot * 1500), hot


@pytest.mark.parametrize("more", [{}, {"estimator": "mle"}])
def test_fits_are_those_without_them(more):
    rng = np.random.default_rng(7)
    movie, centres, shown, hot = hot_scene(rng)
    known = {"sigma": 1.3, "gain": 1.0, "offset": 100.0, "variance": 0.0, **more}
    places = np.array([(n, *centre) for n in range(len(movie)) for centre in centres])
    fits, plain = fit_at(shown, places, **known), fit_at(movie, places, **known)
    named = fit_at(movie, places, bad_pixels=hot, **known)
    corners = np.column_stack([places[:, 0].astype(int), fits.roi_y, fits.roi_x])
    there = cut(np.stack([hot] * len(movie)), corners, (9, 9))
    some = there.any(axis=(1, 2))
    assert 0.2 < some.mean() < 0.5
    for name in ("y", "x", "sigma", "photons", "sigma_stderr", "chi_square"):
        np.testing.assert_array_equal(fits.columns[name][~some], plain.columns[name][~some])
        np.testing.assert_allclose(fits.columns[name][some], named.columns[name][some], rtol=1e-5)
    np.testing.assert_array_equal(fits.flags, named.flags)
    assert set(np.unique(some + 2 * ((fits.flags & Flag.BAD_PIXELS) != 0))) == {0, 1, 3}
    found = localize(shown, **known)
    # Where detection and the true place mean the same ROI.
    rois = [list(zip(one.frame, one.roi_y, one.roi_x, strict=True)) for one in (found, fits)]
    same = [(rois[0].index(roi), i) for i, roi in enumerate(rois[1]) if roi in rois[0]]
    assert len(same) > len(fits) / 2
    ours, theirs = np.transpose(same)
    np.testing.assert_allclose(found.sigma[ours], fits.sigma[theirs], rtol=1e-3)
