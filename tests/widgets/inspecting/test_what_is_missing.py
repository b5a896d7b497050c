"""The inspector without spots, without their image, or with another one."""

import numpy as np
import pytest
from inspector import add_spots, message, note, shows

import napari_spotfit


def test_the_empty_state_says_what_to_do(viewer, inspector, until, make_movie):
    until(lambda: "Layers ▸ Measure ▸ Fit spots" in message(inspector))
    add_spots(viewer, make_movie(2))
    until(lambda: message(inspector).startswith("Click a fitted spot"))


def test_a_deleted_image_leaves_the_numbers(viewer, inspector, until, make_movie):
    image, layer = add_spots(viewer, make_movie(2))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    viewer.layers.remove(image)
    until(lambda: "image of these spots is gone" in note(inspector))
    assert not message(inspector)
    layer.selected_data = {6}
    until(lambda: "row 6 of" in inspector.panel.title.text())
    assert "gone" in note(inspector)
    assert len(inspector.panel.numbers.texts()) >= 9


def test_a_layer_without_an_image(viewer, inspector, until, make_movie):
    fits = napari_spotfit.localize(make_movie(2))
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits))
    layer.selected_data = {0}
    until(lambda: "does not name the image" in note(inspector))


def test_replaced_data_is_shown_and_named(viewer, inspector, until, make_movie):
    movie = make_movie(2)
    image, layer = add_spots(viewer, movie)
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    assert inspector.panel.changed.isHidden()
    image.data = movie[::-1].copy()
    until(lambda: not inspector.panel.changed.isHidden())
    image.data = movie[:, :20, :20]
    layer.selected_data = {2}
    until(lambda: "no longer reaches" in note(inspector))
    image.data = movie
    until(lambda: shows(inspector, layer, 2))
    layer.selected_data = {6}
    until(lambda: shows(inspector, layer, 6))
    image.data = movie[:1]
    until(lambda: "no longer has this spot's frame" in note(inspector))


def test_a_frame_that_cannot_be_read_gets_a_message(viewer, inspector, until, make_movie):
    array = pytest.importorskip("dask.array")
    movie, broken = make_movie(2), []

    def load(block):
        if broken:
            raise OSError("the disk is gone")
        return block

    lazy = array.from_array(movie, chunks=(1, 48, 50)).map_blocks(load, dtype=movie.dtype)
    _, layer = add_spots(viewer, lazy, of=movie)
    broken.append(True)
    layer.selected_data = {6}
    until(lambda: "the disk is gone" in note(inspector))
    broken.clear()
    layer.selected_data = {7}
    until(lambda: shows(inspector, layer, 7))


def test_removed_renamed_and_edited_layers(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(2))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    layer.name = "mine"
    until(lambda: inspector.panel.title.text().startswith("mine"))
    layer.selected_data = {7}
    until(lambda: shows(inspector, layer, 7))
    layer.data = layer.data[:3]
    until(lambda: "Click" in message(inspector))
    layer.selected_data = {2}
    until(lambda: shows(inspector, layer, 2))
    layer.remove_selected()
    until(lambda: "Click" in message(inspector))
    layer.selected_data = {0}
    until(lambda: shows(inspector, layer, 0))
    viewer.layers.remove(layer)
    until(lambda: "Fit spots first" in message(inspector))


def test_a_point_that_was_added_by_hand(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie())
    layer.feature_defaults = {**layer.feature_defaults.iloc[0], "y": np.nan, "sigma": np.nan}
    layer.add((5, 5))
    until(lambda: "not fitted" in message(inspector))
