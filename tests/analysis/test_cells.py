"""Tables of cells by channel, and traces of light at fixed positions."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scenes_of_channels import fits_at, textured_cells, two_channels

import napari_spotfit
from napari_spotfit import (
    Camera,
    SpotFits,
    cells_by_channel,
    fit_at,
    localize,
    pair_spots,
    per_label,
    simulate_movie,
    trace,
)


def test_the_table_has_what_its_parts_have():
    labels, a, b = textured_cells(0)
    random = np.random.default_rng(0)
    one, other = (
        fits_at(places, photons=random.uniform(1, 9, len(places)).astype(np.float32))
        for places in (a, b)
    )
    table = cells_by_channel({"GFP": one, 2: other}, labels, 2.0, columns=("photons", "y"))
    for name, fits in (("GFP", one), ("channel_2", other)):
        own = per_label(fits, labels, ("photons", "y"))
        for column in ("count", "photons_sum", "photons_mean", "y_sum", "y_mean"):
            np.testing.assert_array_equal(table[f"{name}_{column}"], own[column])
    pairs = pair_spots(one, other, 2.0, labels=labels)
    assert table["GFP+channel_2_pairs"].sum() == pairs.observed
    assert table["GFP+channel_2_excess"].sum() == pytest.approx(pairs.excess)
    assert table["label"].tolist() == list(range(1, 50))
    assert list(table)[-4:] == [f"GFP+channel_2_{name}" for name in
                                ("pairs", "expected", "excess", "excess_stderr")]  # fmt: skip
    assert not any("+" in name for name in cells_by_channel({0: one, 1: other}, labels))


def test_without_labels_all_is_one_row():
    a, b = fits_at([[1, 1], [5, 5]]), fits_at([[5, 5.2]])
    table = cells_by_channel({"a": a, "b": b, "c": b[:0]}, radius=1)
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["a_count"], row["b_count"], row["c_count"]) == (2, 1, 0)
    assert (row["a+b_pairs"], row["a+c_pairs"], row["b+c_pairs"]) == (1, 0, 0)
    assert row["a_photons_sum"] == 200
    with pytest.raises(ValueError, match="there are no channels"):
        cells_by_channel({})


def test_fits_of_all_channels_are_split():
    labels = np.ones((2, 9, 9), int)
    labels[1] = 2
    fits = fits_at([[1, 1], [1, 1.1], [1, 1], [7, 7]])
    index = {"frame": np.array([0, 0, 1, 1]), "channel": np.array([0, 3, 3, 3])}
    for names in (("frame", "channel"), ("channel", "frame")):
        table = cells_by_channel(SpotFits(index | fits.columns, names), labels, 1)
        assert table["channel_0_count"].tolist() == [1, 0]
        assert table["channel_3_count"].tolist() == [1, 2]
        assert table["channel_0+channel_3_pairs"].tolist() == [1, 0]
    with pytest.raises(ValueError, match="no column channel"):
        cells_by_channel(fits)


@pytest.fixture(scope="module")
def blinking():
    """Return a movie of blinking spots, their positions, and when each is on."""
    random = np.random.default_rng(0)
    places = np.array([[12.3, 12.8], [12.1, 40.4], [36.6, 14.5], [40.2, 44.9]])
    there = random.random((4, 150)) < 0.4
    y, x = np.indices((56, 56))
    image = np.full((150, 56, 56), 20.0)
    for (row, column), on in zip(places, there, strict=True):
        spot = 600 / (2 * np.pi * 1.3**2) * np.exp(-((y - row) ** 2 + (x - column) ** 2) / 3.38)
        image += on[:, np.newaxis, np.newaxis] * spot
    return random.poisson(image).astype(np.uint16), places, there


@pytest.mark.parametrize("options", [{"sigma": 1.3}, {}, {"sigma": 1.3, "errors": False}])
def test_light_is_measured_where_there_is_some_and_where_there_is_none(blinking, options):
    movie, places, there = blinking
    table = trace(movie, places, **options)
    assert len(table) == 4 * 150
    assert table.groupby("place").frame.apply(list).tolist() == [list(range(150))] * 4
    np.testing.assert_allclose(table[["y", "x"]], np.repeat(places, 150, axis=0), atol=1e-5)
    on = there[table.place, table.frame]
    assert table.photons[on].mean() == pytest.approx(600, rel=0.03)
    # Without a spot, the light is 0 within its error, while a fit with a free centre finds noise.
    assert abs(table.photons[~on].mean()) < 3
    assert (table.photons[~on] < 0).mean() == pytest.approx(0.5, abs=0.1)
    assert table.good[on].mean() > 0.97
    assert not (table["flags"] & 2).any()  # σ is at its bounds by intent
    if "errors" in options:
        assert "photons_stderr" not in table
    else:
        away = (table.photons - np.where(on, 600, 0)) / table.photons_stderr
        assert away[~on].std() == pytest.approx(1, abs=0.1)


def test_channels_frames_and_maps_go_the_same_way(blinking, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    movie, places, _ = blinking
    both = np.stack([movie[:6], movie[6:12] // 2], 1)
    path = tmp_path / "two.ome.tif"
    tifffile.imwrite(path, both, metadata={"axes": "TCYX"})
    camera = Camera(offset=10.0, gain=2.0)
    table = trace(path, places, channel="all", sigma=1.3, camera=camera)
    assert table.groupby("place").channel.apply(list).tolist() == [[0] * 6 + [1] * 6] * 4
    for number in (0, 1):
        own = trace(both[:, number], places, sigma=1.3, camera=camera)
        chosen = table[table.channel == number].drop(columns="channel")
        np.testing.assert_array_equal(chosen.to_numpy(float), own.to_numpy(float))
        by_number = trace(path, places, channel=number, sigma=1.3, camera=camera)
        np.testing.assert_array_equal(by_number.to_numpy(float), own.to_numpy(float))
    assert table.attrs["units"]["photons"] == "photons"
    still = trace(both[0, 0], places, sigma=1.3)
    assert "frame" not in still
    assert len(still) == 4


def test_places_of_spots_nowhere_and_none():
    movie, _ = simulate_movie(3, shape=(48, 48), spots_per_frame=3, photons=3000, seed=2)
    fits = localize(movie, sigma=1.3)
    assert len(trace(movie, fits, sigma=1.3)) == 3 * len(fits)
    assert len(trace(movie, np.empty((0, 2)), sigma=1.3)) == 0
    nowhere = trace(movie, [(np.nan, 3), (900, 3)], sigma=1.3)
    assert nowhere.photons.isna().all()
    assert not nowhere.good.any()
    with pytest.raises(ValueError, match=r"shape \(n, 2\); got shape \(3,\)"):
        trace(movie, [1, 2, 3], sigma=1.3)
    with pytest.raises(ValueError, match="must have one width"):
        trace(movie, [(9, 9)], model="gaussian_elliptical", sigma=1.3)


def test_some_of_all_channels_are_fitted_and_others_refused(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    movie, truth = simulate_movie(4, shape=(48, 48), spots_per_frame=5, photons=3000, seed=2)
    path = tmp_path / "four.ome.tif"
    tifffile.imwrite(path, movie, metadata={"axes": "CYX"})
    places = truth.loc[truth.frame == 3, ["y", "x"]].to_numpy()
    centers = np.column_stack([np.full(len(places), 3), places])
    every = fit_at(path, centers, channel="all", sigma=1.3)
    some = fit_at(path, np.vstack([centers, [[1, 9, 9]]]), channel=(3, 0), sigma=1.3)
    np.testing.assert_array_equal(some.y[:-1], every.y)
    assert not some.valid[-1]


def test_the_lines_of_the_documentation_run(tmp_path, monkeypatch):
    layers = pytest.importorskip("napari.layers")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "channels.md").read_text(encoding="utf-8")
    red, green, _ = two_channels(0, 150, shift=(3, 2))
    names = {
        "spotfit": napari_spotfit, "red_beads": red, "green_beads": green, "red": red,
        "green": green, "viewer": SimpleNamespace(layers={"green": layers.Image(np.eye(9))}),
        "cells": np.ones((512, 512), int), "places": [(12, 12)],
        "movie": simulate_movie(3, shape=(48, 48), seed=1)[0],
    }  # fmt: skip
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/channels.md", "exec"), names)
    assert names["pairs"].observed > 100
    assert names["table"]["red+green_pairs"].tolist() == [names["pairs"].observed]
    assert len(names["trace"]) == 3
