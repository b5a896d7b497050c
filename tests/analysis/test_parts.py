"""Steps after the fit over parts of a table: as of the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blinking import blinking, molecules_of, table_of

from napari_spotfit import (
    Drift,
    SpotFits,
    fiducial_drift,
    fourier_ring_correlation,
    link_spots,
    load_parts,
    localize,
    localize_to_folder,
    merge_blinks,
    nena,
    save_fits,
    simulate_movie,
    subtract_drift,
)
from napari_spotfit.localization import stored


def blinks(**more: Any) -> SpotFits:
    frame, molecule = blinking(300, 600, 4.0, 40.0, seed=1).rows()
    places = np.random.default_rng(2).uniform(0, 40, (300, 2))
    errors = np.random.default_rng(3).uniform(0.05, 0.2, len(frame))
    fits = molecules_of(places, frame, molecule, errors)
    rejected = np.where(np.arange(len(fits)) % 17, 0, 2**31 - 1).astype(np.uint32)
    rng = np.random.default_rng(4)
    columns = {
        "flags": rejected, "sigma": rng.normal(1.3, 0.1, len(fits)).astype(np.float32),
        "angle": rng.uniform(-90, 90, len(fits)).astype(np.float32),
        "background": rng.normal(9, 1, len(fits)).astype(np.float32),
    }  # fmt: skip
    return fits.with_columns(fits.columns | columns | more)


def cut(fits: SpotFits, *ends: int) -> list[SpotFits]:
    return [fits[first:last] for first, last in zip((0, *ends), (*ends, len(fits)), strict=True)]


def by_position(fits: SpotFits) -> SpotFits:
    return fits[np.lexsort((fits.x, fits.y, fits.frame))]


def assert_same(one: SpotFits, other: SpotFits) -> None:
    one, other = by_position(one), by_position(other)
    assert one.columns.keys() == other.columns.keys()
    for name, values in one.columns.items():
        assert np.array_equal(values, other.columns[name], equal_nan=values.dtype.kind == "f"), name
    assert one.history == other.history


def movies() -> SpotFits:
    fits = blinks()
    return fits.with_columns(
        fits.columns | {"file": np.where(fits.y < 20, "a.tif", "b.tif").astype(object)}
    )


def with_a_bead() -> SpotFits:
    fits = blinks()
    every = table_of(np.arange(600), np.full(600, 50.0), np.full(600, 50.0), 0.1)
    bead = {name: every.columns.get(name, fits.columns[name][:600]) for name in fits.columns}
    both = SpotFits.concatenate([fits, fits.with_columns(bead)])
    return both[np.argsort(both.frame, kind="stable")]


def with_unknown_rows() -> SpotFits:
    fits = blinks()
    y, error = fits.y.copy(), fits.columns["x_stderr"].copy()
    y[5::40], error[7::50] = np.nan, np.nan
    return fits.with_columns(fits.columns | {"y": y, "x_stderr": error})


@pytest.mark.filterwarnings("ignore:.*no standard errors above 0")
@pytest.mark.parametrize(
    "table",
    [blinks, movies, with_a_bead, with_unknown_rows, lambda: blinks()[::-1]],
    ids=["blinks", "movies", "bead", "unknown", "backwards"],
)
@pytest.mark.parametrize("ends", [(), (1, 1, 700, 703), (3000,)], ids=str)
@pytest.mark.parametrize("arguments", [{}, {"radius": 0.3, "rule": "picasso"}], ids=str)
def test_events_of_parts_are_those_of_the_whole(
    table: Callable[[], SpotFits], ends: tuple[int, ...], arguments: dict[str, Any]
) -> None:
    fits = table()
    whole = merge_blinks(fits, 2, **arguments)
    parts = merge_blinks(cut(fits, *ends), 2, **arguments)
    assert_same(SpotFits.concatenate(list(parts)), whole)
    assert_same(SpotFits.concatenate(list(parts)), whole)  # they can be read again
    assert len(whole) < 0.7 * len(fits)


def test_few_rows_wait_for_their_event() -> None:
    parts = cut(blinks(), 2000, 4000, 6000)
    sizes = [len(part) for part in merge_blinks(parts)]
    assert min(sizes[:3]) > 300


def test_parts_may_be_empty() -> None:
    fits = blinks()
    whole = merge_blinks(fits)
    empty = fits[:0]
    parts = [empty, *cut(fits, 400), fits[fits.flags > 0], empty]
    assert_same(SpotFits.concatenate(list(merge_blinks(parts))), whole)
    assert not len(SpotFits.concatenate(list(merge_blinks([empty, empty]))))
    assert not len(SpotFits.concatenate(list(merge_blinks([fits[fits.flags > 0]]))))
    nowhere = fits.with_columns(fits.columns | {"y": np.full(len(fits), np.nan)})
    with pytest.warns(UserWarning, match="none of these .* has a position"):
        assert not len(SpotFits.concatenate(list(merge_blinks(cut(nowhere, 400)))))


def test_precision_and_resolution_of_parts_are_those_of_the_whole() -> None:
    for fits in (blinks(), movies()):
        parts = cut(fits, 0, 1000, 5000)
        one, other = nena(fits), nena(iter(parts))
        assert (one.precision, one.kappa, one.pairs) == (other.precision, other.kappa, other.pairs)
    one, other = (fourier_ring_correlation(each) for each in (blinks(), iter(cut(blinks(), 3000))))
    assert (one.resolution, one.resolution_stderr) == (other.resolution, other.resolution_stderr)
    assert np.array_equal(one.correlation, other.correlation)


def test_a_folder_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    movie, _ = simulate_movie(30, shape=(64, 64), spots_per_frame=4, photons=3000, seed=1)
    movie = np.random.default_rng(1).poisson(np.repeat(movie, 2, axis=0)).astype(np.uint16)
    known = {"sigma": 1.3, "neighbours": "exclude"}
    whole = localize(movie, **known)
    monkeypatch.setattr(stored, "_PART_BYTES", 7 * movie[0].nbytes)
    assert len(localize_to_folder(movie, tmp_path / "parts", **known)) > 5
    parts = load_parts(tmp_path / "parts")
    zeros = np.zeros(60)
    drift = Drift(0.001 * np.arange(60), zeros, zeros, zeros, np.ones(60, int))
    still = merge_blinks(subtract_drift(parts, drift))
    save_fits(still, tmp_path / "events.spots.parquet")
    expected = merge_blinks(subtract_drift(whole, drift))
    found = SpotFits.concatenate(list(still))
    assert_same(found, expected)
    assert len(found) < len(whole)


def test_what_cannot_be_merged_in_parts() -> None:
    parts = cut(blinks(), 3000)
    with pytest.raises(TypeError, match=r"an iterator ends: pass load_parts\(folder\)"):
        merge_blinks(iter(parts))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"fits must be SpotFits, .* got an object of type int"):
        merge_blinks([1, 2])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="members=True needs a table"):
        merge_blinks(parts, members=True)  # type: ignore[call-overload]
    for beads in (lambda: link_spots(parts, 1.0), lambda: fiducial_drift(parts)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="choose their fits from each part first"):
            beads()
    with pytest.raises(ValueError, match="no fits to join"):
        merge_blinks([])
    lacking = parts[1].with_columns(
        {name: values for name, values in parts[1].columns.items() if name != "y_stderr"}
    )
    for step in (merge_blinks, nena):
        with pytest.raises(ValueError, match="y_stderr"):
            step([parts[0], lacking])
    with pytest.raises(ValueError, match="were merged before"):
        merge_blinks(list(merge_blinks(parts)))
