"""The fit kernels on the host, as fit.py runs them, and spots for them to be compared on."""

from __future__ import annotations

import emulated
import numpy as np

from napari_spotfit import Settings, simulate_spots
from napari_spotfit.engine.cuda import fit, layout
from napari_spotfit.engine.variants import is_plain
from napari_spotfit.models.stopping import CONVERGED

#: What memory holds before a kernel writes: no result has such bytes.
POISON = 0x4D
#: Bytes before and after the results.
GUARD = 64

DEFAULTS = Settings()


def fit_rois(
    frames, corners=None, settings=DEFAULTS, start=None, *, planes=None, shape=None, rounds=3
):
    """Run the kernel as fit.py does, and see that it writes all results and nothing else.

    Of the fast path, a lane gets so many fits one after the other.
    """
    shape = frames.shape[1:] if shape is None else shape
    n = len(frames) if corners is None else len(corners)
    size = layout.row_bytes(settings) * n
    memory = np.full(GUARD + size + GUARD, POISON, np.uint8)
    known = None if planes is None else planes.values
    task = task_of(frames, corners, settings, planes, shape)
    run, macros = kernel_of(task, known is not None)
    per_warp = 32 // (macros.get("LANES_X", 1) * macros["LANES_Y"]) * (rounds if task.plain else 1)
    rois = layout.rois(address(frames), frames.shape[1:], address(corners), address(start))
    output = layout.output(memory.ctypes.data + GUARD, n, settings)
    blocks = -(-n // (per_warp * macros["WARPS"]))
    run((blocks,), (32 * macros["WARPS"],), task.arguments(rois, output, known, n, per_warp))
    return checked(memory, n, settings)


def task_of(frames, corners, settings, planes, shape):
    more = planes is not None and len(planes.values) > 1
    gather, plain = corners is not None, is_plain(settings, planes)
    return fit._Task(shape, settings, frames.dtype, gather, plain, more)


def kernel_of(task, planes):
    """Return what launches a task's kernel, and the kernel's macros."""
    file, before, macros = fit._kernel(task, planes)

    def run(grid, block, arguments):
        emulated.launch(file, "fit", grid, block, arguments, before=before, **macros)

    return run, macros


def address(array):
    if array is None:
        return 0
    assert array.flags.c_contiguous
    return array.ctypes.data


def checked(memory, n, settings):
    assert (memory[:GUARD] == POISON).all()
    assert (memory[-GUARD:] == POISON).all()
    results = layout.Results.within(memory[GUARD:-GUARD], n, settings)
    for part in results:
        pieces = np.ascontiguousarray(part).view(np.uint8).reshape(-1, part.itemsize)
        assert not (pieces == POISON).all(axis=1).any()
    return results.columns(settings.profile)


def as_single(frames):
    """Return the same numbers in single precision, which the CPU's fit is compiled for anyway."""
    single = frames.astype(np.float32)
    assert np.array_equal(single, frames)
    return single


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


def assert_alike(ours, theirs):
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
