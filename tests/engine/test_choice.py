"""The choice of "auto" at the limits of its rule in engine/select.py."""

from __future__ import annotations

import pytest

from napari_spotfit import Settings
from napari_spotfit.engine.select import gpu_pays_off_for_fits, gpu_pays_off_for_search

LEAST_SQUARES = Settings()


@pytest.mark.parametrize(
    ("settings", "side", "least"),
    [
        # 110 µs of a core: 130 ns for a fit and 1.1 for each pixel, or 9 for each pixel.
        (LEAST_SQUARES, 7, 599),
        (LEAST_SQUARES, 9, 503),
        (LEAST_SQUARES, 32, 88),
        (LEAST_SQUARES.changed(model="gaussian_elliptical"), 9, 503),
        (LEAST_SQUARES.changed(model="gaussian_rotated"), 9, 151),
        (LEAST_SQUARES.changed(estimator="mle"), 9, 151),
        (LEAST_SQUARES.changed(estimator="wlse"), 9, 151),
        (LEAST_SQUARES.changed(estimator="mle"), 32, 12),
        # Large ones: 81000 pixels.
        (LEAST_SQUARES, 33, 75),
        (LEAST_SQUARES, 284, 2),
        (LEAST_SQUARES, 285, 1),
        (LEAST_SQUARES.changed(model="gaussian_rotated"), 284, 2),
    ],
)
def test_fits_from_the_host(settings, side, least):
    assert not gpu_pays_off_for_fits(settings, least - 1, (side, side))
    assert gpu_pays_off_for_fits(settings, least, (side, side))
    assert not gpu_pays_off_for_fits(settings, 0, (side, side))


def test_pixels_that_count_less_take_the_longer_way():
    assert not gpu_pays_off_for_fits(LEAST_SQUARES, 200, (9, 9))
    assert gpu_pays_off_for_fits(LEAST_SQUARES, 200, (9, 9), weighted=True)


def test_rectangles_count_by_their_pixels():
    assert gpu_pays_off_for_fits(LEAST_SQUARES, 503, (3 * 9, 3))
    assert not gpu_pays_off_for_fits(LEAST_SQUARES, 502, (3, 3 * 9))


def test_images_from_the_host():
    assert not gpu_pays_off_for_search((1 << 18) - 1)
    assert gpu_pays_off_for_search(1 << 18)
