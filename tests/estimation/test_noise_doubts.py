"""Warnings of noise that does not fit one camera, or the given one, and no false warnings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from noisy_scenes import flat_scenes, hits, noisy_scenes
from scenes import light, scattered
from scipy import ndimage

from napari_spotfit import Camera, NoiseModel, Settings, detect_spots, localize, noise_model

SHAPE, GAIN, OFFSET, READ = (128, 128), 2.2, 100.0, 3.3
RIGHT = {"gain": GAIN, "offset": OFFSET, "variance": READ**2}


def taken(electrons, gain=GAIN, seed=3):
    """Return the counts of a camera."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(electrons) * gain + OFFSET + rng.normal(0, READ, np.shape(electrons))
    return np.clip(np.rint(counts), 0, 65535).astype(np.uint16)


@pytest.fixture(scope="module")
def electrons():
    """Return the light of frames with spots."""
    rng = np.random.default_rng(2)
    places = [scattered(rng, SHAPE, 40) for _ in range(6)]
    return np.stack([light(own, 800, 1.3, SHAPE) for own in places]) + 20


def doubts(movie, **options):
    """Return the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        localize(movie, sigma=1.3, **options)
    return [str(one.message) for one in said]


@pytest.mark.parametrize("name", ["gain", "offset", "variance"])
def test_the_right_camera_is_not_doubted(electrons, name):
    movie = taken(electrons)
    assert not doubts(movie, **RIGHT)
    assert not doubts(movie)
    known = {key: RIGHT[key] for key in ("gain", "offset") if key != name}
    if "gain" in known and "offset" in known:
        assert not doubts(movie, **known)
    off = {"gain": 1.25 * GAIN, "offset": 103.0, "variance": 0.6 * READ**2}
    assert not doubts(movie, **RIGHT | {name: off[name]})


WRONG = {
    "electrons per count": ({"gain": 1 / GAIN}, r"3\.\d times the noise.*gain 0\.4545, offset 100"),
    "no offset": ({"offset": 0.0}, r"0\.\d+ times the noise that a camera of gain 2\.2"),
    "electrons² for counts²": ({"variance": 900.0}, r"0\.1\d* times the noise"),
    "no EMCCD": ({"emccd": True}, r"0\.\d+ times the noise"),
}


def test_rounding_to_counts_is_no_noise_of_another_camera():
    """It was 4 to 6 times as much, and warned of; what steps hide is."""
    rng = np.random.default_rng(3)
    shape, gain, variance = (128, 128), 0.1, 0.004
    image = light(rng.uniform(2, 125, (30, 2)), 500, 1.3, shape) + 3.0
    counts = gain * rng.poisson(image) + rng.normal(OFFSET, variance**0.5, shape)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only .* fits are good")  # to detection, steps are spots
        with pytest.warns(UserWarning, match="values come in steps of 1, more than three times"):
            localize(
                np.rint(counts).astype(np.uint16),
                sigma=1.3, gain=gain, offset=OFFSET, variance=variance,
            )  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_camera_is_warned_of(electrons, name):
    options, what = WRONG[name]
    with pytest.warns(UserWarning, match=f"the image has {what}") as said:
        fits = localize(taken(electrons), sigma=1.3, **RIGHT | options)
    assert said[0].filename == __file__
    # With these settings there is no second warning.
    assert not doubts(taken(electrons), settings=fits.settings)


def test_a_wrong_map_is_warned_of(electrons):
    maps = {name: np.full(SHAPE, value) for name, value in RIGHT.items()}
    assert not doubts(taken(electrons), camera=Camera(**maps))
    maps["gain"] /= 4
    with pytest.warns(UserWarning, match=r"the image has 3(\.\d)? times the noise .* gain 0\.55"):
        localize(taken(electrons), sigma=1.3, camera=Camera(**maps))


def test_a_gain_that_light_and_shade_contradict_is_warned_of(electrons):
    shade = electrons * np.linspace(0.5, 6, SHAPE[1])
    movie = taken(np.concatenate([shade, shade]))
    assert not doubts(movie, gain=GAIN, offset=OFFSET)
    with pytest.warns(UserWarning, match=r"grows [45]\.?\d* times as fast.*suggests 2\.\d+ counts"):
        localize(movie, sigma=1.3, gain=1 / GAIN, offset=OFFSET)


def test_channels_of_different_gain_are_warned_of(electrons):
    channels = [taken(3 * electrons, 6.0), taken(3 * electrons + 300, 1.0)]  # one brightness
    for work in (localize, detect_spots):
        with pytest.warns(UserWarning, match="parts of the image have .* the noise of others"):
            work(np.stack(channels, axis=1), sigma=1.3)
    for channel in channels:
        assert not doubts(channel)
    found = noise_model(np.stack(channels, axis=1))
    assert found.is_uneven
    assert found.gain is None
    assert "no one noise model" in str(found)


def test_frames_that_were_scaled_are_warned_of(electrons):
    lamp = 10 ** -np.linspace(0, 1, 6)[:, np.newaxis, np.newaxis]
    faded = taken(3 * electrons * lamp)
    assert not doubts(faded)
    with pytest.warns(UserWarning, match="frames that were scaled"):
        localize((faded - OFFSET) / lamp, sigma=1.3)


@pytest.mark.parametrize(("sigma", "is_warned_of"), [(0.55, True), (0.9, False)])
def test_spots_as_narrow_as_noise_are_warned_of(sigma, is_warned_of):
    rng = np.random.default_rng(4)
    movie = taken([light(scattered(rng, SHAPE, 40), 3000, sigma, SHAPE) + 10 for _ in range(4)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        localize(movie)
    texts = [str(one.message) for one in said]
    assert any("have detail as fine as noise" in text for text in texts) == is_warned_of
    localize(movie, **RIGHT)


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0])
def test_no_kind_of_image_is_uneven_by_chance(sigma):
    # Where σ is not known, it is what takes the time.
    known = None if sigma == 1.3 else Settings(sigma=sigma)
    for scene in (*flat_scenes(sigma, side=128), *noisy_scenes(sigma, 192, 1, 40)):
        assert not noise_model(np.stack(scene.frames), settings=known).is_uneven, scene.name


def test_a_model_knows_it():
    model = NoiseModel(2.0, -100.0, 1.0, slope_error=0.01, blocks=100, uneven=2.0)
    assert model.is_uneven
    assert model.gain is None
    assert NoiseModel.of(model.to_dict()) == model
    with pytest.raises(ValueError, match="uneven must be a number from 1"):
        NoiseModel(2.0, 0.0, 1.0, uneven=0.5)


def test_an_image_without_any_pixel_is_warned_of():
    (said,) = doubts(np.full((2, 64, 64), np.nan, np.float32))
    assert said.startswith("all pixels in which the noise is measured are NaN, or bad")


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64])
def test_whole_numbers_that_floats_do_not_hold_are_refused(kind):
    """Of 20 spots 12 were found 2⁶⁰ counts up, without a word."""
    counts = np.random.default_rng(1).poisson(20_000, (64, 64)).astype(kind)
    assert len(doubts(counts + kind(2**40))) == 0
    with pytest.raises(ValueError, match=r"in steps of 256, .* image - image.min\(\)"):
        localize(counts + kind(2**60), sigma=1.3)


@pytest.mark.parametrize("period", [4, 6, 8, 12])
def test_stripes_are_warned_of(period, electrons):
    """Thousands of spots on them were good, without a word."""
    rows = np.arange(SHAPE[0])[:, np.newaxis]
    movie = taken(electrons + 15 * (1 + np.sin(2 * np.pi * rows / period)))
    assert any(said.startswith("the image has stripes, one in") for said in doubts(movie))
    assert any("has stripes" in said for said in doubts(movie.swapaxes(1, 2)))
    assert not any("has stripes" in said for said in doubts(taken(electrons)))


@pytest.mark.parametrize("height", [300, 1000])
@pytest.mark.parametrize("sigma", [1.3, 3.0])
def test_cells_are_no_stripes(height, sigma):
    """A third of small images with a few bright cells were said to have some."""
    rows, columns = np.indices((96, 96))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        bright = np.full((96, 96), 10.0)
        for y, x, radius in rng.uniform([10, 10, 8], [86, 86, 20], (4, 3)):
            edge = np.hypot(rows - y, columns - x) - radius
            bright += height / (1 + np.exp(edge / 1.5))
        spots = light(rng.uniform(3, 93, (15, 2)), 2000, sigma, (96, 96))
        image = rng.poisson(bright + spots).astype(np.uint16)
        assert not any("stripes" in said for said in doubts(image))


@pytest.mark.parametrize("sigma", [1.0, 1.3])
def test_spots_on_a_lattice_are_no_mosaic(sigma):
    """Every sixth pixel along both axes a spot: none was found."""
    places = np.array([(y, x) for y in range(3, 128, 6) for x in range(3, 128, 6)], float)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        photons = 3000 * rng.uniform(0.8, 1.2, len(places))
        image = rng.poisson(10 + light(places, photons, sigma, (128, 128))).astype(np.uint16)
        fits = localize(image)
        assert fits.good.sum() > 0.99 * len(places)


@pytest.mark.parametrize(("period", "sigma"), [(5, 1.3), (7, 1.6)])
@pytest.mark.parametrize("photons", [1000, 10_000])
def test_spots_on_a_lattice_are_not_deconvolved(period, sigma, photons):
    """Their light is of one frequency: none was found."""
    sides = np.arange(period / 2, 128, period)
    places = np.array([(y, x) for y in sides for x in sides])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        own = photons * rng.uniform(0.8, 1.2, len(places))
        image = rng.poisson(10 + light(places, own, sigma, (128, 128))).astype(np.uint16)
        fits = localize(image, sigma=sigma)
        good = np.column_stack([fits.y, fits.x])[fits.good]
        assert hits(good, places, 1.0) > 0.9 * len(places)


@pytest.mark.parametrize("change", [1.0, 2.0])
def test_a_lattice_that_was_blurred_is_filtered(change):
    places = np.array([(y, x) for y in range(3, 128, 5) for x in range(3, 128, 5)], float)
    image = np.random.default_rng(1).poisson(10 + light(places, 1000, 1.3, (128, 128)))
    noise = noise_model(ndimage.gaussian_filter(image.astype(float), change))
    assert noise.is_filtered or noise.process


@pytest.mark.filterwarnings("ignore:the image has stripes", "ignore:the image probably is a mosaic")
@pytest.mark.parametrize("period", [4, 6, 8, 12])
@pytest.mark.parametrize("height", [5, 15, 40])
def test_stripes_are_no_spots(period, height):
    """Up to 11,000 in 10⁶ pixels were good."""
    shape, rng = (256, 256), np.random.default_rng(1)
    rows = np.arange(shape[0])[:, np.newaxis]
    striped = 20 + height * (1 + np.sin(2 * np.pi * rows / period))
    empty = taken(np.broadcast_to(striped, shape))
    for image in (empty, empty.T):
        assert localize(image, sigma=1.3).good.sum() <= 2
    places = rng.uniform(8, 248, (60, 2))
    bright = 150 * (height + 10)
    fits = localize(taken(striped + light(places, bright, 1.3, shape)), sigma=1.3)
    assert hits(np.column_stack([fits.y, fits.x])[fits.good], places, 1.5) >= 50


INVERTED = {
    "8 bits": lambda counts: 255 - np.clip(counts // 8, 0, 255).astype(np.uint8),
    "16 bits": lambda counts: 65535 - counts,
    "light through": lambda counts: np.random.default_rng(1).poisson(5e3 * 10.0 ** (counts / -4e3)),
    "its maximum less it": lambda counts: counts.max() - counts.astype(float),
    "its negative": lambda counts: -counts.astype(np.float32),
}


@pytest.mark.parametrize("name", INVERTED)
def test_dark_spots_are_doubted(electrons, name):
    """Nothing was found, without a word."""
    inverted = INVERTED[name](taken(electrons))
    found = [said for said in doubts(inverted) if said.startswith("the image has dark spots, ")]
    assert len(found) == 1
    assert found[0].endswith("invert the image: image.max() - image")
    again = inverted.max() - inverted
    assert not any("dark spots" in said for said in doubts(again))
    assert len(localize(again, sigma=1.3)) > 200


def test_dark_spots_are_warned_of_with_the_camera_given(electrons):
    dark = taken(np.maximum(150 - electrons, 0))
    assert any("dark spots" in said for said in doubts(dark, **RIGHT))
    assert not any("dark spots" in said for said in doubts(taken(electrons), **RIGHT))


def test_dark_spots_beside_as_many_bright_ones_are_no_doubt(electrons):
    mixed = 150 + electrons - np.roll(electrons, 1, axis=0)
    assert not any("dark spots" in said for said in doubts(taken(mixed)))


def test_dead_pixels_and_holes_are_no_dark_spots(electrons):
    """Holes between bright cells, and pixels that see no light."""
    movie, rng = taken(electrons + 30), np.random.default_rng(1)
    movie[:, rng.random(SHAPE) < 2e-3] = 100
    assert not any("dark spots" in said for said in doubts(movie))


@pytest.mark.parametrize("known", [{}, {"variance": 4.0}], ids=str)
@pytest.mark.parametrize("photons", [5e4, 3e5])
@pytest.mark.parametrize("shape", [(20, 15, 15), (8, 16, 16), (20, 20, 20), (1, 20, 20)], ids=str)
def test_the_right_camera_is_not_doubted_beside_a_bright_spot(shape, photons, known):
    """Blocks that are mostly spot have less noise than as bright ones, or more detail."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        places = rng.uniform(4, shape[1] - 5, (shape[0], 1, 2))
        clean = np.stack([light(own, photons, 1.3, shape[1:]) for own in places]) + 10
        counts = rng.poisson(clean) + 100 + rng.normal(0, 2, shape)
        assert not doubts(counts.astype(np.float32), gain=1.0, offset=100.0, **known)
        # A wrong one is.
        said = doubts(counts.astype(np.float32), gain=1.0, offset=100.0, variance=1e5)
        assert any("times the noise" in one for one in said)
