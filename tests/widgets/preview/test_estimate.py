"""The button that estimates σ."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import simulate_movie


@pytest.mark.parametrize("start", [1.0, 2.5])
def test_sigma_is_estimated_from_the_frame(viewer, widget, press, qtbot, start):
    movie, _ = simulate_movie(
        3, shape=(256, 256), spots_per_frame=30, sigma=1.8, photons=5000, background=10, seed=4
    )
    viewer.add_image(movie, name="movie")
    widget.settings.controls["sigma"].value = start
    press(widget.settings.estimate_button)
    assert not widget.settings.estimate_button.isEnabled()
    qtbot.waitUntil(lambda: "good fits (" in widget.status.text(), timeout=120_000)
    assert widget.settings.controls["sigma"].value == pytest.approx(1.8, abs=0.05)
    assert f"PSF σ {widget.settings.controls['sigma'].value:g} px" in widget.status.text()
    assert "scatter 0.0" in widget.status.text()
    assert widget.settings.estimate_button.isEnabled()


def test_sigma_is_estimated_from_other_frames_if_one_has_too_few(viewer, widget, press, qtbot):
    movie, _ = simulate_movie(
        9, shape=(64, 64), spots_per_frame=1, sigma=1.5, photons=8000, background=5, seed=5
    )
    viewer.add_image(movie, name="movie")
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: "good fits (" in widget.status.text(), timeout=120_000)
    assert widget.settings.controls["sigma"].value == pytest.approx(1.5, abs=0.05)


def test_sigma_without_spots_gets_a_message(viewer, widget, press, qtbot):
    press(widget.settings.estimate_button)
    assert "no image" in widget.status.text()
    viewer.add_image(np.random.default_rng(0).normal(100, 2, (40, 40)), name="noise")
    press(widget.settings.estimate_button)
    qtbot.waitUntil(lambda: "needs 3 good fits" in widget.status.text(), timeout=120_000)
    assert widget.settings.estimate_button.isEnabled()
    assert widget.settings.controls["sigma"].box.text() == "automatic (1.3 px)"
