"""The GPU's detection against the CPU's: its code on the host (see on_host.py), and on a GPU."""

from __future__ import annotations

import detection_on_host as host
import numpy as np
import pytest
from detection_cases import (
    SHAPES,
    assert_alike,
    beside_bad_pixels,
    hot_frames,
    saturated,
    textured,
)
from scenes import DTYPES, assert_same, light, movie_of, scattered

from napari_spotfit import NoiseModel, Settings
from napari_spotfit.engine.cpu import backend as cpu
from napari_spotfit.engine.cuda import detect as cuda
from napari_spotfit.localization.tiles import level_of, level_places

NOISE = NoiseModel(1.0, -100.0, 4.0)


@pytest.fixture(scope="module", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def run(request):
    """Detect spots in frames in the host's memory."""
    if request.param == "host":
        return host.detect
    request.getfixturevalue("gpu")
    import cupy

    return lambda frames, *options: cuda.detect(cupy.asarray(frames), *options)


@pytest.fixture(scope="module")
def same_as_cpu(run):
    """Detect on both, and compare; there must be at least this many spots."""

    def detect(frames, settings, mask=None, variance_map=None, least=1):
        theirs = cpu.detect(frames, settings, mask, variance_map)
        assert len(theirs.y) >= least
        ours = run(frames, settings, mask, variance_map)
        assert_alike(ours, theirs)
        return ours

    return detect


def on_gpu(frames, *given, **named):
    import cupy

    return cuda.detect(cupy.asarray(frames), *given, **named)


DETECT = {"cpu": cpu.detect, "host": host.detect, "cuda": on_gpu}


@pytest.mark.parametrize("with_map", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["cpu", "host", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_spots_of_some_rows_are_those_of_the_frame(request, where, dtype, with_map):
    """Of a part that has another level, whose rows near both ends do not count."""
    if where == "cuda":
        request.getfixturevalue("gpu")
    rng = np.random.default_rng(57)
    frame = movie_of(rng, scattered(rng, (300, 150), 200), 1, (300, 150), photons=600)
    frame = np.clip(frame + np.linspace(-60, 60, 300)[:, np.newaxis], 0, 255).astype(dtype)
    variances = rng.gamma(2, 20, (300, 150)).astype(np.float32) if with_map else None
    settings = Settings(sigma=1.3, noise=NOISE, min_distance=3)
    level = level_of(frame.ravel()[level_places(frame.size)])
    part, inner = slice(10, 170), slice(50, 130)
    assert level != level_of(frame[:, part].ravel()[level_places(frame[:, part].size)])
    whole = cpu.detect(frame, settings, None, variances)
    found = DETECT[where](
        np.ascontiguousarray(frame[:, part]), settings, None,
        None if variances is None else variances[part], level=level,
    )  # fmt: skip
    found = found._replace(y=found.y + part.start)
    both = [
        spots.rows((spots.y >= inner.start) & (spots.y < inner.stop))[:5]
        for spots in (whole, found)
    ]
    assert len(both[0][0]) > 30
    tolerance = 0 if where == "cpu" else 1e-4
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sigma", [0.5, 1.3, 3.0, 10.0])
def test_candidates_are_the_cpus(same_as_cpu, dtype, sigma):
    rng = np.random.default_rng(54)
    shape = (70, 150)
    movie = movie_of(rng, scattered(rng, shape, 25), 3, shape, photons=600 * sigma**2, sigma=sigma)
    frames = np.clip(movie - 60, 0, 255).astype(dtype)
    settings = Settings(sigma=sigma, noise=NoiseModel(1.0, -40.0, 4.0))
    least = 5 if sigma > 3 else 40
    same_as_cpu(frames, settings, least=least)
    same_as_cpu(frames, settings.changed(threshold=3.0), least=least)
    # Heights alone count: half of all pixels are high enough to be looked at.
    same_as_cpu(frames, settings.changed(threshold=0.0, min_distance=9), least=least)


@pytest.mark.parametrize("shape", SHAPES)
def test_candidates_in_small_frames_are_the_cpus(same_as_cpu, shape):
    frames = np.random.default_rng(55).normal(0, 30, (5, *shape)).astype(np.float32)
    # A band much wider than the frame is made of nothing but rounding.
    for sigma in (0.5, 2.0, 10.0) if max(shape) > 20 else (0.5, 2.0):
        settings = Settings(sigma=sigma, noise=NoiseModel(0, 900, 900), false_spots=1e5)
        same_as_cpu(frames, settings, least=shape == (96, 64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e29, -3e38])
def test_candidates_beside_bad_pixels_are_the_cpus(same_as_cpu, bad, dtype):
    same_as_cpu(beside_bad_pixels(bad, dtype), Settings(sigma=1.3, noise=NOISE), least=20)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_hot_pixels_are_replaced_as_on_the_cpu(same_as_cpu, dtype, sigma):
    frames, variances = hot_frames(dtype)
    settings = Settings(sigma=sigma, noise=NOISE)
    found = same_as_cpu(frames, settings, least=80)
    assert len(found.y) < 120  # of 60 spots in each of two frames, none of 70 hot pixels
    with_map = same_as_cpu(frames, settings, variance_map=variances, least=80)
    assert not np.array_equal(found.score, with_map.score)


def test_masks_choose_as_on_the_cpu(same_as_cpu):
    frames, _ = hot_frames(np.uint16)
    rng = np.random.default_rng(59)
    for mask in (rng.uniform(size=frames.shape[1:]) < 0.5, rng.uniform(size=frames.shape) < 0.5):
        for distance in (1.0, 2.0, 12.0):
            settings = Settings(sigma=1.3, noise=NOISE, min_distance=distance)
            same_as_cpu(frames, settings, mask, least=20)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_plateaus_are_merged_as_on_the_cpu(same_as_cpu, dtype):
    frames = saturated(dtype)
    for distance in (2.0, 25.0):
        settings = Settings(sigma=1.3, noise=NOISE, min_distance=distance)
        found = same_as_cpu(frames, settings, least=4)
        assert len(np.unique(found.frame)) == 4


def test_crowds_are_joined_as_on_the_cpu(same_as_cpu):
    rng = np.random.default_rng(57)
    frames = movie_of(rng, scattered(rng, (256, 256), 2400), 3, (256, 256), photons=4000)
    for distance in (1.0, 2.0, 5.0):
        settings = Settings(sigma=1.3, noise=NOISE, min_distance=distance)
        same_as_cpu(frames.astype(np.uint16), settings, least=1500)


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0])
def test_texture_is_left_out_as_on_the_cpu(same_as_cpu, sigma):
    rng = np.random.default_rng(61)
    shape = (200, 250)
    spots = light(scattered(rng, shape, 30), 6000, sigma, shape)
    lengths = np.array([1.3, 1.9]) * sigma
    frames = np.stack([textured(rng, shape, length, spots) for length in lengths])
    for distance in (1.0, 4.0):
        settings = Settings(sigma=sigma, noise=NOISE, min_distance=distance)
        every = cpu.detect(frames, settings, texture=True)
        found = same_as_cpu(frames, settings, least=40)
        assert len(found.y) < 0.6 * len(every.y)


def test_parts_of_the_work_change_nothing(run, same_as_cpu, monkeypatch):
    rng = np.random.default_rng(60)
    frames = movie_of(rng, scattered(rng, (40, 150), 12), 7, (40, 150)).astype(np.float32)
    frames[5, 10, 10] = np.nan
    frames[2, 20, 31] = 3000
    mask = rng.uniform(size=frames.shape) < 0.8
    settings = Settings(sigma=1.3, noise=NOISE, false_spots=1e4, min_distance=4)
    whole = run(frames, settings, mask)
    assert len(whole.y) > 60
    change(monkeypatch, _LEAST_ROOM=1, _PIXELS_PER_MAXIMUM=frames.size)  # there is room for one
    assert_same(run(frames, settings, mask), whole)
    for size in (1, 3):
        change(monkeypatch, _MOST_FRAMES=size)
        assert_same(run(frames, settings, mask), whole)
    monkeypatch.undo()
    for rows in (1, 7, 40, 100):  # strips of few rows, and of few frames
        change(monkeypatch, _STRIP_BYTES=12 * 150 * rows, _FRAMES_BYTES=12 * 150 * rows)
        assert_same(run(frames, settings, mask), whole)
    change(monkeypatch, _SCRATCH_BYTES=1)  # less than a frame needs
    assert_same(run(frames, settings, mask), whole)
    for pixels in (1, 1 << 15):  # of a launch
        change(monkeypatch, _MOST_PIXELS=pixels)
        assert_same(run(frames, settings, mask), whole)
    for sigma in (0.5, 4.0):
        change(monkeypatch, _STRIP_BYTES=12 * 150 * 11)
        same_as_cpu(frames, settings.changed(sigma=sigma), mask, least=20)


def change(monkeypatch, **constants):
    """Change constants, and discard plans made with others."""
    for name, value in constants.items():
        monkeypatch.setattr(cuda, name, value)
    forget()


@pytest.fixture(autouse=True)
def plans():
    """Discard plans with other constants."""
    yield
    forget()


def forget():
    cuda._plan.cache_clear()
    cuda._plan_and_settings.cache_clear()


@pytest.mark.parametrize("shape", [(2, 520, 1030), (200, 24, 40)])
def test_the_place_in_the_list_is_known_from_all_rows_before(same_as_cpu, shape):
    # More groups of rows than one warp has threads, each of which then sums several.
    n, height, width = shape
    places = [(height / 2, width / 2), (height - 1.0, 5.0), (5.0, width - 7.0)]
    image = light(places, 5000, 1.3, (height, width)) + 20
    rng = np.random.default_rng(61)
    frames = rng.poisson(np.broadcast_to(image, shape)).astype(np.uint16)
    settings = Settings(sigma=1.3, noise=NoiseModel(1.0, 0.0, 1.0), false_spots=100)
    same_as_cpu(frames, settings, least=3 * n)


def test_the_memory_of_a_large_frame_is_planned():
    plan = cuda._plan(host.HOST, np.dtype(np.uint16), (3000, 4000), 1.3)
    room = 3000 * 4000 // cuda._PIXELS_PER_MAXIMUM
    assert 2 + sum(plan.sizes(1, room)) / (3000 * 4000) < 12
    assert sum(plan.sizes(cuda._frames_at_a_time(plan), room)) < cuda._SCRATCH_BYTES
    small = cuda._plan(host.HOST, np.dtype(np.uint16), (256, 256), 1.3)
    assert 500 < cuda._frames_at_a_time(small) <= cuda._MOST_FRAMES


@pytest.mark.gpu
def test_memory_of_a_large_frame(gpu):
    import cupy

    frame = np.random.default_rng(62).poisson(20, (1, 3000, 4000)).astype(np.uint16)
    settings = Settings(sigma=1.3, noise=NoiseModel(1.0, 0.0, 1.0))
    expected = cpu.detect(frame, settings)
    before = cupy.cuda.get_allocator()
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=12 * frame.size)
    cupy.cuda.set_allocator(pool.malloc)
    try:
        assert_alike(cuda.detect(cupy.asarray(frame), settings), expected)
    finally:
        cupy.cuda.set_allocator(before)


@pytest.mark.gpu
def test_frames_beyond_the_kernels_numbers_are_refused(gpu):
    import cupy

    frames = cupy.broadcast_to(cupy.zeros(1, np.uint8), (1, 1 << 16, 1 << 15))
    with pytest.raises(ValueError, match=r"fewer than 2³¹ pixels; got 65536×32768"):
        cuda.detect(frames, Settings(sigma=1.3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("depth", [1, 3, 9])
def test_volumes_show_the_same_spots(run, dtype, depth):
    rng = np.random.default_rng(depth)
    shape = (2, depth, 40, 50)
    volumes = np.full(shape, 20.0)
    z, y, x = np.ogrid[:depth, :40, :50]
    for number in (0, 1):
        for place in rng.uniform(0, (depth - 1, 39, 49), (12, 3)):
            square = ((z - place[0]) / 1.5) ** 2 + ((y - place[1]) ** 2 + (x - place[2]) ** 2) / 1.7
            volumes[number] += 200 * np.exp(-0.5 * square)
    volumes = np.minimum(rng.poisson(volumes), 190).astype(dtype)
    if np.dtype(dtype).kind == "f":
        volumes[0, :, 20:23, 20:24] = np.nan
    volumes[1, :, 5, 7] = 250  # hot
    settings = Settings(
        model="gaussian_3d", sigma=1.3, sigma_z=1.5, noise=NoiseModel(1.0, 0.0, 1.0),
        min_distance=3.0,
    )  # fmt: skip
    mask = rng.random(shape[1:]) < 0.9
    variances = rng.uniform(0, 20, shape[1:]).astype(np.float32)
    for options in ((), (mask, variances)):
        theirs = cpu.detect(volumes, settings, *options)
        ours = run(volumes, settings, *options)
        assert len(theirs.z) >= 5
        for name in ("frame", "z", "y", "x"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_allclose(ours.score, theirs.score, rtol=1e-3)
        np.testing.assert_allclose(ours.height, theirs.height, rtol=1e-3)
