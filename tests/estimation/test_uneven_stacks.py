"""Stacks whose planes differ in light or background, or hold no image of their own."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import SpotFits, detect_spots, fit_at, localize
from napari_spotfit.images.plane_light import plane_levels
from napari_spotfit.images.planes_without_image import copied_planes, empty_planes
from napari_spotfit.settings.noise_model import NoiseModel

SIGMA, SIGMA_Z, PHOTONS = 1.3, 1.5, 3000.0
OPEN = {"model": "gaussian_3d", "gain": 1.0, "backend": "cpu"}
KNOWN = OPEN | {"sigma": SIGMA, "sigma_z": SIGMA_Z}
SIDE = 130


def spots(depth: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the light of spots that lie apart, and where they are."""
    rng = np.random.default_rng(seed)
    axes = np.arange(depth), np.arange(SIDE), np.arange(SIDE)
    centre = np.arange(13, SIDE - 6, 17.0)
    y, x = (one.ravel() for one in np.meshgrid(centre, centre, indexing="ij"))
    z = rng.uniform(0.5, depth - 1.5, len(y))
    places = np.column_stack([z, y + rng.uniform(-1, 1, len(y)), x + rng.uniform(-1, 1, len(y))])
    light = np.zeros((depth, SIDE, SIDE))
    for place in places:
        lines = [
            np.exp(-((axis - at) ** 2) / 2 / width**2) / width / np.sqrt(2 * np.pi)
            for axis, at, width in zip(axes, place, (SIGMA_Z, SIGMA, SIGMA), strict=True)
        ]
        light += PHOTONS * np.einsum("z,y,x->zyx", *lines)
    return light, places


def stack(light: np.ndarray, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).poisson(light).astype(np.uint16)


def by_plane(values: object) -> np.ndarray:
    return np.asarray(values, float)[:, np.newaxis, np.newaxis]


def compared(fits: SpotFits, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return which good fit belongs to each place, whether one does, and how many others are."""
    good = np.flatnonzero(fits.good)
    found = np.column_stack([fits.z, fits.y, fits.x])[good]
    away = np.linalg.norm((found - places[:, np.newaxis]) / (2 * SIGMA_Z, SIGMA, SIGMA), axis=2)
    nearest, is_found = away.argmin(axis=1), away.min(axis=1) < 1.5
    return good[nearest], is_found, len(good) - len(np.unique(nearest[is_found]))


def check(fits: SpotFits, places: np.ndarray, false: int = 4) -> None:
    own, is_found, others = compared(fits, places)
    assert is_found.mean() > 0.95
    assert others <= false
    own, true = own[is_found], places[is_found]
    error = fits.z[own] - true[:, 0]
    assert abs(np.median(error)) < 4 * np.median(fits.z_stderr[own]) / np.sqrt(len(own))
    for off, scale in ((error, fits.z_stderr), (fits.x[own] - true[:, 2], fits.x_stderr)):
        spread = np.sqrt(np.mean(np.clip(off / scale[own], -9, 9) ** 2))
        assert 0.7 < spread < 1.4
    assert np.median(fits.photons[own]) == pytest.approx(PHOTONS, rel=0.06)


LIGHTS = {
    "fades": (20, np.exp(-np.arange(20) / 10)),
    "fades slowly": (20, np.exp(-np.arange(20) / 20)),
    "flickers": (20, np.random.default_rng(3).uniform(0.85, 1.15, 20)),
    "3 planes": (3, [1.0, 0.6, 0.36]),
    "6 planes": (6, np.exp(-np.arange(6) / 5)),
}


@pytest.mark.parametrize("neighbours", ["exclude", "auto", "joint"])
@pytest.mark.parametrize("kind", LIGHTS)
def test_light_that_differs_from_plane_to_plane_is_corrected(kind: str, neighbours: str) -> None:
    depth, light = LIGHTS[kind]
    own, places = spots(depth)
    fits = localize(stack(by_plane(light) * (own + 40)), **KNOWN, neighbours=neighbours)
    assert fits.settings.noise.planes == "light"
    assert "differ in light" in str(fits.settings.noise)
    check(fits, places)


@pytest.mark.parametrize("known", [KNOWN, OPEN], ids=["known", "open"])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_light_is_corrected_for_all_estimators(known: dict[str, object], estimator: str) -> None:
    own, places = spots(20)
    image = stack(by_plane(np.exp(-np.arange(20) / 10)) * (own + 40))
    check(localize(image, **known, estimator=estimator, neighbours="exclude"), places)


@pytest.mark.parametrize("kind", ["fades", "flickers", "3 planes"])
def test_the_model_of_a_plane_has_its_light(kind: str) -> None:
    depth, light = LIGHTS[kind]
    own, _ = spots(depth)
    # Two stacks of the same spots, which fade into other directions.
    true = np.stack([by_plane(light) * own, by_plane(light)[::-1] * own])
    image = stack(true + 40 * np.stack([by_plane(light), by_plane(light)[::-1]]))
    image[:, :, :5] = 30
    fits = localize(image, **KNOWN)
    fits = fits[fits.good]
    model = fits.model_image(image.shape, image=image)
    for number in range(2):
        for plane in range(depth):
            there = true[number, plane] > 0.3 * true[number, plane].max()
            shown = model[number, plane][there].sum() / true[number, plane][there].sum()
            assert shown == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(fits.residual_image(image), image - model)
    with pytest.warns(UserWarning, match="brightest planes: pass image"):
        undimmed = fits.model_image(image.shape)
    assert abs(undimmed - model).max() > 0.1 * model.max()
    with pytest.raises(ValueError, match="the image must have the shape"):
        fits.model_image(image.shape, image=image[0])


@pytest.mark.parametrize("neighbours", ["exclude", "auto"])
def test_widths_are_those_in_light_that_is_corrected(neighbours: str) -> None:
    own, places = spots(20)
    light = np.clip(1 + 0.3 * np.random.default_rng(804).normal(size=20), 0.2, 3)
    fits = localize(stack(by_plane(light) * (own + 10)), **OPEN, neighbours=neighbours)
    assert fits.settings.sigma_z == pytest.approx(SIGMA_Z, rel=0.05)
    own_fits, is_found, others = compared(fits, places)
    assert is_found.mean() > 0.95
    assert others <= 2
    error = (fits.z[own_fits] - places[:, 0])[is_found] / fits.z_stderr[own_fits[is_found]]
    assert np.sqrt(np.mean(np.clip(error, -9, 9) ** 2)) < 1.4


BACKGROUNDS = {
    "falls": 10 + 30 * np.exp(-np.arange(20) / 5),
    "ends": np.where(np.arange(20) < 9, 10.0, 20.0),
    "slope": 200 + 10.0 * np.arange(20),
    "3 planes": np.array([40.0, 24.0, 15.0]),
    "hump": 10 + 20 * np.exp(-((np.arange(20) - 9) ** 2) / 18),
}


@pytest.mark.parametrize("kind", BACKGROUNDS)
def test_a_background_that_differs_alone_leaves_the_light_of_spots(kind: str) -> None:
    background = BACKGROUNDS[kind]
    own, places = spots(len(background))
    fits = localize(stack(own + by_plane(background)), **KNOWN, neighbours="exclude")
    assert fits.settings.noise.planes == "background"
    check(fits, places)
    own_fits, is_found, _ = compared(fits, places)
    rows = own_fits[is_found]
    here = np.interp(fits.z[rows], np.arange(len(background)), background)
    assert np.median(fits.background[rows] / here) == pytest.approx(1, abs=0.05)


def faded(read_out: float, end: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a stack of a camera with read-out noise, of spots of any brightness, which fades."""
    own, places = spots(20, seed)
    rng = np.random.default_rng(seed + 10)
    tile = rng.lognormal(0, 0.4, (8, 8)).repeat(17, axis=0).repeat(17, axis=1)
    own = own * tile[:SIDE, :SIDE]
    light = by_plane(np.linspace(1, end, 20)) * (own + 10)
    noise = 100 + rng.normal(0, read_out, light.shape)
    return np.round(rng.poisson(light) + noise).astype(np.uint16), places


def test_a_camera_that_nothing_is_known_of() -> None:
    own, places = spots(20)
    electrons = stack(by_plane(np.exp(-np.arange(20) / 10)) * (own + 40))
    fits = localize(100 + 2 * electrons, model="gaussian_3d", backend="cpu")
    assert fits.settings.noise.planes == "light"
    own_fits, is_found, others = compared(fits, places)
    assert is_found.mean() > 0.95
    assert others <= 3
    assert abs(np.median(fits.z[own_fits] - places[:, 0])) < 0.06


def test_the_offset_of_a_camera_follows_from_spots() -> None:
    image, places = faded(2.0, 0.14)
    known = {"model": "gaussian_3d", "sigma": SIGMA, "sigma_z": SIGMA_Z, "backend": "cpu"}
    with pytest.warns(
        UserWarning, match=r"differ in light, .* suggest .* z may be off by 0\..* Set"
    ):
        fits = localize(image, **known)
    noise = fits.settings.noise
    assert noise.dark > noise.offset + 1  # where noise ends there is read-out noise
    assert noise.dark == pytest.approx(100, abs=2)
    own, is_found, _ = compared(fits, places)
    assert abs(np.median((fits.z[own] - places[:, 0])[is_found])) < 0.06
    again = localize(image, settings=fits.settings)
    np.testing.assert_array_equal(again.z, fits.z)


@pytest.mark.filterwarnings("ignore:the background of the stack changes along z")
@pytest.mark.parametrize("seed", range(2))
def test_spots_of_any_brightness_show_that_light_fades(seed: int) -> None:
    image, places = faded(2.0, 0.4, seed)
    fits = localize(image, **KNOWN, offset=100.0)
    assert fits.settings.noise.planes == "light"
    own, is_found, _ = compared(fits, places)
    assert abs(np.median((fits.z[own] - places[:, 0])[is_found])) < 0.05


def test_copies_of_one_plane_are_no_stack() -> None:
    plane = stack(spots(20)[0] + 40)[10]
    with pytest.warns(UserWarning, match="only one of the 12 planes of the stack has an image"):
        localize(np.repeat(plane[np.newaxis], 12, axis=0), **KNOWN)


@pytest.mark.parametrize("background", [5.0, 40.0, 300.0])
def test_planes_that_are_alike_stay_as_they_are(background: float) -> None:
    fits = localize(stack(spots(20)[0] + background), **KNOWN)
    assert fits.settings.noise.planes == ""


@pytest.mark.parametrize("ends", [(30, 60), (10, 29), (50, 69), (100, 140)])
def test_a_slope_along_z_that_spots_do_not_follow_is_corrected(ends: tuple[int, int]) -> None:
    own, places = spots(20)
    fits = localize(stack(own + by_plane(np.linspace(*ends, 20))), **KNOWN, neighbours="exclude")
    assert fits.settings.noise.planes == "background"
    check(fits, places)


@pytest.mark.parametrize("factor", [0.3, 1.5, 3.0])
def test_a_plane_of_its_own_light_is_corrected(factor: float) -> None:
    own, places = spots(20)
    light = np.where(np.arange(20) == 9, factor, 1.0)
    fits = localize(stack(by_plane(light) * (own + 10)), **KNOWN, neighbours="exclude")
    assert fits.settings.noise.planes == "light"
    own_fits, is_found, _ = compared(fits, places)
    error = (fits.z[own_fits] - places[:, 0])[is_found]
    assert is_found.mean() > 0.95
    assert np.sqrt(np.mean(np.clip(error / fits.z_stderr[own_fits[is_found]], -9, 9) ** 2)) < 1.3


def crowd(
    depth: int, count: int, side: int, ends: tuple[float, float], seed: int = 5
) -> np.ndarray:
    """Return the light of bright spots at random places, between planes."""
    rng = np.random.default_rng(seed)
    light = np.full((depth, side, side), 10.0)
    z, across = np.arange(depth), np.arange(side)
    for place in rng.uniform((ends[0], 3, 3), (ends[1], side - 4, side - 4), (count, 3)):
        lines = [
            np.exp(-((axis - at) ** 2) / 2 / width**2) / width / np.sqrt(2 * np.pi)
            for axis, at, width in zip((z, across, across), place, (1.5, 1.3, 1.3), strict=True)
        ]
        light += 20000 * np.einsum("z,y,x->zyx", *lines)
    return light


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("depth", "count", "side", "ends"),
    [(3, 35, 48, (0, 2)), (5, 40, 48, (1, 2)), (7, 96, 64, (2.8, 4.2)), (20, 60, 64, (6, 7))],
    ids=["thin", "layer", "crowd", "deep"],
)
def test_dense_spots_are_no_light_of_planes(
    depth: int, count: int, side: int, ends: tuple[float, float], seed: int
) -> None:
    image = stack(crowd(depth, count, side, ends, seed), seed)
    fits = localize(image, **KNOWN, neighbours="exclude")
    assert fits.settings.noise.planes == ""


def test_a_crowd_in_light_that_flickers_stays_as_it_is_and_is_warned_of() -> None:
    light = np.random.default_rng(3).uniform(0.5, 1.5, 20)
    image = stack(by_plane(light) * (crowd(20, 260, 64, (0, 19)) + 30))
    with pytest.warns(UserWarning, match="planes of the stack seem to differ"):
        fits = localize(image, **KNOWN, neighbours="exclude")
    assert fits.settings.noise.planes == ""


def test_all_ways_to_the_fits_give_the_same() -> None:
    own, _ = spots(20)
    image = stack(by_plane(np.exp(-np.arange(20) / 10)) * (own + 40))
    fits = localize(image, **KNOWN, neighbours="exclude")
    again = localize(image, settings=fits.settings)
    for name in ("z", "x", "photons", "z_stderr"):
        np.testing.assert_array_equal(again.columns[name], fits.columns[name])
    places = detect_spots(image, settings=fits.settings)
    assert len(places) == len(fits)
    there = fit_at(image, places, settings=fits.settings)
    np.testing.assert_allclose(np.sort(there.z[there.good]), np.sort(fits.z[fits.good]), atol=1e-3)


def test_each_stack_of_a_series_has_light_of_its_own() -> None:
    own, places = spots(20)
    lights = np.exp(-np.arange(20) / 10), np.exp(-np.arange(20)[::-1] / 10)
    image = np.stack([stack(by_plane(light) * (own + 40)) for light in lights])
    fits = localize(image, **KNOWN, neighbours="exclude")
    for number in range(2):
        rows, is_found, others = compared(fits[fits.frame == number], places)
        assert is_found.mean() > 0.95
        assert others <= 4
        z = fits[fits.frame == number].z[rows[is_found]]
        assert abs(np.median(z - places[is_found, 0])) < 0.06


PADDED = {
    "edge": lambda image: np.pad(image, ((3, 3), (0, 0), (0, 0)), mode="edge"),
    "reflect": lambda image: np.pad(image, ((3, 3), (0, 0), (0, 0)), mode="reflect"),
    "zero": lambda image: np.pad(image, ((3, 3), (0, 0), (0, 0))),
    "nan": lambda image: np.pad(
        image.astype(np.float32), ((3, 3), (0, 0), (0, 0)), constant_values=np.nan
    ),
}


@pytest.mark.parametrize("neighbours", ["exclude", "auto"])
def test_planes_of_nan_need_no_widths(neighbours: str) -> None:
    own, places = spots(20)
    image = PADDED["nan"](stack(own + 40))
    check(localize(image, **OPEN, neighbours=neighbours), places + np.array([3, 0, 0]))


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.filterwarnings("ignore:planes of the stack are copies of others")
def test_planes_without_an_image_of_their_own_count_in_no_fit(kind: str, estimator: str) -> None:
    own, places = spots(20)
    image = stack(own + 40)
    plain = localize(image, **KNOWN, neighbours="exclude", estimator=estimator)
    fits = localize(PADDED[kind](image), **KNOWN, neighbours="exclude", estimator=estimator)
    check(fits, places + np.array([3, 0, 0]))
    assert abs(int(fits.good.sum()) - int(plain.good.sum())) <= 3


def test_copied_planes_are_named() -> None:
    image = PADDED["edge"](stack(spots(20)[0] + 40))
    with pytest.warns(UserWarning, match=r"copies of others: 0, 1, 2, 23, 24, 25\."):
        localize(image, **KNOWN)


def test_a_plane_of_noise_counts_in_no_fit() -> None:
    own, places = spots(20)
    image = stack(own + 40)
    image[9] += np.random.default_rng(4).exponential(500, image[9].shape).astype(np.uint16)
    with pytest.warns(UserWarning, match=r"far more noise than those beside them: 9\."):
        check(localize(image, **KNOWN), places)


def test_which_planes_are_copies_or_empty() -> None:
    image = np.random.default_rng(0).integers(0, 99, (8, 20, 20)).astype(np.uint16)
    assert not copied_planes(image).any()
    assert np.flatnonzero(copied_planes(image[[0, 1, 1, 2, 3, 4]])).tolist() == [2]
    assert np.flatnonzero(copied_planes(image[[2, 1, 0, 1, 2, 3, 4, 5, 6]])).tolist() == [0, 1]
    # An even image without noise is no padding.
    assert not copied_planes(image[[3, 2, 1, 0, 1, 2, 3]]).any()
    image[2] = 5
    assert np.flatnonzero(empty_planes(image)).tolist() == [2]
    assert not copied_planes(image[[2, 2, 0, 1, 3]]).any()
    unknown = np.where(image == 5, np.nan, image)
    assert np.flatnonzero(empty_planes(unknown)).tolist() == [2]


@pytest.mark.parametrize("level", [2.0, 20.0, 300.0])
def test_levels_of_planes_are_those_between_spots(level: float) -> None:
    own, _ = spots(6)
    found = plane_levels(stack(own + level), NoiseModel(1.0, 0.0, 0.0))
    assert found == pytest.approx(level, rel=0.02, abs=0.2)
