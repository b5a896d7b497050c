"""Detection's kernels on the host, against the CPU's twin, NumPy and SciPy."""

from __future__ import annotations

from functools import partial

import emulated
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scenes import (
    DTYPES,
    assert_same,
    filtered_by_scipy,
    filtered_by_us,
    light,
    movie_of,
    noise_of,
    on_grid,
    scattered,
)

from napari_spotfit.engine.cpu import detect as cpu
from napari_spotfit.engine.cuda import detect as cuda
from napari_spotfit.engine.detection.band import CLIP, KEPT_VARIANCE, make_band
from napari_spotfit.settings.settings import Settings

#: No larger than what a kernel divides among its blocks and warps, and larger.
SHAPES = [(1, 1), (1, 9), (40, 1), (2, 2), (5, 7), (3, 300), (33, 47), (96, 64)]


class Stages:
    """A memory that remembers what the kernels have left there."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.device = cuda.Device(
            0, self._allocate, lambda array: array.ctypes.data, np.asarray, np.asarray, _kernel
        )

    def _allocate(self, size):
        # Large numbers of any type, so that nothing may rely on zeros.
        self.memory = np.full(size, 0x7B, np.uint8)
        return self.memory

    def run(self, frames, settings=None, mask=None):
        return cuda.detect_on(self.device, frames, settings or Settings(), mask)

    def left(self, frames, sigma, index, dtype):
        """Return one of the arrays that the kernels made of frames."""
        sizes = cuda._plan(self.device, frames.dtype, frames.shape[1:], sigma).sizes
        offset = sum(-(-size * len(frames) // 256) * 256 for size in sizes[:index])
        return self.memory[offset : offset + sizes[index] * len(frames)].view(dtype)


def _kernel(file, name, **macros):
    return partial(emulated.launch, file, name, **macros)


@pytest.fixture(scope="module")
def stages():
    return Stages()


LEVELS, FILTERED, SPREADS = 0, 2, 4


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
def test_levels_are_medians_of_pixels(stages, dtype):
    rng = np.random.default_rng(50)
    frames = rng.integers(0, 9, (4, 50, 60)).astype(dtype)
    frames[1] = rng.integers(0, 100, (50, 60))
    if frames.dtype.kind == "f":
        frames[2].flat[::3] = np.nan
        frames[2].flat[1::3] = -np.inf
        frames[3] = np.nan
    stages.run(frames)
    for frame, level in zip(frames, stages.left(frames, 1.3, LEVELS, dtype), strict=True):
        sample = frame.ravel()[(2 * np.arange(63) + 1) * frame.size // 126]
        good = np.sort(sample[np.isfinite(sample)])
        assert level == (good[len(good) // 2] if len(good) else 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sigma", [0.5, 1.3, 4.0, 10.0])
def test_band_pass_is_scipys(stages, shape, sigma):
    rng = np.random.default_rng(51)
    frames = rng.integers(0, 60000, (2, *shape)).astype(np.uint16)
    stages.run(frames, Settings(sigma=sigma))
    ours = stages.left(frames, sigma, FILTERED, np.float32).reshape(frames.shape)
    for frame, result in zip(frames, ours, strict=True):
        np.testing.assert_allclose(result, filtered_by_scipy(frame, sigma), rtol=0, atol=0.02)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_band_pass_of_good_pixels_is_the_cpus(stages, shape, dtype):
    rng = np.random.default_rng(52)
    frames = rng.normal(500, 20, (3, *shape)).astype(dtype)
    for bad in (np.nan, np.inf, -1e36):  # many, one and none of the frames' pixels
        frames[0][rng.uniform(size=shape) < 0.1] = bad
    frames[0, : shape[0] // 3, : shape[1] // 3] = np.nan
    frames[1, -1, -1] = np.inf
    stages.run(frames)
    ours = stages.left(frames, 1.3, FILTERED, np.float32).reshape(frames.shape)
    theirs, _ = filtered_by_us(frames, 1.3)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-4)


@pytest.mark.parametrize("shape", [(33, 47), (96, 64), (3, 900), (150, 130)])
def test_spreads_are_those_of_a_plain_iteration(stages, shape):
    rng = np.random.default_rng(53)
    frames = rng.normal(500, 20, (2, *shape))
    frames[1, :, : shape[1] // 2] = 500
    stages.run(frames)
    filtered = stages.left(frames, 1.3, FILTERED, np.float32).reshape(frames.shape)
    spreads = stages.left(frames, 1.3, SPREADS, np.float32).reshape(2, 4)
    step = make_band(1.3, shape).row_step
    for frame, image, ours in zip(frames, filtered, spreads, strict=True):
        samples = [image[step // 2 :: step]]
        for by_y, by_x in ((1, 1), (1, 2), (2, 1)):
            detail = second_differences(second_differences(frame, by_y).T, by_x).T / 6
            samples.append(detail[step // 2 :: step])
        expected = [clipped_deviation(sample.ravel()) for sample in samples]
        np.testing.assert_allclose(ours, expected, rtol=0.03)


def second_differences(image, by):
    return image[: -2 * by] - 2 * image[by:-by] + image[2 * by :]


def clipped_deviation(sample):
    sample = np.abs(sample[np.abs(sample) > 1e-9])
    deviation = sample.max(initial=0)
    for _ in range(1000):
        inside = sample[sample < CLIP * deviation]
        if not len(inside):
            break
        deviation = np.sqrt(np.mean(inside**2) / KEPT_VARIANCE)
    return deviation


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sigma", [0.5, 1.3, 3.0])
def test_candidates_are_the_cpus(stages, dtype, sigma):
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
        assert_alike(stages.run(frames, options), theirs)
    for unit in ("noise", "counts"):
        assert len(stages.run(frames, Settings(threshold=1e300, threshold_unit=unit)).y) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_candidates_in_small_frames_are_the_cpus(stages, shape):
    frames = np.random.default_rng(55).normal(0, 30, (5, *shape)).astype(np.float32)
    for sigma in (0.5, 2.0, 10.0):
        options = Settings(sigma=sigma, threshold=0.5)
        assert_alike(stages.run(frames, options), cpu.detect(frames, options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e29, -3e38])
def test_candidates_beside_bad_pixels_are_the_cpus(stages, bad, dtype):
    rng = np.random.default_rng(56)
    frames = movie_of(rng, on_grid(rng, (64, 64), 16), 3, (64, 64)).astype(dtype)
    frames[0, 30, 40] = bad
    frames[1, 5:30, :20] = bad
    theirs = cpu.detect(frames, Settings())
    assert len(theirs.y) > 20
    assert_alike(stages.run(frames, Settings()), theirs)


@pytest.mark.parametrize("value", [0, 0.1, 1e17 / 3, np.nan, np.inf, -1e300])
def test_frames_without_contrast_are_empty(stages, value):
    frames = np.full((2, 40, 50), float(value))
    assert len(stages.run(frames, Settings(threshold=0)).y) == 0


def test_crowded_and_textured_frames_have_the_cpus_noise(stages):
    rng = np.random.default_rng(57)
    crowd = movie_of(rng, scattered(rng, (128, 128), 400), 1, (128, 128), photons=2000)
    texture = filtered_by_scipy(rng.normal(0, 1000, (128, 128)), 1.2)[None] + 1000
    for frames in (crowd.astype(np.uint16), texture.astype(np.float32)):
        theirs = cpu.detect(frames, Settings(threshold=1))
        assert len(theirs.y) > 100
        assert_alike(stages.run(frames, Settings(threshold=1)), theirs)
    # The bound by single pixels counts for the crowd, not for the texture.
    stages.run(crowd.astype(np.uint16))
    plain = stages.left(crowd.astype(np.uint16), 1.3, SPREADS, np.float32)[0]
    assert noise_of(crowd.astype(np.uint16))[0] < 0.9 * plain


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_plateaus_are_merged_as_on_the_cpu(stages, dtype):
    rng = np.random.default_rng(58)
    frames = movie_of(rng, on_grid(rng, (80, 80), 20), 4, (80, 80), photons=20000, sigma=2)
    frames = np.minimum(frames, [[[250]], [[10000]], [[200]], [[251]]]).clip(0, 255).astype(dtype)
    frames[1] = movie_of(rng, on_grid(rng, (80, 80), 20), 1, (80, 80), photons=200)
    if frames.dtype.kind == "f":
        frames[2, 3, 3] = np.nan
    for options in (Settings(), Settings(min_distance=25)):
        theirs = cpu.detect(frames, options)
        assert len(np.unique(theirs.frame)) == 4
        assert_alike(stages.run(frames, options), theirs)


def test_masks_choose_as_on_the_cpu(stages):
    rng = np.random.default_rng(59)
    frames = movie_of(rng, scattered(rng, (60, 70), 30), 3, (60, 70)).astype(np.uint16)
    for mask in (rng.uniform(size=(60, 70)) < 0.5, rng.uniform(size=frames.shape) < 0.5):
        for options in (Settings(), Settings(min_distance=12)):
            theirs = cpu.detect(frames, options, mask)
            assert len(theirs.y) > 10
            assert_alike(stages.run(frames, options, mask), theirs)
    with pytest.raises(ValueError, match=r"\(60, 70\) or \(3, 60, 70\); got \(70, 60\)"):
        stages.run(frames, Settings(), mask[0].T)


def test_blocks_of_frames_and_of_candidates_change_nothing(stages, monkeypatch):
    rng = np.random.default_rng(60)
    frames = movie_of(rng, scattered(rng, (40, 50), 12), 7, (40, 50)).astype(np.float32)
    frames[5, 10, 10] = np.nan
    mask = rng.uniform(size=frames.shape) < 0.8
    options = Settings(threshold=2, min_distance=4)
    whole = stages.run(frames, options, mask)
    assert len(whole.y) > 60
    monkeypatch.setattr(cuda, "_PIXELS_PER_CANDIDATE", frames.size)  # most are fetched later
    assert_same(stages.run(frames, options, mask), whole)
    for size in (1, 3):
        monkeypatch.setattr(cuda, "_MOST_FRAMES", size)
        assert_same(stages.run(frames, options, mask), whole)
    monkeypatch.setattr(cuda, "_SCRATCH_BYTES", 1)  # less than a frame needs
    assert_same(stages.run(frames, options, mask), whole)


def test_the_place_in_the_list_is_known_from_all_segments_before(stages):
    # More segments, 4096 pixels each, than a block has threads
    image = light([(20.0, 20.0), (300.0, 900.0), (519.0, 5.0)], 5000, 1.3, (520, 1030))
    frames = np.random.default_rng(61).poisson(np.stack([image, image[::-1]]) + 20)
    theirs = cpu.detect(frames.astype(np.uint16), Settings(threshold=4))
    assert len(theirs.y) > 20
    assert_alike(stages.run(frames.astype(np.uint16), Settings(threshold=4)), theirs)


@pytest.mark.parametrize("shape", [(0, 10, 10), (3, 0, 10), (3, 10, 0)])
def test_no_pixels_no_spots(stages, shape):
    found = stages.run(np.zeros(shape, np.uint16), Settings(), np.zeros(shape, bool))
    assert [column.shape for column in found] == [(0,)] * 5
    assert [column.dtype for column in found] == [np.int64] * 3 + [np.float32] * 2


def test_frames_beyond_the_kernels_numbers_are_refused(stages):
    frames = np.broadcast_to(np.zeros(1, np.uint8), (1, 1 << 16, 1 << 15))
    with pytest.raises(ValueError, match=r"fewer than 2³¹ pixels; got 65536×32768"):
        stages.run(frames)


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.dtype(dtype) for dtype in DTYPES]),
        hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=12),
        fill=st.nothing(),
    ),
    st.floats(0, 8),
    st.sampled_from(["noise", "counts"]),
    st.floats(0.5, 10),
    st.floats(1, 10),
)
def test_anything_goes(stages, frames, threshold, unit, sigma, distance):
    options = Settings(threshold=threshold, threshold_unit=unit, sigma=sigma, min_distance=distance)
    found = stages.run(frames, options)
    place = (found.frame, found.y, found.x)
    frames[place]  # inside
    assert np.isfinite(found.score).all()
    assert (found.score > (threshold if unit == "noise" else 0)).all()
    np.testing.assert_array_equal(np.lexsort(place[::-1]), np.arange(len(found.y)))
