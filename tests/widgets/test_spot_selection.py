"""Which spot was selected last."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from napari.components import ViewerModel
from qtpy.QtCore import QObject

from napari_spotfit import localize, to_points_layer
from napari_spotfit.widgets.layers.points import points_arguments, update_points_layer
from napari_spotfit.widgets.layers.selection import SpotSelection

pytestmark = pytest.mark.usefixtures("qapp")


@pytest.fixture
def viewer():
    return ViewerModel()


@pytest.fixture
def selection(viewer):
    parent = QObject()
    selection = SpotSelection(viewer, parent)
    selection.bind()
    yield selection
    selection.unbind()
    parent.deleteLater()


@pytest.fixture
def add(viewer, make_movie):
    def add(name):
        image = viewer.add_image(make_movie(2), name=name)
        layer = to_points_layer(localize(image.data, sigma=1.3), image)
        viewer.add_layer(layer)
        return image, layer

    return add


def current(selection):
    return selection.layer, selection.row


def test_the_last_one_counts_in_whichever_layer(add, selection):
    (_, one), (_, two) = add("one"), add("two")
    heard = []
    selection.changed.connect(lambda: heard.append(current(selection)))
    one.selected_data = {3}
    two.selected_data = {1}
    one.selected_data = {5}
    assert heard == [(one, 3), (two, 1), (one, 5)]
    one.selected_data = set()
    assert current(selection) == (None, None)
    two.selected_data.add(6)
    assert current(selection) == (two, 6)


def test_activating_a_layer_brings_its_selection_back(viewer, add, selection):
    (_, one), (_, two) = add("one"), add("two")
    one.selected_data = {3}
    two.selected_data = {1}
    viewer.layers.selection.active = one
    assert current(selection) == (one, 3)


def test_other_points_do_not_count(viewer, add, selection):
    add("one")
    other = viewer.add_points(np.zeros((3, 3)))
    other.selected_data = {1}
    assert current(selection) == (None, None)


def test_new_spots_and_a_removed_layer(viewer, add, selection, make_movie):
    image, layer = add("one")
    layer.selected_data = {3}
    heard = []
    selection.changed.connect(lambda: heard.append(current(selection)))
    update_points_layer(
        layer, points_arguments(localize(make_movie(1), roi_size=7, sigma=1.3)), image
    )
    assert current(selection) == (None, None)
    layer.selected_data = {0}
    viewer.layers.remove(layer)
    assert current(selection) == (None, None)
    assert heard[-1] == (None, None)


def test_nothing_is_left_after_unbinding(viewer, add, make_movie):
    parent = QObject()
    selection = SpotSelection(viewer, parent)
    selection.bind()
    _, layer = add("one")
    layer.selected_data = {2}
    selection.unbind()
    layer.selected_data = {1}
    assert current(selection) == (None, None)
    gone = weakref.ref(selection)
    selection.setParent(None)
    del selection, parent
    gc.collect()
    assert gone() is None
