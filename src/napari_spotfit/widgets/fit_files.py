"""The page "Files" of *Fit spots*: folders of images, fitted one after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from ..batch.outcome import DONE, FAILED, KEPT, STOPPED, WAITING, Outcome
from .batch.files import BatchRun, FilesTable, FirstFrames, read_first_frames, show_first_frames
from .batch.form import BatchForm
from .parts import remember
from .parts.docking import Follower
from .parts.layout import Scrolled, explain, fill
from .parts.messages import StatusLine, in_words, number, time_left
from .parts.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import napari

    from ..batch.request import Batch

_KEPT_NAME = "fit_files"
_FIT_TIP = (
    "<p>Find and fit the spots of all images, and write their tables. A file that cannot be read "
    "is named, and the others go on. Complete tables of the same are kept.</p>"
)
_CANCEL_TIP = (
    "<p>Stop after the frames in hand. What is done is kept: <b>Fit</b> goes on from there.</p>"
)


class FilesPage(QWidget):
    """Fits many image files in the background and writes tables of their spots.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer, in which results are opened.
    """

    def __init__(self, viewer: napari.Viewer):
        super().__init__()
        self._viewer = viewer
        self.form = BatchForm(self._viewer, self)
        self.table, self.status = FilesTable(), StatusLine()
        self._layers = Follower(self.form.refresh)
        self.fit_button, self.cancel_button = QPushButton("Fit"), QPushButton("Cancel")
        self._run: BatchRun | None = None
        self._opening: Work | None = None
        self._begun = 0.0
        self.form.put(remember.load(_KEPT_NAME))
        self._lay_out()
        self._connect()
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
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    def start(self) -> None:
        """Fit the files of the form."""
        if self._run is not None:
            return
        try:
            batch = self.form.batch()
        except (ImportError, OSError, ValueError) as error:
            self.status.fail(in_words(error))
            return
        remember.save(_KEPT_NAME, self.form.values())
        self._begin(batch)

    def cancel(self) -> None:
        """Ask the batch to stop."""
        if self._run is not None:
            self._run.stop()
            self.status.say("Stopping after the frames in hand…")
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
        text += f", {time.perf_counter() - self._begun:.1f} s"
        failed = [one for one in outcomes if one.state == FAILED]
        if stopped:
            text += ". Fit goes on from there"
        if failed:
            self.status.fail(f"{text}. {in_words(failed[0].error)}")
        else:
            self.status.say(text)

    def _on_failed(self, error: Exception) -> None:
        self._end()
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
        if self._opening is not None:
            self._opening.cancel()
        self._opening = Work(lambda: read_first_frames(outcome), self)
        self._opening.done.connect(self._on_read)
        self._opening.failed.connect(lambda error: self.status.fail(in_words(error)))
        self._opening.start()

    def _on_read(self, found: FirstFrames) -> None:
        self._opening = None
        self.status.say(f"Opened {show_first_frames(self._viewer, found)}")

    def _on_settings(self) -> None:
        try:
            self.form.ask_settings()
        except (ImportError, OSError, ValueError) as error:
            self.status.fail(in_words(error))

    def _allow(self) -> None:
        running = self._run is not None
        self.form.allow(not running)
        self.fit_button.setEnabled(not running)
        self.cancel_button.setEnabled(running and self._run is not None and not self._run.stopping)

    def _connect(self) -> None:
        self.fit_button.clicked.connect(lambda: self.start())
        self.cancel_button.clicked.connect(lambda: self.cancel())
        self.table.open_requested.connect(self._on_open_requested)
        self.form.settings_button.clicked.connect(lambda: self._on_settings())

    def _lay_out(self) -> None:
        explain(self.fit_button, "Fit", _FIT_TIP)
        explain(self.cancel_button, "Cancel", _CANCEL_TIP)
        buttons = fill(QHBoxLayout(), (self.fit_button, 1), (self.cancel_button, 1))
        form: Any = Scrolled(self.form.container.native, least=80)
        fill(QVBoxLayout(self), form, buttons, (self.table, 1), self.status, spacing=4)


#: How the states of files are counted in words.
_WORDS = {
    DONE: "done", KEPT: "kept from before", FAILED: "failed", STOPPED: "stopped",
    WAITING: "not begun",
}  # fmt: skip


def _sums(outcomes: list[Outcome]) -> tuple[int, int]:
    """Return how many spots and frames files have together."""
    return sum(one.spots for one in outcomes), sum(one.frames for one in outcomes)
