"""Temporary settings for scripts that show and measure the widgets' defaults."""

from __future__ import annotations

import atexit
import shutil
import tempfile

from qtpy.QtCore import QSettings

from napari_spotfit.widgets.parts import remember


def own_settings() -> None:
    """Start with the defaults, and discard changes.

    The folder goes when all has ended that the widgets do at the end of the process: it has their
    locks, which Qt would else miss, and would be made again to write what is remembered.
    """
    folder = tempfile.mkdtemp()
    atexit.unregister(remember.write)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(remember.write)
    QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, folder)
