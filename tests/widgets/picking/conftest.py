"""Picking in a viewer that is seen."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import no_worker
from scenes import light

from napari_spotfit import localize


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


@pytest.fixture
def settle(qtbot, widget):
    """Wait until every press is fitted and shown."""

    def wait():
        picker = widget.picking.picker
        qtbot.waitUntil(lambda: not picker._presses and no_worker(), timeout=120_000)

    return wait


@pytest.fixture(scope="session")
def crowds():
    """Three frames with a spot in every 7×7 pixels, and the fits of all, one by one."""
    rng, shape = np.random.default_rng(3), (90, 100)
    spots = [rng.uniform(-0.5, np.array(shape) - 0.5, (180, 2)) for _ in range(3)]
    movie = rng.poisson([light(those, 3000, 1.3, shape) + 20 for those in spots]).astype(np.uint16)
    return movie, localize(movie, sigma=1.3, neighbours="exclude")
