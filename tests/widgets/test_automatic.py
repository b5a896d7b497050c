"""σ and the ROI's size, where the image tells them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hand import SHIFT
from qtpy.QtCore import Qt

from napari_spotfit import localize, simulate_movie
from napari_spotfit.estimation.image_estimates import MeasuredNoise
from napari_spotfit.widgets.fit_spots import FitSpots


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


@pytest.fixture
def wide(viewer):
    """Return a movie whose spots are wider than what is taken without it."""
    movie, _ = simulate_movie(
        3, shape=(128, 128), spots_per_frame=20, sigma=2.1, photons=6000, background=10, seed=2
    )
    return viewer.add_image(movie, name="wide")


@pytest.fixture
def asked(monkeypatch):
    """Return how often the PSF's width is looked for in an image."""
    from napari_spotfit.estimation import psf_width

    calls, width_of = [], psf_width.width_of

    def counted(*given):
        calls.append(given)
        return width_of(*given)

    monkeypatch.setattr(psf_width, "width_of", counted)
    return calls


def texts(widget):
    return tuple(widget.settings.controls[name].box.text() for name in ("sigma", "roi_size"))


def test_preview_click_and_fit_ask_the_image_once(viewer, widget, wide, hand, fit, qtbot, asked):
    assert texts(widget) == ("automatic", "automatic")
    assert not any(one.isVisible() for one in widget.settings.automatic_buttons.values())
    expected = localize(wide.data)
    asked.clear()
    with qtbot.waitSignal(widget.preview.drawn):
        widget.preview.box.click()
    sigma, roi = expected.settings.sigma, expected.settings.roi_size
    assert sigma == pytest.approx(2.1, abs=0.1)
    shown = (f"automatic ({sigma:.3g} px)", f"automatic ({roi} px)")
    assert texts(widget) == shown
    best = expected[np.argmax(expected.photons)]
    viewer.dims.set_current_step(0, int(best.frame[0]))
    hand.click(wide, (best.y[0], best.x[0]), SHIFT)
    qtbot.waitUntil(lambda: "wide (picked)" in viewer.layers)
    fit(widget)
    layer = widget.result.layer
    np.testing.assert_array_equal(layer.data, expected.points())
    for one in (layer, viewer.layers["wide (picked)"]):
        assert one.metadata["settings"]["sigma"] == sigma
        assert one.metadata["settings"]["roi_size"] == roi
    assert texts(widget) == shown
    assert len(asked) == 1
    # Another ROI does not ask for the width again.
    widget.settings.controls["roi_size"].value = roi + 2
    fit(widget)
    assert widget.result.layer.metadata["settings"]["roi_size"] == roi + 2
    assert len(asked) == 1


def test_a_fit_right_after_a_pick_is_what_is_described(viewer, widget, wide, hand, fit, qtbot):
    best = localize(wide.data)[:1]
    viewer.dims.set_current_step(0, int(best.frame[0]))
    hand.click(wide, (best.y[0], best.x[0]), SHIFT)
    qtbot.waitUntil(lambda: "wide (picked)" in viewer.layers)
    widget._picked_soon.setTimeout(600_000)
    widget._on_picked(viewer.layers["wide (picked)"])  # which waits to be described
    fit(widget)
    widget._picked_soon.flush()
    assert widget.result.layer is not viewer.layers["wide (picked)"]
    assert len(widget.result.layer.data) > 1


def test_another_image_is_asked_by_itself(viewer, widget, wide, fit, make_movie, asked):
    fit(widget)
    wide_text, _ = texts(widget)
    other = viewer.add_image(make_movie(2), name="other")
    widget.settings.image.layer = other
    assert texts(widget) == ("automatic", "automatic")
    fit(widget)
    narrow = widget.result.layer.metadata["settings"]["sigma"]
    assert narrow == pytest.approx(1.4, abs=0.1)
    assert texts(widget) == (f"automatic ({narrow:.3g} px)", "automatic (9 px)") != wide_text
    other.data = other.data[::-1].copy()
    assert texts(widget) == ("automatic", "automatic")
    assert len(asked) == 2


def test_a_number_is_held_and_let_go(widget, wide, fit, press, qtbot):
    widget.settings.advanced.expand()
    fit(widget)
    shown = texts(widget)
    box = widget.settings.controls["sigma"].box
    button = widget.settings.automatic_buttons["sigma"]
    box.setFocus()
    qtbot.keyClicks(box, "1.5")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert box.get() == 1.5
    fit(widget)
    assert widget.result.layer.metadata["settings"]["sigma"] == 1.5
    assert texts(widget) == ("1.5 px", "automatic (9 px)")  # the ROI follows
    qtbot.waitUntil(button.isVisible)
    press(button)
    assert box.get() is None
    assert not button.isVisible()
    assert texts(widget) == shown
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: "good fits (" in widget.status.text())
    assert box.get() == pytest.approx(2.1, abs=0.1)


def test_it_is_remembered(viewer, widget):
    widget.settings.controls["roi_size"].value = 11
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again)
    assert again.settings.settings().sigma is None
    assert again.settings.settings().roi_size == 11


def test_what_is_taken_instead_is_said_in_words(viewer, widget, fit, make_movie):
    viewer.add_image(np.full((2, 48, 50), 100, np.uint16), name="flat")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as napari would show it over the image
        assert fit(widget).startswith("No spots")
    assert texts(widget) == ("automatic (1.3 px)", "automatic (9 px)")
    said = widget.settings.psf_warning
    assert said.isVisible()
    assert said.text().startswith(
        "⚠ The image does not show the PSF's σ, so that 1.3 px is taken: "
    )
    assert "set σ by hand" in said.text()
    widget.settings.controls["sigma"].value = 1.4
    assert not said.isVisible()
    widget.settings.controls["sigma"].value = None
    assert said.isVisible()
    widget.settings.image.layer = viewer.add_image(make_movie(), name="spots")
    assert not said.isVisible()


def test_a_camera_that_the_noise_contradicts_is_shown(viewer, widget, fit):
    viewer.add_image(simulate_movie(3, shape=(128, 128), spots_per_frame=12, seed=1)[0])
    controls, said = widget.settings.controls, widget.settings.psf_warning
    controls["gain"].value, controls["offset"].value = 1.0, 100.0
    fit(widget)
    assert not said.isVisible()
    controls["offset"].value = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as napari would show it over the image
        fit(widget)
    assert said.isVisible()
    assert said.text().startswith("⚠ The image has 0.")
    assert "times the noise that a camera of gain 1 has" in said.text()
    controls["offset"].value = 100.0
    assert not said.isVisible()


def test_an_image_that_is_asked_holds_up_nobody(viewer, widget, gate, qtbot):
    viewer.add_image(gate.movie[4:5], name="slow", contrast_limits=(90, 600), visible=False)
    widget.preview.box.click()
    qtbot.waitUntil(lambda: widget.preview.latest.busy)
    widget.settings.controls["false_spots"].value = 20
    assert texts(widget) == ("automatic", "automatic")
    gate.open()
    qtbot.waitUntil(lambda: texts(widget)[0].startswith("automatic (1."))


def test_an_image_tells_what_localize_finds(wide):
    noise = MeasuredNoise()
    expected = localize(wide.data)
    assert noise.known(expected.settings) is None
    settings = expected.settings.changed(sigma=None, roi_size=None, noise=None)
    assert noise.put_into(settings, wide.data, {}) == expected.settings
    found = noise.known(settings)
    assert (found.sigma, found.roi_size, found.noise) == (
        expected.settings.sigma, expected.settings.roi_size, expected.settings.noise
    )  # fmt: skip
    assert found.warning == ""
