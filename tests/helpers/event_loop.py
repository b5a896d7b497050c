"""What tests of the widgets let happen, and wait for."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from qtpy.QtCore import QThreadPool
from qtpy.QtWidgets import QApplication


def settle(rounds: int = 3) -> None:
    """Let what waits for the event loop happen, and what follows from it."""
    for _ in range(rounds):
        QApplication.processEvents()


def no_worker() -> bool:
    """Whether no thread works for a widget."""
    return QThreadPool.globalInstance().activeThreadCount() == 0


def freed(*references: weakref.ref[Any]) -> bool:
    """Whether nothing holds some objects any more."""
    gc.collect()
    return all(reference() is None for reference in references)
