"""A heading that folds and unfolds what is below it."""

from __future__ import annotations

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QPushButton, QVBoxLayout, QWidget


class Fold(QWidget):
    """A heading with contents that are hidden until it is clicked.

    Parameters
    ----------
    title : str
        The heading.
    content : QWidget
        What is folded.
    parent : QWidget, optional
        Qt parent.
    """

    toggled = Signal(bool)

    def __init__(self, title: str, content: QWidget, parent: QWidget | None = None):
        super().__init__(parent)
        self._title, self._content = title, content
        self.button = QPushButton()
        self.button.setCheckable(True)
        # Not the theme's filled button: it is a heading.
        self.button.setStyleSheet(
            "text-align: left; font-weight: bold; padding: 4px 0; border: none; background: none"
        )
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.button)
        column.addWidget(content)
        self.button.toggled.connect(self._on_toggled)
        self._on_toggled(False)

    @property
    def open(self) -> bool:
        """Whether the contents are shown."""
        return bool(self.button.isChecked())

    @open.setter
    def open(self, value: bool) -> None:
        self.button.setChecked(value)

    def _on_toggled(self, shown: bool) -> None:
        self.button.setText(f"{'▾' if shown else '▸'} {self._title}")
        self._content.setVisible(shown)
        self.toggled.emit(shown)
