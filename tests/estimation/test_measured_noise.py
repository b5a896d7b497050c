"""The noise estimate of frames of any content."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import filtered_by_scipy, movie_of, scattered
from scipy.ndimage import gaussian_filter

from napari_spotfit.engine import bands
from napari_spotfit.engine.cpu.backend import detect
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.kernel_arguments import address
from napari_spotfit.estimation.measured_noise import _mirrored, measure_noise
from napari_spotfit.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("instruction_set")


def deviation_of(frames, counts, sigma=1.3):
    """Return the deviation that detection uses for a pixel with these counts."""
    noise = measure_noise(np.ascontiguousarray(frames), Settings(sigma=sigma))
    return float(np.sqrt(noise.variance(counts)))


@pytest.mark.parametrize("shape", [(40, 40), (64, 64), (256, 256), (100, 700), (1200, 900)])
@pytest.mark.parametrize("sigma", [0.7, 1.3, 4.0])
def test_noise_of_white_noise(shape, sigma):
    rng = np.random.default_rng(13)
    measured = deviation_of(rng.normal(200, 7, (3, *shape)), 200, sigma)
    # As precise as the number of blocks allows, each of which has ten independent numbers.
    blocks = 3 * (shape[0] // 16) * (shape[1] // 16)
    assert measured == pytest.approx(7, rel=3 * 0.28 / np.sqrt(min(blocks, 4096)) + 0.01)


@pytest.mark.parametrize("count", [0, 45, 400, 1200])
@pytest.mark.parametrize("photons", [300, 1000, 5000])
def test_noise_does_not_grow_with_spots(count, photons):
    rng = np.random.default_rng(14)
    movie = movie_of(rng, scattered(rng, (256, 256), count), 2, (256, 256), photons=photons)
    # Where there is no light of spots, a pixel has 10 photons.
    assert 0.75 < deviation_of(movie.astype(float), 110) / np.sqrt(10) < 1.5
    if count == 1200:  # it would have been hopeless
        scatter = (
            np.std(filtered_by_scipy(movie[0], 1.3))
            / bands.make_bands(1.3, (256, 256)).bands[0].gain
        )
        assert scatter > 2 * np.sqrt(10)


@pytest.mark.parametrize("side", [250, 180, 110])
def test_noise_is_that_of_the_area_that_has_some(side):
    rng = np.random.default_rng(15)
    frame = np.full((1, 256, 256), 300.0)
    frame[:, :side, -side:] += rng.normal(0, 5, (side, side))
    assert deviation_of(frame, 300) == pytest.approx(5, rel=0.3)
    settings = Settings(sigma=1.3, noise=measure_noise(frame, Settings(sigma=1.3)))
    # By simulation 1.6: blocks on the edge of the area make the noise 5 % low.
    assert len(detect(frame, settings).y) <= 5


def test_noise_of_blurred_images_is_not_that_of_single_pixels():
    rng = np.random.default_rng(16)
    gain = bands.make_bands(1.3, (256, 256)).bands[0].gain
    for blur in (0.4, 0.7, 1.0, 1.5):
        image = gaussian_filter(rng.normal(0, 1, (1, 256, 256)), (0, blur, blur))
        # As strong as the noise of independent pixels that looks the same to the wide band.
        expected = np.std(filtered_by_scipy(image[0], 1.3)) / gain
        assert deviation_of(image, 0) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("shape", [(3, 12, 40), (1, 40, 40), (2, 9, 9)])
def test_frames_without_a_whole_good_block(shape):
    rng = np.random.default_rng(18)
    frames = rng.normal(50, 4, shape)
    frames[:, shape[1] // 2, ::7] = np.nan
    assert deviation_of(frames, 50) == pytest.approx(4, rel=0.5)


def test_deviation_of_a_large_sample_is_that_in_double_precision():
    library = load()
    sample = np.random.default_rng(17).normal(0, 3, 3_000_001).astype(np.float32)
    exact = sample.astype(float)
    # As kernels/noise.h has it: what is beyond 1.5 deviations is left out, again and again.
    deviation = np.abs(exact).max()
    while True:
        kept = exact[np.abs(exact) < 1.5 * deviation]
        change = np.sqrt(np.mean(kept**2) / 0.5515244157615512) / deviation
        if change > 0.999:
            break
        deviation *= max(change**2, 0.8 * change)
    ours = library.functions.spotfit_deviation(library.index, address(sample), sample.size)
    assert ours == pytest.approx(deviation, rel=2e-6)


def test_long_frames_are_measured_by_a_few_of_their_blocks():
    """Their noise must not take long, nor differ from that of all blocks."""
    for fine in (False, True):
        for side in (1, 7, 16, 40, 47, 100):
            whole = mirrored_in_full(side, fine)
            np.testing.assert_allclose(_mirrored(side, fine), whole, rtol=1e-12)
        assert abs(_mirrored(10**12, fine) - 1) < 1e-9


def mirrored_in_full(side, fine):
    """Return the mean square of detail of white noise of 1 in all blocks along an axis."""
    distance = np.arange(-6, 7)
    taps = np.exp(-(distance**2) / 8) * np.where(fine, (-1.0) ** distance, 1)
    taps /= np.linalg.norm(taps)
    one = np.eye(side)
    padded = np.pad(one, ((0, 0), (0, max(16 - side, 0))), mode="reflect")
    beside = np.pad(padded, ((0, 0), (6, 6)), mode="reflect")
    detail = np.array([np.convolve(row, taps, "valid") for row in beside])
    return (detail**2).sum(axis=0)[: padded.shape[1] // 16 * 16].mean()


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300, -1e300, np.nan])
@pytest.mark.parametrize("share", [0.001, 0.02])
def test_senseless_pixels_say_nothing(value, share):
    rng = np.random.default_rng(3)
    frames = rng.normal(100.0, 5.0, (1, 128, 128))
    frames[rng.random(frames.shape) < share] = value
    noise = measure_noise(frames, Settings(sigma=1.3))
    assert noise.variance(100.0) == pytest.approx(25.0, rel=0.2)
