"""The page "After the fit": from localisations to a super-resolved image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyqtgraph as pg
from qtpy.QtWidgets import QApplication, QCheckBox, QHBoxLayout, QVBoxLayout, QWidget

from ...analysis.drift import Drift
from ...analysis.ring_correlation import RingCorrelation
from ...files.table import steps
from ...files.writing import write_rendered
from ...settings.validation import Parameter
from ..layers.points import HISTORY
from ..layers.rendered_image import Looks, RenderedLayer, rendered_nm
from ..layers.result_layers import put_fits
from ..parts.boxes import Choice, NumberBox
from ..parts.layout import Label, ask_to_save, button, fill, flow
from ..parts.messages import StatusLine, in_words, number
from ..parts.plots import BLUE, GREY, Plot
from ..parts.work import Latest
from .after_steps import Action, Done, as_python, correct, measure, merge, take
from .drift_page import DriftPlot
from .shown_spots import FeatureChoice, Page, ShownSpots

if TYPE_CHECKING:
    from napari.layers import Points

_HINT = (
    "Render the spots that are shown as a super-resolved image on the raw one. It follows filters, "
    "drift and merging."
)
_NONE_SHOWN = "No spots are shown to be rendered. Take filters away under Filter."
#: Widths of localisations: what they are called, and what `render` calls them.
_WIDTHS = {
    "their precision": "precision", "the spots' width": "psf", "one width": "", "one pixel":
    "histogram",
}  # fmt: skip
_BY_TIP = (
    "<p>How wide each localisation is drawn: its own standard error, as precise ones deserve "
    "sharper marks; the fitted width of the spot, as the microscope sees it; the same width for "
    "all; or one pixel, which counts them.</p>"
)
_WIDTH = Parameter("Width", "σ of all localisations.", "run", unit="px", minimum=0, step=0.05)
_OVERSAMPLING = Parameter(
    "Oversampling", "Pixels of the saved image per camera pixel.", "run", minimum=0.1, step=1,
)  # fmt: skip
_COLOUR_TIP = (
    "<p>Show a quantity as colour, from blue, its 1st percentile, to red, its 99th: z, or the "
    "frame to see drift.</p>"
)
_RENDER_TIP = (
    "<p>Render the spots that are shown. The layer is drawn as finely as you zoom in, and again "
    "when spots are filtered, moved or merged.</p>"
)
_SAVE_TIP = "<p>Save the image as OME-TIFF, in localisations per pixel.</p>"
_NOTHING = "nothing"
_DARK = Parameter(
    "Dark frames", "For how many frames a molecule may be dark within one event.", "run",
    unit="frames", minimum=0,
)  # fmt: skip
_MERGE_TIP = (
    "<p>Merge the fits of the same molecule in successive frames to one event, which is more "
    "precise. The spots that are shown are replaced by their events; <i>Undo</i> takes it back.</p>"
)
_DRIFT_TIP = (
    "<p>Estimate the drift from molecules that are seen again and again, without markers, and "
    "subtract it; beads are for the page Drift. The band is one standard error.</p>"
)
#: Ways to estimate drift, as they are called and as `estimate_drift` calls them.
_METHODS: dict[str, Literal["aim", "rcc"]] = {"by overlap": "aim", "by correlation": "rcc"}
_METHOD_TIP = (
    "<p>By overlap (AIM) is more precise; by cross-correlation of images (RCC) is another method, "
    "to compare.</p>"
)
_PRECISION_TIP = (
    "<p>Measure how precise the spots are, by pairs in successive frames before merging (NeNA), "
    "and the resolution of the image, by the correlation of two halves of it (FRC).</p>"
)
_RINGS_TIP = (
    "<p>How much two halves of the localisations agree, from coarse to fine. The resolution is "
    "where they agree by 1/7.</p>"
)
#: Width and height in pixels of the plot with its axes, at least.
_LEAST = 140, 90
_RUN_TIP = "<p>Take all steps that are ticked, from the top down.</p>"
_PYTHON_TIP = "<p>Copy a script that takes the same steps without napari.</p>"
_WHAT = "the steps after the fit"


class AfterPage(Page):
    """Takes steps on the spots that are shown: merges them, renders them, saves the image.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.merge = _StepRow(
            "Merge blinks", "Merge", _MERGE_TIP, self.take,
            lambda: partial(merge, max_dark_frames=int(self.dark_frames.get() or 0)),
        )  # fmt: skip
        self.dark_frames = NumberBox(_DARK, whole=True, sample="00 frames", value=1)
        self.drift = _StepRow(
            "Drift", "Subtract", _DRIFT_TIP, self.take,
            lambda: partial(correct, method=_METHODS[self.method.currentText()]),
        )  # fmt: skip
        self.method = Choice("Method", _METHOD_TIP, _METHODS)
        self.plot = DriftPlot()
        self.precision = _StepRow(
            "Precision and resolution", "Measure", _PRECISION_TIP, self.take,
            lambda: partial(measure, units=spots.units),
        )  # fmt: skip
        name = "Correlation of two halves"
        self.rings = Plot("periods per px", "correlation", name, _RINGS_TIP)
        self._ring_curve = pg.PlotDataItem(pen=pg.mkPen(BLUE, width=1.5))
        self.rings.addItem(self._ring_curve)
        self.rings.addItem(pg.InfiniteLine(1 / 7, 0, pen=pg.mkPen(GREY)))
        self.image = _StepRow("Image", "Render", _RENDER_TIP, self.take)
        self.by = Choice("Width", _BY_TIP, _WIDTHS)
        self.one_width = NumberBox(_WIDTH, sample="0.00 px", value=0.1)
        self.colours = Choice("Colour", _COLOUR_TIP, (_NOTHING, "a quantity"))
        self.colour = FeatureChoice(spots, "frame", "Quantity", _COLOUR_TIP)
        self.hint = StatusLine()
        self.oversampling = NumberBox(_OVERSAMPLING, sample="000.0", value=10)
        self.run_button = button("Run all", _RUN_TIP, self.run_all)
        self.python_button = button("Copy as Python", _PYTHON_TIP, self.copy_python)
        self.save_button = button("Save image…", _SAVE_TIP, self._ask_where)
        self.work = Latest(self, self._on_done, self._fail)
        self._writing = Latest(self, self.hint.say, self._fail)
        self._rendered: dict[Points, RenderedLayer] = {}
        #: The layer that the hint is about.
        self._of: Points | None = None
        #: What was said of the steps before the image.
        self._words = ""
        self._lay_out()
        self._connect()
        self._show_state()

    @property
    def rendered(self) -> RenderedLayer | None:
        """The rendered layer of the spots."""
        layer = self._spots.layer
        return None if layer is None else self._rendered.get(layer)

    def unbind(self) -> None:
        """Stop working, and follow no layers."""
        self.work.drop()
        self._writing.drop()
        for one in self._rendered.values():
            one.stop()
            one.deleteLater()
        self._rendered.clear()

    def run_all(self) -> None:
        """Take all steps that are ticked."""
        ticked = [row for row in self._rows if row.box.isChecked()]
        if ticked:
            self.take(ticked)

    def take(self, rows: Sequence[_StepRow]) -> None:
        """Take some steps."""
        layer = self._spots.layer
        if layer is None:
            return
        actions, renders = [row.action() for row in rows if row.action], self.image in rows
        if not actions:
            self.render_spots()
            return
        if not self._spots.shown.any():
            self.hint.fail(_NONE_SHOWN)
            return
        job = partial(
            take, actions, layer.features, dict(layer.metadata), layer.ndim, np.array(layer.shown),
        )  # fmt: skip
        self.hint.say("Working…")
        self._enable(False)
        self.work.ask(lambda: (layer, renders, *job()))

    def copy_python(self) -> None:
        """Copy a script that takes the same steps."""
        layer, rendered = self._spots.layer, self.rendered
        clipboard = QApplication.clipboard()
        if layer is None or clipboard is None:
            return
        looks = None if rendered is None or rendered.layer is None else rendered.looks
        text = as_python(
            steps(layer.metadata.get(HISTORY)), looks, layer.metadata.get("image_shape"),
            float(self.oversampling.get() or 1),
        )  # fmt: skip
        clipboard.setText(text)
        self.said.emit("The steps are copied as Python.")

    def render_spots(self) -> None:
        """Render the spots that are shown."""
        layer = self._spots.layer
        if layer is None:
            return
        if not self._spots.shown.any():
            self.hint.fail(_NONE_SHOWN)
            return
        if layer not in self._rendered:
            made = RenderedLayer(self._viewer, layer, self.looks, self)
            made.drawn.connect(partial(self._on_drawn, layer))
            made.failed.connect(self._fail)
            self._rendered[layer] = made
        self.hint.say(f"Rendering {number(int(np.count_nonzero(self._spots.shown)))} spots…")
        self._rendered[layer].draw(self.looks)

    @property
    def looks(self) -> Looks:
        """How the spots are to be rendered."""
        by: str | float = _WIDTHS[self.by.currentText()] or float(self.one_width.get() or 0)
        return Looks(by, self.colour.name if self.colours.currentIndex() else None)

    def save_to(self, path: Path) -> None:
        """Write the image of the spots that are shown."""
        rendered, layer = self.rendered, self._spots.layer
        if rendered is None or rendered.image is None or layer is None:
            return
        index, finer = rendered.image.index, float(self.oversampling.get() or 1)
        nm = rendered_nm(layer, finer)

        def save() -> str:
            image = index.render(finer)
            write_rendered(path, image, coloured=index.channels == 3, nm=nm)
            rows, columns = image.shape[:2]
            return f"{path.name} saved: {number(rows)} × {number(columns)} pixels."

        self.hint.say(f"Writing {path.name}…")
        self._writing.ask(save)

    def _on_done(self, result: tuple[Points, bool, Done, dict[str, Any] | None]) -> None:
        layer, renders, done, arguments = result
        self._enable(True)
        if layer not in self._viewer.layers:
            return
        if arguments is not None:
            put_fits(layer, arguments, self._history, _WHAT)
        self._words = " ".join(done.words)
        self.hint.say(self._words)
        self._draw(done.drift, done.rings)
        if renders and layer is self._spots.layer:
            self._spots.read_now()
            self.render_spots()

    @property
    def _rows(self) -> tuple[_StepRow, ...]:
        return self.merge, self.drift, self.precision, self.image

    def _draw(self, drift: Drift | None, rings: RingCorrelation | None) -> None:
        """Draw the drift that was subtracted, and the correlation of two halves."""
        self.rings.setVisible(rings is not None)
        if rings is not None:
            self._ring_curve.setData(rings.frequency, rings.correlation)
            self.rings.autoRange()
        self.plot.show_drift(drift, self._spots.units)

    def _fail(self, error: Exception) -> None:
        self._enable(True)
        self.hint.fail(in_words(error, {"max_dark_frames": _DARK.label}))

    def _on_drawn(self, layer: Points, unknown: int) -> None:
        if layer is not self._spots.layer:
            return
        shown = int(np.count_nonzero(self._spots.shown)) - unknown
        text = f"{number(shown)} localisations are rendered."
        if unknown:
            text += f" {number(unknown)} are left out, as their width is unknown."
        self.hint.say(f"{self._words} {text}".strip())
        self._words = ""
        self._show_state()

    def _enable(self, some: bool) -> None:
        buttons = [row.button for row in self._rows]
        for one in (*buttons, self.run_button, self.python_button):
            one.setEnabled(some)

    def _show_state(self) -> None:
        self._enable(self._spots.layer is not None and not self.work.busy)
        rendered = self.rendered
        self.save_button.setEnabled(rendered is not None and rendered.image is not None)
        self.one_width.setVisible(not _WIDTHS[self.by.currentText()])
        self.colour.setVisible(bool(self.colours.currentIndex()))

    def show_table(self) -> None:
        """Forget layers that are gone, and say what can be done with another one."""
        gone = [layer for layer in self._rendered if layer not in self._viewer.layers]
        for layer in gone:
            self._rendered.pop(layer).deleteLater()
        self.colour.show_features()
        if self._spots.layer is not self._of:
            self._of = self._spots.layer
            self.hint.say(_HINT)
            self._draw(None, None)
        self._show_state()

    def _on_looks(self, *_: Any) -> None:
        """Render in another way what is rendered already."""
        self._show_state()
        if self.rendered is not None:
            self.render_spots()

    def _ask_where(self) -> None:
        layer = self._spots.layer
        if layer is None:
            return
        if chosen := ask_to_save(self, "Save image", layer.name, ".ome.tif", "OME-TIFF (*.tif)"):
            self.save_to(chosen[0])

    def _connect(self) -> None:
        self.by.activated.connect(self._on_looks)
        self.one_width.changed.connect(self._on_looks)
        self.colours.activated.connect(self._on_looks)
        self.colour.chosen.connect(self._on_looks)

    def _lay_out(self) -> None:
        self.rings.setMinimumSize(*_LEAST)
        self.precision.lay_out()
        self.drift.lay_out((self.method,))
        self.merge.lay_out((Label(_DARK.label), self.dark_frames))
        self.image.lay_out(
            (Label("Width"), self.by, self.one_width), (Label("Colour"), self.colours, self.colour)
        )
        ends = flow(
            (self.run_button, self.python_button),
            (Label(_OVERSAMPLING.label), self.oversampling, self.save_button),
        )
        rows = fill(QVBoxLayout(), *self._rows, 1, spacing=4)
        body = fill(QHBoxLayout(), (rows, 3), (self.plot, 2), (self.rings, 2))
        self.fill((body, 1), self.hint, ends)


class _StepRow(QWidget):
    """A step: its tick, what can be set, and the button that takes it alone."""

    def __init__(
        self,
        title: str,
        verb: str,
        tip: str,
        take: Callable[[Sequence[_StepRow]], object],
        action: Callable[[], Action] | None = None,
    ):
        super().__init__()
        #: Returns what the step does; None if it only renders.
        self.action = action
        self.box, self.button = QCheckBox(title), button(verb, tip, lambda: take([self]))
        self.box.setChecked(True)
        self.box.setToolTip(tip)

    def lay_out(self, *groups: Iterable[QWidget]) -> None:
        """Put what can be set between the tick and the button."""
        row = flow((self.box,), *groups, (self.button,))
        row.setContentsMargins(0, 0, 0, 0)
        self.setLayout(row)
