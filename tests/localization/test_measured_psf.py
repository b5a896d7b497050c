"""Movies are localized with a measured PSF, through every door."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from psfs import PSFS, measured_psf

from napari_spotfit import (
    Fitter,
    Flag,
    MeasuredPsf,
    fit_at,
    load_settings,
    localize,
    save_settings,
    simulate_movie,
    simulate_psf,
)


def movie_of(name, **options):
    return simulate_movie(
        12, (128, 128), spots_per_frame=4, photons=4000, background=10, z=(-500, 500),
        optics={"zernike": PSFS[name]}, seed=3, **options,
    )  # fmt: skip


def matched(fits, truth, reach=1.5):
    """Return the error of z, and its standard error, of good fits next to lone spots."""
    errors = []
    for frame, spots in truth.groupby("frame"):
        own = fits[(fits.frame == frame) & fits.good]
        places = spots[["y", "x"]].to_numpy()
        for y, x, z, stderr in zip(own.y, own.x, own.z, own.z_stderr, strict=True):
            apart = np.hypot(*(places - (y, x)).T)
            if apart.min() < reach and (apart < 16).sum() == 1:
                errors.append((z - spots["z"].to_numpy()[apart.argmin()], stderr))
    return np.array(errors).T


@pytest.mark.parametrize("name", PSFS)
def test_z_of_a_movie_is_found(name):
    movie, truth = movie_of(name)
    fits = localize(movie, model=measured_psf(name), estimator="mle", gain=1.0, offset=100.0)
    error, stderr = matched(fits, truth)
    assert len(error) > 0.6 * len(truth)
    assert np.mean(np.abs(error) > 6 * stderr) < 0.05
    near = np.abs(error) < 6 * stderr
    # The simulator's PSF is no spline, and 4000 photons tell.
    assert np.std((error / stderr)[near]) < 1.5
    assert fits.units["z"] == "nm"
    assert fits.settings.roi_size == 13
    # One row a spot: of two lobes, both are found of few.
    assert fits.good.sum() <= 1.1 * len(truth)


def test_the_noise_of_the_image_gives_errors_without_a_gain():
    movie, truth = movie_of("astigmatic")
    error, stderr = matched(localize(movie, model=measured_psf()), truth)
    near = np.abs(error) < 6 * stderr
    assert 0.6 < np.std((error / stderr)[near]) < 1.6


def test_fits_at_positions_are_those_of_localize():
    psf = measured_psf()
    movie, _ = movie_of("astigmatic")
    known = {"model": psf, "estimator": "mle", "gain": 1.0, "offset": 100.0, "sigma": 1.3}
    known["neighbours"] = "exclude"
    found = localize(movie, **known)
    first = found[found.frame == 0]
    places = np.column_stack([first.roi_y + 6, first.roi_x + 6])
    again = fit_at(movie[0], places, **known)
    np.testing.assert_allclose(again.z, first.z, atol=0.5)
    fitter = Fitter(**known, roi_size=13)
    rois = [movie[0][y - 6 : y + 7, x - 6 : x + 7] for y, x in places.astype(int)]
    np.testing.assert_allclose(fitter.fit_at(movie[0], places).z, first.z, atol=0.5)
    # Cut-outs know of no other spots.
    lone = (first.flags & Flag.NEIGHBOUR) == 0
    assert lone.sum() >= 3
    np.testing.assert_allclose(fitter.fit(np.stack(rois)[lone]).z, first.z[lone], atol=60)


def test_z_beyond_the_planes_is_flagged_in_a_movie():
    psf = measured_psf()
    short = type(psf)(psf.coefficients[12:-12], psf.dz, psf.plane - 12, psf.y, psf.x)
    movie, _ = movie_of("astigmatic")
    fits = localize(movie, model=short, estimator="mle", gain=1.0, offset=100.0)
    low, high = np.float32(short.range)
    limit = (fits.z <= low) | (fits.z >= high)
    assert limit.sum() > 5
    flagged = (fits.flags & int(Flag.Z_AT_LIMIT)) != 0
    assert flagged[limit].all()
    # Others are lobes of such spots.
    others = fits.z[flagged & ~limit]
    assert len(others) <= 2
    assert ((fits.flags & int(Flag.AT_BOUND)) != 0).sum() < 3
    assert not fits.good[limit].any()


def test_settings_with_a_psf_are_saved(tmp_path):
    movie, _ = movie_of("astigmatic")
    fits = localize(movie[:2], model=measured_psf())
    save_settings(fits.settings, tmp_path / "own.toml")
    assert load_settings(tmp_path / "own.toml") == fits.settings


@pytest.mark.parametrize(
    ("height", "words"),
    [(0, ""), (300, ""), *((z, "do not look") for z in (800, 1100, 1200, -1200))],
)
def test_spots_beyond_the_range_are_warned_of(height, words):
    """They look like dim ones within the range, or each of their two lobes does."""
    light = np.full((128, 128), 20.0)
    lens = {"astigmatism": 0.1}
    psf = 20000 * simulate_psf([height], 33, zernike=lens)[0]
    for y, x in ((30, 30), (30, 90), (90, 60)):
        light[y - 16 : y + 17, x - 16 : x + 17] += psf
    frame = (np.random.default_rng(1).poisson(light) + 100).astype(np.uint16)
    planes = simulate_psf(np.arange(-600, 601, 40), 21, zernike=lens)
    model = MeasuredPsf.from_planes(planes, 40.0, plane=15)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        localize(frame, model=model, estimator="mle", gain=1.0, offset=100.0, backend="cpu")
    assert len(caught) == bool(words)
    assert all(words in str(one.message) for one in caught)
