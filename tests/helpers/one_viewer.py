"""One napari viewer for many tests, as long as each leaves it as new.

To open and close a viewer takes longer than most tests. What a test puts in is taken out after
it; where anything else differs from a new viewer, this one is closed and the next test gets
another.
"""

from __future__ import annotations

import gc
from typing import Any
from unittest.mock import patch

import numpy as np
from app_model import Application
from napari import Viewer
from napari._app_model import get_app_model
from napari._qt._qapp_model.qactions import init_qactions
from napari._qt.qt_viewer import QtViewer
from napari.plugins import _initialize_plugins
from napari.settings import get_settings
from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QApplication, QDockWidget

#: State that follows from layers or mouse.
PASSING = {"layers", "cursor", "mouse_over_canvas", "status", "help", "tooltip"}
#: State of axes that the last layer leaves behind.
AXES = ("ndisplay", "axis_labels", "units")


class OneViewer:
    """Opens a viewer on request, and reuses it."""

    def __init__(self) -> None:
        self._viewer: Viewer | None = None
        self._shown = False

    def get(self, show: bool = False) -> Viewer:
        """Return a clean viewer."""
        if self._viewer is not None and self._shown != show:
            self.close()
        if self._viewer is None:
            self._open(show)
        return self._viewer

    def clear(self) -> None:
        """Remove what a test has added; close the viewer if it is not clean then."""
        if self._viewer is not None:
            self._take_out()
            if state(self._viewer) != self._new:
                self.close()

    def close(self, after_failure: bool = False) -> None:
        """Close the viewer, and check that it is freed, unless a traceback holds it."""
        if self._viewer is None:
            return
        with patch.object(self._viewer.window._qt_window, "_save_current_window_settings"):
            self._viewer.close()
        self._viewer = None
        name = get_app_model().name
        Application.destroy(name)
        # Menus of a window that a traceback holds ask for another one, which is made by halves.
        Application._instances.pop(name, None)
        _forget_actions()
        # It may be frozen, and ignored by collections.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        left = len(QtViewer._instances)
        QtViewer._instances.clear()
        assert after_failure or not left, "something holds a closed viewer"

    def _open(self, show: bool) -> None:
        get_settings().reset()
        _forget_actions()
        # As in napari's own tests: this thread would read frames.
        with patch("napari._qt.threads.status_checker.StatusChecker.start"):
            self._viewer = Viewer(show=show, show_welcome_screen=False)
        self._shown = show
        QApplication.processEvents()
        window = self._viewer.window._qt_window
        # It shows a menu bar that is hidden, and Python sees each event of any object for it.
        QApplication.instance().removeEventFilter(window)
        if not show:  # styles are not seen, and take a quarter of the time of a test
            window.setStyleSheet("")
        self._size, self._docks = window.size(), window.saveState()
        self._camera = camera_of(self._viewer).model_dump()
        dims = self._viewer.dims
        self._dims = {name: getattr(dims, name) for name in AXES if hasattr(dims, name)}
        # The first layer widens the controls for good.
        self._viewer.add_image(np.zeros((2, 8, 8), np.uint8))
        self._take_out()
        self._new = state(self._viewer)

    def _take_out(self) -> None:
        """Remove layers and docked widgets, and restore the window."""
        viewer, window = self._viewer, self._viewer.window._qt_window
        viewer.layers.clear()
        viewer.window.remove_dock_widget("all")
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
        window.resize(self._size)
        window.restoreState(self._docks)
        QApplication.processEvents()
        camera_of(viewer).update(self._camera)
        viewer.dims.update(self._dims)


def _forget_actions() -> None:
    """Make the next viewer register its actions again."""
    init_qactions.cache_clear()
    _initialize_plugins.cache_clear()


def camera_of(viewer: Viewer) -> Any:
    """Return the camera, which is a part of the scene in later versions of napari."""
    return getattr(viewer, "scene", viewer).camera


def state(viewer: Viewer) -> dict[str, Any]:
    """Return the state that a test could leave behind in a viewer."""
    window = viewer.window._qt_window
    followed = [viewer, viewer.layers, viewer.layers.selection, viewer.dims]
    return {
        "model": repr(viewer.model_dump(exclude=PASSING)),
        "camera": camera_of(viewer).model_dump(),
        "mouse": [
            list(getattr(viewer, f"mouse_{kind}_callbacks"))
            for kind in ("drag", "move", "wheel", "double_click")
        ],
        "keys": dict(viewer.keymap),
        "followers": [
            len(one.callbacks) for part in followed for one in part.events.emitters.values()
        ],
        "window": (window.width(), window.height()),
        "docks": sorted(dock.objectName() for dock in window.findChildren(QDockWidget)),
    }
