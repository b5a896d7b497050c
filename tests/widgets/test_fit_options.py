"""Model, estimator and the held σ among the widget's controls."""

from __future__ import annotations

import pytest

from napari_spotfit import Settings


@pytest.fixture
def panel(qtbot):
    from napari.components import ViewerModel

    from napari_spotfit.widgets.fitting.settings_panel import SettingsPanel

    panel = SettingsPanel(ViewerModel())
    qtbot.addWidget(panel)
    yield panel
    panel.unbind()


def test_defaults_are_the_settings(panel):
    assert panel.settings() == Settings()


def test_model_and_estimator_can_be_chosen(panel):
    panel.controls["model"].put("gaussian_elliptical")
    panel.controls["pixel"].put("integrated")
    panel.controls["estimator"].put("mle")
    settings = panel.settings()
    assert (settings.model, settings.pixel) == ("gaussian_elliptical", "integrated")
    assert settings.estimator == "mle"


def test_what_needs_weights_is_not_offered(panel):
    control = panel.controls["estimator"]
    words = [control.itemData(i) for i in range(control.count())]
    assert words == ["lse", "mle"]
    control.put("wlse")
    assert control.get() == "lse"


def test_a_held_sigma_is_the_psfs(panel):
    panel.controls["sigma"].put(1.6)
    panel.hold_sigma.put(True)
    assert panel.settings().fixed == {"sigma": 1.6}
    panel.controls["model"].put("gaussian_rotated")
    assert panel.settings().fixed == {"sigma_x": 1.6, "sigma_y": 1.6}
    # A Lorentzian has none.
    panel.controls["model"].put("lorentzian")
    assert panel.settings().fixed == {}


def test_it_is_remembered_and_reset(panel):
    panel.hold_sigma.put(True)
    values = panel.values()
    panel.reset()
    assert panel.settings().fixed == {}
    panel.put(values)
    assert panel.settings().fixed == {"sigma": 1.3}


def test_what_does_not_go_together_is_said(panel):
    panel.controls["model"].put("gaussian_rotated")
    panel.controls["pixel"].put("integrated")
    with pytest.raises(ValueError, match="no formula averaged over a pixel"):
        panel.settings()
