"""Detection on a GPU against its twin on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import DTYPES, assert_same, light, movie_of, on_grid, scattered

from napari_spotfit.engine.cpu import detect as cpu
from napari_spotfit.engine.cuda import detect as cuda
from napari_spotfit.settings.settings import Settings

pytestmark = pytest.mark.gpu

#: No larger than what a kernel divides among its blocks and warps, and larger.
SHAPES = [(1, 1), (1, 9), (40, 1), (2, 2), (5, 7), (3, 300), (33, 47), (96, 64)]


@pytest.fixture(scope="module")
def run(gpu):
    """Detect spots in frames in the host's memory, on a GPU."""
    import cupy

    return lambda frames, *options: cuda.detect(cupy.asarray(frames), *options)


def assert_alike(ours, theirs):
    for column in range(3):
        np.testing.assert_array_equal(ours[column], theirs[column])
        assert ours[column].dtype == theirs[column].dtype
    # The last step of the noise's iteration is a matter of rounding, and up to 0.2 %.
    np.testing.assert_allclose(ours.score, theirs.score, rtol=3e-3)
    assert ours.score.dtype == np.float32
    if len(ours.score):
        assert np.median(np.abs(ours.score / theirs.score - 1)) < 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sigma", [0.5, 1.3, 3.0])
def test_candidates_are_the_cpus(run, dtype, sigma):
    rng = np.random.default_rng(54)
    shape = (70, 150)
    movie = movie_of(rng, scattered(rng, shape, 25), 3, shape, photons=600 * sigma**2, sigma=sigma)
    frames = np.clip(movie - 60, 0, 255).astype(dtype)
    for options in (
        Settings(sigma=sigma),
        Settings(sigma=sigma, threshold=3.0, threshold_unit="counts"),
        Settings(sigma=sigma, threshold=0, min_distance=9),
    ):
        theirs = cpu.detect(frames, options)
        assert len(theirs.y) > 40
        assert_alike(run(frames, options), theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_candidates_in_small_frames_are_the_cpus(run, shape):
    frames = np.random.default_rng(55).normal(0, 30, (5, *shape)).astype(np.float32)
    for sigma in (0.5, 2.0, 10.0):
        options = Settings(sigma=sigma, threshold=0.5)
        assert_alike(run(frames, options), cpu.detect(frames, options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e29, -3e38])
def test_candidates_beside_bad_pixels_are_the_cpus(run, bad, dtype):
    rng = np.random.default_rng(56)
    frames = movie_of(rng, on_grid(rng, (64, 64), 16), 3, (64, 64)).astype(dtype)
    frames[0, 30, 40] = bad
    frames[1, 5:30, :20] = bad
    theirs = cpu.detect(frames, Settings())
    assert len(theirs.y) > 20
    assert_alike(run(frames, Settings()), theirs)


def test_crowded_and_textured_frames_have_the_cpus_noise(run):
    rng = np.random.default_rng(57)
    crowd = movie_of(rng, scattered(rng, (128, 128), 400), 1, (128, 128), photons=2000)
    texture = light(scattered(rng, (128, 128), 3000), 900, 1.6, (128, 128))[None] + 1000
    for frames in (crowd.astype(np.uint16), texture.astype(np.float32)):
        theirs = cpu.detect(frames, Settings(threshold=1))
        assert len(theirs.y) > 100
        assert_alike(run(frames, Settings(threshold=1)), theirs)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_plateaus_are_merged_as_on_the_cpu(run, dtype):
    rng = np.random.default_rng(58)
    frames = movie_of(rng, on_grid(rng, (80, 80), 20), 4, (80, 80), photons=20000, sigma=2)
    frames = np.minimum(frames, [[[250]], [[10000]], [[200]], [[251]]]).clip(0, 255).astype(dtype)
    frames[1] = movie_of(rng, on_grid(rng, (80, 80), 20), 1, (80, 80), photons=200)
    if frames.dtype.kind == "f":
        frames[2, 3, 3] = np.nan
    for options in (Settings(), Settings(min_distance=25)):
        theirs = cpu.detect(frames, options)
        assert len(np.unique(theirs.frame)) == 4
        assert_alike(run(frames, options), theirs)


def test_masks_choose_as_on_the_cpu(run):
    rng = np.random.default_rng(59)
    frames = movie_of(rng, scattered(rng, (60, 70), 30), 3, (60, 70)).astype(np.uint16)
    for mask in (rng.uniform(size=(60, 70)) < 0.5, rng.uniform(size=frames.shape) < 0.5):
        for options in (Settings(), Settings(min_distance=12)):
            theirs = cpu.detect(frames, options, mask)
            assert len(theirs.y) > 10
            assert_alike(run(frames, options, mask), theirs)


def test_parts_of_the_work_change_nothing(run, monkeypatch):
    rng = np.random.default_rng(60)
    frames = movie_of(rng, scattered(rng, (40, 150), 12), 7, (40, 150)).astype(np.float32)
    frames[5, 10, 10] = np.nan
    mask = rng.uniform(size=frames.shape) < 0.8
    options = Settings(threshold=2, min_distance=4)
    whole = run(frames, options, mask)
    assert len(whole.y) > 60
    monkeypatch.setattr(cuda, "_PIXELS_PER_MAXIMUM", frames.size)  # most are fetched later
    assert_same(run(frames, options, mask), whole)
    for size in (1, 3):
        monkeypatch.setattr(cuda, "_MOST_FRAMES", size)
        assert_same(run(frames, options, mask), whole)
    monkeypatch.setattr(cuda, "_SCRATCH_BYTES", 1)  # less than a frame needs
    assert_same(run(frames, options, mask), whole)
    for pixels in (1, 1 << 15):  # of a launch
        monkeypatch.setattr(cuda, "_MOST_PIXELS", pixels)
        monkeypatch.setattr(cuda, "_MOST_NUMBERS", pixels)
        assert_same(run(frames, options, mask), whole)


@pytest.mark.parametrize("large", [False, True])
def test_the_place_in_the_list_is_known_from_all_segments_before(run, large, monkeypatch):
    # More segments, 4096 pixels each, than a group has
    if not large:
        monkeypatch.setattr(cuda, "_SMALL_SAMPLE", 1 << 20)
    image = light([(20.0, 20.0), (300.0, 900.0), (519.0, 5.0)], 5000, 1.3, (520, 1030))
    frames = np.random.default_rng(61).poisson(np.stack([image, image[::-1]]) + 20)
    theirs = cpu.detect(frames.astype(np.uint16), Settings(threshold=4))
    assert len(theirs.y) > 20
    assert_alike(run(frames.astype(np.uint16), Settings(threshold=4)), theirs)


def test_memory_of_a_large_frame(gpu):
    import cupy

    frame = np.random.default_rng(62).poisson(20, (1, 3000, 4000)).astype(np.uint16)
    expected = cpu.detect(frame, Settings(threshold=4))
    before = cupy.cuda.get_allocator()
    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=12 * frame.size)
    cupy.cuda.set_allocator(pool.malloc)
    try:
        assert_alike(cuda.detect(cupy.asarray(frame), Settings(threshold=4)), expected)
    finally:
        cupy.cuda.set_allocator(before)


def test_frames_beyond_the_kernels_numbers_are_refused(run):
    import cupy

    frames = cupy.broadcast_to(cupy.zeros(1, np.uint8), (1, 1 << 16, 1 << 15))
    with pytest.raises(ValueError, match=r"fewer than 2³¹ pixels; got 65536×32768"):
        cuda.detect(frames, Settings())
