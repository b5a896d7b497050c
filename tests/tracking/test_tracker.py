"""Fiducials are followed within their errors, robustly against bad ones."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from napari_spotfit import (
    Health,
    SimulatedMicroscope,
    Tracker,
    localize,
    track,
    track_async,
)
from napari_spotfit.tracking.fiducials import closer_than
from napari_spotfit.tracking.tracker import FrameError

RATE = 100.0
KNOWN = {"sigma": 1.3, "gain": 1.0, "offset": 100.0, "backend": "cpu", "threads": 1}


def followed(scope, frames, **options):
    """Return displacements in frames, and the true ones since the first."""
    times, images = zip(*scope.frames(RATE, frames), strict=True)
    with Tracker(scope.fiducials, **KNOWN, **options) as tracker:
        found = [tracker.update(*one) for one in zip(images, times, strict=True)]
    truth = np.array([scope.displacement(time) for time in times])
    return found, truth - truth[0]


def off(found, truth):
    """Return the errors of displacements in their standard errors, of two frames."""
    first = np.array([found[0].y_stderr, found[0].x_stderr])
    measured = np.array([[one.y, one.x] for one in found])[1:]
    errors = np.array([[one.y_stderr, one.x_stderr] for one in found])[1:]
    return (measured - truth[1:]) / np.sqrt(errors**2 + first**2)


def test_a_drift_is_followed_within_its_standard_errors():
    scope = SimulatedMicroscope(9, (128, 128), drift=(0.05, -0.02), vibration=0.003, seed=4)
    found, truth = followed(scope, 120)
    assert all(one.used == 9 and not one.problem for one in found)
    # The first frame's own error is common to all: what is left scatters as the errors say.
    scatter = off(found, truth)
    assert np.abs(scatter).max() < 5
    errors = np.array([[one.y_stderr, one.x_stderr] for one in found])[20:]
    measured = np.array([[one.y, one.x] for one in found])[20:] - truth[20:]
    spread = np.std(measured, axis=0) / errors.mean(axis=0)
    assert ((spread > 0.8) & (spread < 1.2)).all()


def test_found_by_itself_it_follows_the_same_spots():
    scope = SimulatedMicroscope(9, (128, 128), drift=(0.1, 0.0), seed=5)
    times, frames = zip(*scope.frames(RATE, 5), strict=True)
    found = list(track(frames, times=times, sigma=1.3))
    assert found[-1].used == 9
    assert found[-1].y == pytest.approx(0.1 * 4 / RATE * 10, abs=0.02)


def test_fits_are_fiducials_with_their_settings():
    scope = SimulatedMicroscope(4, (96, 96), seed=5)
    frame = scope.frame(0.0)
    fits = localize(frame, sigma=1.3)
    with Tracker(fits[fits.good]) as tracker:
        tracker.update(frame)
        assert tracker.settings.noise == fits.settings.noise
        assert len(tracker.positions) == 4


def paint(frame, place, photons):
    """Add the light of a spot, without noise."""
    y, x = np.indices(frame.shape)
    light = np.exp(-((y - place[0]) ** 2 + (x - place[1]) ** 2) / (2 * 1.3**2))
    frame += np.rint(photons / (2 * math.pi * 1.3**2) * light).astype(frame.dtype)


def test_half_of_them_off_and_on_make_no_jump():
    scope = SimulatedMicroscope(12, (160, 160), seed=6)
    empty = SimulatedMicroscope(12, (160, 160), photons=0.0, seed=6)
    found, health = [], []
    with Tracker(scope.fiducials, **KNOWN) as tracker:
        for number in range(120):
            time = number / RATE
            frame, dark = scope.frame(time), empty.frame(time)
            if number % 40 >= 20:  # those of the upper half
                frame[:80] = dark[:80]
            found.append(tracker.update(frame, time))
            health.append(tracker.health.copy())
    off_now = np.array(health)[25]
    assert set(off_now[:4]) == {Health.LOST}
    assert found[25].used < 12 == found[45].used
    scatter = off(found, np.zeros((120, 2)))
    assert np.abs(scatter).max() < 5
    ends = np.array([[one.y, one.x] for one in found])
    # The means before and after a half is off differ by chance alone.
    for begin in (20, 40, 60, 80, 100):
        step = ends[begin : begin + 15].mean(axis=0) - ends[begin - 15 : begin].mean(axis=0)
        assert np.abs(step).max() < 3 * found[begin].y_stderr


def test_one_that_creeps_away_is_left_out():
    scope = SimulatedMicroscope(6, (128, 128), seed=7)
    away = SimulatedMicroscope(6, (128, 128), drift=(0.3, 0.0), seed=7)
    rows = slice(int(scope.fiducials[0, 0]) - 12, int(scope.fiducials[0, 0]) + 12)
    columns = slice(int(scope.fiducials[0, 1]) - 12, int(scope.fiducials[0, 1]) + 12)
    with Tracker(scope.fiducials, **KNOWN) as tracker:
        for number in range(40):
            frame = scope.frame(number / RATE)
            frame[rows, columns] = away.frame(number / RATE)[rows, columns]
            found = tracker.update(frame)
    assert found.health[0] in (Health.APART, Health.LOST)
    assert found.used == 5
    assert abs(found.y) < 5 * found.y_stderr


def test_another_passing_by_is_left_out():
    scope = SimulatedMicroscope(6, (128, 128), seed=8)
    with Tracker(scope.fiducials, **KNOWN) as tracker:
        for number in range(30):
            frame = scope.frame(number / RATE)
            paint(frame, scope.fiducials[2] + [0.4, number - 15.0], 10_000)
            found = tracker.update(frame)
            assert abs(found.x) < 5 * found.x_stderr
            if number == 15:
                assert found.left_out == {2: "has more light than before, as if another passed by"}
    assert found.used == 6


def test_a_saturated_one_and_one_at_the_border_take_no_part():
    scope = SimulatedMicroscope(6, (128, 128), seed=9)
    fiducials = np.vstack([scope.fiducials, [1.0, 64.0]])
    frame = scope.frame(0.0)
    y, x = np.rint(scope.fiducials[1]).astype(int)
    frame[y - 1 : y + 2, x - 1 : x + 2] = 65535
    with Tracker(fiducials, **KNOWN) as tracker:
        found = tracker.update(frame)
    assert found.left_out[1] == "is saturated"
    assert found.left_out[6] == "is at the frame's border or past it"
    assert found.used == 5


def test_a_jump_of_many_pixels_is_found():
    scope = SimulatedMicroscope(8, (160, 160), step=1.5, step_every=0.095, seed=10)
    found, truth = followed(scope, 12)
    assert truth[-1][1] == pytest.approx(15)
    assert found[-1].x == pytest.approx(15, abs=0.05)
    assert found[-1].used >= 7


def test_rotation_and_scale_are_measured():
    scope = SimulatedMicroscope(9, (160, 160), seed=11)
    turned = SimulatedMicroscope(9, (160, 160), seed=11)
    middle = scope.fiducials.mean(axis=0)
    angle, scale = math.radians(0.4), 1.003
    matrix = scale * np.array(
        [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    )
    turned.fiducials = middle + (scope.fiducials - middle) @ matrix.T + [0.2, -0.3]
    with Tracker(scope.fiducials, rotation=True, scale=True, **KNOWN) as tracker:
        tracker.update(scope.frame(0.0))
        found = tracker.update(turned.frame(0.01))
    assert found.used == 9
    assert abs(found.rotation) == pytest.approx(0.4, abs=5 * found.rotation_stderr)
    assert found.scale == pytest.approx(scale, abs=5 * found.scale_stderr)
    assert (found.y, found.x) == pytest.approx((0.2, -0.3), abs=0.03)


def test_frames_that_tell_nothing_are_said_and_change_nothing():
    scope = SimulatedMicroscope(4, (96, 96), seed=12)
    first, second = scope.frame(0.0), scope.frame(0.1)
    with Tracker(scope.fiducials, **KNOWN) as tracker:
        tracker.update(first, 0.0)
        assert "shape" in tracker.update(first[:64], 0.05).problem
        assert "dtype" in tracker.update(first.astype(float), 0.05).problem
        before = tracker.update(second, 0.1)
        assert not before.problem
        assert "previous one again" in tracker.update(second, 0.2).problem
        assert "too late" in tracker.update(first, 0.15).problem
        lost = tracker.update(np.full_like(first, 120), 0.3)
        assert "no fiducial is left" in lost.problem
        assert lost.used == 0
        assert math.isnan(lost.y)
        after = tracker.update(scope.frame(0.4), 0.4)
    assert after.used == 4
    assert after.y == pytest.approx(before.y, abs=0.03)


def test_it_stops_where_it_is_asked_to():
    scope = SimulatedMicroscope(4, (96, 96), seed=12)
    with Tracker(scope.fiducials, stop=True, **KNOWN) as tracker:
        tracker.update(scope.frame(0.0))
        with pytest.raises(FrameError, match="no fiducial is left"):
            tracker.update(np.full((96, 96), 120, np.uint16))


@pytest.mark.parametrize(
    ("fiducials", "message"),
    [(np.zeros((0, 2)), "one at least"), (np.zeros((3, 3)), "shape"), ([[1, math.nan]], "finite")],
)
def test_wrong_fiducials_are_said(fiducials, message):
    with pytest.raises(ValueError, match=message):
        Tracker(fiducials)


def test_no_fiducial_in_the_first_frame_is_an_error():
    frame = np.random.default_rng(1).poisson(100, (96, 96)).astype(np.uint16)
    with pytest.raises(ValueError, match="no fiducials are found"):
        Tracker(sigma=1.3).update(frame)
    with pytest.raises(ValueError, match="none of the 1 fiducials"):
        Tracker([[48.0, 48.0]], sigma=1.3).update(frame)


def test_frames_that_come_asynchronously_are_followed():
    scope = SimulatedMicroscope(4, (96, 96), drift=(0.1, 0.0), seed=13)

    async def camera():
        for _, frame in scope.frames(RATE, 3):
            await asyncio.sleep(0)
            yield frame

    async def all_of_it():
        return [one.y async for one in track_async(camera(), scope.fiducials, **KNOWN)]

    found = asyncio.run(all_of_it())
    assert found == pytest.approx([0.0, 0.01, 0.02], abs=0.02)


@pytest.mark.parametrize("seed", [2, 5])
def test_errors_hold_where_one_frame_tells_the_noise_wrongly(seed: int) -> None:
    # Small and flat: the noise of the fiducials' light is estimated as a quarter of what it is.
    scope = SimulatedMicroscope(4, (96, 96), drift=(0.01, -0.02), seed=seed)
    moved, off = [], []
    with Tracker(scope.fiducials, sigma=1.3) as tracker:
        for at, frame in scope.frames(rate=20, count=200):
            moved.append(tracker.update(frame, at))
            off.append([moved[-1].y, moved[-1].x] - scope.displacement(at))
    last = slice(20, None)
    errors = np.array([[one.y_stderr, one.x_stderr] for one in moved[last]])
    assert np.std(off[last], axis=0) == pytest.approx(errors.mean(axis=0), rel=0.2)
    assert sum(one.used == 4 for one in moved) > 195


@pytest.mark.parametrize("count", [1, 2, 3, 50, 700])
def test_places_that_are_close_are_found_as_all_pairs_tell(count):
    places = np.random.default_rng(count).uniform(0, 90, (count, 2)).round(1)
    square = ((places[:, np.newaxis] - places) ** 2).sum(axis=2)
    np.fill_diagonal(square, np.inf)
    for distance in (0.5, 4.0, 40.0):
        expected = (square < distance**2).any(axis=1)
        np.testing.assert_array_equal(closer_than(distance, places), expected)
