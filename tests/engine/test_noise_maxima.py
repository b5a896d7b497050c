"""Thresholds so low that noise has maxima all over the image: these begin no joint fits."""

from __future__ import annotations

import numpy as np
import pytest
from crowd_scenes import KNOWN, random_spots
from same_fits import assert_same

from napari_spotfit import SpotFits, localize, localize_iter
from napari_spotfit.engine.cpu import crowd_fits
from napari_spotfit.images import frames as frames_module

LOW = [{"threshold": 1e-3}, {"false_spots": 1e5}]


def low_names(options):
    return next(iter(options))


def few_spots(side=160):
    """Return an image with a spot in 200 pixels, some of which overlap, and their places."""
    movie, places = random_spots(1, 0.005, seed=21, side=side)
    return movie, places[0]


def found_of(fits, places):
    """Return which places have a good fit within 1 px."""
    own = fits[fits.good]
    return (np.hypot(*(places[:, np.newaxis] - own.points()[:, 1:]).T) < 1).any(axis=0)


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
@pytest.mark.parametrize("low", LOW, ids=low_names)
def test_noise_is_no_crowd(low, neighbours, monkeypatch):
    """One of all maxima would take 25 times this memory, and a hundred times the time."""
    noise = np.random.default_rng(5).poisson(10, (1, 256, 256)).astype(np.uint16)
    monkeypatch.setattr(crowd_fits, "_MOST_BYTES", 4 << 20)
    by_themselves = localize(noise, **KNOWN, **low, neighbours="exclude")
    fits = localize(noise, **KNOWN, **low, neighbours=neighbours)
    assert len(by_themselves) > 2000
    assert len(fits) < 0.1 * len(by_themselves)
    assert fits.group_size.max() <= 4
    assert fits.good.sum() <= by_themselves.good.sum() / 2


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
@pytest.mark.parametrize("low", LOW, ids=low_names)
def test_spots_are_found_as_without_it(low, neighbours):
    movie, places = few_spots()
    usual = localize(movie, **KNOWN, neighbours=neighbours)
    fits = localize(movie, **KNOWN, **low, neighbours=neighbours)
    assert (usual.group_size > 1).sum() > 20
    lost = found_of(usual, places) & ~found_of(fits, places)
    assert lost.sum() <= 1
    # Spots do not come twice, as they would if maxima on their slopes kept their rows.
    own = fits[fits.good]
    apart = np.hypot(*(own.points()[:, np.newaxis, 1:] - own.points()[:, 1:]).T)
    assert apart[~np.eye(len(own), dtype=bool)].min() > 0.5


def test_distances_are_those_of_the_rows_that_are_left():
    fits = localize(few_spots()[0], **KNOWN, threshold=1e-3, neighbours="auto")
    own = fits[fits.good]
    apart = np.hypot(*(own.points()[:, np.newaxis, 1:] - own.points()[:, 1:]).T)
    nearest = (apart + np.diag(np.full(len(own), np.inf))).min(axis=0)
    # Others are nearest to a row that is not good. Of all maxima, most have one within 4 px.
    assert np.isclose(own.neighbour_distance, nearest, rtol=1e-4).mean() > 0.8


def test_noise_of_volumes_is_no_crowd(monkeypatch):
    noise = np.random.default_rng(5).poisson(10, (10, 64, 64)).astype(np.uint16)
    known = {"model": "gaussian_3d", "sigma": 1.3, "sigma_z": 1.2, "gain": 1.0, "backend": "cpu"}
    monkeypatch.setattr(crowd_fits, "_MOST_BYTES", 8 << 20)
    fits = localize(noise, **known, threshold=1e-3, neighbours="auto")
    by_themselves = localize(noise, **known, threshold=1e-3, neighbours="exclude")
    assert len(fits) < 0.1 * len(by_themselves)


def test_tiles_have_the_rows_of_whole_frames(monkeypatch):
    movie = np.random.default_rng(7).poisson(10, (1, 2400, 180)).astype(np.uint16)
    movie[0, ::60, 10:170:4] += 60
    known = KNOWN | {"false_spots": 1e5, "neighbours": "auto"}
    whole = localize(movie, **known)
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 60 * movie.shape[-1] * movie.itemsize)
    parts = list(localize_iter(movie, **known | {"noise": whole.settings.noise}))
    assert len(parts) > 1
    assert_same(SpotFits.concatenate(parts), whole)


def test_blocks_make_no_difference():
    movie = np.random.default_rng(8).poisson(10, (3, 64, 64)).astype(np.uint16)
    known = KNOWN | {"threshold": 1e-3, "neighbours": "auto"}
    together = localize(movie, **known)
    known |= {"noise": together.settings.noise}
    alone = [localize(movie, frames=[i], **known) for i in range(len(movie))]
    assert_same(SpotFits.concatenate(alone), together)
