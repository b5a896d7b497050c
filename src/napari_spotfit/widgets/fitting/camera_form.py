"""The controls that describe the camera and its pixels: numbers, or layers as maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, Signal

from ...models.estimators import ESTIMATORS
from ...settings.settings import Settings
from ..layers.maps import QUANTITIES, ROLES
from ..napari_compat import is_image, is_labels, is_shapes
from ..parts.boxes import LayerChoice
from ..parts.form import SettingsForm
from ..parts.layout import button, explain

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Layer

#: Least widths in pixels of a number and of the choice of a layer beside it.
_NUMBER, _CHOICE = 46, 76
_DEFAULTS = Settings()
_MAP_TIP = (
    "<p>One {what} for all pixels, or an image layer with that of each pixel (sCMOS), as large "
    "as a frame.</p>"
)
_WHAT = {"offset": "offset", "gain": "gain", "variance": "read-out variance"}
_BAD_TIP = (
    "<p>Pixels that are not used, and where no spots are searched: those that are above zero in "
    "this Labels layer, not zero in this Image layer, or inside the rectangles, ellipses and "
    "polygons of this Shapes layer.</p>"
)
_GAIN_TIP = (
    "<p>The image's noise grows with its light, as that of photo-electrons does. Set the gain, and "
    "the offset if it is 0, that follow: right if the read-out noise is small. A camera's data "
    "sheet, or its dark frames, are better sources.</p>"
)
_WEIGHTS_TIP = (
    "<p>An image layer with the weight of each pixel, 0 or above, as large as a frame or as the "
    "image. Without, weights are the inverse of the read-out variance.</p>"
)


class CameraForm(QObject):
    """Describes the camera and its pixels.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose layers can be chosen.
    controls : SettingsForm
        Has the controls of offset, gain, variance and emccd, and of the estimator.
    parent : QObject
        Qt parent.
    """

    #: Another layer was chosen.
    changed = Signal()

    def __init__(self, viewer: Viewer, controls: SettingsForm, parent: QObject):
        super().__init__(parent)
        self.controls = controls
        self.maps = {
            name: LayerChoice(viewer.layers, is_image, nothing="no map", optional=True)
            for name in QUANTITIES
        }
        self.bad_pixels = LayerChoice(viewer.layers, _is_marking, nothing="none", optional=True)
        self.weights = LayerChoice(
            viewer.layers, is_image, nothing="from the variance", optional=True
        )
        #: Offers the gain that the image suggests.
        self.gain_button = button("", _GAIN_TIP)
        self.gain_button.hide()
        #: All choices of layers, by role.
        self.choices = {**self.maps, "bad_pixels": self.bad_pixels, "weights": self.weights}
        for choice in self.choices.values():
            choice.changed.connect(self._on_changed)
        controls["estimator"].changed.connect(self._on_estimator)
        self._on_changed()

    def layers(self) -> dict[str, Layer]:
        """Return the chosen layers by role."""
        chosen = {role: choice.layer for role, choice in self.choices.items()}
        if not _needs_weights(self.controls["estimator"].value):
            del chosen["weights"]
        return {role: layer for role, layer in chosen.items() if layer is not None}

    def without_maps(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return settings without numbers that maps replace.

        Raises
        ------
        ValueError
            If the estimator needs weights and none are given.
        """
        chosen = self.layers()
        alike = "weights" not in chosen and "variance" not in chosen
        if _needs_weights(values["estimator"]) and alike and not values["variance"]:
            raise ValueError(
                "weighted least squares needs weights: under More settings ▸ Camera choose a layer "
                "with them, or the read-out variance whose inverse they are"
            )
        return values | {
            name: getattr(_DEFAULTS, name) for name in QUANTITIES if self.maps[name].layer
        }

    def changes(self) -> list[str]:
        """Return the maps that are chosen, in words."""
        return [f"{ROLES[role]} in “{layer.name}”" for role, layer in self.layers().items()]

    def reset(self) -> None:
        """Choose no layer."""
        for choice in self.choices.values():
            choice.layer = None

    def add_rows(self) -> None:
        """Put the controls beside and below those of the settings."""
        form = self.controls
        for name, choice in self.maps.items():
            form.number(name).box.make_narrow(_NUMBER)
            choice.setMinimumWidth(_CHOICE)
            explain(choice, f"Map of the {_WHAT[name]}", _MAP_TIP.format(what=_WHAT[name]))
            form.beside(name, choice, stretch=2)
        form.below("gain", self.gain_button)
        form.row_below("emccd", "Bad pixels", self.bad_pixels, _BAD_TIP)
        self._weights_row = form.row_below("emccd", "Weights", self.weights, _WEIGHTS_TIP)
        self._show_weights()

    def _on_changed(self) -> None:
        for name, choice in self.maps.items():
            self.controls[name].enabled = choice.layer is None
        self.changed.emit()

    def _on_estimator(self) -> None:
        self._show_weights()
        self.changed.emit()

    def _show_weights(self) -> None:
        self._weights_row.visible = _needs_weights(self.controls["estimator"].value)


def _needs_weights(estimator: str) -> bool:
    return ESTIMATORS[estimator].needs_weights


def _is_marking(layer: Layer) -> bool:
    return is_image(layer) or is_labels(layer) or is_shapes(layer)
