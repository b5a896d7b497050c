"""The widget "Track": follow fiducials while frames come, plot the drift, hold a stage."""

from __future__ import annotations

import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QGridLayout, QHBoxLayout, QLineEdit

from ..tracking.controller import Controller
from ..tracking.session import Snapshot, TrackingSession
from ..tracking.stage import Stage, StageCalibration
from .layers.history import history_of
from .layers.points import is_result
from .layers.result_layers import can_be_subtracted, subtract
from .napari_compat import is_points
from .parts.docking import Docked, Follower
from .parts.layout import Scrolled, TwoParts, button, explain, fill
from .parts.messages import StatusLine, number
from .result_pages.export import NamedTable, TableExport
from .track_form import LiveFrames, Source, TrackForm, drift_of
from .track_plots import TrackPlots

if TYPE_CHECKING:
    import napari

#: Milliseconds between two drawings at least, and seconds between two of the spectra.
_INTERVAL, _SPECTRA = 100, 1.0
#: While Qt draws the whole window, nothing is tracked: the largest share of time for drawing; how
#: many frames may wait while it draws; and the seconds after which it draws in any case.
_SHARE, _WAITING, _LONGEST = 0.1, 4, 1.0
#: Diameter in pixels of what marks a fiducial.
_RING = 12.0
_START_TIP = "Track until it is pressed again."
_PAUSE_TIP = "Let frames pass by untracked; the stage is held."
_PICK_TIP = "Click fiducials in the image, in a new layer."
_MARK_TIP = "Write the event into the log, at the next frame."
_CORRECT_TIP = (
    "Take the drift from the layer of fitted spots that is selected, frame by frame; Ctrl+Z takes "
    "it back. After an image layer with a time axis was tracked."
)
_ARM_TIP = (
    "Let the stage move against the drift. Off until pressed. The simulated microscope has one; so "
    "has pymmcore-plus where there is an XY stage, which is "
    "first moved back and forth by 0.2 µm some times, to see how the image moves with it."
)


class Track(Docked):
    """Tracks fiducials in a thread of its own and shows by how much the sample moves.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer; napari passes it in.
    """

    title = "Track"

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, below=True)
        self.form, self.plots = TrackForm(self._viewer), TrackPlots()
        self.status, self._live = StatusLine(), LiveFrames(self._viewer)
        self._layers = Follower(self._on_layers)
        self.start_button = button("Start", _START_TIP, self._on_start, "Start or stop")
        self.pause_button = button("Pause", _PAUSE_TIP, checkable=True)
        self.pick_button = button("Pick", _PICK_TIP, self._on_pick, "Pick fiducials")
        self.mark_button = button("Mark", _MARK_TIP, self._on_mark)
        self.arm_button = button("Arm the stage", _ARM_TIP, checkable=True)
        self.event_line = QLineEdit()
        self.correct_button = button("Correct the layer", _CORRECT_TIP, self._on_correct)
        self.export = TableExport(self._named, "the displacements of the last 20,000 frames")
        #: What was seen last; None before the first start.
        self.seen: Snapshot | None = None
        self._of_layer = self._stopping = False
        #: The stage that moves back and forth.
        self._calibrating: Future[StageCalibration] | None = None
        #: The state of the stage, and why the frames have ended, as texts.
        self._of_stage = self._why_ended = ""
        self._session: TrackingSession | None = None
        self._source: Source | None = None
        # A widget that Qt or Python deletes before its dock closes leaves no stage on the move.
        self._left = ExitStack()
        # A function of this cycle would be called when the collector has emptied it: a crash.
        self.destroyed.connect(weakref.finalize(self, self._left.close))
        self._timer = QTimer(self)
        self._drawn_at = self._spectra_at = self._worked = 0.0
        self._timer.setInterval(_INTERVAL)
        self._lay_out()
        self._connect()
        self._allow()
        self.bind()

    @property
    def running(self) -> bool:
        """Whether frames are tracked, or waited for."""
        return self._session is not None

    def follow_viewer(self) -> None:
        """List the viewer's layers, and follow them."""
        events = self._viewer.layers.events
        self._layers.follow(events.inserted, events.removed)
        self.form.refresh()

    def leave_viewer(self) -> None:
        """Stop what runs, and leave no callback behind."""
        self.stop()
        self._layers.follow()

    def start(self) -> None:
        """Track with the settings of the form."""
        try:
            source, tracker = self.form.make_source(), self.form.make_tracker()
            log = self.form.make_log()
        except (ImportError, OSError, TypeError, ValueError) as error:
            self.status.fail(str(error))
            return
        self._source, self.seen = source, None
        self._of_stage = self._why_ended = ""
        self._of_layer = source.layer is not None and source.layer.ndim == 3
        self._session = TrackingSession(
            source.queue, tracker, controller=source.controller, log=log
        )
        self._left.callback(_leave, source, self._session)
        self._session.start()
        self._show_frame(source.look())  # a new layer takes a second, in which frames would wait
        source.start()
        self._spectra_at = time.perf_counter()
        self._timer.start()
        self.status.say("Waiting for the first frame…")
        self._allow()

    def stop(self) -> None:
        """Stop, wait for the log, and show what was seen to the end."""
        if self._session is None or self._source is None:
            return
        self._timer.stop()
        if not self._stopping:
            self._source.stop()
        self._session.stop()
        self._left.pop_all()
        self._stopping, self._calibrating = False, None
        self._show(self._session.snapshot(), spectra=True)
        self._session = self._source = None
        self._allow()

    def _on_timer(self) -> None:
        session = self._session
        if session is None:
            return
        if not session.running:
            self.stop()
            return
        if self._calibrating is not None and self._calibrating.done():
            self._on_calibrated(self._calibrating)
        if self._stopping or not self._has_time():
            return
        spectra = self._drawn_at - self._spectra_at > _SPECTRA
        self._spectra_at = self._drawn_at if spectra else self._spectra_at
        self._show(session.snapshot(), spectra=spectra)

    def _has_time(self) -> bool:
        """Whether to draw again; if so, from now on it counts how long that takes."""
        assert self._source is not None
        now, worked = time.perf_counter(), time.thread_time()
        passed = now - self._drawn_at
        busy = worked - self._worked > _SHARE * passed or len(self._source.queue) > _WAITING
        if busy and passed < _LONGEST:
            return False
        self._drawn_at, self._worked = now, worked
        return True

    def _show(self, seen: Snapshot, *, spectra: bool) -> None:
        self.seen, pixel_size = seen, self.form.pixel_size.value
        self.plots.show_displacement(seen, pixel_size)
        if spectra:
            self.plots.show_spectra(seen, pixel_size)
        self._show_frame(seen.frame)
        if seen.error or self._why_ended:
            self.status.fail(seen.error or self._why_ended)
        elif seen.frames:
            self.status.say(f"{_words(seen)}{self._of_stage}")

    def _show_frame(self, frame: Any) -> None:
        """Show the camera's frame, unless it is a layer already, or the viewer is left."""
        of_layer = self._source is not None and self._source.layer is not None
        if self.bound and frame is not None and not of_layer:
            self._live.show(frame)

    def _on_start(self) -> None:
        if self._session is None:
            self.start()
        else:
            self._stop_soon()

    def _stop_soon(self) -> None:
        """Stop, but do not wait for a long log: the timer sees its end."""
        if self._session is None or self._source is None or self._stopping:
            return
        self._stopping = True
        self._source.stop()
        self._session.stop(wait=False)
        self._left.pop_all()
        self.status.say("Stopping: the log is closed…")
        self._allow()

    def _on_layers(self, event: Any = None) -> None:
        """List the layers; stop if the layer that is tracked was removed."""
        layer = None if self._source is None else self._source.layer
        if layer is not None and layer not in self._viewer.layers:
            if not self._stopping:
                self._why_ended = (
                    f"“{layer.name}” was removed, so tracking has ended; "
                    "choose other frames, and Start"
                )
            self._stop_soon()
        self.form.refresh()

    def _on_pause(self, paused: bool) -> None:
        if self._session is not None:
            self._session.pause(paused)

    def _on_mark(self) -> None:
        if self._session is not None:
            self._session.mark(self.event_line.text().strip() or "event")
            self.event_line.clear()

    def _on_arm(self, armed: bool) -> None:
        source = self._source
        if source is not None and source.controller is not None:
            source.controller.arm() if armed else source.controller.disarm()
        elif source is not None and source.stage is not None and armed:
            self._calibrate(source.stage)
        moves = armed and self._calibrating is None
        red = "background: #b00020; color: white;"
        text = "ARMED: the stage moves" if moves else "Calibrating…" if armed else "Arm the stage"
        self.arm_button.setText(text)
        self.arm_button.setStyleSheet(red if armed else "")

    def _calibrate(self, stage: Stage) -> None:
        """Move a stage back and forth in a thread, unless it does already."""
        if self._calibrating is None and self._session is not None:
            helper = ThreadPoolExecutor(1, "napari-spotfit stage")
            has_z = self._source is not None and self._source.has_z
            self._calibrating = helper.submit(self._session.calibrate, stage, z=has_z)
            helper.shutdown(wait=False)
            self._of_stage = ". The stage is moved back and forth…"

    def _on_calibrated(self, done: Future[StageCalibration]) -> None:
        """Arm a stage that has been calibrated, or show why it cannot be armed."""
        self._calibrating, source, session = None, self._source, self._session
        assert source is not None
        assert session is not None
        assert source.stage is not None
        try:
            calibration = done.result()
        except Exception as error:  # a stage's may be of any kind
            self._of_stage = f". ⚠ The stage is not armed: {error}"
            self.arm_button.setChecked(False)
            return
        self._of_stage = ""
        controller = Controller(source.stage, calibration, on_error=self.form.on_error)
        source.controller = session.controller = controller
        self._on_arm(self.arm_button.isChecked())

    def _on_pick(self) -> None:
        """Let fiducials be clicked in the canvas, in a layer of points of their own."""
        layer = self._viewer.add_points(
            ndim=2, name="fiducials", face_color="transparent", border_color="red",
            size=_RING * self.form.pixel_in_view(),
        )  # fmt: skip
        layer.mode = "add"
        self.form.fiducials.value = layer

    def _named(self) -> NamedTable | None:
        """Return what was seen last as a table, in pixels and in nanometres."""
        seen, pixel_size = self.seen, self.form.pixel_size.value
        if seen is None or not len(seen.time):
            return None
        table = seen.to_dataframe()
        table.insert(3, "y_nm", table.y * pixel_size)
        table.insert(4, "x_nm", table.x * pixel_size)
        return NamedTable("displacements", "displacements", table)

    def _on_correct(self) -> None:
        """Take the drift from the spots of the layer that is selected in the layer list."""
        layer, seen = self._viewer.layers.selection.active, self.seen
        if not is_result(layer):
            self.status.fail("Select a layer of fitted spots in the layer list first.")
            return
        assert is_points(layer)
        why = can_be_subtracted(layer)
        if why or seen is None:
            self.status.fail(why)
            return
        try:
            subtract(layer, drift_of(seen), history_of(self._viewer))
        except ValueError as error:
            self.status.fail(str(error))
            return
        self.status.say(f"The drift was taken from “{layer.name}”; Ctrl+Z takes it back.")

    def _allow(self) -> None:
        running = self.running
        self.form.container.enabled = not running
        self.start_button.setText("Stop" if running else "Start")
        self.start_button.setEnabled(not self._stopping)
        self.pick_button.setEnabled(not running)
        if not running:
            self.pause_button.setChecked(False)
            self.arm_button.setChecked(False)
        for part in (self.pause_button, self.mark_button, self.event_line):
            part.setEnabled(running and not self._stopping)
        self.correct_button.setEnabled(not running and self._of_layer and self.seen is not None)
        self.export.offer(running or self.seen is not None)
        source = self._source
        stage = source is not None and (source.controller or source.stage) is not None
        self.arm_button.setEnabled(running and stage and not self._stopping)

    def _connect(self) -> None:
        self._timer.timeout.connect(self._on_timer)
        self.event_line.returnPressed.connect(lambda: self._on_mark())
        self.status.listen(self.export)
        self.pause_button.toggled.connect(self._on_pause)
        self.arm_button.toggled.connect(self._on_arm)

    def _lay_out(self) -> None:
        self.event_line.setPlaceholderText("event")
        explain(self.event_line, "Event", "<p>What happens now, for the log; Enter marks it.</p>")
        buttons = QGridLayout()
        for place, control in enumerate((
            self.start_button, self.pause_button, self.pick_button,
            self.arm_button, self.mark_button, self.event_line,
        )):  # fmt: skip
            buttons.addWidget(control, place // 2, place % 2)
        below = fill(QHBoxLayout(), (self.correct_button, 1), self.export)
        buttons.addLayout(below, 3, 0, 1, 2)
        form = Scrolled(self.form.container.native, least=60)
        TwoParts(self, (form, buttons, self.status, 1), self.plots, (1, 3))


def _leave(source: Source, session: TrackingSession) -> None:
    """Hold the stage, and end what runs without its widget, without waiting for the log."""
    session.stop(wait=False)
    source.stop()


def _words(seen: Snapshot) -> str:
    """Return how many frames there were, how fast, and what was missed."""
    text = f"{number(seen.frames)} frames, {seen.rate:.0f}/s; latency {1000 * seen.latency:.2f} ms"
    text += f" (worst {1000 * seen.worst:.1f}); {number(seen.dropped)} dropped, "
    text += f"{number(seen.late)} late"
    if seen.last is not None and seen.last.problem:
        text += f". ⚠ {seen.last.problem}"
    return f"{text}. Stage: {seen.correction}" if seen.correction else text
