"""A stage is calibrated, moved back, held while displacements are unreliable, and logged."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from napari_spotfit import (
    Controller,
    CoreStage,
    Displacement,
    SimulatedMicroscope,
    StageCalibration,
    Tracker,
    TrackingLog,
    calibrate_stage,
    read_log,
)

KNOWN = {"sigma": 1.3, "gain": 1.0, "offset": 100.0, "backend": "cpu", "threads": 1}


class Recorded:
    """A stage that records moves, and fails on request."""

    def __init__(self):
        self.moves = []
        self.broken = False

    def move_by(self, dy, dx, dz):
        if self.broken:
            raise RuntimeError("serial port closed")
        self.moves.append((dy, dx, dz))


def moved(frame, y=0.0, x=0.0, **more):
    return Displacement(frame, **({"time": 0.01 * frame, "y": y, "x": x, "used": 5} | more))


def armed(**options):
    stage = Recorded()
    controller = Controller(stage, StageCalibration.of_pixel_size(0.1), **options)
    controller.arm()
    return stage, controller


def test_a_turned_stage_is_calibrated_and_ends_where_it_was():
    scope = SimulatedMicroscope(9, (128, 128), angle=20.0, seed=1)
    with Tracker(scope.fiducials, **KNOWN) as tracker:
        found = calibrate_stage(scope.stage, scope.grab_at_rest, tracker)
    assert np.abs(found.matrix - scope.matrix).max() < 0.25
    assert (found.errors < 0.2).all()
    assert np.abs(scope.stage.place(scope.now + 10)).max() < 0.03


def test_a_stage_that_does_not_move_is_no_stage():
    scope = SimulatedMicroscope(4, (96, 96), seed=1)
    no_move = pytest.raises(
        RuntimeError, match="no more than noise does: check that the stage moves"
    )
    with Tracker(scope.fiducials, **KNOWN) as tracker, no_move:
        calibrate_stage(Recorded(), scope.grab_at_rest, tracker)


def test_a_calibration_that_fails_leaves_the_stage_where_it_began():
    scope, stage, frames = SimulatedMicroscope(6, (96, 96), seed=3), Recorded(), iter(range(4))

    def grab():
        next(frames)
        return scope.grab_at_rest()

    with Tracker(scope.fiducials, **KNOWN) as tracker, pytest.raises(StopIteration):
        calibrate_stage(stage, grab, tracker)
    assert len(stage.moves) == 4  # there, back, there, and back as no frame came
    assert np.sum(stage.moves, axis=0) == pytest.approx(0)


@pytest.mark.parametrize("matrix", [[[1, 2], [2, 4]], [[1, 0]], [[math.nan, 0], [0, 1]]])
def test_impossible_calibrations_are_refused(matrix):
    with pytest.raises(ValueError, match=r"matrix|line"):
        StageCalibration(np.array(matrix, float), np.zeros((2, 2)))


def test_the_loop_holds_the_sample():
    scope = SimulatedMicroscope(
        9, (128, 128), angle=10.0, drift=(0.02, -0.01), step=0.02, step_every=3.0,
        vibration=0.0005, seed=2,
    )  # fmt: skip
    calibration = StageCalibration(scope.matrix, np.zeros((2, 2)))
    controller = Controller(scope.stage, calibration)
    places = []
    with Tracker(scope.fiducials, **KNOWN) as tracker:
        for number, (time, frame) in enumerate(scope.frames(50.0, 500)):
            displacement = tracker.update(frame, time)
            if number == 50:
                controller.arm()
            assert controller.step(displacement).state != "moved" or number >= 50
            places.append(scope.displacement(time))
    free, held = np.array(places)[:50], np.array(places)[100:]
    assert np.ptp(free, axis=0).max() > 0.15
    off = held - held.mean(axis=0)
    assert np.sqrt((off**2).sum(axis=1).mean()) * 100 < 6  # nm, the 20 nm slips among them
    assert np.abs(held.mean(axis=0)).max() * 100 < 5


def test_nothing_moves_unless_it_is_armed():
    stage, controller = armed()
    controller.disarm()
    assert controller.step(moved(0, y=1.0)).state == "not armed"
    assert stage.moves == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"problem": "no fiducial is left"}, "no fiducial is left"),
        ({"used": 1}, "1 fiducials take part, 2 must"),
        ({"y": math.nan}, "not known"),
    ],
)
def test_what_cannot_be_believed_holds_the_stage(given, why):
    stage, controller = armed(least_used=2)
    done = controller.step(moved(1, **({"y": 0.5} | given)))
    assert (done.state, stage.moves) == ("held", [])
    assert why in done.why


def test_a_jump_holds_the_stage_until_it_is_confirmed():
    stage, controller = armed(jump=0.1, integral=0, proportional=0.1)
    controller.step(moved(0, y=0.1))
    states = [controller.step(moved(1 + i, y=5.0)) for i in range(5)]
    assert ["jump" in one.why for one in states] == [True, True, True, False, False]
    assert [one.state for one in states[3:]] == ["moved", "moved"]
    assert len(stage.moves) == 3


def test_limits_are_kept_and_said():
    stage, controller = armed(most_step=0.01, most_way=0.025, jump=10, integral=1.0)
    corrections = [controller.step(moved(i, y=3.0)) for i in range(5)]
    assert [round(one[0], 3) for one in stage.moves] == [-0.01, -0.01]
    assert "at once" in corrections[0].why
    assert "from where it was armed" in corrections[-1].why
    # Nothing was summed up that could not be moved.
    assert controller.step(moved(6, y=0.0)).state == "in the dead band"


def test_a_dead_band_is_left_alone():
    stage, controller = armed(dead_band=0.005)
    assert controller.step(moved(0, y=0.04)).state == "in the dead band"
    assert controller.step(moved(1, y=0.06)).state == "moved"
    assert len(stage.moves) == 1


def test_late_displacements_hold_and_silence_is_said():
    stage, controller = armed(timeout=0.5)
    controller.step(moved(10, y=0.1))
    assert "too late" in controller.step(moved(5, y=0.1)).why
    assert controller.watch(now=0.2).why == ""
    assert "no displacement for 0.9 s" in controller.watch(now=1.0).why
    assert len(stage.moves) == 1


@pytest.mark.parametrize(("on_error", "stays"), [("hold", True), ("stop", False)])
def test_a_stage_that_fails_is_said(on_error, stays):
    stage, controller = armed(on_error=on_error)
    stage.broken = True
    done = controller.step(moved(0, y=0.1))
    assert done.state == "held"
    assert "serial port closed" in done.why
    assert controller.armed is stays
    stage.broken = False
    assert (controller.step(moved(1, y=0.1)).state == "moved") is stays


@pytest.mark.parametrize("wrong", [{"proportional": 2.5}, {"most_step": -1}, {"on_error": "run"}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Controller(Recorded(), StageCalibration.of_pixel_size(0.1), **wrong)


def test_a_stage_of_pymmcore_plus_is_moved():
    from core_stage import Stage, put_into, unicore

    core, stage = unicore.UniMMCore(), Stage()
    with pytest.raises(ValueError, match="no XY stage"):
        CoreStage(core)
    put_into(core, stage)
    CoreStage(core).move_by(0.1, -0.2, 5.0)
    assert stage.place == pytest.approx((-0.2, 0.1))
    with pytest.raises(ValueError, match="no focus device"):
        CoreStage(core, z=True)


def test_a_log_has_all_rows_in_one_file(tmp_path):
    scope = SimulatedMicroscope(4, (96, 96), seed=3)
    with Tracker(scope.fiducials, **KNOWN) as tracker, TrackingLog(tmp_path / "a.parquet") as log:
        log.mark("began")
        for time, frame in scope.frames(100.0, 7):
            log.add(tracker.update(frame, time))
            if time == pytest.approx(0.03):
                log.mark("laser on")
                log.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    table = read_log(tmp_path / "a.parquet")
    assert table["frame"].tolist() == [-1, *range(7)]
    assert table["event"].tolist() == ["began", "", "", "laser on", "", "", "", ""]
    assert table["positions"][3].shape == (8,)
    assert table["health"][3].tolist() == [0, 0, 0, 0]


def test_more_rows_are_added_to_a_log(tmp_path):
    for frame in (0, 1):
        with TrackingLog(tmp_path / "a.parquet") as log:
            log.add(moved(frame))
    assert read_log(tmp_path / "a.parquet")["frame"].tolist() == [0, 1]


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_run_leaves_a_readable_log(tmp_path):
    code = textwrap.dedent(
        f"""
        from napari_spotfit import Displacement, TrackingLog
        log = TrackingLog({str(tmp_path / "a.parquet")!r})
        for frame in range(100):
            log.add(Displacement(frame, y=0.5))
        log.flush()
        log.add(Displacement(100))
        print("there", flush=True)
        input()
        """
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert run.stdout.readline().strip() == b"there"
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdin.close()
    run.stdout.close()
    assert len(read_log(tmp_path / "a.parquet")) == 100
    with TrackingLog(tmp_path / "a.parquet") as log:
        log.add(moved(200))
    assert read_log(tmp_path / "a.parquet")["frame"].tolist() == [*range(100), 200]


def test_there_is_no_log(tmp_path):
    with pytest.raises(FileNotFoundError, match="no log"):
        read_log(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("", IsADirectoryError, "is a folder: a log is a file"),
        ("nothing/a.parquet", FileNotFoundError, "there is no folder"),
        ("a.csv", ValueError, r"“a\.parquet”; got “a\.csv”"),
        ("picture.parquet", ValueError, "is no log"),
        ("spots.parquet", ValueError, "is no log"),
        ("a/a.parquet", FileNotFoundError, "there is no folder"),
    ],
)
def test_where_no_log_can_be_is_named_at_the_start(tmp_path, name, error, why):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "picture.parquet").write_bytes(b"\x89PNG")
    pd.DataFrame({"frame": [0], "y": [1.5]}).to_parquet(tmp_path / "spots.parquet")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=why):
        TrackingLog(tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_a_log_that_cannot_be_finished_says_where_its_rows_are(tmp_path):
    log = TrackingLog(tmp_path / "a.parquet")
    log.add(moved(7))
    (tmp_path / "a.parquet").mkdir()
    unfinished = tmp_path / "a.parquet.unfinished"
    with pytest.raises(OSError, match=re.escape(f"its rows are in “{unfinished}”")):
        log.close()
    assert pd.read_parquet(unfinished)["frame"].tolist() == [7]


def test_a_log_that_became_another_file_is_left_alone(tmp_path):
    log = TrackingLog(tmp_path / "a.parquet")
    log.add(moved(7))
    (tmp_path / "a.parquet").write_bytes(b"a picture")
    with pytest.raises(OSError, match=r"its rows are in “.*a\.parquet\.parts”"):
        log.close()
    assert (tmp_path / "a.parquet").read_bytes() == b"a picture"
    (tmp_path / "a.parquet").unlink()
    assert read_log(tmp_path / "a.parquet")["frame"].tolist() == [7]
