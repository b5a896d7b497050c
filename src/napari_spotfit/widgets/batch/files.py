"""The files of a batch: their run in the background, their table, and the first frames of each."""

from __future__ import annotations

import html
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem

from ...batch.outcome import FAILED, RUNNING, Outcome
from ...batch.request import Batch, images_of
from ...batch.run import run_batch
from ...images.files.opening import open_image
from ...results.saving import load_fits
from ...results.spot_fits import SpotFits
from ..layers.history import history_of
from ..layers.points import layer_name, make_points_layer, points_arguments
from ..parts.layout import explain, show_whole_rows
from ..parts.messages import in_words, number
from ..parts.work import Steps, Work

if TYPE_CHECKING:
    from napari import Viewer

_TIP = (
    "<p>A row for each image: how far it is, and how many spots it has. The tip of a row has more. "
    "A double click, or Enter, opens the first frames of an image with its spots.</p>"
)
#: The columns and what they mean.
_COLUMNS = {
    "file": "The image.",
    "state": "How far it is. A kept table was completed before, from the same input.",
    "spots": "How many spots were found.",
    "good": "How many of them no flag rules out.",
    "frames": "How many frames are done.",
}
#: Frames along the first axis that are opened at most, and bytes.
_FRAMES, _BYTES = 100, 256 << 20


class FilesTable(QTableWidget):
    """A row for each file of a batch."""

    #: The outcome of a file to open.
    open_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__(0, len(_COLUMNS))
        self._outcomes: list[Outcome] = []
        self._rows: dict[str, int] = {}
        self.setHorizontalHeaderLabels(list(_COLUMNS))
        for place, meaning in enumerate(_COLUMNS.values()):
            item = self.horizontalHeaderItem(place)
            assert item is not None
            item.setToolTip(meaning)
        explain(self, "Files", _TIP)
        show_whole_rows(self, 22)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setWordWrap(False)
        titles = self.horizontalHeader()
        assert titles is not None
        titles.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        titles.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.activated.connect(lambda index: self.open_requested.emit(self._outcomes[index.row()]))

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each file so far."""
        return list(self._outcomes)

    def show_files(self, outcomes: Sequence[Outcome]) -> None:
        """List files."""
        self._outcomes, self._rows = list(outcomes), {}
        self.setRowCount(len(outcomes))
        for row, outcome in enumerate(outcomes):
            self._rows[outcome.file] = row
            self._fill(row, outcome)

    def put(self, outcome: Outcome) -> None:
        """Show the new outcome of a file."""
        if (row := self._rows.get(outcome.file)) is not None:
            self._outcomes[row] = outcome
            self._fill(row, outcome)

    def _fill(self, row: int, outcome: Outcome) -> None:
        tip = _tooltip(outcome)
        for column, text in enumerate(_texts(outcome)):
            item = self.item(row, column)
            if item is None:
                item = QTableWidgetItem()
                if column > 1:
                    item.setTextAlignment(
                        Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                    )
                self.setItem(row, column, item)
            item.setText(text)
            item.setToolTip(tip)


def _texts(outcome: Outcome) -> tuple[str, ...]:
    """Return the texts of a row."""
    state = outcome.state
    if state == RUNNING and outcome.frames_in_all:
        state = f"{outcome.frames / outcome.frames_in_all:.0%}"
    elif state == FAILED:
        state = "⚠ failed"
    elif outcome.warnings:
        state = f"{state} ⚠"
    name = outcome.file.rpartition("/")[2]
    if not outcome.frames:
        return name, state, "", "", ""
    return name, state, *map(number, (outcome.spots, outcome.good, outcome.frames))


def _tooltip(outcome: Outcome) -> str:
    """Return the tooltip of a file: paths, warnings, settings."""
    said = (in_words(one) for one in (outcome.error, *outcome.warnings) if one)
    lines = [outcome.file, *said]
    if outcome.output:
        lines.append(f"Spots: {outcome.output}")
    if outcome.cells:
        lines.append(f"Cells: {outcome.cells}")
    if outcome.frames:
        lines.append(f"{number(round(outcome.rate))} frames/s, with reading and writing")
    if outcome.sigma is not None:
        lines.append(f"σ {outcome.sigma:.4g} px, ROI {outcome.roi_size} px, {outcome.backend}")
    return "".join(f"<p>{html.escape(one)}</p>" for one in lines if one)


class BatchRun(Work):
    """A batch in the background, which can be stopped: completed tables, and parts, are kept.

    Parameters
    ----------
    batch : Batch
        The request.
    parent : QObject
        Qt parent; when it goes, the batch is stopped.
    """

    #: The files that are fitted.
    begun = Signal(object)
    #: A copy of the outcome of a file, whenever it changes.
    updated = Signal(object)

    def __init__(self, batch: Batch, parent: QObject):
        super().__init__(self._run, parent)
        self._batch, self._stopping = batch, threading.Event()
        self.destroyed.connect(self._stopping.set)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stop after the frames in hand; the outcomes follow as usual."""
        self._stopping.set()

    def _run(self) -> Steps:
        yield 0, 1
        # Each file is checked whether it belongs to the data set of another one: this takes time.
        batch = images_of(self._batch)
        self.begun.emit(list(batch.files))
        return run_batch(batch, self._report, self._stopping.is_set)

    def _report(self, outcome: Outcome) -> None:
        # A copy: other threads go on to change it.
        self.updated.emit(replace(outcome, warnings=list(outcome.warnings)))


class FirstFrames(NamedTuple):
    """The arguments of layers."""

    name: str
    image: NDArray[Any]
    #: How many along the first axis there are in all.
    total: int
    #: Of a layer of points; None where there are no spots.
    points: dict[str, Any] | None


def read_first_frames(outcome: Outcome) -> Steps:
    """Read the first frames of a file and their spots, in a worker thread."""
    yield 0, 1
    path = Path(outcome.file)
    image = open_image(path)
    total, count = (image.shape[0] if image.ndim > 2 else 1), 1
    if image.ndim > 2:
        each = math.prod(image.shape[1:]) * image.dtype.itemsize
        count = max(min(_FRAMES, total, _BYTES // each), 1)
    pixels = np.asarray(image[:count] if image.ndim > 2 else image)
    points = None
    if outcome.output:
        fits = _of_file(load_fits(outcome.output), outcome.file)
        if image.ndim > 2:
            fits = fits[fits.columns[fits.index_names[0]] < count]
        if len(fits):
            points = points_arguments(fits)
    return FirstFrames(path.name, pixels, total, points)


def show_first_frames(viewer: Viewer, found: FirstFrames) -> str:
    """Add the layers; return a sentence on them."""
    layer = viewer.add_image(found.image, name=found.name)
    spots = 0
    if found.points is not None:
        history_of(viewer)  # so that changes can be undone
        points = make_points_layer(found.points, layer, layer_name(layer))
        viewer.add_layer(points)
        spots = len(points.data)
    which = ""
    if found.image.ndim > 2:
        viewer.dims.set_current_step(0, 0)
        count = len(found.image)
        which = f", all {count} frames" if count == found.total else (
            f", the first {count} of {found.total} frames"
        )  # fmt: skip
    return f"“{found.name}”{which}, with {number(spots)} spots"


def _of_file(fits: SpotFits, file: str) -> SpotFits:
    """Return the spots of one file, of a table that has those of several."""
    if "file" not in fits.columns:
        return fits
    own = fits[np.asarray(fits.columns["file"]) == file]
    columns = {name: values for name, values in own.columns.items() if name != "file"}
    return own.with_columns(columns)
