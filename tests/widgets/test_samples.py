"""The sample data: honest truth, right scale, fitted by the defaults."""

from __future__ import annotations

import numpy as np
import pytest
from napari.layers import Layer
from scenes import nearest

from napari_spotfit import Camera, localize
from napari_spotfit.widgets import samples

ALL = ["molecules", "beads", "smfish"]


@pytest.fixture(scope="module", params=ALL)
def sample(request):
    data, options, kind = getattr(samples, request.param)()[0]
    return data, options, kind


def matched(fits, truth, distance=0.5):
    """Return the share of true spots found, and of found spots that are true."""
    names = ["y", "x"] if "frame" not in truth else ["frame", "y", "x"]
    true, found = truth[names], fits.points()
    met, hit = nearest(found, true, distance), nearest(true, found, distance)
    return np.isfinite(met).mean(), np.isfinite(hit).mean()


def test_napari_takes_it(sample):
    layer = Layer.create(*sample)
    assert layer.scale[-1] == 0.1
    assert str(layer.units[-1]) == "micrometer"
    assert layer.axis_labels[-2:] == ("y", "x")
    low, high = layer.contrast_limits
    assert sample[0].min() <= low < high <= sample[0].max()


def test_truth_lies_inside(sample):
    data, options, _ = sample
    truth = options["metadata"]["truth"]
    assert {"y", "x", "sigma", "photons"} <= set(truth)
    for axis, name in zip((-2, -1), ("y", "x"), strict=True):
        assert truth[name].between(0, data.shape[axis] - 1).all()


def test_the_defaults_find_the_spots(sample):
    data, options, _ = sample
    frames = slice(0, 10) if data.ndim == 3 else None
    truth = options["metadata"]["truth"]
    truth = truth[truth["frame"] < 10] if data.ndim == 3 else truth
    fits = localize(data, frames=frames, sigma=1.3)
    found, true = matched(fits[fits.valid], truth)
    assert found > (0.75 if options["name"] == "smFISH" else 0.9)
    assert true > (0.85 if options["name"] == "smFISH" else 0.95)


def test_every_time_the_same(sample):
    again = {"molecules": samples.molecules, "beads": samples.beads, "smFISH": samples.smfish}
    data, options, _ = sample
    np.testing.assert_array_equal(data, again[options["name"]]()[0][0])


def test_the_maps_are_those_of_the_camera():
    *maps, (movie, options, _) = samples.scmos()
    offset, gain, variance, hot = (values for values, _, _ in maps)
    assert [kind for *_, kind in maps] == ["image", "image", "image", "labels"]
    for layer in maps:
        assert Layer.create(*layer).visible is False
    truth = options["metadata"]["truth"]
    known = {"camera": Camera(offset, gain, variance), "bad_pixels": hot > 0}
    fits = localize(movie, estimator="mle", **known)
    found, true = matched(fits[fits.valid], truth)
    assert found > 0.9
    assert true > 0.95
    alone = fits[fits.converged]
    assert np.median(alone.photons) == pytest.approx(truth["photons"].median(), rel=0.05)
    # Without the maps noisy pixels are found, and spoil fits.
    without = localize(movie, sigma=1.3)
    assert len(without) > len(fits)
    assert without.good.mean() < 0.95 < fits.good.mean()


def test_the_drift_is_that_of_the_beads():
    ((_, options, _),) = samples.beads()
    truth, drift = options["metadata"]["truth"], options["metadata"]["drift"]
    assert (drift[0] == 0).all()
    assert np.abs(drift).max() < 8
    moved = truth["y"].to_numpy().reshape(len(drift), -1)
    np.testing.assert_allclose(moved - moved[0], np.broadcast_to(drift[:, :1], moved.shape))


def test_filaments_are_where_the_truth_says_once_their_drift_is_subtracted():
    ((movie, options, _),) = samples.filaments()
    truth, drift = options["metadata"]["truth"], options["metadata"]["drift"]
    assert Layer.create(movie, options, "image").scale[-1] == 0.1
    for column, axis in zip(drift.T, "yx", strict=True):
        moved = truth[f"{axis}_fixed"] + column[truth["frame"]]
        np.testing.assert_allclose(moved, truth[axis])
        assert truth[axis].between(0, movie.shape[1] - 1).all()
        assert np.ptp(column) > 1
    assert truth.groupby("molecule").size().median() > 5
    fits = localize(movie, frames=slice(1000, 1300), sigma=1.3)
    _, true = matched(fits[fits.good], truth)
    assert true > 0.9
