"""Images of the fitted light: the light of all spots, and what is left of an image without it."""

from __future__ import annotations

import numpy as np
import pytest
from psfs import crowd_of_psf, measured_psf

from napari_spotfit import SpotFits, fit_at, localize, simulate_movie, summarize_groups
from napari_spotfit.models.profiles import GAUSSIAN, Profile

SHAPE, SIGMA = (2, 40, 50), 1.4


def scene(pixel="sampled"):
    """Return the noiseless light of three spots on a background, and their places."""
    spots = [(0, 12.3, 20.1, 500.0), (0, 15.2, 22.4, 300.0), (1, 1.2, 45.7, 800.0)]
    y, x = np.indices(SHAPE[1:])
    light = np.zeros(SHAPE)
    for frame, row, column, height in spots:
        light[frame] += height * np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * SIGMA**2))
    return light, np.array(spots)


@pytest.mark.parametrize("neighbours", ["joint", "ignore"])
def test_residual_has_no_light_of_spots(neighbours):
    light, spots = scene()
    kept = spots if neighbours == "joint" else spots[[0, 2]]
    if neighbours == "ignore":
        light[0] = scene()[0][0] * 0
        y, x = np.indices(SHAPE[1:])
        _, row, column, height = spots[0]
        light[0] = height * np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * SIGMA**2))
    image = (light + 20).astype(np.float32)
    fits = fit_at(
        image, kept[:, :3], sigma=SIGMA, gain=1.0, roi_size=11, neighbours=neighbours,
        backend="cpu",
    )  # fmt: skip
    np.testing.assert_allclose(fits.model_image(SHAPE), light, atol=1.0)
    np.testing.assert_allclose(fits.residual_image(image), 20, atol=1.0)


def test_wrong_shapes_and_fits_without_settings():
    movie, _ = simulate_movie(1, shape=(32, 32), spots_per_frame=2, seed=1)
    fits = localize(movie, backend="cpu", sigma=1.3)
    with pytest.raises(ValueError, match=r"\(frame, y, x\)"):
        fits.model_image((32, 32))
    with pytest.raises(ValueError, match="no settings"):
        SpotFits(fits.columns, fits.index_names, None).model_image((1, 32, 32))
    assert not fits[:0].model_image((1, 32, 32)).any()


def test_groups_are_summed():
    light, _ = scene()
    image = np.random.default_rng(0).poisson(light + 20).astype(np.uint16)
    fits = localize(image, sigma=SIGMA, gain=1.0, neighbours="joint", backend="cpu")
    table = summarize_groups(fits[fits.good])
    assert table["count"].tolist() == [2, 1]
    assert table["frame"].tolist() == [0, 1]
    area = 2 * np.pi * SIGMA**2
    np.testing.assert_allclose(table["photons"], [800 * area, 800 * area], rtol=0.05)
    np.testing.assert_allclose(table["photons_over_single"], [1, 1], rtol=0.05)
    np.testing.assert_allclose(table["y"][0], (12.3 * 500 + 15.2 * 300) / 800, atol=0.1)
    with pytest.raises(ValueError, match="no groups"):
        summarize_groups(localize(image, sigma=SIGMA, neighbours="exclude", backend="cpu"))


@pytest.mark.parametrize(
    "model", ["gaussian", "gaussian_elliptical", "gaussian_rotated", "lorentzian", "moffat"]
)
def test_the_light_of_every_model_is_that_of_its_fits(model):
    movie, _ = simulate_movie(1, shape=(60, 60), spots_per_frame=6, photons=3000, seed=2)
    fits = localize(movie, model=model, neighbours="ignore", backend="cpu")
    places = fits.points()[:, 1:]
    found = fits[fits.valid & ((places > 8) & (places < 51)).all(axis=1)]
    assert len(found) > 1
    for one in range(len(found)):
        spot = found[[one]]
        light = spot.model_image(movie.shape)[0]
        corner = int(spot.roi_y[0]), int(spot.roi_x[0])
        window = tuple(slice(first, first + side) for first, side in
                       zip(corner, spot.settings.roi_shape, strict=True))  # fmt: skip
        residual = movie[0][window] - light[window] - spot.background[0]
        chi_square = float((residual.astype(float) ** 2).sum())
        np.testing.assert_allclose(chi_square, spot.chi_square[0], rtol=1e-3)


def test_one_wide_spot_does_not_widen_the_others(monkeypatch):
    movie, _ = simulate_movie(1, shape=(200, 200), spots_per_frame=150, photons=3000, seed=2)
    fits = localize(movie, neighbours="exclude", backend="cpu", sigma=1.3)
    wide = dict(fits.columns) | {"sigma": np.where(np.arange(len(fits)), fits.sigma, 9.0)}
    made, evaluate = [], GAUSSIAN.evaluate

    def counted(places, values, pixel):
        light = evaluate(places, values, pixel)
        made.append(light.size)
        return light

    monkeypatch.setattr(Profile, "evaluate", lambda self, *given: counted(*given))
    fits.model_image(movie.shape)
    few = sum(made)
    made.clear()
    SpotFits(wide, fits.index_names, fits.settings).model_image(movie.shape)
    assert sum(made) < few + 100**2


def test_the_light_of_a_measured_psf_is_drawn_as_far_as_it_is_known():
    psf = measured_psf()
    image, _ = crowd_of_psf(psf, 25, seed=3)
    fits = localize(image, model=psf, gain=1.0, neighbours="joint", backend="cpu")
    assert fits.residual_image(image).std() < 1.5 * np.sqrt(image.mean())
    inside = (np.abs(fits.points()[:, -2:] - 31.5) < 20).all(axis=1)
    light = fits[inside].model_image(image.shape)
    np.testing.assert_allclose(light.sum(), fits.photons[inside].sum(), rtol=0.03)
