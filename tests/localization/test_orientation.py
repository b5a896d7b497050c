"""A camera that lies otherwise than it did for the beads is named, and a right one is not."""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
import pytest

from napari_spotfit import (
    MeasuredPsf,
    Settings,
    calibrate_astigmatism,
    calibrate_psf,
    fit_at,
    fit_spots,
    localize,
    localize_to_folder,
    simulate_beads,
    simulate_movie,
    simulate_psf,
)
from napari_spotfit.models.calibration import ORIENTATIONS

CAMERA = {"gain": 1.0, "offset": 100.0}
#: Aberrations, the orientations that look like none, and those that look like "transposed".
EVERY = set(ORIENTATIONS)
LENSES = {
    "coma": ({"astigmatism": 0.1, "coma": 0.03}, {"flipped_y"}),
    "oblique": ({"astigmatism": 0.1, "coma": 0.02, "vertical_coma": 0.04}, set()),
    "spherical": (
        {"astigmatism": 0.1, "spherical": 0.04},
        {"flipped_y", "flipped_x", "rotated_180"},
    ),
    "lobes": ({"astigmatism": 0.25, "secondary_astigmatism": -0.15, "coma": 0.04}, {"flipped_y"}),
    # Whatever it is turned by, its image is there at another z.
    "astigmatism": ({"astigmatism": 0.1}, EVERY),
    "lobes alone": ({"astigmatism": 0.25, "secondary_astigmatism": -0.15}, EVERY),
}


@lru_cache
def psf_of(name):
    planes = np.arange(-800, 801, 50)
    wide = simulate_psf(planes, 41, zernike=LENSES[name][0])
    return MeasuredPsf.from_planes(wide[:, 8:33, 8:33], 50, plane=16, pixel_size=100.0)


@lru_cache
def movie_of(name, photons=2000, seed=1, spots=4):
    return simulate_movie(
        12, (128, 128), spots_per_frame=spots, photons=photons, background=10, z=(-500, 500),
        optics={"zernike": LENSES[name][0]}, seed=seed,
    )  # fmt: skip


def warned(image, model, door=localize, **options):
    """Return which orientations a warning names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        door(image, model=model, **CAMERA, **options)
    texts = [str(one.message) for one in caught if ".oriented(" in str(one.message)]
    assert len(texts) <= 1
    if not texts:
        return set()
    words = texts[0].split("the image were ")[1].split(" against")[0]
    return {word.replace(" ", "_") for word in words.split(" or ")}


@pytest.mark.parametrize("name", LENSES)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_another_orientation_is_named_where_it_shows(name, orientation):
    _, alike = LENSES[name]
    image = ORIENTATIONS[orientation].of(movie_of(name)[0])
    named = warned(image, psf_of(name), estimator="mle")
    if orientation == "as_it_is" or orientation in alike:
        assert not named
    else:
        assert orientation in named
        assert "as_it_is" not in named


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "lse"},
        {"neighbours": "auto"},
        {"roi_size": (11, 13)},
        {"bounds": {"z": (-600, 600)}},
        {"bad_pixels": np.random.default_rng(0).random((128, 128)) < 0.003},
    ],
)
def test_whatever_the_fits_are(options):
    image, _ = movie_of("oblique")
    assert warned(image.swapaxes(1, 2), psf_of("oblique"), **options) == {"transposed"}
    assert not warned(image, psf_of("oblique"), **options)


@pytest.mark.parametrize(
    "options", [{"photons": 500, "seed": 2}, {"spots": 15, "seed": 3}, {"photons": 30000}]
)
def test_dim_dense_and_bright_spots(options):
    image, _ = movie_of("oblique", **options)
    assert warned(image.swapaxes(1, 2), psf_of("oblique")) == {"transposed"}
    assert not warned(image, psf_of("oblique"))


@lru_cache
def measured_lens(seed):
    """Return the PSF of an astigmatic lens, as beads show it."""
    rng = np.random.default_rng(seed)
    places = np.mgrid[22:131:36, 22:131:36].reshape(2, -1).T + rng.uniform(-1, 1, (16, 2))
    rows, columns = np.mgrid[:160, :160]
    stack = np.full((31, 160, 160), 10.0)
    for frame, height in zip(stack, np.arange(-600.0, 601, 40), strict=True):
        for y, x in places:
            frame += gaussian(rows - y, columns - x, height, 40_000)
    image = (rng.poisson(stack) + 100).astype(np.uint16)
    return calibrate_psf(image, 40, settings=Settings(**CAMERA))


def gaussian(y, x, height, photons):
    across, down = (1.25 * np.sqrt(1 + ((height - focus) / 400) ** 2) for focus in (-200, 200))
    light = np.exp(-((y / down) ** 2) / 2 - (x / across) ** 2 / 2)
    return photons / (2 * np.pi * across * down) * light


@pytest.mark.parametrize(("direction", "beads"), [("y", 1), ("x", 2)])
def test_pairs_along_an_axis_do_not_look_turned(direction, beads):
    rows, columns = np.mgrid[:160, :160]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        frames = np.full((3, 160, 160), 10.0)
        places = np.mgrid[16:145:30, 16:145:30].reshape(2, -1).T
        for frame in frames:
            for place in places + rng.uniform(-1, 1, places.shape):
                for apart in (0.0, 5.0):
                    y, x = place + np.where(np.array(["y", "x"]) == direction, apart, 0.0)
                    frame += gaussian(rows - y, columns - x, rng.uniform(-300, 300), 3000)
        image = (rng.poisson(frames) + 100).astype(np.uint16)
        assert not warned(image, measured_lens(beads))


def test_a_turned_crowd_is_named():
    image, _ = movie_of("oblique", spots=60, seed=6)
    assert warned(image.swapaxes(1, 2), psf_of("oblique")) == {"transposed"}
    assert not warned(image, psf_of("oblique"))


def test_spots_beyond_the_range_do_not_look_turned():
    """A transposed astigmatic PSF shows them within its range."""
    psf = psf_of("coma")
    short = MeasuredPsf(psf.coefficients[:-14], psf.dz, psf.plane, psf.y, psf.x)
    assert short.range[1] < 200
    assert not warned(movie_of("coma")[0], short)


def test_by_every_door(tmp_path):
    image, truth = movie_of("oblique")
    turned, psf = np.ascontiguousarray(image[..., ::-1]), psf_of("oblique")
    places = truth[["frame", "y", "x"]].to_numpy()
    places[:, 2] = 127 - places[:, 2]
    assert warned(turned, psf, lambda image, **own: fit_at(image, places, **own)) == {"flipped_x"}
    assert warned(turned, psf, lambda image, **own: localize_to_folder(image, tmp_path, **own)) == {
        "flipped_x"
    }


def test_cut_outs_are_looked_at_where_there_are_many():
    rng, psf, aberrations = np.random.default_rng(4), psf_of("oblique"), LENSES["oblique"][0]
    heights = np.append(rng.uniform(-400, 400, 300), 0)
    light = simulate_psf(heights, 13, zernike=aberrations)
    light = 2000 * light[:-1] / light[-1].sum() + 10
    rois = (rng.poisson(np.resize(light, (5000, 13, 13))) + 100).astype(np.uint16)
    for turned, named in ((rois, set()), (rois.swapaxes(1, 2), {"transposed"})):
        assert warned(np.ascontiguousarray(turned), psf, fit_spots, estimator="mle") == named
        assert not warned(np.ascontiguousarray(turned[:500]), psf, fit_spots, estimator="mle")


def apart_in_z(image, orientation, model):
    """Return how far z of spots is from that of the same ones in the turned image, with its PSF."""
    how, heights = ORIENTATIONS[orientation], np.full(image.shape, np.nan)
    right = localize(image, model=model, **CAMERA)
    good = right[right.good]
    heights[good.frame, np.rint(good.y).astype(int), np.rint(good.x).astype(int)] = good.z
    found = localize(how.of(image), model=model.oriented(orientation), **CAMERA)
    places = found.frame, np.rint(found.y).astype(int), np.rint(found.x).astype(int)
    apart = np.abs(found.z - how.of(heights)[places])[found.good]
    assert np.isfinite(apart).mean() > 0.9
    return apart[np.isfinite(apart)]


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_oriented_psf_finds_the_same_z(orientation):
    image, _ = movie_of("oblique")
    assert np.quantile(apart_in_z(image, orientation, psf_of("oblique")), 0.9) < 1
    assert not warned(ORIENTATIONS[orientation].of(image), psf_of("oblique").oriented(orientation))


@lru_cache
def lens_of(**aberrations):
    stack, _ = simulate_beads(
        np.arange(-600, 601, 50), (200, 200), count=12, photons=20_000, seed=1, zernike=aberrations
    )
    return calibrate_astigmatism(stack, 50, settings=Settings(**CAMERA))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_turned_lens_shows_mirrored_images(orientation):
    """Which of the mirrored ones it is does not show: two of them invert z."""
    aberrations = {"astigmatism": 0.08, "oblique_astigmatism": 0.05}
    lens = lens_of(**aberrations)
    assert abs(lens.angle) > 10
    image, _ = simulate_movie(
        12, (128, 128), spots_per_frame=4, photons=3000, background=10, z=(-350, 350),
        optics={"zernike": aberrations}, seed=1,
    )  # fmt: skip
    turned = ORIENTATIONS[orientation].of(image)
    mirrored = {"flipped_y", "flipped_x", "transposed", "antitransposed"}
    assert warned(turned, lens) == (mirrored if orientation in mirrored else set())
    assert not warned(turned, lens.oriented(orientation))
    assert np.quantile(apart_in_z(image, orientation, lens), 0.9) < 1


@pytest.mark.filterwarnings("ignore")
def test_a_lens_along_the_axes_shows_nothing():
    lens, aberrations = lens_of(astigmatism=0.1), {"astigmatism": 0.1}
    image, _ = simulate_movie(
        12, (128, 128), spots_per_frame=4, photons=3000, background=10, z=(-350, 350),
        optics={"zernike": aberrations}, seed=1,
    )  # fmt: skip
    assert lens.angle == 0
    for how in ORIENTATIONS.values():
        assert not warned(how.of(image), lens)
    assert np.quantile(apart_in_z(image, "transposed", lens), 0.9) < 1
    # With shifts of x and y by coma, too.
    lens = lens_of(astigmatism=0.1, coma=0.03)
    assert lens.oriented("rotated_90").wobble_y == lens.wobble_x.mirrored()
    assert lens.oriented("rotated_90").oriented("rotated_270") == lens
