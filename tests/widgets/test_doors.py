"""The widgets work by whichever door they come in, twice, in two viewers, and after one closed."""

from __future__ import annotations

import weakref

import pytest
from event_loop import freed, no_worker
from hand import CONTROL
from npe2 import PluginManager
from qtpy.QtCore import QEvent, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QLineEdit

from napari_spotfit.widgets.calibrate_psf import CalibratePsf
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.import_localisations import ImportDialog
from napari_spotfit.widgets.napari_compat import main_window
from napari_spotfit.widgets.results import Results
from napari_spotfit.widgets.track import Track

WIDGETS = {
    "Fit spots": FitSpots,
    "Results": Results,
    "Track": Track,
    "Calibrate PSF": CalibratePsf,
}


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def by_menu(viewer, name, menus=("&Layers", "Measure")):
    """Choose Layers ▸ Measure ▸ the widget, whose menus are filled when they show."""
    menu = main_window(viewer).menuBar()
    for words in (*menus, f"{name} (napari-spotfit)"):
        action = next(one for one in menu.actions() if one.text() == words)
        if (menu := action.menu()) is not None:
            menu.aboutToShow.emit()
    action.trigger()


def by_palette(viewer, name):
    """Type the widget's name into the command palette, and press Return."""
    viewer.window._toggle_command_palette()
    boxes = main_window(viewer).findChildren(QLineEdit)
    line = next(one for one in boxes if type(one).__name__ == "QCommandLineEdit")
    QTest.keyClicks(line, name.removesuffix("…"))  # Qt types ASCII only
    listed = line.parent()._list
    while listed.command_at(listed._selected_index).title != f"{name} (napari-spotfit)":
        QTest.keyClick(line, Qt.Key.Key_Down)
    QTest.keyClick(line, Qt.Key.Key_Return)


def by_call(viewer, name):
    viewer.window.add_plugin_dock_widget("napari-spotfit", name)


def opened(viewer, name):
    """Return the widgets of a kind that a viewer's window has."""
    window = main_window(viewer)
    return [one for one in window.findChildren(WIDGETS[name]) if one.bound]


@pytest.mark.parametrize("door", [by_menu, by_palette, by_call])
def test_every_door_leads_to_working_widgets(viewer, hand, fit, make_movie, qtbot, door):
    image = viewer.add_image(make_movie(2), name="movie")
    for name in WIDGETS:
        door(viewer, name)
        qtbot.waitUntil(lambda name=name: len(opened(viewer, name)) == 1)
    (widget,), (spots,), *_ = (opened(viewer, name) for name in WIDGETS)
    inspect, files = spots.inspect, widget.pages.files
    assert widget.settings.image.layer is image
    assert fit(widget).startswith("8 spots")
    layer = viewer.layers["movie spots"]
    assert files.form.settings.native.findText("of “movie spots”") == 1
    assert widget.result.layer is spots.spots.layer is layer
    # What tells one layer from another must not go by a proxy of it.
    viewer.layers.selection.active = layer
    layer.selected_data = {3}
    qtbot.waitUntil(lambda: inspect.panel.pictures.isVisible())
    layer.mode = "select"
    hand.key(Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: spots.count.text() == "7 of 7 shown")
    hand.key(Qt.Key.Key_Z, CONTROL)
    qtbot.waitUntil(lambda: spots.count.text() == "8 of 8 shown")
    assert fit(widget).endswith("They replace those of the last fit.")
    viewer.layers.remove(image)
    assert widget.settings.image.layer is None
    qtbot.waitUntil(no_worker)


def test_the_palette_runs_nothing_that_wants_a_file():
    manifest = PluginManager.instance().get_manifest("napari-spotfit")
    contributions = manifest.contributions
    run = {one.command for one in (*contributions.widgets, *contributions.sample_data)}
    run |= {"napari-spotfit.import_localisations"}
    for command in contributions.commands:
        assert command.enablement == (None if command.id in run else "False")


def test_the_menu_opens_the_dialog_that_imports(viewer, qtbot):
    by_menu(viewer, "Import localisations…", ("&File", "IO Utilities"))
    (dialog,) = main_window(viewer).findChildren(ImportDialog)
    assert dialog.isVisible()
    dialog.reject()
    qtbot.waitUntil(lambda: not main_window(viewer).findChildren(ImportDialog))


def test_a_widget_that_is_deleted_raises_nothing(viewer, qtbot):
    widget = FitSpots(viewer)
    widget.unbind()
    with qtbot.captureExceptions() as errors:
        widget.deleteLater()
        QApplication.sendPostedEvents(widget, QEvent.Type.DeferredDelete)
    assert not errors


def test_a_widget_that_is_opened_twice(viewer, fit, make_movie, press):
    viewer.add_image(make_movie(2), name="movie")
    by_call(viewer, "Fit spots")
    by_call(viewer, "Fit spots")
    (first,) = opened(viewer, "Fit spots")  # napari opens no second one
    second = FitSpots(viewer)
    viewer.window.add_dock_widget(second)
    fit(first)
    fit(second)
    assert [layer.name for layer in viewer.layers] == ["movie", "movie spots"]
    for widget in (first, second):
        assert widget.result.layer is viewer.layers["movie spots"]
        assert "the last fit of the image" in widget.picking.undo.toolTip()
    viewer.window.remove_dock_widget(second)
    for left in (2, 1):
        press(first.picking.undo)
        assert len(viewer.layers) == left
    # Once it is closed, napari opens a new one.
    viewer.window.remove_dock_widget(first)
    by_call(viewer, "Fit spots")
    (third,) = opened(viewer, "Fit spots")
    assert third is not first
    assert fit(third).startswith("8 spots")


def test_a_viewer_that_closes_leaves_the_other_one_alone(
    make_napari_viewer, fit, start, make_movie, gate, qtbot
):
    first, second = make_napari_viewer(), make_napari_viewer()
    for viewer in (first, second):
        viewer.add_image(make_movie(1), name="movie")
        for name in WIDGETS:
            by_call(viewer, name)
        fit(opened(viewer, "Fit spots")[0])
        assert [layer.name for layer in viewer.layers] == ["movie", "movie spots"]
    layer, gone = second.layers["movie spots"], weakref.ref(first)
    # The first one closes in the middle of a fit.
    first.add_image(gate.movie, name="slow", contrast_limits=(90, 600))
    start(opened(first, "Fit spots")[0])
    first.close()
    del first, viewer
    gate.open()
    qtbot.waitUntil(no_worker)
    layer.selected_data = {0}
    layer.remove_selected()
    (widget,) = opened(second, "Fit spots")
    widget.picking.undo.click()
    assert len(layer.data) == 4
    assert fit(widget).endswith("They replace those of the last fit.")
    qtbot.waitUntil(lambda: freed(gone))
