"""The first half minute: an empty viewer offers samples, and a fit leads on to its results."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtCore import Qt

from napari_spotfit.widgets.fit_pages import _SAMPLES
from napari_spotfit.widgets.parts.docking import opened


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


@pytest.mark.parametrize("key", _SAMPLES)
def test_a_sample_is_pressed_and_fitted(viewer, widget, fit, press, key):
    start = widget.pages.start
    assert start.isVisible()
    assert not widget.fit_button.isVisible()
    press(start.samples[key])
    assert not start.isVisible()
    assert widget.fit_button.isVisible()
    assert "good" in fit(widget) or " spots " in widget.status.text()
    viewer.layers.clear()
    assert start.isVisible()


def test_results_without_an_image_are_described(viewer, widget, press, fit):
    press(widget.pages.start.samples["smfish"])
    fit(widget)
    for layer in [one for one in viewer.layers if one is not widget.result.layer]:
        viewer.layers.remove(layer)
    assert widget.result.isVisible()


def test_open_an_image_asks_as_napari_does(viewer, widget, press, monkeypatch):
    asked = []
    monkeypatch.setattr(
        type(viewer.window._qt_viewer), "_open_files_dialog", lambda self: asked.append(self)
    )
    press(widget.pages.start.open_button)
    assert len(asked) == 1


def test_after_a_fit_each_button_opens_its_page(viewer, widget, fit, press, qtbot):
    press(widget.pages.start.samples["smfish"])
    fit(widget)
    steps, layer = widget.steps, widget.result.layer
    for button, title in (
        (steps.table, ""), (steps.cells, "Cells"), (steps.doubtful, "Inspect"),
    ):  # fmt: skip
        assert button.isVisible()
        press(button)
        results = opened(viewer, "Results")
        assert results.layer.layer is layer
        if title:
            assert results.tabs.tabText(results.tabs.currentIndex()) == title
    assert layer.features["good"].iloc[next(iter(layer.selected_data))] == 0
    qtbot.waitUntil(lambda: "label" in layer.features)
    # The cells of the sample are counted without another choice.
    inside = np.count_nonzero(layer.features["label"])
    assert f"{inside} of " in results.cells.hint.text()
    viewer.layers.remove("cells")
    assert not steps.cells.isVisible()
    layer.features = layer.features.assign(good=1.0)
    qtbot.waitUntil(lambda: not steps.doubtful.isVisible())
    viewer.layers.remove(layer)
    assert not steps.isVisible()


def test_the_switch_is_worked_by_keys(viewer, widget, qtbot):
    switch = widget.pages.switch
    switch.setFocus()
    qtbot.keyClick(switch, Qt.Key.Key_Right)
    assert widget.pages.files.isVisible()
    qtbot.keyClick(switch, Qt.Key.Key_Left)
    assert widget.pages.start.isVisible()
