"""Hidden points are not drawn, whatever is displayed."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtWidgets import QApplication

from napari_spotfit import localize, to_points_layer
from napari_spotfit.widgets.layers.appearance import show_all, show_only
from napari_spotfit.widgets.layers.points import points_arguments, update_points_layer


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def rings(viewer):
    """Return how many pixels of the canvas have a colour."""
    for _ in range(10):
        QApplication.processEvents()
    red, green, blue = np.moveaxis(viewer.screenshot(flash=False)[..., :3].astype(int), -1, 0)
    return int(((abs(red - green) > 20) | (abs(green - blue) > 20)).sum())


@pytest.fixture(params=["image", "movie", "movie in 3-D"])
def shown(request, viewer, make_movie):
    """Return a layer of fitted spots in a viewer, and how many axes are displayed."""
    data = make_movie() if request.param == "image" else make_movie(2)
    image = viewer.add_image(data, name="movie")
    layer = to_points_layer(localize(data, sigma=1.3), image)
    viewer.add_layer(layer)
    ndisplay = 3 if request.param == "movie in 3-D" else 2
    viewer.dims.ndisplay = ndisplay
    image.visible = False
    return layer, image, ndisplay


def test_hidden_points_are_not_drawn_and_come_back(viewer, shown):
    layer, _, ndisplay = shown
    everything, sizes = rings(viewer), np.array(layer.size)
    assert everything > 100
    show_only(layer, False, ndisplay)
    assert rings(viewer) == 0
    half = np.arange(len(layer.data)) % 2 == 0
    show_only(layer, half, ndisplay)
    assert 0 < rings(viewer) < everything
    np.testing.assert_array_equal(layer.shown, half)
    show_only(layer, True, ndisplay)
    assert rings(viewer) == everything
    np.testing.assert_array_equal(layer.size, sizes)


def test_new_spots_and_sizes_of_the_user_survive(viewer, shown, make_movie):
    layer, image, ndisplay = shown
    layer.size = 7.0
    show_only(layer, np.arange(len(layer.data)) < 2, ndisplay)
    more = localize(image.data, false_spots=50_000, sigma=1.3)
    assert len(more) > len(layer.data)
    update_points_layer(layer, points_arguments(more), image)
    assert np.all(layer.shown)
    assert np.all(layer.size[:2] == 7)
    assert np.all(layer.size > 0)


def test_a_deleted_point_leaves_no_trace(viewer, shown):
    layer, _, ndisplay = shown
    sizes = np.array(layer.size)
    show_only(layer, np.arange(len(layer.data)) > 0, ndisplay)
    layer.selected_data = {1}
    layer.remove_selected()
    show_all(layer)
    np.testing.assert_array_equal(layer.size, sizes[1:])
