"""On a real GPU: every model and estimator agrees with the CPU, by every path of data."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_fits import fit_rois as on_cpu
from model_spots import KINDS, MODELS, planes_for, settings_of, spots_of

from napari_spotfit.engine.cuda import fit
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.models.estimators import CONVERGED

cupy = pytest.importorskip("cupy")

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

#: Fits that are made on both backends, and of how many the centres must be alike.
COUNT, ALIKE = 20_000, 0.999


def assert_equal(ours, theirs):
    """To the last bit."""
    assert list(ours) == list(theirs)
    for name, values in theirs.items():
        np.testing.assert_array_equal(cupy.asnumpy(ours[name]), values, err_msg=name)


@pytest.mark.parametrize("estimator", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_fits_are_those_of_the_cpu(model, estimator):
    settings, planes = settings_of(model, estimator), planes_for(estimator, (9, 9))
    spots, _ = spots_of(settings, COUNT, photons=700)
    ours = fit.fit_rois(spots, None, (9, 9), settings, planes=planes)
    theirs = on_cpu(spots, None, (9, 9), settings, planes=planes)
    assert (ours["stop_condition"] == theirs["stop_condition"]).mean() > ALIKE
    both = np.isin(ours["stop_condition"], CONVERGED) & np.isin(theirs["stop_condition"], CONVERGED)
    assert both.mean() > 0.98
    distance = np.hypot(ours["x"] - theirs["x"], ours["y"] - theirs["y"])[both]
    assert (distance < 1e-3).mean() > ALIKE
    for name, values in theirs.items():
        if name not in ("angle", "angle_stderr", "iterations", "stop_condition"):
            np.testing.assert_allclose(
                np.quantile(ours[name][both], (0.1, 0.5, 0.9)),
                np.quantile(values[both], (0.1, 0.5, 0.9)),
                rtol=2e-3, atol=1e-5, err_msg=name,
            )  # fmt: skip


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("estimator", ["wlse", "mle with variance"])
def test_every_way_to_the_gpu_gives_the_same(estimator, more):
    """Few spots, many in pieces, in pinned memory, on the device, and results that stay."""
    import cupyx

    settings = settings_of("rotated", estimator)
    spots, _ = spots_of(settings, 5000)
    planes = planes_for(estimator, (9, 9), len(spots) if more else 1)
    start = np.full((len(spots), 5), np.nan, np.float32)
    start[::3, :2] = 4
    there = cupy.asarray(spots)
    known = Planes(cupy.asarray(planes.values))
    expected = fit.fit_rois(there, None, (9, 9), settings, start, planes=known)
    pinned = cupyx.empty_pinned(spots.shape, spots.dtype)
    pinned[:] = spots
    for array in (spots, pinned):
        ours = fit.fit_rois(array, None, (9, 9), settings, start, planes=planes)
        assert_equal(ours, expected)
    few = Planes(planes.values[:50] if more else planes.values)
    ours = fit.fit_rois(spots[:50], None, (9, 9), settings, start[:50], planes=few)
    assert_equal(ours, {name: values[:50] for name, values in expected.items()})
    stay = fit.fit_rois(there, None, (9, 9), settings, start, planes=known, on_device=True)
    assert isinstance(stay["angle"], cupy.ndarray)
    assert_equal(stay, expected)


@pytest.mark.parametrize("more", [False, True])
def test_rois_in_frames_are_those_cut_out(more):
    settings = settings_of("elliptical", "mle with variance")
    rng = np.random.default_rng(4)
    frames = rng.poisson(20, (6, 70, 83)).astype(np.uint16)
    planes = planes_for("mle with variance", (70, 83), 6 if more else 1)
    corners = np.column_stack([rng.integers(0, size, 4000) for size in (6, 62, 75)])
    own = corners * [[more, 1, 1]]
    cut = [np.stack([f[i, y : y + 9, x : x + 9] for i, y, x in c])
           for f, c in ((frames, corners), (planes.values, own))]  # fmt: skip
    expected = fit.fit_rois(cut[0], None, (9, 9), settings, planes=Planes(cut[1]))
    ours = fit.fit_rois(frames, corners.astype(np.int64), (9, 9), settings, planes=planes)
    assert_equal(ours, expected)


@pytest.mark.parametrize("model", ["gaussian", "rotated"])
def test_several_launches_make_one_result(monkeypatch, model):
    settings, planes = settings_of(model, "wlse"), planes_for("wlse", (9, 9), 3000)
    spots, _ = spots_of(settings, 3000)
    there = cupy.asarray(spots)
    expected = fit.fit_rois(there, None, (9, 9), settings, planes=planes)
    monkeypatch.setattr(fit, "_LAUNCH_WORK", 1.0)  # as little as there is
    assert_equal(fit.fit_rois(there, None, (9, 9), settings, planes=planes), expected)
