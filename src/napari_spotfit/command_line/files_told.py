"""What ``localize`` says of its files while they are worked on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from ..batch.outcome import DONE, FAILED, KEPT, RUNNING, STOPPED, Outcome
from .telling import QUIET, USUAL, VERBOSE, progress, say


class FilesTold:
    """Says what is new of each file, in sentences and, for one file at a time, a progress bar.

    Parameters
    ----------
    level : int
        How much to say.
    bars : bool
        Whether there are progress bars.
    """

    def __init__(self, level: int, *, bars: bool) -> None:
        self._level, self._bars = level, bars
        self._lock = threading.Lock()
        #: Sentences that were said of each file.
        self._said: dict[str, list[str]] = {}
        self._shown, self._bar = "", ExitStack()
        self._show: Callable[[int, int], None] | None = None

    def __enter__(self) -> FilesTold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def __call__(self, outcome: Outcome) -> None:
        """Say what is new of a file."""
        with self._lock:
            if outcome.state == RUNNING:
                self._show_progress(outcome)
            elif outcome.file == self._shown:
                self._end_bar()
            if outcome.parts_before and outcome.state == RUNNING:
                there = f"{outcome.file}: an earlier run has left {outcome.parts_before} parts"
                self._say(outcome, there, USUAL)
            for warning in list(outcome.warnings):
                self._say(outcome, f"{outcome.file}: {warning}", USUAL)
            if outcome.state == FAILED:
                done = f"; {outcome.frames} frames before it were fitted" if outcome.frames else ""
                self._say(outcome, f"{outcome.error}{done}", QUIET)
            elif outcome.state in (DONE, KEPT, STOPPED):
                self._say(outcome, in_words(outcome, verbose=self._level >= VERBOSE), USUAL)

    def _say(self, outcome: Outcome, text: str, least: int) -> None:
        said = self._said.setdefault(outcome.file, [])
        if text not in said:
            said.append(text)
            say(text, self._level, least)

    def _show_progress(self, outcome: Outcome) -> None:
        if not self._bars:
            return
        if outcome.file != self._shown:
            self._end_bar()
            self._shown = outcome.file
            self._show = self._bar.enter_context(progress(outcome.file, self._level))
        if self._show is not None and outcome.frames_in_all:
            self._show(outcome.frames, outcome.frames_in_all)

    def _end_bar(self) -> None:
        self._bar.close()
        self._shown, self._show = "", None


def in_words(outcome: Outcome, *, verbose: bool = False) -> str:
    """Say what became of a file."""
    share = outcome.good / max(outcome.spots, 1)
    spots, frames = _counted(outcome.spots, "spot"), _counted(outcome.frames, "frame")
    found = f"{spots} ({share:.0%} good) in {frames}"
    if outcome.state == KEPT:
        return f"{outcome.file}: {found}, kept from an earlier run"
    more = ""
    if verbose:
        more = f"; σ {outcome.sigma} px, ROI {outcome.roi_size} px, {outcome.backend}"
    return f"{outcome.file}: {found}, {outcome.seconds:.1f} s, {outcome.rate:.0f} frames/s{more}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
