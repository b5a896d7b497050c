"""Which spot the inspector shows: that clicked, that selected, that of the frame."""

import numpy as np
import pytest
from event_loop import no_worker
from hand import LEFT, NO_KEY, RIGHT, SHIFT
from inspector import add_spots, message, results_of, shows
from qtpy.QtCore import QPointF

import napari_spotfit


def test_a_click_on_a_ring_inspects_its_spot(viewer, inspector, hand, until, make_movie, spots):
    _, layer = add_spots(viewer, make_movie(3))
    viewer.dims.set_current_step(0, 2)
    # Beside the centre, on the ring itself.
    beside = spots[1] + (0, 3.5)
    hand.click(layer, beside)
    here = np.abs(layer.data - (2, *spots[1])).max(axis=1) < 1
    (expected,) = np.flatnonzero(here)
    until(lambda: shows(inspector, layer, expected))
    assert layer.selected_data == {expected}


@pytest.mark.parametrize("kind", ["drag", "right button", "Shift", "hidden", "filtered", "mode"])
def test_what_is_no_click_on_a_spot_changes_nothing(
    viewer, inspector, hand, until, make_movie, kind
):
    _, layer = add_spots(viewer, make_movie())
    layer.visible = kind != "hidden"
    if kind == "filtered":
        layer.shown = [True, False, True, True]
    if kind == "mode":
        viewer.layers.selection.active = viewer.add_shapes(name="drawn")
        viewer.layers["drawn"].mode = "select"
    if kind == "drag":
        point = hand.at(layer, layer.data[1])
        hand.drag(point, point + QPointF(20, 5), point + QPointF(40, 10))
    else:
        keys, button = SHIFT if kind == "Shift" else NO_KEY, RIGHT if "right" in kind else LEFT
        hand.click(layer, layer.data[1], keys, button)
    until(lambda: message(inspector).startswith("Click"))
    assert not layer.selected_data


def test_of_overlapping_rings_the_nearest_spot_is_meant(viewer, inspector, hand, until, make_movie):
    movie = make_movie()
    image = viewer.add_image(movie, name="movie")
    places = [(10.3, 12.1), (14.8, 33.6), (10.3, 12.1)]
    fits = napari_spotfit.fit_at(movie, places, sigma=1.3, neighbours="exclude")
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits, image))
    moved = layer.data.copy()
    moved[2] += (0, 4)
    layer.data = moved
    hand.click(layer, layer.data[0] + (0, 1))
    until(lambda: shows(inspector, layer, 0))
    hand.click(layer, moved[2])
    until(lambda: "row 2 of" in inspector.panel.title.text())
    assert "moved or added by hand" in inspector.panel.verdict.text.text()


def test_the_frame_is_followed(viewer, inspector, until, make_movie):
    movie = make_movie(4)
    image = viewer.add_image(movie, name="movie")
    fits = napari_spotfit.localize(movie, frames=[0, 1, 3])
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits, image))
    viewer.dims.set_current_step(0, 0)
    layer.selected_data = {2}
    until(lambda: shows(inspector, layer, 2))
    place = layer.data[2, 1:]
    for frame in (1, 2, 3, 0):
        viewer.dims.set_current_step(0, frame)
        if frame == 2:
            until(lambda: "no spot at this place in frame 2" in message(inspector))
            assert "movie spots" in message(inspector)
            continue
        near = np.hypot(*(layer.data[:, 1:] - place).T) < 1
        (row,) = np.flatnonzero(near & (layer.data[:, 0] == frame))
        until(lambda row=row: shows(inspector, layer, row))
    assert layer.selected_data == {2}
    layer.shown = False
    viewer.dims.set_current_step(0, 1)
    until(lambda: "no spot at this place in frame 1" in message(inspector))


def test_a_selected_spot_of_another_frame_stays_until_the_frame_changes(
    viewer, inspector, until, make_movie
):
    _, layer = add_spots(viewer, make_movie(3))
    layer.selected_data = {9}
    until(lambda: shows(inspector, layer, 9))
    viewer.add_labels(np.zeros((5, 5), int))
    until(lambda: not inspector._soon.isActive())
    assert shows(inspector, layer, 9)


def test_four_axes_of_dask_on_a_transformed_layer(viewer, inspector, hand, until, make_movie):
    array = pytest.importorskip("dask.array")
    movie = make_movie(2, 3)
    read = []

    def load(block, block_info=None):
        read.append(block_info[0]["chunk-location"][:2])
        return block

    lazy = array.from_array(movie, chunks=(1, 1, 48, 50)).map_blocks(load, dtype=movie.dtype)
    _, layer = add_spots(
        viewer,
        lazy,
        of=movie,
        scale=(1, 2, 0.2, 0.1),
        rotate=20,
        translate=(0, 1, 5, 7),
        units=("s", "um", "um", "um"),
    )
    read.clear()
    for step, frame in enumerate((1, 2)):
        viewer.dims.set_current_step(step, frame)
    until(lambda: no_worker())
    read.clear()
    rows = np.flatnonzero((layer.data[:, :2] == (1, 2)).all(axis=1))
    hand.click(layer, layer.data[rows[2], 2:])
    until(lambda: shows(inspector, layer, rows[2]))
    assert "frame (1, 2)" in inspector.panel.title.text()
    # One frame, once, for all of its spots.
    layer.selected_data = {rows[1]}
    until(lambda: shows(inspector, layer, rows[1]))
    assert read == [(1, 2)]
    results_of(inspector).units.setCurrentIndex(1)
    until(lambda: "µm" in inspector.panel.numbers.texts()["y"])
    values, texts = layer.features.iloc[rows[1]], inspector.panel.numbers.texts()
    for name, factor in (("y", 0.2), ("x", 0.1)):
        number, unit = texts[name].partition(" ±")[0], texts[name].rpartition(" ")[2]
        assert float(number) == pytest.approx(values[name] * factor, abs=0.01)
        assert unit == "µm"
    # Pixels are not square: a width along neither axis has no length.
    assert texts["sigma"].endswith(" px")
    results_of(inspector).units.setCurrentIndex(0)
    until(lambda: "px" in inspector.panel.numbers.texts()["y"])
    viewer.dims.set_current_step(1, 0)
    (row,) = (
        row
        for row in np.flatnonzero((layer.data[:, :2] == (1, 0)).all(axis=1))
        if np.hypot(*(layer.data[row] - layer.data[rows[1]])[2:]) < 1
    )
    until(lambda: shows(inspector, layer, row))


def test_several_images_with_their_own_results(viewer, inspector, hand, until, make_movie):
    movie = make_movie(2)
    _, one = add_spots(viewer, movie)
    _, other = add_spots(viewer, movie[::-1].copy())
    one.selected_data = {1}
    until(lambda: shows(inspector, one, 1))
    first = inspector.panel.pictures.data.image.image.copy()
    other.selected_data = {1}
    until(lambda: inspector.panel.title.text().startswith("movie [1] spots"))
    until(lambda: shows(inspector, other, 1))
    assert not np.array_equal(first, inspector.panel.pictures.data.image.image)
    # The layer above is the one that is clicked.
    hand.click(other, other.data[2, 1:])
    until(lambda: other.selected_data == {2})
    other.visible = False
    hand.click(one, one.data[3, 1:])
    until(lambda: one.selected_data == {3})
    until(lambda: shows(inspector, one, 3))


def test_three_dimensions(viewer, inspector, hand, until, make_movie):
    _, layer = add_spots(viewer, make_movie(3))
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    viewer.dims.ndisplay = 3
    hand.click(layer, layer.data[0, 1:])
    layer.selected_data = {6}
    until(lambda: shows(inspector, layer, 6))
    viewer.dims.ndisplay = 2
    viewer.dims.set_current_step(0, 0)
    until(lambda: layer.data[inspector._row, 0] == 0)
