"""The GPU's fits on the host, against the CPU's library.

The very text that NVRTC gets; see on_host.py.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import on_host
import pytest
import reference
from cpu_fits import fit_rois as on_cpu
from psfs import measured_psf
from psfs import spots_of as spots_of_psf

from napari_spotfit import NoiseModel, Profile, Settings, StopCondition, simulate_spots
from napari_spotfit.engine.cuda.fit_kernel import Threads
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.models.profiles import MODELS

MLE = {"estimator": "mle", "gain": 1.0}
#: As no camera has it.
NOISE = NoiseModel(1.7, -120.0, 30.0, 1.3)
#: With a power that is fitted.
OWN = Profile.from_expression(
    "exp(-((x - x0)**2 + (y - y0)**2)**p / (2 * w**(2 * p)))", start={"w": "sigma", "p": 1}
)
#: Tolerances of parameters, and relative ones of other columns, for sums in another order.
APART = {"x": 2e-3, "y": 2e-3}
RELATIVE = 5e-3
#: Fraction of fits that may end elsewhere, as the last bit can decide whether a step is rejected.
ELSEWHERE = 0.03


class Case(NamedTuple):
    """A kind of fits, and its layout; by default that of a GPU."""

    shape: tuple[int, ...]
    pixel: str = "u2"
    options: Any = MappingProxyType({})
    lanes: tuple[int, int] | None = None
    gather: bool = False
    planes: bool = False
    variance_map: bool = False
    start: bool = False
    several: bool = False

    @property
    def settings(self):
        return Settings(**self.options)

    @property
    def threads(self):
        if self.lanes is None:
            return None
        return Threads(*self.lanes, 64, 2, self.several)


#: Every number of threads, missing rows and columns, every kind of pixels and of what is known.
CASES = {
    "a thread of its own": Case((7, 7), lanes=(1, 1), start=True),
    "several in turn": Case((9, 9), options={"errors": True}, lanes=(1, 1), several=True),
    "several in turn, in frames": Case(
        (8, 6), "i2", {"model": "gaussian_elliptical"}, (1, 1), gather=True, several=True,
        start=True,
    ),
    "two threads, a row missing": Case((13, 13), "f4", {"errors": True}, (1, 2)),
    "two by two, edges missing": Case(
        (17, 15), "u2", {"errors": True}, (2, 2), gather=True, variance_map=True
    ),
    "four threads": Case((16, 16), "u1", {"pixel": "integrated"}, (1, 4)),
    "four threads, one without rows": Case((5, 32), "f8", {"model": "lorentzian"}, (1, 4)),
    "four by four": Case((30, 26), "f4", {"model": "gaussian_elliptical"}, (4, 4)),
    "the image's noise": Case(
        (9, 9), options={"errors": True, "noise": NOISE}, lanes=(1, 1), several=True
    ),
    "the image's noise, four threads": Case(
        (16, 16), "f4", {"model": "gaussian_elliptical", "noise": NOISE}, (1, 4), variance_map=True
    ),
    "likelihood by the image's noise": Case(
        (9, 9), "u2", {"estimator": "mle", "noise": NOISE, "emccd": True}, (1, 1)
    ),
    "rotated": Case((9, 9), "u2", {"model": "gaussian_rotated", "errors": True}, (1, 1)),
    "rotated, eight threads": Case((19, 12), "f4", {"model": "gaussian_rotated"}, (1, 8),
                                   gather=True),
    "moffat, two threads": Case((11, 11), "f4", {"model": "moffat"}, (1, 2)),
    "weights": Case((9, 9), "f4", {"estimator": "wlse", "errors": True}, (1, 1), planes=True,
                    variance_map=True),
    "weights, eight threads": Case((17, 15), "u2", {"estimator": "wlse"}, (1, 8), planes=True,
                                   gather=True),
    "one's own": Case((9, 9), "u2", {"model": OWN, "errors": True}, (1, 1)),
    "one's own, likelihood, four threads": Case(
        (13, 11), "f4", MLE | {"model": OWN, "errors": True}, (1, 4), gather=True
    ),
    "one's own, likelihood, read-out noise": Case(
        (9, 9), "u2", MLE | {"model": OWN}, (1, 1), planes=True
    ),
    "likelihood": Case((9, 9), "u2", MLE | {"errors": True}, (1, 1), start=True),
    "likelihood, two threads, a row missing": Case((11, 11), "f4", MLE | {"errors": True}, (1, 2)),
    "likelihood, two threads, read-out noise": Case((13, 13), "f4", MLE, (1, 2), planes=True),
    "likelihood, sixteen threads": Case((17, 18), "u2", MLE, (1, 16), gather=True),
    "measured PSF": Case((13, 13), "u2", {"model": measured_psf(), "errors": True}),
    "measured PSF, likelihood, four threads": Case(
        (13, 13), "f4", MLE | {"model": measured_psf(), "errors": True}, (1, 4), gather=True
    ),
    "measured PSF, likelihood, read-out noise": Case(
        (11, 14), "u2", MLE | {"model": measured_psf("saddle")}, planes=True, start=True
    ),
    "volumes": Case((5, 8, 9), "u2", {"model": "gaussian_3d", "errors": True}, start=True),
    "volumes, elliptical, in frames": Case(
        (6, 7, 8), "f4", {"model": "gaussian_3d_elliptical", "errors": True, "gain": 1.0}, (1, 4),
        gather=True, variance_map=True,
    ),
    "volumes, integrated": Case(
        (7, 9, 9), "f8", {"model": "gaussian_3d", "pixel": "integrated"}, (1, 32)
    ),
    "volumes, likelihood, read-out noise": Case(
        (5, 9, 7), "u2", MLE | {"model": "gaussian_3d", "errors": True}, planes=True, gather=True
    ),
    "volumes, weights": Case(
        (5, 8, 8), "f4", {"model": "gaussian_3d_elliptical", "estimator": "wlse"}, (1, 1),
        planes=True,
    ),
}  # fmt: skip


def spots_of(case, count=75):
    """Return spots, and some constant, NaN or pure noise."""
    broad = min(case.shape) > 8
    spots, truth = simulate_spots(
        count, case.shape[-2:], photons=3000, background=4, sigma=(1.1, 1.8 if broad else 1.3),
        jitter=0.5, seed=sum(case.shape),
    )  # fmt: skip
    if len(case.shape) == 3:
        spots, truth = volume_spots(case, truth)
    if case.settings.profile.lattice:
        spots, z, at = spots_of_psf(
            case.settings.model, count, 2000, 4, reach=500, side=max(case.shape)
        )
        spots = spots[:, : case.shape[0], : case.shape[1]]
        truth = truth.assign(z=z, y=at[:, 0], x=at[:, 1])
    if case.options.get("model") == "moffat":  # a Gaussian leaves its exponent open
        spots = moffat_spots(case.shape, truth)
    spots = np.minimum(spots, 250).astype(case.pixel)
    spots[3] = 7
    spots[40] = np.random.default_rng(5).poisson(9, case.shape)
    if case.pixel[0] == "f":
        spots[5, ..., 1, 2] = np.nan
        spots[6] = np.nan
    return spots, truth


def volume_spots(case, truth):
    """Return spots in volumes."""
    truth = truth.assign(z=(case.shape[0] - 1) / 2 + truth["x"] - truth["x"].mean())
    kind = reference.Kind(case.settings.profile, case.settings.pixel)
    widths = [1.3] * len(kind.profile.widths)
    light = [
        reference.image(kind, [*place, *widths, 120, 4], case.shape)
        for place in truth[["z", "y", "x"]].to_numpy()
    ]  # fmt: skip
    return np.random.default_rng(2).poisson(light), truth


def moffat_spots(shape, truth):
    rows, columns = np.indices(shape, float)
    light = [
        MODELS["moffat"].evaluate(
            (rows, columns),
            {"y": y, "x": x, "width": 2.0, "exponent": 2.5, "amplitude": 150, "background": 4},
        )
        for y, x in truth[["y", "x"]].to_numpy()
    ]  # fmt: skip
    return np.random.default_rng(2).poisson(light)


def in_frames(spots):
    """Return frames that contain the spots, and their corners; one lies outside."""
    count, sides = len(spots) // 5, spots.shape[1:]
    more = (3, 9, 11)[-len(sides) :]
    frames = np.full((count, *np.add(sides, more)), 1, spots.dtype)
    corners = np.zeros((count, 1 + len(sides)), np.int64)
    for i in range(count):
        corner = [
            (step * i) % (room + 1)
            for step, room in zip((1, 1, 3)[-len(sides) :], more, strict=True)
        ]
        corners[i] = i, *corner
        place = tuple(slice(first, first + side) for first, side in zip(corner, sides, strict=True))
        frames[i][place] = spots[i]
    corners[9, 0] = -1
    return frames, corners


def planes_of(case, frame_shape):
    """Return a map of weights or variances for all frames, with some bad pixels."""
    random = np.random.default_rng(3)
    bad = random.random((1, *frame_shape)) < 0.03
    if case.settings.estimator == "mle":
        values = np.where(bad, np.nan, random.uniform(0, 5, bad.shape))
    else:
        values = np.where(bad, 0, random.uniform(0.5, 2, bad.shape))
    return Planes(values.astype(np.float32))


@pytest.mark.parametrize("name", CASES)
def test_fits_are_those_of_the_cpu(name):
    case = CASES[name]
    settings, (frames, truth), corners = case.settings, spots_of(case), None
    if case.gather:
        frames, corners = in_frames(frames)
    count = len(frames)
    start = None
    if case.start:
        start = np.full((count, len(settings.profile.shape)), np.nan, np.float32)
        axes = settings.profile.axes
        start[::2, : len(axes)] = np.rint(truth[list(axes)].to_numpy()[:count:2])
    known = {
        "planes": planes_of(case, frames.shape[1:]) if case.planes else None,
        "variance_map": Planes(np.full((1, *frames.shape[1:]), 2, np.float32))
        if case.variance_map else None,
    }  # fmt: skip
    ours = on_host.fit_rois(
        frames, corners, case.shape, settings, start, threads=case.threads, **known
    )
    assert_alike(ours, on_cpu(frames, corners, case.shape, settings, start, **known))
    if not case.gather:
        assert ours["stop_condition"][3] == StopCondition.INVALID
    else:
        assert ours["stop_condition"][9] == StopCondition.INVALID
        assert np.isnan(ours["x"][9])


def assert_alike(ours, theirs):
    assert list(ours) == list(theirs)
    invalid = theirs["stop_condition"] == StopCondition.INVALID
    np.testing.assert_array_equal(ours["stop_condition"] == StopCondition.INVALID, invalid)
    converged = np.isin(theirs["stop_condition"], (1, 2, 3))
    assert converged.mean() > 0.7
    apart = np.zeros(len(invalid), bool)
    for name, values in theirs.items():
        if name in ("iterations", "stop_condition"):
            continue
        assert ours[name].dtype == values.dtype
        np.testing.assert_array_equal(np.isnan(ours[name][invalid]), np.isnan(values[invalid]))
        near = np.isclose(
            ours[name], values, RELATIVE, APART.get(name, 1e-3 * np.nanmedian(abs(values))),
            equal_nan=True,
        )  # fmt: skip
        apart |= converged & ~near
    assert apart.sum() <= max(ELSEWHERE * len(apart), 1), (apart.nonzero(), ours, theirs)


@pytest.mark.parametrize("count", [1, 31, 64, 65, 200, 1100])
def test_any_number_of_fits_in_any_number_of_rounds(count):
    case = CASES["several in turn"]
    spots, _ = spots_of(case, 75)
    spots = spots[np.arange(count) % len(spots)]
    given = spots, None, case.shape, case.settings
    ours = on_host.fit_rois(*given, threads=case.threads)
    assert case.threads.rounds(count, 1) == min(-(-count // 256), 16)
    for name, values in on_host.fit_rois(spots[:75], *given[1:], threads=case.threads).items():
        np.testing.assert_array_equal(ours[name][:75], values[:count], err_msg=name)
        again = np.tile(values, -(-count // 75))[:count]
        np.testing.assert_array_equal(ours[name], again, err_msg=name)
