"""Joint fits on a GPU: the rows of the CPU, whatever else is fitted."""

from __future__ import annotations

import numpy as np
import pytest
from crowds_on_host import image_of
from failing_gpu import FailingGpu, errors
from psfs import crowd_of_psf, measured_psf
from same_fits import assert_same

from napari_spotfit import Camera, fit_at, localize
from napari_spotfit.engine.backend import BackendFallbackWarning
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cuda.backend import Gpus
from napari_spotfit.engine.fallback import Fallback
from napari_spotfit.localization import plan

KNOWN = {"sigma": 1.3, "gain": 1.0, "estimator": "mle", "neighbours": "joint"}
VOLUME = {"model": "gaussian_3d", "sigma_z": 1.7}
ELLIPTICAL = {"model": "gaussian_elliptical", "fixed": {"sigma_x": 1.2, "sigma_y": 1.5}}
#: What they do, and how many spots are in how many pixels.
CASES = {
    "planes": ({}, 90, (4, 96, 96)), "integrated": ({"pixel": "integrated"}, 90, (4, 96, 96)),
    "least squares": ({"estimator": "lse"}, 90, (4, 96, 96)),
    "elliptical": (ELLIPTICAL, 90, (4, 96, 96)), "volumes": (VOLUME, 40, (2, 16, 48, 48)),
    "dense": ({}, 400, (2, 96, 96)), "auto": ({"neighbours": "auto"}, 60, (4, 96, 96)),
}  # fmt: skip


def movie_of(count, shape, seed=1):
    """Return a movie of frames with spots at random places."""
    rng = np.random.default_rng(seed)
    places = [rng.uniform(2, np.array(shape[1:]) - 3, (count, len(shape) - 1))
              for _ in range(shape[0])]  # fmt: skip
    return np.stack([image_of(own, shape[1:], seed=k) for k, own in enumerate(places)])


def assert_near(ours, theirs, same=0.99, *, in_place=False):
    """Check that as many spots as is asked for are the same, but for a part of their errors.

    Where the likelihood has two maxima that are equal but for rounding, a spot may be in either.
    Rows of given places are in their order, and two of them may be of the same spot.
    """
    assert abs(len(ours) - len(theirs)) <= (1 - same) * len(theirs)
    axes = [axis for axis in "zyx" if axis in theirs.columns]

    def places(fits):
        frame = fits.columns.get("frame", np.zeros(len(fits)))
        return np.column_stack([frame * 1e4, *(fits.columns[axis] for axis in axes)])

    apart = abs(places(theirs)[:, np.newaxis] - places(ours)).max(axis=2)
    nearest = np.arange(len(theirs)) if in_place else apart.argmin(axis=1)
    is_same = np.ones(len(theirs), bool)
    for name in (*axes, "photons", "background"):
        error = theirs.columns[f"{name}_stderr"]
        off = abs(theirs.columns[name] - ours.columns[name][nearest])
        is_same &= (off <= 0.05 * error) | np.isnan(error)
    is_same &= theirs.flags == ours.flags[nearest]
    assert is_same.mean() >= same, is_same.mean()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:sigma_y was fixed at")
@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_cpu(gpu, case, monkeypatch):
    halves, fit = [], Gpus.fit_crowds

    def by_halves(gpus, block, crowds):
        spots, half = fit(gpus, block, crowds), np.arange(0, len(crowds), 2)
        own = fit(gpus, block, crowds.some(half))
        own["crowd"] *= 2
        assert own.tobytes() == spots[spots["crowd"] % 2 == 0].tobytes()
        halves.append(len(half))
        return spots

    monkeypatch.setattr(Gpus, "fit_crowds", by_halves)
    settings, count, shape = CASES[case]
    movie, known = movie_of(count, shape), KNOWN | settings
    ours = localize(movie, backend="cuda", **known)
    assert_near(ours, localize(movie, backend="cpu", **known))
    import cupy

    # Each crowd to the bit, whatever else is fitted, and wherever frames are.
    assert_same(localize(cupy.asarray(movie), backend="cuda", **known), ours)
    assert sum(halves) > 10


@pytest.mark.gpu
def test_pixels_with_their_own_variances(gpu):
    rng = np.random.default_rng(4)
    camera = Camera(0, 1.0, rng.uniform(0, 40, (96, 96)))
    known = {"sigma": 1.3, "estimator": "mle", "neighbours": "joint", "camera": camera}
    movie = movie_of(90, (3, 96, 96)) + rng.normal(0, np.sqrt(camera.variance), (3, 96, 96))
    ours = localize(movie, backend="cuda", **known)
    assert_near(ours, localize(movie, backend="cpu", **known))


@pytest.mark.gpu
def test_spots_in_place(gpu):
    places = np.random.default_rng(5).uniform(2, 93, (120, 2))
    image = image_of(places, (96, 96))
    ours = fit_at(image, places, backend="cuda", **KNOWN)
    assert_near(ours, fit_at(image, places, backend="cpu", **KNOWN), in_place=True)


def test_where_a_gpu_fails_the_cpu_fits_crowds(monkeypatch):
    pytest.importorskip("cupy")
    failing = FailingGpu(errors()["lost"], task="fit_crowds")
    movie = movie_of(20, (2, 48, 48))
    expected = localize(movie, backend="cpu", **KNOWN)
    monkeypatch.setattr(plan, "select_backend", lambda *_: Fallback(failing, lambda: Cpu(2)))
    with pytest.warns(BackendFallbackWarning):
        found = localize(movie, backend="cpu", **KNOWN)
    assert_same(found, expected)


@pytest.mark.gpu
def test_a_measured_psf(gpu):
    psf = measured_psf(side=21)
    movie = np.stack([crowd_of_psf(psf, 25, side=64, seed=seed)[0] for seed in range(8)])
    known = {"model": psf, "gain": 1.0, "estimator": "mle", "neighbours": "joint"}
    ours, theirs = (localize(movie, backend=kind, **known) for kind in ("cuda", "cpu"))
    assert (theirs.group_size > 1).mean() > 0.5
    assert_near(ours, theirs, same=0.95)
