"""The noise of a frame, whatever is in it."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import (
    filtered_by_scipy,
    movie_of,
    noise_of,
    scattered,
)
from scipy.ndimage import gaussian_filter

from napari_spotfit.engine.cpu.detect import detect
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.detection import band
from napari_spotfit.engine.kernel_arguments import address
from napari_spotfit.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("instruction_set")


@pytest.mark.parametrize("shape", [(64, 64), (256, 256), (100, 700), (1200, 900)])
@pytest.mark.parametrize("sigma", [0.7, 1.3, 4.0])
def test_noise_of_white_noise(shape, sigma):
    rng = np.random.default_rng(13)
    frames = rng.normal(200, 7, (3, *shape))
    expected = band.make_band(sigma, shape).gain * 7
    # As precise as the number of independent filtered pixels allows.
    tolerance = 3 * sigma / np.sqrt(min(shape[0] * shape[1], 8192)) + 0.02
    np.testing.assert_allclose(noise_of(frames, sigma), expected, rtol=tolerance)


@pytest.mark.parametrize(("count", "most"), [(0, 1.05), (45, 1.1), (400, 1.6), (1200, 5)])
@pytest.mark.parametrize("photons", [300, 1000, 5000])
def test_noise_does_not_grow_with_spots(count, most, photons):
    rng = np.random.default_rng(14)
    empty = noise_of(movie_of(rng, np.zeros((0, 2)), 1, (256, 256)).astype(float))
    movie = movie_of(rng, scattered(rng, (256, 256), count), 2, (256, 256), photons=photons)
    ratio = noise_of(movie.astype(float)) / empty
    assert (ratio > 0.94).all()
    assert (ratio < most).all()
    if count == 1200:  # it would have been hopeless
        assert np.std(filtered_by_scipy(movie[0], 1.3)) / empty[0] > 2 * ratio[0] or photons == 300


@pytest.mark.parametrize("side", [250, 180, 110])
def test_noise_is_that_of_the_area_that_has_some(side):
    rng = np.random.default_rng(15)
    frame = np.full((1, 256, 256), 300.0)
    frame[:, :side, -side:] += rng.normal(0, 5, (side, side))
    whole = noise_of(rng.normal(300, 5, (1, 256, 256)))[0]
    assert noise_of(frame)[0] == pytest.approx(whole, rel=0.3)
    assert len(detect(frame, Settings()).y) <= 1


def test_noise_of_blurred_images_is_not_that_of_single_pixels():
    rng = np.random.default_rng(16)
    for blur in (0.4, 0.7, 1.0, 1.5):
        image = gaussian_filter(rng.normal(0, 1, (1, 256, 256)), (0, blur, blur))
        measured = noise_of(image)[0]
        assert measured == pytest.approx(np.std(filtered_by_scipy(image[0], 1.3)), rel=0.1)


def test_deviation_of_a_large_sample_is_that_in_double_precision():
    library = load()
    sample = np.random.default_rng(17).normal(0, 3, 3_000_001).astype(np.float32)
    exact = sample.astype(float)
    # As kernels/detection.h has it: what is beyond 1.5 deviations is left out, again and again.
    deviation = np.abs(exact).max()
    while True:
        kept = exact[np.abs(exact) < 1.5 * deviation]
        change = np.sqrt(np.mean(kept**2) / 0.5515244157615512) / deviation
        if change > 0.999:
            break
        deviation *= max(change**2, 0.8 * change)
    with_room = np.append(sample, np.empty(16, np.float32))
    ours = library.functions.spotfit_deviation(library.index, address(with_room), sample.size)
    assert ours == pytest.approx(deviation, rel=2e-6)
