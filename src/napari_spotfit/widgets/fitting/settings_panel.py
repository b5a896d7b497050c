"""The controls of the widget "Fit spots": what to fit, and how."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.qt.threading import create_worker
from qtpy.QtCore import QEvent, QObject, QSize, Qt, Signal
from qtpy.QtWidgets import (
    QFormLayout,
    QFrame,
    QGraphicsOpacityEffect,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from ...engine.select import Description, describe
from ...settings.settings import Settings, parameters
from ..napari_compat import is_labels, is_shapes
from ..parts.controls import SettingsControls, add_row, make_label, tooltip
from ..parts.fold import Fold
from ..parts.layer_choice import LayerChoice
from ..parts.number_box import NumberBox
from ..preview.detection_panel import DetectionPanel
from .camera_form import QUANTITIES, CameraForm
from .frames import FrameChoice
from .image_choice import ImageChoice
from .model_form import ModelForm

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Layer

    from ..layers.noise import Told

_BASIC = ("sigma", "false_spots", "min_distance", "roi_size")
#: Settings of the folded part with rows of their own, below a heading.
_ADVANCED = {
    "Detection": ("threshold",),
    "Bounds": ("amplitude_min", "amplitude_max", "background_min", "background_max"),
    "Stop a fit": ("max_iterations", "min_delta", "min_step", "max_error"),
    "Run": ("errors", "backend", "devices", "threads"),
}
_NAMES = (
    *_BASIC,
    *("model", "pixel", "estimator", "neighbours"),
    *QUANTITIES,
    "emccd",
    *(name for names in _ADVANCED.values() for name in names),
)
_IMAGE_TIP = (
    "<p>The image whose spots are fitted: the one selected in the layer list, unless pinned.</p>"
)
_LIMIT_TIP = (
    "<p>Search for spots only where this Labels layer is above zero, or inside the rectangles, "
    "ellipses and polygons of this Shapes layer. Shapes, and labels without frames, "
    "count for every frame.</p>"
)
_ESTIMATE_TIP = (
    "<p>Fit the bright spots of the frame shown, where spots are searched, or of frames all over "
    "the movie if it has too few; take the median of their σ and keep it, whatever image comes "
    "next.</p><p>While σ is automatic, each image is asked by itself, all over.</p>"
)
_AUTOMATIC_TIP = (
    "<p>Let the image tell it again. The same does an empty box, or one with the word "
    "<i>automatic</i>.</p>"
)
#: What the image tells where nobody sets it.
_AUTOMATIC = ("sigma", "roi_size")
_BY_THRESHOLD_TIP = (
    "<p>Spots are found by their height in counts, as a threshold is set under Advanced ▸ "
    "Detection. Clear it to find them by a number of false spots.</p>"
)
_ONE_GPU_TIP = "<p>There is no second GPU that could be used.</p>"


class SettingsPanel(QScrollArea):
    """All controls, as high as they need to be and scrolling where there is less room.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose layers can be chosen.
    parent : QWidget, optional
        Qt parent.
    """

    changed = Signal()
    #: Another layer was chosen for what is known of the image's pixels.
    maps_changed = Signal()

    def __init__(self, viewer: Viewer, parent: QWidget | None = None):
        super().__init__(parent)
        self.image = ImageChoice(viewer.layers, lambda: self.layers().values())
        self.limit = LayerChoice(viewer.layers, _is_limit, nothing="whole image", optional=True)
        self.frames = FrameChoice(viewer)
        self.controls = SettingsControls(_NAMES)
        self.model = ModelForm(self.controls, self)
        self.camera = CameraForm(viewer, self.controls, self)
        self.estimate_button = QPushButton("Estimate")
        #: Each clears a box; there while it has a number.
        self.automatic_buttons = {name: QPushButton("Auto") for name in _AUTOMATIC}
        #: Why the image does not tell σ.
        self.untold = _soft_label()
        #: Shown while there is a preview.
        self.detection_panel = DetectionPanel(viewer, self.controls)
        self.device, self.why_no_gpu = QLabel(), _soft_label()
        self.advanced = Fold("Advanced", self._advanced_form())
        self._content = QWidget()
        self._lay_out()
        for control in self.controls.controls.values():
            control.changed.connect(self.changed)
        self.model.changed.connect(self.changed)
        self.limit.changed.connect(self.maps_changed)
        self.camera.changed.connect(self.image.leave_maps)
        self.camera.changed.connect(self.maps_changed)
        self.frames.changed.connect(self.changed)
        self.advanced.toggled.connect(self._on_fold)
        for name in ("backend", "devices", "threads"):
            self.controls[name].changed.connect(self.show_device)
        self.controls["threshold"].changed.connect(self._on_threshold)
        self.image.changed.connect(self._on_image)
        self._on_image()
        for name, button in self.automatic_buttons.items():
            button.clicked.connect(partial(self._number_box(name).put, None))
            self.controls[name].changed.connect(self._show_automatic)
        self._show_automatic()

    def settings(self) -> Settings:
        """Return the settings as shown.

        Raises
        ------
        ValueError
            If they do not go together.
        """
        values = self.controls.get() | self.model.settings()
        if values["threshold"] is not None:
            del values["false_spots"]
        return Settings(**self.camera.without_maps(values))

    def show_told(self, told: Told | None) -> None:
        """Show what the image tells of its PSF; None if it has not been asked."""
        self._number_box("sigma").show_told(None if told is None else told.sigma)
        self._number_box("roi_size").show_told(None if told is None else told.roi_size)
        warning = "" if told is None else told.warning
        self.untold.setText(warning and f"⚠ {warning[0].upper()}{warning[1:]}.")
        self.untold.setVisible(bool(warning))

    def layers(self) -> dict[str, Layer]:
        """Return the layers that say something of the image's pixels, by what they say."""
        limit = self.limit.layer
        return ({} if limit is None else {"mask": limit}) | self.camera.layers()

    def values(self) -> dict[str, Any]:
        """Return what is remembered between sessions."""
        return {
            **self.controls.get(),
            **self.model.values(),
            "frames": self.frames.mode,
            "advanced": self.advanced.open,
        }

    def put(self, values: dict[str, Any]) -> None:
        """Show remembered values; what is no longer valid is left out."""
        if "threshold_unit" in values:  # of before, when a threshold was something else
            values = {name: value for name, value in values.items() if name != "threshold"}
        self.controls.put(values)
        self.model.put(values)
        self.frames.mode = values.get("frames", "all")
        self.advanced.open = values.get("advanced") is True

    def reset(self) -> None:
        """Show the defaults."""
        self.controls.reset()
        self.model.reset()
        self.camera.reset()
        self.frames.mode = "all"

    def unbind(self) -> None:
        """Stop following the viewer."""
        self.image.unbind()
        self.limit.unbind()
        self.camera.unbind()
        self.model.unbind()

    def bind(self) -> None:
        """Follow the viewer."""
        self.image.bind()
        self.limit.bind()
        self.camera.bind()
        self.model.bind()

    def sizeHint(self) -> QSize:
        """Ask for the height of the contents, with their sentences broken into lines."""
        frame = 2 * self.frameWidth()
        height = self._content.heightForWidth(self.width() - frame)
        if height < 0:  # no sentence is shown that could be broken
            height = self._content.sizeHint().height()
        return QSize(self.minimumSizeHint().width(), height + frame)

    def resizeEvent(self, event: Any) -> None:
        """Ask again, as sentences break elsewhere."""
        super().resizeEvent(event)
        self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        """Leave room for the scroll bar beside the contents."""
        bar = self.verticalScrollBar()
        assert bar is not None
        width = self._content.minimumSizeHint().width() + bar.sizeHint().width()
        return QSize(width + 2 * self.frameWidth(), super().minimumSizeHint().height())

    def eventFilter(self, watched: QObject | None, event: QEvent | None) -> bool:
        """Ask again when the contents have become higher or lower."""
        if event is not None and event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().eventFilter(watched, event)

    def show_device(self) -> None:
        """Say what the fit runs on, or why it cannot; a worker finds out, as it may take long."""
        worker = create_worker(_device, self.controls.get())
        worker.returned.connect(self._on_device)
        worker.start()

    def _on_device(self, found: tuple[dict[str, Any], Description]) -> None:
        values, device = found
        if values != self.controls.get():
            return
        self.device.setText("\n".join(filter(None, (device.name, device.library))))
        self.why_no_gpu.setText(device.reason)
        tip = html.escape(device.reason).replace("\n", "<br>")
        self.why_no_gpu.setToolTip(f"<p>{tip}</p>")
        self.why_no_gpu.setVisible(bool(device.reason))
        self._offer_gpus(device.gpus)

    def _offer_gpus(self, count: int) -> None:
        """Let one or all GPUs be chosen where there are several."""
        control, label = self.controls["devices"], self._devices_label
        for widget in (control, label):
            widget.setEnabled(count > 1)
            widget.setToolTip(
                tooltip(parameters()["devices"], "one") if count > 1 else _ONE_GPU_TIP
            )

    def _lay_out(self) -> None:
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        column = QVBoxLayout(self._content)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self._basic_form())
        column.addWidget(self.advanced)
        self.setWidget(self._content)

    def _basic_form(self) -> QFormLayout:
        form = _form()
        image, label = QHBoxLayout(), QLabel("Image")
        image.setSpacing(4)
        image.addWidget(self.image, 1)
        image.addWidget(self.image.pin)
        label.setBuddy(self.image)
        for widget in (label, self.image):
            widget.setToolTip(_IMAGE_TIP)
        self.image.setAccessibleName("Image")
        form.addRow(label, image)
        self._frames_label = QLabel("Frames")
        form.addRow(self._frames_label, self.frames)
        self.estimate_button.setToolTip(_ESTIMATE_TIP)
        self.estimate_button.setAccessibleName("Estimate the PSF's σ")
        for name in _BASIC:
            label = make_label(name, self.controls[name])
            if name in _AUTOMATIC:
                form.addRow(label, self._automatic_row(name))
                if name == "sigma":
                    form.addRow(self.untold)
            else:
                form.addRow(label, self.controls[name])
            if name == "false_spots":
                self._false_spots_label = label
                form.addRow(self.detection_panel)
                self.detection_panel.hide()
        add_row(form, QLabel("Search in"), self.limit, _LIMIT_TIP)
        return form

    def _automatic_row(self, name: str) -> QHBoxLayout:
        """Return a row with a control and what sets it."""
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.controls[name], 1)
        button = self.automatic_buttons[name]
        button.setToolTip(_AUTOMATIC_TIP)
        button.setAccessibleName(f"{parameters()[name].label} automatic")
        row.addWidget(button)
        if name == "sigma":
            row.addWidget(self.estimate_button)
        return row

    def _show_automatic(self) -> None:
        for name, button in self.automatic_buttons.items():
            button.setVisible(self.controls[name].get() is not None)

    def _number_box(self, name: str) -> NumberBox:
        control = self.controls[name]
        assert isinstance(control, NumberBox)
        return control

    def _advanced_form(self) -> QWidget:
        content = QWidget()
        form = _form(content)
        self._add_group(form, "Detection")
        form.addRow(_heading("Fit"))
        self.model.add_rows(form)
        form.addRow(_heading("Camera"))
        self.camera.add_rows(form)
        for heading in ("Bounds", "Stop a fit", "Run"):
            self._add_group(form, heading)
        self._offer_gpus(0)
        return content

    def _add_group(self, form: QFormLayout, heading: str) -> None:
        form.addRow(_heading(heading))
        for name in _ADVANCED[heading]:
            label = make_label(name, self.controls[name])
            form.addRow(label, self.controls[name])
            if name == "backend":
                self.device.setWordWrap(True)
                form.addRow("", self.device)
                form.addRow(self.why_no_gpu)
            elif name == "devices":
                self._devices_label = label

    def _on_image(self) -> None:
        self.frames.show_layer(self.image.layer)
        for widget in (self._frames_label, self.frames):
            widget.setVisible(bool(self.frames.axes))

    def _on_threshold(self) -> None:
        """Leave the number of false spots alone where a threshold takes its place."""
        control = self.controls["false_spots"]
        counts = self.controls["threshold"].get() is not None
        about = tooltip(parameters()["false_spots"], Settings().false_spots)
        for widget in (control, self._false_spots_label):
            widget.setEnabled(not counts)
            widget.setToolTip(_BY_THRESHOLD_TIP if counts else about)

    def _on_fold(self, expanded: bool) -> None:
        if expanded:
            self.show_device()
        self.changed.emit()


def _device(values: dict[str, Any]) -> tuple[dict[str, Any], Description]:
    """Return the values and what a fit with them runs on."""
    run = {name: values[name] for name in ("backend", "devices", "threads")}
    return values, describe(Settings(**run))


def _heading(text: str) -> QLabel:
    title = QLabel(text)
    title.setStyleSheet("font-weight: bold; padding-top: 6px")
    return title


def _soft_label() -> QLabel:
    """Return a label for a sentence that may be long, in a softer colour, to be copied from."""
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    # In any theme's colours.
    soft = QGraphicsOpacityEffect(label)
    soft.setOpacity(0.7)
    label.setGraphicsEffect(soft)
    label.hide()
    return label


def _form(parent: QWidget | None = None) -> QFormLayout:
    form = QFormLayout(parent)
    form.setContentsMargins(0, 0, 0, 0)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
    form.setVerticalSpacing(4)
    return form


def _is_limit(layer: Layer) -> bool:
    return is_labels(layer) or is_shapes(layer)
