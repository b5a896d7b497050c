"""Values that are kept between napari sessions."""

from __future__ import annotations

import atexit
import json
from pathlib import Path
from typing import Any

from qtpy.QtCore import QSettings, QTimer

#: The file takes milliseconds to write, which a dragged control must not wait for: it is written
#: so many ms after the first change.
_DELAY = 500

_unwritten: dict[str, str] = {}


def _store() -> QSettings:
    return QSettings(
        QSettings.Format.IniFormat, QSettings.Scope.UserScope, "napari-spotfit", "widgets"
    )


def folder() -> Path:
    """Return the folder of what is kept, where this user's settings are."""
    return Path(_store().fileName()).parent


def save(name: str, values: dict[str, Any]) -> None:
    """Keep a widget's values.

    Parameters
    ----------
    name : str
        The widget.
    values : dict
        Plain values by name.
    """
    if not _unwritten:
        QTimer.singleShot(_DELAY, write)
    _unwritten[name] = json.dumps(values)


@atexit.register
def write() -> None:
    """Write what has changed."""
    store = _store()
    while _unwritten:
        store.setValue(*_unwritten.popitem())


def load(name: str) -> dict[str, Any]:
    """Return a widget's kept values; nothing if there are none or they cannot be read."""
    write()
    try:
        values = json.loads(str(_store().value(name, "{}")))
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
