"""The page "After the fit": from localisations to a super-resolved image."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QVBoxLayout

from ...files.exchange.image_info import nanometres_of
from ...files.rendered_file import write_rendered
from ...settings.parameter import Parameter
from ..layers.images import pixel_size
from ..layers.rendered_image import Looks, RenderedLayer
from ..parts.boxes import NumberBox
from ..parts.layout import Label, ask_to_save, button, explain, fill, flow, guard_wheel
from ..parts.messages import StatusLine, in_words, number
from ..parts.work import Latest
from .page import FeatureChoice, Page
from .shown_spots import ShownSpots

if TYPE_CHECKING:
    from napari import Viewer
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


class AfterPage(Page):
    """Renders the spots that are shown, and saves the image.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    spots : ShownSpots
        The spots.
    """

    def __init__(self, viewer: Viewer, spots: ShownSpots):
        super().__init__(spots)
        self._viewer = viewer
        self.by, self.one_width = QComboBox(), NumberBox(_WIDTH, sample="0.00 px")
        self.colours, self.colour = QComboBox(), FeatureChoice(spots, "frame")
        self.hint = StatusLine()
        self.oversampling = NumberBox(_OVERSAMPLING, sample="000.0")
        self.render_button = button("Render", _RENDER_TIP, self.render_spots)
        self.save_button = button("Save image…", _SAVE_TIP, self._ask_where)
        self.work = Latest(self)
        self._rendered: dict[Points, RenderedLayer] = {}
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
        for one in self._rendered.values():
            one.stop()
            one.deleteLater()
        self._rendered.clear()

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
            made.failed.connect(lambda error: self.hint.fail(in_words(error, {})))
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
        nm = _in_nm(layer, finer)

        def save() -> tuple[Path, tuple[int, ...]]:
            image = index.render(finer)
            write_rendered(path, image, coloured=index.channels == 3, nm=nm)
            return path, image.shape

        self.hint.say(f"Writing {path.name}…")
        self.work.ask(save)

    def _on_drawn(self, layer: Points, unknown: int) -> None:
        self.render_button.setEnabled(True)
        if layer is not self._spots.layer:
            return
        shown = int(np.count_nonzero(self._spots.shown)) - unknown
        text = f"{number(shown)} localisations are rendered."
        if unknown:
            text += f" {number(unknown)} others have no {self.by.currentText()}."
        self.hint.say(text)
        self._show_state()

    def _on_saved(self, saved: tuple[Path, tuple[int, ...]]) -> None:
        path, shape = saved
        rows, columns = shape[:2]
        self.hint.say(f"{path.name} saved: {number(rows)} × {number(columns)} pixels.")

    def _show_state(self) -> None:
        some = self._spots.layer is not None
        self.render_button.setEnabled(some)
        rendered = self.rendered
        self.save_button.setEnabled(rendered is not None and rendered.image is not None)
        self.one_width.setVisible(not _WIDTHS[self.by.currentText()])
        self.colour.setVisible(bool(self.colours.currentIndex()))

    def _on_table(self) -> None:
        gone = [layer for layer in self._rendered if layer not in self._viewer.layers]
        for layer in gone:
            self._rendered.pop(layer).deleteLater()
        self.colour.show_features()
        if self.rendered is None:
            self.hint.say(_HINT)
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
        self.work.done.connect(self._on_saved)
        self.work.failed.connect(lambda error: self.hint.fail(in_words(error, {})))
        self.table_due.connect(self._on_table)

    def _lay_out(self) -> None:
        self.by.addItems(list(_WIDTHS))
        self.colours.addItems([_NOTHING, "a quantity"])
        self.one_width.put(0.1)
        self.oversampling.put(10)
        explain(self.by, "Width", _BY_TIP)
        explain(self.one_width, _WIDTH.label, f"<p>{_WIDTH.doc}</p>")
        explain(self.colours, "Colour", _COLOUR_TIP)
        explain(self.colour, "Quantity", _COLOUR_TIP)
        explain(self.oversampling, _OVERSAMPLING.label, f"<p>{_OVERSAMPLING.doc}</p>")
        for box in (self.by, self.colours):
            guard_wheel(box)
        choice = flow(
            (Label("As wide as"), self.by, self.one_width),
            (Label("coloured by"), self.colours, self.colour), (self.render_button,),
        )  # fmt: skip
        saving = fill(
            QHBoxLayout(), 1, Label(_OVERSAMPLING.label), self.oversampling, self.save_button
        )
        fill(QVBoxLayout(self), choice, self.hint, 1, saving, margins=(6, 6, 6, 6), spacing=4)


def _in_nm(layer: Points, oversampling: float) -> list[float] | None:
    """Return the height and width of a rendered pixel in nm, if that of the camera is known."""
    pixel = pixel_size(layer)
    unit = None if pixel is None else nanometres_of(pixel.unit)
    if pixel is None or unit is None:
        return None
    return [pixel.y * unit / oversampling, pixel.x * unit / oversampling]
