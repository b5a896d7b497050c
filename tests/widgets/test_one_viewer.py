"""A viewer that serves one test after another is as new for each of them."""

from __future__ import annotations

import numpy as np
import pytest
from one_viewer import state

from napari_spotfit.widgets.fit_spots import FitSpots


@pytest.mark.parametrize("show", [False, True])
def test_what_was_put_in_is_taken_out(one_viewer, show):
    one_viewer.close()
    viewer = one_viewer.get(show=show)
    new = state(viewer)
    viewer.window.resize(1280, 800)
    viewer.add_image(np.zeros((3, 40, 40)), scale=(1, 0.1, 0.1))
    viewer.window.add_dock_widget(FitSpots(viewer), name="Fit spots")
    assert state(viewer) != new
    one_viewer.clear()
    assert one_viewer.get(show=show) is viewer
    assert state(viewer) == new
    assert len(viewer.layers) == 0


@pytest.mark.parametrize("left", ["theme", "key", "callback"])
def test_one_that_is_not_as_new_is_replaced(one_viewer, left):
    # Points that tests without a viewer make are followed by the one that is kept.
    one_viewer.close()
    viewer = one_viewer.get()
    new = state(viewer)
    if left == "theme":
        viewer.theme = "light"
    elif left == "key":
        viewer.bind_key("Control-Z", print)
    else:
        viewer.layers.events.removed.connect(print)
    one_viewer.clear()
    assert one_viewer.get() is not viewer
    assert state(one_viewer.get()) == new
