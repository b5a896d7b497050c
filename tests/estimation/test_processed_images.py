"""Processed images: right results, and warnings."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from noisy_scenes import f1, hits
from PIL import Image
from scenes import light, looked_at
from scipy import ndimage, signal

from napari_spotfit import NoiseModel, fit_at, localize, noise_model
from napari_spotfit.settings.noise_model import Process

SIDE, SIGMA = 256, 1.3
SHAPE = (SIDE, SIDE)
#: Photons of a spot of σ 1.3 px that is as high as 85 counts.
BRIGHT = 85 * 2 * np.pi * SIGMA**2


def with_spots(count, photons=BRIGHT, background=20.0, seed=5):
    """Return counts and y and x of spots."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(8, SIDE - 8, (count, 2))
    return rng.poisson(background + light(places, photons, SIGMA, SHAPE)), places


def blurred(image, sigma=1.0):
    return ndimage.gaussian_filter(np.asarray(image, float), sigma)


def butterworth(image, limit, order=2):
    """Return an image without high frequencies; the limit is in periods per pixel."""
    y, x = (np.fft.fftfreq(size)[:, np.newaxis] for size in image.shape)
    gain = 1 / np.sqrt(1 + (np.hypot(y, x.T) / limit) ** (2 * order))
    return np.fft.ifft2(np.fft.fft2(image) * gain).real


def deconvolved(image, rounds):
    """Deconvolve an image by Richardson and Lucy's method."""
    guess = np.full(image.shape, float(image.mean()))
    for _ in range(rounds):
        guess = guess * blurred(image / np.maximum(blurred(guess, SIGMA), 1e-9), SIGMA)
    return guess


def without_variation(image):
    """Return an image whose total variation was lowered."""
    restoration = pytest.importorskip("skimage.restoration")
    low, high = image.min(), image.max()
    return restoration.denoise_tv_chambolle((image - low) / (high - low), 0.1) * (high - low) + low


def compressed(image, quality):
    """Return an image as JPEG leaves it."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


CUT = {
    "LoG": lambda image: -ndimage.gaussian_laplace(image, 1.3),
    "wide LoG": lambda image: -ndimage.gaussian_laplace(image, 2.0),
    "DoG": lambda image: blurred(image, 1) - blurred(image, 2),
    "Gaussian less background": lambda image: blurred(image) - 20,
    "wide DoG": lambda image: blurred(image, 1.3) - blurred(image, 5),
}


@pytest.mark.parametrize("name", CUT)
def test_what_was_cut_off_at_zero(name):
    """Noise alone had 1900 to 6900 good fits in 512² pixels."""
    nothing, _ = with_spots(0)
    places, noise, said = looked_at(np.maximum(CUT[name](nothing.astype(float)), 0))
    assert len(places) <= 2
    assert noise.process == "cut"
    assert "cut off at its lowest value. Photons" in said[0]
    image, truth = with_spots(40, 1.4 * BRIGHT)
    cut = np.maximum(CUT[name](image.astype(float)), 0)
    places, _, said = looked_at(cut)
    assert said
    assert hits(places, truth, 2) >= (0.9 if name != "wide LoG" else 0.5) * len(truth)
    assert len(places) - hits(places, truth, 2) <= 2


@pytest.mark.parametrize("times", [0.5, 1, 4])
@pytest.mark.parametrize("name", [name for name in CUT if name != "wide LoG"])
def test_what_was_cut_off_and_rounded(name, times):
    """Of whole numbers most are 0 then, as of few photons: 190 to 5600 good ones per Mpx."""
    nothing, _ = with_spots(0)
    image, truth = with_spots(40, 1.4 * BRIGHT)
    for counts, spots in ((nothing, 0), (image, len(truth))):
        cut = np.maximum(np.rint(times * CUT[name](counts.astype(float))), 0).astype(np.uint16)
        places, noise, said = looked_at(cut)
        right = hits(places, truth, 2) if spots else 0
        assert noise.process == "cut"
        assert said
        assert right >= 0.9 * spots
        assert len(places) - right <= 2


def test_counts_that_were_cut_off_without_a_filter_are_raw():
    image, truth = with_spots(40)
    places, noise, said = looked_at(np.maximum(image - 20, 0))
    assert not said
    assert noise.process == ""
    assert f1([places], [truth], 2) > 0.95


@pytest.mark.parametrize(("width", "gain"), [(0.7, 0.2), (1.0, 0.3), (1.5, 0.5), (2, 0.5)])
def test_what_was_blurred_and_rounded_has_few_false_spots(width, gain):
    """Most pixels are as the next ones, and what is left of noise stands out: 2000 per Mpx."""
    counts, truth = with_spots(40, 1.3 * BRIGHT, 10.0)
    recorded = np.rint(gain * counts + 100.0)
    image = np.rint(blurred(recorded, width)).astype(np.uint16)
    places, _, _ = looked_at(image, sigma=float(np.hypot(SIGMA, width)))
    right = hits(places, truth, 2)
    assert len(places) - right <= 2
    assert right >= 0.9 * len(truth)


@pytest.mark.parametrize("width", [1.5, 2.0])
def test_means_that_were_blurred_and_rounded_keep_their_spots(width):
    """Nearly all pixels have one value, and no spot was found, without a word."""
    rng = np.random.default_rng(5)
    places = rng.uniform(8, SIDE - 8, (40, 2))
    lights = 20 + light(places, 2000, SIGMA, SHAPE)
    mean = np.mean([np.rint(0.5 * rng.poisson(lights) + 100) for _ in range(8)], axis=0)
    image = np.rint(blurred(mean, width)).astype(np.uint16)
    found, noise, said = looked_at(image, sigma=float(np.hypot(SIGMA, width)))
    assert bool(said) == bool(noise.process) == (image.min() < np.median(image))
    right = hits(found, places, 2)
    assert len(found) - right <= 1
    assert right >= 0.85 * len(places)


@pytest.mark.parametrize(("shift", "order"), [(0.25, 3), (0.3, 5), (0.2, 3), (0.35, 3), (0.5, 1)])
def test_what_was_shifted_by_a_part_of_a_pixel(shift, order):
    """Its noise is nearly white, and less in fine detail than in spots: 260 per Mpx."""
    counts, truth = with_spots(40)
    image = ndimage.shift(2.0 * counts + 100, (shift, shift), order=order)[4:-4, 4:-4]
    places, _, _ = looked_at(image)
    right = hits(places, truth + shift - 4, 2)
    assert len(places) - right <= 2
    assert right >= 0.95 * len(truth)


@pytest.mark.parametrize("shift", [(0, 10), (0, 25), (30, 0), (-25, -25)])
def test_a_shift_that_copies_the_edge_changes_no_spots(shift):
    """Copies have no noise along one axis: 4200 false ones per Mpx."""
    counts, truth = with_spots(40)
    image = ndimage.shift(counts.astype(np.uint16), shift, order=0, mode="nearest")
    places, _, said = looked_at(image)
    inside = ((truth + shift > 1) & (truth + shift < SIDE - 2)).all(axis=1)
    right = hits(places, truth + shift, 2)
    assert not said
    assert right >= inside.sum() - 1
    assert len(places) - right <= 2


def test_a_first_frame_of_bad_pixels_is_no_matter():
    counts, _ = with_spots(40)
    smooth = blurred(counts)
    movie = np.stack([np.full(SHAPE, np.nan), smooth, smooth[::-1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert localize(movie, sigma=float(np.hypot(SIGMA, 1)), backend="cpu").good.sum() > 60


@pytest.mark.parametrize("level", [25, 30, 40])
def test_what_a_threshold_has_left_has_no_noise(level):
    """Nothing was found, or a third, without a word."""
    image, truth = with_spots(25, 3 * BRIGHT)
    kept = np.where(blurred(image) > level, blurred(image), 0)
    _, noise, said = looked_at(kept)
    assert noise.process == "thresholded"
    assert "above a threshold" in said[0]
    assert not looked_at(kept, noise=noise)[2]
    masked = np.zeros(SHAPE)
    masked[60:180, 60:180] = image[60:180, 60:180]
    places, noise, said = looked_at(masked)
    inside = truth[(abs(truth - 119.5) < 56).all(axis=1)]
    assert noise.process == ""
    assert not said
    assert hits(places, inside, 2) == len(inside)


FILTERS = {
    "Butterworth .1": lambda image: butterworth(image, 0.1),
    "Butterworth .2": lambda image: butterworth(image, 0.2),
    "Butterworth .15, order 4": lambda image: butterworth(image, 0.15, 4),
    "median in a disc": lambda image: ndimage.median_filter(
        image, footprint=np.hypot(*np.mgrid[-2:3, -2:3]) < 2.3
    ),
    "Wiener 3": lambda image: signal.wiener(image, 3),
    "Wiener 5": lambda image: signal.wiener(image, 5),
    "Richardson–Lucy 5": lambda image: deconvolved(image, 5),
    "Richardson–Lucy 10": lambda image: deconvolved(image, 10),
    "mean": lambda image: ndimage.uniform_filter(image, 3),
    "Gaussian": blurred,
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_denoisers_and_deconvolutions(name):
    """Fine detail is not as noisy as what spots are made of: 320 to 15,800 false ones per Mpx."""
    image, truth = with_spots(30)
    filtered = FILTERS[name](image.astype(float))
    places, noise, said = looked_at(filtered)
    assert f1([places], [truth], 2) >= 0.9
    assert len(places) - hits(places, truth, 2) <= 4  # 30 per Mpx, and chance
    gentle = name in ("mean", "Gaussian")
    assert bool(said) != gentle
    assert bool(noise.process) != gentle
    assert noise.is_filtered


@pytest.mark.parametrize("kind", ["counts", "normal"])
@pytest.mark.parametrize("sigma", [1.0, 1.3, None])
@pytest.mark.parametrize(("blur", "side"), [
    (0.85, 3), (1, 3), (1, 5), (1.2, 3), (1.5, 3), ("total variation", 1),
])  # fmt: skip
def test_a_median_of_what_is_smooth_has_few_false_spots(blur, side, sigma, kind):
    """Its edges look as fine as white noise, and hid from 96 to 991 good fits of nothing."""
    rng = np.random.default_rng(1)
    image = rng.poisson(20, SHAPE) if kind == "counts" else rng.normal(100, 4, SHAPE)
    smooth = without_variation(image) if blur == "total variation" else blurred(image, blur)
    places, _, said = looked_at(ndimage.median_filter(smooth, side), sigma=sigma)
    assert len(places) <= 3 or any("probably" in one for one in said)


@pytest.mark.parametrize("count", [25, 75])
def test_despeckled_cells(count):
    """Precision was .25 and .14."""
    rng = np.random.default_rng(8)
    truth = rng.uniform(8, SIDE - 8, (count, 2))
    cells = 10 + 150.0 * ((np.indices(SHAPE) // 64).sum(axis=0) % 2)
    lights = light(truth, 140 * 2 * np.pi * SIGMA**2, SIGMA, SHAPE)
    raw = rng.poisson(cells + lights).astype(np.uint16)
    places, _, _ = looked_at(ndimage.median_filter(raw, 3))
    right = hits(places, truth, 2)
    assert right >= 0.9 * len(places)
    assert right > 0.75 * len(truth)


def test_rounded_numbers_are_the_same_in_every_type():
    image, truth = with_spots(40, background=50.0)
    rounded = blurred(image).round()
    first, noise, _ = looked_at(rounded.astype(np.uint16))
    assert f1([first], [truth], 2) > 0.95
    others = [looked_at(rounded.astype(kind)) for kind in ("i4", "i8", "f4", "f8")]
    others.append(looked_at(rounded.astype("u2"), bad_pixels=np.zeros(SHAPE, bool)))
    for places, own, _ in others:
        np.testing.assert_allclose(places, first, atol=1e-3)
        assert own.variance(50) == pytest.approx(float(noise.variance(50)), rel=1e-4)
    places, _, _ = looked_at((rounded / 4095).astype(np.float32))
    np.testing.assert_allclose(places, first, atol=1e-2)


MOSAICS = {
    "Bayer": [[0.35, 1.0], [1.0, 0.12]],
    "columns": [[1.0, 0.6]],
    "rows": [[1.0], [0.6]],
    "polarisers": [[0.5, 0.9], [0.1, 0.5]],
    "three": [[0.2, 1.0, 0.2], [1.0, 0.2, 1.0], [0.2, 1.0, 0.2]],
}


@pytest.mark.parametrize("name", MOSAICS)
def test_a_mosaic_is_warned_of(name):
    rng = np.random.default_rng(3)
    truth = rng.uniform(8, SIDE - 8, (70, 2))
    weights = np.array(MOSAICS[name])
    tiled = np.tile(weights, -(-SIDE // np.array(weights.shape)))[:SIDE, :SIDE]
    image = rng.poisson((20 + light(truth, BRIGHT, SIGMA, SHAPE)) * tiled) + 100
    places, noise, said = looked_at(image.astype(np.uint16))
    assert noise.process == "mosaic"
    assert "image[..., ::2, ::2], or add up each 2×2 pixels" in said[0]
    assert len(places) - hits(places, truth, 2) <= 3
    if name == "Bayer":  # none was found
        assert hits(places, truth, 2) > 0.85 * len(truth)


@pytest.mark.parametrize("times", [2, 3, 5])
def test_an_enlarged_image_is_warned_of(times):
    rng = np.random.default_rng(5)
    truth = rng.uniform(6, 90, (10, 2))
    small = rng.poisson(20 + light(truth, BRIGHT, SIGMA, (96, 96)))
    large = np.kron(small, np.ones((times, times), int)).astype(np.uint16)
    places, noise, said = looked_at(large, sigma=SIGMA * times)
    assert noise.process == "enlarged"
    assert "copies of one" in said[0]
    assert f1([places], [(truth + 0.5) * times - 0.5], 2 * times) >= 0.9


@pytest.mark.parametrize("noise", [0.2, 0.33])
def test_copies_of_8_bits(noise):
    rng = np.random.default_rng(6)
    truth = rng.uniform(8, SIDE - 8, (60, 2))
    shade = 60 + 80 * np.indices(SHAPE)[1] / SIDE
    counts = rng.poisson(shade + light(truth, 60 * 2 * np.pi * SIGMA**2, SIGMA, SHAPE))
    places, _, _ = looked_at(np.floor(counts * noise / 10).astype(np.uint8))
    assert hits(places, truth, 2) >= 0.93 * len(places)


@pytest.mark.parametrize("blur", [0.7, 1.0, 1.3])
def test_single_photons_that_were_blurred_are_no_spots(blur):
    """They are like spots without a background, but for the noise of light."""
    photons = np.random.default_rng(1).poisson(0.05, SHAPE) + 100.0
    places, noise, said = looked_at(ndimage.gaussian_filter(photons, blur), sigma=None)
    assert len(places) <= 3
    assert noise.process == "filtered"
    assert any("probably was filtered" in one for one in said)


@pytest.mark.parametrize(("photons", "blur", "kind", "sigma"), [
    (0.5, 0.5, "floats", 0.6), (0.5, 0.5, "counts", 0.6), (0.5, 0.5, "EMCCD", 0.6),
    (0.5, 0.5, "EMCCD", 1.3), (0.5, 0.6, "EMCCD", 0.6), (0.1, 0.6, "floats", 0.6),
    (0.1, 0.6, "floats", 1.3), (0.3, 0.5, "floats", 1.3), (0.3, 0.6, "counts", 0.8),
    (1, 0.4, "counts", 1.3), (1, 0.5, "EMCCD", 0.6), (3, 0.4, "floats", 1.3),
])  # fmt: skip
def test_photons_that_were_blurred_a_little_are_no_sharp_spots(photons, blur, kind, sigma):
    """Up to 3580 were good fits, in silence: what lies between them is as calm as a background."""
    rng = np.random.default_rng(1)
    image = rng.poisson(photons, SHAPE).astype(float)
    if kind == "EMCCD":
        image = rng.gamma(np.maximum(image, 1), 25.0) * (image > 0)
    image = blurred(image, blur)
    if kind == "counts":
        image = np.rint(20 * image).astype(np.uint16) + 100
    places, _, said = looked_at(image, sigma=sigma)
    assert len(places) <= 3 or any("probably" in one for one in said)


def test_saturated_spots_are_as_a_camera_takes_them():
    image, _ = with_spots(40, 100 * BRIGHT)
    assert looked_at(np.minimum(image, 4095).astype(np.uint16))[1].process == ""


def test_the_noise_names_what_was_done():
    for process in list(Process)[1:]:
        noise = NoiseModel(0.0, 2.0, 1.0, blocks=100, process=process)
        done, instead = noise.process_in_words
        assert str(noise).startswith(f"the image probably {done}")
        assert str(noise).endswith(instead)
        assert noise.is_filtered
        assert noise.gain is None
        assert NoiseModel.of(noise.to_dict()) == noise
        assert type(noise.to_dict()["process"]) is str
    with pytest.raises(ValueError, match="process must be '', 'cut', 'filtered'"):
        NoiseModel(0.0, 2.0, 1.0, process="blurred")


def test_a_noise_that_is_known_is_not_doubted_again():
    cut = np.maximum(CUT["LoG"](with_spots(20)[0].astype(float)), 0)
    noise = noise_model(cut)
    assert "cut off" in str(noise)
    assert not looked_at(cut, noise=noise)[2]


@pytest.mark.parametrize("sigma", [1.0, 1.3])
def test_errors_of_bright_spots_after_a_median_filter(sigma):
    """Light was without noise there: errors of places were 2 to 2.5 times too small, unwarned."""
    rng, side = np.random.default_rng(3), 384
    grid = np.stack(np.meshgrid(*2 * [np.arange(24, side - 12, 24)], indexing="ij"), -1)
    frames, places = [], []
    for frame in range(4):
        own = grid.reshape(-1, 2) + rng.uniform(-3, 3, (grid.size // 2, 2))
        clear = rng.poisson(30 + light(own, np.full(len(own), 2000.0), sigma, (side, side))) + 100
        frames.append(ndimage.median_filter(clear, 3))
        places.append(np.column_stack([np.full(len(own), frame), own]))
    true = np.concatenate(places)
    with pytest.warns(UserWarning, match="denoised"):
        fits = fit_at(np.stack(frames), true, sigma=sigma + 0.1)
    for axis, column in ((1, "y"), (2, "x")):
        off = (fits.columns[column] - true[:, axis]) / fits.columns[f"{column}_stderr"]
        assert 0.6 < np.std(off[fits.good]) < 1.3


@pytest.mark.parametrize("quality", [40, 60, 75])
@pytest.mark.parametrize("corner", [(0, 0), (3, 5)])
def test_jpeg_is_known_by_its_blocks(quality, corner):
    """Wherever the blocks begin."""
    rng = np.random.default_rng(quality)
    places = rng.uniform(8, SIDE - 8, (100, 2))
    lit = 30 + light(places, BRIGHT, SIGMA, SHAPE)
    counts = np.clip(np.rint(lit + rng.normal(0, 0.7, SHAPE)), 0, 255).astype(np.uint8)
    y, x = corner
    image = compressed(counts, quality)[y:, x:]
    _, noise, said = looked_at(image)
    assert noise.process == Process.COMPRESSED
    assert any("as JPEG is" in one for one in said)
    assert looked_at(counts[y:, x:])[1].process != Process.COMPRESSED


@pytest.mark.parametrize("width", [3, 5, 8])
@pytest.mark.parametrize("side", [64, 128])
def test_a_constant_border_is_no_edge_of_jpeg(side, width):
    for seed in range(4):
        rng = np.random.default_rng([seed, side])
        places = rng.uniform(8, side - 8, (side * side // 300, 2))
        inner = rng.poisson(10 + light(places, 1500, SIGMA, (side, side))) + 100
        padded = np.pad(inner[width:-width, width:-width], width).astype(np.uint16)
        assert noise_model(padded).process != Process.COMPRESSED
        assert noise_model(padded[width:]).process != Process.COMPRESSED


def test_jpeg_with_a_constant_border_is_known_by_its_blocks():
    counts, _ = with_spots(100)
    padded = np.pad(np.clip(counts, 0, 255)[16:-16, 16:-16], 16).astype(np.uint8)
    assert noise_model(compressed(padded, 60)).process == Process.COMPRESSED
