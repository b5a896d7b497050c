"""An inspector in a viewer that is seen."""

import pytest
from inspector import docked


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer(show=True)


@pytest.fixture
def inspector(viewer):
    return docked(viewer)


@pytest.fixture
def until(qtbot):
    """Wait until something is so."""
    return qtbot.waitUntil
