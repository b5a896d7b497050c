"""The page "Files" of *Fit spots*: folders of images, fitted one after the other."""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QHBoxLayout, QHeaderView, QVBoxLayout, QWidget

from ..batch.request import DONE, FAILED, KEPT, RUNNING, STOPPED, WAITING, Batch, Outcome, images_of
from ..batch.run import run_batch
from ..images.files.opening import open_image
from ..results.saving import load_fits
from ..results.spot_fits import SpotFits
from .fit_files_form import BatchForm
from .layers.history import history_of
from .layers.points import layer_name, make_points_layer, points_arguments
from .parts import remember
from .parts.docking import Follower
from .parts.layout import Scrolled, TextTable, button, explain, fill
from .parts.messages import StatusLine, in_words, number, time_left
from .parts.work import Latest, Steps, Work

if TYPE_CHECKING:
    from napari import Viewer

_KEPT_NAME = "fit_files"
_FIT_TIP = (
    "<p>Find and fit the spots of all images, and write their tables. A file that cannot be read "
    "is named, and the others are fitted. Complete tables of the same fits are kept.</p>"
)
_CANCEL_TIP = (
    "<p>Stop after the current frames. What is done is kept: <b>Fit</b> resumes from there.</p>"
)


class FilesPage(QWidget):
    """Fits many image files in the background and writes tables of their spots.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer, in which results are opened.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self.form = BatchForm(self._viewer, self)
        self.table, self.status = FilesTable(), StatusLine()
        self._layers = Follower(self.form.refresh)
        self.fit_button = button("Fit", _FIT_TIP, self.start)
        self.cancel_button = button("Cancel", _CANCEL_TIP, self.cancel)
        self._run: BatchRun | None = None
        self._opening = Latest(self, self._on_read, self._fail)
        self._begun = 0.0
        self.form.put(remember.load(_KEPT_NAME))
        self.table.open_requested.connect(self._on_open_requested)
        self.form.settings_button.clicked.connect(lambda: self._on_settings())
        buttons = fill(QHBoxLayout(), (self.fit_button, 1), (self.cancel_button, 1))
        form: Any = Scrolled(self.form.container.native, least=80)
        fill(QVBoxLayout(self), form, buttons, (self.table, 1), self.status, spacing=4)
        self._allow()

    @property
    def running(self) -> bool:
        """Whether a batch runs."""
        return self._run is not None

    def bind(self) -> None:
        """List the results in the viewer as settings, and follow them."""
        events = self._viewer.layers.events
        self._layers.follow(events.inserted, events.removed)
        self.form.refresh()

    def unbind(self) -> None:
        """Stop what runs, and leave no callback behind; finished files are kept."""
        self._layers.follow()
        if self._run is not None:
            self._run.stop()
        self._opening.drop()

    def start(self) -> None:
        """Fit the files of the form."""
        if self._run is not None:
            return
        try:
            batch = self.form.batch()
        except (ImportError, OSError, ValueError) as error:
            self._fail(error)
            return
        remember.save(_KEPT_NAME, self.form.values())
        self._begin(batch)

    def cancel(self) -> None:
        """Ask the batch to stop."""
        if self._run is not None:
            self._run.stop()
            self.status.say("Stopping after the current frames…")
            self._allow()

    def _begin(self, batch: Batch) -> None:
        self._run, self._begun = BatchRun(batch, self), time.perf_counter()
        self._run.begun.connect(self._on_begun)
        self._run.updated.connect(self._on_updated)
        self._run.done.connect(self._on_done)
        self._run.failed.connect(self._on_failed)
        self._run.start()
        self._allow()
        self._on_begun(batch.files)

    def _on_begun(self, files: Sequence[Path]) -> None:
        self.table.show_files([Outcome(file.as_posix()) for file in files])
        if self._run is not None and not self._run.stopping:
            self.status.say(f"0 of {number(len(files))} files are done")

    def _on_updated(self, outcome: Outcome) -> None:
        self.table.put(outcome)
        if self._run is not None and not self._run.stopping:
            self.status.say(self._progress())

    def _on_done(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.table.put(outcome)
        stopped = self._run is not None and self._run.stopping
        self._end()
        counts = {state: sum(one.state == state for one in outcomes) for state in _WORDS}
        states = ", ".join(f"{n} {_WORDS[state]}" for state, n in counts.items() if n)
        spots, frames = _sums(outcomes)
        text = f"{states}; {number(spots)} spots in {number(frames)} frames"
        text += f", {time.perf_counter() - self._begun:.1f}\u202fs"
        failed = [one for one in outcomes if one.state == FAILED]
        if stopped:
            text += ". Fit resumes from there"
        if failed:
            self.status.fail(f"{text}. {in_words(failed[0].error)}")
        else:
            self.status.say(text)

    def _on_failed(self, error: Exception) -> None:
        self._end()
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.status.fail(in_words(error))

    def _end(self) -> None:
        if self._run is not None:
            self._run.deleteLater()
        self._run = None
        self._allow()

    def _progress(self) -> str:
        """Return how many files are done, and how long the others take."""
        outcomes = self.table.outcomes
        ended = [one for one in outcomes if one.state in (DONE, KEPT, FAILED)]
        spots, frames = _sums(outcomes)
        seconds = time.perf_counter() - self._begun
        done = sum(one.state in (DONE, FAILED) for one in outcomes)
        worked = len(outcomes) - sum(one.state == KEPT for one in outcomes)
        text = f"{number(len(ended))} of {number(len(outcomes))} files are done"
        text += f"; {number(spots)} spots in {number(frames)} frames"
        left = time_left(done, worked, seconds)
        return f"{text}; {left}" if left else text

    def _on_open_requested(self, outcome: Outcome) -> None:
        """Open the first frames of a file."""
        self._opening.drop()
        self._opening.ask(partial(read_first_frames, outcome))

    def _on_read(self, found: FirstFrames) -> None:
        self.status.say(f"Opened {show_first_frames(self._viewer, found)}")

    def _on_settings(self) -> None:
        try:
            self.form.ask_settings()
        except (ImportError, OSError, ValueError) as error:
            self._fail(error)

    def _allow(self) -> None:
        self.form.container.enabled = self._run is None
        self.fit_button.setEnabled(self._run is None)
        self.cancel_button.setEnabled(self._run is not None and not self._run.stopping)


#: How the states of files are counted in words.
_WORDS = {
    DONE: "done", KEPT: "kept from before", FAILED: "failed", STOPPED: "stopped",
    WAITING: "not begun",
}  # fmt: skip


def _sums(outcomes: list[Outcome]) -> tuple[int, int]:
    """Return how many spots and frames files have together."""
    return sum(one.spots for one in outcomes), sum(one.frames for one in outcomes)


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


class FilesTable(TextTable):
    """A row for each file of a batch."""

    #: The outcome of a file to open.
    open_requested = Signal(object)

    def __init__(self) -> None:
        super().__init__(_COLUMNS)
        self._outcomes: list[Outcome] = []
        self._rows: dict[str, int] = {}
        explain(self, "Files", _TIP)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setWordWrap(False)
        self.heading.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.heading.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.activated.connect(lambda index: self.open_requested.emit(self._outcomes[index.row()]))

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each file so far."""
        return list(self._outcomes)

    def show_files(self, outcomes: Sequence[Outcome]) -> None:
        """List files."""
        self._outcomes = list(outcomes)
        self._rows = {outcome.file: row for row, outcome in enumerate(outcomes)}
        self.setRowCount(len(outcomes))
        for outcome in outcomes:
            self.put(outcome)

    def put(self, outcome: Outcome) -> None:
        """Show the new outcome of a file."""
        if (row := self._rows.get(outcome.file)) is not None:
            self._outcomes[row] = outcome
            self.put_texts(row, _texts(outcome), left=2)
            for column in range(self.columnCount()):
                if (item := self.item(row, column)) is not None:
                    item.setToolTip(_tooltip(outcome))


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
        """Stop after the current frames; the outcomes follow as usual."""
        self._stopping.set()

    def _run(self) -> Steps:
        yield 0, 1
        # Each file is checked whether it belongs to the data set of another one: this takes time.
        batch = images_of(self._batch)
        self.begun.emit(list(batch.files))
        return run_batch(batch, self._report, self._stopping.is_set)

    def _report(self, outcome: Outcome) -> None:
        # A copy: other threads change it further.
        self.updated.emit(replace(outcome, warnings=list(outcome.warnings)))


class FirstFrames(NamedTuple):
    """The arguments of layers."""

    name: str
    image: NDArray[Any]
    #: How many along the first axis there are in all.
    total: int
    #: Of a layer of points; None where there are no spots.
    points: dict[str, Any] | None


def read_first_frames(outcome: Outcome) -> FirstFrames:
    """Read the first frames of a file and their spots, in a worker thread."""
    path = Path(outcome.file)
    image, points = open_image(path), None
    movie, total, count = image.ndim > 2, 1, 1
    if movie:
        total, each = image.shape[0], math.prod(image.shape[1:]) * image.dtype.itemsize
        count = max(min(_FRAMES, total, _BYTES // each), 1)
    pixels = np.asarray(image[:count] if movie else image)
    if outcome.output:
        fits = _of_file(load_fits(outcome.output), outcome.file)
        if movie:
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
