"""A limit of a range: a number, or open."""

from __future__ import annotations

from qtpy.QtCore import QSize, Signal
from qtpy.QtGui import QValidator
from qtpy.QtWidgets import QDoubleSpinBox, QWidget

from ..parts.narrow import make_narrow
from ..parts.wheel import guard_wheel

#: The number that stands for an open end.
_OPEN = -1e15
_WORD = "open"
#: A number as long as usual ones get, and the room in pixels that a box needs around it.
_LONG, _AROUND = "-1.23e+05", 22


class LimitBox(QDoubleSpinBox):
    """A number, or nothing where a range is open.

    Parameters
    ----------
    parent : QWidget, optional
        Qt parent.
    """

    changed = Signal()

    def __init__(self, parent: QWidget | None = None):
        super().__init__(parent)
        #: Where the arrows begin if the box is open.
        self.start = 0.0
        self.setDecimals(12)
        self.setRange(_OPEN, -_OPEN)
        self.setSpecialValueText(_WORD)
        # The handles in the histogram do what buttons would, and the keys do too.
        make_narrow(self)
        self.setKeyboardTracking(False)
        self.put(None)
        guard_wheel(self)
        self.valueChanged.connect(self.changed)

    def get(self) -> float | None:
        """Return the limit; None if it is open."""
        return None if self.value() == _OPEN else self.value()

    def put(self, limit: float | None) -> None:
        """Show a limit without saying so."""
        self.blockSignals(True)
        self.setValue(_OPEN if limit is None else limit)
        self.blockSignals(False)
        line = self.lineEdit()
        if line is not None and not self.hasFocus():
            # Of a number that is too long the first digits count.
            line.home(False)

    def textFromValue(self, value: float) -> str:
        """Show no more digits than the number needs."""
        return f"{value:.6g}"

    def valueFromText(self, text: str | None) -> float:
        """Read a number with point or comma; nothing means open."""
        words = _words(text)
        return float(words) if words else _OPEN

    def validate(self, text: str | None, position: int) -> tuple[QValidator.State, str, int]:
        """Accept numbers and nothing."""
        words = _words(text)
        state = QValidator.State.Acceptable
        try:
            float(words or 0)
        except ValueError:
            typing = set(words) <= set("0123456789.eE+-") or _WORD.startswith(words)
            state = QValidator.State.Intermediate if typing else QValidator.State.Invalid
        return state, text or "", position

    def stepBy(self, steps: int) -> None:
        """Go on from where the open end is."""
        if self.get() is None:
            self.setValue(self.start)
        else:
            super().stepBy(steps)

    def sizeHint(self) -> QSize:
        """Ask for room for usual numbers."""
        return QSize(self._width(), super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """Ask for the same room."""
        return QSize(self._width(), super().minimumSizeHint().height())

    def _width(self) -> int:
        return self.fontMetrics().horizontalAdvance(_LONG) + _AROUND


def _words(text: str | None) -> str:
    words = (text or "").strip().replace(",", ".")
    return "" if words == _WORD else words
