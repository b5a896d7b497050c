"""A layer of spots, and the widget that lists them."""

from __future__ import annotations

import pytest
from spot_table import add_spots, dock


@pytest.fixture
def layer(viewer):
    return add_spots(viewer)


@pytest.fixture
def spots(viewer, layer):
    return dock(viewer)
