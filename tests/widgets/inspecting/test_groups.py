"""The inspector shows spots that were fitted together as one model, and sees a changed image."""

from __future__ import annotations

import numpy as np
import pytest
from inspector import docked

from napari_spotfit import localize, simulate_movie, to_points_layer
from napari_spotfit.widgets.inspecting.spot import spot_of


@pytest.fixture(scope="module")
def crowd():
    light = {"photons": 1500, "background": 10, "sigma": 1.3}
    movie, _ = simulate_movie(2, shape=(128, 128), spots_per_frame=160, seed=3, **light)
    return movie, localize(movie[0], neighbours="auto")


def test_a_group_is_shown_and_only_a_changed_image_is_told(viewer, until, crowd):
    movie, fits = crowd
    inspector = docked(viewer)
    image = viewer.add_image(movie[0], name="crowd")
    layer = viewer.add_layer(to_points_layer(fits, image))
    row = int(np.flatnonzero(fits.group_size == 3)[0])
    layer.selected_data = {row}
    panel = inspector.panel
    until(lambda: "one of a group of 3" in panel.title.text() and panel.pixels.currentIndex() == 0)
    assert panel.changed.isHidden()
    assert panel.numbers.texts()["group_size"] == "3"
    assert "no standard errors" not in panel.verdict.text.text()
    assert panel.numbers.texts()["sigma"].endswith("px (given)")
    together = fits.group_size > 1
    for pixels, limits in ((movie[0], (0.9, 1.0)), (movie[1], (0.0, 0.05))):
        image.data = pixels
        layer.selected_data = {row}
        until(lambda: inspector._pixels(layer, image, spot_of(layer, row)) is not None)
        same = []
        for one in np.flatnonzero(together & fits.good):
            spot = spot_of(layer, int(one))
            sample = inspector._pixels(layer, image, spot)
            same.append(sample.is_of(spot.values["chi_square"]))
        assert limits[0] <= np.mean(same) <= limits[1]
    until(lambda: not panel.changed.isHidden())
