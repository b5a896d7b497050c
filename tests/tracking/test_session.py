"""A session: its thread, its counts, and its reaction to errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from napari_spotfit import (
    Controller,
    FrameQueue,
    SimulatedCamera,
    SimulatedMicroscope,
    StageCalibration,
    Tracker,
    TrackingLog,
    TrackingSession,
    read_log,
)


def scope_of(**options: float) -> SimulatedMicroscope:
    return SimulatedMicroscope(4, (96, 96), drift=(0.01, 0.02), seed=5, **options)


def session_of(scope: SimulatedMicroscope, queue: FrameQueue, **more: object) -> TrackingSession:
    return TrackingSession(queue, Tracker(scope.fiducials, sigma=1.3), **more)  # type: ignore[arg-type]


def fill(scope: SimulatedMicroscope, queue: FrameQueue, count: int) -> None:
    for at, frame in scope.frames(rate=20, count=count):
        queue.put(frame, at)


def test_every_frame_is_tracked_and_logged_with_its_events(tmp_path: Path) -> None:
    scope, queue = scope_of(), FrameQueue(size=100)
    session = session_of(scope, queue, log=TrackingLog(tmp_path / "log.parquet"))
    fill(scope, queue, 40)
    session.mark("laser on")
    session.start()
    session.finish()
    seen, table = session.snapshot(), read_log(tmp_path / "log.parquet")
    assert (seen.frames, seen.dropped, len(table)) == (40, 0, 40)
    truth = np.array([scope.displacement(at) - scope.displacement(0.05) for at in seen.time])
    off = np.column_stack([seen.y, seen.x]) - truth
    errors = np.column_stack([seen.y_stderr, seen.x_stderr])
    # The first frame has its error, too, which all have in common.
    assert (off - off.mean(axis=0)).std(axis=0) == pytest.approx(errors.mean(axis=0), rel=0.35)
    assert (abs(off.mean(axis=0)) < 3.5 * errors.mean(axis=0)).all()
    assert table.x.to_numpy() == pytest.approx(seen.x)
    assert list(table.event[table.event != ""]) == ["laser on"]
    assert seen.rate == pytest.approx(20)
    assert 0 < seen.latency <= seen.worst


def test_frames_that_do_not_fit_are_dropped_and_counted() -> None:
    scope, queue = scope_of(), FrameQueue(size=10)
    fill(scope, queue, 25)
    session = session_of(scope, queue)
    session.start()
    session.finish()
    seen = session.snapshot()
    assert (seen.frames, seen.dropped, seen.time[0]) == (10, 15, pytest.approx(16 / 20))


def test_nothing_moves_unless_armed_and_the_end_disarms() -> None:
    for armed in (False, True):
        scope, queue = scope_of(), FrameQueue(size=100)
        calibration = StageCalibration(scope.matrix, np.zeros((2, 2)))
        controller = Controller(scope.stage, calibration)
        if armed:
            controller.arm()
        fill(scope, queue, 20)
        session = session_of(scope, queue, controller=controller)
        session.start()
        session.finish()
        assert bool(np.any(scope.stage.place(100.0))) is armed
        assert not controller.armed


def test_an_error_ends_it_and_is_shown_and_the_log_is_readable(tmp_path: Path) -> None:
    queue = FrameQueue()
    queue.put(np.zeros((64, 64), np.uint16), 0.0)  # without any fiducial
    session = TrackingSession(
        queue, Tracker([[30.0, 30.0]], sigma=1.3), log=TrackingLog(tmp_path / "log.parquet")
    )
    session.start()
    session.finish()
    assert "none of the 1 fiducials is found" in session.snapshot().error
    assert len(read_log(tmp_path / "log.parquet")) == 0


def test_a_camera_streams_until_it_is_stopped() -> None:
    scope, queue = scope_of(), FrameQueue(size=1000)
    camera = SimulatedCamera(scope, queue, rate=500.0)
    session = session_of(scope, queue)
    session.start()
    camera.start()
    while session.snapshot().frames < 20:
        assert session.running
    camera.stop()
    session.finish()
    assert np.diff(session.snapshot().time) == pytest.approx(1 / 500)


def test_a_stage_is_calibrated_while_frames_come() -> None:
    scope, queue = scope_of(angle=10.0), FrameQueue()
    controller = Controller(scope.stage, StageCalibration.of_pixel_size(0.1))
    session = session_of(scope, queue, controller=controller)
    camera = SimulatedCamera(scope, queue, 200.0)
    session.start()
    with pytest.raises(RuntimeError, match="no frame has yielded a displacement"):
        session.calibrate(scope.stage, rest=0.01)
    camera.start()
    found = session.calibrate(scope.stage, rest=0.1)
    assert abs(found.matrix - scope.matrix).max() < 0.2
    assert np.isfinite(found.errors).all()
    controller.arm()
    with pytest.raises(RuntimeError, match="the stage is armed"):
        session.calibrate(scope.stage)
    camera.stop()
    session.stop()
    with pytest.raises(RuntimeError, match="the tracking has ended"):
        session.calibrate(scope.stage)


def test_to_stop_holds_the_stage_at_once() -> None:
    """Although a long log is still to be closed."""
    scope = scope_of()
    controller = Controller(scope.stage, StageCalibration.of_pixel_size(0.1))
    controller.arm()
    session = session_of(scope, FrameQueue(), controller=controller)
    session.stop(wait=False)  # not started: no thread is there to do it
    assert not controller.armed


def test_a_log_of_more_rows_than_its_bytes_can_hold(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    rows = pa.table({"y": pa.array(np.zeros(1 << 20))})
    with parquet.ParquetWriter(tmp_path / "a.parquet", rows.schema, compression="zstd") as file:
        for _ in range(64):
            file.write_table(rows)
    with pytest.raises(ValueError, match=r"the log “a.parquet” cannot be read: it promises"):
        read_log(tmp_path / "a.parquet")
