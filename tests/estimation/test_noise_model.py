"""Noise models estimated from images."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import detection_reference as reference
import numpy as np
import pytest
from noisy_scenes import flat_scenes, noisy_scenes
from scenes import DTYPES, light, movie_of, on_grid, scattered

from napari_spotfit import NoiseModel, noise_model
from napari_spotfit.estimation.measured_noise import measure_noise
from napari_spotfit.settings.settings import Settings

da = pytest.importorskip("dask.array")


@cache
def scenes():
    return {scene.name: scene for scene in (*flat_scenes(1.3), *noisy_scenes(1.3))}


def model_of(name):
    return noise_model(np.stack(scenes()[name].frames))


@cache
def by_reference(name):
    """Return the frames of a scene and their noise, for all instruction sets."""
    frames = scenes()[name].frames
    return frames, reference.noise_of(frames, 1.3)


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("name", ["dense", "white", "EMCCD 1", "nuclei", "8 bit"])
def test_the_model_is_the_references(name):
    frames, theirs = by_reference(name)
    ours = measure_noise(np.stack(frames), Settings(sigma=1.3))
    np.testing.assert_allclose(
        (ours.slope, ours.intercept, ours.least), theirs[:3], rtol=1e-3, atol=1e-3
    )
    # Of the filtered frame, only some rows are looked at.
    assert ours.correlation == pytest.approx(theirs.kappa, abs=0.06)


@pytest.mark.parametrize("dtype", DTYPES)
def test_frames_of_every_type(dtype):
    rng = np.random.default_rng(5)
    frames = rng.poisson(np.linspace(20, 120, 256), (2, 200, 256)).astype(dtype)
    ours, theirs = noise_model(frames), reference.noise_of(frames, 1.3)
    assert ours.slope == pytest.approx(theirs.slope, rel=1e-3)
    assert ours.gain == pytest.approx(1, rel=0.1)
    assert ours.offset == pytest.approx(0, abs=5)


@pytest.mark.parametrize("gain", [0.3, 1.0, 2.2])
@pytest.mark.parametrize("density", [0, 0.5, 2])
def test_the_gain_of_a_graded_image(gain, density):
    rng = np.random.default_rng(6)
    shape = (300, 300)
    light = movie_of(rng, scattered(rng, shape, int(density * 900)), 2, shape) - 100
    light = light + rng.poisson(np.linspace(0, 200, 300), (2, *shape))
    found = noise_model((gain * light + 100).astype(np.float32))
    assert found.gain == pytest.approx(gain, rel=0.12)
    assert found.offset == pytest.approx(100, abs=8 * gain)
    assert f"{found.gain:.3g}" in str(found)


def test_a_flat_image_says_that_it_cannot_tell_the_gain():
    frames = np.random.default_rng(7).poisson(50, (4, 256, 256)) + 100
    found = noise_model(frames)
    assert found.gain is None
    assert found.offset is None
    assert "too flat" in str(found)
    assert found.variance(150) == pytest.approx(50, rel=0.05)
    # How skewed its noise is tells more than nothing: that it is of counts.
    assert found.slope == pytest.approx(1, rel=0.15)
    white = noise_model(np.random.default_rng(7).normal(150, 7, (4, 256, 256)))
    assert white.slope < 0.3


@pytest.mark.parametrize("name", ["median", "interpolated", "blurred"])
def test_a_filtered_image_is_warned_of(name):
    found = model_of(name)
    assert found.is_filtered
    assert found.gain is None
    assert "filtered" in str(found)


@pytest.mark.parametrize("name", ["white", "Poisson 0.05", "EMCCD 1", "cells 2000", "nuclei"])
def test_an_image_from_a_camera_is_not(name):
    assert not model_of(name).is_filtered


@pytest.mark.parametrize("name", ["sparse", "dense", "very dense"])
def test_spots_are_no_noise(name):
    scene = scenes()[name]
    mean = np.mean(scene.frames)
    # Spots bring shot noise of their own.
    assert noise_model(np.stack(scene.frames)).variance(mean) == pytest.approx(mean - 100, rel=0.15)


def test_a_spot_in_every_block_is_no_skewness():
    rng = np.random.default_rng(12)
    movie = movie_of(rng, on_grid(rng, (96, 160), 16), 4, (96, 160), photons=700)
    found = noise_model(movie)
    assert 0.5 < found.slope < 1.6
    assert found.variance(110) == pytest.approx(10, rel=0.15)


def test_a_spot_in_every_block_of_white_noise_is_no_light_with_noise():
    """Its skewness is that of spots, and all blocks are as bright; but its columns differ."""
    rng = np.random.default_rng(19)
    image = light(on_grid(rng, (96, 160), 16), 3000, 1.3, (96, 160)) + 100
    movie = np.rint(rng.normal(image, 2, (4, 96, 160)))
    found, theirs = noise_model(movie), reference.noise_of(movie, 1.3)
    assert found.slope < 0.03
    assert found.slope == pytest.approx(theirs.slope, rel=1e-3)
    assert found.variance(100) == pytest.approx(4, rel=0.1)


def test_hot_pixels_are_no_noise():
    assert model_of("hot pixels").variance(110) == pytest.approx(10, rel=0.1)


def test_the_sample_is_the_same_however_frames_are_read():
    rng = np.random.default_rng(9)
    movie = rng.poisson(30, (150, 64, 64)).astype(np.uint16)
    expected = noise_model(movie)
    for chunks in ((1, 64, 64), (7, 32, 64), (150, 64, 64)):
        assert noise_model(da.from_array(movie, chunks=chunks), threads=1) == expected
    assert noise_model(movie.reshape(5, 30, 64, 64)) == expected


def test_bad_pixels_do_not_count():
    rng = np.random.default_rng(10)
    frame = rng.normal(100, 5, (128, 128)).astype(np.float32)
    spoilt = frame.copy()
    spoilt[40:44, 30:90] = np.nan
    spoilt[:, 100] = np.inf
    assert noise_model(spoilt).variance(100) == pytest.approx(25, rel=0.2)
    frame[40:44, 30:90] = 1e6
    bad = frame > 1e5
    assert noise_model(frame, bad_pixels=bad).variance(100) == pytest.approx(25, rel=0.2)


@pytest.mark.parametrize("value", [7, np.nan])
def test_nothing_to_measure(value):
    said = nullcontext() if value == 7 else pytest.warns(UserWarning, match="are NaN, or bad")
    with said:
        found = noise_model(np.full((64, 64), value, np.float32))
    assert found == NoiseModel(0.0, 0.0, 0.0)
    assert "constant" in str(found)


@pytest.mark.parametrize("shape", [(8, 8), (12, 40), (16, 16), (20, 200), (27, 27), (9, 15)])
def test_small_frames_are_mirrored_without_harm(shape):
    rng = np.random.default_rng(11)
    found = [noise_model(rng.normal(50, 3, (64, *shape))).variance(50) for _ in range(12)]
    assert np.median(found) == pytest.approx(9, rel=0.2)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 4)])
def test_frames_of_a_few_pixels_do_no_harm(shape):
    found = noise_model(np.random.default_rng(11).poisson(9, (3, *shape)))
    assert np.isfinite(found.variance(9))


@pytest.mark.parametrize("photons", [60, 300])
def test_light_that_lies_in_few_pixels_tells_the_gain(photons):
    """The squares of a spot's few pixels have their median far below their mean."""
    rng = np.random.default_rng(13)
    image = light(on_grid(rng, (384, 384), 24), photons, 1.3, (384, 384)) + 0.5
    found = noise_model(rng.poisson(image, (8, 384, 384)) + 100)
    assert found.gain == pytest.approx(1, rel=0.25)


def test_spots_on_white_noise_are_no_shot_noise():
    """They are skewed, as shot noise is; but where they are, there is no more noise."""
    rng = np.random.default_rng(14)
    image = light(on_grid(rng, (384, 384), 24), 1500, 1.3, (384, 384)) + 100
    found = noise_model(rng.normal(image, 5, (8, 384, 384)))
    assert found.slope < 0.3
    assert found.variance(100) == pytest.approx(25, rel=0.05)


def _defects(kind, rng, shape):
    """Return the defects of a camera in each frame, in photons."""
    added = np.zeros(shape)
    if kind == "columns":
        added[:, shape[1] // 3] = 4000
        added[: shape[0] // 2, shape[1] // 2] = 300
        return added
    count, side = {"single": (33, 1), "pairs": (13, 2), "clusters": (13, 3)}[kind]
    for y, x in rng.integers(0, np.array(shape) - side, (count, 2)):
        for k in range(side):
            added[y + k * (k % 2), x + k] += np.exp(rng.uniform(np.log(30), np.log(5000)))
    return added


@pytest.mark.parametrize("background", ["flat", "graded"])
@pytest.mark.parametrize("spots", [0, 40])
@pytest.mark.parametrize("kind", ["single", "pairs", "clusters", "columns"])
def test_faults_of_a_camera_are_no_gain(kind, spots, background):
    rng = np.random.default_rng(15)
    shape = (256, 256)
    level = (
        np.full(shape, 10.0) if background == "flat" else np.full(shape, np.linspace(5, 100, 256))
    )
    light_of_all = level + _defects(kind, rng, shape)
    frames = [
        rng.poisson(light_of_all + light(scattered(rng, shape, spots), 1000, 1.3, shape))
        for _ in range(4)
    ]
    found = noise_model((2.2 * np.array(frames) + 100).astype(np.float32))
    assert found.gain is None or found.gain == pytest.approx(2.2, rel=0.15)
    if background == "graded" and kind != "columns":
        assert found.gain is not None
    middle = float(np.median(level))
    assert found.variance(100 + 2.2 * middle) == pytest.approx(2.2**2 * middle, rel=0.25)


@pytest.mark.parametrize("gain", [0.3, 2.2])
def test_dead_pixels_are_no_gain(gain):
    rng = np.random.default_rng(20)
    counts = gain * rng.poisson(np.linspace(5, 100, 256), (4, 256, 256)) + 100
    counts[:, rng.random((256, 256)) < 5e-4] = 0
    found = noise_model(counts.astype(np.float32))
    assert found.gain == pytest.approx(gain, rel=0.15)


@pytest.mark.parametrize("graded", [False, True])
def test_cosmic_rays_are_no_gain(graded):
    rng = np.random.default_rng(16)
    frames = rng.poisson(np.full((4, 256, 256), np.linspace(5, 100, 256) if graded else 10.0))
    frames = frames.astype(np.float32) + 100
    for frame in frames:
        for y, x in rng.integers(0, 240, (6, 2)):
            length = rng.integers(2, 12)
            frame[y + np.arange(length), x + np.arange(length) // 2] += rng.uniform(100, 20000)
    found = noise_model(frames)
    assert (found.gain is not None) == graded
    assert not graded or found.gain == pytest.approx(1, rel=0.15)


def test_a_gain_that_is_not_sure_is_not_offered():
    rng = np.random.default_rng(17)
    # Spots in few blocks, that tell more or less how steep the line is.
    movie = movie_of(rng, scattered(rng, (160, 160), 20), 4, (160, 160), photons=500)
    found = noise_model(movie)
    assert found.gain is None
    assert found.slope == pytest.approx(1, rel=0.5)


@pytest.mark.parametrize("side", [64, 96])
def test_few_blocks_tell_that_light_has_noise(side):
    rng = np.random.default_rng(18)
    slopes = []
    for _ in range(9):
        places = scattered(rng, (side, side), 6)
        slopes.append(noise_model(movie_of(rng, places, 1, (side, side), photons=2000)).slope)
    assert np.median(slopes) == pytest.approx(1, rel=0.4)


def test_an_unsure_gain_is_named_so():
    unsure = NoiseModel(1.3, -100.0, 1.0, slope_error=0.2, blocks=100)
    assert unsure.gain is None
    assert unsure.offset is None
    assert "no better than 1.3 ± 0.2" in str(unsure)
    sure = NoiseModel(1.3, -100.0, 1.0, slope_error=0.1, blocks=100)
    assert sure.gain == 1.3
