"""A click in a crowd fits what the fit of all spots fits there: one by one."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import Flag, Settings, detect_spots, fit_at, localize
from napari_spotfit.widgets.fitting import pick as pick_module
from napari_spotfit.widgets.fitting.pick import FrameSpots, Pick
from napari_spotfit.widgets.layers.maps import LayerMaps


@pytest.mark.parametrize("limit", [False, True], ids=["everywhere", "in a mask"])
def test_every_click_gives_the_row_of_all_fits(crowds, limit):
    movie, fits = crowds
    maps = {}
    if limit:
        maps["mask"] = np.random.default_rng(1).random(movie.shape[1:]) < 0.8
        fits = localize(movie, sigma=1.3, roi_size=9, neighbours="exclude", **maps)
    assert ((fits.flags & int(Flag.NEIGHBOUR)) != 0).mean() > 0.2
    settings = Settings(sigma=1.3, roi_size=9, neighbours="exclude")
    pick = Pick(movie, (1,), settings, LayerMaps(lambda: maps))
    rows = np.flatnonzero(fits.frame == 1)
    picked = 0
    places = detect_spots(movie, sigma=1.3, frames=1, **maps)[:, 1:]
    for row, place in zip(rows, places, strict=True):
        one = pick.fit(place)
        if (one.roi_y, one.roi_x) == (fits.roi_y[row], fits.roi_x[row]):  # none is brighter there
            picked += 1
            for name, values in one.columns.items():
                np.testing.assert_array_equal(values, fits.columns[name][[row]], name)
    assert picked > 40


def test_without_snap_the_nearest_spot_is_the_one_that_is_meant(crowds):
    movie, _ = crowds
    frame = movie[0]
    spots = detect_spots(frame, sigma=1.3)
    settings = Settings(sigma=1.3, roi_size=9, neighbours="exclude")
    pick = Pick(frame, (), settings, snap=False)
    middle = spots[np.argmin(np.hypot(*(spots - [45, 50]).T))]
    place = np.add(middle, (1.0, 0.0))
    others = spots[(spots != middle).any(axis=1)]
    expected = fit_at(frame, [place, *others], settings=settings)
    one = pick.fit(place)
    for name in ("y", "x", "sigma", "photons"):
        np.testing.assert_array_equal(one.columns[name], expected.columns[name][:1], name)


def test_the_spots_of_a_frame_are_looked_for_once_and_again_when_it_changes(crowds, monkeypatch):
    movie, fits = crowds
    calls, find = [], pick_module.find
    monkeypatch.setattr(
        pick_module, "find", lambda *given, **more: calls.append(1) or find(*given, **more)
    )
    spots, pixels = FrameSpots(), movie.copy()

    def fit(row, settings=fits.settings):
        one = Pick(pixels, (2,), settings, spots=spots)
        return one.fit((fits.y[row], fits.x[row]))

    first, second = np.argsort(-fits.score * (fits.frame == 2) * fits.good)[:2]
    for row in (first, second, first):
        assert fit(row).x[0] == fits.x[row]
    assert len(calls) == 1
    fit(first, fits.settings.changed(false_spots=1000))
    assert len(calls) == 2
    pixels[2, 0, 0] += 1  # without a word to anybody
    fit(first, fits.settings.changed(false_spots=1000))
    assert len(calls) == 3
