"""Merging blinks: events against simulated ones, and against rules in plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from blinking import blinking, molecules_of, table_of
from numpy.typing import NDArray

from napari_spotfit import (
    Flag,
    SpotFits,
    estimate_drift,
    fourier_ring_correlation,
    merge_blinks,
    nena,
)
from napari_spotfit.analysis.linking import movies_of

GATE = -2 * math.log(0.001)


def parents(fits: SpotFits, *args: Any, **named: Any) -> NDArray[np.int64]:
    return merge_blinks(fits, *args, members=True, **named)[1].parent


def by_hand(fits: SpotFits, max_dark: int, radius: float | None) -> list[set[int]]:
    """Merge by comparing every fit with every event; return the rows of each event."""
    done: list[dict[str, Any]] = []
    y, x = fits.y, fits.x
    vy, vx = (fits.columns[f"{axis}_stderr"].astype(float) ** 2 for axis in "yx")
    for frame in np.unique(fits.frame):
        free = set(np.flatnonzero(fits.frame == frame).tolist())
        for gap in range(max_dark + 1):
            near = {}
            for number, event in enumerate(done):
                if frame - event["last"] - 1 != gap:
                    continue
                for row in free:
                    dy, dx = y[row] - event["y"], x[row] - event["x"]
                    if radius is None:
                        apart = dy**2 / (1 / event["wy"] + vy[row])
                        apart += dx**2 / (1 / event["wx"] + vx[row])
                        inside = apart <= GATE
                    else:
                        apart, inside = dy**2 + dx**2, dy**2 + dx**2 <= radius**2
                    if inside:
                        near[number, row] = apart
            for (number, row), apart in near.items():
                nearest = all(
                    apart <= other for (n, r), other in near.items() if n == number or r == row
                )
                if nearest:
                    event = done[number]
                    for axis, own, value in (("y", 1 / vy[row], y), ("x", 1 / vx[row], x)):
                        event["w" + axis] += own
                        event[axis] += (value[row] - event[axis]) * own / event["w" + axis]
                    event["last"] = frame
                    event["rows"].add(row)
                    free.discard(row)
        done += [
            {"y": y[row], "x": x[row], "wy": 1 / vy[row], "wx": 1 / vx[row], "last": frame,
             "rows": {row}}
            for row in free
        ]  # fmt: skip
    return [event["rows"] for event in done]


def events_of(parent: NDArray[np.int64]) -> list[set[int]]:
    return [set(np.flatnonzero(parent == number).tolist()) for number in np.unique(parent)]


def as_sets(events: list[set[int]]) -> set[frozenset[int]]:
    return {frozenset(event) for event in events}


def crowd(count: int, frames: int, size: float, seed: int) -> SpotFits:
    """Return fits so dense that many are in several gates, of very different errors."""
    rng = np.random.default_rng(seed)
    error = 0.1 * np.exp(rng.normal(size=count))
    fits = table_of(
        np.sort(rng.integers(0, frames, count)), *rng.uniform(0, size, (2, count)), error
    )
    wide = fits.columns | {"x_stderr": (error * rng.uniform(0.5, 2, count)).astype(np.float32)}
    return fits.with_columns(wide)


@pytest.mark.parametrize("max_dark", [0, 1, 4])
@pytest.mark.parametrize("radius", [None, 0.4])
@pytest.mark.parametrize("size", [3.0, 12.0, 60.0])
def test_events_are_those_of_the_rule(max_dark: int, radius: float | None, size: float) -> None:
    for seed in range(4):
        fits = crowd(160, 12, size, seed)
        found = as_sets(events_of(parents(fits, max_dark, radius)))
        assert found == as_sets(by_hand(fits, max_dark, radius))


def test_a_few_huge_errors_do_not_change_the_rule() -> None:
    fits = crowd(150, 10, 30.0, 5)
    error = fits.y_stderr.copy()
    error[::17] = 8.0
    fits = fits.with_columns(fits.columns | {"y_stderr": error})
    assert as_sets(events_of(parents(fits))) == as_sets(by_hand(fits, 1, None))


@pytest.mark.parametrize(
    "kinetics", [(3000, 20000, 3.0, 3000.0, None), (3000, 20000, 1.5, 300.0, 20.0)],
    ids=["DNA-PAINT", "dSTORM"],
)  # fmt: skip
@pytest.mark.parametrize("max_dark", [0, 1, 3])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_the_number_of_events(kinetics: tuple[Any, ...], max_dark: int, spread: float) -> None:
    truth = blinking(*kinetics)
    frame, molecule = truth.rows()
    rng = np.random.default_rng(2)
    error = 0.08 * np.exp(spread * rng.normal(size=len(frame)))
    fits = molecules_of(rng.uniform(0, 256, (kinetics[0], 2)), frame, molecule, error)
    events = merge_blinks(fits, max_dark)
    assert len(events) == pytest.approx(truth.events(max_dark), rel=0.01)
    assert events.n_detections.sum() == len(fits)


def single_molecules(error: Any = 0.1, length: int = 5, count: int = 2000) -> SpotFits:
    """Return fits of molecules far apart, each in successive frames."""
    frame = np.repeat(np.arange(length), count)
    places = np.column_stack([np.arange(count) * 7.0, np.zeros(count)])
    return molecules_of(places, frame, np.tile(np.arange(count), length), error)


def test_positions_errors_and_scatter() -> None:
    error = np.random.default_rng(0).uniform(0.05, 0.2, 10_000)
    events = merge_blinks(single_molecules(error))
    whole = events[events.n_detections == 5]
    assert len(whole) > 1900
    deviates = (whole.y - 7 * np.rint(whole.y / 7)) / whole.y_stderr
    assert deviates.std() == pytest.approx(1, abs=0.05)
    inverse = 1 / np.sqrt((1 / error.reshape(5, -1) ** 2).sum(axis=0))
    assert np.allclose(events.y_stderr[events.n_detections == 5].mean(), inverse.mean(), rtol=0.01)
    assert whole.scatter_chi_square.mean() == pytest.approx(1, abs=0.03)
    too_small = merge_blinks(single_molecules(error), radius=2.0)
    assert np.allclose(too_small.y.mean(), 7 * 999.5, atol=0.01)


def test_scatter_shows_errors_that_are_too_small() -> None:
    fits = single_molecules(0.1)
    halved = {f"{axis}_stderr": fits.columns[f"{axis}_stderr"] / 2 for axis in "yx"}
    scatter = merge_blinks(fits.with_columns(fits.columns | halved), radius=1.0).scatter_chi_square
    assert np.nanmean(scatter) == pytest.approx(4, abs=0.15)


def test_far_from_the_origin_nothing_is_lost() -> None:
    fits = single_molecules(0.01)
    far = fits.with_columns(fits.columns | {"y": fits.y + 1e6})
    events, moved = merge_blinks(fits, radius=0.2), merge_blinks(far, radius=0.2)
    assert np.allclose(moved.y - 1e6, events.y, atol=1e-8)
    assert np.allclose(moved.scatter_chi_square, events.scatter_chi_square, rtol=1e-3)


def test_columns_of_an_event() -> None:
    fits = table_of(
        [3, 4, 6, 9], [5, 5.02, 5, 5], [7, 7, 7.02, 7], [0.1, 0.1, 0.05, 0.1],
        photons=np.array([100, 200, 300, 50], np.float32),
        photons_stderr=np.array([3, 4, 12, 1], np.float32),
        background=np.array([1, 2, 6, 9], np.float32),
        background_stderr=np.array([0.3, 0.4, 1.2, 1], np.float32),
        angle=np.array([89, -89, -88, 0], np.float32),
        angle_stderr=np.array([2, 2, 2, 2], np.float32),
        sigma=np.array([1.3, 1.3, 1.3, 1.4], np.float32),
        sigma_stderr=np.zeros(4, np.float32),
        chi_square=np.array([1.0, 2.0, np.nan, 4.0], np.float32),
        label=np.array([7, 8, 8, 9]), name=np.array(["a", "b", "c", "d"], object),
    )  # fmt: skip
    events, members = merge_blinks(fits, 1, members=True)
    assert members.parent.tolist() == [0, 0, 0, 1]
    first = events[0]
    assert first.n_detections[0] == 3
    assert (first.frame[0], first.n_frames[0], first.dark_frames[0]) == (3, 4, 1)
    assert first.photons[0] == 600
    assert first.photons_stderr[0] == pytest.approx(13)
    assert first.background[0] == pytest.approx(3)
    assert first.background_stderr[0] == pytest.approx(1.3 / 3)
    assert first.angle[0] == pytest.approx(272 / 3)
    assert first.sigma[0] == pytest.approx(1.3)
    assert first.sigma_stderr[0] == 0
    assert first.chi_square[0] == 1.5
    assert (first.label[0], first.name[0]) == (7, "a")
    assert first.y[0] == pytest.approx(5 + 0.02 / 6)
    assert first.y_stderr[0] == pytest.approx(0.1 / math.sqrt(6))
    assert events.truncated.tolist() == [True, True]
    assert math.isnan(events.scatter_chi_square[1])
    assert {name: column.dtype for name, column in fits.columns.items()} == {
        name: events.columns[name].dtype for name in fits.columns
    }


def test_flags_are_those_of_all_fits() -> None:
    harmless = [flag for flag in Flag if is_good(flag)][:2]
    flags = np.array([harmless[0], harmless[1], 0], np.uint32)
    fits = table_of([0, 1, 2], [5, 5, 5], [5, 5, 5], flags=flags)
    assert merge_blinks(fits).flags.tolist() == [int(harmless[0] | harmless[1])]


def is_good(flag: Flag) -> bool:
    return bool(table_of([0], [1], [1], flags=np.array([flag], np.uint32)).good[0])


def test_only_inner_events_are_whole() -> None:
    fits = table_of([0, 1, 3, 3, 4, 5], [1, 1, 9, 20, 20, 30], [1] * 6)
    assert merge_blinks(fits, 0).truncated.tolist() == [True, False, False, True]


@pytest.mark.parametrize("rule", ["nearest", "picasso"])
def test_the_order_of_rows_does_not_matter(rule: Any) -> None:
    fits = crowd(400, 20, 10.0, 1)
    fits = fits.with_columns(fits.columns | {"frame": fits.frame + 1})
    order = np.random.default_rng(0).permutation(len(fits))
    if rule == "picasso":  # depends on the order within a frame
        order = order[:0].tolist() + [int(i) for i in np.argsort(-fits.frame, kind="stable")]
    radius = 0.5 if rule == "picasso" else None
    one, two = parents(fits, 1, radius, rule=rule), parents(fits[order], 1, radius, rule=rule)
    back = np.empty(len(fits), np.int64)
    back[order] = two
    assert as_sets(events_of(one)) == as_sets(events_of(back))


def test_events_are_in_order_of_frames() -> None:
    fits = crowd(400, 20, 30.0, 1)[np.random.default_rng(0).permutation(400)]
    events, members = merge_blinks(fits, members=True)
    assert (np.diff(events.frame) >= 0).all()
    first = [int(members.frame[members.parent == number].min()) for number in range(len(events))]
    assert first == events.frame.tolist()


def greedy(fits: SpotFits, radius: float, dark: int) -> NDArray[np.int64]:
    """Link by Picasso's rule, as its documentation says."""
    group, number = np.full(len(fits), -1), -1
    for row in range(len(fits)):
        if group[row] >= 0:
            continue
        number += 1
        at: int | None = row
        while at is not None:
            group[at] = number
            later = (fits.frame > fits.frame[at]) & (fits.frame <= fits.frame[at] + dark + 1)
            apart = np.hypot(fits.y - fits.y[at], fits.x - fits.x[at])
            found = np.flatnonzero(later & (group < 0) & (apart <= radius))
            at = int(found[0]) if len(found) else None
    return group


@pytest.mark.parametrize("dark", [0, 3])
def test_picassos_rule(dark: int) -> None:
    fits = crowd(500, 30, 8.0, 3)
    group = greedy(fits, 0.4, dark)
    events, members = merge_blinks(fits, dark, 0.4, True, "picasso")
    kept = np.array([fits.frame[group == number].min() > 0 for number in range(group.max() + 1)])
    expected = np.where(kept[group], (np.cumsum(kept) - 1)[group], -1)
    assert members.parent.tolist() == expected.tolist()
    weights = 1 / fits.x_stderr.astype(float) ** 2
    for number in range(0, len(events), 7):
        own = expected == number
        assert events.x[number] == pytest.approx(np.average(fits.x[own], weights=weights[own]))
        assert events.x_stderr[number] == pytest.approx(weights[own].sum() ** -0.5)
        assert events.photons[number] == pytest.approx(fits.photons[own].sum())


def test_movies_are_merged_separately() -> None:
    once = table_of([0, 1, 2], [5, 5, 5], [5, 5, 5])
    for more in (
        {"file": np.array(["a", "b", "a"], object)},
        {"channel": np.array([0, 1, 0])},
        {"axis_0": np.array([0, 1, 0]), "axis_1": np.array([0, 1, 2])},
    ):
        fits = once.with_columns(once.columns | more)
        assert parents(fits).tolist() == [0, 1, 0]
        assert parents(fits, 0).tolist() == [0, 2, 1]
        assert movies_of(fits).tolist() == [0, 1, 0]


def test_many_movies() -> None:
    parts = [crowd(100, 10, 10.0, seed) for seed in range(9)]
    joined = SpotFits.concatenate(parts)
    file = np.repeat([f"{number}.tif" for number in range(9)], 100).astype(object)
    mixed = np.random.default_rng(0).permutation(900)
    fits = joined.with_columns(joined.columns | {"file": file})[mixed]
    events, members = merge_blinks(fits, members=True)
    assert len(events) == sum(len(merge_blinks(part)) for part in parts)
    assert (events.file[members.parent] == members.file).all()


def test_doubtful_fits_are_left_out() -> None:
    rejecting = next(flag for flag in Flag if not is_good(flag))
    flags = np.array([0, rejecting, 0], np.uint32)
    fits = table_of([0, 1, 2], [5, 5, 5], [5, 5, 5], flags=flags)
    assert not fits.good[1]
    events, members = merge_blinks(fits, members=True)
    assert members.parent.tolist() == [0, -1, 0]
    assert events.dark_frames.tolist() == [1]
    invalid = fits.with_columns(fits.columns | {"y": np.array([5, np.nan, 5])})
    assert parents(invalid).tolist() == [0, -1, 0]


def test_fits_without_errors_stay_single() -> None:
    for unknown in (np.nan, 0.0, np.inf, -1.0):
        fits = table_of([0, 1, 2, 2], [5, 5, 5, 9], [5, 5, 5, 9], [unknown, 0.1, 0.1, unknown])
        with pytest.warns(UserWarning, match="2 of 4 fits have no standard errors"):
            events, members = merge_blinks(fits, members=True)
        assert members.parent.tolist() == [0, 1, 1, 2]
        assert events.y.tolist() == [5, 5, 9]
        assert parents(fits, radius=0.5).tolist() == [0, 0, 0, 1]


def test_without_any_errors_a_radius_is_needed() -> None:
    columns = {k: v for k, v in crowd(50, 5, 5.0, 0).columns.items() if not k.endswith("_stderr")}
    fits = SpotFits(columns, ("frame",))
    with pytest.raises(ValueError, match=r"no column y_stderr.*radius"):
        merge_blinks(fits)
    events = merge_blinks(fits, radius=0.3)
    assert np.isnan(events.scatter_chi_square).all()
    assert "y_stderr" not in events


def test_along_z() -> None:
    places = {"y": [5.0] * 4, "x": [5.0] * 4, "frame": [0, 0, 1, 1]}
    z, error = np.array([0.0, 300, 20, 310]), np.full(4, 20, np.float32)
    fits = table_of(**places, z=z, z_stderr=error)
    assert parents(fits).tolist() == [0, 1, 0, 1]
    assert parents(fits, radius=1.0).tolist() == [0, 1, 0, 1]
    assert merge_blinks(fits).z.tolist() == [10, 305]
    assert np.allclose(merge_blinks(fits).z_stderr, 20 / math.sqrt(2))


def test_frames_beyond_32_bits() -> None:
    fits = table_of(np.array([0, 1, 3]) + 2**40, [5, 5, 5], [5, 5, 5])
    assert parents(fits, 1).tolist() == [0, 0, 0]
    assert merge_blinks(fits, 1).frame.tolist() == [2**40]
    assert parents(fits, 10**12).tolist() == [0, 0, 0]


def test_without_good_fits_there_are_no_events() -> None:
    fits = crowd(5, 2, 5.0, 0)
    bad = fits.with_columns(fits.columns | {"flags": np.full(len(fits), 1, np.uint32)})
    with pytest.warns(UserWarning, match=f"none of these {len(fits)} fits is good"):
        assert len(merge_blinks(bad)) == 0


def test_no_fits_and_one_frame() -> None:
    none = crowd(5, 2, 5.0, 0)[:0]
    events, members = merge_blinks(none, members=True)
    assert len(events) == len(members) == 0
    assert "n_detections" in events
    assert len(merge_blinks(crowd(5, 1, 5.0, 0))) == 5


def test_all_in_one_place_is_ambiguous() -> None:
    frame = np.repeat(np.arange(3), 2000)
    with pytest.raises(ValueError, match="ambiguous"):
        merge_blinks(table_of(frame, np.full(6000, 5.0), np.full(6000, 5.0)))


def test_a_molecule_that_is_always_there() -> None:
    fits = table_of(np.arange(5000), np.full(5000, 5.0), np.full(5000, 5.0))
    events = merge_blinks(fits)
    assert events.n_detections.tolist() == [5000]
    assert events.y_stderr[0] == pytest.approx(0.1 / math.sqrt(5000))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_dark_frames": -1}, "max_dark_frames must be a whole number"),
        ({"max_dark_frames": 1.5}, "max_dark_frames must be a whole number"),
        ({"radius": 0.0}, "radius must be a finite number of pixels above 0"),
        ({"radius": math.nan}, "radius must be a finite number of pixels above 0"),
        ({"rule": "first"}, "rule must be 'nearest' or 'picasso'"),
        ({"rule": "picasso"}, "needs a radius"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        merge_blinks(crowd(5, 2, 5.0, 0), **arguments)


def test_events_and_fits_of_one_image_are_refused() -> None:
    fits = crowd(50, 5, 5.0, 0)
    events = merge_blinks(fits)
    assert events.history[-1].name == "merge_blinks"
    with pytest.raises(ValueError, match="merged before"):
        merge_blinks(events)
    columns = {name: values for name, values in fits.columns.items() if name != "frame"}
    with pytest.raises(ValueError, match="no column frame"):
        merge_blinks(SpotFits(columns))


@pytest.mark.parametrize("first", [np.nan, np.inf, -np.inf, 0.5, -(2**63), 2**62, "a"])
@pytest.mark.parametrize("read", [merge_blinks, nena, estimate_drift, fourier_ring_correlation])
def test_frames_are_whole_numbers(first: Any, read: Any) -> None:
    fits = single_molecules()
    frame = np.array([first, *fits.frame[1:].tolist()], None if first != "a" else object)
    with pytest.raises(ValueError, match="column frame must"):
        read(fits.with_columns(fits.columns | {"frame": frame}))


def test_frames_as_real_numbers() -> None:
    fits = single_molecules()
    real = fits.with_columns(fits.columns | {"frame": fits.frame.astype(float)})
    assert merge_blinks(real).n_frames.tolist() == merge_blinks(fits).n_frames.tolist()


def test_too_many_dark_frames_are_refused() -> None:
    fits = table_of([0, 1, 2**40], [5, 5, 5], [5, 5, 5])
    with pytest.raises(ValueError, match="max_dark_frames must be at most"):
        merge_blinks(fits, 2**50)
    assert parents(fits).tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["axis_0", "position"])
def test_any_other_index_separates_movies(name: str) -> None:
    once = table_of([0, 1, 2, 0], [5, 5, 5, 9], [5, 5, 5, 9])
    fits = SpotFits(once.columns | {name: np.array([0, 1, 0, 1])}, (name, "frame"))
    assert parents(fits).tolist() == [0, 2, 0, 1]
    with pytest.raises(ValueError, match=f"2 positions on {name}"):
        estimate_drift(fits)
    with pytest.raises(ValueError, match=f"2 positions on {name}"):
        fourier_ring_correlation(fits)


def test_fits_that_do_not_say_why_they_ended() -> None:
    fits = single_molecules(count=50)
    bare = {name: fits.columns[name] for name in ("frame", "y", "x", "y_stderr", "x_stderr")}
    unknown = SpotFits(bare, ("frame",))
    assert parents(unknown).tolist() == parents(fits).tolist()
    assert not unknown.judged.any()
    assert unknown.accepted.all()
