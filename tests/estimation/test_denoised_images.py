"""Denoised images are named, and have few false spots; raw ones with edges and crowds are not."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from noisy_scenes import hits, noisy_scenes
from PIL import Image
from scenes import light
from scipy import ndimage

from napari_spotfit import NoiseModel, Settings, localize
from napari_spotfit.estimation.dark_maxima import times_as_strong
from napari_spotfit.estimation.denoised import looks_denoised
from napari_spotfit.estimation.measured_noise import measured_blocks
from napari_spotfit.estimation.photon_transfer import fine_detail, photon_transfer

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)


def looked_at(image, sigma=SIGMA, **options):
    """Return y and x of the good fits, and whether a warning says what was probably done."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fits = localize(image, sigma=sigma, backend="cpu", **options)
    places = np.column_stack([fits.y, fits.x])[fits.good].astype(float)
    return places, any("probably" in str(one.message) for one in said)


def is_denoised(image):
    """Return whether an image looks denoised beside its own noise."""
    frames = np.asarray(image, np.float64)[np.newaxis]
    measured = measured_blocks(frames, Settings(sigma=SIGMA, threads=1))
    noise = photon_transfer(measured.blocks, measured.step)
    detail = fine_detail(measured.blocks, noise, measured.step)
    return looks_denoised(list(frames), noise, detail)


def on(kind, seed=1):
    """Return counts on a blank field, on cells, or of spots, and y and x of these."""
    rng = np.random.default_rng([seed, SIDE])
    base, places = np.full(SHAPE, 20.0), np.empty((0, 2))
    if kind == "cells":
        inside = (np.indices(SHAPE) // 64).sum(axis=0) % 2
        base = 10 + 150 * ndimage.gaussian_filter(inside.astype(float), SIGMA)
    if kind == "spots":
        places = rng.uniform(10, SIDE - 10, (40, 2))
        base = base + light(places, 85 * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)
    return rng.poisson(base) + 100.0, places


def by_skimage(name, **options):
    """Return a denoiser of scikit-image for images of any scale."""

    def denoised(image):
        restoration = pytest.importorskip("skimage.restoration")
        low, high = image.min(), image.max()
        scaled = getattr(restoration, name)((image - low) / (high - low), **options)
        return scaled * (high - low) + low

    return denoised


def without_patches(image, strength=0.8):
    """Average similar patches of an image."""
    restoration = pytest.importorskip("skimage.restoration")
    noise = np.std(np.diff(image)) / 2**0.5
    return restoration.denoise_nl_means(image, 5, 5, h=strength * noise)


def shrunken(image, times=3.0, levels=3):
    """Take an image's Haar coefficients nearer to 0, by so many deviations of the finest."""
    if not levels:
        return image
    low, high = (image[::2] + image[1::2]) / 2**0.5, (image[::2] - image[1::2]) / 2**0.5
    parts = [
        (one[:, ::2] + sign * one[:, 1::2]) / 2**0.5 for one in (low, high) for sign in (1, -1)
    ]
    least = times * np.median(abs(parts[3])) / 0.6745
    coarse = shrunken(parts[0], times, levels - 1)
    fine = [np.sign(one) * np.maximum(abs(one) - least, 0) for one in parts[1:]]
    rows = []
    for even, odd in ((coarse, fine[0]), (fine[1], fine[2])):
        row = np.empty((even.shape[0], 2 * even.shape[1]))
        row[:, ::2], row[:, 1::2] = (even + odd) / 2**0.5, (even - odd) / 2**0.5
        rows.append(row)
    whole = np.empty((2 * rows[0].shape[0], rows[0].shape[1]))
    whole[::2], whole[1::2] = (rows[0] + rows[1]) / 2**0.5, (rows[0] - rows[1]) / 2**0.5
    return whole


def diffused(image, rounds=5):
    """Smooth an image but for its edges."""
    scale = np.std(np.diff(image))
    for _ in range(rounds):
        steps = [np.roll(image, way, axis) - image for axis in (0, 1) for way in (1, -1)]
        image = image + 0.2 * sum(step * np.exp(-((step / scale) ** 2)) for step in steps)
    return image


def as_jpeg_2000(image, times=20):
    """Compress a copy of 8 bits to one in so many parts."""
    low, high = image.min(), image.max()
    file = io.BytesIO()
    copy = Image.fromarray(np.rint((image - low) / (high - low) * 255).astype(np.uint8))
    copy.save(file, "JPEG2000", quality_mode="rates", quality_layers=[times], irreversible=True)
    return np.asarray(Image.open(file))


def variation(weight):
    return by_skimage("denoise_tv_chambolle", weight=weight)


def then_median(way):
    return lambda image: ndimage.median_filter(way(image), 3)


def from_neighbours(image):
    """Take the mean around a pixel for it, as what is trained without its own value does."""
    weights = np.exp(-(np.hypot(*np.mgrid[-3:4, -3:4]) ** 2) / 2)
    weights[3, 3] = 0
    return ndimage.convolve(image, weights / weights.sum(), mode="mirror")


BILATERAL = by_skimage("denoise_bilateral", win_size=5, sigma_color=0.1, sigma_spatial=1.5)
DISC = np.hypot(*np.mgrid[-2:3, -2:3]) < 2.3
DENOISERS = {
    "total variation .03": (variation(0.03), "blank cells spots"),
    "total variation .1": (variation(0.1), "blank cells spots"),
    "split Bregman": (by_skimage("denoise_tv_bregman", weight=10), "blank cells spots"),
    "total variation, rounded": (lambda a: np.rint(variation(0.1)(a)), "blank cells"),
    "total variation, median": (then_median(variation(0.05)), "blank cells spots"),
    "top hat, total variation": (
        lambda image: variation(0.1)(ndimage.white_tophat(image, 9)), "cells",
    ),
    "bilateral": (BILATERAL, "cells"),
    "bilateral, median": (then_median(BILATERAL), "blank cells spots"),
    "non-local means": (without_patches, "cells"),
    "non-local means, weak": (lambda image: without_patches(image, 0.6), "blank cells spots"),
    "Haar": (shrunken, "cells"),
    "Haar, weak": (lambda image: shrunken(image, 1.0), "blank cells"),
    "neighbours": (from_neighbours, "blank spots"),
    "median 2×2": (lambda image: ndimage.median_filter(image, 2), "blank cells spots"),
    "median 3×3": (lambda image: ndimage.median_filter(image, 3), "blank cells spots"),
    "median in a disc": (
        lambda image: ndimage.median_filter(image, footprint=DISC), "blank cells spots",
    ),
    "diffusion": (diffused, "blank cells"),
    "JPEG 2000": (as_jpeg_2000, "blank cells spots"),
}  # fmt: skip


#: Of an unknown width, spots of 0.6 px are found in what these leave of a blank field.
SHARP = ("total variation .1", "total variation, rounded", "diffusion")


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("sigma", [SIGMA, None])
def test_denoised_images_are_named_and_have_few_false_spots(name, sigma):
    """Up to 13,900 good fits per Mpx were of nothing, in silence."""
    way, kinds = DENOISERS[name]
    for kind in kinds.split():
        counts, truth = on(kind)
        places, said = looked_at(way(counts), sigma)
        right = hits(places, truth, 2)
        assert said, kind
        if sigma or kind != "blank" or name not in SHARP:
            assert len(places) - right <= 6, kind  # 30 per Mpx, and chance
        assert right >= 0.8 * len(truth), kind


@pytest.mark.parametrize("spots", [0, 150, 500])
@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.3])
def test_raw_images_with_edges_are_not_denoised(sigma, spots):
    for scene in noisy_scenes(sigma, SIDE, 1, spots, seed=316):
        if scene.name in ("cells 200", "cells 2000", "nuclei", "EMCCD 1", "sCMOS", "hot pixels"):
            assert not is_denoised(scene.frames[0]), scene.name


@pytest.mark.parametrize("sigma", [0.6, 0.8, 1.3, 2.0])
@pytest.mark.parametrize(("photons", "density"), [
    (1e6, 0.05), (1e5, 0.3), (1e4, 1), (3000, 2.5), (1e5, 4),
])  # fmt: skip
def test_raw_spots_are_not_denoised(photons, density, sigma):
    rng = np.random.default_rng(3)
    truth = rng.uniform(0, SIDE - 1, (round(density * SIDE**2 / 100), 2))
    counts = rng.poisson(10 + light(truth, photons, sigma, SHAPE)).astype(float)
    assert not looked_at(counts, sigma, neighbours="exclude")[1]


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("kind", ["blank", "cells", "spots"])
def test_linear_filters_are_no_denoisers(kind, width):
    """Their noise is normal, and known by how strong it is in the band of spots."""
    counts, _ = on(kind)
    assert not is_denoised(ndimage.gaussian_filter(counts, width))


def guided(image, reach=1, strength=0.5):
    """Smooth an image but where it varies by more than a multiple of its noise."""
    noise = strength * np.var(np.diff(image)) / 2
    mean, square = (ndimage.uniform_filter(one, 2 * reach + 1) for one in (image, image * image))
    share = (square - mean**2) / (square - mean**2 + noise)
    own, level = (ndimage.uniform_filter(one, 2 * reach + 1) for one in (share, mean * (1 - share)))
    return own * image + level


def by_local_variance(image, side=5):
    """Take each pixel nearer to the mean around it, the less it varies there."""
    mean, square = (ndimage.uniform_filter(one, side) for one in (image, image * image))
    varies = np.maximum(square - mean**2, 0)
    return mean + (image - mean) * varies / (varies + np.var(np.diff(image)) / 2)


def as_jpeg(image):
    """Compress a copy of 8 bits."""
    low, high = image.min(), image.max()
    file = io.BytesIO()
    copy = Image.fromarray(np.rint((image - low) / (high - low) * 255).astype(np.uint8))
    copy.save(file, "JPEG", quality=90)
    return np.asarray(Image.open(file))


def between_gaussians(image):
    return ndimage.gaussian_filter(image, 1) - ndimage.gaussian_filter(image, 2)


#: They leave more noise on bright cells, or beside edges, than the light there says.
UNEVEN = {"guided": guided, "local variance": by_local_variance, "JPEG": as_jpeg,
          "difference of Gaussians": between_gaussians}  # fmt: skip


@pytest.mark.parametrize("name", UNEVEN)
def test_noise_that_is_left_beside_edges_is_named_and_makes_few_spots(name):
    """Up to 270 good fits of nothing in a frame, in silence."""
    counts, truth = on("cells", 11)
    places, said = looked_at(UNEVEN[name](counts))
    assert said
    assert len(places) - hits(places, truth, 2) <= 6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sigma", [SIGMA, None])
def test_raw_cells_have_no_more_dark_maxima_than_their_noise_makes(sigma, seed):
    counts, _ = on("cells", seed)
    assert not looked_at(counts, sigma)[1]


def dark_times(image, noise):
    return times_as_strong(np.asarray(image, float)[np.newaxis], noise, SIGMA)


def test_dark_maxima_show_how_strong_noise_is():
    rng, deviation = np.random.default_rng(5), np.full(SHAPE, 4.0)
    deviation[:, SIDE // 2 :] = 8.0
    white = NoiseModel(0.0, 16.0, 16.0)
    noise = rng.normal(50, 1, SHAPE)
    assert dark_times(50 + (noise - 50) * 4.0, white) == 1
    assert 1.4 < dark_times(50 + (noise - 50) * deviation, white) < 2.5


def test_crowds_and_dark_spots_are_no_noise():
    """Between the spots of a crowd it is dark, and where light is absorbed."""
    rng, noise = np.random.default_rng(6), NoiseModel(1.0, 0.0, 5.0)
    crowd = light(rng.uniform(0, SIDE, (1600, 2)), 3000, SIGMA, SHAPE)
    absorbed = light(rng.uniform(0, SIDE, (60, 2)), 1500, SIGMA, SHAPE)
    assert dark_times(rng.poisson(20 + crowd), noise) == 1
    assert dark_times(rng.poisson(np.maximum(200 - absorbed, 5)), noise) == 1
