"""Doubtful fits look doubtful, are hidden by one click, and say what is wrong with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from event_loop import settle
from hand import CONTROL, LEFT, NO_KEY, SHIFT
from inspector import docked, shows
from qtpy.QtCore import QPoint
from spot_table import dock

from napari_spotfit import Flag, Settings, StopCondition, fit_at, localize, to_points_layer
from napari_spotfit.engine.flags import NOT_GOOD, RULES
from napari_spotfit.widgets.fitting.picker import _in_words, why_nothing
from napari_spotfit.widgets.inspecting.numbers import verdict
from napari_spotfit.widgets.inspecting.spot import spot_of


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
    widget.settings.controls["neighbours"].value = "ignore"
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
    assert widget.result.legend.good.text() == f"Good ones ({good.sum()})"
    assert f"{(~good).sum()} doubtful: " in widget.result.legend.good.toolTip()


def test_one_click_hides_them_and_a_refit_too(fitted, widget, fit, press):
    layer, _, good = fitted
    legend = widget.result.legend
    press(legend.good)
    settle()
    np.testing.assert_array_equal(layer.shown, good)
    assert widget.result.shown.text() == f"{good.sum()} of {len(good)} shown: good fits only"
    widget.settings.controls["roi_size"].value = 7
    fit(widget)
    good = layer.features["good"].to_numpy() == 1
    assert not good.all()
    np.testing.assert_array_equal(layer.shown, good)
    assert not legend.boxes["MOVED"].isChecked()
    press(legend.all)
    settle()
    assert layer.shown.all()
    assert legend.boxes["MOVED"].isChecked()
    assert widget.result.shown.text() == f"{len(good)} of {len(good)} shown"


def test_both_widgets_have_one_filter(fitted, viewer, widget, press):
    layer, _, good = fitted
    spots = dock(viewer)
    settle()
    press(spots.filters.legend.good)
    settle()
    np.testing.assert_array_equal(layer.shown, good)
    assert spots.spots.filters.words() == ["good fits only"]
    assert widget.result.shown.text().endswith("shown: good fits only")
    press(widget.result.legend.all)
    settle()
    assert layer.shown.all()
    assert spots.filters.list.rows == []
    for box in (widget.result.legend.boxes, spots.filters.legend.boxes):
        assert box["MOVED"].isChecked()


def test_flags_are_hidden_and_shown_alone(fitted, widget, qtbot):
    layer, _, good = fitted
    legend, flags = widget.result.legend, layer.features["flags"].to_numpy().astype(int)
    moved = flags & Flag.MOVED != 0
    assert legend.counts["MOVED"].text() == str(moved.sum())
    assert 0 < moved.sum() < (~good).sum()
    box = legend.boxes["MOVED"]
    at = QPoint(10, box.height() // 2)
    qtbot.mouseClick(box, LEFT, pos=at)
    settle()
    np.testing.assert_array_equal(layer.shown, ~moved)
    qtbot.mouseDClick(box, LEFT, pos=at)
    settle()
    np.testing.assert_array_equal(layer.shown, moved)
    assert [name for name, other in legend.boxes.items() if other.isChecked()] == ["MOVED"]
    assert widget.result.shown.text() == f"{moved.sum()} of {len(moved)} shown: only “moved”"
    box.actions()[1].trigger()
    settle()
    np.testing.assert_array_equal(layer.shown, ~moved)
    # Of the good ones and those that have moved, too: what else is wrong still hides.
    qtbot.mouseClick(legend.good, LEFT)
    qtbot.mouseClick(box, LEFT, pos=at)
    settle()
    spoiled = flags & int(NOT_GOOD & ~Flag.MOVED) != 0
    np.testing.assert_array_equal(layer.shown, ~spoiled)
    qtbot.mouseClick(box, LEFT, pos=at)
    settle()
    assert widget.result.spots.filters.words() == ["good fits only"]


def test_fits_that_have_not_converged_are_those_of_two_conditions(fitted, widget, qtbot):
    layer, _, good = fitted
    legend, stop = widget.result.legend, layer.features["stop_condition"]
    flags = layer.features["flags"].to_numpy().astype(int)
    unsettled = [n for n in ("MAX_ITERATIONS", "NO_DECREASE") if (stop == n).any()]
    assert unsettled
    name = unsettled[0]
    box = legend.boxes[name]
    at = QPoint(10, box.height() // 2)
    qtbot.mouseClick(legend.good, LEFT)
    settle()
    assert not box.isChecked()
    qtbot.mouseClick(box, LEFT, pos=at)
    settle()
    assert box.isChecked()
    others = flags & int(NOT_GOOD & ~Flag.NOT_CONVERGED) != 0
    np.testing.assert_array_equal(layer.shown, ~others & (good | (stop == name).to_numpy()))
    qtbot.mouseDClick(box, LEFT, pos=at)
    settle()
    np.testing.assert_array_equal(layer.shown, stop == name)
    assert widget.result.shown.text().endswith(f"only “{StopCondition[name].words}”")


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


def test_of_every_flag_its_advice_comes_first(crowd):
    fits = localize(crowd, sigma=1.4)
    spot = spot_of(to_points_layer(fits[np.flatnonzero(fits.flags == 0)[:1]]), 0)
    for flag in Flag:
        for stop in StopCondition:
            for more in (Flag(0), Flag.EDGE, Flag(0x1FFF)):
                flags = [one for one in RULES if one & (flag | more)]
                values = {**spot.values, "flags": float(sum(flags))}
                name, *words = verdict(replace(spot, values=values, stop=stop.name))
                text = " ".join(words)
                if flags[0] is Flag.NOT_CONVERGED and not stop.converged:
                    assert name == f"⚠ {stop.words.capitalize()}."
                    assert words[:2] == [stop.explanation, stop.advice]
                else:
                    assert name == f"⚠ {RULES[flags[0]].word.capitalize()}."
                    assert words[:2] == [RULES[flags[0]].sentence, RULES[flags[0]].advice]
                    assert stop.words.capitalize() in text or Flag.NOT_CONVERGED in flags
                assert all(RULES[other].word in text for other in flags[1:])
                assert "Nothing to do" not in text
    assert "Nothing to do." in verdict(spot)


def test_a_click_into_nothing_adds_nothing_unless_one_insists(viewer, widget, hand, qtbot, crowd):
    image = viewer.add_image(crowd, name="crowd")
    widget.picking.snap.setChecked(False)
    said = []
    widget.picking.picker.said.connect(said.append)
    widget.picking.click.click()
    fits = fit_at(crowd, [(32, 10)], settings=widget.settings.settings())
    assert fits.flags[0] & (Flag.WEAK | Flag.NEGATIVE)
    for keys in (NO_KEY, SHIFT):
        hand.click(image, (32, 10), keys)
        qtbot.waitUntil(lambda: bool(said))
        assert said[-1].startswith("There is no spot here: the amplitude, ")
        assert said.pop().endswith("Nothing was added; to add the fit all the same, click with "
                                   "Ctrl and Shift.")  # fmt: skip
        assert list(viewer.layers) == [image]
        assert not widget.picking.undo.isEnabled()
    hand.click(image, (32, 10), CONTROL | SHIFT)
    qtbot.waitUntil(lambda: bool(said))
    assert said[-1].startswith("There seems to be no spot: the amplitude, ")
    layer = viewer.layers["crowd (picked)"]
    assert {str(one) for one in layer.symbol} == {"x"}
    assert layer.features["y"].iloc[0] == pytest.approx(float(fits.y[0]), abs=0.01)


def test_a_pick_says_what_is_doubtful():
    y, x = np.indices((60, 60))
    image = np.random.default_rng(0).normal(100, 3, (60, 60))
    image += 200 * np.exp(-((y - 20) ** 2 + (x - 20) ** 2) / (2 * 3.2**2))
    image[40, 20] += 200  # a hot pixel, without which there is nothing
    image[40, 40:42] += 200
    image[41, 40] += 200
    settings = Settings(sigma=1.3, roi_size=15)
    nothing_there = {(50, 45): "the ampl", (40, 20): "the ampl", (40, 40): "σ 0."}
    for place, words in ({(20, 20): ""} | nothing_there).items():
        nothing = why_nothing(fit_at(image, [place], settings=settings))
        assert nothing.startswith(words)
        assert bool(nothing) == bool(words)
    text = _in_words(fit_at(image, [(20, 20)], settings=settings), "")
    assert text.startswith("Doubtful: at y ")
    assert RULES[Flag.WIDE].advice in text


@pytest.mark.parametrize(("labels", "warned"), [(("z", "y", "x"), True), (("t", "y", "x"), False)])
def test_a_stack_of_planes_is_warned_of(viewer, widget, fit, make_movie, labels, warned):
    viewer.add_image(make_movie(2), name="stack", axis_labels=labels)
    text = fit(widget)
    assert ("Each plane along axis z is fitted by itself" in text) == warned
