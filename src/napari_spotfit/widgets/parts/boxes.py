"""Boxes for a number with its unit, and for a choice of one of the viewer's layers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from qtpy.QtCore import QSignalBlocker, QSize, Qt, Signal
from qtpy.QtGui import QResizeEvent, QValidator
from qtpy.QtWidgets import QComboBox, QDoubleSpinBox, QLineEdit, QToolTip

from ...settings.validation import Parameter
from .docking import Follower
from .layout import explain, guard_wheel

if TYPE_CHECKING:
    from napari.components import LayerList
    from napari.layers import Layer

#: Spin boxes need an end; beyond it there is no meaningful count.
_LARGEST = 1e15
#: Width in pixels of a box with arrows, and of what is around the text in one without.
_WIDTH, _AROUND = 94, 22
#: Room in pixels of the arrows, and around the text between them.
_ARROWS = 62
#: How many nm units of length are, as they are written; the second µ is the Greek letter.
_LENGTHS = {"nm": 1.0, "µm": 1e3, "\u03bcm": 1e3, "um": 1e3, "mm": 1e6}
#: A number with a unit of length, which may not yet be typed to its end.
_WITH_LENGTH = re.compile(r"([\d.eE+-]*\d\.?)\s*([nµ\u03bcum]m?)")
#: The plural of a unit that is a word, as in frames, counts or counts/px.
_PLURAL = re.compile(r"(?<=[a-z]{3})s\b")
#: The colour of a number that would be refused, seen on dark and on light.
_REFUSED = "#e76f51"
#: The word for a number that is estimated from the image.
AUTOMATIC = "automatic"
#: The number that stands for None in an optional number's spin box.
_NONE = -1e16


def accepted(about: Parameter) -> str:
    """Return which numbers a setting accepts, in words; nothing if all."""
    unit, odd = f" {about.unit}" if about.unit else "", ", odd" * about.odd
    low, high, above = about.minimum, about.maximum, about.above_minimum
    if low is None:
        return ""
    if high is None:
        return f"{'above' if above else 'at least'} {low:g}{unit}{odd}"
    return f"{f'above {low:g}, at most' if above else f'from {low:g} to'} {high:g}{unit}{odd}"


class NumberBox(QDoubleSpinBox):
    """A number with its unit, or nothing at all where it may be left open.

    Parameters
    ----------
    parameter : Parameter
        Its unit, range and steps, and what None means.
    optional : bool
        Whether None is a value, which is shown as what it means.
    whole : bool
        Whether only whole numbers are accepted.
    sample : str
        A number of the usual length, for which a box without arrows has room.
    value : float, optional
        The number at first.

    Attributes
    ----------
    begin : float or None
        Where the arrows start if there is no number.
    digits : int
        Significant digits shown; all those before the point are.
    """

    #: Another number, or None, counts.
    changed = Signal(object)

    def __init__(
        self,
        parameter: Parameter,
        *,
        optional: bool = False,
        whole: bool = False,
        sample: str = "",
        value: float | None = None,
    ):
        super().__init__()
        self._edit = cast(QLineEdit, self.lineEdit())
        self._parameter, self._optional, self._whole = parameter, optional, whole
        low, high = parameter.minimum, parameter.maximum
        above = parameter.step if parameter.above_minimum else 0
        self._lowest = -_LARGEST if low is None else low + above
        self._highest = _LARGEST if high is None else high
        self.begin, self.digits = parameter.automatic, 9
        self._none = parameter.none_means if parameter.automatic is None else AUTOMATIC
        self._none_text = self._none
        self._sample, self._tight = sample, False
        if sample:
            self.make_narrow()
        self.setDecimals(0 if whole else 12)
        self.setRange(_NONE if optional else self._lowest, self._highest)
        self._show_unit()
        self.valueChanged.connect(self._show_unit)
        if optional:
            self.setSpecialValueText(self._none)
        if optional or value is not None:
            self.put(value)
        self.setKeyboardTracking(False)
        guard_wheel(self)
        if parameter.doc:
            explain(self, parameter.label, f"<p>{parameter.doc}</p>")
        self.valueChanged.connect(lambda: self.changed.emit(self._value()))
        self.editingFinished.connect(self._on_edited)
        self._edit.textEdited.connect(self._on_typed)

    def get(self) -> float | int | None:
        """Return the number, or None where the setting is left open."""
        number = self.textFromValue(self.value()) + self.suffix()
        if self.text() != (self.specialValueText() if self._value() is None else number):
            # Else Qt would write the same text again, and draw the whole window for it.
            self.interpretText()
        return self._value()

    def put(self, value: float | None) -> None:
        """Show a number, or None."""
        self.setValue(_NONE if value is None else value)

    def show_number(self, value: float | None) -> None:
        """Show a number, or None, without emitting ``changed``."""
        with QSignalBlocker(self):
            self.put(value)
        self._show_unit()
        self._show_start()

    def make_narrow(self, least: int = 30) -> None:
        """Remove the arrows, and the room that the theme leaves for them.

        Parameters
        ----------
        least : int
            The least width of the number in pixels.
        """
        self.setButtonSymbols(self.ButtonSymbols.NoButtons)
        self.setStyleSheet(f"min-width: {least}px; padding: 1px 6px")

    def show_estimate(self, number: float | tuple[int, ...] | None) -> None:
        """Show the estimate that counts where nothing is set; None if there is none yet.

        Text that is being typed stays.
        """
        self.begin, self._none_text = self._parameter.automatic, self._none
        if number is not None:
            both = number if isinstance(number, tuple) else (number,)
            self.begin = float(min(both))
            text = "×".join(self.textFromValue(float(f"{one:.3g}")) for one in both)
            self._none_text = f"{self._none} ({text}{self._unit_of(self.begin)})"
        if not self._edit.isModified():
            self._show_none()

    def textFromValue(self, value: float) -> str:
        """Show no more digits than the number needs."""
        whole = len(f"{abs(value):.0f}")
        digits = max(self.digits, whole if whole < 7 else 0)
        text = f"{value:.0f}" if self._whole else f"{value:.{digits}g}"
        return re.sub(r"e([+-])0*", lambda match: f"e{match[1].strip('+')}", text)

    def valueFromText(self, text: str | None) -> float:
        """Read a number with point or comma, in its own unit of length or in another one.

        Nothing means None.
        """
        return _NONE if self._says_none(text) else float(self._words(text))

    def validate(self, text: str | None, position: int) -> tuple[QValidator.State, str, int]:
        """Accept what the setting accepts and keep what may become so."""
        if self._says_none(text):
            return QValidator.State.Acceptable, text or "", position
        words = self._words(text)
        try:
            good = self._accepts(float(words))
        except ValueError:
            good = False
            converted = self._parameter.unit in _LENGTHS
            begins_length = converted and _WITH_LENGTH.fullmatch(words) is not None
            if re.search(r"[^\d.eE+-]", words) and not begins_length:
                return QValidator.State.Invalid, text or "", position
        state = QValidator.State.Acceptable if good else QValidator.State.Intermediate
        return state, text or "", position

    def fixup(self, text: str | None) -> str:
        """Say why a number is refused; the one before comes back."""
        if self._edit.styleSheet():  # it was typed
            words = f"“{self._words(text)}” is not accepted: {accepted(self._parameter)}"
            QToolTip.showText(self.mapToGlobal(self.rect().bottomLeft()), words, self)
        return text or ""

    def stepBy(self, steps: int) -> None:
        """Go up or down by the setting's own step, or in decades."""
        own = self.get()
        value = self.begin if own is None else own
        step = self._parameter.step
        if value is None:
            new = max(self._lowest, 0.0)
        elif steps < 0 and self._optional and own == self._lowest:
            self.setValue(_NONE)
            return
        elif self._parameter.decades:
            new = (value or 1e-7) * 10.0 ** min(max(steps, -30), 30)
        else:
            new = value + steps * (step or 10.0 ** (math.floor(math.log10(abs(value) or 1)) - 1))
        new = min(max(round(new, 12), self._lowest), self._highest)
        self.setValue(2 * (new // 2) + 1 if self._parameter.odd else new)
        self.selectAll()

    def sizeHint(self) -> QSize:
        """Ask for room for usual numbers, not for the longest that may be typed."""
        text = self.fontMetrics().horizontalAdvance(self._sample)
        return QSize(text + _AROUND if self._sample else _WIDTH, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """Ask for the same room."""
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        """Give an estimate the room of the arrows where it would be cut."""
        super().resizeEvent(event)
        self._make_room()

    def keyPressEvent(self, event: Any) -> None:
        """Replace the words for None as a whole, as they cannot become a number."""
        writes = event.text().isprintable() and event.text() != ""
        deletes = event.key() in (Qt.Key.Key_Backspace, Qt.Key.Key_Delete)
        if (writes or deletes) and self._optional and self._edit.text() == self.specialValueText():
            self._edit.selectAll()
        super().keyPressEvent(event)

    def _on_typed(self) -> None:
        """Colour a number that would be refused."""
        self._edit.setStyleSheet("" if self.hasAcceptableInput() else f"color: {_REFUSED}")

    def _on_edited(self) -> None:
        self._edit.setModified(False)
        if self._edit.styleSheet():
            self._edit.setStyleSheet("")
        self._show_none()

    def _show_none(self) -> None:
        if self._optional and self.specialValueText() != self._none_text:
            self.setSpecialValueText(self._none_text)
            self._make_room()
            if self.text() == self._none_text:
                self._show_start()

    def _make_room(self) -> None:
        """Leave the arrows out where the words for None are longer than what they leave."""
        needed = self.fontMetrics().horizontalAdvance(self._none_text) + _ARROWS
        tight = self._optional and not self._sample and self.width() < needed
        if tight != self._tight:
            self._tight = tight
            if tight:
                self.make_narrow()
            else:
                self.setButtonSymbols(self.ButtonSymbols.UpDownArrows)
                self.setStyleSheet("")

    def _show_start(self) -> None:
        """Scroll to the start of the text, however narrow the box."""
        if not self.hasFocus():
            self._edit.home(False)

    def _unit_of(self, value: float) -> str:
        """Return what follows a number: one frame, two frames."""
        unit = self._parameter.unit
        return f" {_PLURAL.sub('', unit) if value == 1 else unit}" if unit else ""

    def _show_unit(self) -> None:
        suffix = self._unit_of(self.value())
        if suffix != self.suffix():
            self.setSuffix(suffix)

    def _value(self) -> float | int | None:
        value = self.value()
        if self._optional and value == _NONE:
            return None
        return round(value) if self._whole else value

    def _says_none(self, text: str | None) -> bool:
        words = self._words(text)
        stands = self._none == words or (
            self._none == AUTOMATIC and AUTOMATIC.startswith(words.lower())
        )
        return self._optional and (text == self.specialValueText() or not words or stands)

    def _words(self, text: str | None) -> str:
        words = (text or "").removesuffix(self.suffix()).strip().replace(",", ".")
        found = _WITH_LENGTH.fullmatch(words) if self._parameter.unit in _LENGTHS else None
        if found is None or found[2] not in _LENGTHS:
            return words
        try:
            ratio = _LENGTHS[found[2]] / _LENGTHS[self._parameter.unit]
            return f"{float(found[1]) * ratio:.12g}"
        except ValueError:
            return words

    def _accepts(self, value: float) -> bool:
        low, parity = self._parameter.minimum, not (self._parameter.odd and value % 2 != 1)
        above = low is None or value > low or (value == low and not self._parameter.above_minimum)
        whole = not self._whole or value == round(value)
        return above and abs(value) <= self._highest and parity and whole


class Choice(QComboBox):
    """A list to choose from, which the wheel changes only after a click.

    Parameters
    ----------
    name, tip : str
        Its name for screen readers, and its tooltip.
    texts : iterable of str
        The entries.
    room : int, optional
        Letters for which there is room; longer entries do not widen the panel.
    """

    def __init__(
        self, name: str = "", tip: str = "", texts: Iterable[str] = (), *, room: int | None = None
    ):
        super().__init__()
        self.addItems(list(texts))
        explain(self, name, tip)
        guard_wheel(self)
        if room is not None:
            self.setSizeAdjustPolicy(self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            self.setMinimumContentsLength(room)


class LayerChoice(Choice):
    """Choose one of the viewer's layers.

    Parameters
    ----------
    layers : napari.components.LayerList
        The viewer's layers.
    accepts : callable
        Whether a layer is listed.
    nothing : str
        The entry for no layer.
    optional : bool
        Whether no layer may be chosen although some are listed.
    """

    changed = Signal()

    def __init__(
        self,
        layers: LayerList,
        accepts: Callable[[Layer], bool],
        *,
        nothing: str,
        optional: bool = False,
    ):
        super().__init__(room=7)
        self._layers, self._accepts = layers, accepts
        self._nothing, self._optional = nothing, optional
        self._shown: Layer | None = None
        self._list = Follower(self._refresh)
        self.currentIndexChanged.connect(self._on_index)

    @property
    def layer(self) -> Layer | None:
        """The chosen layer."""
        return self.currentData()

    @layer.setter
    def layer(self, layer: Layer | None) -> None:
        listed = [self.itemData(row) for row in range(self.count())]
        if any(item is layer for item in listed):
            self.setCurrentIndex(next(i for i, item in enumerate(listed) if item is layer))

    def bind(self) -> None:
        """Follow the viewer's layers."""
        events = self._layers.events
        self._list.follow(events.inserted, events.removed, events.reordered, events.renamed)
        self._refresh()

    def unbind(self) -> None:
        """Stop following them."""
        self._list.follow()

    def _refresh(self, event: object = None) -> None:
        layers = [layer for layer in reversed(self._layers) if self._accepts(layer)]
        self.blockSignals(True)
        self.clear()
        if self._optional or not layers:
            self.addItem(self._nothing, None)
        for layer in layers:
            self.addItem(layer.name, layer)
        stays = any(layer is self._shown for layer in layers)
        # Where the chosen one is gone, the topmost takes its place.
        self.layer = self._shown if stays or self._optional else next(iter(layers), None)
        self.blockSignals(False)
        self._on_index()

    def _on_index(self) -> None:
        if self.layer is not self._shown:
            self._shown = self.layer
            self.changed.emit()
