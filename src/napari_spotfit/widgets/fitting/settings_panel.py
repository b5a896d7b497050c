"""The controls of the widget "Fit spots": what to fit, and how."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, Qt, Signal
from qtpy.QtGui import QIcon
from qtpy.QtWidgets import (
    QGraphicsOpacityEffect,
    QHBoxLayout,
    QLabel,
    QLayout,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)
from superqt import QCollapsible

from ...engine.select import Description, describe
from ...settings.settings import Settings, parameters
from ..layers.images import depth_axis, in_its_axes, is_volume
from ..napari_compat import is_labels, is_shapes
from ..parts.boxes import LayerChoice
from ..parts.form import SettingsForm
from ..parts.layout import HEADING, button, fill, sentence, show_text
from ..parts.messages import in_words
from ..parts.work import Latest
from .camera_form import CameraForm
from .detection_panel import DetectionPanel
from .frame_choice import FrameChoice
from .image_choice import IMAGE_TIP, ImageChoice
from .model_form import ModelForm

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer

    from ...estimation.image_estimates import ImageEstimates

_LIMIT_TIP = (
    "<p>Search for spots only where this Labels layer is above zero, or inside the rectangles, "
    "ellipses and polygons of this Shapes layer. Shapes, and labels without frames, "
    "count for every frame.</p>"
)
_ESTIMATE_TIP = (
    "<p>Fit the bright spots of the frame shown, where spots are searched, or of frames all over "
    "the movie if it has too few; take the median of their σ, and keep it for the next images, "
    "too.</p><p>While σ is automatic, it is estimated from each image, all over.</p>"
)
_AUTOMATIC_TIP = (
    "<p>Estimate it from each image again. So does an empty box, or one with the word "
    "<i>automatic</i>.</p>"
)
_FRAMES_TIP = "<p>What the axes of the image are, and which of its frames are fitted.</p>"
_RESET_TIP = "<p>Set every control to its default: all that is named here.</p>"
_BY_THRESHOLD_TIP = (
    "<p>Spots are found by their height in counts, as a threshold is set under More settings ▸ "
    "Detection. Clear it to find them by a number of false spots.</p>"
)
_ADVANCED_TIP = (
    "<p>Show or hide what few need: σ and ROI, the model and its bounds, the camera, the optics "
    "of z-stacks, and the device.</p>"
)
#: What Qt takes for no limit.
_ANY_HEIGHT = 16777215
#: Settings that decide what a fit runs on.
_RUN = ("backend", "devices", "threads")
#: Those that mean nothing in planes.
_OF_VOLUMES = ("sigma_z", "numerical_aperture", "wavelength", "refractive_index")
_ONE_GPU_TIP = "<p>There is no second GPU that could be used.</p>"


class SettingsPanel(QWidget):
    """All controls: a few in sight, then room for what follows from them, then all others folded.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose layers can be chosen.
    """

    changed = Signal()
    #: Another layer was chosen that describes the image's pixels.
    maps_changed = Signal()

    def __init__(self, viewer: Viewer):
        super().__init__()
        self.image = ImageChoice(viewer, lambda: self.layers().values())
        self.limit = LayerChoice(viewer.layers, _is_limit, nothing="whole image", optional=True)
        self.frames = FrameChoice(viewer)
        self.controls = SettingsForm(Settings)
        self.model = ModelForm(self.controls, self)
        self.camera = CameraForm(viewer, self.controls, self)
        maps = self.camera.choices.values()
        self._following: tuple[Any, ...] = (self.image, self.limit, *maps, self.model)
        self.estimate_button = button("Estimate", _ESTIMATE_TIP, name="Estimate the PSF's σ")
        #: Each clears a box whose value is estimated when empty; visible while it has a number.
        self.automatic_buttons = {
            name: button(
                "Auto", _AUTOMATIC_TIP, partial(self.controls.put, {name: None}),
                f"{about.label} automatic",
            )
            for name, about in parameters().items()
            if about.automatic is not None
        }  # fmt: skip
        #: Why σ could not be estimated, and doubts about the noise.
        self.psf_warning = _soft_label()
        self.device, self.why_no_gpu = sentence(), _soft_label()
        self._describing = Latest(self, self._on_device)
        #: What lies between the controls in sight and the fold.
        self.middle = QVBoxLayout()
        #: All other controls; above them is the first row, for what others have to add.
        self.advanced, self.first_folded = QCollapsible("", None, QIcon(), QIcon()), QHBoxLayout()
        #: What is not at its default, and a button that resets it.
        self.changes, self.reset_button = _soft_label(), button("Reset", _RESET_TIP, self.reset)
        self._add_rows()
        self._fold()
        self.middle.setContentsMargins(0, 0, 0, 0)
        heading = fill(QHBoxLayout(), (self.advanced.toggleButton(), 1), self.reset_button)
        parts = (self.controls.first.native, self.middle, heading, self.changes, self.advanced)
        fill(QVBoxLayout(self), *parts, 1, margins=(0, 0, 6, 0))
        self.changed.connect(self._show_changes)
        self.maps_changed.connect(self._show_changes)
        for rows in (self.controls.first, self.controls.folded):
            rows.changed.connect(lambda: self.changed.emit())
        self.model.changed.connect(self.changed)
        self.limit.changed.connect(self.maps_changed)
        self.camera.changed.connect(self.image.leave_maps)
        self.camera.changed.connect(self.maps_changed)
        self.frames.changed.connect(self.changed)
        self.advanced.toggled.connect(self._on_fold)
        for name in _RUN:
            self.controls[name].changed.connect(self.show_device)
        # A threshold replaces the number of false spots.
        self.controls["threshold"].changed.connect(
            lambda value: self.controls.allow("false_spots", value is None, _BY_THRESHOLD_TIP)
        )
        self.image.changed.connect(self._on_image)
        self._on_image()
        for name in self.automatic_buttons:
            self.controls[name].changed.connect(self._show_automatic)
        self._show_automatic()
        self._show_changes()

    @cached_property
    def detection_panel(self) -> DetectionPanel:
        """Shown while there is a preview; made for the first one."""
        panel = DetectionPanel(self.controls)
        panel.hide()
        self.controls.below("false_spots", panel)
        return panel

    def settings(self, image: Image | None = None) -> Settings:
        """Return the settings as shown, in three dimensions for an image of volumes.

        Parameters
        ----------
        image : Image, optional
            The image; by default the current one.

        Raises
        ------
        ValueError
            If they do not go together.
        """
        values = self.controls.get() | self.model.settings()
        if values["threshold"] is not None:
            del values["false_spots"]
        image = image or self.image.layer
        if image is None or not is_volume(image):
            return Settings(**self.camera.without_maps(values | dict.fromkeys(_OF_VOLUMES)))
        return in_its_axes(Settings(**self.camera.without_maps(values)), image)

    def current_image(self) -> Image:
        """Return the current image.

        Raises
        ------
        ValueError
            If there is none.
        """
        if self.image.layer is None:
            raise ValueError(
                "there is no image to fit; tick one, or open one or a sample in File ▸ Open Sample"
            )
        return self.image.layer

    def show_estimate(self, found: ImageEstimates | None) -> None:
        """Show the PSF that was estimated from the image; None if none was yet."""
        for name in ("sigma", "sigma_z", "roi_size"):
            self.controls.number(name).box.show_estimate(found and getattr(found, name))
        warning = "" if found is None else found.warning
        show_text(self.psf_warning, warning and f"⚠ {in_words(warning)}.")

    def layers(self) -> dict[str, Layer]:
        """Return the layers that describe the image's pixels, by what they describe."""
        limit = self.limit.layer
        return ({} if limit is None else {"mask": limit}) | self.camera.layers()

    def values(self) -> dict[str, Any]:
        """Return what is remembered between sessions."""
        return {
            **self.controls.get(),
            **self.model.values(),
            "frames": self.frames.mode,
            "advanced": self.advanced.isExpanded(),
        }

    def put(self, values: dict[str, Any]) -> None:
        """Show remembered values, as far as they are valid."""
        if "threshold_unit" in values:  # of before, when a threshold was something else
            values = {name: value for name, value in values.items() if name != "threshold"}
        self.controls.put(values)
        self.model.put(values)
        self.frames.mode = values.get("frames", "all")
        unfold = values.get("advanced") is True
        self.advanced.expand() if unfold else self.advanced.collapse()

    def reset(self) -> None:
        """Show the defaults."""
        self.controls.reset()
        self.model.reset()
        self.camera.reset()
        self.frames.mode = "all"

    def bind(self) -> None:
        """Follow the viewer."""
        for part in self._following:
            part.bind()

    def unbind(self) -> None:
        """Stop following the viewer."""
        for part in self._following:
            part.unbind()

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Move the focus in the order in which controls are laid out, whenever they were made."""
        for one, other in pairwise(_controls(self.layout())):
            self.setTabOrder(one, other)
        return super().focusNextPrevChild(forward)

    def showEvent(self, event: Any) -> None:
        """Align the controls."""
        super().showEvent(event)
        self.controls.align()

    def changeEvent(self, event: Any) -> None:
        """Align the controls again in another font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self.controls.align()

    def show_device(self) -> None:
        """Show the device that fits run on, or why they cannot; a worker finds it, slowly."""
        run = {name: self.controls[name].value for name in _RUN}
        self._describing.ask(lambda: describe(Settings(**run)))

    def _on_device(self, device: Description) -> None:
        self.device.setText("\n".join(filter(None, (device.name, device.library))))
        show_text(self.why_no_gpu, device.reason)
        tip = html.escape(device.reason).replace("\n", "<br>")
        self.why_no_gpu.setToolTip(f"<p>{tip}</p>")
        # One or all of several GPUs can be chosen.
        self.controls.allow("devices", device.gpus > 1, _ONE_GPU_TIP)

    def _add_rows(self) -> None:
        """Put the other controls between those of the settings."""
        form = self.controls
        form.row_below("", "Images", self.image, IMAGE_TIP, self.image.pin)
        form.row_below("", "Search in", self.limit, _LIMIT_TIP)
        self._frames_row = form.row_below("", "Axes", self.frames, _FRAMES_TIP)
        for name, automatic in self.automatic_buttons.items():
            form.beside(name, automatic)
        form.below("sigma", self.estimate_button)
        form.below("false_spots", self.psf_warning)
        self.model.add_rows()
        self.camera.add_rows()
        form.below("backend", self.device)
        form.below("backend", self.why_no_gpu)
        form.allow("devices", False, _ONE_GPU_TIP)

    def _fold(self) -> None:
        """Fold what few need, as high as its rows."""
        empty, content = self.advanced.content(), QWidget()
        fill(QVBoxLayout(content), self.first_folded, self.controls.folded.native, spacing=4)
        self.advanced.setContent(content)
        empty.deleteLater()
        self.advanced.setDuration(0)
        # Else it is cut where sentences in it need more lines than they ask for.
        self.advanced.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.advanced.toggleButton().setStyleSheet(HEADING)
        self.advanced.toggleButton().setToolTip(_ADVANCED_TIP)
        column = self.advanced.layout()
        assert column is not None
        column.setAlignment(Qt.AlignmentFlag(0))
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        self._show_fold(False)

    def _show_fold(self, unfolded: bool) -> None:
        self.advanced.setText(f"{'▾' if unfolded else '▸'} More settings")
        rows = self.advanced.content()
        rows.setVisible(unfolded)  # no key leads into what is folded
        rows.setMaximumHeight(_ANY_HEIGHT)

    def _show_automatic(self) -> None:
        for name, automatic in self.automatic_buttons.items():
            automatic.setVisible(self.controls[name].value is not None)

    def _show_changes(self) -> None:
        """Name what is not at its default, whenever it was set."""
        words = [*self.controls.changes(), *self.model.changes(), *self.camera.changes()]
        if self.frames.mode != "all":
            words.append(f"Frames {self.frames.mode}")
        show_text(self.changes, " · ".join(words))
        self.reset_button.setVisible(bool(words))

    def _on_image(self) -> None:
        self.frames.show_layer(self.image.layer)
        image = self.image.layer
        stack = image is not None and depth_axis(image) is not None
        self._frames_row.visible = bool(self.frames.axes) or stack
        self.controls.row("sigma_z").setVisible(stack)
        self.controls.show_group("optics", stack)

    def _on_fold(self, expanded: bool) -> None:
        self._show_fold(expanded)
        if expanded:
            self.show_device()
        self.changed.emit()


def _controls(layout: QLayout | None) -> Iterator[QWidget]:
    """Return what takes keys in the order in which it is laid out."""
    items = [] if layout is None else [layout.itemAt(place) for place in range(layout.count())]
    for item in items:
        assert item is not None
        widget = item.widget()
        if widget is not None and widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            yield widget
        yield from _controls(item.layout() if widget is None else widget.layout())


def _soft_label() -> QLabel:
    """Return a hidden label for a long sentence, in a softer colour."""
    label = sentence()
    # In any theme's colours.
    soft = QGraphicsOpacityEffect(label)
    soft.setOpacity(0.7)
    label.setGraphicsEffect(soft)
    label.hide()
    return label


def _is_limit(layer: Layer) -> bool:
    return is_labels(layer) or is_shapes(layer)
