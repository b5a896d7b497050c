"""Rows that are the same to the bit: duplicates, and frames that were stored twice."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from napari_spotfit import (
    Settings,
    SpotFits,
    cluster,
    estimate_drift,
    fourier_ring_correlation,
    link_spots,
    localize,
    localize_iter,
    localize_to_folder,
    mean_square_displacements,
    merge_blinks,
    nena,
    pair_spots,
    per_frame,
    per_label,
    simulate_movie,
    summarize,
)
from napari_spotfit.results.repeats import FrameRepeats, duplicates

#: Of a localisation, in pixels.
ERROR = 0.1


def molecules(frames: int = 60, count: int = 150, seed: int = 0) -> SpotFits:
    """Return localisations of molecules that are lit for some frames, with a column of these."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 200, (count, 2))
    lit = random.random((frames, count)) < 0.2
    lit[1:] |= lit[:-1] & (random.random((frames - 1, count)) < 0.6)
    frame, molecule = np.nonzero(lit)
    found = places[molecule] + random.normal(0, ERROR, (len(frame), 2))
    errors = np.full(len(frame), ERROR, np.float32)
    return SpotFits(
        {
            "frame": frame, "y": found[:, 0], "x": found[:, 1], "y_stderr": errors,
            "x_stderr": errors, "photons": random.normal(1000, 30, len(frame)).astype(np.float32),
            "true_y": places[molecule, 0], "stop_condition": np.full(len(frame), 3, np.uint8),
        },
        ["frame"],
    )  # fmt: skip


def recorded(fits: SpotFits, shown: Any) -> SpotFits:
    """Return fits of a movie that shows these frames of the first one, one after the other."""
    parts = []
    for number, frame in enumerate(shown):
        own = fits[fits.frame == frame]
        parts.append(own.with_columns(own.columns | {"frame": np.full(len(own), number)}))
    return SpotFits.concatenate(parts)


def frozen(frames: int, share: float, seed: int) -> np.ndarray[Any, Any]:
    """Return which frame a movie shows where dropped frames are filled with the last one."""
    dropped = np.random.default_rng(seed).random(frames) < share
    dropped[0] = False
    return np.maximum.accumulate(np.where(dropped, 0, np.arange(frames)))


CASES = {
    "some frozen": frozen(60, 0.2, 1), "half frozen": frozen(60, 0.5, 2),
    "each twice": np.repeat(np.arange(60), 2),
}  # fmt: skip


@pytest.mark.parametrize("shown", CASES.values(), ids=CASES)
def test_frames_that_were_stored_twice_do_not_sharpen_the_precision(
    shown: np.ndarray[Any, Any],
) -> None:
    fits = molecules()
    twice = recorded(fits, shown)
    with pytest.warns(UserWarning, match="same, to the bit, as one in the frame before"):
        found = nena(twice)
    assert found.precision == pytest.approx(ERROR, rel=0.1)
    assert found.kappa == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("shown", CASES.values(), ids=CASES)
def test_a_measurement_counts_once_in_an_event(shown: np.ndarray[Any, Any]) -> None:
    fits = molecules()
    with pytest.warns(UserWarning, match="what they measure counts once in events"):
        events, members = merge_blinks(recorded(fits, shown), members=True)
    ordinary = merge_blinks(fits)
    deviation = (events.y - events.true_y) / events.y_stderr
    single = (ordinary.y - ordinary.true_y) / ordinary.y_stderr
    assert np.std(deviation) == pytest.approx(np.std(single), rel=0.1)
    lasting = events.n_detections > 1
    assert np.mean(events.scatter_chi_square[lasting]) == pytest.approx(1, rel=0.15)
    assert events.photons.sum() == pytest.approx(
        sum(fits.photons[fits.frame == frame].sum() for frame in np.unique(shown)), rel=1e-5
    )
    assert (members.parent >= 0).all()
    assert (events.n_frames >= events.n_detections + events.dark_frames).all()


def test_one_frame_many_times_is_one_measurement() -> None:
    fits = molecules(frames=1, count=600)
    many = recorded(fits, np.zeros(60, int))
    with pytest.warns(UserWarning, match="same, to the bit"):
        events = merge_blinks(many)
    assert (events.n_detections == 1).all()
    assert (events.n_frames == 60).all()
    assert (events.y_stderr == np.float32(ERROR)).all()
    with pytest.warns(UserWarning, match="to the bit"), pytest.raises(ValueError, match="pairs"):
        nena(many)


def test_picassos_rule_counts_all_and_says_so() -> None:
    fits = recorded(molecules(), CASES["each twice"])
    with pytest.warns(UserWarning, match="counts several times by Picasso's rule"):
        events = merge_blinks(fits, radius=0.5, rule="picasso")
    assert events.n_detections.min() > 1


def test_parts_know_of_frames_that_were_stored_twice() -> None:
    fits = recorded(molecules(), CASES["half frozen"])
    parts = [fits[:500], fits[500:503], fits[503:]]
    with pytest.warns(UserWarning, match="counts once"):
        whole = merge_blinks(fits)
    with pytest.warns(UserWarning, match="counts once"):
        found = SpotFits.concatenate(list(merge_blinks(parts)))
    order = [np.lexsort((one.x, one.y)) for one in (whole, found)]
    for name in ("y", "y_stderr", "n_detections", "n_frames", "dark_frames"):
        one, other = (whole.columns[name][order[0]], found.columns[name][order[1]])
        assert np.array_equal(one, other), name


def test_measured_and_simulated_positions_are_no_repeats() -> None:
    nena(molecules())
    at_pixels = molecules()
    columns = at_pixels.columns | {"y": np.round(at_pixels.y), "x": np.round(at_pixels.x)}
    merge_blinks(at_pixels.with_columns(columns), radius=0.5)
    still = {name: at_pixels.columns[name] for name in ("frame", "y", "x", "stop_condition")}
    still["y"], still["x"] = at_pixels.true_y, at_pixels.true_y
    merge_blinks(SpotFits(still, ["frame"]), radius=0.5)


def movie_with_repeats() -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    movie = simulate_movie(6, shape=(64, 64), spots_per_frame=5, photons=3000, seed=4)[0]
    known = {"sigma": 1.3, "neighbours": "exclude", "gain": 1.0, "offset": 100.0}
    return movie[[0, 0, 1, 2, 3, 3, 3, 4, 5]], known


WAYS: dict[str, Callable[..., object]] = {
    "localize": lambda movie, folder, **known: localize(movie, **known),
    "two movies": lambda movie, folder, **known: localize(np.stack([movie, movie]), **known),
    "localize_iter": lambda movie, folder, **known: list(localize_iter(movie, **known)),
    "localize_to_folder": localize_to_folder,
}


@pytest.mark.parametrize("way", WAYS)
def test_localize_names_identical_frames(way: str, tmp_path: Any) -> None:
    movie, known = movie_with_repeats()
    with pytest.warns(UserWarning, match=r"3 frames have the same spots .*: 1, 5, 6\. ") as said:
        WAYS[way](movie, tmp_path / "parts", **known)
    assert len(said) == 1


def test_other_frames_are_not_named() -> None:
    movie, known = movie_with_repeats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(movie[[0, 2, 3, 4, 7, 8, 0]], **known)
        localize(np.zeros((5, 64, 64), np.uint16) + 100, **known)
        # Positions beside each other, some of them the same.
        localize(movie[[0, 2, 3, 3]].reshape(4, 1, 64, 64), **known)


def test_parts_of_large_frames_are_joined() -> None:
    columns = {
        "frame": np.array([0, 0, 1, 1, 2, 2]), "y": np.array([1.5, 9.5, 1.5, 9.5, 1.5, 9.25]),
        "x": np.full(6, 2.5),
    }  # fmt: skip
    fits, seen = SpotFits(columns, ["frame"], Settings()), FrameRepeats()
    for part in (fits[:1], fits[1:3], fits[3:5], fits[5:]):
        seen.add(part)
    assert seen.frames().tolist() == [1]


ANALYSES: dict[str, Callable[[SpotFits], object]] = {
    "merge_blinks": merge_blinks,
    "nena": nena,
    "link_spots": lambda fits: link_spots(fits, 0.5),
    "estimate_drift": estimate_drift,
    "fourier_ring_correlation": fourier_ring_correlation,
    "pair_spots": lambda fits: pair_spots(fits, molecules(), 0.5),
    "per_frame": per_frame,
    "summarize": summarize,
    "cluster": lambda fits: cluster(fits, radius=0.5),
    "per_label": lambda fits: per_label(fits, np.ones((200, 200, 201), np.uint8)),
}


def assert_same(found: Any, expected: Any, rows: int) -> None:
    """Compare results of an analysis; tables of fits have at least these rows."""
    if isinstance(found, SpotFits):
        for name in ("track", "cluster"):
            if name in found:
                found = found.with_columns({name: found.columns[name] for name in (name, "y", "x")})
                assert (found.columns[name][rows:] == -1).all()
        found, expected = found[:rows].to_dataframe(), expected.to_dataframe()
    if isinstance(found, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected[list(found)])
        return
    for field in dataclasses.fields(found):
        one, other = (getattr(result, field.name) for result in (found, expected))
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other)
        elif one is not None:
            np.testing.assert_array_equal(one, other, field.name)


@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_warns_of_a_table_that_was_joined_with_itself(name: str) -> None:
    fits = molecules(frames=200)
    twice = SpotFits.concatenate([fits, fits])
    with pytest.warns(UserWarning, match=f"{len(fits):,} of {2 * len(fits):,} rows are") as said:
        found = ANALYSES[name](twice)
    assert len(said) == 1
    once = eval(str(said[0].message).rpartition(": ")[2], {"fits": twice})  # what it advises
    assert len(once) == len(fits)
    assert_same(found, ANALYSES[name](once), len(fits))


def drifting(frames: int = 400) -> SpotFits:
    fits = molecules(frames=frames, count=300)
    return fits.with_columns(fits.columns | {"y": fits.y + 0.002 * fits.frame})


def test_a_last_frame_many_times_does_not_change_the_drift() -> None:
    shown = np.append(np.arange(200), np.full(200, 199))
    with (
        pytest.warns(UserWarning, match="frames 250–399: the drift there is"),
        pytest.warns(UserWarning, match="what they measure counts once"),
    ):
        drift = estimate_drift(recorded(drifting(), shown))
    assert drift.y[:200] == pytest.approx(0.002 * np.arange(200), abs=0.02)
    assert np.nanmedian(drift.y_stderr[:200]) < 0.005


def test_frames_that_were_stored_again_are_no_detail() -> None:
    fits = drifting(200)
    without = fourier_ring_correlation(fits[fits.frame < 200])
    with pytest.warns(UserWarning, match="what they measure counts once"):
        found = fourier_ring_correlation(
            recorded(fits, np.append(np.arange(200), np.full(200, 199)))
        )
    assert found.resolution == pytest.approx(without.resolution, rel=0.1)
    assert found.resolution_stderr < 0.1 * found.resolution


def test_frames_that_were_stored_again_are_no_rest() -> None:
    fits = recorded(molecules(frames=100), frozen(100, 0.5, 1))
    tracks = link_spots(fits, 0.7)
    again = fits[np.isin(fits.y, fits.y[fits.frame == 0])]
    assert len(np.unique(tracks.track[np.isin(fits.y, again.y)])) == len(np.unique(again.y))
    with pytest.warns(UserWarning, match="what they measure counts once"):
        table = mean_square_displacements(tracks, 2)
    # Of molecules at rest, it is that of the errors.
    assert np.average(table["msd"], weights=table["count"]) == pytest.approx(4 * ERROR**2, rel=0.08)


def test_pairs_and_clusters_of_frames_that_were_stored_again() -> None:
    fits = molecules()
    again = recorded(fits, np.append(np.arange(60), np.full(40, 59)))
    other = fits.with_columns(fits.columns | {"x": fits.x + 0.2})
    with pytest.warns(UserWarning, match="what they measure counts once"):
        pairs, expected = pair_spots(again, other, 0.5), pair_spots(fits, other, 0.5)
    assert pairs.observed == expected.observed
    assert pairs.stderr == pytest.approx(expected.stderr)
    assert (again.y[pairs.a] == fits.y[expected.a]).all()
    with pytest.warns(UserWarning, match="what they measure counts once"):
        found = cluster(again, radius=0.3)
    assert (found.cluster[: len(fits)] == cluster(fits, radius=0.3).cluster).all()
    with pytest.warns(UserWarning, match="to the bit"), pytest.raises(ValueError, match="frame 0"):
        estimate_drift(recorded(fits, np.zeros(60, int)))


def test_some_duplicates_and_those_of_other_files() -> None:
    fits = molecules()
    some = SpotFits.concatenate([fits, fits[5:9], fits[5:6]])
    with pytest.warns(UserWarning, match="5 of"):
        found = duplicates(some)
    assert np.flatnonzero(found).tolist() == list(range(len(fits), len(fits) + 5))
    names = np.repeat(["a.tif", "b.tif"], len(fits))
    two = SpotFits.concatenate([fits, fits])
    assert not duplicates(two.with_columns(two.columns | {"file": names})).any()
