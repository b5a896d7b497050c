"""Traces: the light of some places over all frames of their image."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtWidgets import QHBoxLayout

from ...analysis.traces import trace
from ...images.axes import at
from ...models.columns import CHANNEL
from ...results.formatting import Units
from ...settings.settings import Settings
from ..layers.appearance import CHANNEL_COLORS
from ..layers.images import channels_of, full_resolution, image_of
from ..layers.maps import LayerMaps, maps_of
from ..layers.points import settings_of_layer
from ..parts.boxes import Choice
from ..parts.layout import button, fill
from ..parts.messages import StatusLine, in_words, number
from ..parts.plots import Plot
from .export import NamedTable
from .shown_spots import ShownSpots
from .table_page import TablePage

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from napari.layers import Points

_HINT = (
    "Select spots, in the viewer or in the table, and press Measure: their light in every frame, "
    "whether it has a spot there or not."
)
_NO_IMAGE = "The image of these spots is not open, so their light cannot be measured. Open it."
_MEASURE_TIP = (
    "<p>Fit a spot of the image's σ at each place in every frame; only amplitude and background "
    "are free, so a frame without the spot gives 0 within its error. Without a selection, the "
    "spots that are shown are taken.</p>"
)
_OVER_TIP = "<p>What is drawn over the frames.</p>"
_PLOT_TIP = (
    "<p>The places one by one over the frames; with several leading axes these follow each other, "
    "the last one fastest. The table that is saved has all places, with standard errors.</p>"
)
#: Places that are measured, and drawn, at most.
_MOST, _DRAWN = 1000, 8
_DRAWABLE = ("photons", "background", "amplitude")
#: Height in pixels of the plot with its axes, at least.
_LEAST = 90


class TracesPage(TablePage):
    """Measures the light of the selected spots in all frames.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots, "the light of every place and frame")
        self.over = Choice("Drawn over the frames", _OVER_TIP, room=9)
        self.measure_button = button("Measure", _MEASURE_TIP, self.measure)
        self.hint = StatusLine()
        self.plot = Plot("frame", "", "Light over the frames", _PLOT_TIP, _LEAST)
        self._table: pd.DataFrame | None = None
        self._lay_out()
        self.over.activated.connect(self._draw)
        self._show_nothing(_HINT)

    def measure(self) -> None:
        """Measure the spots that are selected, or else shown."""
        layer = self._spots.layer
        if layer is None:
            return
        rows = self._spots.selection()
        if not len(rows):
            rows = np.flatnonzero(self._spots.shown)
        try:
            job = self._job(layer, rows)
        except ValueError as error:
            self._fail(error)
            return
        self.hint.say(f"Measuring {number(len(rows))} places…")
        self.measure_button.setEnabled(False)
        self.work.ask(lambda: (layer, job()))

    def _job(self, layer: Points, rows: NDArray[np.intp]) -> Callable[[], pd.DataFrame]:
        """Return what measures some of a layer's spots; layers are read now."""
        image, columns = image_of(layer, self._viewer.layers), self._spots.columns
        if image is None:
            raise ValueError(_NO_IMAGE)
        if not len(rows):
            raise ValueError("No spots are shown. Take filters away under Filter.")
        if len(rows) > _MOST:
            raise ValueError(
                f"{number(len(rows))} places are too many, {number(_MOST)} at most: select fewer."
            )
        of = columns[CHANNEL].values[rows] if CHANNEL in columns else None
        return partial(
            _measure, full_resolution(image), layer.data[rows, -2:].copy(),
            (channels_of(image), of), settings_of_layer(layer.metadata) or Settings(),
            maps_of(layer, image, self._viewer.layers),
        )  # fmt: skip

    def show_table(self) -> None:
        """Forget what was measured: the spots are others."""
        self.work.drop()
        self._show_nothing(_HINT)

    def _on_done(self, done: tuple[Points, pd.DataFrame]) -> None:
        layer, table = done
        if layer is not self._spots.layer:
            return
        self._table = table
        chosen = max(self.over.currentIndex(), 0)
        self.over.clear()
        units = Units(table.attrs["units"])
        for name in _DRAWABLE:
            self.over.addItem(units.title(name), name)
        self.over.setCurrentIndex(chosen)
        places = int(table["place"].max()) + 1
        text = (
            f"{number(places)} place{'s' * (places != 1)} in {number(len(table) // places)} frames"
        )
        if places > _DRAWN:
            text += f"; the first {_DRAWN} are drawn"
        self.hint.say(text)
        self._offer(True)
        self._draw()

    def _draw(self) -> None:
        table, name = self._table, self.over.currentData()
        self.plot.clear()
        if table is None or name is None:
            return
        one_axis = "axis_0" not in table
        self.plot.setLabel("left", self.over.currentText())
        self.plot.setLabel("bottom", "frame" if one_axis else "frame, axes one after the other")
        for place, rows in table[table["place"] < _DRAWN].groupby("place"):
            across = rows["frame"] if one_axis and "frame" in rows else np.arange(len(rows))
            color = CHANNEL_COLORS[int(place) % len(CHANNEL_COLORS)]
            self.plot.plot(
                np.asarray(across, float), rows[name].to_numpy(float), connect="finite",
                pen=pg.mkPen(color, width=1.5), symbol="o" if len(rows) < 2 else None,
            )  # fmt: skip
        self.plot.autoRange()

    def _fail(self, error: Exception) -> None:
        self._show_nothing(in_words(error), failed=True)

    def _show_nothing(self, why: str, *, failed: bool = False) -> None:
        self._table = None
        (self.hint.fail if failed else self.hint.say)(why)
        self._offer(False)

    def _offer(self, some: bool) -> None:
        self.measure_button.setEnabled(self._spots.layer is not None)
        # An empty plot would be no higher than its own numbers.
        self.plot.setVisible(some)
        self.over.setEnabled(some)
        self.export.offer(some)

    def _named(self) -> NamedTable | None:
        layer, table = self._spots.layer, self._table
        if layer is None or table is None:
            return None
        titled = table.rename(columns=Units(table.attrs["units"]).title)
        return NamedTable(f"{layer.name}.traces", "rows", titled)

    def _lay_out(self) -> None:
        choice = fill(QHBoxLayout(), self.measure_button, (self.over, 1), self.export)
        self.fill(choice, self.hint, (self.plot, 1), 0)


def _measure(
    image: Any,
    places: NDArray[np.float64],
    channels: tuple[int | None, NDArray[Any] | None],
    settings: Settings,
    maps: LayerMaps,
) -> pd.DataFrame:
    """Return the light at places in all frames, of each in its own channel."""
    import pandas as pd

    known = {name: one for name, one in maps.read().items() if name != "mask"}
    shape = {one.name for one in settings.profile.shape}
    if settings.dimensions != 2 or "sigma" not in shape:
        settings = settings.changed(model="gaussian", roi_size=None, fixed={}, bounds={})
    axis, of = channels
    if axis is None or of is None:
        return trace(image, places, settings=settings, **known)
    tables = []
    for channel in np.unique(of).astype(int).tolist():
        rows = np.flatnonzero(of == channel)
        table = trace(at(image, axis, channel), places[rows], settings=settings, **known)
        table["place"] = rows[table["place"]]
        table.insert(1, CHANNEL, channel)
        tables.append(table)
    joined = pd.concat(tables).sort_values("place", kind="stable", ignore_index=True)
    joined.attrs = tables[0].attrs
    return joined
