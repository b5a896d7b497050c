"""An inspector in a viewer that is seen."""

import pytest
from inspector import docked


@pytest.fixture
def viewer(open_viewer):
    return open_viewer(show=True)


@pytest.fixture
def inspector(viewer):
    return docked(viewer)


@pytest.fixture
def until(qtbot):
    """Wait until something is so."""
    return qtbot.waitUntil
