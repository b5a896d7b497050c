"""The gain that an image suggests is offered, and used by one click."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import light, on_grid

from napari_spotfit import Settings, noise_model

TIMEOUT = 20_000


@pytest.fixture
def graded():
    """Return frames of a camera of gain 2.1 and offset 90, of uneven brightness, with spots."""
    rng = np.random.default_rng(3)
    shape = (256, 256)
    electrons = np.linspace(10, 200, 256) + light(on_grid(rng, shape, 40), 2000, 1.4, shape)
    return 2.1 * rng.poisson(electrons, (3, *shape)) + 90


def test_the_gain_is_offered_and_used(viewer, widget, press, qtbot, graded):
    viewer.add_image(graded, name="graded")
    panel = widget.settings
    button, controls = panel.camera.gain_button, panel.controls
    panel.advanced.expand()
    qtbot.waitUntil(lambda: not button.isHidden(), timeout=TIMEOUT)
    assert "counts/e⁻ of the image" in button.text()
    suggested = float(button.text().split()[1])
    assert suggested == pytest.approx(2.1, rel=0.1)
    controls["emccd"].value = True
    assert float(button.text().split()[1]) == pytest.approx(suggested / 2, rel=0.01)
    controls["emccd"].value = False
    press(button)
    assert controls["gain"].value == suggested
    assert controls["offset"].value == pytest.approx(90, abs=10)
    assert button.isHidden()
    settings = panel.settings()
    assert (settings.gain, settings.offset) == (suggested, controls["offset"].value)
    # Who clears the gain is offered it again; an offset of one's own stays.
    controls["offset"].value = 90.0
    controls["gain"].value = None
    assert not button.isHidden()
    press(button)
    assert controls["offset"].value == 90.0


def test_an_image_that_tells_no_gain_offers_none(viewer, widget, qtbot, graded):
    viewer.add_image(graded, name="graded")
    panel = widget.settings
    button = panel.camera.gain_button
    panel.advanced.expand()
    qtbot.waitUntil(lambda: not button.isHidden(), timeout=TIMEOUT)
    flat = viewer.add_image(np.random.default_rng(1).normal(100, 3, (128, 128)), name="flat")
    panel.image.layer = flat
    assert button.isHidden()
    qtbot.waitUntil(lambda: widget.gain_offer._noise is not None, timeout=TIMEOUT)
    assert button.isHidden()
    # A map of the gain is known already.
    panel.image.layer = viewer.layers["graded"]
    qtbot.waitUntil(lambda: not button.isHidden(), timeout=TIMEOUT)
    panel.camera.maps["gain"].layer = viewer.add_image(np.full((256, 256), 2.1), name="map")
    assert button.isHidden()


def test_the_offer_is_of_the_noise_of_fits(viewer, widget, fit, qtbot, graded, monkeypatch):
    from napari_spotfit.estimation import image_noise as of_images

    calls, measure = [], of_images.noise_of
    monkeypatch.setattr(
        of_images, "noise_of", lambda *given: calls.append(given) or measure(*given)
    )
    image = viewer.add_image(graded, name="graded")
    panel = widget.settings
    panel.advanced.expand()
    qtbot.waitUntil(lambda: not panel.camera.gain_button.isHidden(), timeout=TIMEOUT)
    assert panel.controls["sigma"].box.text().startswith("automatic (1.4")
    fit(widget)
    noise = widget.result.layer.metadata["settings"]["noise"]
    estimate = widget._noise.get().known(panel.settings())
    offered = noise_model(graded, settings=Settings(sigma=estimate.sigma, roi_size=9)).gain
    assert float(panel.camera.gain_button.text().split()[1]) == pytest.approx(offered, rel=1e-2)
    assert noise["slope"] == pytest.approx(offered)
    assert len(calls) == 2  # the other one is this test's
    # Other pixels suggest another gain.
    image.data = 2 * graded
    qtbot.waitUntil(lambda: "Use 4." in panel.camera.gain_button.text(), timeout=TIMEOUT)
