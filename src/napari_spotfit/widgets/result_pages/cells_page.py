"""Spots per cell: how many lie in every label of a Labels layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QSignalBlocker
from qtpy.QtWidgets import QHBoxLayout

from ...analysis.labels import COUNTED, ONCE_PER_PLANE, label_sizes, label_spots, table_of_labels
from ...models.columns import CHANNEL, describe
from ...results.formatting import Units
from ..layers.cells import (
    INDEX,
    LABEL,
    SPOTS,
    color_by_counts,
    put_features,
    put_labels,
    restore_colors,
    shows_counts,
    to_labels,
)
from ..layers.images import PLACE, events_of, full_resolution, pixel_size, planes_of
from ..napari_compat import is_labels
from ..parts.boxes import LayerChoice
from ..parts.docking import Follower
from ..parts.layout import Label, button, explain, fill, sentence
from ..parts.messages import number
from ..parts.work import delayed
from .export import NamedTable
from .features import Feature, as_fits
from .shown_spots import FeatureChoice, ShownSpots
from .table_page import TablePage
from .tables import NumbersTable

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Labels, Points

    from ...results.spot_fits import SpotFits

#: Events of a Labels layer whose labels change.
_PIXELS = ("data", "paint", "labels_update")
_HINT = "Choose a Labels layer, such as of cells, to count the spots in each label."
_LAYER_TIP = (
    "<p>The cells: a Labels layer, for all frames if it has no axis for them. Each spot gets the "
    "feature <i>label</i>, that of the pixel its centre lies in; each label gets the numbers of "
    "its spots as features, which napari shows under the mouse.</p>"
)
_FEATURE_TIP = "<p>What is added up and averaged over the spots of each cell.</p>"
_TABLE_TIP = (
    "<p>A row for each label, for the spots that are shown. Click a row to select its spots, a "
    "heading to sort.</p>"
)
_COLOR_TIP = (
    "<p>Colour the cells by how many spots they have, dark for none, bright for the most. "
    "Pressed again, the colours are as they were.</p>"
)
_MEANINGS = {
    LABEL: "The label.",
    "area": "Its pixels, those of all frames.",
    "count": "How many of the spots that are shown lie in it.",
    "sum": "The sum over its spots.",
    "mean": "The mean over its spots.",
}


class _Place(NamedTuple):
    """Where spots lie in labels, and what follows from it."""

    points: NDArray[np.float64]
    matrix: NDArray[np.float64]
    label: NDArray[np.int64]
    sizes: dict[int, int]
    #: The axis whose planes were fitted one by one; nothing if there is none.
    planes: str = ""


class CellsPage(TablePage):
    """A table of the labels of a Labels layer with the spots that are shown.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots, "the table")
        self.labels = LayerChoice(self._viewer.layers, is_labels, nothing="no cells", optional=True)
        title = "Feature that is added up for each cell"
        self.feature = FeatureChoice(spots, "photons", title, _FEATURE_TIP)
        self.hint, self.view = sentence(), NumbersTable("Spots per cell", _TABLE_TIP)
        self.color_button = button("Colour cells by count", _COLOR_TIP, checkable=True)
        self._places, self._pixels = Follower(self.show_rows), Follower(self._on_pixels)
        self._colors = Follower(self._on_colormap)
        self._place: _Place | None = None
        self._table: pd.DataFrame | None = None
        self._soon = delayed(self._ask, 0, self)
        self._lay_out()
        self._connect()
        self._show_nothing(_HINT)
        # Features of spots and cells are kept up to date whether the page is seen or not.
        super().set_on_top(True)

    def set_on_top(self, on_top: bool) -> None:
        """Do nothing: the page works whether it is seen or not."""

    def show_table(self) -> None:
        """List the features."""
        self.feature.show_features()

    def show_rows(self, event: Any = None) -> None:
        """Count the spots that are shown, soon."""
        self._soon.start()

    def bind(self) -> None:
        """Follow the viewer's layers."""
        self.labels.bind()
        self.choose_cells()
        self.show_rows()

    def unbind(self) -> None:
        """Stop following them."""
        super().unbind()
        self._soon.stop()
        self._follow(None, None)
        self.labels.unbind()

    def choose_cells(self) -> None:
        """Choose the topmost Labels layer, unless one is chosen."""
        if self.labels.layer is None:
            self.labels.setCurrentIndex(min(1, self.labels.count() - 1))

    def _connect(self) -> None:
        self.labels.changed.connect(self._on_labels)
        self.feature.chosen.connect(self.show_rows)
        self.color_button.toggled.connect(self._on_color)
        self.view.clicked.connect(self._on_click)

    def _follow(self, points: Points | None, labels: Labels | None) -> None:
        """Follow where two layers lie, and what the labels are."""
        both = (points, labels) if points is not None and labels is not None else (None, None)
        moved = self._places.follow(*events_of(PLACE, *both))
        self._pixels.follow(*events_of(_PIXELS, both[1]))
        self._colors.follow(*events_of(("colormap",), both[1]))
        if moved:
            self._place = None

    def _on_labels(self) -> None:
        self.show_rows()
        self._on_colormap()

    def _on_pixels(self, event: Any = None) -> None:
        self._place = None
        self.show_rows()

    def _on_colormap(self, event: Any = None) -> None:
        labels = self.labels.layer
        with QSignalBlocker(self.color_button):
            self.color_button.setChecked(labels is not None and shows_counts(labels))

    def _ask(self) -> None:
        points, labels = self._spots.layer, self.labels.layer
        self._follow(points, labels)
        if points is None or labels is None:
            self.work.drop()
            self._show_nothing(_HINT)
            return
        try:
            matrix, array = to_labels(points, labels), full_resolution(labels)
        except ValueError as error:
            self._fail(error)
            return
        fits, name = as_fits(self._spots.columns, points), self.feature.name
        planes = planes_of(points, fits)
        job = partial(_count, self._place, fits, self._spots.shown, array, matrix, name, planes)
        self.work.ask(lambda: (points, labels, name, *job()))

    def _on_done(self, done: tuple[Points, Labels, str, _Place, pd.DataFrame]) -> None:
        points, labels, name, place, table = done
        waiting = self._soon.isActive() or self.work.busy
        others = points is not self._spots.layer or labels is not self.labels.layer
        if waiting or others or len(place.label) != len(points.features):
            return  # other numbers come
        self._place = place
        try:
            put_labels(points, place.label, labels)
        except ValueError as error:
            self._fail(error)
            return
        put_features(labels, _by_label(table))
        self._show(labels, name, table)
        if shows_counts(labels):
            self._color(labels)

    def _show(self, labels: Labels, name: str, table: pd.DataFrame) -> None:
        self._table = table
        columns, units = _columns(table, name, self._spots.units, labels)
        self.view.show_numbers(columns, units)
        assert self._place is not None
        total, inside = int(self._spots.shown.sum()), int(table["count"].sum())
        counts = table.groupby(LABEL)["count"].sum()
        cells, empty = len(counts), int((counts == 0).sum())
        mean = f", {inside / cells:.3g} per cell" if cells else ""
        text = (
            f"{number(inside)} of {number(total)} spots in {number(cells)} "
            f"cell{'' if cells == 1 else 's'}{mean}; {number(empty)} without spots"
        )
        if self._place.planes:
            text += (
                f". ⚠ Each plane along axis {self._place.planes} was fitted by itself: a spot "
                "counts once per plane in which it is seen"
            )
        self.hint.setText(text)
        self._offer(len(table) > 0)

    def _show_nothing(self, why: str) -> None:
        self._table = None
        self.view.show_numbers({})
        self.hint.setText(why)
        self._offer(False)

    def _offer(self, some: bool) -> None:
        self.export.offer(some)
        self.color_button.setEnabled(some or self.color_button.isChecked())

    def _named(self) -> NamedTable | None:
        import pandas as pd

        if self._table is None or self.labels.layer is None:
            return None
        units, rows = self.view.numbers.units, self.view.numbers.rows
        values = {units.title(one.name): one.values[rows] for one in self.view.numbers.columns}
        return NamedTable(f"{self.labels.layer.name}.spots-per-cell", "cells", pd.DataFrame(values))

    def _on_color(self, by_count: bool) -> None:
        labels = self.labels.layer
        if labels is not None and by_count and self._table is not None:
            self._color(labels)
        elif labels is not None and not by_count:
            restore_colors(labels)

    def _color(self, labels: Labels) -> None:
        assert self._table is not None
        counts = self._table.groupby(LABEL)["count"].sum()
        color_by_counts(labels, counts.index.to_numpy(), counts.to_numpy())
        self._on_colormap()

    def _on_click(self, index: Any) -> None:
        """Select the spots of a cell that are shown."""
        if self._table is None or self._place is None:
            return
        row = self._table.iloc[self.view.numbers.rows[index.row()]]
        if len(self._place.label) == len(self._spots.shown):
            chosen = (self._place.label == row[LABEL]) & self._spots.shown
            if CHANNEL in self._table:
                chosen &= self._spots.columns[CHANNEL].values == row[CHANNEL]
            self._spots.select(np.flatnonzero(chosen))

    def _lay_out(self) -> None:
        explain(self.labels, "Labels layer with the cells", _LAYER_TIP)
        self.hint.setToolTip("<p>The spots that are shown, and where they lie.</p>")
        choice = fill(QHBoxLayout(), (self.labels, 1), Label("with"), (self.feature, 1))
        buttons = fill(QHBoxLayout(), self.color_button, 1, self.export)
        self.fill(choice, self.hint, (self.view, 1), buttons)


def _count(
    place: _Place | None,
    fits: SpotFits,
    shown: NDArray[np.bool_],
    labels: Any,
    matrix: NDArray[np.float64],
    name: str,
    planes: str,
) -> tuple[_Place, pd.DataFrame]:
    """Return where the spots lie, unless that is known, and the table of the labels."""
    points = fits.points()
    moved = place is None or not np.array_equal(place.points, points, equal_nan=True)
    if place is None or moved or not np.array_equal(place.matrix, matrix):
        label = label_spots(fits, labels, matrix)
        sizes = label_sizes(labels) if place is None else place.sizes
        place = _Place(points, matrix, label, sizes)
    place = place._replace(planes=planes)
    names = [name] if name in fits else []
    needed = {one: fits.columns[one][shown] for one in (*names, CHANNEL) if one in fits}
    return place, table_of_labels(place.label[shown], place.sizes, needed, names, bool(planes))


def _by_label(table: pd.DataFrame) -> pd.DataFrame:
    """Return the features of labels: a row for each, and columns for each channel."""
    import pandas as pd

    table = table.rename(columns={LABEL: INDEX, "count": SPOTS})
    table = table.drop(columns=["pixels", COUNTED], errors="ignore")
    if CHANNEL not in table:
        return table
    parts = [table.groupby(INDEX)[[SPOTS]].sum()]
    for channel, own in table.set_index(INDEX).groupby(CHANNEL):
        parts.append(own.drop(columns=CHANNEL).add_suffix(f", channel {channel:g}"))
    return pd.concat(parts, axis=1).reset_index()


def _columns(
    table: pd.DataFrame, name: str, units: Units, labels: Labels
) -> tuple[dict[str, Feature], Units]:
    """Return a table's columns as they are shown, in the units of the spots."""
    pixel = pixel_size(labels) if units.pixel is not None and labels.ndim == 2 else None
    area, unit = table["pixels"].to_numpy(), "px"
    if pixel is not None:
        area, unit = area * (pixel.y * pixel.x), f"{pixel.unit}²"
    named = {
        LABEL: (table[LABEL].to_numpy(), "", _MEANINGS[LABEL]),
        "area": (area, unit, _MEANINGS["area"]),
        "count": (table["count"].to_numpy(), "", _MEANINGS["count"]),
    }
    if COUNTED in table:
        title = f"count, {ONCE_PER_PLANE}"
        named[title] = named.pop("count")
    if CHANNEL in table:
        named[CHANNEL] = (table[CHANNEL].to_numpy(), "", describe(CHANNEL).meaning)
    for what in ("sum", "mean"):
        if f"{name}_{what}" in table:
            values = table[f"{name}_{what}"].to_numpy() * float(units.factor(name))
            named[f"{name} {what}"] = (values, units.unit(name), _MEANINGS[what])
    columns = {
        title: Feature(title, values, meaning=meaning)
        for title, (values, _, meaning) in named.items()
    }
    return columns, Units({title: unit for title, (_, unit, _) in named.items() if unit})
