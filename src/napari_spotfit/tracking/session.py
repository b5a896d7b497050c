"""Track frames of a running camera in a thread, which no display slows down."""

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

#: Columns of the record of displacements.
_TIME, _Y, _X, _Z, _Y_STDERR, _X_STDERR, _Z_STDERR, _LATENCY = range(8)
#: Seconds after which a waiting thread checks whether to stop.
_LOOK = 0.05
#: Weight of a frame in the running fraction of frames in which a fiducial takes part: it is that of
#: about the last hundred.
_SHARE = 0.01


class FrameQueue:
    """A queue of frames between camera and tracker; if full, the oldest frame is dropped.

    Threads: any number may put and take.

    Parameters
    ----------
    size : int
        Largest number of waiting frames.

    Attributes
    ----------
    dropped : int
        Number of frames dropped.

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
        """Return the number of waiting frames."""
        return len(self._waiting)

    def put(self, frame: Any, at: float | None = None) -> None:
        """Add a frame and its time in seconds, without waiting."""
        arrived = time.perf_counter()
        with self._some:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append((frame, at, arrived))
            self._some.notify()

    def take(self, timeout: float) -> tuple[Any, float | None, float] | None:
        """Return the oldest frame, its time, and its time of arrival; None without one."""
        with self._some:
            if not self._waiting:
                self._some.wait(timeout)
            return self._waiting.popleft() if self._waiting else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a session at one time.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    time, y, x, z, y_stderr, x_stderr, z_stderr : ndarray of float64, shape (n,)
        Times in seconds, displacements and standard errors in pixels (z: nm), of the last frames.
    frame : array or None
        The last frame.
    last : Displacement or None
        Displacement of the last frame.
    frames, dropped, late : int
        Numbers of frames tracked, dropped, and tracked too late.
    rate : float
        Frames per second, recently.
    latency, worst : float
        Seconds from a frame's arrival to its displacement: recent median, and largest.
    taking_part : ndarray of float64, shape (fiducials,)
        Fraction of about the last hundred frames in which each fiducial was used.
    events : tuple of (float, str)
        Events, with the time of the frame before.
    correction : str
        State and reason of the last correction; empty without a controller.
    error : str
        Why the session has ended, or an error of the log; empty otherwise.

    Examples
    --------
    >>> from napari_spotfit import FrameQueue, Tracker, TrackingSession, simulate_movie
    >>> movie, truth = simulate_movie(1, shape=(64, 64), spots_per_frame=4, photons=5000, seed=3)
    >>> queue = FrameQueue()
    >>> queue.put(movie[0], 0.0)
    >>> session = TrackingSession(queue, Tracker(sigma=1.3))
    >>> session.start()
    >>> session.finish()
    >>> seen = session.snapshot()
    >>> seen.frames, seen.last.used, seen.error
    (1, 4, '')
    """

    time: NDArray[np.float64]
    y: NDArray[np.float64]
    x: NDArray[np.float64]
    z: NDArray[np.float64]
    y_stderr: NDArray[np.float64]
    x_stderr: NDArray[np.float64]
    z_stderr: NDArray[np.float64]
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
        """Return a table of the last frames with the columns of a log, and events."""
        import pandas as pd

        names = ["time", "y", "x", "y_stderr", "x_stderr"]
        if np.isfinite(self.z).any():
            names += ["z", "z_stderr"]
        table = pd.DataFrame({name: getattr(self, name) for name in names}).assign(event="")
        for at, event in self.events:
            for row in table.index[table.time == at]:
                earlier = table.loc[row, "event"]
                table.loc[row, "event"] = f"{earlier}; {event}" if earlier else event
        return table


class TrackingSession:
    """Tracks the frames of a queue in its own thread.

    Threads: only its own thread uses tracker, controller and log while it runs; its methods may be
    called from any thread.

    Parameters
    ----------
    queue : FrameQueue
        The queue into which a camera puts its frames.
    tracker : Tracker
        The tracker; closed at the end.
    controller : Controller, optional
        The controller of a stage, which moves once it is armed.
    log : TrackingLog, optional
        The log; closed at the end.
    late_after : float
        Seconds from arrival to displacement above which a frame counts as late.
    kept : int
        Number of displacements for :meth:`snapshot`.

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
        # Twice as long as a snapshot, so that no row is overwritten while it is copied.
        self._record = np.full((2 * kept, _LATENCY + 1), np.nan)
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
        """Whether the thread tracks or waits for frames."""
        return self._thread.is_alive()

    @property
    def paused(self) -> bool:
        """Whether frames are discarded without tracking, and the stage is held."""
        return self._paused.is_set()

    def start(self) -> None:
        """Start tracking."""
        self._thread.start()

    def pause(self, on: bool = True) -> None:
        """Pause tracking, or resume it."""
        if on:
            self._paused.set()
        else:
            self._paused.clear()

    def mark(self, event: str) -> None:
        """Mark an event at the next frame."""
        self._marks.append(event)

    def calibrate(
        self,
        stage: Stage,
        *,
        step: float = 0.2,
        repeats: int = 3,
        rest: float = 0.2,
        z: bool = True,
    ) -> StageCalibration:
        """Calibrate a stage while frames arrive, by moving it back and forth.

        Parameters
        ----------
        stage : Stage
            An object with ``move_by(dy, dx, dz)``, in micrometres; it returns to its start.
        step, repeats, z
            As in :func:`~napari_spotfit.calibrate_stage`.
        rest : float
            Seconds to wait for the stage to rest, and then to average frames.

        Returns
        -------
        StageCalibration
            The matrix by least squares, with its standard errors.

        Raises
        ------
        RuntimeError
            If the controller is armed, tracking ends, no frame yields a displacement, or moves
            vanish in the noise.
        """
        if self.controller is not None and self.controller.armed:
            raise RuntimeError("the stage is armed, and moves against the drift: disarm it")
        axes = _Z - _Y + (z and self._tracker.measures_z)
        return calibrate_with(stage, lambda: self._at_rest(rest, axes), step, repeats)

    def _at_rest(self, rest: float, axes: int) -> NDArray[np.float64]:
        """Return the displacement y, x in pixels (z in nm), averaged once the stage rests."""
        self._wait(rest)
        first = self._count
        self._wait(rest)
        rows = np.arange(first, self._count) % len(self._record)
        places = self._record[rows, _Y : _Y + axes]
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
        """Disarm the controller, stop after the current frame, and close tracker and log.

        Closing a long log takes seconds; without `wait`, ``running`` is False once that is done.
        """
        self._stopping.set()
        if self.controller is not None:
            self.controller.disarm()
        if wait:
            self._join()

    def finish(self) -> None:
        """Track the waiting frames, then stop."""
        self._finishing.set()
        self._join()

    def snapshot(self) -> Snapshot:
        """Return the current state, without delaying the tracking."""
        count = self._count
        rows = np.arange(max(count - self._kept, 0), count) % len(self._record)
        record = self._record[rows]
        recent = record[-1000:]
        latency = float(np.median(recent[:, _LATENCY])) if len(recent) else 0.0
        passed = recent[-1, _TIME] - recent[0, _TIME] if len(recent) > 1 else 0.0
        return Snapshot(
            record[:, _TIME], record[:, _Y], record[:, _X], record[:, _Z],
            record[:, _Y_STDERR], record[:, _X_STDERR], record[:, _Z_STDERR],
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
        place, errors = (
            (found.y, found.x, found.z),
            (found.y_stderr, found.x_stderr, found.z_stderr),
        )
        row = found.time, *place, *errors, latency
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
            except OSError as error:  # the log keeps its rows, and tries again
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
