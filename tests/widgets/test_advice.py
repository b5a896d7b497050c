"""Images most of whose spots are doubtful: small marks, and one line that says why."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import Settings, simulate_movie
from napari_spotfit.engine.flags import Flag
from napari_spotfit.widgets.fitting.image_fit import advice
from napari_spotfit.widgets.layers.appearance import is_marked


@pytest.fixture
def field(viewer):
    movie, _ = simulate_movie(1, shape=(160, 160), spots_per_frame=80, photons=3000, seed=3)
    return viewer.add_image(movie[0], name="field")


def test_a_width_that_is_far_off_is_named_and_mended(viewer, widget, field, fit, press, qtbot):
    fit(widget)
    assert widget.advice.isHidden()
    good = int(viewer.layers["field spots"].features["good"].sum())
    widget.settings.controls["sigma"].value = 5.0
    fit(widget)
    layer = viewer.layers["field spots"]
    assert layer.features["good"].mean() < 0.5
    shown = widget.advice.button.text().removeprefix("Fit with ")
    assert widget.advice.label.text() == (
        f"⚠ Most are doubtful: σ is given as 5 px, the image shows {shown}."
    )
    assert float(shown.removesuffix(" px")) == pytest.approx(1.3, rel=0.1)
    # Many crosses are small, in pixels of the image and on the screen.
    assert is_marked(layer)
    assert layer.size[layer.features["good"] == 0].max() <= 8
    assert layer.canvas_size_limits[1] <= 200
    with qtbot.waitSignal(widget.finished):
        press(widget.advice.button)
    assert widget.settings.controls["sigma"].value is None
    assert int(viewer.layers["field spots"].features["good"].sum()) == good
    assert widget.advice.isHidden()


def test_a_few_doubtful_ones_stay_large(viewer, widget, field, fit):
    y, x = np.indices(field.data.shape)
    for row, column in ((30, 30), (90, 120)):  # two that are far too wide
        wide = 900 * np.exp(-(np.hypot(y - row, x - column) ** 2) / (2 * 4.0**2))
        field.data = field.data + wide.astype(field.data.dtype)
    fit(widget)
    layer = viewer.layers["field spots"]
    doubtful = layer.features["good"].to_numpy() == 0
    assert 0 < doubtful.sum() < 20
    assert layer.size[doubtful].min() > layer.size[~doubtful].max()


def test_what_is_no_image_of_spots_is_noticed(viewer, widget, fit, press):
    y, x = np.indices((200, 200))
    rng = np.random.default_rng(0)
    nuclei = np.full((200, 200), 50.0)
    for row, column, radius in ((50, 60, 25), (140, 50, 30), (70, 150, 28), (150, 150, 22)):
        nuclei += 400 / (1 + np.exp((np.hypot(y - row, x - column) - radius) / 2))
    nuclei *= 1 + 0.2 * np.sin(x / 5) * np.sin(y / 7)
    viewer.add_image(rng.poisson(nuclei).astype(np.uint16), name="DAPI")
    widget.settings.controls["false_spots"].value = 1000
    fit(widget)
    assert not widget.advice.isHidden()
    assert "⚠ Most are doubtful" in widget.advice.label.text()
    press(widget.picking.undo)
    assert widget.advice.isHidden()


@pytest.mark.parametrize(
    ("flag", "given", "sigma", "why", "mends"),
    [
        (Flag.WIDE, {"sigma": 0.6}, 1.35, "σ is given as 0.6 px, the image shows 1.35 px", "sigma"),
        (Flag.WIDE, {"sigma": 1.3}, 1.35, "no spots of one width here", None),
        (Flag.NARROW, {}, None, "no spots of one width here", None),
        (Flag.WEAK, {"false_spots": 1e5}, None, "False spots is given as 100000", "false_spots"),
        (Flag.WEAK, {"threshold": 2.0}, None, "Threshold is given as 2.0 counts", "threshold"),
        (Flag.WEAK, {}, None, "hardly above the noise", None),
        (Flag.NOT_CONVERGED, {"max_iterations": 2}, None, "iterations is given as 2",
         "max_iterations"),
        (Flag.AT_BOUND, {"roi_size": 5}, None, "ROI size is given as 5 px", "roi_size"),
        (Flag.SATURATED, {}, None, "the camera was saturated", None),
        (Flag.DUPLICATE, {}, None, "see why in the legend", None),
    ],
)  # fmt: skip
def test_the_cause_is_named(flag, given, sigma, why, mends):
    found = advice(np.array([int(flag)] * 9 + [0]), Settings(**given), sigma)
    assert why in found.why
    assert list(found.settings) == ([] if mends is None else [mends])
    assert bool(found.offer) == (mends is not None)
    if mends is not None:
        assert found.settings[mends] == getattr(Settings(), mends)
