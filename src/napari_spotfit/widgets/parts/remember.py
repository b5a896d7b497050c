"""Values that are kept between napari sessions."""

from __future__ import annotations

import json
from typing import Any

from qtpy.QtCore import QSettings


def _store() -> QSettings:
    return QSettings(
        QSettings.Format.IniFormat, QSettings.Scope.UserScope, "napari-spotfit", "widgets"
    )


def save(name: str, values: dict[str, Any]) -> None:
    """Keep a widget's values.

    Parameters
    ----------
    name : str
        The widget.
    values : dict
        Plain values by name.
    """
    _store().setValue(name, json.dumps(values))


def load(name: str) -> dict[str, Any]:
    """Return a widget's kept values; nothing if there are none or they cannot be read."""
    try:
        values = json.loads(str(_store().value(name, "{}")))
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
