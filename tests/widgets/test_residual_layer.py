"""The layer of what fits do not explain: its pixels, its place, and what it follows."""

from __future__ import annotations

import threading

import dask.array
import numpy as np
import pytest
from event_loop import settle
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest

import napari_spotfit
from napari_spotfit import SpotFits, simulate_movie, to_points_layer
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers import residual_layer as residual_module
from napari_spotfit.widgets.layers.images import RESIDUAL

#: Noise of the images, and how much more a spot's light is in its middle, in counts.
NOISE, BRIGHT = 12.0, 60.0
PLACE = {"scale": (1, 0.2, 0.1), "translate": (3, 5, 7), "units": ("s", "um", "um")}
PLACE |= {"rotate": 20.0, "axis_labels": ("t", "y", "x")}


@pytest.fixture(scope="module")
def crowd():
    """Return a movie in which spots overlap, and their fits."""
    light = {"photons": 1500, "background": 10, "sigma": 1.3}
    movie, _ = simulate_movie(3, shape=(64, 72), spots_per_frame=40, seed=3, **light)
    fits = napari_spotfit.localize(movie)
    assert (fits.group_size > 1).any()
    return movie, fits


@pytest.fixture
def show(viewer, widget, qtbot):
    """Return the function that adds an image and its spots, and presses the button."""

    def add(pixels, fits, **place):
        image = viewer.add_image(pixels, name="crowd", **place)
        layer = viewer.add_layer(to_points_layer(fits, image))
        for axis in range(pixels.ndim - 2):
            viewer.dims.set_current_step(axis, 0)
        toggle(widget)
        qtbot.waitUntil(lambda: drawn(viewer) is not None)
        return image, layer, drawn(viewer)

    return add


def toggle(widget):
    settle()
    QTest.mouseClick(widget.steps.residual.button, Qt.MouseButton.LeftButton)


def drawn(viewer):
    found = [layer for layer in viewer.layers if RESIDUAL in layer.metadata]
    assert len(found) < 2
    return found[0] if found else None


def pixels_at(places):
    return tuple(np.rint(places).astype(int).T)


def test_noise_is_left_of_singles_and_groups_and_all_light_of_a_hidden_spot(
    viewer, widget, show, crowd, qtbot
):
    movie, fits = crowd
    _, layer, residual = show(movie, fits)
    assert residual.name == "crowd residual"
    low, high = residual.contrast_limits
    assert low == -high
    left = residual.data[0]
    own = (fits.frame == 0) & fits.good
    at = pixels_at(fits.points()[own, 1:])
    assert left.shape == movie[0].shape
    assert abs(np.median(left)) < 1
    assert left.std() < NOISE < movie[0].std() / 2
    assert np.abs(left[at]).mean() < 2 * NOISE
    # But for the background, it is what a script has.
    rest = fits.residual_image(movie)[0]
    np.testing.assert_allclose((rest - left)[at], fits.background[own], atol=3)
    hidden = int(np.flatnonzero(own & (fits.group_size > 1))[0])
    shown = np.ones(len(layer.data), bool)
    shown[hidden] = False
    layer.shown = shown
    place = pixels_at(layer.data[[hidden], 1:])
    qtbot.waitUntil(lambda: (residual.data[0] - left)[place][0] > BRIGHT)
    layer.shown = np.ones(len(shown), bool)
    qtbot.waitUntil(lambda: np.array_equal(residual.data[0], left))


def test_it_lies_on_the_frame_that_is_shown_and_follows_slider_and_image(
    viewer, widget, show, crowd, qtbot
):
    movie, fits = crowd
    image, _, residual = show(movie, fits, **PLACE)
    assert residual.units == image.units
    assert residual.axis_labels == image.axis_labels
    assert np.array_equal(residual.scale, image.scale)

    def lies_on(frame):
        places = [(0, 0, 0), (0, 60, 70)]
        there = [image.data_to_world((frame, *place[1:])) for place in places]
        return np.allclose([residual.data_to_world(place) for place in places], there)

    first = residual.data
    assert lies_on(0)
    for frame in (2, 1):
        viewer.dims.set_current_step(0, frame)
        qtbot.waitUntil(lambda frame=frame: lies_on(frame))
        assert residual.data.std() < NOISE
        assert not np.array_equal(residual.data, first)
    image.translate = (1, 2, 3)
    assert lies_on(1)
    image.affine = [[1, 0, 0, 1], [0, 0, 2, 2], [0, 1, 0, 3], [0, 0, 0, 1]]
    assert lies_on(1)
    image.data = movie[::-1].copy()
    qtbot.waitUntil(lambda: residual.data.std() > NOISE)


def test_pressed_again_it_goes_and_twice_there_is_one(viewer, widget, show, crowd, qtbot):
    movie, fits = crowd
    show(movie, fits)
    button = widget.steps.residual.button
    assert button.isChecked()
    toggle(widget)
    assert drawn(viewer) is None
    assert not button.isChecked()
    toggle(widget)
    qtbot.waitUntil(lambda: drawn(viewer) is not None)
    viewer.layers.remove(drawn(viewer))
    assert not button.isChecked()
    toggle(widget)
    qtbot.waitUntil(lambda: drawn(viewer) is not None)


def test_another_widget_goes_on_with_the_layer_that_is_there(viewer, widget, show, crowd, qtbot):
    movie, fits = crowd
    _, layer, residual = show(movie, fits)
    widget.close()
    viewer.dims.set_current_step(0, 1)
    settle()
    assert residual.translate[0] == 0  # nothing follows it
    again = FitSpots(viewer)
    viewer.window.add_dock_widget(again, name="Fit spots")
    viewer.layers.selection.active = layer
    settle()
    assert again.steps.residual.button.isChecked()
    qtbot.waitUntil(lambda: residual.translate[0] == 1)
    assert drawn(viewer) is residual
    viewer.layers.remove(layer)
    settle()
    assert drawn(viewer) is residual


def test_what_is_selected_stays_and_no_spots_are_fitted_in_it(viewer, widget, show, crowd):
    movie, fits = crowd
    image, layer, residual = show(movie, fits)
    assert viewer.layers.selection.active is layer
    assert [*viewer.layers] == [image, residual, layer]
    viewer.layers.selection.active = residual
    settle()
    assert widget.settings.image.ticked == [image]


def test_of_a_lazy_movie_one_frame_is_read(viewer, widget, show, crowd):
    movie, fits = crowd
    read = []

    def load(block_info=None):
        at = block_info[None]["chunk-location"][0]
        read.append(at)
        return movie[at : at + 1]

    chunks = ((1,) * 3, *((side,) for side in movie.shape[1:]))
    lazy = dask.array.map_blocks(load, chunks=chunks, dtype=movie.dtype)
    _, _, residual = show(lazy, fits, contrast_limits=(100, 300))
    assert 2 not in read  # napari stands in the middle at first
    assert residual.data.std() < NOISE


def test_of_a_volume_all_planes_are_there_and_the_work_can_be_cancelled(
    viewer, widget, show, qtbot, monkeypatch
):
    rng = np.random.default_rng(1)
    z, y, x = np.indices((12, 40, 44))
    places = np.array([(5, 12, 14), (6, 15.5, 16), (6, 30, 30)])
    volume = sum(
        600 * np.exp(-((z - a) ** 2) / 8 - ((y - b) ** 2 + (x - c) ** 2) / 3.4)
        for a, b, c in places
    )
    volume = rng.poisson(volume + 20 + 0 * z).astype(np.uint16)
    fits = napari_spotfit.localize(volume, model="gaussian_3d", sigma=1.3, sigma_z=2.0, gain=1.0)
    assert np.count_nonzero(fits.amplitude > 500) == 3
    image = viewer.add_image(volume, name="crowd", metadata={"volume": True},
                             axis_labels=("z", "y", "x"))  # fmt: skip
    viewer.add_layer(to_points_layer(fits, image))
    reached, may_go_on = threading.Event(), threading.Event()
    of_frame = residual_module.residual_of

    def slow(*given):
        for done, total in of_frame(*given):
            yield done, total
            reached.set()
            assert may_go_on.wait(60)
        return np.zeros(volume.shape, np.float32)

    monkeypatch.setattr(residual_module, "residual_of", slow)
    toggle(widget)
    button = widget.steps.residual.button
    qtbot.waitUntil(lambda: button.text().startswith("Cancel"))
    assert reached.is_set()
    assert "%" in button.text()
    toggle(widget)
    may_go_on.set()
    assert button.text() == "Show residual"
    assert not button.isChecked()
    monkeypatch.setattr(residual_module, "residual_of", of_frame)
    toggle(widget)
    qtbot.waitUntil(lambda: drawn(viewer) is not None)
    residual = drawn(viewer)
    assert residual.data.shape == volume.shape
    assert np.abs(residual.data[pixels_at(places)]).max() < 60
    assert residual.data.std() < 7
    assert np.array_equal(residual.translate, image.translate)


def test_a_refit_of_another_model_counts_with_its_own_light(viewer, widget, show, crowd, qtbot):
    movie, fits = crowd
    _, layer, residual = show(movie, fits)
    left = residual.data[0].copy()
    own = np.flatnonzero((fits.frame == 0) & fits.good & (fits.group_size == 1))[0]
    place = pixels_at(layer.data[[own], 1:])
    features = layer.features.copy()
    features["refit"] = 0.0
    features.loc[own, "refit"] = 1.0
    features["width"] = np.nan
    features.loc[own, ["sigma", "width"]] = np.nan, 1.4
    settings = {**layer.metadata["settings"], "model": "lorentzian"}
    layer.metadata = {**layer.metadata, "refits": [settings]}
    layer.features = features
    qtbot.waitUntil(lambda: not np.array_equal(residual.data[0], left))
    spot = fits[[own]]
    settings = fits.settings.changed(model="lorentzian")
    refitted = SpotFits(dict(spot.columns) | {"width": np.array([1.4])}, ("frame",), settings)
    lights = [one.model_image(movie.shape)[0][place] for one in (spot, refitted)]
    np.testing.assert_allclose((residual.data[0] - left)[place], lights[0] - lights[1], atol=10)


def test_spots_without_a_model_or_an_image_say_so(viewer, widget, crowd, qtbot):
    movie, fits = crowd
    image = viewer.add_image(movie, name="crowd")
    layer = viewer.add_layer(to_points_layer(fits, image))
    kept = {name: fits.columns[name] for name in ("frame", "y", "x", "stop_condition")}
    bare = viewer.add_layer(to_points_layer(SpotFits(kept, fits.index_names), image))
    toggle(widget)
    qtbot.waitUntil(lambda: "of another program" in widget.status.text())
    assert not widget.steps.residual.button.isChecked()
    viewer.layers.remove(bare)
    viewer.layers.selection.active = layer
    settle()
    viewer.layers.remove(image)
    toggle(widget)
    qtbot.waitUntil(lambda: "not open" in widget.status.text())
    assert drawn(viewer) is None


def test_that_of_a_preview_goes_with_it(viewer, widget, crowd, qtbot):
    movie, _ = crowd
    viewer.add_image(movie, name="crowd")
    with qtbot.waitSignal(widget.preview.drawn):
        widget.preview.box.click()
    toggle(widget)
    qtbot.waitUntil(lambda: drawn(viewer) is not None)
    assert drawn(viewer).data.std() < NOISE
    widget.preview.box.click()
    qtbot.waitUntil(lambda: drawn(viewer) is None)
