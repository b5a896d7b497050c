"""Tracking while a camera runs, in a thread of its own that no display slows down."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .controller import Controller
from .displacement import Displacement, Health
from .log import TrackingLog
from .stage import Stage, StageCalibration, calibrate_with
from .tracker import Tracker

if TYPE_CHECKING:
    import pandas as pd

#: Columns of the record.
_TIME, _Y, _X, _Y_STDERR, _X_STDERR, _LATENCY = range(6)
#: Seconds after which a waiting thread checks whether to stop.
_LOOK = 0.05
#: How much a frame counts in the share of frames in which a fiducial takes part.
_SHARE = 0.01


class FrameQueue:
    """Frames between a camera and the tracking; the oldest are dropped and counted.

    Threads: any number may put and take.

    Parameters
    ----------
    size : int
        How many may wait.

    Attributes
    ----------
    dropped : int
        How many were dropped as others came.

    Examples
    --------
    >>> queue = FrameQueue(size=2)
    >>> for number in range(3):
    ...     queue.put(np.full((4, 4), number), number / 10)
    >>> queue.dropped, queue.take(timeout=0)[1]
    (1, 0.1)
    """

    def __init__(self, size: int = 64) -> None:
        self._waiting: deque[tuple[Any, float | None, float]] = deque(maxlen=size)
        self._some = threading.Condition()
        self.dropped = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def put(self, frame: Any, at: float | None = None) -> None:
        """Add a frame and when it was taken, in seconds; never waits for the tracking."""
        arrived = time.perf_counter()
        with self._some:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append((frame, at, arrived))
            self._some.notify()

    def take(self, timeout: float) -> tuple[Any, float | None, float] | None:
        """Return the oldest frame, its time, and when it arrived; None if there is none."""
        with self._some:
            if not self._waiting:
                self._some.wait(timeout)
            return self._waiting.popleft() if self._waiting else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a session so far.

    Threads: it does not change, so that any number may use one.

    Attributes
    ----------
    time, y, x, y_stderr, x_stderr : ndarray of float64, shape (n,)
        Seconds, displacements and standard errors in pixels, of the last frames.
    frame : array or None
        The last frame.
    last : Displacement or None
        Of the last frame.
    frames, dropped, late : int
        Frames tracked, dropped as others came, and answered later than allowed.
    rate : float
        Frames a second, of the last ones.
    latency, worst : float
        Seconds from a frame's arrival to its displacement: median of the last ones, and the most.
    taking_part : ndarray of float64, shape (fiducials,)
        In which share of the last hundred frames or so each fiducial took part.
    events : tuple of (float, str)
        Marks, with the time of the frame before.
    correction : str
        State and reason of the last correction; empty without a controller.
    error : str
        Why the session has ended, or an error of the log; else empty.
    """

    time: NDArray[np.float64]
    y: NDArray[np.float64]
    x: NDArray[np.float64]
    y_stderr: NDArray[np.float64]
    x_stderr: NDArray[np.float64]
    frame: Any
    last: Displacement | None
    frames: int
    dropped: int
    late: int
    rate: float
    latency: float
    worst: float
    taking_part: NDArray[np.float64]
    events: tuple[tuple[float, str], ...]
    correction: str
    error: str

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each of the last frames, named as in a log, with events."""
        import pandas as pd

        names = ("time", "y", "x", "y_stderr", "x_stderr")
        table = pd.DataFrame({name: getattr(self, name) for name in names}).assign(event="")
        for at, event in self.events:
            for row in table.index[table.time == at]:
                earlier = table.loc[row, "event"]
                table.loc[row, "event"] = f"{earlier}; {event}" if earlier else event
        return table


class TrackingSession:
    """Tracks the frames of a queue in a thread of its own.

    Threads: it has one of its own, which alone uses tracker, controller and log while it runs; its
    methods may be called from any other.

    Parameters
    ----------
    queue : FrameQueue
        Where a camera puts its frames.
    tracker : Tracker
        What follows the fiducials; closed at the end.
    controller : Controller, optional
        What moves a stage, once it is armed.
    log : TrackingLog, optional
        Where everything is kept; closed at the end.
    late_after : float
        Seconds after a frame's arrival from which its displacement counts as late.
    kept : int
        How many displacements are kept for :meth:`snapshot`.

    Examples
    --------
    >>> from napari_spotfit import SimulatedMicroscope
    >>> scope, queue = SimulatedMicroscope(4, (96, 96), drift=(0.0, 0.1)), FrameQueue()
    >>> for at, frame in scope.frames(rate=10, count=20):
    ...     queue.put(frame, at)
    >>> session = TrackingSession(queue, Tracker(scope.fiducials, sigma=1.3))
    >>> session.start()
    >>> session.finish()
    >>> seen = session.snapshot()
    >>> seen.frames, seen.dropped, round(float(seen.x[-1]), 1)
    (20, 0, 1.9)
    """

    def __init__(
        self,
        queue: FrameQueue,
        tracker: Tracker,
        *,
        controller: Controller | None = None,
        log: TrackingLog | None = None,
        late_after: float = 0.01,
        kept: int = 20_000,
    ) -> None:
        self.controller = controller
        self._queue, self._tracker, self._log = queue, tracker, log
        self._late_after, self._kept = late_after, kept
        # Twice as long as a snapshot, so that no row of one is overwritten meanwhile.
        self._record = np.full((2 * kept, 6), np.nan)
        self._count = self._late = 0
        self._worst = 0.0
        self._frame: Any = None
        self._last: Displacement | None = None
        self._taking_part = np.empty(0)
        self._events: list[tuple[float, str]] = []
        self._marks: deque[str] = deque()
        self._correction = self._error = ""
        self._paused, self._finishing = threading.Event(), threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spotfit tracking", daemon=True)

    @property
    def running(self) -> bool:
        """Whether frames are tracked, or waited for."""
        return self._thread.is_alive()

    @property
    def paused(self) -> bool:
        """Whether frames pass by untracked; the stage is held then."""
        return self._paused.is_set()

    def start(self) -> None:
        """Begin to track."""
        self._thread.start()

    def pause(self, on: bool = True) -> None:
        """Let frames pass by, or go on."""
        if on:
            self._paused.set()
        else:
            self._paused.clear()

    def mark(self, event: str) -> None:
        """Mark an event at the next frame."""
        self._marks.append(event)

    def calibrate(
        self, stage: Stage, *, step: float = 0.2, repeats: int = 3, rest: float = 0.2
    ) -> StageCalibration:
        """Measure how the image moves with a stage while frames come, by moving it back and forth.

        Parameters
        ----------
        stage : Stage
            An object with ``move_by(dy, dx, dz)``, in micrometres; it ends where it began.
        step, repeats
            As :func:`~napari_spotfit.calibrate_stage` takes them.
        rest : float
            Seconds after which the stage rests; for as long, frames are averaged then.

        Returns
        -------
        StageCalibration
            The matrix by least squares, with its standard errors.

        Raises
        ------
        RuntimeError
            If the controller is armed, the tracking ends, no frame yields a displacement, or the
            moves are lost in the noise.
        """
        if self.controller is not None and self.controller.armed:
            raise RuntimeError("the stage is armed, and is moved against the drift: disarm it")
        return calibrate_with(stage, lambda: self._at_rest(rest), step, repeats)

    def _at_rest(self, rest: float) -> NDArray[np.float64]:
        """Return y and x in pixels once the stage rests."""
        self._wait(rest)
        first = self._count
        self._wait(rest)
        rows = np.arange(first, self._count) % len(self._record)
        places = self._record[rows, _Y : _X + 1]
        places = places[np.isfinite(places).all(axis=1)]
        if not len(places):
            raise RuntimeError(
                f"no frame has yielded a displacement for {rest:g} s: the stage cannot be "
                "calibrated"
            )
        return np.asarray(places.mean(axis=0))

    def _wait(self, seconds: float) -> None:
        if self._stopping.wait(seconds) or not self.running:
            raise RuntimeError("the tracking has ended: the stage cannot be calibrated")

    def stop(self, *, wait: bool = True) -> None:
        """Disarm the controller, stop after the frame in hand, and close tracker and log.

        A long log takes seconds to close; without waiting, ``running`` is False once that is done.
        """
        self._stopping.set()
        if self.controller is not None:
            self.controller.disarm()
        if wait:
            self._join()

    def finish(self) -> None:
        """Track the frames that wait, then stop."""
        self._finishing.set()
        self._join()

    def snapshot(self) -> Snapshot:
        """Return the state so far, without making the tracking wait."""
        count = self._count
        rows = np.arange(max(count - self._kept, 0), count) % len(self._record)
        record = self._record[rows]
        recent = record[-1000:]
        latency = float(np.median(recent[:, _LATENCY])) if len(recent) else 0.0
        passed = recent[-1, _TIME] - recent[0, _TIME] if len(recent) > 1 else 0.0
        return Snapshot(
            record[:, _TIME], record[:, _Y], record[:, _X],
            record[:, _Y_STDERR], record[:, _X_STDERR],
            self._frame, self._last, count, self._queue.dropped, self._late,
            (len(recent) - 1) / float(passed) if passed > 0 else 0.0,
            latency, self._worst, self._taking_part.copy(), tuple(self._events),
            self._correction, self._error,
        )  # fmt: skip

    def _join(self) -> None:
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                taken = self._queue.take(0.0 if self._finishing.is_set() else _LOOK)
                if taken is None:
                    if self._finishing.is_set():
                        return
                elif not self._paused.is_set():
                    self._follow(*taken)
        except Exception as error:
            self._error = str(error) or type(error).__name__
        finally:
            self._end()

    def _follow(self, frame: Any, at: float | None, arrived: float) -> None:
        found = self._tracker.update(frame, arrived if at is None else at)
        done = None if self.controller is None else self.controller.step(found)
        latency = time.perf_counter() - arrived
        row = found.time, found.y, found.x, found.y_stderr, found.x_stderr, latency
        self._record[self._count % len(self._record)] = row
        self._frame, self._last = frame, found
        good = found.health == Health.GOOD
        if len(good) == len(self._taking_part):
            good = self._taking_part + _SHARE * (good - self._taking_part)
        self._taking_part = good.astype(float)
        self._late += latency > self._late_after
        self._worst = max(self._worst, latency)
        self._count += 1
        if done is not None:
            self._correction = f"{done.state}: {done.why}" if done.why else done.state
        if self._log is not None:
            try:
                self._log.add(found, done)
            except OSError as error:  # its rows are kept, and written once it can be
                self._error = str(error)
        self._take_marks(found)

    def _take_marks(self, found: Displacement) -> None:
        while self._marks:
            event = self._marks.popleft()
            self._events.append((found.time or 0.0, event))
            if self._log is not None:
                self._log.mark(event)

    def _end(self) -> None:
        if self.controller is not None:
            self.controller.disarm()
        self._tracker.close()
        if self._log is not None:
            try:
                self._log.close()
            except OSError as error:
                self._error = str(error)
