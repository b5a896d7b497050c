"""Flags of random fits agree with their rules; the table of rules."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from judging import Origin, judge_in_image

from napari_spotfit import (
    Flag,
    Settings,
    StopCondition,
)
from napari_spotfit.engine.flags import NOT_GOOD, RULES, flags_of, main_reasons
from napari_spotfit.engine.verdicts import flags_from_columns

SHAPE = (40, 44)
#: Flags that follow from columns alone.
ALONE = np.uint32(Flag.NOT_CONVERGED | Flag.AT_BOUND | Flag.WEAK | Flag.NEGATIVE | Flag.POOR_FIT)
SIGMA = 1.3


def made_up(rng, count, frames=3):
    """Return random columns and origins of fits, often close to each other."""
    single = np.float32
    places = rng.integers(0, 36, (count, 2)) / rng.choice([1.0, 2.0])
    stop = rng.choice(StopCondition.UNKNOWN, count, p=[0.1, 0.1, 0.5, 0.1, 0.1, 0.1]).astype(
        np.uint8
    )
    corner = np.clip(np.rint(places).astype(np.int32) - 4, 0, np.array(SHAPE) - 9)
    columns = {
        "y": rng.choice([-0.5, 2.5, 4.0, 4.1, 8.5], count),
        "x": rng.choice([-0.5, 2.0, 4.0, 4.25, 8.5], count),
        "sigma": rng.choice([0.25, 0.6, 1.2, 1.3, 2.5, 2.7, 9.0], count).astype(single),
        "amplitude": rng.choice([-20, 0, 1, 9, 200], count).astype(single),
        "background": rng.choice([2.0, 30.0, 50.0], count).astype(single),
        "photons": rng.choice([-100, 0, 10, 2000], count).astype(single),
        "chi_square": rng.choice([500, 2000, 9000, 60000], count).astype(single),
        "stop_condition": stop,
        "amplitude_stderr": rng.choice([0.1, 3, 70, np.nan], count).astype(single),
    }
    columns["reduced_chi_square"] = columns["chi_square"] / single(76)
    for name in set(columns) - {"stop_condition"}:
        columns[name][stop == StopCondition.INVALID] = np.nan
    frame = np.sort(rng.integers(0, frames, count))
    return columns, Origin(np.column_stack([frame, corner]), places, SHAPE, SIGMA)


def judged(columns, known, origin):
    """Return columns with all flags, without modifying the originals."""
    fits = {name: values.copy() for name, values in columns.items()}
    judge_in_image(fits, known, origin)
    return fits


def expected_flags(columns, origin, known, i):
    """Compute the flags of one fit by plain rules, in a loop over all others."""
    fit = {name: float(values[i]) for name, values in columns.items()}
    stop, place = StopCondition(int(fit["stop_condition"])), origin.places[i]
    flags = set() if stop.converged else {Flag.NOT_CONVERGED}
    if stop is StopCondition.INVALID:
        return flags

    def moved(j):
        return math.hypot(
            columns["y"][j] - origin.places[j][0], columns["x"][j] - origin.places[j][1]
        )

    if fit["amplitude"] <= 0 or fit["photons"] <= 0:
        flags.add(Flag.NEGATIVE)
    error = float(columns["amplitude_stderr"][i])
    if known.gain is not None:
        dark = max(known.gain * fit["background"] + (known.variance or 0), known.gain**2 / 81)
        error *= math.sqrt(dark / (dark + known.gain * max(fit["amplitude"], 0) / 2))
    if not abs(columns["amplitude"][i]) > 3 * error:
        flags.add(Flag.WEAK)
    if moved(i) > 1.5 * SIGMA:
        flags.add(Flag.MOVED)
    if columns["sigma"][i] > 2 * SIGMA:
        flags.add(Flag.WIDE)
    if columns["sigma"][i] < SIGMA / 2:
        flags.add(Flag.NARROW)
    inner = fit["y"] - fit["roi_y"], fit["x"] - fit["roi_x"]
    if fit["sigma"] in (0.25, 9.0) or any(along in (-0.5, 8.5) for along in inner):
        flags.add(Flag.AT_BOUND)
    if known.background_max is not None and fit["background"] >= known.background_max:
        flags.add(Flag.AT_BOUND)
    middle = fit["roi_y"] + 4, fit["roi_x"] + 4
    for along, size in enumerate(SHAPE):
        at = (fit["y"], fit["x"])[along]
        if abs(place[along] - middle[along]) > 0.5 or not (
            at + 0.5 >= SIGMA and at <= size - 0.5 - SIGMA
        ):
            flags.add(Flag.EDGE)
    for j in range(len(origin.places)):
        if j == i or origin.corners[j, 0] != origin.corners[i, 0]:
            continue
        if np.all(abs(origin.places[j] - place) <= 4.5):
            flags.add(Flag.NEIGHBOUR)
        away = math.hypot(columns["y"][j] - fit["y"], columns["x"][j] - fit["x"])
        mine, other = ((moved(k), columns["y"][k], columns["x"][k], k) for k in (i, j))
        if away <= 1 and other < mine:
            flags.add(Flag.DUPLICATE)
    if known.gain is not None:
        level = known.gain * fit["background"] + (known.variance or 0)
        counts = known.gain * fit["photons"]
        mean = level + known.gain * counts / 81
        tolerated = 0.05**2 * fit["amplitude"] * counts / 2
        squares = 81 * level**2 + 2 * level * known.gain * counts
        squares += known.gain**2 * fit["amplitude"] * counts / 2
        spread = math.sqrt(max(2 * squares + known.gain**2 * 81 * mean, 0.0))
        high = fit["chi_square"] > 76 * mean + tolerated + 5 * spread
        if high and min(counts, fit["amplitude"]) > 0 and level >= 3 * known.gain**2:
            flags.add(Flag.POOR_FIT)
    return flags


@given(st.integers(0, 2**32), st.integers(0, 60), st.sampled_from([None, 0.5, 3.0]))
@effort(max_examples=60, deadline=None)
def test_each_flag_is_set_exactly_where_its_rule_says(seed, count, gain):
    columns, origin = made_up(np.random.default_rng(seed), count)
    known = Settings(roi_size=9, gain=gain, background_max=50.0 if gain else None, offset=100.0)
    fits = judged(columns, known, origin)
    for i in range(count):
        expected = expected_flags(fits, origin, known, i)
        assert set(flags_of(int(fits["flags"][i]))) == expected, i
    # Of numbers alone, some; whatever the columns' types, and with those that have no others.
    alone = flags_from_columns(fits, known, (9, 9))
    np.testing.assert_array_equal(alone, fits["flags"] & ALONE)
    mixed = {name: values.astype(float)[::-1] for name, values in fits.items()}
    np.testing.assert_array_equal(flags_from_columns(mixed, known, (9, 9)), alone[::-1])
    thin = {name: np.repeat(values, 2)[::2] for name, values in fits.items()}
    for values in thin.values():
        values.flags.writeable = False
    np.testing.assert_array_equal(flags_from_columns(thin, known, (9, 9)), alone)


@given(st.integers(0, 2**32), st.integers(0, 80))
@effort(max_examples=50, deadline=None)
def test_flags_do_not_depend_on_the_order_of_a_frame(seed, count):
    rng = np.random.default_rng(seed)
    columns, origin = made_up(rng, count)
    # No two fits that are alike to the last digit: of those the first one stays.
    origin = origin._replace(places=origin.places + rng.uniform(0, 1e-3, (count, 2)))
    known = Settings(roi_size=9, gain=1.0)
    flags = judged(columns, known, origin)["flags"]
    order = rng.permutation(count)
    order = order[np.argsort(origin.corners[order, 0], kind="stable")]
    mixed = {name: values[order] for name, values in columns.items()}
    begun = origin._replace(corners=origin.corners[order], places=origin.places[order])
    np.testing.assert_array_equal(judged(mixed, known, begun)["flags"], flags[order])


def test_the_table_has_every_flag_once():
    assert set(RULES) == set(Flag)
    assert len({int(flag) for flag in Flag}) == len(Flag) == 19
    for rule in RULES.values():
        assert rule.sentence.endswith(".")
        assert rule.advice.endswith(".")
        assert all(rule[:4])
    quiet = {
        Flag.NEIGHBOUR, Flag.POOR_FIT, Flag.EDGE, Flag.BAD_PIXELS, Flag.SIGMA_Z_HELD
    }  # fmt: skip
    assert {flag for flag in Flag if not flag & NOT_GOOD} == quiet


def test_every_doubtful_fit_is_counted_once():
    flags = np.array([0, Flag.MOVED, Flag.MOVED | Flag.WIDE, Flag.NEIGHBOUR, Flag.WIDE], np.uint32)
    assert main_reasons(flags) == {Flag.MOVED: 2, Flag.WIDE: 1}
    assert flags_of(int(Flag.EDGE | Flag.NOT_CONVERGED)) == [Flag.NOT_CONVERGED, Flag.EDGE]
