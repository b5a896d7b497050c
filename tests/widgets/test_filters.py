"""Filters: what they let pass, their words, kept and combined."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qtpy.QtCore import QPointF, Qt
from qtpy.QtGui import QPolygonF

from napari_spotfit import Flag, StopCondition
from napari_spotfit.analysis.filters import Filters, Gate, read_filters, write_filters
from napari_spotfit.engine.flags import RULES, flags_of
from napari_spotfit.models.estimators import STOP_NAMES
from napari_spotfit.results.formatting import PixelSize, Units

FEATURES = ["sigma", "photons", "y"]

numbers = st.one_of(st.sampled_from([0.0, 1.0, 2.5, math.nan, math.inf]), st.floats(-5, 5))
limits = st.one_of(st.none(), st.floats(-5, 5), st.sampled_from([0.0, 1.0, 2.5]))


@st.composite
def tables(draw):
    count = draw(st.integers(0, 12))
    column = st.lists(numbers, min_size=count, max_size=count)
    table = {name: np.array(draw(column), draw(st.sampled_from(["f4", "f8"]))) for name in FEATURES}
    bits = draw(st.lists(st.integers(0, 2**13 - 1), min_size=count, max_size=count))
    table["flags"] = np.array(bits, float)
    words = draw(st.lists(st.sampled_from([*STOP_NAMES, None]), min_size=count, max_size=count))
    table["stop_condition"] = pd.Categorical(words, categories=STOP_NAMES)
    return pd.DataFrame(table)


@st.composite
def filters(draw):
    ranges = {}
    for name in draw(st.lists(st.sampled_from(FEATURES), unique=True)):
        low, high = draw(limits), draw(limits)
        if low is not None and high is not None and low > high:
            low, high = high, low
        ranges[name] = low, high
    flags = st.sampled_from([flag.name for flag in Flag])
    only = draw(st.one_of(st.just(""), flags))
    return Filters(ranges, draw(st.sets(st.sampled_from(STOP_NAMES))), draw(st.sets(flags)), only)


def passes(filters: Filters, spot: dict) -> bool:
    """Say of one spot, in plain Python, whether it is shown."""
    for name, (low, high) in filters.ranges.items():
        value = float(spot[name])
        if not ((low is None or value >= low) and (high is None or value <= high)):
            return False
    set_flags = {flag.name for flag in flags_of(int(spot["flags"]))}
    if set_flags & filters.flags or (filters.only and filters.only not in set_flags):
        return False
    return spot["stop_condition"] not in filters.hidden


@given(tables(), filters())
def test_a_mask_is_what_the_words_say(table, chosen):
    expected = [passes(chosen, spot) for spot in table.to_dict("records")]
    assert chosen.mask(table).tolist() == expected


@given(tables(), filters())
def test_combined_filters_are_the_intersection_in_any_order(table, chosen):
    parts = chosen.parts()
    single = [part.mask(table) for part in parts]
    np.testing.assert_array_equal(
        np.all([np.ones(len(table), bool), *single], axis=0), chosen.mask(table)
    )
    turned = replace(chosen, ranges=dict(reversed(chosen.ranges.items())))
    assert turned == chosen
    np.testing.assert_array_equal(turned.mask(table), chosen.mask(table))
    for part in parts:
        if len(chosen.hidden) < len(STOP_NAMES):  # of six, five are left: all but one
            assert len(chosen.without(part).parts()) == len(parts) - 1
        assert part not in chosen.without(part).parts()


@given(filters())
def test_words_name_every_filter_and_its_limits(chosen):
    words = chosen.words()
    # What leaves one stop condition is one filter.
    left = [name for name in STOP_NAMES if name not in chosen.hidden]
    stops = 1 if len(left) == 1 else len(chosen.hidden)
    others = len(chosen.ranges) + len(chosen.flags) + bool(chosen.only)
    assert len(words) == len(chosen.parts()) == others + stops
    for sentence, (name, ends) in zip(words, chosen.ranges.items(), strict=False):
        assert name in sentence
        assert all(f"{end:.6g}" in sentence for end in ends if end is not None)
    if len(left) == 1:
        assert f"only “{StopCondition[left[0]].words}”" in words
    else:
        texts = {f"without “{StopCondition[name].words}”" for name in chosen.hidden}
        assert texts <= set(words)
    assert {f"without “{RULES[Flag[name]].word}”" for name in chosen.flags} <= set(words)
    assert not any(
        name in sentence for name in (*STOP_NAMES, *Flag.__members__) for sentence in words
    )
    assert chosen.in_words() == ("; ".join(words) if chosen else "all spots")


corners = st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=3, max_size=8)


@given(corners, st.lists(st.tuples(numbers, numbers)))
def test_a_gate_holds_what_a_polygon_holds(outline, places):
    gate = Gate("sigma", "photons", outline)
    within = gate.within(*np.array(places, float).reshape(-1, 2).T)
    polygon = QPolygonF([QPointF(*corner) for corner in outline])
    edges = list(zip(outline, [*outline[1:], outline[0]], strict=True))
    for place, inside in zip(places, within, strict=True):
        if not np.isfinite(place).all():
            assert not inside
        elif min(distance(place, *edge) for edge in edges) > 1e-6:
            assert inside == polygon.containsPoint(QPointF(*place), Qt.FillRule.OddEvenFill)


def distance(place, start, end):
    """Return how far a place is from a line's nearest point."""
    start, along = np.array(start), np.subtract(end, start)
    length = along @ along
    part = np.clip((np.array(place) - start) @ along / length, 0, 1) if length > 0 else 0.0
    return np.hypot(*(np.array(place) - start - part * along))


def test_gates_are_kept_combined_and_dropped_with_their_features():
    gate = Gate("sigma", "photons", [(1, 0), (2, 0), (2, 900)])
    chosen = Filters({"y": (1, None)}, only="MOVED").with_gate(gate)
    assert chosen.words() == ["y ≥ 1", "within the lasso of sigma and photons", "only “moved”"]
    assert Filters.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen
    other = Gate("sigma", "photons", [(0, 0), (2, 0), (2, 900)])
    assert chosen.with_gate(other).gates == (other,)
    assert chosen.without(chosen.parts()[1]).gates == ()
    assert chosen.limited_to(["sigma", "y"]) == Filters({"y": (1, None)})
    table = pd.DataFrame({"sigma": [1.5, 1.5, 3], "photons": [10, 800, 10]})
    assert Filters(gates=[gate]).mask(table).tolist() == [True, False, False]


@given(filters())
def test_a_round_trip_through_json(chosen):
    assert Filters.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen


def test_words_in_either_unit():
    chosen = Filters(
        {"sigma": (0.8, 1.9), "photons": (500, None), "x": (None, 20)}, {"MAX_ITERATIONS"}
    )
    of = {"sigma": "px", "x": "px", "photons": "photons"}
    assert chosen.words(Units(of)) == [
        "0.8 ≤ sigma ≤ 1.9 px",
        "photons ≥ 500",
        "x ≤ 20 px",
        "without “not converged: iterations used up”",
    ]
    assert chosen.words(Units(of, PixelSize(0.1, 0.1, "µm")))[:3] == [
        "0.08 ≤ sigma ≤ 0.19 µm",
        "photons ≥ 500",
        "x ≤ 2 µm",
    ]


def test_an_open_range_is_no_filter():
    assert not Filters({"sigma": (None, None)})
    assert Filters().with_range("sigma", 1, 2).with_range("sigma", None, None) == Filters()
    assert Filters().with_hidden("INVALID", True).with_hidden("INVALID", False) == Filters()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1], "filters look like"),
        ({"range": {}}, "filters look like"),
        ({"ranges": [1]}, "limits by feature"),
        ({"ranges": {"sigma": 3}}, "two limits"),
        ({"ranges": {"sigma": [1, 2, 3]}}, "two limits"),
        ({"ranges": {"sigma": ["a", 2]}}, "finite number"),
        ({"ranges": {"sigma": [math.nan, 2]}}, "finite number"),
        ({"ranges": {"sigma": [True, 2]}}, "finite number"),
        ({"ranges": {"sigma": [3, 2]}}, "swap them"),
        ({"hidden": "MIN_STEP"}, "list of stop conditions"),
        ({"hidden": ["NEVER"]}, "MAX_ITERATIONS"),
        ({"flags": "MOVED"}, "list of flags"),
        ({"flags": ["NEVER"]}, "NOT_CONVERGED"),
        ({"only": ["MOVED"]}, "name of a flag"),
        ({"only": "NEVER"}, "NOT_CONVERGED"),
        ({"gates": 3}, "must be a list"),
        ({"gates": [{"across": "sigma"}]}, "a gate looks like"),
        ({"gates": [{"across": "a", "up": "b", "corners": [[1, 2], [3, 4]]}]}, "looks like"),
    ],
)
def test_what_are_no_filters_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        Filters.from_dict(values)


def test_a_file(tmp_path):
    chosen = Filters({"sigma": (0.8, None)}, {"NO_DECREASE"})
    path = tmp_path / "filters.json"
    write_filters(path, chosen)
    assert read_filters(path) == chosen
    path.write_text("no json", encoding="utf-8")
    with pytest.raises(ValueError, match=r"filters\.json"):
        read_filters(path)
