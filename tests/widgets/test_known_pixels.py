"""Bad pixels and the camera's maps, from layers to the fits of every button."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import no_worker
from hand import SHIFT
from inspector import docked, go_to, note, shows
from qtpy.QtCore import Qt

from napari_spotfit import Camera, localize
from napari_spotfit.engine.detection_settings import score_for
from napari_spotfit.localization.detect_spots import peak_heights

#: Milliseconds, on a busy machine.
PATIENCE = 300_000

# The images are of no such camera: their light has no noise.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the image has:UserWarning", "ignore:the light of the fitted spots:UserWarning",
    "ignore:.* of the pixels are hot:UserWarning",
)  # fmt: skip


@pytest.fixture
def viewer(shown_viewer):
    viewer = shown_viewer
    viewer.window.resize(1280, 800)
    return viewer


@pytest.fixture
def scene(viewer, widget, make_movie):
    """A movie of a camera with pixels of its own, some of them hot; all chosen in the widget."""
    movie = make_movie(3).astype(float) - 100
    shape, rng = movie.shape[1:], np.random.default_rng(18)
    offset, gain = rng.normal(150, 20, shape), rng.uniform(0.7, 1.4, shape)
    movie = np.rint(movie * gain + offset).clip(0).astype(np.uint16)
    bad = rng.random(shape) < 0.01
    movie[:, bad] = 30_000
    layers = {
        "offset": viewer.add_image(offset, name="dark"),
        "gain": viewer.add_image(gain, name="flat"),
        "bad_pixels": viewer.add_labels(bad.astype(np.uint8), name="hot"),
    }
    image = viewer.add_image(movie, name="movie", contrast_limits=(100, 600))
    panel = widget.settings
    panel.image.layer = image
    panel.camera.maps["offset"].layer = layers["offset"]
    panel.camera.maps["gain"].layer = layers["gain"]
    panel.camera.bad_pixels.layer = layers["bad_pixels"]
    known = {"bad_pixels": bad, "camera": Camera(offset, gain)}
    return image, layers, known


def expected_of(widget, image, known, **options):
    return localize(image.data, settings=widget.settings.settings(), **known, **options)


def test_a_fit_knows_what_the_layers_say(viewer, widget, scene, press, qtbot):
    image, layers, known = scene
    with qtbot.waitSignal(widget.finished, timeout=PATIENCE):
        press(widget.fit_button)
    expected = expected_of(widget, image, known)
    layer = widget.result.layer
    np.testing.assert_array_equal(layer.data, expected.points())
    np.testing.assert_array_equal(layer.features["photons"], expected.photons.astype(float))
    assert expected.good.sum() == 12
    assert layer.metadata["maps"] == {role: str(one.unique_id) for role, one in layers.items()}
    assert layer.metadata["settings"]["gain"] == pytest.approx(known["camera"].gain.mean())


def test_the_preview_follows_the_layers(viewer, widget, scene, press, qtbot):
    image, layers, known = scene
    viewer.dims.set_current_step(0, 2)

    def wait_for_the_fits():
        expected = expected_of(widget, image, known, frames=2).points()

        def drawn():
            layer = widget.preview.layer
            return layer is not None and np.array_equal(layer.data, expected)

        qtbot.waitUntil(drawn, timeout=PATIENCE)

    widget.preview.box.click()
    wait_for_the_fits()
    scores = peak_heights(image.data, widget.settings.settings(), frames=2, **known)
    limit = score_for(10.0, 1.3)
    assert widget.settings.detection_panel.count.text().startswith(f"{(scores > limit).sum()} ")
    # A spot is painted over with bad pixels.
    known["bad_pixels"] = known["bad_pixels"].copy()
    known["bad_pixels"][3:18, 5:20] = True
    layers["bad_pixels"].data = known["bad_pixels"].astype(np.uint8)
    wait_for_the_fits()
    assert len(widget.preview.layer.data) == 3
    widget.settings.camera.bad_pixels.layer = None
    del known["bad_pixels"]
    wait_for_the_fits()
    assert len(widget.preview.layer.data) != 3


def test_a_click_gives_the_row_of_the_fit(viewer, widget, scene, hand, spots, qtbot):
    image, layers, known = scene
    viewer.dims.set_current_step(0, 1)
    for place in spots:
        hand.click(image, np.add(place, (0.8, -1.1)), SHIFT)
        qtbot.waitUntil(
            lambda: not widget.picking.picker._presses and no_worker(), timeout=PATIENCE
        )
    picked = viewer.layers["movie (picked)"]
    expected = expected_of(widget, image, known, frames=1)
    rows = [int(np.argmin(np.hypot(*(expected.points()[:, 1:] - place).T))) for place in spots]
    np.testing.assert_array_equal(picked.data, expected.points()[rows])
    for name in ("sigma", "photons", "x_stderr", "chi_square"):
        np.testing.assert_array_equal(
            picked.features[name], expected.columns[name][rows].astype(float)
        )
    assert picked.metadata["maps"].keys() == layers.keys()


def test_the_estimate_does_not_see_hot_pixels(widget, scene, qtbot):
    widget.settings.advanced.expand()
    qtbot.waitUntil(widget.settings.estimate_button.isVisible)
    widget.settings.estimate_button.setFocus()
    qtbot.keyClick(widget.settings.estimate_button, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: "good fits (" in widget.status.text(), timeout=PATIENCE)
    assert widget.settings.controls["sigma"].value == pytest.approx(1.43, abs=0.05)


def test_the_inspector_shows_what_was_fitted(viewer, widget, scene, press, qtbot):
    _, layers, known = scene
    with qtbot.waitSignal(widget.finished, timeout=PATIENCE):
        press(widget.fit_button)
    layer = widget.result.layer
    inspector = docked(viewer)
    bad = known["bad_pixels"]
    for row in range(len(layer.data)):
        spot = layer.features.iloc[row]
        window = tuple(slice(int(spot[name]), int(spot[name]) + 9) for name in ("roi_y", "roi_x"))
        go_to(inspector, layer, row)
        qtbot.waitUntil(lambda row=row: shows(inspector, layer, row))
        assert not inspector.panel.changed.isVisible(), inspector.panel.changed.text()
        data = inspector.panel.pictures.data.image.image
        np.testing.assert_array_equal(np.isnan(data), bad[window])
    viewer.layers.remove(layers["gain"])
    go_to(inspector, layer, 0)
    qtbot.waitUntil(lambda: "the camera gain of this fit is gone" in note(inspector))


def test_maps_that_do_not_fit_are_shown(viewer, widget, scene, press, qtbot):
    widget.settings.camera.maps["gain"].layer = viewer.add_image(np.ones((5, 5)), name="small")
    press(widget.fit_button)
    assert "“small” has 5×5 pixels, but the camera gain of “movie”" in widget.status.text()
    widget.settings.camera.maps["gain"].layer = viewer.add_image(np.zeros((48, 50)), name="none")
    with qtbot.waitSignal(widget.finished, timeout=PATIENCE):
        press(widget.fit_button)
    assert "gain must be finite and above 0" in widget.status.text()
