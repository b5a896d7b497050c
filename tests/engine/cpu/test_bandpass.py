"""The band-pass against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import border_of, filtered_by_scipy, filtered_by_us
from scipy.ndimage import gaussian_filter

from napari_spotfit.engine import bands
from napari_spotfit.engine.cpu.layouts import MAX_RADIUS
from napari_spotfit.settings.settings import parameters

pytestmark = pytest.mark.usefixtures("instruction_set")


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.3, 3.0, 10.0])
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 9), (40, 1), (2, 2), (5, 7), (33, 47), (96, 64), (300, 700)]
)
def test_band_pass_is_scipys(sigma, shape):
    rng = np.random.default_rng(9)
    frames = rng.integers(0, 60000, (2, *shape)).astype(np.uint16)
    ours = filtered_by_us(frames, sigma)
    for frame, result in zip(frames, ours, strict=True):
        np.testing.assert_allclose(result, filtered_by_scipy(frame, sigma), rtol=0, atol=0.02)


def test_band_pass_is_exact_on_a_high_level():
    rng = np.random.default_rng(10)
    frames = 1e9 + rng.normal(0, 1, (1, 40, 40))
    ours = filtered_by_us(frames, 1.3)
    np.testing.assert_allclose(ours[0], filtered_by_scipy(frames[0] - 1e9, 1.3), rtol=0, atol=1e-5)


def test_border_noise_is_what_scipy_makes_of_white_noise():
    rng = np.random.default_rng(11)
    white = rng.normal(0, 1, (4000, 44, 40))
    spread = np.array([filtered_by_scipy(frame, 1.3) for frame in white]).std(axis=0)
    ours, border = bands.make_bands(1.3, (44, 40)), border_of(1.3, (44, 40))
    np.testing.assert_allclose(ours.bands[0].gain, spread[10:-10, 10:-10].mean(), rtol=0.01)
    np.testing.assert_allclose(border * ours.bands[0].gain, spread, rtol=0.06)
    assert ours.lowest_border <= border.min() * (1 + 1e-6)
    # A long axis is distinguished from a short one.
    long = border_of(1.3, (44, 400))
    assert long[12, 200] == pytest.approx(long[12, 100], rel=1e-6)
    np.testing.assert_allclose(long[:, :10], border[:, :10], rtol=1e-5)


def test_the_widest_kernel_has_room():
    assert bands.kernel_radius(bands.WIDTHS[2] * parameters()["sigma"].maximum) == MAX_RADIUS


def test_bad_pixels_are_left_out_of_the_means():
    rng = np.random.default_rng(12)
    frame = rng.normal(500, 20, (40, 50))
    good = rng.uniform(size=frame.shape) > 0.1
    good[10:16, 20:30] = False
    broken = np.where(good, frame, np.nan)
    ours = filtered_by_us(broken[None], 1.3)
    parts = []
    for width in (1.3, 1.3 * bands.WIDTHS[2]):
        options = {"mode": "mirror", "truncate": bands.TRUNCATE}
        weight = gaussian_filter(good.astype(float), width, **options)
        light_ = gaussian_filter(np.where(good, frame - 500, 0), width, **options)
        parts.append((light_ / weight, weight))
    expected = np.where(parts[0][1] > 0.5, parts[0][0] - parts[1][0], 0)
    np.testing.assert_allclose(ours[0], expected, rtol=0, atol=2e-3)
    assert (ours[0][12:14, 23:27] == 0).all()
