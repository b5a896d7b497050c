"""An inspector in a viewer that is seen."""

import pytest
from inspector import docked


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


@pytest.fixture
def inspector(viewer):
    return docked(viewer)


@pytest.fixture
def until(qtbot):
    """Wait until something is so."""
    return qtbot.waitUntil
