"""Widths and noise of stacks, and detect_spots in three dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from real_files import FOLDER
from scipy import ndimage

from napari_spotfit import Settings, detect_spots, estimate_sigma, noise_model
from napari_spotfit.images.frames import HeldFrame
from napari_spotfit.localization.detect_spots import peak_near


def stack(sigma, sigma_z, height, count=80, shape=(24, 200, 200), background=20, seed=1):
    """Return a stack with spots, and their places."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, np.array(shape) - 1, (count, 3))
    light = np.full(shape, float(background))
    for place in places:
        lines = [
            np.exp(-0.5 * ((np.arange(size) - at) / width) ** 2)
            for size, at, width in zip(shape, place, (sigma_z, sigma, sigma), strict=True)
        ]
        light += height * rng.uniform(0.7, 1.3) * np.einsum("z,y,x->zyx", *lines)
    return rng.poisson(light).astype(np.uint16), places


@pytest.mark.parametrize(
    ("sigma", "sigma_z", "height", "off"),
    [(1.3, 1.5, 300, 0.03), (1.0, 0.7, 300, 0.03), (2.0, 4.0, 300, 0.03), (1.3, 1.5, 50, 0.1),
     (1.6, 2.5, 40, 0.1)],
)  # fmt: skip
def test_widths_are_found_wherever_the_search_begins(sigma, sigma_z, height, off):
    volume, _ = stack(sigma, sigma_z, height)
    found = estimate_sigma(volume, dimensions=3)
    assert found.sigma == pytest.approx(sigma, rel=off)
    assert found.sigma_z == pytest.approx(sigma_z, rel=off)
    assert found.scatter_z < 0.5 * sigma_z
    guess = estimate_sigma(volume, model="gaussian_3d", sigma=sigma, sigma_z=2 * sigma_z)
    assert guess.sigma_z == pytest.approx(sigma_z, rel=off)


def test_thin_stacks_and_few_spots_say_that_they_do_not_tell():
    volume, _ = stack(1.3, 1.5, 300)
    with pytest.raises(ValueError, match="needs 3 planes at least, and the stack has 2"):
        estimate_sigma(volume[:2], dimensions=3)
    noise = np.random.default_rng(2).poisson(20, (20, 120, 120)).astype(np.uint16)
    with pytest.raises(ValueError, match="widths need 3 good fits of spots"):
        estimate_sigma(noise, dimensions=3)
    with pytest.warns(UserWarning, match=r"1\.3 px and 1\.5 planes are taken"):
        detect_spots(noise, dimensions=3)
    optics = {"voxel_size": (254, 93, 93), "numerical_aperture": 1.4, "wavelength": 600}
    given = Settings(model="gaussian_3d", **optics)
    with pytest.warns(UserWarning, match=r"1\.002 px and 1\.001 planes are taken"):
        detect_spots(noise, settings=given)


def test_widths_are_those_of_planes_where_these_are_meant():
    volume, _ = stack(1.3, 1.5, 300)
    assert estimate_sigma(volume).sigma_z is None
    with pytest.raises(ValueError, match="sigma_z is of spots in volumes"):
        detect_spots(volume, sigma=1.3, sigma_z=1.5)
    with pytest.raises(ValueError, match="but dimensions=2"):
        estimate_sigma(volume, model="gaussian_3d", dimensions=2)
    with pytest.raises(ValueError, match="but dimensions=3"):
        detect_spots(volume, model="moffat", dimensions=3)
    with pytest.raises(ValueError, match="dimensions must be 2, 3 or None"):
        detect_spots(volume, dimensions=4)


def test_places_have_leading_axes_and_all_kinds_of_arrays_give_the_same():
    volume, places = stack(1.3, 1.5, 300, count=20)
    known = {"dimensions": 3, "sigma": 1.3, "sigma_z": 1.5, "false_spots": 0.1}
    found = detect_spots(volume, **known)
    assert found.shape == (20, 3)
    both = detect_spots(np.stack([volume, volume[::-1]]), **known)
    assert both.shape[1] == 4
    np.testing.assert_array_equal(both[both[:, 0] == 0][:, 1:], found)
    wide = np.zeros((*volume.shape[:2], 2 * volume.shape[2]), np.uint16)
    wide[..., ::2] = volume
    np.testing.assert_array_equal(detect_spots(wide[..., ::2], **known), found)
    np.testing.assert_array_equal(detect_spots(volume.astype(">u2"), **known), found)
    bad = np.zeros(volume.shape, bool)
    bad[:, :100] = True
    left = detect_spots(volume, bad_pixels=bad, **known)
    assert (left[:, 1] >= 100).all()
    assert len(left) == pytest.approx((places[:, 1] > 100).sum(), abs=2)


def test_the_peak_near_a_place_is_found_in_depth_too():
    volume, places = stack(1.3, 1.5, 300, count=15)
    settings = Settings(model="gaussian_3d", sigma=1.3, sigma_z=1.5, roi_size=9)
    place = peak_near(HeldFrame(volume, spatial=3), places[0] + [1, -1.5, 1], settings)
    assert abs(place - places[0]).max() < 1.1


def test_noise_of_stacks_is_that_of_their_planes():
    rng = np.random.default_rng(3)
    y = np.linspace(10, 200, 160)[:, np.newaxis]
    volume = (2.0 * rng.poisson(y * np.ones((12, 160, 160))) + 100).astype(np.uint16)
    volume[:, 50, 60] = 60_000  # a hot pixel
    deep = noise_model(volume, settings=Settings(model="gaussian_3d"))
    flat = noise_model(volume)
    assert deep.gain == pytest.approx(2.0, rel=0.1)
    assert deep.gain == pytest.approx(flat.gain, rel=0.1)
    assert not deep.is_filtered


def test_spots_of_a_real_volume_are_found():
    path = FOLDER / "3d" / "spotiflow" / "img_synth_3d.tif"
    if not path.exists():
        pytest.skip(f"the file {path.name} is not there")
    tifffile = pytest.importorskip("tifffile")
    volume = tifffile.imread(path)
    places = detect_spots(volume, dimensions=3)
    assert 20 < len(places) < 400
    own = volume[tuple(places.astype(int).T)]
    assert np.median(own) > np.percentile(volume, 99)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("blur", [(1, 0, 0), (2, 0, 0), (1, 1, 1)])
def test_noise_that_was_blurred_along_z_makes_no_spots(blur):
    raw = np.random.default_rng(4).poisson(30, (20, 160, 160)) + 100.0
    volume = ndimage.gaussian_filter(raw, blur).astype(np.float32)
    found = detect_spots(volume, dimensions=3, sigma=1.3, sigma_z=1.5)
    assert len(found) <= 15  # 5 are expected
    given = Settings(model="gaussian_3d", sigma=1.3, sigma_z=1.5)
    assert noise_model(volume, settings=given).correlation > 1.5
    assert noise_model(raw.astype(np.uint16), settings=given).correlation == 1


@pytest.mark.parametrize("pairs", [6, 12, 15])
def test_two_spots_above_each_other_do_not_widen_the_estimate(pairs: int) -> None:
    rng, widths = np.random.default_rng(pairs), np.array([1.5, 1.3, 1.3])
    rows = np.arange(14, 140, 25)
    places = np.stack(np.meshgrid([7.0], rows, rows[:5], indexing="ij"), -1).reshape(-1, 3)
    places = rng.permutation(places + rng.uniform(-1, 1, places.shape))[:25]
    places = np.concatenate([places, places[:pairs] + np.array([1.5 * widths[0], 0, 0])])
    lines = [
        np.exp(-0.5 * ((np.arange(side) - at[:, np.newaxis]) / width) ** 2)
        for side, at, width in zip((18, 150, 150), places.T, widths, strict=True)
    ]
    height = 2000 / ((2 * np.pi) ** 1.5 * widths.prod())
    image = rng.poisson(10 + height * np.einsum("nz,ny,nx->zyx", *lines, optimize=True))
    width = estimate_sigma(image, dimensions=3, gain=1.0, offset=0.0)
    assert width.sigma_z == pytest.approx(1.5, rel=0.05)
