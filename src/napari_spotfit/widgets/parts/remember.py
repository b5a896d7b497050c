"""Values that are kept between napari sessions: of widgets and of recent fits."""

from __future__ import annotations

import atexit
import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QSettings, QTimer

if TYPE_CHECKING:
    from ...results.spot_fits import SpotFits

#: Milliseconds from the first change until the file is written, which takes a few: a dragged
#: control must not wait for it.
_DELAY = 500
_unwritten: dict[str, str] = {}
#: The name of recent fits, and how many are remembered.
_RECENT, _KEPT = "recent_fits", 8


def _store() -> QSettings:
    return QSettings(
        QSettings.Format.IniFormat, QSettings.Scope.UserScope, "napari-spotfit", "widgets"
    )


def folder() -> Path:
    """Return the folder of kept values, among this user's settings."""
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


def recent_fits() -> dict[str, dict[str, Any]]:
    """Return the settings of recent fits by title, the latest first."""
    kept = load(_RECENT).get("fits")
    return {
        str(fit["name"]): fit["settings"]
        for fit in (kept if isinstance(kept, list) else [])
        if isinstance(fit, dict) and isinstance(fit.get("settings"), dict) and "name" in fit
    }


def remember_fit(image: str, fits: SpotFits) -> None:
    """Remember the settings of a fit, with all that was estimated."""
    if fits.settings is None:
        return
    name = f"of “{image}”, {datetime.now():%Y-%m-%d %H:%M:%S}"
    recent = {name: fits.settings.to_dict()} | recent_fits()
    kept = [{"name": one, "settings": recent[one]} for one in list(recent)[:_KEPT]]
    save(_RECENT, {"fits": kept})
