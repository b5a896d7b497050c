"""Bright spots some widths apart move each other: their fits know the light of the others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.special import erf

from napari_spotfit import fit_at, localize
from napari_spotfit.engine.far_light import FAR, ROUNDS, far_reach
from napari_spotfit.images import frames as frames_module
from napari_spotfit.settings.settings import Settings

SIGMA, SIDE, APART = 1.3, 320, 45.0
#: All is known.
KNOWN = {"pixel": "integrated", "gain": 1.0, "variance": 1.0, "backend": "cpu"}


def image_of(places, light, shape, sigma, rng):
    share = (
        np.diff(0.5 * erf((np.arange(size + 1) - 0.5 - at[:, np.newaxis]) / (sigma * 2**0.5)))
        for size, at in zip(shape, places.T, strict=True)
    )
    image = 10 + np.einsum("n,ny,nx->yx", light, *share, optimize=True)
    return rng.poisson(image).astype(np.float32)


def pairs(photons, gap, seed, others=None, sigma=SIGMA):
    """Return a frame of pairs some σ apart, far from each other, and the places of all spots."""
    rng = np.random.default_rng(seed)
    line = np.arange(30, SIDE - 30, APART)
    first = np.array([(y, x) for y in line for x in line]) + rng.uniform(-0.5, 0.5, (36, 2))
    angle = rng.uniform(0, 2 * np.pi, len(first))
    second = first + gap * sigma * np.column_stack([np.sin(angle), np.cos(angle)])
    places = np.vstack([first, second])
    light = np.repeat([photons, photons if others is None else others], len(first))
    return image_of(places, light, (SIDE, SIDE), sigma, rng), places


def spread_of_errors(fits, places):
    """Return how far good fits are from true places, in standard errors."""
    good = fits[fits.good]
    apart, own = cKDTree(places).query(np.column_stack([good.y, good.x]))
    z = np.concatenate(
        [(good.y - places[own, 0]) / good.y_stderr, (good.x - places[own, 1]) / good.x_stderr]
    )[np.tile(apart < 0.5, 2)]
    assert len(z) > 1.8 * len(places)
    return (np.percentile(z, 84.13) - np.percentile(z, 15.87)) / 2


def assert_same_numbers(one, other):
    for name in ("y", "x", "photons", "sigma", "flags", "y_stderr", "evidence", "group"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("neighbours", ["joint", "auto"])
@pytest.mark.parametrize(
    ("photons", "gap", "sigma", "estimator"),
    [
        (1e4, 4.2, 1.3, "mle"), (1e4, 4.6, 1.3, "mle"), (1e5, 4.6, 1.3, "mle"),
        (1e5, 5.5, 1.3, "mle"), (1e6, 5.9, 1.3, "mle"), (1e5, 5.5, 0.8, "mle"),
        (1e5, 4.6, 1.3, "lse"), (1e6, 5.0, 1.3, "lse"),
    ],
)  # fmt: skip
def test_errors_of_bright_spots_that_are_near(photons, gap, sigma, estimator, neighbours):
    """Fitted one by one, with no light of others, they were off by 1.6 to 12 times their errors."""
    image, places = pairs(photons, gap, 3, sigma=sigma)
    options = {"sigma": sigma, "estimator": estimator, **KNOWN}
    fits = localize(image, neighbours=neighbours, **options)
    assert 0.8 < spread_of_errors(fits, places) < 1.3
    alone = localize(image, neighbours="exclude", **options)
    assert spread_of_errors(alone, places) > 1.5
    assert fits.good.sum() == alone.good.sum()


def test_a_bright_spot_moves_a_dim_one_and_not_the_other_way_round():
    image, places = pairs(1e5, 5.0, 4, others=2000.0)
    fits, alone = (
        localize(image, sigma=SIGMA, estimator="mle", neighbours=kind, **KNOWN)
        for kind in ("auto", "exclude")
    )
    _, own = cKDTree(places).query(np.column_stack([fits.y, fits.x]))
    is_bright = own < 36
    is_same = (fits.y == alone.y) & (fits.x == alone.x)
    assert is_same[is_bright].all()
    assert is_same[~is_bright].mean() < 0.5


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize(("photons", "gap"), [(1000.0, 4.5), (1e4, 6.5)])
def test_spots_that_no_light_moves_keep_their_own_fits(photons, gap, estimator):
    image, _ = pairs(photons, gap, 5)
    options = {"sigma": SIGMA, "estimator": estimator, **KNOWN}
    fits, alone = (localize(image, neighbours=kind, **options) for kind in ("auto", "exclude"))
    for name in ("y", "x", "photons", "sigma", "flags"):
        assert np.array_equal(getattr(fits, name), getattr(alone, name))


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_do_not_depend_on_other_frames_and_threads(threads):
    frames = [pairs(1e5, gap, 6)[0] for gap in (4.6, 8.0, 5.2)]
    options = {"sigma": SIGMA, "estimator": "mle", "neighbours": "auto", **KNOWN}
    noise = localize(frames[0], **options).settings.noise
    together = localize(np.stack(frames), **options, noise=noise, threads=threads)
    for number, frame in enumerate(frames):
        own, alone = together[together.frame == number], localize(frame, **options, noise=noise)
        for name in ("y", "x", "photons", "y_stderr", "neighbour_distance"):
            assert np.array_equal(getattr(own, name), getattr(alone, name))


def test_rows_do_not_depend_on_the_order_of_positions():
    image, places = pairs(1e5, 4.8, 7)
    options = {"sigma": SIGMA, "estimator": "mle", "neighbours": "auto", **KNOWN}
    order = np.random.default_rng(1).permutation(len(places))
    some, others = fit_at(image, places, **options), fit_at(image, places[order], **options)
    alone = fit_at(image, places, **options | {"neighbours": "exclude"})
    assert (some.y != alone.y).mean() > 0.5
    for name in ("y", "x", "photons", "sigma", "y_stderr", "neighbour_distance"):
        assert np.array_equal(getattr(some, name)[order], getattr(others, name))


@pytest.mark.parametrize("options", [{"estimator": "mle"}, {"neighbours": "joint"}])
def test_rows_do_not_depend_on_tiles(options, monkeypatch):
    """Short chains of spots, each moved by the next one, cross the borders of tiles."""
    rng, shape = np.random.default_rng(8), (2300, 200)
    along = np.concatenate([np.arange(12.0, 50, 6.2) + begin for begin in range(0, 2240, 60)])
    chains = [np.column_stack([along, np.full(len(along), x)]) for x in (30.0, 70.0)]
    places = np.vstack([*chains, rng.uniform((9, 100), (2290, 190), (500, 2))])
    places += rng.uniform(-0.4, 0.4, places.shape)
    light = np.exp(rng.uniform(np.log(1e4), np.log(1e5), len(places)))
    image = image_of(places, light, shape, SIGMA, rng)
    whole = localize(image, sigma=SIGMA, **KNOWN | options)
    alone = localize(image, settings=whole.settings.changed(neighbours="exclude"))
    assert len(np.setdiff1d(whole.y, alone.y)) > 250
    for rows in (60, 1040):
        monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
        monkeypatch.setattr(frames_module, "TILE", rows * shape[1] * image.itemsize)
        assert_same_numbers(localize(image, settings=whole.settings), whole)
        monkeypatch.undo()


def test_errors_need_not_be_asked_for():
    image, _ = pairs(1e5, 4.6, 9)
    with_errors, without = (
        localize(image, sigma=SIGMA, estimator="mle", errors=errors, **KNOWN)
        for errors in (True, False)
    )
    assert np.array_equal(with_errors.y, without.y)
    assert "y_stderr" not in without.columns


def test_how_far_light_is_looked_for():
    assert far_reach(Settings(sigma=2.0, neighbours="joint")) == ROUNDS * FAR * 2
    assert far_reach(Settings(sigma=2.0, neighbours="ignore")) == 0
