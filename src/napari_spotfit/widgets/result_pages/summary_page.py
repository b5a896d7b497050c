"""Summarise the spots: medians, spreads, and numbers of spots per frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyqtgraph as pg
from numpy.typing import NDArray
from qtpy.QtWidgets import QHBoxLayout, QHeaderView, QTableWidgetItem

from ...analysis.summary import per_frame, summarize, usual_columns
from ...models.columns import describe
from ...results.formatting import Units, decimals_for, number_text
from ..parts.boxes import Choice
from ..parts.layout import TextTable, TwoParts, explain, fill, sentence
from ..parts.messages import number
from ..parts.plots import BLUE, Plot
from .export import NamedTable
from .features import as_fits
from .shown_spots import ShownSpots
from .table_page import TablePage

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

    from ...results.spot_fits import SpotFits

_ERROR, _STDERR = "error", "_stderr"
_COLUMNS = "median", "spread", _ERROR, "low", "high"
#: The columns of the table and what they mean.
_TITLES = {
    "median": "<p>Half of the spots have less.</p>",
    "spread": "<p>1.4826 times the median distance from the median: the standard deviation of a "
    "normal distribution, but a few outliers do not change it.</p>",
    "error": "<p>The median of the standard errors that the fits have.</p>",
    "5 %": "<p>Of 100 spots, 5 have less.</p>",
    "95 %": "<p>Of 100 spots, 5 have more.</p>",
}
_COUNT, _DENSITY = "count", "density"
_PLOT_TIP = (
    "<p>The spots that are shown, frame by frame: how many there are, or the median of a feature. "
    "With several leading axes the frames follow each other, the last axis fastest.</p>"
)
_OVER_TIP = "<p>What is drawn over the frames.</p>"
_TABLE_TIP = "<p>The spots that are shown, in all frames.</p>"


class _Numbers(NamedTuple):
    """A layer's numbers, in pixels."""

    summary: pd.DataFrame
    frames: pd.DataFrame


class SummaryPage(TablePage):
    """Medians and spreads of the spots that are shown, and a plot over frames.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots, "the numbers of every frame")
        self.words, self.table = sentence(), TextTable(_TITLES, self.fontMetrics().height() + 6)
        self.over = Choice("Drawn over the frames", _OVER_TIP, room=9)
        self.plot = Plot("frame", "", "Plot over frames", _PLOT_TIP, 80)
        pen, brush = pg.mkPen(BLUE, width=1), pg.mkBrush(BLUE)
        self.curve = pg.PlotDataItem(
            pen=pen, symbol="o", symbolSize=4, symbolPen=None, symbolBrush=brush, connect="finite"
        )
        self.plot.addItem(self.curve)
        self._numbers: _Numbers | None = None
        self._wanted = _COUNT
        self._lay_out()
        self.over.activated.connect(self._on_over)

    def show_rows(self) -> None:
        """Work out the numbers of the spots that are shown."""
        layer = self._spots.layer
        if layer is None:
            self.work.drop()
            self._show_nothing("")
            return
        fits = as_fits(self._spots.columns, layer)
        job = partial(_numbers, fits, self._spots.shown, *_frames(layer, len(fits.index_names)))
        units = self._spots.units
        self.work.ask(lambda: (layer, units, job()))

    def _on_done(self, done: tuple[Points, Units, _Numbers]) -> None:
        layer, units, numbers = done
        if self.work.busy or layer is not self._spots.layer or units is not self._spots.units:
            return
        self._numbers = numbers
        self.words.setText(_in_words(numbers.frames, units))
        self._fill(numbers.summary, units)
        self._offer(numbers.summary, units)
        self._draw()

    def _show_nothing(self, why: str) -> None:
        self._numbers = None
        self.words.setText(why)
        self.table.setRowCount(0)
        self.over.clear()
        self._draw()

    def _fill(self, summary: pd.DataFrame, units: Units) -> None:
        # Each quantity with its standard error in the same row.
        rows = list(dict.fromkeys(str(name).removesuffix(_STDERR) for name in summary.index))
        self.table.setRowCount(len(rows))
        for row, name in enumerate(rows):
            heading = QTableWidgetItem(units.title(name))
            heading.setToolTip(f"<p>{describe(name).meaning}</p>")
            self.table.setVerticalHeaderItem(row, heading)
            self.table.put_texts(row, _texts(summary, name, units.factor(name)))

    def _offer(self, summary: pd.DataFrame, units: Units) -> None:
        """List what can be drawn; the choice stays where it can."""
        self.over.clear()
        self.over.addItem("spots per frame", _COUNT)
        for name in summary.index:
            self.over.addItem(f"median {units.title(name)}", name)
        self.over.setCurrentIndex(max(self.over.findData(self._wanted), 0))

    def _on_over(self) -> None:
        self._wanted = str(self.over.currentData())
        self._draw()

    def _draw(self) -> None:
        frames = None if self._numbers is None else self._numbers.frames
        several = frames is not None and len(frames) > 1
        self.export.offer(frames is not None)
        self.plot.setVisible(several)
        self.over.setVisible(several)
        if frames is None or not several:
            return
        name = self.over.currentData()
        if name == _COUNT:
            values = frames[_COUNT].to_numpy().astype(float)
        else:
            values = frames[f"{name}_median"].to_numpy() * self._spots.units.factor(name)
        # With one axis of frames these have their own numbers; others are counted.
        one_axis = list(frames)[:2] == ["frame", _COUNT]
        across = frames["frame"].to_numpy() if one_axis else np.arange(len(frames))
        self.curve.setData(across.astype(float), values)
        self.plot.setLabel("bottom", "frame" if one_axis else "frame, axes one after the other")
        top = float(np.nanmax(values, initial=0))
        finite = values[np.isfinite(values)]
        low = 0.0 if name == _COUNT or not len(finite) else float(finite.min())
        margin = 0.05 * (top - low) or 0.5 * abs(top) or 1
        self.plot.setXRange(float(across[0]), float(across[-1]), padding=0.02)
        self.plot.setYRange(low - (margin if low else 0), top + margin, padding=0)

    def _named(self) -> NamedTable | None:
        layer = self._spots.layer
        if self._numbers is None or layer is None:
            return None
        units, frames = self._spots.units, self._numbers.frames
        table = frames[[name for name in frames if not str(name).endswith("_median")]].copy()
        if _DENSITY in table:
            area, unit = _area(units)
            table = table.rename(columns={_DENSITY: f"{_DENSITY} [1/{unit}²]"})
            table[f"{_DENSITY} [1/{unit}²]"] /= area
        for name in self._numbers.summary.index:
            title = units.title(name)
            table[f"median {title}"] = frames[f"{name}_median"] * units.factor(name)
        return NamedTable(f"{layer.name}.frames", "frames", table)

    def _lay_out(self) -> None:
        self.words.setToolTip("<p>The spots that are shown; their mean number per frame.</p>")
        self.table.heading.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.setSelectionBehavior(TextTable.SelectionBehavior.SelectItems)
        cast(QHeaderView, self.table.verticalHeader()).show()
        explain(self.table, "Medians and spreads", _TABLE_TIP)
        self.table.setMinimumHeight(60)
        row = fill(QHBoxLayout(), (self.over, 1), 0, self.export)
        TwoParts(self, (self.words, (self.table, 1), row), self.plot, (3, 2))


def _numbers(
    fits: SpotFits, shown: NDArray[np.bool_], shape: Sequence[int] | None, frames: Any
) -> _Numbers:
    names = usual_columns(fits)
    # A point that the user has added may have no place as a fit.
    placed = np.isfinite(fits.points()).all(axis=1)
    chosen = fits[shown & placed]
    return _Numbers(summarize(chosen, names), per_frame(chosen, shape, frames, names))


def _texts(summary: pd.DataFrame, name: str, factor: float) -> list[str]:
    """Return a row of the table; a centre has an error, but no meaningful median."""
    places = [
        (f"{name}{_STDERR}", "median") if what == _ERROR else (name, what) for what in _COLUMNS
    ]
    values = [
        float(summary.loc[row, what]) * factor if row in summary.index else None
        for row, what in places
    ]
    decimals = decimals_for(next(value for value in values if value is not None))
    return ["" if value is None else number_text(value, decimals) for value in values]


def _frames(layer: Points, axes: int) -> tuple[Sequence[int] | None, Any]:
    """Return the shape of the image that was fitted, as far as it is known, and which frames."""
    shape, frames = layer.metadata.get("image_shape"), layer.metadata.get("frames")
    if shape is None or len(shape) != axes + 2:
        return None, None
    if frames is None or len(frames) != axes:
        return shape, None
    plain = ((None,) if along is None else along for along in frames)
    return shape, tuple(slice(*one) if isinstance(one, (list, tuple)) else one for one in plain)


def _in_words(frames: pd.DataFrame, units: Units) -> str:
    counts = frames[_COUNT].to_numpy()
    total = int(counts.sum())
    words = f"{number(total)} spot{'' if total == 1 else 's'}"
    if len(counts) > 1:
        each = f"{counts.mean():.4g} ± {counts.std(ddof=1):.2g}"
        words += f" in {number(len(counts))} frames, {each} per frame"
    if _DENSITY in frames and total:
        area, unit = _area(units)
        and_frame = " and frame" if len(counts) > 1 else ""
        words += f"; {frames[_DENSITY].mean() / area:.3g} per {unit}²{and_frame}"
    return words


def _area(units: Units) -> tuple[float, str]:
    """Return the area of a pixel in the unit in which lengths are shown, and that unit."""
    return (1.0, "px") if units.pixel is None else (units.pixel.y * units.pixel.x, units.pixel.unit)
