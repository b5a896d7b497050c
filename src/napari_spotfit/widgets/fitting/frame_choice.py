"""Which frames of the images are fitted, and what their axes are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from ...images.arrays import fitted_by_plane, plane_axis
from ...images.frames import FrameSelection
from ...settings.validation import Parameter
from ..layers import images
from ..parts.boxes import Choice, NumberBox
from ..parts.layout import Label, explain, fill, sentence, show_text

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

_ALL, _CURRENT, _RANGE = "all", "current", "range"
_FRAME_TIP = (
    "<p>Which frames to fit: all of them, the one that the viewer shows, or from a first "
    "to a last one, both included; the first frame is 0.</p>"
)
#: Least width of a choice in pixels.
_CHOICE = 64
#: What the planes of a z-stack may be, by whether that is a volume, and the question.
_DEPTHS, _DEPTH = {False: "z: planes one by one", True: "z: a volume"}, "planes or a volume?"
_DEPTH_TIP = (
    "<p>Fit the spots of a z-stack in three dimensions, one row a spot, with z and the width along "
    "z; or each plane by itself: a spot that is seen in 5 planes gives 5 fits.</p><p>The answer is "
    "kept with the layer and with its results.</p>"
)
_KINDS, _KIND = {kind: kind for kind in ("time", "z", "channel")}, "time, z, …?"
_KIND_TIP = (
    "<p>The image does not name this axis. Frames in <i>time</i> are fitted one by one, and "
    "so are planes along <i>z</i>: a spot that is seen in 5 planes gives 5 fits. <i>Channels</i> "
    "are no frames: each is fitted with its own noise and σ, and its spots have its number as the "
    "feature channel.</p><p>The answer is kept with the layer and with its results. An axis label "
    "of the layer gives it, too.</p>"
)


class FrameChoice(QWidget):
    """One :class:`AxisChoice` for every axis of an image before y and x.

    For an axis without a name it asks whether that is time, z or one of channels, and it warns that
    the planes of a stack are fitted one by one.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the image.
    """

    changed = Signal()

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Image | None = None
        self.axes: list[AxisChoice] = []
        #: The questions, by axis.
        self.kinds: dict[int, Question] = {}
        self._labels: list[QLabel] = []
        #: Asks whether a z-stack is one of planes or a volume; hidden for other images.
        self.stack = Question("Planes or a volume", _DEPTH_TIP, _DEPTH, _DEPTHS)
        self.stack.chosen.connect(self._on_depth)
        #: The warning about planes.
        self.planes = sentence()
        self.planes.hide()
        self._mode = _ALL
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setColumnStretch(1, 1)
        self._grid.setColumnStretch(2, 2)
        fill(QVBoxLayout(self), self._grid, self.stack, self.planes, spacing=4)

    @property
    def mode(self) -> str:
        """How frames are chosen along the first axis; kept where an image has no frames."""
        return self.axes[0].mode.currentData() if self.axes else self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        self._mode = mode if mode in (_ALL, _CURRENT, _RANGE) else _ALL
        if self.axes:
            self.axes[0].mode.setCurrentIndex(self.axes[0].mode.findData(self._mode))

    def show_layer(self, layer: Image | None) -> None:
        """Make the controls for a layer's axes."""
        self._mode = self.mode
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.deleteLater()
        self._layer = layer
        if layer is not None:
            images.recall_axes(layer, self._viewer.layers)
        lengths = images.leading_shape(layer) if layer is not None else ()
        names = images.leading_names(layer) if layer is not None else ()
        channels = None if layer is None else images.channels_of(layer)
        self.axes, self._labels = [], []
        for row, (name, length) in enumerate(zip(names, lengths, strict=True)):
            axis = AxisChoice(name, length)
            axis.changed.connect(self.changed)
            self.axes.append(axis)
            self._labels.append(Label("channel" if row == channels else name))
            if len(lengths) > 1 or row == channels:
                self._grid.addWidget(self._labels[-1], row, 0)
            self._grid.addWidget(axis, row, 1)
        self._ask_kinds()
        self._show_planes()
        self.mode = self._mode

    def _on_depth(self, volume: bool) -> None:
        if self._layer is not None:
            images.set_volume(self._layer, volume)
            self.show_layer(self._layer)
            self.changed.emit()

    def _ask_kinds(self) -> None:
        self.kinds = {}
        if self._layer is None:
            return
        known = self._layer.metadata.get(images.AXES, {})
        for axis in images.unnamed_axes(self._layer):
            kind = Question(f"What axis {axis} is", _KIND_TIP, _KIND, _KINDS)
            kind.ask(known.get(str(axis)))
            kind.chosen.connect(partial(self._on_kind, axis))
            self.kinds[axis] = kind
            self._grid.addWidget(kind, axis, 2, Qt.AlignmentFlag.AlignTop)

    def _on_kind(self, axis: int, kind: str) -> None:
        if self._layer is not None:
            images.name_axis(self._layer, axis, kind, self._viewer.layers)
            self._labels[axis].setText(kind)
            self._show_planes()

    def _show_planes(self) -> None:
        """Ask what planes are, if there are some, and warn if they are fitted one by one."""
        layer, planes = self._layer, None
        stack = layer is not None and images.depth_axis(layer) is not None
        self.stack.setVisible(stack)
        if layer is not None and stack:
            self.stack.ask(layer.metadata.get(images.VOLUME))
        if layer is not None and not layer.rgb and not images.is_volume(layer):
            planes = plane_axis(images.full_resolution(layer), images.axis_names(layer))
        words = "" if planes is None else fitted_by_plane(planes)
        show_text(self.planes, words and f"⚠ {words[0].upper()}{words[1:]}.")

    def frames(self, viewer: Viewer, layer: Image) -> FrameSelection:
        """Return the chosen frames of a layer, whose axes are shown or alike.

        Raises
        ------
        ValueError
            If the current frame is asked for and the viewer shows none of the layer; if not all
            frames are chosen, and the layer has other axes than the one whose axes are shown.
        """
        if all(axis.mode.currentData() == _ALL for axis in self.axes):
            return None
        if layer is not self._layer and len(images.leading_shape(layer)) != len(self.axes):
            raise ValueError(
                f"“{layer.name}” has other axes than the image whose frames are chosen here: fit "
                "all frames, or this image alone"
            )
        current: tuple[int, ...] | None = None
        if any(axis.mode.currentData() == _CURRENT for axis in self.axes):
            current = images.current_frame(viewer, layer)
        chosen = tuple(
            axis.indices(None if current is None else current[number])
            for number, axis in enumerate(self.axes)
        )
        return chosen[0] if len(chosen) == 1 else chosen


class AxisChoice(QWidget):
    """All, current or a range of the indices along one axis."""

    changed = Signal()

    def __init__(self, name: str, length: int):
        super().__init__()
        self.mode = Choice(name, _FRAME_TIP)
        for mode in (_ALL, _CURRENT, _RANGE):
            self.mode.addItem(mode, mode)
        about = Parameter("Frame", "", "fit", minimum=0, maximum=length - 1)
        self.first = NumberBox(about, whole=True, sample="12345")
        self.last = NumberBox(about, whole=True, sample="12345")
        self.ends = QWidget()
        fill(QHBoxLayout(self.ends), (self.first, 1), Label("–"), (self.last, 1))
        fill(QVBoxLayout(self), self.mode, self.ends, spacing=4)
        for box, what in ((self.first, "First"), (self.last, "Last")):
            explain(box, f"{what} index, {name}", _FRAME_TIP)
        self.last.setValue(length - 1)
        self.mode.setMinimumWidth(_CHOICE)
        self.mode.currentIndexChanged.connect(self._on_mode)
        self.first.valueChanged.connect(self.last.setMinimum)
        self.last.valueChanged.connect(self.first.setMaximum)
        self._on_mode()

    def indices(self, current: int | None) -> int | slice:
        """Return the chosen indices."""
        if self.mode.currentData() == _CURRENT:
            assert current is not None
            return current
        if self.mode.currentData() == _RANGE:
            return slice(round(self.first.value()), round(self.last.value()) + 1)
        return slice(None)

    def _on_mode(self) -> None:
        self.ends.setVisible(self.mode.currentData() == _RANGE)
        self.changed.emit()


class Question(Choice):
    """Asks what an axis of the image is; the answer can be changed.

    Parameters
    ----------
    name, tip : str
        Its name for screen readers, and its tooltip.
    question : str
        The entry that is shown until there is an answer.
    answers : mapping
        The other entries, by what they stand for.
    """

    #: The answer.
    chosen = Signal(object)

    def __init__(self, name: str, tip: str, question: str, answers: Mapping[Any, str]):
        super().__init__(name, tip)
        self._question, self._answers = question, answers
        self.setMinimumWidth(_CHOICE)
        self.activated.connect(self._on_activated)

    def ask(self, known: Any) -> None:
        """Show the answer that is known, or the question."""
        self.clear()
        if known is None:
            self.addItem(self._question, None)
        for answer, words in self._answers.items():
            self.addItem(words, answer)
        self.setCurrentIndex(max(self.findData(known), 0))

    def _on_activated(self) -> None:
        if (answer := self.currentData()) is not None:
            self.ask(answer)
            self.chosen.emit(answer)
