"""Copy and save spots."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from qtpy.QtCore import Signal
from qtpy.QtGui import QAction
from qtpy.QtWidgets import (
    QApplication,
    QFileDialog,
    QHBoxLayout,
    QMenu,
    QProgressBar,
    QPushButton,
    QStackedWidget,
    QWidget,
)

from ..parts.layout import fill
from ..parts.messages import number
from ..parts.work import Latest
from ..saved_layers import attributes_of, drop_kept
from .csv_file import CsvJob, CsvRun, as_text
from .shown_spots import ShownSpots
from .view import SpotsTable

#: More rows than this are too much for a clipboard.
_MOST_COPIED = 100_000
_COPY_TIP = (
    "<p>Copy the selected rows, or all that are shown if none is selected, to paste them into a "
    "spreadsheet.</p>"
)
_SAVE_TIP = (
    "<p>Save spots as a CSV file in the units that the table shows, with all that is known of them "
    "in lines that begin with #. As .spots.csv, napari opens it again as this layer. Many spots "
    "are smaller and faster as .spots.parquet, in File ▸ Save Selected Layers.</p>"
)
#: No higher than tabs, beside which they may stand.
_LOW_BUTTONS = "QPushButton { padding: 3px 8px }"


class ExportBar(QStackedWidget):
    """The buttons Copy and Save, and the progress while a file is written.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    table : SpotsTable
        Their table, whose order and selection count.
    """

    #: Something that the user should know, and something that went wrong.
    said, failed = Signal(str), Signal(str)
    #: A file was written, or not; the messages have said which.
    finished = Signal()

    def __init__(self, spots: ShownSpots, table: SpotsTable):
        super().__init__()
        self._spots, self._table = spots, table
        self._run: CsvRun | None = None
        self._copying = Latest(self)
        self.copy_button, self.save_button = QPushButton("Copy"), QPushButton("Save")
        self.cancel_button, self.progress = QPushButton("Cancel"), QProgressBar()
        self.menu = QMenu(self)
        self.save_shown = QAction("Spots that are shown, as CSV…", self)
        self.save_all = QAction("All spots, as CSV…", self)
        self.menu.addActions([self.save_shown, self.save_all])
        self._lay_out()
        self.copy_button.clicked.connect(self.copy)
        self.cancel_button.clicked.connect(self.cancel)
        self.save_shown.triggered.connect(lambda: self._ask_where(everything=False))
        self.save_all.triggered.connect(lambda: self._ask_where(everything=True))
        self._copying.done.connect(self._on_copied)
        self._copying.failed.connect(lambda error: self.failed.emit(f"Not copied: {error}"))

    def copy(self) -> None:
        """Put the selected rows, or else all that are shown, on the clipboard."""
        rows = self._table.selected_rows()
        if not len(rows):
            rows = self._table.spots_model.rows
        if not len(rows):
            self.failed.emit("There is no spot to copy; fit an image or loosen the filters.")
        elif len(rows) > _MOST_COPIED:
            self.failed.emit(
                f"{number(len(rows))} spots are too many to copy, {number(_MOST_COPIED)} at most; "
                "save them as CSV, select fewer, or filter them."
            )
        else:
            text = partial(as_text, self._spots.columns, self._spots.units, rows)
            self._copying.ask(lambda: (text(), len(rows)))

    def save_to(self, path: Path, *, everything: bool) -> None:
        """Write the spots that are shown, in the table's order, or all of them, as CSV."""
        spots = self._spots
        if self._run is not None or spots.layer is None:
            return
        rows = np.arange(len(spots.shown)) if everything else self._table.spots_model.rows
        known = attributes_of(spots.layer)
        job = CsvJob(path, spots.layer.data, known, tuple(spots.columns), spots.units, rows)
        self._run = CsvRun(job, self)
        self._run.progressed.connect(self._on_progress)
        self._run.done.connect(self._on_saved)
        self._run.failed.connect(self._on_failed)
        self.progress.setRange(0, max(len(rows), 1))
        self.progress.setValue(0)
        self.setCurrentIndex(1)
        self._run.start()

    def cancel(self) -> None:
        """Stop writing, unless it is too late; whatever had the file's name is as it was."""
        if self._run is not None and self._run.cancel_in_time():
            name = self._end().path.name
            self.said.emit(f"Cancelled; {name} was not written.")
            self.finished.emit()

    def unbind(self) -> None:
        """Stop all work; done when the widget closes."""
        self._copying.drop()
        self.cancel()

    def show_rows(self) -> None:
        """Offer what there is."""
        some = self._spots.layer is not None
        self.copy_button.setEnabled(some)
        self.save_button.setEnabled(some)

    def _ask_where(self, *, everything: bool) -> None:
        layer = self._spots.layer
        if layer is None:
            return
        name = f"{layer.name}.spots.csv".replace("/", "-")
        path, _ = QFileDialog.getSaveFileName(self, "Save spots", name, "CSV (*.csv)")
        if path:
            place = Path(path)
            named = place if place.suffix else place.with_name(f"{place.name}.spots.csv")
            self.save_to(named, everything=everything)

    def _on_copied(self, copied: tuple[str, int]) -> None:
        text, count = copied
        clipboard = QApplication.clipboard()
        if clipboard is not None:
            clipboard.setText(text)
            self.said.emit(f"{number(count)} spot{'' if count == 1 else 's'} copied.")

    def _on_progress(self, done: int, total: int) -> None:
        self.progress.setValue(done)

    def _on_saved(self) -> None:
        job = self._end()
        count = len(job.rows)
        if count == len(job.data) and job.path.name.lower().endswith(".spots.csv"):
            drop_kept(job.attributes["metadata"])
        self.said.emit(f"{number(count)} spot{'' if count == 1 else 's'} saved as {job.path}")
        self.finished.emit()

    def _on_failed(self, error: Exception) -> None:
        job = self._end()
        self.failed.emit(f"{job.path} was not written: {error}. Choose another place.")
        self.finished.emit()

    def _end(self) -> CsvJob:
        assert self._run is not None
        job, self._run = self._run.job, None
        self.setCurrentIndex(0)
        return job

    def _lay_out(self) -> None:
        self.setStyleSheet(_LOW_BUTTONS)
        self.copy_button.setToolTip(_COPY_TIP)
        self.save_button.setToolTip(_SAVE_TIP)
        self.save_button.setMenu(self.menu)
        self.cancel_button.setToolTip("<p>Stop writing; no unfinished file is left.</p>")
        self.progress.setFormat("Saving… %p %")
        self.progress.setAccessibleName("Progress of saving")
        for widgets in (
            (self.copy_button, self.save_button),
            (self.progress, self.cancel_button),
        ):
            page = QWidget()
            fill(QHBoxLayout(page), *widgets)
            self.addWidget(page)
