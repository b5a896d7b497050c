"""Blank images whose noise is less than a step between values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from napari_spotfit import noise_model
from napari_spotfit.estimation.few_values import has_few_independent_values


@pytest.mark.parametrize("read", [0.2, 0.25, 0.3, 0.35, 0.5])
def test_blank_images_of_hardly_any_noise_are_raw(read):
    """Half of them were called denoised, or deconvolved."""
    for seed in range(6):
        counts = 100 + np.random.default_rng(seed).normal(0, read, (96, 96))
        assert not noise_model(np.rint(counts).astype(np.uint16)).process


FILTERS = {
    "median": lambda image: ndimage.median_filter(np.rint(image), 3),
    "blurred": lambda image: ndimage.gaussian_filter(3 * image, 1),
    "sharpened": lambda image: image + 2 * (image - ndimage.gaussian_filter(image, 1)),
}


@pytest.mark.parametrize("change", FILTERS.values(), ids=FILTERS)
def test_few_values_that_go_by_others_are_no_raw_ones(change):
    for seed in range(6):
        image = np.random.default_rng(seed).normal(100, 0.4, (96, 96))
        assert not has_few_independent_values(np.rint(change(image)), 1.0)
