"""Copy and save a small table of numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QApplication, QFileDialog, QHBoxLayout, QPushButton, QWidget

from ..parts.layout import fill
from ..parts.messages import number
from ..parts.work import Latest

if TYPE_CHECKING:
    import pandas as pd


class NamedTable(NamedTuple):
    """A table with what to call it."""

    #: What its file is called, without its ending, and what its rows are.
    name: str
    rows: str
    table: pd.DataFrame


class TableExport(QWidget):
    """The buttons Copy and Save of a table of numbers.

    Parameters
    ----------
    table : callable
        Returns the table, or None if there is none.
    what : str
        What it has, for the tooltips.
    """

    #: Something that the user should know, and something that went wrong.
    said, failed = Signal(str), Signal(str)

    def __init__(self, table: Callable[[], NamedTable | None], what: str):
        super().__init__()
        self._table = table
        self._writing = Latest(self)
        self.copy_button, self.save_button = QPushButton("Copy"), QPushButton("Save…")
        self.copy_button.setToolTip(f"<p>Copy {what}, to paste it into a spreadsheet.</p>")
        self.save_button.setToolTip(f"<p>Save {what} as a CSV file.</p>")
        fill(QHBoxLayout(self), self.copy_button, self.save_button)
        self.copy_button.clicked.connect(self.copy)
        self.save_button.clicked.connect(self._ask_where)
        self._writing.done.connect(self.said.emit)
        self._writing.failed.connect(lambda error: self.failed.emit(str(error)))

    def copy(self) -> None:
        """Put the table on the clipboard."""
        made, clipboard = self._table(), QApplication.clipboard()
        if made is not None and clipboard is not None:
            clipboard.setText(made.table.to_csv(sep="\t", index=False, lineterminator="\n"))
            self.said.emit(f"{number(len(made.table))} {made.rows} copied.")

    def save_to(self, path: Path) -> None:
        """Write the table as CSV."""
        made = self._table()
        if made is not None:
            self._writing.ask(partial(_write, path, made))

    def offer(self, some: bool) -> None:
        """Offer the buttons or not."""
        self.copy_button.setEnabled(some)
        self.save_button.setEnabled(some)

    def _ask_where(self) -> None:
        made = self._table()
        if made is None:
            return
        name = f"{made.name}.csv".replace("/", "-")
        path, _ = QFileDialog.getSaveFileName(self, "Save table", name, "CSV (*.csv)")
        if path:
            self.save_to(Path(path) if Path(path).suffix else Path(f"{path}.csv"))


def _write(path: Path, made: NamedTable) -> str:
    """Write a table; the file takes its name when it is complete. Return what happened."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        made.table.to_csv(unfinished, index=False, lineterminator="\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise OSError(f"{path} was not written: {error}. Choose another place.") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return f"{number(len(made.table))} {made.rows} saved as {path}"
