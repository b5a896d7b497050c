"""Choose one of the features that are numbers."""

from __future__ import annotations

import html

from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QComboBox

from ..parts.layout import guard_wheel
from .columns import Column
from .shown_spots import ShownSpots


class FeatureChoice(QComboBox):
    """A list of the features that are numbers, with their units.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    first : str
        The feature that is chosen at first, if the spots have it.
    """

    #: The user has chosen another feature.
    chosen = Signal()

    def __init__(self, spots: ShownSpots, first: str):
        super().__init__()
        self._spots, self._wanted = spots, first
        self.setSizeAdjustPolicy(self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(9)
        guard_wheel(self)
        self.activated.connect(self._on_activated)

    @property
    def column(self) -> Column | None:
        """The chosen feature; None if there is none."""
        return self._spots.columns.get(self.currentData())

    @property
    def name(self) -> str:
        """Name of the chosen feature, or nothing."""
        return str(self.currentData() or "")

    def choose(self, name: str) -> None:
        """Choose a feature as the user would."""
        self.setCurrentIndex(self.findData(name))
        self._on_activated()

    def show_features(self) -> None:
        """List the features anew; the choice stays where it can."""
        self.clear()
        for name, column in self._spots.columns.items():
            if column.is_number:
                self.addItem(self._spots.units.title(name), name)
                tip = f"<p>{html.escape(column.meaning)}</p>"
                self.setItemData(self.count() - 1, tip, Qt.ItemDataRole.ToolTipRole)
        self.setCurrentIndex(max(self.findData(self._wanted), 0 if self.count() else -1))

    def _on_activated(self) -> None:
        self._wanted = self.name
        self.chosen.emit()
