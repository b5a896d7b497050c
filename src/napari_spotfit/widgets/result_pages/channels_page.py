"""Channels beside each other: their spots in every cell, and how many of them are pairs."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QSignalBlocker, Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from ...analysis.cells import named_channels, table_of_cells
from ...analysis.channel_registration import register_channels
from ...analysis.pairs import pair_spots
from ...models.columns import CHANNEL
from ...settings.validation import Parameter
from ..inspecting.panel import doubtful_shown
from ..layers.cells import INDEX, put_features, to_labels
from ..layers.images import PLACE, events_of, full_resolution, transform_arguments
from ..layers.points import fitted_layers
from ..napari_compat import is_labels
from ..parts.boxes import LayerChoice, NumberBox
from ..parts.docking import Follower
from ..parts.layout import Label, TwoParts, explain, fill, sentence
from ..parts.messages import in_words, number
from ..parts.work import delayed
from .export import NamedTable
from .features import as_fits, read_columns
from .shown_spots import ShownSpots
from .table_page import TablePage
from .tables import NumbersTable
from .z_scale import Z_SCALE_CALLED, ZScale

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from napari.layers import Points

    from ...results.spot_fits import SpotFits

_RADIUS = Parameter(
    "Pair radius", "How far apart two spots of different channels are a pair, at most.", "run",
    unit="px", minimum=0, above_minimum=True, step=0.5,
)  # fmt: skip
#: Events of layers on which there are other numbers; filters are kept in the metadata.
_OF_POINTS = ("features", "data", "metadata", *PLACE)
_OF_CELLS = ("data", "paint", "labels_update", *PLACE)
_HINT = "Tick two or more results, one of each channel, to see their spots beside each other."
_LIST_TIP = (
    "<p>The results that are compared, one of each channel. Their spots that are shown count: "
    "filter each of them under <i>Filter</i>.</p>"
)
_CELLS_TIP = (
    "<p>The cells: a Labels layer. It gets the table as features, which napari shows under the "
    "mouse. Without one, all spots are in one row.</p>"
)
_REGISTER_TIP = (
    "<p>Map the other channels onto the first one before pairs are counted, by the spots that are "
    "seen in both: shift, turn and magnification. Spots where the map is not known are left out. "
    "Beads seen in all channels do it best.</p>"
)
_TABLE_TIP = (
    "<p>A row for each cell: the spots of each channel and their light; of each two channels the "
    "pairs, how many there were by chance, and the excess with its standard error. Chance is "
    "measured by shifting one channel.</p>"
)


class ChannelsPage(TablePage):
    """A table of cells with the spots of several results, and their pairs.

    Parameters
    ----------
    spots : ShownSpots
        The spots of the result that is shown.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots, "the table")
        self.list, self.register = QListWidget(), QCheckBox("Register")
        self.radius = NumberBox(_RADIUS, value=2.0)
        self.labels = LayerChoice(self._viewer.layers, is_labels, nothing="no cells", optional=True)
        self.z_scale = ZScale()
        self.words, self.view = sentence(), NumbersTable("Cells and channels", _TABLE_TIP)
        self._soon = delayed(self._ask, 0, self)
        self._layers, self._content = Follower(self._refresh), Follower(self.show_rows)
        self._unticked: set[str] = set()
        self._table: pd.DataFrame | None = None
        self._lay_out()
        self.list.itemChanged.connect(self._on_tick)
        self.radius.changed.connect(self.show_rows)
        self.z_scale.box.changed.connect(self.show_rows)
        self.register.toggled.connect(self.show_rows)
        self.labels.changed.connect(self.show_rows)

    def set_on_top(self, on_top: bool) -> None:
        """Count once the page is seen."""
        super().set_on_top(on_top)
        self.show_rows()

    def show_rows(self, *_: Any) -> None:
        """Count the spots that are shown, soon."""
        if self._on_top:
            self._soon.start()

    def bind(self) -> None:
        """Follow the viewer's layers."""
        events = self._viewer.layers.events
        self._layers.follow(events.inserted, events.removed, events.renamed, events.reordered)
        self.labels.bind()
        if self.labels.layer is None:
            self.labels.setCurrentIndex(min(1, self.labels.count() - 1))
        self._refresh()

    def unbind(self) -> None:
        """Stop following them."""
        super().unbind()
        self._soon.stop()
        self._layers.follow()
        self._content.follow()
        self.labels.unbind()
        self.list.clear()

    def ticked(self) -> list[Points]:
        """Return the results that are compared, as they lie in the viewer, the lowest first."""
        items = (self.list.item(row) for row in range(self.list.count()))
        checked = Qt.CheckState.Checked
        names = {one.text() for one in items if one is not None and one.checkState() == checked}
        return [layer for layer in self._results() if layer.name in names]

    def _results(self) -> list[Points]:
        return fitted_layers(self._viewer.layers)

    def _refresh(self, event: Any = None) -> None:
        """List the results; those that were not unticked are ticked."""
        with QSignalBlocker(self.list):
            self.list.clear()
            for layer in self._results():
                item = QListWidgetItem(layer.name)
                item.setFlags(item.flags() | Qt.ItemFlag.ItemIsUserCheckable)
                off = layer.name in self._unticked
                item.setCheckState(Qt.CheckState.Unchecked if off else Qt.CheckState.Checked)
                self.list.addItem(item)
        self.show_rows()

    def _on_tick(self, item: QListWidgetItem) -> None:
        off = item.checkState() == Qt.CheckState.Unchecked
        (self._unticked.add if off else self._unticked.discard)(item.text())
        self.show_rows()

    def _ask(self) -> None:
        layers, labels = self.ticked(), self.labels.layer
        of_cells = () if labels is None else (labels,)
        events = [one for layer in layers for one in events_of(_OF_POINTS, layer)]
        self._content.follow(*events, *events_of(_OF_CELLS, *of_cells))
        try:
            channels = _channels(layers)
            if len(channels) < 2:
                self.work.drop()
                self._show_nothing(_HINT)
                return
            matrix = None if labels is None else to_labels(layers[0], labels)
        except ValueError as error:
            self._fail(error)
            return
        array = None if labels is None else full_resolution(labels)
        shape = layers[0].metadata.get("image_shape")
        radius = float(self.radius.get() or 1)
        doubtful = sum(len(doubtful_shown(layer)) for layer in layers)
        self.z_scale.show_for(*channels.values())
        job = partial(
            _count, channels, array, matrix, radius, shape, self.register.isChecked(),
            self.z_scale.get(),
        )  # fmt: skip
        self.work.ask(lambda: (labels, list(channels), doubtful, *job()))

    def _on_done(self, done: tuple[Any, list[str], int, pd.DataFrame, str]) -> None:
        labels, names, doubtful, table, words = done
        if self._soon.isActive() or self.work.busy or labels is not self.labels.layer:
            return  # other numbers come
        self._table, self._names = table, names
        self.view.show_frame(table)
        if doubtful:
            words += f". ⚠ {number(doubtful)} doubtful spots count, too: hide them under Filter"
        self.words.setText(words)
        self.export.offer(len(table) > 0)
        if labels is not None:
            put_features(labels, table.rename(columns={"label": INDEX}))

    def _fail(self, error: Exception) -> None:
        self._show_nothing(f"⚠ {in_words(error, Z_SCALE_CALLED)}")

    def _show_nothing(self, why: str) -> None:
        self._table = None
        self.view.show_numbers({})
        self.words.setText(why)
        self.export.offer(False)

    def _named(self) -> NamedTable | None:
        if self._table is None:
            return None
        table = self._table.iloc[self.view.numbers.rows]
        return NamedTable(f"{'+'.join(self._names)}.cells", "cells", table)

    def _lay_out(self) -> None:
        self.register.setToolTip(_REGISTER_TIP)
        explain(self.list, "Results to compare", _LIST_TIP)
        explain(self.labels, "Labels layer with the cells", _CELLS_TIP)
        self.list.setMinimumHeight(40)
        right = QWidget()
        fill(QVBoxLayout(right), self.words, (self.view, 1), spacing=4)
        pairs = fill(QHBoxLayout(), Label(_RADIUS.label), (self.radius, 1), self.register)
        cells = fill(QHBoxLayout(), Label("Cells"), (self.labels, 1))
        export = fill(QHBoxLayout(), 1, self.export)
        TwoParts(self, ((self.list, 1), pairs, self.z_scale, cells, export), right, (2, 5))


def _channels(layers: list[Points]) -> dict[str, SpotFits]:
    """Return the spots of each channel that are shown, by its name.

    Raises
    ------
    ValueError
        If pixels of the results are not the same places; the message names the results.
    """
    found: dict[str, SpotFits] = {}
    for layer in layers:
        here, first = transform_arguments(layer), transform_arguments(layers[0])
        for name in ("scale", "translate", "rotate", "shear"):
            if not np.allclose(here[name], first[name]):
                raise ValueError(
                    f"“{layer.name}” and “{layers[0].name}” lie differently ({name}), so pixels of "
                    "one are others of the other; give both images the same place and scale"
                )
        fits = as_fits(read_columns(layer), layer)[np.asarray(layer.shown)]
        name = layer.name.removesuffix(" spots")
        if CHANNEL in fits and len(np.unique(fits.columns[CHANNEL])) > 1:
            found |= {f"{name} {part}": one for part, one in named_channels(fits).items()}
        else:
            found[name] = fits
    return found


def _count(
    channels: Mapping[str, SpotFits], labels: Any, matrix: Any, radius: float, shape: Any,
    register: bool, z_scale: float | None,
) -> tuple[pd.DataFrame, str]:  # fmt: skip
    """Return the table of cells and channels, and sentences on the pairs."""
    (first, onto), *others = channels.items()
    words, mapped = [], {first: onto}
    for name, fits in others:
        if register:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = register_channels(onto, fits)
                fits = found.apply(fits, outside="drop")
            gone = len(channels[name]) - len(fits)
            left_out = f", {number(gone)} spots outside left out" if gone else ""
            words.append(f"{name} mapped onto {first}: ± {found.error:.2g} px{left_out}")
            words += [f"⚠ {one.message}" for one in caught]
        mapped[name] = fits
    known = {"labels": labels, "to_labels": matrix, "shape": shape, "z_scale": z_scale}
    pairs = {
        (a, b): pair_spots(mapped[a], mapped[b], radius, **known)
        for a, b in combinations(mapped, 2)
    }
    for (a, b), found_pairs in pairs.items():
        chance, excess = found_pairs.expected_shifted, found_pairs.excess
        words.append(
            f"{a} + {b}: {number(found_pairs.observed)} pairs, {chance:.3g} by chance, excess "
            f"{excess:.3g} ± {found_pairs.stderr:.2g}"
        )
    photons = [one for one in ("photons",) if all(one in fits for fits in mapped.values())]
    table = table_of_cells(mapped, pairs, labels, columns=photons, to_labels=matrix)
    return table, ". ".join(words)
