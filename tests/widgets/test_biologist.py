"""Two channels and a mask become one saved table of cells: with the mouse alone, in few clicks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker, settle
from qtpy.QtCore import QEvent, QObject, QPoint, Qt, QTimer
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QDialogButtonBox, QFileDialog

from napari_spotfit import cells_by_channel, simulate_movie
from napari_spotfit.localization.localize import localize
from napari_spotfit.simulate import add_spots, expose
from napari_spotfit.widgets.napari_compat import main_window
from napari_spotfit.widgets.parts.docking import opened

SHAPE = (128, 160)
CLICKS = 7


class Presses(QObject):
    """Counts what the mouse presses, once each, whichever widget takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def eventFilter(self, watched, event):
        if watched.isWidgetType() and event.type() == QEvent.Type.MouseButtonPress:
            self.count += 1
        return False


@pytest.fixture
def viewer(shown_viewer):
    """Open a window with two channels, half of whose spots are the same, and a mask of cells."""
    viewer = shown_viewer
    viewer.window.resize(1280, 800)
    _, truth = simulate_movie(1, shape=SHAPE, spots_per_frame=60, photons=4000, seed=3)
    rng = np.random.default_rng(5)
    places = {"y": rng.uniform(6, SHAPE[0] - 6, 30), "x": rng.uniform(6, SHAPE[1] - 6, 30)}
    other = pd.concat([truth.iloc[:30], truth.iloc[30:].assign(**places)])
    for name, table in (("GFP", truth), ("RFP", other)):
        light = np.full(SHAPE, 15.0)
        add_spots(light, table.drop(columns="frame"))
        viewer.add_image(expose(light, rng, 100, 1), name=name, blending="additive")
    cells = np.zeros(SHAPE, int)
    cells[4:124, 4:76], cells[4:124, 84:156] = 1, 2
    viewer.add_labels(cells, name="cells")
    settle()
    return viewer


@pytest.fixture
def presses():
    presses = Presses()
    QApplication.instance().installEventFilter(presses)
    yield presses
    QApplication.instance().removeEventFilter(presses)


def click(widget, point=None):
    settle()
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=point or widget.rect().center())
    settle()


def by_menu(qtbot, viewer, *words):
    """Press a menu of the window, come to its submenus, and press the last entry."""
    menu = main_window(viewer).menuBar()
    for word in words:
        qtbot.waitUntil(menu.isVisible)
        action = next(one for one in menu.actions() if one.text() == word)
        place = menu.actionGeometry(action).center()
        if word in (words[0], words[-1]):
            click(menu, place)
        else:  # which opens under the mouse
            QTest.mouseMove(menu, place - QPoint(2, 2))
            QTest.mouseMove(menu, place)
        menu = action.menu()


def test_a_table_of_cells_and_channels_in_seven_clicks(
    viewer, presses, qtbot, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    by_menu(qtbot, viewer, "&Layers", "Measure", "Fit spots (napari-spotfit)")
    form = opened(viewer, "Fit spots")
    images = form.settings.image
    assert [one.name for one in images.ticked] == ["RFP"]
    other = images.rows.visualItemRect(images.rows.item(1))
    click(images.rows.viewport(), QPoint(other.left() + 9, other.center().y()))
    assert [one.name for one in images.ticked] == ["GFP", "RFP"]
    with qtbot.waitSignal(form.finished):
        click(form.fit_button)
    click(form.steps.cells)
    results = opened(viewer, "Results")
    page = results.channels
    qtbot.waitUntil(lambda: not page._soon.isActive() and not page.work.busy and no_worker())
    assert page.export.save_button.isVisible()

    def confirm():
        dialog = QApplication.activeModalWidget()
        if not isinstance(dialog, QFileDialog):
            QTimer.singleShot(20, confirm)
            return
        buttons = dialog.findChild(QDialogButtonBox)
        click(buttons.button(QDialogButtonBox.StandardButton.Save))

    QTimer.singleShot(20, confirm)
    click(page.export.save_button)
    qtbot.waitUntil(lambda: "saved as" in results.status.text())
    assert presses.count <= CLICKS
    saved = pd.read_csv(tmp_path / "GFP+RFP.cells.csv")
    fits = {name: localize(viewer.layers[name].data) for name in ("GFP", "RFP")}
    expected = cells_by_channel(fits, viewer.layers["cells"].data, 2.0)
    pd.testing.assert_frame_equal(saved, expected, check_dtype=False)
    assert saved["GFP+RFP_pairs"].sum() >= 25
    assert saved["GFP+RFP_expected"].sum() < 8
