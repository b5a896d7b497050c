"""Drift without markers: against simulated drift, its own errors, and what cannot be known."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import astuple
from functools import partial
from typing import Any

import numpy as np
import pytest
from blinking import table_of
from numpy.typing import NDArray

from napari_spotfit import (
    Drift,
    Settings,
    SpotFits,
    estimate_drift,
    fiducial_drift,
    subtract_drift,
)
from napari_spotfit.analysis import drift_jumps, events
from napari_spotfit.engine import threads
from napari_spotfit.engine.cpu.library import INSTRUCTION_SET, load

Floats = NDArray[np.float64]
FRAMES = 4000


def simulated_drift(seed: int, size: float, frames: int = FRAMES) -> Floats:
    """Return a slow and a fast motion along y and x."""
    rng = np.random.default_rng(seed)
    time = np.arange(frames)[:, np.newaxis] / frames
    turns, phase = rng.uniform(0.5, 1.5, 2), rng.uniform(size=(2, 2))
    slow = np.sin(2 * np.pi * (time * turns + phase[0]))
    return np.asarray(size * (slow + 0.06 * np.sin(2 * np.pi * (time * 4 + phase[1]))))


def molecules(
    count: int, number: int, error: float, seed: int = 0, drift: Floats | None = None,
    size: float = 64.0, background: float = 0.2, frames: int = FRAMES,
) -> SpotFits:  # fmt: skip
    """Return localisations of molecules that are seen at any time, and of random background."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, size, (number, 2))[rng.integers(0, number, count)]
    lost = rng.random(count) < background
    places[lost] = rng.uniform(0, size, (int(lost.sum()), 2))
    frame = np.sort(rng.integers(0, frames, count))
    places += rng.normal(0, error, places.shape)
    if drift is not None:
        places += drift[frame]
    return table_of(frame, *places.T, error)


def deviations(found: Drift, truth: Floats) -> tuple[Floats, Floats]:
    """Return the deviation from the mean truth of segments of 100 frames, and its stated error."""
    curve = np.stack([found.y, found.x], axis=1)
    apart = (curve[49::100] + curve[50::100]) / 2 - truth.reshape(-1, 100, 2).mean(axis=1)
    errors = np.stack([found.y_stderr, found.x_stderr], axis=1)[50::100]
    return apart - apart.mean(axis=0), errors


#: Localisations, molecules, their error in pixels: as in 10,000 frames, here of 4000.
ROWS = [(80_000, 600, 0.08), (80_000, 8000, 0.08), (8000, 600, 0.08), (20_000, 2000, 0.15)]
SIZE = 160.0


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_drift_and_its_errors(row: tuple[int, int, float]) -> None:
    count, number, error = row
    real = 0.8 * count
    bound = error * math.sqrt((1 + number / real) / (real * 100 / FRAMES))
    found, inside = [], []
    for seed in range(6):
        truth = simulated_drift(seed, 0.5)
        fits = molecules(count, number, error, seed, truth, SIZE)
        apart, errors = deviations(estimate_drift(fits, frames=FRAMES, segment=100), truth)
        found.append(apart)
        inside.append(np.abs(apart) < errors)
    assert np.sqrt(np.mean(np.square(found))) < 1.3 * bound
    assert np.mean(inside) == pytest.approx(0.68, abs=0.1)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_no_drift_in_gives_none_out(row: tuple[int, int, float]) -> None:
    count, number, error = row
    bound = error * math.sqrt((1 + number / count / 0.8) / (0.8 * count * 100 / FRAMES))
    fits = molecules(count, number, error, 5, None, SIZE)
    found = estimate_drift(fits, frames=FRAMES, segment=100)
    apart, _ = deviations(found, np.zeros((FRAMES, 2)))
    assert np.sqrt(np.mean(apart**2)) < 1.5 * bound
    assert found.y[0] == found.x[0] == 0


@pytest.mark.parametrize("method", ["aim", "rcc"])
def test_the_sign_is_that_of_fiducials(method: Any) -> None:
    truth = np.stack([np.linspace(0, 2, FRAMES), np.linspace(0, -1, FRAMES)], axis=1)
    fits = molecules(40_000, 400, 0.1, 1, truth)
    found = estimate_drift(fits, method, frames=FRAMES)
    bead = table_of(np.arange(FRAMES), 30 + truth[:, 0], 30 + truth[:, 1], 0.05,
                    track=np.zeros(FRAMES, np.int64))  # fmt: skip
    beads = fiducial_drift(bead)
    tolerance = 0.02 if method == "aim" else 0.1
    assert np.abs(found.y - beads.y).max() < tolerance
    assert np.abs(found.x - beads.x).max() < tolerance
    still = subtract_drift(fits, found)
    again = estimate_drift(still, method, frames=FRAMES)
    assert np.abs(np.stack([again.y, again.x])).max() < tolerance


def test_it_depends_neither_on_rows_nor_on_the_unit_of_pixels() -> None:
    truth = simulated_drift(1, 1.0)
    fits = molecules(20_000, 300, 0.1, 1, truth)
    found = estimate_drift(fits)
    mixed = estimate_drift(fits[np.random.default_rng(0).permutation(len(fits))])
    assert (np.abs(found.y - mixed.y) <= found.y_stderr).all()
    scaled = {name: 10 * fits.columns[name] for name in ("y", "x", "y_stderr", "x_stderr")}
    larger = estimate_drift(fits.with_columns(fits.columns | scaled))
    assert np.allclose(10 * found.x, larger.x, atol=1e-2)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(
        astuple(found)[:5], astuple(estimate_drift(fits))[:5], strict=True
    ))  # fmt: skip


def blinks(error: float, of_event: float) -> tuple[SpotFits, Floats]:
    """Return molecules that are seen in five frames, with errors of their own and of the event."""
    truth = simulated_drift(2, 0.2)
    once = molecules(20_000, 300, of_event, 2, truth)
    frame = np.minimum(np.repeat(once.frame, 5) + np.tile(np.arange(5), len(once)), FRAMES - 1)
    noise = np.random.default_rng(1).normal(0, error, (2, len(frame)))
    return table_of(frame, np.repeat(once.y, 5) + noise[0], np.repeat(once.x, 5) + noise[1]), truth


def test_blinks_count_once() -> None:
    fits, truth = blinks(0.1, 1e-3)
    found = estimate_drift(fits, frames=FRAMES)
    assert 300 < found.used.mean() < 500
    apart, errors = deviations(found, truth)
    assert np.sqrt(np.mean(apart**2)) < 1.3 * np.sqrt(np.mean(errors**2))


def test_errors_that_are_too_small_are_no_obstacle() -> None:
    fits, truth = blinks(0.1, 0.2)
    apart, errors = deviations(estimate_drift(fits, frames=FRAMES), truth)
    assert np.sqrt(np.mean(apart**2)) < 1.5 * np.sqrt(np.mean(errors**2)) < 0.05


def test_along_z() -> None:
    truth = simulated_drift(3, 1.0)
    height = 200 * np.sin(np.arange(FRAMES) / 700)
    fits = molecules(60_000, 400, 0.1, 3, truth)
    rng = np.random.default_rng(3)
    molecule = np.round(fits.y - truth[fits.frame, 0], 0) * 37 % 400
    z = molecule + height[fits.frame] + rng.normal(0, 25, len(fits))
    along = {"z": z, "z_stderr": np.full(len(fits), 25, np.float32)}
    known = SpotFits(fits.columns | along, ("frame",), units={"z": "nm", "z_stderr": "nm"})
    found = estimate_drift(known, frames=FRAMES)
    assert found.z is not None
    apart = found.z - height
    assert np.std(apart) < 6
    assert np.abs(deviations(found, truth)[0]).max() < 0.05
    assert estimate_drift(fits.with_columns(fits.columns | along)).z is None
    planes = {name: values / np.float32(300) for name, values in along.items()}
    for voxel, is_known in (((300.0, 100.0, 100.0), True), (None, False)):
        stack = Settings(model="gaussian_3d", voxel_size=voxel)
        of_planes = estimate_drift(
            SpotFits(fits.columns | planes, ("frame",), stack), frames=FRAMES
        )
        assert (of_planes.z is not None) == is_known
        if of_planes.z is not None:
            assert of_planes.z == pytest.approx(found.z, abs=0.5)


def test_jumps_within_the_window_are_followed() -> None:
    truth = np.zeros((FRAMES, 2))
    truth[1500:, 0], truth[2500:, 1] = 0.5, -0.5
    fits = molecules(40_000, 400, 0.1, 4, truth)
    found = estimate_drift(fits, frames=FRAMES, segment=100)
    apart, _ = deviations(found, truth)
    assert np.abs(apart).max() < 0.05


def test_segments_without_molecules_are_bridged() -> None:
    truth = simulated_drift(5, 1.0)
    fits = molecules(40_000, 400, 0.1, 5, truth)
    dark = (fits.frame >= 1200) & (fits.frame < 1600)
    rng = np.random.default_rng(1)
    random = fits.columns | {
        axis: np.where(dark, rng.uniform(0, 64, len(fits)), fits.columns[axis]) for axis in "yx"
    }
    for other in (fits[~dark], fits.with_columns(random)):
        with pytest.warns(UserWarning, match=r"too few molecules are seen again in frames 1\d\d\d"):
            found = estimate_drift(other, frames=FRAMES, segment=100)
        assert np.isnan(found.y_stderr[1300:1500]).all()
        assert not found.used[1300:1500].any()
        assert np.isfinite(found.y_stderr[:1100]).all()
        assert np.isfinite(found.y).all()
        apart = found.y - truth[:, 0]
        assert np.abs(apart - apart[:1000].mean())[:1100].max() < 0.1
        assert np.abs(apart - apart[:1000].mean())[1700:].max() < 0.1


def test_a_pause_of_the_movie_is_bridged() -> None:
    fits = molecules(40_000, 600, 0.08, frames=1000)
    later = np.where(fits.frame >= 500, fits.frame + 9000, fits.frame)
    moved = fits.with_columns(fits.columns | {"frame": later, "y": fits.y + 2e-5 * later})
    with pytest.warns(UserWarning, match="too few molecules"):
        found = estimate_drift(moved)
    seen = np.flatnonzero(np.isfinite(found.y_stderr))
    assert found.y[seen] == pytest.approx(2e-5 * seen, abs=0.02)
    assert 600 < len(seen) < 2500


def test_doubtful_and_invalid_rows_are_left_out() -> None:
    truth = simulated_drift(6, 1.0)
    fits = molecules(40_000, 400, 0.1, 6, truth)
    found = estimate_drift(fits, frames=FRAMES)
    worse = fits[np.arange(0, len(fits), 3)]
    moved = worse.with_columns(worse.columns | {"y": worse.y + 3, "flags": worse.flags | 2**31 - 1})
    unknown = fits[:500].with_columns(fits[:500].columns | {"x_stderr": np.full(500, np.nan)})
    lost = fits[:500].with_columns(fits[:500].columns | {"y": np.full(500, np.nan)})
    whole = SpotFits.concatenate([fits[500:], moved, unknown, lost])
    same = estimate_drift(whole, frames=FRAMES)
    apart = same.y - found.y
    assert np.abs(apart - apart.mean()).max() < 0.03


def test_parts_are_as_the_whole() -> None:
    fits = molecules(20_000, 300, 0.1, 7, simulated_drift(7, 0.5))
    flags = np.where(np.arange(len(fits)) % 50, 0, 2**31 - 1).astype(np.uint32)
    fits = fits.with_columns(fits.columns | {"flags": flags})
    part = fits.frame // 900
    parts = (fits[part == number] for number in range(5))
    found, whole = estimate_drift(parts, frames=FRAMES), estimate_drift(fits, frames=FRAMES)
    assert np.array_equal(found.y, whole.y)
    assert np.array_equal(found.x_stderr, whole.x_stderr)


def test_one_channel_only() -> None:
    fits = molecules(20_000, 300, 0.1)
    channels = np.arange(len(fits)) % 2
    both = SpotFits(fits.columns | {"channel": channels}, ("channel", "frame"))
    with pytest.raises(ValueError, match="channels 0, 1"):
        estimate_drift(both)
    assert len(estimate_drift(both[channels == 0], frames=FRAMES)) == FRAMES


def without(fits: SpotFits, name: str) -> SpotFits:
    return SpotFits({key: values for key, values in fits.columns.items() if key != name}, ())


FEW = molecules(5000, 100, 0.1)


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        (without(FEW, "frame"), "no column frame"),
        (without(FEW, "y_stderr"), "no column y_stderr"),
        (FEW[:0], "no fits"),
        (FEW[FEW.frame == FEW.frame[0]], "all fits are of frame"),
        (FEW[:10], "10 of 10 fits .* thousands"),
        (FEW.with_columns(FEW.columns | {"y_stderr": np.full(5000, np.nan)}), "0 of 5000 fits"),
        (FEW.with_columns(FEW.columns | {"x_stderr": np.zeros(5000)}), "0 of 5000 fits"),
        (table_of(np.arange(5000), *np.random.default_rng(0).normal(9, 0.1, (2, 5000))),
         "all fits are within"),
        (molecules(5000, 10, 0.1, background=1.0), "seen again"),
        (FEW.with_columns(FEW.columns | {"frame": FEW.frame + 2**40}), "a drift has one number"),
        (FEW.with_columns(FEW.columns | {"file": np.array(["a", "b"] * 2500, object)}), "files"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(fits: SpotFits, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_drift(fits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "ai"}, "method must be 'aim' or 'rcc'"),
        ({"segment": 0}, "segment must be a whole number from 1; got 0"),
        ({"frames": 100}, "a drift has one number"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_drift(FEW, **arguments)


def test_cross_correlation_of_few_spots_is_refused() -> None:
    with pytest.raises(ValueError, match="segments of the movie have"):
        estimate_drift(FEW[:100], "rcc")


def jumping(
    at: dict[int, float], speed: float = 0.0, frames: int = 1000
) -> tuple[SpotFits, Floats]:
    """Return 20 localisations a frame of 300 molecules that move along y, and how far."""
    truth = np.zeros((frames, 2))
    truth[:, 0] = speed * np.arange(frames)
    for first, step in at.items():
        truth[first:, 0] += step
    return molecules(20_000, 300, 0.1, 1, truth, background=0.0, frames=frames), truth


@pytest.mark.parametrize("at", [{500: 2.0}, {530: -2.0}, {300: 5.0, 600: -8.0}], ids=str)
def test_large_jumps_are_followed(at: dict[int, float]) -> None:
    fits, truth = jumping(at)
    with pytest.warns(UserWarning, match=f"jumps near frame {min(at) // 100 * 100}"):
        found = estimate_drift(fits, frames=1000, segment=100)
    near = np.min([np.abs(np.arange(1000) - first) for first in at], axis=0) < 100
    assert np.abs(found.y - truth[:, 0])[~near].max() < 0.03
    # In between it is not known in which frame.
    deviates = np.abs(found.y - truth[:, 0]) > np.maximum(4 * found.y_stderr, 0.03)
    assert deviates.mean() < 0.05


@pytest.mark.parametrize(
    ("at", "along_z"), [({}, {500: 700.0}), ({530: 2.0}, {530: -900.0}), ({300: 4.0}, {80: 2000.0})]
)
def test_jumps_along_z_are_followed(at: dict[int, float], along_z: dict[int, float]) -> None:
    fits, truth = jumping(at)
    depth = np.zeros(1000)
    for first, step in along_z.items():
        depth[first:] += step
    rng = np.random.default_rng(1)  # as for molecules()
    rng.uniform(0, 64.0, (300, 2))
    molecule = rng.integers(0, 300, 20_000)
    heights = np.random.default_rng(2).uniform(0, 600, 300)
    z = heights[molecule] + depth[fits.frame] + np.random.default_rng(3).normal(0, 25, 20_000)
    known = fits.columns | {"z": z, "z_stderr": np.full(20_000, 25, np.float32)}
    moved = SpotFits(known, ("frame",), units={"z": "nm", "z_stderr": "nm"})
    with pytest.warns(UserWarning, match="jumps near frame"):
        found = estimate_drift(moved, frames=1000, segment=50)
    assert found.z is not None
    near = np.min([np.abs(np.arange(1000) - first) for first in (*at, *along_z)], axis=0) < 50
    assert np.abs(found.z - depth)[~near].max() < 12
    assert np.abs(found.y - truth[:, 0])[~near].max() < 0.05


def test_a_jump_as_far_as_is_searched_is_a_jump() -> None:
    heights = np.zeros((1, *[2 * drift_jumps._FAR + 1] * 2), np.float32)
    heights[0, -1, 5] = 1000.0
    shift = drift_jumps._peaks(heights)[0] / drift_jumps._PIXEL
    assert shift == pytest.approx([drift_jumps._FAR, 5 - drift_jumps._FAR], abs=1.0)


@pytest.mark.parametrize("speed", [0.01, -0.03])
def test_fast_motion_is_followed(speed: float) -> None:
    fits, truth = jumping({}, speed)
    found = estimate_drift(fits, frames=1000, segment=100)
    assert found.y[-1] == pytest.approx(truth[-1, 0], abs=0.15)
    assert np.abs(found.x).max() < 0.05


def test_frames_after_the_last_spots_are_unknown() -> None:
    fits = molecules(20_000, 300, 0.1, frames=500)
    with pytest.warns(UserWarning, match="in frames 600–999"):
        found = estimate_drift(fits, frames=1000)
    assert np.isnan(found.y_stderr[700:]).all()
    assert not found.used[700:].any()
    assert np.isfinite(found.y_stderr[:500]).all()


@pytest.mark.parametrize("method", ["aim", "rcc"])
def test_stray_rows_are_left_out(method: Any) -> None:
    fits = molecules(20_000, 300, 0.1)
    estimate = partial(estimate_drift, method=method, frames=FRAMES, segment=500)
    whole = estimate(fits)
    for far, stray in ((1e6, 1), (-1e9, 1), (1e9, 400)):
        x = fits.x.copy()
        x[7 :: len(fits) // stray] = far
        with pytest.warns(UserWarning, match=f"{stray} of 20000 fits are far outside"):
            found = estimate(fits.with_columns(fits.columns | {"x": x}))
        assert np.abs(found.y - whole.y).max() < 0.01
        assert np.median(found.used) > 0.95 * np.median(whole.used)


def test_errors_of_cross_correlation() -> None:
    truth = simulated_drift(3, 0.5)
    fits = molecules(20_000, 300, 0.1, 3, truth)
    found = estimate_drift(fits, "rcc", frames=FRAMES)
    curve, middles = np.stack([found.y, found.x], axis=1)[100::200], slice(100, None, 200)
    apart = curve - truth.reshape(-1, 200, 2).mean(axis=1)
    apart -= apart.mean(axis=0)
    stated = np.stack([found.y_stderr, found.x_stderr], axis=1)[middles]
    assert 0.5 < np.sqrt(np.mean(apart**2) / np.mean(stated**2)) < 2


@pytest.mark.parametrize(
    ("count", "number", "size", "way"),
    [(3000, 400, 128.0, 10.0), (3000, 400, 128.0, 20.0), (15_000, 2000, 256.0, 20.0)],
    ids=str,
)
def test_cross_correlation_follows_a_long_way(
    count: int, number: int, size: float, way: float
) -> None:
    truth = np.linspace(0, 1, FRAMES)[:, np.newaxis] * [way, -way / 2]
    for seed in range(2):
        fits = molecules(count, number, 0.12, 40 + seed, truth, size, background=0.1)
        found = estimate_drift(fits, "rcc", frames=FRAMES)
        apart = np.stack([found.y, found.x], axis=1) - truth
        apart -= apart.mean(axis=0)
        assert np.abs(apart).max() < 0.25
        assert np.isfinite(found.y_stderr).all()
        stated = np.sqrt(np.mean(np.stack([found.y_stderr, found.x_stderr]) ** 2))
        assert 0.4 < np.sqrt(np.mean(apart**2)) / stated < 2


def test_segments_that_correlate_with_none_are_bridged() -> None:
    fits = molecules(20_000, 300, 0.1, 5)
    elsewhere = (fits.frame >= 1000) & (fits.frame < 1200)  # of 200 frames each
    y, x = np.random.default_rng(6).uniform(0, 64, (2, len(fits)))
    places = {
        axis: np.where(elsewhere, new, fits.columns[axis]) for axis, new in (("y", y), ("x", x))
    }
    with pytest.warns(UserWarning, match="in frames 1000–1199"):
        found = estimate_drift(fits.with_columns(fits.columns | places), "rcc", frames=FRAMES)
    unknown = np.isnan(found.y_stderr)
    assert unknown[1000:1200].all()
    assert not found.used[1000:1200].any()
    assert not unknown[:1000].any()
    assert np.abs(found.y).max() < 0.1


def test_cross_correlation_of_random_places_is_refused() -> None:
    with pytest.raises(ValueError, match="seen again"):
        estimate_drift(molecules(20_000, 10, 0.1, background=1.0), "rcc")


def same(one: Drift, other: Drift) -> bool:
    """Whether two drifts are equal to the bit."""
    pairs = zip(astuple(one)[:5], astuple(other)[:5], strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def test_neither_threads_nor_instruction_sets_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = molecules(200_000, 600, 0.08, drift=simulated_drift(1, 2.0))
    found = estimate_drift(fits)
    for number, name in enumerate(load().instruction_sets, 1):
        monkeypatch.setenv(INSTRUCTION_SET, name)
        monkeypatch.setattr(threads, "available", partial(int, 2 * number - 1))
        assert same(estimate_drift(fits), found)


def test_it_needs_little_memory_beside_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = molecules(1_000_000, 20_000, 0.08, size=400.0)
    monkeypatch.setattr(events, "_FEW", 10_000)  # of a block, which does not grow with tables
    monkeypatch.setattr(threads, "available", lambda: 1)
    estimate_drift(fits[:20_000])
    tracemalloc.start()
    estimate_drift(fits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * len(fits) + 2**24
