"""Who works by keys sees where they go."""

from __future__ import annotations

from event_loop import settle
from qtpy.QtWidgets import QApplication

from napari_spotfit.widgets.results import Results


def picture(control):
    image = control.grab().toImage()
    return [image.pixelColor(x, y).name() for y in range(4) for x in range(image.width())]


def test_the_control_with_the_focus_looks_different(shown_viewer, qtbot):
    viewer = shown_viewer
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results")
    viewer.window._qt_window.activateWindow()
    settle()
    for control in (results.import_button, results.layer, results.tabs.tabBar()):
        results.table.setFocus()
        settle()
        before, size = picture(control), control.size()
        control.setFocus()
        settle()
        if not control.hasFocus() or QApplication.focusWidget() is not control:
            qtbot.waitUntil(lambda control=control: QApplication.focusWidget() is control)
        assert control.size() == size
        assert picture(control) != before, control
