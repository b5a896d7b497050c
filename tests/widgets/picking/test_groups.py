"""A click on spots that overlap adds those that are fitted together, as the fit of all does."""

from __future__ import annotations

import numpy as np
import pytest
from hand import SHIFT, Hand
from scipy.spatial import cKDTree

from napari_spotfit import Settings, localize, simulate_movie
from napari_spotfit.widgets.fitting import pick as pick_module
from napari_spotfit.widgets.fitting.pick import FrameSpots, Pick
from napari_spotfit.widgets.layers.maps import LayerMaps

JOINT = Settings(sigma=1.3, roi_size=9, neighbours="auto")


@pytest.fixture(scope="session")
def groups():
    """Two frames in which many spots overlap, and the fits of all."""
    movie, _ = simulate_movie(
        2, shape=(80, 90), spots_per_frame=60, photons=1500, sigma=1.3, seed=4
    )
    fits = localize(movie, settings=JOINT)
    assert (fits.group_size > 1).mean() > 0.4
    return movie, fits


def pairs(fits):
    """Return the rows of groups of two."""
    rows = np.flatnonzero(fits.group_size == 2)
    return [tuple(np.flatnonzero(fits.group == group)) for group in np.unique(fits.group[rows])]


@pytest.mark.parametrize("limit", [False, True], ids=["everywhere", "in a mask"])
@pytest.mark.parametrize("snap", [True, False], ids=["snap", "as clicked"])
def test_every_click_gives_the_rows_of_its_group(groups, limit, snap):
    movie, fits = groups
    maps = {}
    if limit:
        maps["mask"] = np.random.default_rng(1).random(movie.shape[1:]) < 0.8
        fits = localize(movie, settings=JOINT, **maps)
    pick = Pick(movie, (1,), JOINT, LayerMaps(lambda: maps), snap)
    there = fits[(fits.frame == 1) & fits.valid]
    for row, place in enumerate(there.points()[:, 1:]):
        if not snap and there.group_size[row] == 1:
            continue  # it is fitted from where the click was
        own = pick.fit(place)
        others = np.flatnonzero(there.group == there.group[row])
        near = (abs(there.points() - there.points()[row])[:, 1:] <= 18).all(axis=1)
        rows = [row, *(one for one in others if one != row and near[one])]
        for name, values in own.columns.items():
            if name != "group":
                np.testing.assert_array_equal(values, there.columns[name][rows], name)
        assert len(set(own.group.tolist())) == 1
    assert own.columns.keys() == fits.columns.keys()


def test_a_large_frame_is_fitted_around_the_click_alone(groups, monkeypatch):
    movie, fits = groups
    whole = Pick(movie, (0,), JOINT)
    for name, value in (("_WHOLE", 100), ("_PART", 40), ("_AROUND", 30)):
        monkeypatch.setattr(pick_module, name, value)
    pick = Pick(movie, (0,), JOINT)
    for place in fits.points()[fits.frame == 0, 1:][::7]:
        ours, theirs = pick.fit(place), whole.fit(place)
        for axis in ("y", "x"):
            np.testing.assert_allclose(ours.columns[axis], theirs.columns[axis], atol=1e-3)


def test_the_spots_of_a_frame_are_fitted_once_and_again_when_it_changes(groups, monkeypatch):
    movie, fits = groups
    calls, fit_all = [], pick_module.localize_parts
    monkeypatch.setattr(
        pick_module,
        "localize_parts",
        lambda *given, **more: calls.append(1) or fit_all(*given, **more),
    )
    spots, pixels = FrameSpots(), movie.copy()
    for _ in range(3):
        for place in fits.points()[:5, 1:]:
            Pick(pixels, (0,), JOINT, spots=spots).fit(place)
    assert len(calls) == 1
    pixels[0, 0, 0] += 1
    Pick(pixels, (0,), JOINT, spots=spots).fit(fits.points()[0, 1:])
    assert len(calls) == 2


def test_where_nothing_was_found_a_click_fits_beside_the_spots(groups):
    movie, fits = groups
    there = fits.points()[fits.frame == 0, 1:]
    grid = np.stack(np.meshgrid(np.arange(8, 72.0), np.arange(8, 82.0)), -1).reshape(-1, 2)
    empty = grid[np.argmax(cKDTree(there).query(grid)[0])]
    own = Pick(movie, (0,), JOINT).fit(empty)
    assert own.columns.keys() >= {"group", "group_size", "neighbour_distance", "evidence"}
    assert abs(own.points()[0, 1:] - empty).max() < 5


def test_a_click_between_two_spots_adds_both(viewer, widget, groups, settle):
    movie, fits = groups
    image = viewer.add_image(movie, name="movie")
    viewer.dims.set_point(0, 0)
    for name in ("sigma", "roi_size", "neighbours"):
        widget.settings.controls[name].value = getattr(JOINT, name)
    settle()
    hand = Hand(viewer)
    first, second = (rows for rows in pairs(fits) if fits.frame[rows[0]] == 0), None
    first, second = next(first), next(first)
    middle = fits.points()[list(first), 1:].mean(axis=0)
    hand.click(image, middle, SHIFT)
    settle()
    layer = viewer.layers["movie (picked)"]
    assert len(layer.data) == 2
    np.testing.assert_allclose(
        np.sort(layer.data, axis=0), np.sort(fits.points()[list(first)], axis=0)
    )
    assert len(layer.selected_data) == 1
    assert "fitted together with 1 other" in widget.status.text()
    hand.click(image, fits.points()[second[0], 1:], SHIFT)
    settle()
    assert len(layer.data) == 4
    assert {*fits.columns} <= {*layer.features}
    assert layer.features["group"].tolist() == [0, 0, 1, 1]
    assert layer.features["group_size"].tolist() == [2] * 4
    # Again, and then one by one: the group of the spot goes.
    hand.click(image, fits.points()[second[1], 1:], SHIFT)
    settle()
    assert len(layer.data) == 4
    assert layer.features["group"].tolist()[:2] == [0, 0]
    widget.settings.controls["neighbours"].value = "exclude"
    hand.click(image, fits.points()[first[0], 1:], SHIFT)
    settle()
    assert len(layer.data) == 3
    assert layer.features["group"].isna().sum() == 1
    for _ in range(4):
        widget.picking.undo.click()
    settle()
    assert "movie (picked)" not in viewer.layers
