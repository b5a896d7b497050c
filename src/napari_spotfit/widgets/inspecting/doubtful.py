"""From one doubtful spot of a layer to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from ..layers.appearance import good_rows
from ..parts.layout import explain, fill
from ..parts.messages import number

if TYPE_CHECKING:
    from napari.layers import Points

#: Keys over the canvas, in napari's words.
BACK_KEY, ON_KEY = "PageUp", "PageDown"
_LOW = "QToolButton { padding: 0; margin: 0; min-height: 0; border: none }"
_TIP = (
    "<p>Go to the {} doubtful spot of the layer, of those that are shown ({} over the image); "
    "behind the last comes the first.</p>"
)


def doubtful_shown(layer: Points) -> NDArray[np.intp]:
    """Return the rows of a layer's doubtful spots that are shown."""
    shown = np.broadcast_to(layer.shown, len(layer.data)).astype(bool)
    return np.flatnonzero(~good_rows(layer.features) & shown)


def following(rows: NDArray[np.intp], row: int | None, step: int) -> int:
    """Return the one of some rows that comes after a row, or before it.

    Examples
    --------
    >>> import numpy as np
    >>> following(np.array([2, 5, 9]), 5, 1), following(np.array([2, 5, 9]), 1, -1)
    (9, 9)
    """
    if step > 0:
        place = 0 if row is None else int(np.searchsorted(rows, row, "right"))
    else:
        place = (0 if row is None else int(np.searchsorted(rows, row))) - 1
    return int(rows[place % len(rows)])


class DoubtfulSteps(QWidget):
    """Two buttons that go through the doubtful spots, and between them where one is."""

    #: On to the next one, 1, or back to the one before, -1.
    asked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.back, self.on, self.count = QToolButton(), QToolButton(), QLabel()
        for button, text, which, key, step in (
            (self.back, "◀", "previous", "Page Up", -1),
            (self.on, "▶", "next", "Page Down", 1),
        ):
            button.setText(text)
            button.setStyleSheet(_LOW)
            # No higher than the title, beside which they stand.
            button.setFixedHeight(button.fontMetrics().height())
            explain(button, f"{which.capitalize()} doubtful spot", _TIP.format(which, key))
            button.clicked.connect(lambda checked=False, step=step: self.asked.emit(step))
        fill(QHBoxLayout(self), self.back, self.count, self.on, spacing=4)

    def show_place(self, layer: Points, row: int | None) -> None:
        """Say how many doubtful spots are shown, and which of them this is."""
        rows = doubtful_shown(layer)
        place = int(np.searchsorted(rows, -1 if row is None else row))
        here = row is not None and place < len(rows) and rows[place] == row
        count = f"{number(len(rows))} doubtful"
        self.count.setText(f"{number(place + 1)} of {count}" if here else count)
        for button in (self.back, self.on):
            button.setEnabled(len(rows) > 0)
