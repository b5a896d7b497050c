"""The fit kernel on the host, against the CPU's twin: pixels in, every result out."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from emulated_fits import (
    DEFAULTS,
    GUARD,
    POISON,
    assert_alike,
    assert_equal,
    checked,
    cut,
    cut_outs,
    fit_rois,
    frames_with_rois,
    kernel_of,
    rows_of,
    task_of,
)
from walled import exit_status, walled

from napari_spotfit import Settings, StopCondition
from napari_spotfit.engine.cpu.fit import fit_rois as on_cpu
from napari_spotfit.engine.cuda import fit, layout
from napari_spotfit.models.profiles import GAUSSIAN
from napari_spotfit.results.columns import errors_of

#: Every number of lanes, missing rows and columns, runs of pixels at any byte of a word.
CASES = [
    ((4, 4), "f4"), ((5, 8), "u1"), ((7, 7), "u2"), ((9, 9), "i2"), ((12, 12), "f8"),
    ((13, 13), "u1"), ((16, 16), "f4"), ((19, 19), "i2"), ((24, 24), "u2"), ((27, 27), "f8"),
    ((31, 6), "u1"), ((32, 32), "f4"),
]  # fmt: skip
BY_SHAPE = dict(CASES)


@pytest.mark.parametrize(("shape", "pixel"), CASES)
def test_cut_outs_are_fitted_as_on_the_cpu(shape, pixel):
    spots = cut_outs(shape, pixel)
    ours, theirs = fit_rois(spots), on_cpu(spots, None, shape, DEFAULTS)
    assert_alike(ours, theirs)


@pytest.mark.parametrize(("shape", "pixel"), CASES)
def test_rois_in_frames_are_fitted_as_on_the_cpu(shape, pixel):
    frames, corners = frames_with_rois(shape, pixel)
    ours = fit_rois(frames, corners, shape=shape)
    assert_alike(ours, on_cpu(frames, corners, shape, DEFAULTS))
    # They are the same pixels for the same arithmetic.
    assert_equal(ours, fit_rois(cut(frames, corners, shape)))


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("pixel", layout.PIXEL_TYPES)
def test_equal_pixels_of_any_type_give_equal_results(pixel, gather):
    shape = (7, 7)
    if gather:
        frames, corners = frames_with_rois(shape, "u1")
    else:
        frames, corners = cut_outs(shape, "u1"), None
    expected = fit_rois(frames.astype("u2"), corners, shape=shape)
    assert_equal(fit_rois(frames.astype(pixel), corners, shape=shape), expected)


@pytest.mark.parametrize("shape", [(7, 7), (13, 13), (24, 24)])
def test_rois_outside_of_the_frames_are_invalid(shape):
    frames, corners = frames_with_rois(shape, BY_SHAPE[shape])
    whole = fit_rois(frames, corners, shape=shape)
    outside = np.arange(len(corners)) % 7 == 3
    corners[outside, 0] = -1
    ours = fit_rois(frames, corners, shape=shape)
    assert_equal(rows_of(ours, ~outside), rows_of(whole, ~outside))
    assert_equal(rows_of(ours, outside), nothing_but_invalid(outside.sum()))
    corners[:] = -1
    assert_equal(fit_rois(frames, corners, shape=shape), nothing_but_invalid(len(corners)))


def nothing_but_invalid(n):
    """Return the CPU's columns for ROIs outside of the frames."""
    frames = np.zeros((1, 9, 9), np.float32)
    return on_cpu(frames, np.full((n, 3), -1, np.int64), (9, 9), DEFAULTS)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("shape", [(7, 7), (13, 13), (32, 32)])
def test_start_values(shape, gather):
    if gather:
        frames, corners = frames_with_rois(shape, BY_SHAPE[shape])
    else:
        frames, corners = cut_outs(shape, BY_SHAPE[shape], 121), None
    run = partial(fit_rois, frames, corners, shape=shape)
    plain = run()
    n = len(plain["x"])
    nothing = np.full((n, 3), np.nan, np.float32)
    assert_equal(run(start=nothing), plain)
    rng = np.random.default_rng(1)
    middle = (np.array(shape) - 1) / 2
    own = np.column_stack([middle + rng.uniform(-1, 1, (n, 2)), rng.uniform(1, 2, n)])
    own = own.astype(np.float32)
    partly = np.where(rng.uniform(size=(n, 3)) < 0.5, np.float32(np.nan), own)
    for start in (own, partly):
        ours = run(start=start)
        assert_alike(ours, on_cpu(frames, corners, shape, DEFAULTS, start))
        assert (ours["x"] != plain["x"]).mean() > 0.2
    far = np.tile(np.array([[1e6, -1e6, 1e6], [-np.inf, np.inf, 0]], np.float32), (n, 1))[:n]
    assert np.isfinite(run(start=far)["x"]).mean() > 0.5


@pytest.mark.parametrize("n", [1, 31, 33, 700])
@pytest.mark.parametrize(("shape", "gather"), [((7, 7), False), ((7, 7), True), ((13, 13), False)])
def test_how_many_fits_a_warp_does_changes_nothing(shape, gather, n):
    pixel = BY_SHAPE[shape]
    if gather:
        frames, corners = frames_with_rois(shape, pixel, 700)
        corners = corners[:n]
    else:
        frames, corners = cut_outs(shape, pixel, 700, blank=60)[:n], None
    once = fit_rois(frames, corners, shape=shape, rounds=1)
    for rounds in (2, 7, 50):
        assert_equal(fit_rois(frames, corners, shape=shape, rounds=rounds), once)


@pytest.mark.parametrize("shape", [(9, 9), (16, 16), (24, 24), (32, 32)])
def test_neighbours_change_nothing(shape):
    spots = cut_outs(shape, BY_SHAPE[shape], 161, blank=15)
    order = np.random.default_rng(2).permutation(len(spots))
    fits, shuffled = fit_rois(spots), fit_rois(spots[order], rounds=5)
    assert_equal(shuffled, rows_of(fits, order))
    assert_equal(fit_rois(spots[77:78]), rows_of(fits, slice(77, 78)))


@pytest.mark.parametrize(("shape", "pixel"), [((7, 7), "f4"), ((12, 12), "f8"), ((32, 32), "f4")])
def test_bad_pixels_leave_the_neighbours_alone(shape, pixel):
    spots = cut_outs(shape, pixel, 100)
    good = fit_rois(spots)
    spots[3, 2, 2], spots[40, 0, 0], spots[41, -1, -1] = np.nan, np.inf, -np.inf
    spots[64], spots[65], spots[99] = 5, np.nan, np.finfo(pixel).max
    spots[98, 1, 1:3] = np.finfo(pixel).max, np.finfo(pixel).min  # a range beyond numbers
    bad = np.isin(np.arange(100), (3, 40, 41, 64, 65, 98, 99))
    ours = fit_rois(spots)
    assert_equal(rows_of(ours, ~bad), rows_of(good, ~bad))
    assert (ours.pop("stop_condition")[bad] == StopCondition.INVALID).all()
    del ours["iterations"]
    assert all(np.isnan(values[bad]).all() for values in ours.values())


@pytest.mark.parametrize("shape", [(9, 9), (13, 13)])
@pytest.mark.parametrize("name", ["amplitude", "background"])
@pytest.mark.parametrize("side", ["min", "max"])
def test_bounds_of_the_amplitudes(shape, name, side):
    spots = cut_outs(shape, BY_SHAPE[shape])
    bound = round(float(np.median(on_cpu(spots, None, shape, DEFAULTS)[name])), 1)
    settings = Settings(**{f"{name}_{side}": bound}, max_iterations=40)
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, shape, settings)
    assert (
        ours[name] >= np.float32(bound) if side == "min" else ours[name] <= np.float32(bound)
    ).all()
    at_bound = np.isclose(theirs[name], bound, atol=1e-4)
    assert 0.2 < at_bound.mean() < 0.8
    assert (at_bound == np.isclose(ours[name], bound, atol=1e-4)).mean() > 0.98
    np.testing.assert_allclose(ours["chi_square"], theirs["chi_square"], rtol=5e-3)
    assert (np.hypot(ours["x"] - theirs["x"], ours["y"] - theirs["y"]) < 1e-3).mean() > 0.95
    assert (np.isnan(ours[f"{name}_stderr"]) == at_bound).mean() > 0.98
    assert (np.isnan(theirs[f"{name}_stderr"]) == at_bound).mean() > 0.98
    for error in ("x_stderr", "sigma_stderr", "photons_stderr"):
        known = np.isfinite(theirs[error])
        assert known.mean() > 0.9
        assert np.median(np.abs(ours[error] / theirs[error] - 1)[known & at_bound]) < 1e-3


def test_bounds_of_sigma():
    spots = cut_outs((9, 9), "i2")
    settings = Settings(sigma_min=1.1, sigma_max=1.3)
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, (9, 9), settings)
    assert_alike(ours, theirs)
    for bound in (1.1, 1.3):
        assert (ours["sigma"] == np.float32(bound)).sum() > 10
        assert np.isnan(ours["sigma_stderr"][ours["sigma"] == np.float32(bound)]).all()
    assert ours["sigma"].min() == np.float32(1.1)
    assert ours["sigma"].max() == np.float32(1.3)


@pytest.mark.parametrize("gain", [None, 1.0, 2.5])
@pytest.mark.parametrize("shape", [(9, 9), (24, 24)])
def test_errors(shape, gain):
    spots = cut_outs(shape, BY_SHAPE[shape])
    spots[::2] += 20  # the others' background is less than the offset, and has no noise
    settings = Settings(gain=gain, offset=2.5)
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, shape, settings)
    assert_alike(ours, theirs)
    for name in errors_of(GAUSSIAN):
        known = np.isfinite(theirs[name]) & np.isfinite(ours[name])
        assert known.mean() > 0.9
        median = np.median(np.abs(ours[name] / theirs[name] - 1)[known])
        assert median < 1e-3, name


def test_without_errors_the_rest_is_the_same():
    spots = cut_outs((9, 9), "i2")
    whole = fit_rois(spots)
    assert [name for name in whole if name.endswith("_stderr")] == list(errors_of(GAUSSIAN))
    part = fit_rois(spots, settings=Settings(errors=False))
    assert_equal(part, {name: whole[name] for name in whole if name not in errors_of(GAUSSIAN)})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_iterations": 1}, {StopCondition.MAX_ITERATIONS}),
        ({"max_error": 1e9}, {StopCondition.MAX_ERROR}),
        ({"min_step": 0, "max_iterations": 60}, {StopCondition.MIN_DELTA}),
        ({"min_delta": 0, "min_step": 1e-3, "max_iterations": 60}, {StopCondition.MIN_STEP}),
    ],
)
def test_stop_conditions(options, expected):
    spots = cut_outs((9, 9), "i2")
    settings = Settings(**options)
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, (9, 9), settings)
    assert expected <= set(ours["stop_condition"])
    assert np.isin(ours["stop_condition"], list(expected)).mean() > 0.6
    assert (ours["stop_condition"] == theirs["stop_condition"]).mean() >= 0.97
    assert ours["iterations"].max() <= settings.max_iterations


def test_a_large_offset_costs_no_precision():
    spots = cut_outs((12, 12), "f8")
    plain, raised = fit_rois(spots), fit_rois(spots + 1e9)
    np.testing.assert_allclose(raised["x"], plain["x"], atol=1e-3)
    np.testing.assert_allclose(raised["sigma"], plain["sigma"], atol=2e-3)
    np.testing.assert_allclose(raised["amplitude"], plain["amplitude"], rtol=1e-3)


@pytest.mark.parametrize("gather", [False, True])
def test_several_launches_make_one_result(gather, monkeypatch):
    """As for many fits: a GPU with a display must not be busy for seconds."""
    shape = (7, 7)
    if gather:
        frames, corners = frames_with_rois(shape, "u2", 333)
    else:
        frames, corners = cut_outs(shape, "u2", 333, blank=20), None
    start = np.full((333, 3), np.nan, np.float32)
    start[::2] = 3, 3, 1.2
    task = task_of(frames, corners, DEFAULTS, None, shape)
    run, macros = kernel_of(task, False)
    launches = []

    def kernel(grid, block, arguments):
        launches.append(grid)
        run(grid, block, arguments)

    plan = fit._Plan(kernel, macros["WARPS"], 32, 1)
    monkeypatch.setattr(fit, "_plan", lambda *_: plan)
    monkeypatch.setattr(fit, "_device", lambda: 0)
    monkeypatch.setattr(fit, "_LAUNCH_PIXELS", 49 * 100)
    memory = np.full(2 * GUARD + 333 * layout.row_bytes(DEFAULTS), POISON, np.uint8)
    task.launch(frames, corners, start, None, memory.ctypes.data + GUARD, 333)
    assert len(launches) > 3
    assert_equal(
        checked(memory, 333, DEFAULTS), fit_rois(frames, corners, start=start, shape=shape)
    )


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("shape", [(5, 8), (7, 7), (13, 13), (9, 9), (31, 6), (16, 16), (24, 24)])
def test_nothing_is_read_outside(shape, gather, at_end):
    """Before what a kernel reads, or after it, there is no memory at all."""
    pixel = BY_SHAPE[shape]
    if gather:
        frames, corners = frames_with_rois(shape, pixel)
        corners[::9, 0] = -1
    else:
        frames, corners = cut_outs(shape, pixel, 67), None
    start = np.full((67 if corners is None else len(corners), 3), np.nan, np.float32)
    inputs = [value if value is None else walled(value, at_end) for value in (frames, corners)]
    walled_start = walled(start, at_end)
    run = partial(fit_rois, shape=shape)
    run(frames, corners, start=start)  # compiles it
    assert exit_status(lambda: run(*inputs, start=walled_start)) == 0
