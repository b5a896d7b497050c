"""The fit kernel on the host, against the CPU's twin: pixels in, every result out."""

from __future__ import annotations

from functools import partial

import emulated
import numpy as np
import pytest
from walled import exit_status, walled

from napari_spotfit import Settings, StopCondition, simulate_spots
from napari_spotfit.backends.contract import ERRORS
from napari_spotfit.backends.cpu.fit import fit_rois as on_cpu
from napari_spotfit.backends.cuda import fit, layout
from napari_spotfit.stopping import CONVERGED

#: Every number of lanes, missing rows and columns, runs of pixels at any byte of a word.
CASES = [
    ((4, 4), "f4"), ((5, 8), "u1"), ((7, 7), "u2"), ((9, 9), "i2"), ((12, 12), "f8"),
    ((13, 13), "u1"), ((16, 16), "f4"), ((19, 19), "i2"), ((24, 24), "u2"), ((27, 27), "f8"),
    ((31, 6), "u1"), ((32, 32), "f4"),
]  # fmt: skip
BY_SHAPE = dict(CASES)

#: What memory holds before a kernel writes: no result has such bytes.
POISON = 0x4D
#: Bytes before and after the results.
GUARD = 64

DEFAULTS = Settings()


def fit_rois(frames, corners=None, settings=DEFAULTS, start=None, *, shape=None, rounds=3):
    """Run the kernel as fit.py does, and see that it writes all results and nothing else."""
    shape = frames.shape[1:] if shape is None else shape
    n = len(frames) if corners is None else len(corners)
    size = layout.row_bytes(settings.errors) * n
    memory = np.full(GUARD + size + GUARD, POISON, np.uint8)
    macros = layout.macros(shape, frames.dtype, corners is not None)
    per_warp = rounds * 32 // (macros["LANES_X"] * macros["LANES_Y"])
    rois = layout.rois(address(frames), frames.shape[1:], address(corners), address(start))
    output = layout.output(memory.ctypes.data + GUARD, n, settings.errors)
    arguments = (rois, output, layout.limits(settings, shape), layout.camera(settings))
    emulated.launch(
        "fit.cu", "fit", (-(-n // (per_warp * macros["WARPS"])),), (32 * macros["WARPS"],),
        (*arguments, np.int64(n), np.int32(per_warp)), **macros,
    )  # fmt: skip
    return checked(memory, n, settings.errors)


def address(array):
    if array is None:
        return 0
    assert array.flags.c_contiguous
    return array.ctypes.data


def checked(memory, n, errors):
    assert (memory[:GUARD] == POISON).all()
    assert (memory[-GUARD:] == POISON).all()
    results = layout.Results.within(memory[GUARD:-GUARD], n, errors)
    for part in results:
        pieces = np.ascontiguousarray(part).view(np.uint8).reshape(-1, part.itemsize)
        assert not (pieces == POISON).all(axis=1).any()
    return results.columns()


def cut_outs(shape, pixel, n=200, seed=0, blank=0):
    """Return spots of different sizes; a few are blank, which takes many iterations."""
    wide = np.clip(min(shape) / 6, 1.1, 2.5)
    spots, _ = simulate_spots(n, shape, photons=1500, background=2, sigma=(1, wide), seed=seed)
    some = np.random.default_rng(seed).permutation(n)[:blank]
    spots[some] = np.random.default_rng(seed).poisson(9, (blank, *shape))
    if pixel == "i2":
        spots -= 5
    return np.clip(spots, -99, 255).astype(pixel)


def frames_with_rois(shape, pixel, n=120, seed=0):
    """Return frames with a spot in each quarter, and ROIs around them up to the last pixel.

    The frames begin at an odd pixel, and so do most ROIs.
    """
    rng = np.random.default_rng(seed)
    rows, columns = shape
    spots = cut_outs(shape, pixel, 20, seed)
    height, width = 2 * rows + 5, 2 * columns + 3
    memory = np.zeros(5 * height * width + 1, pixel)
    frames = memory[1:].reshape(5, height, width)
    frames[:] = rng.integers(0, 5, frames.shape)
    quarters = np.array(
        [(f, y, x) for f in range(5) for y in (0, rows + 5) for x in (0, columns + 3)]
    )
    for (frame, y, x), spot in zip(quarters, spots, strict=True):
        frames[frame, y : y + rows, x : x + columns] = spot
    corners = quarters[rng.integers(0, 20, n)]
    corners[:, 1:] += rng.integers(-1, 2, (n, 2))
    corners[:, 1:] = corners[:, 1:].clip(0, (height - rows, width - columns))
    corners[n // 2], corners[-1] = quarters[-1], quarters[0]
    return frames, corners.astype(np.int64)


def cut(frames, corners, shape):
    rows, columns = shape
    return np.stack([frames[f, y : y + rows, x : x + columns] for f, y, x in corners])


def assert_equal(ours, theirs):
    """To the last bit."""
    assert list(ours) == list(theirs)
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def rows_of(columns, rows):
    return {name: values[rows] for name, values in columns.items()}


def assert_alike(ours, theirs, *, errors=True):
    """Up to rounding, and with it an iteration more or less now and then."""
    assert list(ours) == list(theirs)
    n = len(theirs["x"])
    few = max(0.01 * n, 2)
    assert (ours["stop_condition"] != theirs["stop_condition"]).sum() <= few
    assert (ours["iterations"] != theirs["iterations"]).sum() <= 10 * few
    both = np.isin(ours["stop_condition"], CONVERGED) & np.isin(theirs["stop_condition"], CONVERGED)
    assert both.mean() > 0.8
    distance = np.hypot(ours["x"] - theirs["x"], ours["y"] - theirs["y"])[both]
    assert (distance > 1e-3).sum() <= max(0.005 * n, 1)
    for name in theirs:
        a, b = (columns[name][both].astype(float) for columns in (ours, theirs))
        assert ours[name].dtype == theirs[name].dtype
        assert (np.isnan(a) != np.isnan(b)).sum() <= few, name
        difference = np.abs(a - b)[np.isfinite(b)] / (np.abs(b[np.isfinite(b)]) + 1e-3)
        if len(difference) == 0:
            continue
        assert np.median(difference) < (1e-2 if name.endswith("_stderr") else 1e-3), name
        assert np.mean(difference > 0.05) < 0.05, name


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


def test_bounds_of_sigma():
    spots = cut_outs((9, 9), "i2")
    settings = Settings(sigma_min=1.1, sigma_max=1.3)
    ours, theirs = fit_rois(spots, settings=settings), on_cpu(spots, None, (9, 9), settings)
    assert_alike(ours, theirs)
    for bound in (1.1, 1.3):
        assert (ours["sigma"] == np.float32(bound)).sum() > 10
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
    for name in ERRORS:
        known = np.isfinite(theirs[name]) & np.isfinite(ours[name])
        assert known.mean() > 0.9
        median = np.median(np.abs(ours[name] / theirs[name] - 1)[known])
        assert median < 1e-3, name


def test_without_errors_the_rest_is_the_same():
    spots = cut_outs((9, 9), "i2")
    whole = fit_rois(spots)
    assert [name for name in whole if name.endswith("_stderr")] == list(ERRORS)
    part = fit_rois(spots, settings=Settings(errors=False))
    assert_equal(part, {name: whole[name] for name in whole if name not in ERRORS})


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
    macros = layout.macros(shape, frames.dtype, gather)
    launches = []

    def kernel(grid, block, arguments):
        launches.append(grid)
        emulated.launch("fit.cu", "fit", grid, block, arguments, **macros)

    plan = fit._Plan(kernel, macros["WARPS"], 32, 1)
    monkeypatch.setattr(fit, "_plan", lambda *_: plan)
    monkeypatch.setattr(fit, "_device", lambda: 0)
    monkeypatch.setattr(fit, "_LAUNCH_PIXELS", 49 * 100)
    memory = np.full(2 * GUARD + 333 * layout.row_bytes(True), POISON, np.uint8)
    task = fit._Task(shape, DEFAULTS, frames.dtype, gather)
    task.launch(frames, corners, start, memory.ctypes.data + GUARD, 333)
    assert len(launches) > 3
    assert_equal(checked(memory, 333, True), fit_rois(frames, corners, start=start, shape=shape))


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
