"""Model, estimator, what is held and bounded, and what is known of the camera."""

from __future__ import annotations

import numpy as np
import pytest
from qtpy.QtCore import Qt

from napari_spotfit import Camera, Profile, Settings
from napari_spotfit.widgets.fitting.model_form import OWN
from napari_spotfit.widgets.layers.maps import layer_maps

SQUARED = "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))**q"


@pytest.fixture
def layers():
    from napari.components import ViewerModel

    return ViewerModel()


@pytest.fixture
def panel(qtbot, layers):
    from napari_spotfit.widgets.fitting.settings_panel import SettingsPanel

    panel = SettingsPanel(layers)
    qtbot.addWidget(panel)
    panel.bind()
    yield panel
    panel.unbind()


@pytest.fixture
def write(qtbot):
    """Type a text into a line, and leave it."""

    def write(line, text):
        line.selectAll()
        qtbot.keyClicks(line, text)
        qtbot.keyClick(line, Qt.Key.Key_Return)

    return write


def test_defaults_are_the_settings(panel):
    assert panel.settings() == Settings()
    assert panel.layers() == {}


def test_model_and_estimator_can_be_chosen(panel):
    panel.controls["model"].value = "gaussian_elliptical"
    panel.controls["pixel"].value = "integrated"
    panel.controls["estimator"].value = "mle"
    settings = panel.settings()
    assert (settings.model, settings.pixel) == ("gaussian_elliptical", "integrated")
    assert settings.estimator == "mle"


def test_what_does_not_go_together_is_said(panel):
    panel.controls["model"].value = "gaussian_rotated"
    panel.controls["pixel"].value = "integrated"
    with pytest.raises(ValueError, match="no formula averaged over a pixel"):
        panel.settings()


class TestHeldAndBounded:
    def test_every_parameter_has_a_row(self, panel):
        table = panel.model.shape
        for model, names in (
            ("gaussian", ["y", "x", "sigma"]),
            ("gaussian_rotated", ["y", "x", "sigma_x", "sigma_y", "angle"]),
            ("lorentzian", ["y", "x", "width"]),
        ):
            panel.controls["model"].value = model
            assert list(dict.fromkeys(name for name, _ in table.boxes)) == names
            assert {what for _, what in table.boxes} == {"fixed", "low", "high"}

    def test_numbers_are_settings(self, panel, qtbot, write):
        panel.controls["model"].value = "gaussian_rotated"
        boxes = panel.model.shape.boxes
        with qtbot.waitSignal(panel.changed):
            write(boxes["angle", "fixed"].lineEdit(), "30")
        write(boxes["sigma_x", "low"].lineEdit(), "0,8")
        write(boxes["x", "high"].lineEdit(), "1.5")
        settings = panel.settings()
        assert settings.fixed == {"angle": 30}
        assert settings.bounds == {"x": (None, 1.5), "sigma_x": (0.8, None)}
        write(boxes["angle", "fixed"].lineEdit(), " ")
        assert panel.settings().fixed == {}

    def test_what_is_held_has_no_bounds(self, panel):
        boxes = panel.model.shape.boxes
        boxes["sigma", "low"].put(1)
        boxes["sigma", "fixed"].put(1.2)
        assert panel.settings().fixed == {"sigma": 1.2}
        assert panel.settings().bounds == {}
        assert not boxes["sigma", "low"].isEnabled()
        boxes["sigma", "fixed"].put(None)
        assert boxes["sigma", "low"].isEnabled()
        assert panel.settings().bounds == {"sigma": (1, None)}

    def test_bounds_that_fall_are_refused(self, panel):
        panel.model.shape.boxes["sigma", "low"].put(3)
        panel.model.shape.boxes["sigma", "high"].put(2)
        with pytest.raises(ValueError, match="bounds of sigma must rise; got 3 and 2"):
            panel.settings()

    def test_a_held_sigma_is_the_psfs(self, panel):
        panel.model.fix_sigma.setChecked(True)
        with pytest.raises(ValueError, match=r"which is automatic: press Estimate or type"):
            panel.settings()
        panel.controls["sigma"].value = 1.6
        box = panel.model.shape.boxes["sigma", "fixed"]
        assert (box.get(), box.isEnabled()) == (1.6, False)
        panel.controls["sigma"].value = 1.7
        assert panel.settings().fixed == {"sigma": 1.7}
        panel.controls["model"].value = "gaussian_rotated"
        assert panel.settings().fixed == {"sigma_x": 1.7, "sigma_y": 1.7}
        # A Lorentzian has none.
        panel.controls["model"].value = "lorentzian"
        assert panel.settings().fixed == {}
        panel.controls["model"].value = "gaussian"
        panel.model.fix_sigma.setChecked(False)
        assert panel.settings().fixed == {}

    def test_they_are_remembered_and_reset(self, panel):
        panel.controls["sigma"].value = 1.6
        panel.model.fix_sigma.setChecked(True)
        panel.model.shape.boxes["x", "low"].put(-2)
        values = panel.values()
        panel.reset()
        assert panel.settings() == Settings()
        panel.put(values)
        assert panel.settings().fixed == {"sigma": 1.6}
        assert panel.settings().bounds == {"x": (-2, None)}
        panel.model.shape.put({"x": {"low": "left", "high": [1]}, "y": 3})
        assert panel.settings().bounds == {}


class TestOwnModel:
    @pytest.fixture
    def own(self, panel, qtbot):
        """Choose an own model and wait until it is read."""
        panel.controls["model"].value = OWN
        qtbot.waitUntil(lambda: not panel.model.message.text())
        return panel

    def test_the_example_is_a_model(self, own):
        profile = own.settings().profile
        assert profile.widths == ("s", "q")
        assert own.model.shape.starts() == {"s": "sigma", "q": "1"}
        assert profile == Profile.from_expression(
            own.model.expression.text(), start={"s": "sigma", "q": "1"}, name="own"
        )

    def test_another_expression_has_its_own_rows(self, own, qtbot, write):
        write(own.model.expression, "1 / (1 + ((x-x0)/w)**2 + ((y-y0)/h)**2)")
        qtbot.waitUntil(lambda: not own.model.message.text())
        assert own.settings().profile.widths == ("w", "h")
        own.model.shape.boxes["h", "high"].put(4)
        start = own.model.shape.starts()
        assert start == {"w": "sigma", "h": "1"}
        assert own.settings().bounds == {"h": (None, 4)}

    def test_starts_can_be_given(self, own, qtbot, write):
        with qtbot.waitSignal(own.changed):
            write(own.model.shape._starts["q"], "1.5")
        qtbot.waitUntil(lambda: not own.model.message.text())
        assert own.settings().profile.shape[3].start == (1.5, 0.0)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("exp(", "expression"),
            ("open(x0, y0)", "expression"),
            ("exp(-(x-x0)**2/s)", "must have the centre's y in it, by name y0"),
            ("exp(-(x-x0)**2 - (y-y0)**2)", "must have a parameter besides the centre"),
            ("(x-x0)**2 + (y-y0)**2 + b", "'b' does only what"),
            ("exp(-(x-x0)**2-(y-y0)**2/s)^2", "powers are written with"),
        ],
    )
    def test_what_is_no_model_is_said_and_not_fitted(self, own, qtbot, write, text, words):
        write(own.model.expression, text)
        qtbot.waitUntil(lambda: own.model.message.text().startswith("⚠"))
        assert words in own.model.message.text()
        with pytest.raises(ValueError, match=r"\w"):
            own.settings()
        write(own.model.expression, SQUARED)
        qtbot.waitUntil(lambda: not own.model.message.text().startswith("⚠"))

    def test_it_is_remembered(self, own, qtbot, write):
        write(own.model.shape._starts["s"], "1.1*sigma")
        own.advanced.expand()
        values = own.values()
        own.reset()
        assert own.settings() == Settings()
        assert not own.model.expression.isVisibleTo(own)
        own.put(values)
        qtbot.waitUntil(lambda: not own.model.message.text())
        assert own.settings().profile.shape[2].start == (0.0, 1.1)
        assert own.model.expression.isVisibleTo(own)

    def test_a_panel_that_was_closed_meanwhile_reads_on(self, panel, qtbot):
        panel.controls["model"].value = OWN
        panel.unbind()
        panel.bind()
        qtbot.waitUntil(lambda: not panel.model.message.text())
        assert panel.settings().profile.widths == ("s", "q")


class TestCamera:
    """Layers that say something of each pixel."""

    @pytest.fixture
    def image(self, layers):
        return layers.add_image(np.zeros((4, 30, 40)), name="movie", scale=(1, 0.1, 0.1))

    @pytest.fixture
    def dark(self, layers):
        return layers.add_image(np.full((30, 40), 99.0), name="dark")

    def test_a_map_takes_the_place_of_the_number(self, panel, image, dark):
        panel.image.layer = image
        panel.controls["offset"].value = 7
        panel.camera.maps["offset"].layer = dark
        assert panel.layers() == {"offset": dark}
        assert not panel.controls["offset"].native.isEnabled()
        assert panel.settings().offset == 0
        known = layer_maps(image, panel.layers()).read()
        np.testing.assert_array_equal(known["camera"].offset, dark.data)
        panel.camera.maps["offset"].layer = None
        assert panel.settings().offset == 7

    def test_a_layer_that_goes_is_let_go(self, panel, layers, image, dark, qtbot):
        panel.camera.maps["gain"].layer = dark
        with qtbot.waitSignal(panel.maps_changed):
            layers.layers.remove(dark)
        assert panel.layers() == {}

    def test_weights_need_their_estimator(self, panel, image, dark):
        assert not panel.camera.weights.isVisibleTo(panel)
        panel.controls["estimator"].value = "wlse"
        panel.advanced.expand()
        assert panel.camera.weights.isVisibleTo(panel)
        with pytest.raises(ValueError, match=r"choose a layer with them, or the read-out"):
            panel.settings()
        panel.controls["variance"].value = 4
        assert panel.settings().variance == 4
        panel.controls["variance"].value = None
        panel.camera.weights.layer = dark
        assert panel.settings().estimator == "wlse"
        assert panel.layers() == {"weights": dark}
        panel.controls["estimator"].value = "lse"
        assert panel.layers() == {}

    def test_marks_are_bad_pixels(self, layers, image):
        marked = np.zeros((30, 40), int)
        marked[3, 5] = 2
        for layer in (
            layers.add_labels(marked, scale=(0.1, 0.1)),
            layers.add_image(marked.astype(float)),
            layers.add_image((marked * -0.5)[None]),
        ):
            known = layer_maps(image, {"bad_pixels": layer}).read()
            np.testing.assert_array_equal(known["bad_pixels"], marked > 0)
        stack = np.zeros(image.data.shape, bool)
        stack[2, 3, 5] = True
        known = layer_maps(image, {"bad_pixels": layers.add_image(stack)}).read()
        np.testing.assert_array_equal(known["bad_pixels"], stack)

    def test_all_maps_together(self, layers, image, dark):
        found = {"offset": dark, "gain": dark, "variance": dark, "weights": dark}
        maps = layer_maps(image, {**found, "mask": layers.add_labels(np.ones((30, 40), int))})
        known = maps.read()
        assert known.keys() == {"camera", "weights", "mask"}
        assert isinstance(known["camera"], Camera)
        assert maps.ids == dict.fromkeys(found, str(dark.unique_id))

    def test_a_map_of_other_pixels_is_refused(self, layers, image):
        small = layers.add_image(np.zeros((20, 40)), name="small")
        with pytest.raises(ValueError, match=r"“small” has 20×40 pixels, but the camera gain of"):
            layer_maps(image, {"gain": small})
