"""Images are named whose noise falls with light, or whose background was taken away and cut off."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scenes import light
from scipy import ndimage

from napari_spotfit import localize
from napari_spotfit.estimation.levelled import is_levelled
from napari_spotfit.settings.noise_model import Process

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


def counts_on(kind, seed=1):
    """Return counts of 40 spots on a gradient or beside cells, with an offset of 100."""
    rng = np.random.default_rng([seed, SIDE])
    base = 25 * (0.3 + 5 * np.indices(SHAPE)[1] / SIDE)
    if kind == "cells":
        inside = ((np.indices(SHAPE) // 64).sum(axis=0) % 2).astype(float)
        base = 10 + 150 * ndimage.gaussian_filter(inside, SIGMA)
    places = rng.uniform(12, SIDE - 12, (40, 2))
    height = 15 * np.sqrt(base[tuple(np.rint(places).astype(int).T)])
    return rng.poisson(base + light(places, height * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)) + 100.0


def process_of(image, sigma):
    """Return the processing that is named, and the text of the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fits = localize(image, sigma=sigma, backend="cpu")
    return fits.settings.noise.process, " ".join(str(one.message) for one in said)


@pytest.mark.parametrize("sigma", [SIGMA, None])
def test_a_logarithm_is_named(sigma):
    """It had up to a third fewer spots, in silence."""
    process, said = process_of(np.log(np.maximum(counts_on("cells") - 98, 1)), sigma)
    assert process == Process.TRANSFORMED
    assert "logarithm" in said
    assert "as the camera took it" in said


def test_a_gamma_below_a_half_is_named():
    assert process_of(np.maximum(counts_on("cells") - 100, 0) ** 0.3, SIGMA)[0]


@pytest.mark.parametrize("sigma", [SIGMA, None])
@pytest.mark.parametrize("kind", ["gradient", "cells"])
def test_raw_images_are_not(kind, sigma):
    assert process_of(counts_on(kind), sigma) == (Process.NONE, "")


def test_saturated_cells_are_raw():
    """Bright pixels that are cut off have less noise."""
    process, _ = process_of(np.minimum(counts_on("cells"), 262), SIGMA)
    assert process != Process.TRANSFORMED


def test_a_wide_band_pass_is_named():
    """Fine detail was gone, and spots were missed in silence."""
    counts = counts_on("gradient")
    band = ndimage.gaussian_filter(counts, 2.26) - ndimage.gaussian_filter(counts, 36)
    process, said = process_of(band, SIGMA)
    assert process == Process.FILTERED
    assert "filtered" in said


def test_a_local_median_that_was_cut_off_is_named():
    """It had 15 good fits of nothing beside 33 spots, in silence."""
    counts = counts_on("gradient")
    cut = np.maximum(counts - ndimage.median_filter(counts, 15), 0)
    process, said = process_of(cut, SIGMA)
    assert process == Process.LEVELLED
    assert "background" in said


@pytest.mark.parametrize("read_out", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("most", [0.3, 1.0, 10.0])
def test_a_camera_cut_off_at_its_offset_levels_nothing(most, read_out):
    rng = np.random.default_rng([int(10 * most), int(10 * read_out)])
    photons = rng.poisson(most * np.indices(SHAPE)[1] / SIDE)
    for counts in (photons, np.where(photons, rng.gamma(np.maximum(photons, 1), 30), 0.0)):
        noisy = np.rint(2 * (counts + rng.normal(0, read_out, SHAPE)))
        assert not is_levelled(np.maximum(noisy, 0))
