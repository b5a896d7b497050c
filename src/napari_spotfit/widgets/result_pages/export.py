"""Copy and save: spots, as CSV files that a worker thread writes, and small tables of numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QMenu,
    QProgressBar,
    QStackedWidget,
    QWidget,
)

from ...analysis.report import save_report
from ...files.csv_file import csv_parts, frame_for_spreadsheets
from ...files.table import TEXT, WORDS, SpotTable
from ...files.writing import publish, scratch, unfinished
from ...results.formatting import Units
from ...results.saving import fits_of
from ..layers.images import full_resolution, image_of
from ..parts.layout import add_action, ask_to_save, button, fill
from ..parts.messages import number
from ..parts.work import Latest, Steps, Work
from ..saved_layers import attributes_of, drop_kept, table_of_layer
from .features import Feature
from .shown_spots import ShownSpots
from .tables import SpotsTable

if TYPE_CHECKING:
    import pandas as pd
    from napari import Viewer

#: Rows that are written between two checks for cancelling.
_CHUNK = 20_000

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


#: The kinds of files to choose from; the second is for tables with texts of others.
_FOR_SPREADSHEETS = "CSV for spreadsheets, without formulas (*.csv)"
_KINDS = f"CSV (*.csv);;{_FOR_SPREADSHEETS}"


class NamedTable(NamedTuple):
    """A table and its name."""

    #: The name of its file without the ending, and what its rows are.
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

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)

    def __init__(self, table: Callable[[], NamedTable | None], what: str):
        super().__init__()
        self._table = table
        self._writing = Latest(self)
        tip = f"Copy {what}, to paste it into a spreadsheet."
        self.copy_button = button("Copy", tip, self.copy)
        self.save_button = button("Save…", f"Save {what} as a CSV file.", self._ask_where)
        fill(QHBoxLayout(self), self.copy_button, self.save_button)
        self._writing.done.connect(self.said.emit)
        self._writing.failed.connect(lambda error: self.failed.emit(str(error)))

    def copy(self) -> None:
        """Put the table on the clipboard."""
        made, clipboard = self._table(), QApplication.clipboard()
        if made is not None and clipboard is not None:
            clipboard.setText(_as_text(made.table))
            self.said.emit(f"{number(len(made.table))} {made.rows} copied.")

    def save_to(self, path: Path, *, spreadsheet: bool = False) -> None:
        """Write the table as CSV, without formulas for spreadsheets."""
        made = self._table()
        if made is not None and spreadsheet:
            made = made._replace(table=frame_for_spreadsheets(made.table))
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
        if chosen := ask_to_save(self, "Save table", made.name, ".csv", _KINDS):
            self.save_to(chosen[0], spreadsheet=chosen[1] == _FOR_SPREADSHEETS)


def _as_text(table: pd.DataFrame) -> str:
    """Return a table as text that spreadsheets take: tabs between cells, no formulas."""
    text = frame_for_spreadsheets(table).to_csv(sep="\t", index=False, lineterminator="\n")
    return str(text)


def _write(path: Path, made: NamedTable) -> str:
    """Write a table; the file takes its name when it is complete. Return what happened."""
    with unfinished(path) as part:
        made.table.to_csv(part, index=False, lineterminator="\n", encoding="utf-8")
    return f"{number(len(made.table))} {made.rows} saved as {path}"


def as_text(columns: Mapping[str, Feature], units: Units, rows: NDArray[np.intp]) -> str:
    """Return rows with a header as text that spreadsheets take."""
    import pandas as pd

    parts: dict[str, Any] = {}
    for name, column in columns.items():
        values, factor = column.values[rows], float(units.factor(name))
        if not column.is_number:
            parts[units.title(name)] = pd.Categorical.from_codes(values, list(column.words))
            continue
        # A plain number, so that single precision stays single, with its few digits.
        parts[units.title(name)] = values * factor if factor != 1 else values
        if factor == 1 and column.whole:
            with suppress(OverflowError, TypeError, ValueError):  # one is not whole
                parts[units.title(name)] = pd.Series(values).astype("Int64")
    return _as_text(pd.DataFrame(parts))


@dataclass(frozen=True, eq=False)
class SomeSpots:
    """Some spots of a layer; made on the GUI thread, used in the worker."""

    #: The layer's points, and what else is known of it.
    data: NDArray[np.float64]
    attributes: Mapping[str, Any]
    #: The columns in the order of the table, and their units.
    columns: tuple[str, ...]
    units: Units
    rows: NDArray[np.intp]

    def table(self) -> SpotTable:
        """Return the rows as a file holds them, which opens as a layer again."""
        table = table_of_layer(self.data, self.attributes, self.rows)
        names = [*self.columns, *(name for name in table.columns if name not in self.columns)]
        values, known = {}, {}
        for name in names:
            values[name], column = table.columns[name], table.about.columns[name]
            factor = self.units.factor(name)
            if factor != 1 and column.type not in (TEXT, WORDS):
                # A plain number, so that single precision stays single, with its few digits.
                values[name] = values[name] * float(factor)
                column = replace(column, type=values[name].dtype.name, factor=factor)
            known[name] = replace(column, unit=self.units.unit(name), title=self.units.title(name))
        return SpotTable(values, replace(table.about, columns=known))


class CsvRun(Work):
    """Writes a file.

    Parameters
    ----------
    path : Path
        The file.
    spots : SomeSpots
        What to write.
    spreadsheet : bool
        Whether no text may be a formula.
    parent : QObject
        Qt parent; when it goes, the run is cancelled.
    """

    def __init__(self, path: Path, spots: SomeSpots, spreadsheet: bool, parent: QObject):
        # Acquired once: by cancel, or by the worker when it gives the file its name.
        self._decision = threading.Lock()
        super().__init__(partial(_write_parts, path, spots, spreadsheet, self._decision), parent)
        self.path, self.spots, self.spreadsheet = path, spots, spreadsheet

    def cancel_in_time(self) -> bool:
        """Cancel the run and leave no file, unless it is too late.

        Returns
        -------
        bool
            False if it is too late: the file is written, and ``done`` or ``failed`` will come.
        """
        in_time = self._decision.acquire(blocking=False)
        if in_time:
            self.cancel()
        return in_time


def _write_parts(
    path: Path, spots: SomeSpots, spreadsheet: bool, decision: threading.Lock
) -> Steps:
    """Write in parts; the file takes its name when it is complete, unless that was decided against.

    If so, or if it fails or is closed before, an earlier file of that name is unchanged.
    """
    with scratch(path) as part:
        with part.open("wb") as file:
            for done in csv_parts(file, spots.table(), _CHUNK, spreadsheet):
                yield done, len(spots.rows)
        if decision.acquire(blocking=False):
            publish(part, path)


def _report(path: Path, data: Any, attributes: Mapping[str, Any], image: Any) -> str:
    """Write a report of a layer; without cut-outs if the image is not one of these spots."""
    fits, title = fits_of(table_of_layer(data, attributes)), str(attributes["name"])
    try:
        save_report(fits, path, image, title=title)
    except ValueError as error:
        if image is None:
            raise
        save_report(fits, path, title=title)
        return f"Report without cut-outs saved as {path}: {error}"
    return f"Report saved as {path}"


class ExportBar(QStackedWidget):
    """The buttons Copy and Save, and the progress while a file is written.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer, which may have the image of the spots.
    spots : ShownSpots
        The spots.
    table : SpotsTable
        Their table, whose order and selection count.
    """

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)
    #: Writing has ended, with a file or without; a message has said which.
    finished = Signal()

    def __init__(self, viewer: Viewer, spots: ShownSpots, table: SpotsTable):
        super().__init__()
        self._viewer, self._spots, self._table = viewer, spots, table
        self._run: CsvRun | None = None
        self._copying, self._reporting = Latest(self), Latest(self)
        self.copy_button = button("Copy", _COPY_TIP, self.copy)
        self.save_button, self.progress = button("Save", _SAVE_TIP), QProgressBar()
        tip = "Stop writing; no unfinished file is left."
        self.cancel_button = button("Cancel", tip, self.cancel)
        self.menu = QMenu(self)
        some, every = (partial(self._ask_where, everything=one) for one in (False, True))
        add_action(self.menu, "Spots that are shown, as CSV…", some)
        add_action(self.menu, "All spots, as CSV…", every)
        add_action(self.menu, "A report of all spots, as HTML…", self._ask_report)
        self._lay_out()
        self._copying.done.connect(self._on_copied)
        self._copying.failed.connect(lambda error: self.failed.emit(f"Not copied: {error}"))
        self._reporting.done.connect(self.said.emit)
        self._reporting.failed.connect(lambda error: self.failed.emit(f"No report: {error}"))

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

    def save_to(self, path: Path, *, everything: bool, spreadsheet: bool = False) -> None:
        """Write the spots that are shown, in the table's order, or all of them, as CSV.

        For spreadsheets nothing in it is a formula.
        """
        spots = self._spots
        if self._run is not None or spots.layer is None:
            return
        rows = np.arange(len(spots.shown)) if everything else self._table.spots_model.rows
        known = attributes_of(spots.layer)
        job = SomeSpots(spots.layer.data, known, tuple(spots.columns), spots.units, rows)
        self._run = CsvRun(path, job, spreadsheet, self)
        self._run.progressed.connect(self._on_progress)
        self._run.done.connect(self._on_saved)
        self._run.failed.connect(self._on_failed)
        self.progress.setRange(0, max(len(rows), 1))
        self.progress.setValue(0)
        self.setCurrentIndex(1)
        self._run.start()

    def report_to(self, path: Path) -> None:
        """Write a report of all spots, with cut-outs if their image is open."""
        layer = self._spots.layer
        if layer is not None:
            image = image_of(layer, self._viewer.layers)
            data = None if image is None else full_resolution(image)
            self._reporting.ask(partial(_report, path, layer.data, attributes_of(layer), data))

    def cancel(self) -> None:
        """Stop writing, unless it is too late; an earlier file of that name is unchanged."""
        if self._run is not None and self._run.cancel_in_time():
            name = self._end().path.name
            self.said.emit(f"Cancelled; {name} was not written.")
            self.finished.emit()

    def unbind(self) -> None:
        """Stop all work; done when the widget closes."""
        self._copying.drop()
        self._reporting.drop()
        self.cancel()

    def show_rows(self) -> None:
        """Enable the buttons if there is a layer."""
        some = self._spots.layer is not None
        self.copy_button.setEnabled(some)
        self.save_button.setEnabled(some)

    def _ask_where(self, *, everything: bool) -> None:
        layer = self._spots.layer
        if layer is None:
            return
        if chosen := ask_to_save(self, "Save spots", layer.name, ".spots.csv", _KINDS):
            plain = chosen[1] == _FOR_SPREADSHEETS
            self.save_to(chosen[0], everything=everything, spreadsheet=plain)

    def _ask_report(self) -> None:
        layer = self._spots.layer
        if layer is None:
            return
        if chosen := ask_to_save(self, "Save report", layer.name, ".html", "HTML (*.html)"):
            self.report_to(chosen[0])

    def _on_copied(self, copied: tuple[str, int]) -> None:
        text, count = copied
        clipboard = QApplication.clipboard()
        if clipboard is not None:
            clipboard.setText(text)
            self.said.emit(f"{number(count)} spot{'' if count == 1 else 's'} copied.")

    def _on_progress(self, done: int, total: int) -> None:
        self.progress.setValue(done)

    def _on_saved(self) -> None:
        run = self._end()
        count = len(run.spots.rows)
        is_whole = count == len(run.spots.data) and not run.spreadsheet
        if is_whole and run.path.name.lower().endswith(".spots.csv"):
            drop_kept(run.spots.attributes["metadata"])
        self.said.emit(f"{number(count)} spot{'' if count == 1 else 's'} saved as {run.path}")
        self.finished.emit()

    def _on_failed(self, error: Exception) -> None:
        path = self._end().path
        self.failed.emit(f"{path} was not written: {error}. Choose another place.")
        self.finished.emit()

    def _end(self) -> CsvRun:
        assert self._run is not None
        run, self._run = self._run, None
        self.setCurrentIndex(0)
        return run

    def _lay_out(self) -> None:
        self.setStyleSheet(_LOW_BUTTONS)
        self.save_button.setMenu(self.menu)
        self.progress.setFormat("Saving… %p %")
        self.progress.setAccessibleName("Progress of saving")
        for widgets in ((self.copy_button, self.save_button), (self.progress, self.cancel_button)):
            page = QWidget()
            fill(QHBoxLayout(page), *widgets)
            self.addWidget(page)
