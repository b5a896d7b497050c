"""Doubtful fits look doubtful, are hidden by one click, and say what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from inspector import docked, shows
from spot_table import dock

from napari_spotfit import Flag, Settings, fit_at, localize, to_points_layer
from napari_spotfit.results.flags import RULES
from napari_spotfit.widgets.inspecting.spot import spot_of
from napari_spotfit.widgets.inspecting.verdict import verdict
from napari_spotfit.widgets.picking.picker import _in_words


def crowded(shape=(64, 72), count=70):
    """Return spots so dense that many fits are not theirs, and a plain background at the left."""
    rng = np.random.default_rng(1)
    y, x = np.indices(shape)
    image = rng.normal(100, 3, shape)
    for center in rng.uniform((0, 24), shape, (count, 2)):
        image += 200 * np.exp(-((y - center[0]) ** 2 + (x - center[1]) ** 2) / (2 * 1.4**2))
    return image.astype(np.float32)


@pytest.fixture
def crowd():
    return crowded()


@pytest.fixture
def fitted(viewer, widget, fit, crowd):
    """Fit the crowd with the widget; return its layer, the status line and the good rows."""
    viewer.add_image(crowd, name="crowd")
    widget.settings.controls["neighbours"].put("ignore")
    text = fit(widget)
    layer = viewer.layers["crowd spots"]
    good = layer.features["good"].to_numpy() == 1
    assert 0 < good.sum() < len(good)
    return layer, text, good


def test_they_are_crosses_and_counted(fitted, widget, crowd):
    layer, text, good = fitted
    np.testing.assert_array_equal([str(one) == "ring" for one in layer.symbol], good)
    assert {str(one) for one in layer.symbol} == {"ring", "x"}
    fits = localize(crowd, settings=widget.settings.settings())
    assert f", {(~fits.good).sum()} doubtful: " in text
    assert widget.result.doubtful.text() == f"Hide {(~good).sum()} doubtful"
    assert "doubtful: " in widget.result.doubtful.toolTip()


def test_one_click_hides_them_and_a_refit_too(fitted, widget, fit, press):
    layer, _, good = fitted
    box = widget.result.doubtful
    press(box)
    np.testing.assert_array_equal(layer.shown, good)
    widget.settings.controls["roi_size"].put(7)
    fit(widget)
    good = layer.features["good"].to_numpy() == 1
    assert not good.all()
    np.testing.assert_array_equal(layer.shown, good)
    assert box.isChecked()
    press(box)
    assert layer.shown.all()


def test_both_boxes_and_the_list_go_together(fitted, viewer, widget, press):
    layer, _, good = fitted
    spots = dock(viewer)
    settle()
    spots.good_only.click()
    settle()
    np.testing.assert_array_equal(layer.shown, good)
    assert spots.spots.filters.words() == ["good fits only"]
    widget.result.look()
    assert widget.result.doubtful.isChecked()
    press(widget.result.doubtful)
    settle()
    assert layer.shown.all()
    assert not spots.good_only.isChecked()
    assert spots.filters.list.rows == []


def test_symbols_of_the_users_own_stay(fitted, widget, fit):
    layer, _, _ = fitted
    layer.symbol = "disc"
    fit(widget)
    assert {str(one) for one in layer.symbol} == {"disc"}


def test_the_inspector_says_what_is_wrong_and_what_to_try(fitted, viewer, qtbot):
    layer, _, _ = fitted
    inspector = docked(viewer)
    flags = layer.features["flags"].to_numpy().astype(int)
    earlier = Flag.NOT_CONVERGED | Flag.NEGATIVE | Flag.WEAK
    moved = np.flatnonzero((flags & Flag.MOVED != 0) & (flags & earlier == 0))
    assert len(moved)
    layer.selected_data = {int(moved[0])}
    qtbot.waitUntil(lambda: shows(inspector, layer, moved[0]))
    text = inspector.panel.verdict.text.text()
    assert RULES[Flag.MOVED].sentence in text
    assert RULES[Flag.MOVED].advice in text
    others = flags[moved[0]] & ~Flag.MOVED
    assert ("Also: " in text) == bool(others)
    for row in range(len(layer.data)):
        words = " ".join(verdict(spot_of(layer, row)))
        # The stop condition's own words tell of fits that have not converged.
        if flags[row] & ~Flag.NOT_CONVERGED:
            assert "⚠" in words
        assert not (flags[row] and "Nothing to do" in words)


@pytest.mark.parametrize("flag", Flag)
def test_every_flag_has_its_words(flag, crowd):
    fits = fit_at(crowd, [(30, 40)], settings=Settings(sigma=1.3, roi_size=9))
    columns = fits.columns | {"flags": np.array([flag], np.uint32)}
    layer = to_points_layer(type(fits)(columns, (), fits.settings))
    words = " ".join(verdict(spot_of(layer, 0)))
    assert RULES[flag].sentence in words or flag in (Flag.AT_BOUND, Flag.NOT_CONVERGED)
    assert "Nothing to do" not in words


def test_a_click_into_nothing_says_so(viewer, widget, hand, qtbot, crowd):
    image = viewer.add_image(crowd, name="crowd")
    widget.picking.snap.setChecked(False)
    said = []
    widget.picking.picker.said.connect(said.append)
    widget.picking.click.click()
    hand.click(image, (32, 10))
    qtbot.waitUntil(lambda: bool(said))
    fits = fit_at(crowd, [(32, 10)], settings=widget.settings.settings())
    assert fits.flags[0] & (Flag.WEAK | Flag.NEGATIVE)
    assert said[-1].startswith("There seems to be no spot: the amplitude, ")
    assert {str(one) for one in viewer.layers["crowd (picked)"].symbol} == {"x"}


def test_a_pick_says_what_is_doubtful():
    y, x = np.indices((60, 60))
    image = np.random.default_rng(0).normal(100, 3, (60, 60))
    image += 200 * np.exp(-((y - 20) ** 2 + (x - 20) ** 2) / (2 * 3.2**2))
    settings = Settings(sigma=1.3, roi_size=15)
    for place, words in (((20, 20), "Doubtful: at y "), ((50, 45), "There seems to be no spot: ")):
        text = _in_words(fit_at(image, [place], settings=settings))
        assert text.startswith(words)
    assert RULES[Flag.WIDE].advice in _in_words(fit_at(image, [(20, 20)], settings=settings))


@pytest.mark.parametrize(("labels", "warned"), [(("z", "y", "x"), True), (("t", "y", "x"), False)])
def test_a_stack_of_planes_is_warned_of(viewer, widget, fit, make_movie, labels, warned):
    viewer.add_image(make_movie(2), name="stack", axis_labels=labels)
    text = fit(widget)
    assert ("Each plane along axis z is fitted by itself" in text) == warned
