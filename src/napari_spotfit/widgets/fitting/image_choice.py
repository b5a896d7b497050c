"""Which image is fitted: the one that is selected in the layer list, unless another is pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import ref

from qtpy.QtWidgets import QPushButton

from ..layers.points import is_preview
from ..napari_compat import is_image
from ..parts.layer_choice import LayerChoice
from ..parts.layout import explain

if TYPE_CHECKING:
    from napari.components import LayerList
    from napari.layers import Layer

_PIN_TIP = (
    "<p>Stay with this image, whichever layer is selected. Without, selecting an image in the "
    "layer list chooses it here, unless it is hidden, or a map of the camera's pixels.</p>"
)


class ImageChoice(LayerChoice):
    """Chooses an image, and follows the layer list.

    Parameters
    ----------
    layers : napari.components.LayerList
        The viewer's layers.
    maps : callable
        Returns the layers that say something of the image's pixels, which are not what is fitted.
    """

    def __init__(
        self,
        layers: LayerList,
        maps: Callable[[], Iterable[Layer]],
    ):
        super().__init__(layers, is_image, nothing="no image")
        self._maps = maps
        #: The layers that were chosen last, the latest at the end.
        self._earlier: list[ref[Layer]] = []
        #: The layer that was selected last.
        self._selected: ref[Layer] | None = None
        #: Whether the image stays, whatever is selected.
        self.pin = QPushButton("Pin")
        self.pin.setCheckable(True)
        explain(self.pin, "Pin the image", _PIN_TIP)
        self.pin.toggled.connect(self._choose_selected)
        self.changed.connect(self._on_changed)

    def bind(self) -> None:
        """Follow the viewer's layers, and which of them is selected."""
        self._layers.selection.events.active.connect(self._follow)
        super().bind()
        self._choose_selected()

    def unbind(self) -> None:
        """Stop following them."""
        self._layers.selection.events.active.disconnect(self._follow)
        super().unbind()

    def leave_maps(self) -> None:
        """Choose the image of before if this one now says something of an image's pixels."""
        if self._is_map(self.layer):
            self.layer = self._first()

    def _first(self) -> Layer | None:
        """Return what was chosen before, else what is seen, unless it is a map."""
        earlier = [layer for one in reversed(self._earlier) if (layer := one()) is not None]
        topmost = list(reversed(self._layers))
        seen = [layer for layer in topmost if layer.visible]
        listed = [one for one in (*earlier, *seen, *topmost) if one in self._layers]
        images = [layer for layer in listed if is_image(layer)]
        return next((one for one in images if not self._is_map(one)), next(iter(images), None))

    def _is_map(self, layer: Layer | None) -> bool:
        return any(one is layer for one in self._maps())

    def _follow(self, event: Any) -> None:
        active = self._layers.selection.active
        # A new preview is selected for a moment, and then what was selected before.
        if active is None or is_preview(active):
            return
        last = self._selected and self._selected()
        self._selected = ref(active)
        if active is not last:
            self._choose_selected()

    def _choose_selected(self) -> None:
        active = self._layers.selection.active
        if self.pin.isChecked() or not is_image(active):
            return
        if active.visible and not self._is_map(active):
            self.layer = active

    def _on_changed(self) -> None:
        layer = self.layer
        if layer is None:
            self.pin.setChecked(False)
        else:
            others = [one for one in self._earlier if one() not in (None, layer)]
            self._earlier = [*others, ref(layer)]
