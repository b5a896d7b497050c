"""Helpers that run Qt's event loop and wait."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from qtpy.QtCore import QThreadPool
from qtpy.QtWidgets import QApplication


def settle(rounds: int = 3) -> None:
    """Process pending events and their consequences."""
    for _ in range(rounds):
        QApplication.processEvents()


def no_worker() -> bool:
    """Whether no thread works for a widget."""
    return QThreadPool.globalInstance().activeThreadCount() == 0


def freed(*references: weakref.ref[Any]) -> bool:
    """Whether some objects have been freed."""
    gc.collect()
    return all(reference() is None for reference in references)
