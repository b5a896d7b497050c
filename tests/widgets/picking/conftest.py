"""Picking in a viewer that is seen."""

from __future__ import annotations

import pytest
from event_loop import no_worker


@pytest.fixture
def viewer(open_viewer):
    return open_viewer(show=True)


@pytest.fixture
def settle(qtbot, widget):
    """Wait until every press is fitted and shown."""

    def wait():
        picker = widget.picking.picker
        qtbot.waitUntil(lambda: not picker._presses and no_worker(), timeout=120_000)

    return wait
