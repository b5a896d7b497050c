"""The slider, the histogram and the words that say where noise ends."""

from __future__ import annotations

import numpy as np
import pyqtgraph
import pytest
from event_loop import settle
from hand import Mouse, in_plot
from qtpy.QtCore import QPointF, Qt
from qtpy.QtWidgets import QApplication, QStyle, QStyleOptionSlider

from napari_spotfit.engine.detection_settings import expected_false_spots, score_for
from napari_spotfit.engine.flags import Flag
from napari_spotfit.models.estimators import StopCondition
from napari_spotfit.results.spot_fits import SpotFits
from napari_spotfit.settings.settings import Settings
from napari_spotfit.widgets.fitting.detection_panel import _in_words


def test_the_keyboard_changes_false_spots(widget, image, tick, shows, qtbot, viewer):
    tick(widget)
    box = widget.settings.controls["false_spots"].box
    box.setFocus()
    box.selectAll()
    qtbot.keyClicks(box, "5e3")
    qtbot.keyClick(box, Qt.Key.Key_Return)
    fits = shows(widget, image, viewer.dims.current_step[0], false_spots=5000)
    share = round(100 * fits.good.mean())
    qtbot.waitUntil(lambda: f"{len(fits)} spots" in widget.settings.detection_panel.count.text())
    text = widget.settings.detection_panel.count.text()
    assert f"{share}\u202f% good · about 12 false" in text


@pytest.mark.parametrize(
    ("total", "good", "false", "words"),
    [
        (0, 0, 3.0, "no spots"),
        (52, 49, 2.6, "52 spots · 94 % good · about 3 false"),
        (1, 1, 0.3, "1 spot · 100 % good · about 0.3 false"),
        (1000, 999, 0.096, "1 000 spots · 99 % good · less than 0.1 false"),
        (2, 1, 0.96, "2 spots · 50 % good · about 1 false"),
        (5000, 5000, 1234.0, "5 000 spots · 100 % good · about 1 200 false"),
        (52, 49, None, "52 spots · 94 % good"),
    ],
)
def test_the_frame_in_words(total, good, false, words):
    doubtful = np.arange(total) >= good
    flags = np.where(doubtful, np.uint32(Flag.MOVED), np.uint32(0))
    ended = np.full(total, StopCondition.MIN_DELTA, np.uint8)
    columns = {"flags": flags, "stop_condition": ended, "y": np.zeros(total)}
    fits = SpotFits(columns, (), Settings(sigma=1.3, roi_size=9))
    assert _in_words(fits, false).replace("\u202f", " ") == words


def slider_handle(slider):
    """Return where on a slider its handle is drawn."""
    option = QStyleOptionSlider()
    slider.initStyleOption(option)
    control, part = QStyle.ComplexControl.CC_Slider, QStyle.SubControl.SC_SliderHandle
    return QPointF(slider.style().subControlRect(control, option, part, slider).center())


def drag_slider(slider, pixels):
    """Drag the handle to the right, pixel by pixel; yield where the mouse is."""
    mouse, start = Mouse(slider), slider_handle(slider)
    mouse.hover(start)
    mouse.press(start)
    for step in range(1, pixels + 1):
        mouse.move(start + QPointF(step, 0))
        QApplication.processEvents()  # what is laid out anew would move the slider
        yield start.x() + step
    mouse.release(start + QPointF(pixels, 0))


def test_slider_line_and_box_keep_step(widget, image, tick, shows, qtbot, viewer, monkeypatch):
    # Else pyqtgraph takes no notice of a mouse that moves so often.
    monkeypatch.setitem(pyqtgraph.CONFIG_OPTIONS, "mouseRateLimit", -1)
    assert widget.settings.detection_panel.isHidden()
    widget.settings.controls["sigma"].value = 1.3
    tick(widget)
    panel = widget.settings.detection_panel
    box = widget.settings.controls["false_spots"].box
    assert panel.isVisible()
    panel.slider.setFocus()
    before = box.value()
    for _ in range(10):
        qtbot.keyClick(panel.slider, Qt.Key.Key_Right)
    slid = box.value()
    assert slid < before
    shows(widget, image, viewer.dims.current_step[0])  # its words may need another line
    settle()
    for pixel in drag_slider(panel.slider, 25):
        assert slider_handle(panel.slider).x() == pytest.approx(pixel, abs=1.5)
        assert box.value() <= slid  # it never runs back
        slid = box.value()
    assert slid < 0.5 * before
    assert panel.line.value() == pytest.approx(np.log10(score_for(slid, 1.3)))
    frame = viewer.dims.current_step[0]
    assert len(shows(widget, image, frame)) == 4
    place = panel.line.value()
    places = np.linspace((place, 0.3), (place - 0.25, 0.3), 11)
    Mouse(panel.plot.viewport()).drag(*(in_plot(panel.plot, *there) for there in places))
    score = 10 ** (place - 0.25)
    assert np.log10(box.value()) == pytest.approx(
        np.log10(expected_false_spots(score, 1.3)), abs=0.3
    )
    assert box.value() == float(f"{box.value():.3g}") > 1000
    assert len(shows(widget, image, frame)) > 4
    box.put(1e-9)
    low, high = panel.plot.getViewBox().viewRange()[0]
    assert panel.line.value() == pytest.approx(np.log10(score_for(1e-9, 1.3)), rel=1e-3)
    assert panel.line.value() < high  # the spots are far above all noise
    assert panel.slider.value() == panel.slider.maximum()
    qtbot.waitUntil(lambda: panel.count.text().endswith("less than 0.1 false"))
    widget.settings.controls["threshold"].value = 1e6
    assert panel.count.accessibleName()
    assert all(part.toolTip() for part in (panel.slider, panel.count, panel.plot))
    qtbot.waitUntil(lambda: panel.count.text() == "no spots")
    assert low < high


def test_a_threshold_in_counts_takes_the_place_of_false_spots(
    widget, image, tick, shows, qtbot, viewer
):
    widget.settings.controls["sigma"].value = 1.3
    tick(widget)
    panel, controls = widget.settings.detection_panel, widget.settings.controls
    frame = viewer.dims.current_step[0]
    controls["false_spots"].value = 500
    shows(widget, image, frame)
    about = controls["false_spots"].box.toolTip()
    controls["threshold"].value = 40
    assert not controls["false_spots"].box.isEnabled()
    assert "threshold is set under More settings" in controls["false_spots"].box.toolTip()
    assert widget.settings.settings().threshold == 40
    assert len(shows(widget, image, frame)) == 4
    qtbot.waitUntil(lambda: panel.count.text() == "4 spots · 100\u202f% good")
    assert "counts" in panel.plot.getAxis("bottom").labelText
    assert panel.line.value() == pytest.approx(np.log10(40))
    for _ in range(10):
        qtbot.keyClick(panel.slider, Qt.Key.Key_Left)
    assert controls["threshold"].value < 40
    assert panel.line.value() == pytest.approx(np.log10(controls["threshold"].value))
    shows(widget, image, frame)
    controls["threshold"].value = None
    assert controls["false_spots"].box.isEnabled()
    assert controls["false_spots"].box.toolTip() == about
    assert widget.settings.settings().false_spots == 500
    shows(widget, image, frame)
    qtbot.waitUntil(lambda: "false" in panel.count.text())
    assert panel.line.value() == pytest.approx(np.log10(score_for(500, 1.3)))
