"""The legend, which is the filter of conditions and flags: on a page, or folded on the canvas."""

from __future__ import annotations

import html

import numpy as np
from qtpy.QtCore import QSignalBlocker, Qt, Signal
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import (
    QCheckBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from ...analysis.filters import FLAGS, GOOD, Filters, flag_bits
from ...engine.flags import RULES, Flag, reasons_in_words
from ...models.columns import STOP
from ...models.estimators import StopCondition
from ..layers.appearance import STOP_COLORS, good_rows
from ..layers.points import stop_counts
from ..parts.color_legend import Cross, Ring
from ..parts.layout import Label, Scrolled, add_action, button, fill
from ..parts.messages import number
from .shown_spots import ShownSpots

#: The stop conditions are more specific than NOT_CONVERGED.
_FLAGS = tuple(flag for flag in RULES if flag is not Flag.NOT_CONVERGED)
#: The groups of fits, as they are listed, and what these may have.
_GROUPS = (
    ("Good", ("MIN_DELTA", "MIN_STEP", "MAX_ERROR"), ()),
    ("Of these, with a remark", (), [flag for flag in _FLAGS if not RULES[flag].rejects]),
    (
        "Doubtful", ("NO_DECREASE", "MAX_ITERATIONS", "UNKNOWN", "INVALID"),
        [flag for flag in _FLAGS if RULES[flag].rejects],
    ),
)  # fmt: skip
_HOW = (
    "<p>Untick to hide these fits, double-click to show only them; the right button offers more. "
    "Nothing is deleted.</p>"
)
_COUNT_TIP = "<p>How many of the layer's fits, shown or not. A fit may have several flags.</p>"
_GROUP_TIP = (
    "<p>A fit is good, perhaps with a remark, such as a neighbour, or doubtful. Below are the stop "
    "conditions and flags of all fits; a fit may have several of them.</p>"
)
_ALL_TIP = (
    "<p>Tick all stop conditions and flags. Limits that were set in a histogram or in the scatter "
    "plot stay.</p>"
)
_GOOD_TIP = (
    "<p>Show the fits that nothing speaks against, and hide the doubtful ones, which are drawn as "
    "crosses: that have not converged, have moved away from their maximum, are at a bound, too "
    "weak, too wide or double. Inspect explains what is wrong with each, and what to try. "
    "Nothing is deleted.</p>"
)
#: Width in pixels of the folded line, whatever the filter's words are, and what frames them.
_WIDTH, _PADDING = 170, 12
#: Height that the unfolded legend asks for in any case.
_LEAST = 60
_TIP = "<p>{}</p><p>Click to {} the legend, which is the filter.</p>"


class LegendBox(QCheckBox):
    """A check box that can also request its own fits alone."""

    #: Show only these; show all but these.
    only_asked, others_asked = Signal(), Signal()

    def __init__(self, text: str):
        super().__init__(text)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        add_action(self, "Only this", self.only_asked.emit)
        add_action(self, "All but this", self.others_asked.emit)

    def mouseDoubleClickEvent(self, event: QMouseEvent | None) -> None:
        """Request these alone; the first click has ticked or unticked the box."""
        if event is not None and event.button() == Qt.MouseButton.LeftButton:
            self.only_asked.emit()


class Legend(QWidget):
    """Colour, words and number of fits of every stop condition and flag, ticked if shown.

    Conditions and flags that no fit has are not listed.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__()
        self._spots = spots
        #: By the names of stop conditions and flags.
        self.boxes: dict[str, LegendBox] = {}
        self.counts: dict[str, QLabel] = {}
        self._rows: dict[str, tuple[QWidget, ...]] = {}
        #: Heading and number of each group of fits.
        self.groups: list[tuple[QLabel, QLabel]] = []
        self.all = button("All", _ALL_TIP, lambda: self._set(spots.filters.with_all()))
        self.good = button(
            "Good ones", _GOOD_TIP,
            lambda: self._set(spots.filters.with_all().with_good_only(True)),
        )  # fmt: skip
        self._lay_out()
        self.show_table()

    def show_table(self) -> None:
        """Count the fits."""
        counts = self._count()
        for name, label in self.counts.items():
            count = counts.get(name, 0)
            label.setText(number(count))
            for widget in self._rows[name]:
                widget.setVisible(count > 0)
        self._count_groups()
        self.boxes[StopCondition.INVALID.name].setEnabled(self._draws_invalid())
        good, reasons = self._spots.columns.get(GOOD), ""
        bits = self._spots.columns.get(FLAGS)
        if bits is not None:
            reasons = f"<p>{html.escape(reasons_in_words(flag_bits(bits.values)))}.</p>"
        self.good.setEnabled(good is not None)
        self.good.setToolTip(reasons + _GOOD_TIP)
        how_many = "" if good is None else f" ({number(int(np.count_nonzero(good.values > 0)))})"
        self.good.setText(f"Good ones{how_many}")
        self.all.setEnabled(self._spots.layer is not None)

    def show_rows(self) -> None:
        """Tick what is shown."""
        for name, box in self.boxes.items():
            with QSignalBlocker(box):
                box.setChecked(box.isEnabled() and not self._spots.filters.hides(name))

    def _count_groups(self) -> None:
        """Count the good fits, those of them with a flag, and the doubtful ones."""
        layer, bits = self._spots.layer, self._spots.columns.get(FLAGS)
        good = np.zeros(0, bool) if layer is None else good_rows(layer.features)
        remarked = np.zeros(len(good), bool) if bits is None else flag_bits(bits.values) != 0
        if len(remarked) == len(good):
            counts = good, good & remarked, ~good
            for (heading, label), group in zip(self.groups, counts, strict=True):
                label.setText(number(int(np.count_nonzero(group))))
                for widget in (heading, label):
                    widget.setVisible(bool(group.any()))

    def _count(self) -> dict[str, int]:
        """Return how many fits have each stop condition and flag."""
        counts: dict[str, int] = {}
        stop, bits = self._spots.columns.get(STOP), self._spots.columns.get(FLAGS)
        if stop is not None:
            per_word = np.bincount(stop.values[stop.values >= 0], minlength=len(stop.words))
            counts = dict(zip(stop.words, per_word.tolist(), strict=True))
        if self._spots.layer is not None:
            # Of those that are not drawn, only the layer knows the number.
            invalid = StopCondition.INVALID.name
            counted = stop_counts(self._spots.layer).get(invalid, 0)
            counts[invalid] = max(counts.get(invalid, 0), counted)
        if bits is not None:
            flags = flag_bits(bits.values)
            counts |= {str(flag.name): int(np.count_nonzero(flags & int(flag))) for flag in _FLAGS}
        return counts

    def _draws_invalid(self) -> bool:
        stop = self._spots.columns.get(STOP)
        if stop is None or StopCondition.INVALID.name not in stop.words:
            return False
        return bool(np.any(stop.values == stop.words.index(StopCondition.INVALID.name)))

    def _set(self, filters: Filters) -> None:
        self._spots.set_filters(filters.limited_to(self._spots.columns))
        # A click may have changed the box alone.
        self.show_rows()

    def _lay_out(self) -> None:
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(4)
        grid.setVerticalSpacing(0)
        grid.setColumnStretch(1, 1)
        buttons = fill(QHBoxLayout(), self.all, (self.good, 1), spacing=4)
        grid.addLayout(buttons, 0, 0, 1, 3)
        for text, conditions, flags in _GROUPS:
            self._add_heading(grid, text)
            for name in conditions:
                condition, color = StopCondition[name], STOP_COLORS.get(name)
                words = condition.words if color else f"{condition.words} (not drawn)"
                meaning = f"{condition.explanation} {condition.advice}"
                self._add_row(grid, name, words, meaning, Ring(color) if color else QWidget())
            for flag in flags:
                rule, symbol = RULES[flag], Cross() if RULES[flag].rejects else QWidget()
                meaning = f"{rule.sentence} {rule.advice}"
                self._add_row(grid, str(flag.name), rule.word, meaning, symbol)

    def _add_heading(self, grid: QGridLayout, text: str) -> None:
        """Add a heading with the number of its fits."""
        heading, count = Label(text), Label()
        for label in (heading, count):
            label.setStyleSheet("font-weight: bold; padding-top: 4px")
            label.setToolTip(_GROUP_TIP)
        count.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.groups.append((heading, count))
        row = grid.rowCount()
        grid.addWidget(heading, row, 0, 1, 2)
        grid.addWidget(count, row, 2)

    def _add_row(
        self, grid: QGridLayout, name: str, words: str, meaning: str, symbol: QWidget
    ) -> None:
        box, count = LegendBox(words), Label()
        count.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        count.setToolTip(_COUNT_TIP)
        tip = f"<p>{html.escape(meaning)}</p><p><i>{name}</i></p>"
        box.setToolTip(tip + _HOW)
        symbol.setToolTip(tip)
        box.setChecked(True)
        of = self._spots
        box.toggled.connect(lambda shown: self._set(of.filters.with_hidden(name, not shown)))
        box.only_asked.connect(lambda: self._set(of.filters.with_only(name)))
        box.others_asked.connect(lambda: self._set(of.filters.with_all().with_hidden(name, True)))
        self.boxes[name], self.counts[name] = box, count
        self._rows[name] = symbol, box, count
        row = grid.rowCount()
        for place, widget in enumerate(self._rows[name]):
            grid.addWidget(widget, row, place)


class CanvasLegend(QFrame):
    """Shows on the canvas which spots are shown; unfolded, it is the legend that filters them.

    It is folded at first, so as not to cover the image.

    Parameters
    ----------
    canvas : QWidget
        What it lies on.
    spots : ShownSpots
        The spots.
    """

    def __init__(self, canvas: QWidget, spots: ShownSpots):
        super().__init__(canvas)
        self._spots = spots
        self.line, self.legend = QPushButton(), Legend(spots)
        self._scrolled = Scrolled(self.legend, _LEAST)
        # A click on the legend is none on the image, and keys stay with the canvas.
        self.setAttribute(Qt.WidgetAttribute.WA_NoMousePropagation)
        for control in self.findChildren(QWidget):
            control.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.line.setCheckable(True)
        # A heading, pressed or not.
        self.line.setStyleSheet("text-align: left; padding: 2px 4px; background: transparent")
        self.line.setAccessibleName("Legend of the spots on the canvas")
        self.line.setMinimumWidth(_WIDTH)
        self.setAutoFillBackground(True)
        fill(QVBoxLayout(self), self.line, self._scrolled, margins=(2, 2, 2, 2), spacing=2)
        self.line.toggled.connect(self._on_toggled)
        spots.replaced.connect(self._on_table)
        spots.changed.connect(self._on_shown)
        self._on_toggled(False)

    def _on_toggled(self, unfolded: bool) -> None:
        self._scrolled.setVisible(unfolded)
        self._on_table()

    def _on_table(self) -> None:
        if self.line.isChecked():
            self.legend.show_table()
        self._on_shown()

    def _on_shown(self) -> None:
        unfolded = self.line.isChecked()
        if unfolded:
            self.legend.show_rows()
        shown, filters = self._spots.shown, self._spots.filters
        words = f"{number(int(shown.sum()))} of {number(len(shown))}"
        words += f": {filters.in_words(self._spots.units)}" if filters else " shown"
        self.line.setToolTip(_TIP.format(html.escape(words), "fold" if unfolded else "unfold"))
        width = max(_WIDTH, self._scrolled.sizeHint().width() if unfolded else 0) - _PADDING
        text = f"{'▾' if unfolded else '▸'} {words}"
        self.line.setText(self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, width))
