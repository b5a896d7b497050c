"""The GPU's kernel of joint fits on the host, against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
from crowds_on_host import CrowdsOnHost, assert_same_spots, image_of
from psfs import crowd_of_psf, measured_psf

from napari_spotfit import Camera, fit_at, localize
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cuda.crowd_fits import THREADS, memory_of_warps

KNOWN = {"sigma": 1.3, "gain": 1.0, "estimator": "mle", "backend": "cpu", "neighbours": "joint"}


@pytest.fixture
def compared(monkeypatch):
    """Fit all crowds on both machines, and return how many there were each time."""
    counts, fit = [], Cpu.fit_crowds

    def both(cpu, block, crowds):
        spots = fit(cpu, block, crowds)
        assert_same_spots(CrowdsOnHost(1).fit_crowds(block, crowds), spots)
        counts.append(len(crowds))
        return spots

    monkeypatch.setattr(Cpu, "fit_crowds", both)
    return counts


@pytest.mark.parametrize("pixel", ["sampled", "integrated"])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_crowds_are_those_of_the_cpu(compared, pixel, dtype):
    places = np.random.default_rng(3).uniform(2, 45, (24, 2))
    image = image_of(places, (48, 48)).astype(dtype)
    fits = localize(image, pixel=pixel, **KNOWN)
    assert compared[0] > 3
    assert len(fits) > 15


def test_crowds_in_volumes(compared):
    places = np.array([[5, 9, 9], [8, 10, 9.5], [6, 14, 13], [9.5, 22, 20], [6, 22, 20]])
    known = KNOWN | {"model": "gaussian_3d", "sigma_z": 1.7}
    assert len(localize(image_of(places, (15, 30, 28)), **known)) >= 4
    assert compared


def test_pixels_with_their_own_variances(compared):
    places = np.random.default_rng(4).uniform(2, 29, (8, 2))
    variances = np.random.default_rng(5).uniform(0, 40, (32, 32))
    known = KNOWN | {"camera": Camera(0, 1.0, variances)}
    del known["gain"]
    localize(image_of(places, (32, 32)).astype(np.float32), **known)
    assert compared


def test_spots_in_place(compared):
    places = np.array([[9, 9], [9, 11.5], [12, 10], [20, 20]])
    fit_at(image_of(places, (32, 32)), places, **KNOWN)
    assert compared == [1]


def test_where_spots_find_no_room_they_are_fitted_again(compared, monkeypatch):
    monkeypatch.setattr(CrowdsOnHost, "room", 3)
    localize(image_of(np.random.default_rng(6).uniform(2, 29, (9, 2)), (32, 32)), **KNOWN)
    assert compared[0] > 2


def test_each_warp_has_memory_for_all_crowds_that_it_takes():
    size = np.sort(np.random.default_rng(7).integers(1000, 90_000, 300))[::-1]
    begins = memory_of_warps(size, 64)
    assert (np.diff(begins) >= size[:64]).all()
    assert (begins % 256 == 0).all()
    assert len(begins) == 65
    assert len(memory_of_warps(size[:3], 64)) == THREADS // 32 + 1
    huge = np.full(100, 300 << 20)
    assert 4 < len(memory_of_warps(huge, 64)) <= 9


def test_a_measured_psf(compared):
    psf = measured_psf(side=21)
    image, *_ = crowd_of_psf(psf, 14, side=40)
    known = {"gain": 1.0, "estimator": "mle", "backend": "cpu", "neighbours": "joint"}
    assert len(localize(image, model=psf, **known)) > 8
    assert compared
