"""z of fiducials: measured by a calibration, held by a stage, and never run after without beads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from psfs import measured_psf

from napari_spotfit import (
    Controller,
    Displacement,
    FrameQueue,
    Settings,
    SimulatedMicroscope,
    StageCalibration,
    Tracker,
    TrackingLog,
    TrackingSession,
    calibrate_astigmatism,
    calibrate_psf,
    calibrate_stage,
    read_log,
    simulate_beads,
    simulate_psf,
)
from napari_spotfit.models.astigmatism import AstigmatismCalibration
from napari_spotfit.models.calibration import Curve
from napari_spotfit.tracking.displacement import Health, Heights

RATE = 50.0
KNOWN = {"gain": 1.0, "offset": 100.0, "backend": "cpu", "threads": 1}


def lens():
    x, y = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
    return AstigmatismCalibration(x, y, -400.0, 400.0, roi_size=(13, 13))


MODELS = {"lens": lens, "measured PSF": measured_psf}


def scope_of(model, count=9, **options):
    return SimulatedMicroscope(count, (180, 180), model=model, **options)


def fits_of(z, errors=2.0, flags=0):
    z = np.asarray(z, float)
    return {
        "z": z, "z_stderr": np.broadcast_to(errors, z.shape),
        "flags": np.broadcast_to(np.uint32(flags), z.shape),
    }  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_z_is_followed_within_its_standard_errors(model):
    model = MODELS[model]()
    scope = scope_of(model, height=lambda time: 0.05 * math.sin(3 * time), drift=(0.02, 0.0))
    with Tracker(scope.fiducials, model=model, **KNOWN) as tracker:
        found, truth = [], []
        for at, frame in scope.frames(RATE, 100):
            found.append(tracker.update(frame, at))
            truth.append(scope.displacement(at))
    truth = np.array(truth) - truth[0]
    off = np.array([[one.y, one.x, one.z] for one in found]) - truth
    errors = np.array([[one.y_stderr, one.x_stderr, one.z_stderr] for one in found])
    spread = np.std(off[20:], axis=0) / errors[20:].mean(axis=0)
    assert np.all((spread > 0.75) & (spread < 1.25)), spread
    assert np.all(np.abs(off[20:].mean(axis=0)) < 4 * errors[0])
    assert {one.z_used for one in found} == {9}


def test_the_gain_in_z_is_measured_with_its_sign():
    model = measured_psf()
    scope = scope_of(model, angle=20.0, z_gain=-0.8, seed=1)
    with Tracker(scope.fiducials, model=model, **KNOWN) as tracker:
        found = calibrate_stage(scope.stage, scope.grab_at_rest, tracker)
        flat = calibrate_stage(scope.stage, scope.grab_at_rest, tracker, z=False)
    assert not flat.has_z
    assert found.has_z
    assert abs(found.matrix[2, 2] + 800) < 30
    assert np.abs(found.matrix - scope.matrix)[:2, :2].max() < 0.3
    assert np.abs(scope.stage.place(scope.now + 10)).max() < 0.03


def test_a_stage_without_z_is_no_stage_for_z():
    model = measured_psf()
    scope = scope_of(model, z_gain=0.0)
    no_move = pytest.raises(
        RuntimeError, match=r"along z moves the image .* nm, no more than noise"
    )
    with Tracker(scope.fiducials, model=model, **KNOWN) as tracker, no_move:
        calibrate_stage(scope.stage, scope.grab_at_rest, tracker)


def held(scope, model, matrix, frames, change=lambda number, frame: None, **options):
    """Return z of the image and corrections while a loop is closed."""
    controller = Controller(scope.stage, StageCalibration(matrix, np.zeros((3, 3))), **options)
    controller.arm()
    places, done = [], []
    with Tracker(scope.fiducials, model=model, **KNOWN) as tracker:
        for number, (at, frame) in enumerate(scope.frames(RATE, frames)):
            change(number, frame)
            found = tracker.update(frame, at)
            places.append(scope.displacement(at)[2])
            done.append((found, controller.step(found)))
    return np.array(places), done


@pytest.mark.parametrize("z_gain", [1.0, -0.7])
def test_a_walk_with_steps_is_held(z_gain):
    model, random = measured_psf(), np.random.default_rng(2)
    walk = np.cumsum(random.normal(0, 0.002, 400)) + 0.01 * (np.arange(400) // 100)
    scope = scope_of(
        model, 16, height=lambda at: walk[round(at * RATE) % 400], z_gain=z_gain, seed=3
    )
    places, done = held(scope, model, scope.matrix, 350, proportional=0.8, integral=0.0)
    error = np.median([found.z_stderr for found, _ in done])
    rms = np.std(places[20:])
    assert rms < 1.3 * math.hypot(error, 2.0 * abs(z_gain))


@pytest.mark.parametrize("lost", ["all", "out of range"])
def test_without_beads_z_does_not_run_away(lost):
    model = measured_psf()
    fast = 30.0 if lost == "out of range" else 0.02  # µm a second
    scope = scope_of(model, height=lambda at: fast * max(at - 1.0, 0.0), seed=4)
    empty = scope_of(model, photons=0.0, seed=4)

    def change(number, frame):
        if lost == "all" and number >= 60:
            frame[:] = empty.frame(number / RATE)

    _, done = held(scope, model, scope.matrix, 130, change, integral=2.0, proportional=0.3)
    unknown = [correction for found, correction in done if math.isnan(found.z)]
    assert len(unknown) > 30
    assert all(correction.dz == 0 for correction in unknown)
    assert all(correction.why for correction in unknown)


def test_fiducials_off_and_on_make_no_step():
    model = measured_psf()
    scope, empty = scope_of(model, 12, seed=6), scope_of(model, 12, photons=0.0, seed=6)
    found = []
    with Tracker(scope.fiducials, model=model, **KNOWN) as tracker:
        for number, (at, frame) in enumerate(scope.frames(RATE, 120)):
            if number >= 60:
                frame[:90] = empty.frame(at)[:90]
            found.append(tracker.update(frame, at))
    before, after = (np.array([one.z for one in part]) for part in (found[20:60], found[80:]))
    assert found[-1].z_used < 9
    error = found[-1].z_stderr / math.sqrt(len(after))
    assert abs(before.mean() - after.mean()) < 5 * error


def test_one_that_moves_apart_along_z_is_left_out_of_z_alone():
    heights = Heights(5)
    heights.measure(fits_of([0, 50, -50, 10, 20]), np.zeros(5, np.uint8), 1.0)
    health = np.zeros(5, np.uint8)
    health[1] = Health.DIM
    rise = heights.measure(fits_of([8, 58, -42, 18, 90]), health, 1.0)
    assert health.tolist() == [0, Health.DIM, 0, 0, Health.APART_Z]
    assert rise.used == 3
    assert rise.z == pytest.approx(8)


def test_one_beyond_the_range_has_no_z_until_it_is_back():
    heights, at_limit = Heights(3), np.array([0, 1 << 18, 0], np.uint32)
    assert heights.measure(fits_of([0, 400, 9], flags=at_limit), np.zeros(3, "u1"), 1.0).used == 2
    health = np.zeros(3, np.uint8)
    assert heights.measure(fits_of([-90, 300, -81]), health, 1.0).z == pytest.approx(-90)
    assert not health.any()
    # It belongs where it was seen first, less the displacement there.
    assert heights.references[1] == pytest.approx(390)


BEADS = [(30, 30), (30, 90), (90, 60)]


@pytest.fixture(scope="module")
def calibrations():
    z = np.arange(-600.0, 601.0, 25.0)
    stack, _ = simulate_beads(z, (128, 128), count=9, seed=0, zernike={"astigmatism": 0.1})
    known = Settings(gain=1.0, offset=100.0, backend="cpu")
    return {
        "lens": calibrate_astigmatism(stack, 25.0, settings=known),
        "measured PSF": calibrate_psf(stack, 25.0, settings=known),
    }


def beads_at(height, photons=20000):
    """Return a frame of three beads at a height."""
    light = np.full((128, 128), 20.0)
    psf = simulate_psf([height], 33, zernike={"astigmatism": 0.1})[0]
    for y, x in BEADS:
        light[y - 16 : y + 17, x - 16 : x + 17] += photons * psf
    return (np.random.default_rng(abs(int(height)) + 7).poisson(light) + 100).astype(np.uint16)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("end", [-1300, -900, 900, 1200, 1300])
@pytest.mark.parametrize("steps", [1, 13])
def test_beyond_the_range_z_is_unknown_until_it_is_back(calibrations, model, end, steps):
    there = np.linspace(0, end, steps + 1)
    path = np.concatenate([there, [end] * 3, there[::-1]])
    with Tracker(BEADS, model=calibrations[model], estimator="mle", **KNOWN) as tracker:
        found = np.array([tracker.update(beads_at(z + i / 9)).z for i, z in enumerate(path)])
    assert np.isnan(found[np.abs(path) > 650]).all()
    known = np.isfinite(found)
    assert found[known] == pytest.approx(path[known], abs=25)
    assert known[0]
    assert known[-1] or steps == 1


def test_z_returns_by_the_limit_it_left_by():
    heights, at_limit = Heights(3, (-400.0, 400.0)), 1 << 18
    rises = [
        heights.measure(fits_of([z] * 3, flags=flags), np.zeros(3, np.uint8), 1.0).z
        for z, flags in [(0, 0), (90, 0), (400, at_limit), (-200, 0), (350, 0), (200, 0), (9, 0)]
    ]
    assert rises == pytest.approx([0, 90, math.nan, math.nan, 350, 200, 9], nan_ok=True)


def test_a_jump_is_believed_with_the_next_frame():
    heights = Heights(3, (-400.0, 400.0))
    rises = [
        heights.measure(fits_of([z] * 3), np.zeros(3, np.uint8), 1.0).z
        for z in (0, 300, 0, -300, -290, -280)
    ]
    assert rises == pytest.approx([0, math.nan, 0, math.nan, -290, -280], nan_ok=True)


def test_two_that_do_not_agree_say_nothing():
    heights = Heights(2)
    heights.measure(fits_of([0, 0]), np.zeros(2, np.uint8), 1.0)
    rise = heights.measure(fits_of([0, 100]), np.zeros(2, np.uint8), 1.0)
    assert rise.used == 0
    assert math.isnan(rise.z)


@pytest.mark.parametrize("jitter", [0.0, 6.0])
def test_the_jitter_is_learnt(jitter):
    random, heights, off = np.random.default_rng(1), Heights(20), []
    own = random.uniform(1, 4, 20)
    for _ in range(400):
        z = random.normal(0, np.hypot(own, jitter))
        rise = heights.measure(fits_of(z, own), np.zeros(20, np.uint8), 1.0)
        off.append((rise.z / rise.error, rise.error))
    assert heights.jitter == pytest.approx(jitter, abs=1.0)
    assert 0.8 < np.std(np.array(off)[50:, 0]) < 1.2


def test_errors_grow_where_all_disagree_at_once():
    heights, random = Heights(20), np.random.default_rng(3)
    for _ in range(20):
        heights.measure(fits_of(random.normal(0, 2, 20)), np.zeros(20, np.uint8), 1.0)
    rise = heights.measure(fits_of(random.normal(0, 40, 20)), np.zeros(20, np.uint8), 1.0)
    assert rise.error > 5


def test_only_a_calibration_with_z_moves_z():
    displacement = Displacement(0, y=1.0, x=2.0, z=500.0, used=3, z_used=3)
    assert StageCalibration.of_pixel_size(0.1).to_stage(displacement)[2] == 0
    assert StageCalibration.of_pixel_size(0.1, z_gain=-2).to_stage(displacement)[2] == -0.25


@pytest.mark.parametrize("z_gain", [0.0, 0.01])
def test_a_stage_that_does_not_focus_is_refused(z_gain):
    with pytest.raises(ValueError, match="does not change z"):
        StageCalibration.of_pixel_size(0.1, z_gain=z_gain)


def test_too_few_in_z_hold_z_while_y_and_x_move():
    class Recorded(list):
        def move_by(self, *move):
            self.append(move)

    stage = Recorded()
    controller = Controller(
        stage, StageCalibration.of_pixel_size(0.1, z_gain=1.0), least_used=2, integral=1.0
    )
    controller.arm()
    for frame, used in enumerate((5, 5, 1, 1, 5)):
        moved = Displacement(frame, 0.1 * frame, y=0.1, x=0.0, z=20.0, used=5, z_used=used)
        correction = controller.step(moved)
        assert correction.state == "moved"
        assert ("z is held: 1 fiducials take part" in correction.why) is (used == 1)
    assert [move[2] != 0 for move in stage] == [True, True, False, False, True]
    assert all(move[0] < 0 for move in stage)


def test_a_session_records_z_and_calibrates_it(tmp_path):
    model, queue = measured_psf(), FrameQueue()
    scope = scope_of(model, 4, height=lambda at: 0.1 * at, seed=8)
    for at, frame in scope.frames(RATE, 20):
        queue.put(frame, at)
    tracker = Tracker(scope.fiducials, model=model, **KNOWN)
    session = TrackingSession(queue, tracker, log=TrackingLog(tmp_path / "z.parquet"))
    session.start()
    session.finish()
    seen = session.snapshot()
    assert seen.z[-1] == pytest.approx(38, abs=15)
    table = seen.to_dataframe()
    assert np.array_equal(table.z, seen.z)
    assert np.array_equal(read_log(tmp_path / "z.parquet").z, seen.z)
