"""The panel of one spot, its parts side by side or one below the other."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QSizePolicy,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)
from superqt import QElidingLabel

from ...models.columns import GROUP_SIZE
from ...models.estimators import ESTIMATORS
from ..layers.appearance import good_rows
from ..parts.layout import Label, button, explain, fill, scroll_upright, sentence, show_text
from ..parts.messages import number
from ..parts.work import delayed
from .numbers import Comparison, Numbers, Verdict
from .pictures import EXCLUDED_TIP, NEW_TITLES, DepthCurve, Pictures, Profiles
from .refit import RefitBar
from .spot import Spot, frame_words

if TYPE_CHECKING:
    from napari.layers import Points

    from ...analysis.spot_sample import SpotSample
    from ...results.formatting import PixelSize

#: Widths in pixels from which on the steps stand beside the title, the numbers beside the rest, and
#: the profiles beside the pictures, too.
_IN_LINE, _BESIDE, _WIDE = 700, 560, 880
#: Milliseconds in which what has changed finds its place before it is drawn.
_SETTLING = 10
_ROW_TIP = "<p>Layer, frame and row of the spot; the first of each is 0.</p>"
_REFIT_TIP = (
    "<p>Fit this spot again with other settings, look at both fits side by side, and keep one.</p>"
)
#: No higher than the title, beside which they stand.
_LOW = "QPushButton { padding: 0 8px; margin: 0; min-height: 0 }"
_CHANGED = "The image has changed since this fit: the residual is not the fit's."
#: Keys over the canvas, in napari's words.
BACK_KEY, ON_KEY = "PageUp", "PageDown"
_LOW_TOOL = "QToolButton { padding: 0; margin: 0; min-height: 0; border: none }"
_STEP_TIP = (
    "<p>Go to the {} doubtful spot of the layer, of those that are shown ({} over the image); "
    "behind the last comes the first.</p>"
)


class InspectPanel(QWidget):
    """Verdict, pictures, profiles and numbers of one spot, or a message.

    Parameters
    ----------
    parent : QWidget
        Qt parent; the panel fills it.
    """

    def __init__(self, parent: QWidget):
        super().__init__(parent)
        self.title = QElidingLabel()
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        # The layer's name, which comes first, is seen in the choice of layers, too.
        self.title.setElideMode(Qt.TextElideMode.ElideLeft)
        self.title.setStyleSheet("font-weight: bold")
        self.title.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.title.setToolTip(_ROW_TIP)
        self.doubtful = DoubtfulSteps()
        name = "Fit again with other settings"
        self.refit_button = button("Refit", _REFIT_TIP, name=name, checkable=True)
        self.refit, self.comparison = RefitBar(), Comparison()
        self.verdict, self.numbers = Verdict(), Numbers()
        for low in (self.refit_button, self.numbers.copy_button):
            low.setStyleSheet(_LOW)
            low.setFixedHeight(low.fontMetrics().height())
        self.pictures, self.profiles = Pictures(), Profiles()
        self._all_pictures = [self.pictures]
        self.changed, self.message, self.note = _sentence(), _sentence(), _sentence()
        self.excluded = _sentence()
        self.excluded.setToolTip(EXCLUDED_TIP)
        self.pixels, self.pages = QStackedWidget(), QStackedWidget()
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._views = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._head = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self._still = delayed(lambda: self.setUpdatesEnabled(True), _SETTLING, self)
        self._lay_out(parent)

    @cached_property
    def new_pictures(self) -> Pictures:
        """The pictures of a refit, made when there is one."""
        made = self._more_pictures(NEW_TITLES)
        self._views.insertWidget(1, made, 3)
        return made

    @cached_property
    def cuts(self) -> tuple[Pictures, Pictures]:
        """The pictures of the cuts along z of a spot in a volume, made for the first one."""
        xz, yz = (self._more_pictures((cut, *NEW_TITLES[1:])) for cut in ("xz", "yz"))
        for pictures in (xz, yz):
            self._planes.addWidget(pictures, 1)
        return xz, yz

    @cached_property
    def curve(self) -> DepthCurve:
        """The place of a spot on the curves of its calibration, made for the first one."""
        made = DepthCurve()
        self._views.addWidget(made, 2)
        return made

    def unbind(self) -> None:
        """Draw at once what still waits for it."""
        self._still.stop()
        self.setUpdatesEnabled(True)

    def hold(self) -> None:
        """Draw nothing until the changes are laid out.

        Each time that something is drawn costs a picture of the whole window, its canvas
        too.
        """
        if not self._still.isActive():
            self.setUpdatesEnabled(False)
            self._still.start()

    def show_message(self, text: str) -> None:
        """Show a message and nothing else."""
        self.message.setText(text)
        self.pages.setCurrentWidget(self.message)

    def show_spot(self, spot: Spot, layer: str, size: PixelSize | None, *, physical: bool) -> None:
        """Show a spot's verdict and numbers, lengths in the physical unit or in pixels."""
        self._compare(False)
        words = [layer, frame_words(spot.index), f"row {spot.row} of {spot.count}"]
        words += ["refitted"] * spot.refitted
        if (members := spot.values.get(GROUP_SIZE, 1.0)) > 1:
            words.append(f"one of a group of {members:.0f}")
        self.title.setText(" · ".join(word for word in words if word))
        self.verdict.show_spot(spot)
        self.numbers.show_spot(spot, size, physical=physical)
        self._ask_width()
        self.pages.setCurrentIndex(0)

    def show_sample(self, sample: SpotSample, spot: Spot) -> None:
        """Show the spot's pixels."""
        self.pictures.show_sample(sample)
        self.profiles.show_sample(sample)
        self._show_cuts(sample.cuts)
        if "z_stderr" in spot.values or "curve" in vars(self):
            self.curve.show_spot(spot)
        chi_square = spot.values.get("chi_square")
        # χ² with weights, or of a likelihood, does not follow from the residual alone.
        plain = ESTIMATORS[spot.settings.get("estimator", "lse")].chi_is_of_residual
        plain = plain or sample.same is not None
        same = chi_square is None or not plain or sample.is_of(chi_square)
        show_text(self.changed, "" if same else f"⚠ {_CHANGED}")
        words = sample.excluded_in_words
        show_text(self.excluded, f"▨ {words}" if words else "")
        self.pixels.setCurrentIndex(0)

    def show_refit(
        self, old: tuple[Spot, SpotSample], new: tuple[Spot, SpotSample], *, new_is_kept: bool
    ) -> None:
        """Show two fits of one spot side by side."""
        self.pictures.show_sample(old[1], beside=new[1])
        self.new_pictures.show_sample(new[1], beside=old[1])
        self.comparison.show_fits(old[0], new[0], new_is_kept=new_is_kept)
        self._compare(True)
        self._show_cuts(())
        if "curve" in vars(self):
            self.curve.hide()
        self._ask_width()

    def say(self, text: str) -> None:
        """Show a sentence instead of the pixels."""
        self.note.setText(text)
        self.pixels.setCurrentWidget(self.note)

    def minimumSizeHint(self) -> QSize:
        """Ask for the width of the widest part, and room for the scroll bar beside it."""
        both = not self.comparison.isHidden()
        rest = (self.comparison,) if both else (self.profiles, self.numbers)
        parts: tuple[QWidget, ...] = (self.pictures, *rest)
        width = max(part.minimumSizeHint().width() for part in parts)
        assert self._bar is not None
        return QSize(width + self._bar.sizeHint().width(), super().minimumSizeHint().height())

    def resizeEvent(self, event: Any) -> None:
        """Turn the layout where the panel has become wide or narrow."""
        super().resizeEvent(event)
        wide, across = self.width() >= _WIDE, QBoxLayout.Direction.LeftToRight
        for box, least in ((self._head, _IN_LINE), (self._body, _BESIDE), (self._views, _WIDE)):
            down = QBoxLayout.Direction.TopToBottom
            box.setDirection(across if self.width() >= least else down)
        for pictures in self._all_pictures:
            pictures.go(below=not wide)

    def _more_pictures(self, titles: tuple[str, str, str]) -> Pictures:
        made = Pictures(titles)
        made.go(below=self.width() < _WIDE)
        self._all_pictures.append(made)
        return made

    def _show_cuts(self, cuts: tuple[SpotSample, ...]) -> None:
        if cuts or "cuts" in vars(self):
            for number, pictures in enumerate(self.cuts):
                pictures.setVisible(bool(cuts))
                if cuts:
                    pictures.show_sample(cuts[number])

    def _compare(self, both: bool) -> None:
        """Show two fits of the spot, or one."""
        self.comparison.setVisible(both)
        if both or "new_pictures" in vars(self):
            self.new_pictures.setVisible(both)
        self.profiles.setVisible(not both)
        self.numbers.setVisible(not both)
        if both:
            self.excluded.hide()

    def _ask_width(self) -> None:
        if self.minimumSizeHint().width() != self.minimumWidth():
            self.setMinimumWidth(self.minimumSizeHint().width())

    def _lay_out(self, parent: QWidget) -> None:
        buttons = (self.numbers.copy_button, self.refit_button)
        named = fill(QHBoxLayout(), (self.title, 1), *buttons)
        fill(self._head, (named, 1), self.doubtful)
        self._head.setAlignment(self.doubtful, Qt.AlignmentFlag.AlignLeft)
        self._planes = fill(QVBoxLayout(), (self.pictures, 1))
        fill(self._views, (self._planes, 3), (self.profiles, 2))
        views = QWidget()
        fill(QVBoxLayout(views), self.changed, self.excluded, (self._views, 1), spacing=4)
        self.pixels.addWidget(views)
        self.pixels.addWidget(self.note)
        spot = fill(
            QVBoxLayout(), self._head, self.refit, self.verdict, (self.pixels, 1), spacing=3
        )
        content, scroll = QWidget(), QScrollArea()
        content.setLayout(fill(self._body, (spot, 1), self.numbers, self.comparison, spacing=16))
        scroll_upright(scroll, content)
        self._bar = scroll.verticalScrollBar()
        self.pages.addWidget(scroll)
        self.pages.addWidget(self.message)
        fill(QVBoxLayout(self), self.pages)
        for part in (self.changed, self.excluded, self.refit, self.comparison):
            part.hide()
        self.refit_button.toggled.connect(self.refit.setVisible)
        # napari puts nothing but space below a widget that does not want all the height.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        fill(QVBoxLayout(parent), self, margins=(4, 2, 4, 2))


def _sentence() -> QLabel:
    label = sentence()
    label.setAlignment(Qt.AlignmentFlag.AlignCenter)
    return label


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
        self.back, self.on, self.count = QToolButton(), QToolButton(), Label()
        for arrow, text, which, key, step in (
            (self.back, "◀", "previous", "Page Up", -1),
            (self.on, "▶", "next", "Page Down", 1),
        ):
            arrow.setText(text)
            arrow.setStyleSheet(_LOW_TOOL)
            # No higher than the title, beside which they stand.
            arrow.setFixedHeight(arrow.fontMetrics().height())
            explain(arrow, f"{which.capitalize()} doubtful spot", _STEP_TIP.format(which, key))
            arrow.clicked.connect(lambda checked=False, step=step: self.asked.emit(step))
        fill(QHBoxLayout(self), self.back, self.count, self.on, spacing=4)

    def show_place(self, layer: Points, row: int | None) -> None:
        """Show how many doubtful spots are shown, and which of them this is."""
        rows = doubtful_shown(layer)
        place = int(np.searchsorted(rows, -1 if row is None else row))
        listed = row is not None and place < len(rows) and rows[place] == row
        count = f"{number(len(rows))} doubtful"
        self.count.setText(f"{number(place + 1)} of {count}" if listed else count)
        for arrow in (self.back, self.on):
            arrow.setEnabled(len(rows) > 0)
