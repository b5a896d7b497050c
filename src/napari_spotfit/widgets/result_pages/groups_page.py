"""Groups: spots that overlap, how many they are and how much light they have."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QHBoxLayout

from ...analysis.summary import summarize_groups
from ...models.columns import GROUP, GROUP_SIZE, describe
from ...results.formatting import Units, number_text
from ..inspecting.panel import doubtful_shown
from ..layers.selection import go_to
from ..napari_compat import canvas_beside
from ..parts.layout import fill, sentence
from ..parts.messages import number
from .export import NamedTable
from .features import Feature, as_fits
from .shown_spots import ShownSpots
from .table_page import TablePage
from .tables import NumbersTable

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

    from ...results.spot_fits import SpotFits

_COUNT, _TIMES = "count", "photons_over_single"
_NO_GROUPS = (
    "These spots were fitted one by one. With Neighbours at auto or joint, in More settings of "
    "Fit spots, those that overlap are fitted together and are groups."
)
_NONE = "No spots are shown. Take filters away under Filter."
_TIP = (
    "<p>A row for each group of spots that overlap, step by step within 4 σ, of the spots that are "
    "shown; the largest come first. Click a row to go to its spots, a heading to sort. Copy and "
    "Save have single spots, too.</p>"
)
_WORDS_TIP = (
    "<p>Spots nearer to each other than 0.6 σ are found as one, so a count is a lower bound; their "
    "light is complete, and its multiple of a single spot's light counts them, too.</p>"
)
_MEANINGS = {
    _COUNT: "How many of the spots that are shown are in the group: a lower bound.",
    "photons": "The light of all of them.",
    _TIMES: "This light over that of the median spot that stands alone.",
    "y": "The centre of the group's light.",
    "x": "The centre of the group's light.",
    "z": "The centre of the group's light.",
}
_TITLES = {_TIMES: "light / single"}


class _Groups(NamedTuple):
    """The table of all groups, and which of them have several spots, the largest first."""

    table: pd.DataFrame
    listed: NDArray[np.intp]
    #: How many of the spots in groups are doubtful.
    doubtful: int


class GroupsPage(TablePage):
    """A table of the groups of the spots that are shown.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots, "the table of all groups")
        self.words, self.view = sentence(), NumbersTable("Groups of spots", _TIP)
        self._groups: _Groups | None = None
        self.words.setToolTip(_WORDS_TIP)
        buttons = fill(QHBoxLayout(), 1, self.export)
        self.fill(self.words, (self.view, 1), buttons)
        self.view.clicked.connect(self._on_click)

    def show_rows(self) -> None:
        """Sum up the groups of the spots that are shown."""
        layer, columns = self._spots.layer, self._spots.columns
        if layer is None or GROUP not in columns or GROUP_SIZE not in columns:
            self.work.drop()
            self._show_nothing("" if layer is None else _NO_GROUPS)
            return
        fits, shown, units = as_fits(columns, layer), self._spots.shown, self._spots.units
        sizes = columns[GROUP_SIZE].values[doubtful_shown(layer)]
        job = partial(_sum_up, fits, shown, int(np.count_nonzero(sizes > 1)))
        self.work.ask(lambda: (layer, units, job()))

    def _on_done(self, done: tuple[Points, Units, _Groups]) -> None:
        layer, units, groups = done
        if self.work.busy or layer is not self._spots.layer or units is not self._spots.units:
            return
        self._groups = groups
        self.words.setText(_in_words(groups))
        listed = groups.table.iloc[groups.listed]
        columns = {
            str(name): Feature(
                str(name), values.to_numpy(), meaning=_MEANINGS.get(str(name), "")
                or describe(str(name)).meaning,
            )
            for name, values in listed.items()
        }  # fmt: skip
        self.view.show_numbers(columns, replace(units, names={**units.names, **_TITLES}))
        self.export.offer(len(groups.table) > 0)

    def _show_nothing(self, why: str) -> None:
        self._groups = None
        self.words.setText(why)
        self.view.show_numbers({})
        self.export.offer(False)

    def _named(self) -> NamedTable | None:
        layer, groups = self._spots.layer, self._groups
        if layer is None or groups is None:
            return None
        units, table = self._spots.units, groups.table.copy()
        for name in table:
            if (factor := units.factor(str(name))) != 1:
                table[name] *= factor
        titled = table.rename(columns=lambda name: units.title(str(name)))
        return NamedTable(f"{layer.name}.groups", "groups", titled)

    def _on_click(self, index: Any) -> None:
        """Select the spots of a group that are shown, and bring them into sight."""
        layer, groups, columns = self._spots.layer, self._groups, self._spots.columns
        if layer is None or groups is None or GROUP not in columns:
            return
        row = groups.listed[self.view.numbers.rows[index.row()]]
        own = columns[GROUP].values == groups.table[GROUP].to_numpy()[row]
        if len(own) == len(self._spots.shown):
            rows = np.flatnonzero(own & self._spots.shown)
            self._spots.select(rows)
            if len(rows):
                go_to(self._viewer, layer, int(rows[0]), canvas_beside(self))


def _sum_up(fits: SpotFits, shown: NDArray[np.bool_], doubtful: int) -> _Groups:
    # A point that the user has added, or a spot fitted again alone, is of no group.
    fits = fits[shown & np.isfinite(fits.columns[GROUP].astype(float))]
    table = summarize_groups(fits)
    together = np.unique(fits.columns[GROUP][fits.columns[GROUP_SIZE] > 1])
    rows = np.flatnonzero(np.isin(table[GROUP], together))
    order = np.argsort(-table[_COUNT].to_numpy()[rows], kind="stable")
    return _Groups(table, rows[order], doubtful)


def _in_words(groups: _Groups) -> str:
    table = groups.table
    if not len(table):
        return _NONE
    listed = table.iloc[groups.listed]
    alone, count = len(table) - len(listed), len(listed)
    words = (
        f"{number(int(listed[_COUNT].sum()))} spots in {number(count)} group{'s' * (count != 1)}"
    )
    words += f", {number(alone)} alone."
    if count and np.isfinite(listed[_TIMES]).any():
        times = number_text(float(np.nanmedian(listed[_TIMES])), 1)
        mean = number_text(float(listed[_COUNT].mean()), 1)
        words += f" Groups have {mean} spots on average, and half of them the light of {times} "
        words += "single ones or more."
    elif count:
        words += " No spot stands alone, whose light the groups' could be compared with."
    if groups.doubtful:
        words += f" ⚠ {number(groups.doubtful)} doubtful spots count, too: hide them under Filter."
    return words
