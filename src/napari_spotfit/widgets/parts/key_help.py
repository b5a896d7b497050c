"""All keys and clicks over the image, for people: napari lists none of a plugin's."""

from __future__ import annotations

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QMessageBox, QWidget

#: Keys or clicks, and what they do.
KEYS = (
    ("Shift-click", "Fit the spot there; drag, and the fit follows the mouse."),
    ("Click", "Fit the spot there while Fit on click is pressed; else Inspect spot shows it."),
    ("Delete, Backspace", "Remove the selected spots."),
    ("Ctrl+Z, Ctrl+Shift+Z", "Take back what was done to layers of spots; do it again."),
    ("Page Up, Page Down", "Go to the doubtful spot before, to the next one (Inspect spot)."),
    (".", "While it is held down, show the image without any marks."),
)


def keys_as_html() -> str:
    """Return a table of them."""
    rows = (f"<tr><td><b>{key}</b>&nbsp;&nbsp;</td><td>{what}</td></tr>" for key, what in KEYS)
    return f"<p>Over the image:</p><table>{''.join(rows)}</table>"


def show_keys(parent: QWidget) -> None:
    """Show the table beside the viewer, which goes on."""
    box = QMessageBox(parent)
    box.setWindowTitle("Keys and clicks")
    box.setTextFormat(Qt.TextFormat.RichText)
    box.setText(keys_as_html())
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setModal(False)
    box.show()
