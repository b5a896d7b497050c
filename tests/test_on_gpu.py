"""On a real GPU: device arrays of every kind, results on the device, and lack of memory.

What comes out right at all, the tests of fit_spots and localize say for either backend.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from same_fits import assert_same

from napari_spotfit import (
    NoiseModel,
    SpotFits,
    detect_spots,
    fit_at,
    fit_spots,
    localize,
    simulate_movie,
    simulate_spots,
)
from napari_spotfit.analysis.render import RenderIndex
from napari_spotfit.engine.backend import BackendFallbackWarning

cupy = pytest.importorskip("cupy")

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


class OnlyDlpack:
    """An array of another library with DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnlyInterface:
    """An array of another library with the CUDA array interface."""

    def __init__(self, array):
        self._array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


GUISES = [lambda array: array, OnlyDlpack, OnlyInterface]


@pytest.fixture(scope="module")
def spots():
    """More than go the short way, in a type that the GPU reads as it is."""
    return simulate_spots(20_000, 7, photons=700, sigma=(1, 1.6), seed=20)[0]


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(40, shape=(90, 101), spots_per_frame=12, seed=21)


@pytest.fixture
def memory():
    """Limit CuPy to a number of bytes beyond those in use."""
    before = cupy.cuda.get_allocator()

    def limit(size):
        pool = cupy.cuda.MemoryPool()
        pool.set_limit(size=size)
        cupy.cuda.set_allocator(pool.malloc)

    yield limit
    cupy.cuda.set_allocator(before)


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def on_gpu(array, **options):
    return fit_spots(array, backend="cuda", **options)


@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize("errors", [False, True])
def test_results_stay_on_the_gpu(spots, guise, errors):
    expected = on_gpu(spots, errors=errors)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        there = guise(cupy.asarray(spots))
        fits = fit_spots(there, on_device=True, errors=errors)
        assert all(isinstance(values, cupy.ndarray) for values in fits.columns.values())
        # What comes next on the stream comes after the fit.
        x = float(fits.x.sum())
    assert x == pytest.approx(expected.x.sum())
    assert_same(fits.to_host(), expected)
    assert isinstance(expected.x, np.ndarray)


def test_results_of_the_hosts_spots_may_stay_there_too(spots):
    start = np.full((len(spots), 3), np.nan)
    start[::2] = 3, 3, 1.3
    expected = on_gpu(spots, start=start)
    for own in (start, cupy.asarray(start)):
        fits = fit_spots(spots, on_device=True, start=own)
        assert isinstance(fits.sigma, cupy.ndarray)
        assert_same(fits.to_host(), expected)
    assert (expected.x != on_gpu(spots).x).any()


def test_nobody_waits_for_results_that_stay(spots):
    """The call returns while the stream is busy with what was there before."""
    import cupyx

    busy = cupy.RawKernel(
        """extern "C" __global__ void busy(const volatile int* over, long long most) {
            const long long begin = clock64();
            while (*over == 0 && clock64() - begin < most) {}
        }""",
        "busy",
    )
    over = cupyx.zeros_pinned(1, np.int32)
    there, stream = cupy.asarray(spots), cupy.cuda.Stream(non_blocking=True)
    expected = on_gpu(there)
    with stream:
        fit_spots(there, on_device=True)  # compiles the kernel and gets the memory
        stream.synchronize()
        busy((1,), (1,), (np.uint64(over.ctypes.data), np.int64(10**10)))
        fits = fit_spots(there, on_device=True)
        waited = stream.done
        over[0] = 1
        stream.synchronize()
    assert not waited
    assert_same(fits.to_host(), expected)


@pytest.mark.parametrize("guise", GUISES)
def test_spots_on_the_gpu_are_those_on_the_host(spots, guise):
    expected = on_gpu(spots)
    there = cupy.asarray(spots)
    assert_same(on_gpu(guise(there)), expected)
    assert_same(fit_spots(guise(there), backend="auto"), expected)
    assert_same(fit_spots(guise(there), backend="cpu"), fit_spots(spots, backend="cpu"))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "i4", "u8", "f2", "f4", "f8", ">u2"])
@pytest.mark.parametrize("count", [300, 20_000])
def test_any_type_in_either_memory(spots, dtype, count):
    counts = np.minimum(spots[:count], 127)
    expected, typed = on_gpu(counts), counts.astype(dtype)
    assert_same(on_gpu(typed), expected)
    if not dtype.startswith(">"):
        assert_same(on_gpu(cupy.asarray(typed)), expected)
        assert_same(fit_spots(cupy.asarray(typed), on_device=True).to_host(), expected)


@pytest.mark.parametrize("to", [np.asarray, cupy.asarray])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "i4"])
def test_strided_spots_in_either_memory(spots, to, dtype):
    counts = np.minimum(spots, 255).astype(dtype)
    wide = np.zeros((2 * len(spots), 7, 15), dtype)
    wide[::2, ::-1, 3:10] = counts
    expected = on_gpu(counts)
    view = to(wide)[::2, ::-1, 3:10]
    assert_same(on_gpu(view), expected)
    if to is cupy.asarray:
        assert_same(on_gpu(OnlyInterface(view)), expected)


@pytest.mark.parametrize("count", [300, 20_000])
@pytest.mark.parametrize("skipped", [0, 1, 2, 3])
def test_spots_may_begin_at_any_byte_of_any_memory(spots, count, skipped):
    import cupyx

    counts = np.minimum(spots[: count + skipped], 255).astype(np.uint8)
    pinned = cupyx.empty_pinned(counts.shape, np.uint8)
    pinned[:] = counts
    expected = on_gpu(counts.astype(np.float32))[skipped:]
    for array in (counts, pinned, cupy.asarray(counts)):
        assert_same(on_gpu(array[skipped:]), expected)
    assert_same(fit_spots(cupy.asarray(counts)[skipped:], on_device=True).to_host(), expected)


@pytest.mark.parametrize("pinned", [False, True])
def test_many_spots_go_up_in_pieces(spots, pinned):
    import cupyx

    once = spots.astype(np.uint16)
    start = np.full((len(once), 3), np.nan, np.float32)
    start[::3] = 3, 3, 1.3
    many = (cupyx.empty_pinned if pinned else np.empty)((15 * len(once), 7, 7), np.uint16)
    many[:] = np.tile(once, (15, 1, 1))
    expected = on_gpu(once, start=start)
    fits = on_gpu(many, start=np.tile(start, (15, 1)))
    for first in range(0, len(many), len(once)):
        assert_same(fits[first : first + len(once)], expected)
    assert_same(on_gpu(many, devices="all"), on_gpu(many))


def test_what_lies_on_another_gpu_comes_along(spots):
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    weights = np.linspace(0.5, 2, spots.size, dtype=np.float32).reshape(spots.shape)
    expected = on_gpu(spots, weights=weights, estimator="wlse")
    with cupy.cuda.Device(1):
        there = cupy.asarray(weights)
        spots_there = cupy.asarray(spots)
    assert_same(on_gpu(cupy.asarray(spots), weights=there, estimator="wlse"), expected)
    assert_same(on_gpu(spots, weights=there, estimator="wlse"), expected)
    assert_same(on_gpu(spots_there, weights=weights, estimator="wlse"), expected)


def test_no_spots_on_the_gpu():
    nothing = cupy.zeros((0, 7, 7), np.float32)
    names = list(fit_spots(np.zeros((0, 7, 7))).columns)
    for fits in (on_gpu(nothing), fit_spots(nothing, on_device=True)):
        assert len(fits) == 0
        assert list(fits.columns) == names


def test_several_threads_at_once(spots):
    parts = [spots[first : first + 2500 + 100 * (first % 7)] for first in range(0, 16_000, 1000)]
    expected = [on_gpu(part) for part in parts]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(3):
            for fits, theirs in zip(pool.map(on_gpu, parts), expected, strict=True):
                assert_same(fits, theirs)
            there = pool.map(lambda part: on_gpu(cupy.asarray(part)), parts)
            for fits, theirs in zip(there, expected, strict=True):
                assert_same(fits, theirs)


@pytest.mark.parametrize("there", [False, True])
def test_little_memory_is_enough(spots, memory, no_warning, there):
    many = np.tile(spots.astype(np.uint16), (15, 1, 1))
    expected = on_gpu(many)
    given = cupy.asarray(many) if there else many
    # Neither a piece of the spots nor the results of all have room in there.
    memory(12 << 20)
    assert_same(on_gpu(given), expected)


@pytest.mark.parametrize("there", [False, True])
def test_without_memory_the_cpu_goes_on(spots, memory, there):
    given = cupy.asarray(spots) if there else spots
    memory(1)
    with pytest.warns(BackendFallbackWarning) as warned:
        fits = on_gpu(given)
    assert len(warned) == 1
    assert_same(fits, fit_spots(spots, backend="cpu"))
    memory(1 << 30)
    assert_same(on_gpu(given), on_gpu(spots))


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("guise", GUISES)
def test_images_on_the_gpu_are_those_on_the_host(movie, guise, backend):
    frames, truth = movie
    there = cupy.asarray(frames)
    places = truth[["frame", "y", "x"]].to_numpy()
    assert_same(
        fit_at(guise(there), places, 7, backend=backend), fit_at(frames, places, 7, backend=backend)
    )
    expected = detect_spots(frames, backend=backend)
    assert len(expected) > 300
    np.testing.assert_array_equal(detect_spots(guise(there), backend=backend), expected)
    assert_same(localize(guise(there), backend=backend), localize(frames, backend=backend))
    assert_same(localize(guise(there[3]), backend=backend), localize(frames[3], backend=backend))


def test_views_types_masks_and_choices_of_images_on_the_gpu(movie):
    frames, _ = movie
    expected = localize(frames, backend="cuda")
    wide = cupy.zeros((40, 180, 101), np.int32)
    wide[:, ::2] = cupy.asarray(frames)
    for image in (wide[:, ::2], cupy.asarray(frames.astype(np.float32))):
        assert_same(localize(image, backend="cuda"), expected, score=1e-4)
    mask = np.random.default_rng(22).uniform(size=frames.shape) < 0.7
    options = {"frames": [3, 4, 9, 30], "backend": "cuda"}
    for own in (mask, mask[0]):
        theirs = localize(frames, mask=own, **options)
        there = localize(cupy.asarray(frames), mask=cupy.asarray(own), **options)
        assert 0 < len(theirs) < len(expected)
        assert_same(there, theirs)


def test_both_backends_find_the_same(movie):
    frames, _ = movie
    ours, theirs = localize(frames, backend="cuda"), localize(frames, backend="cpu")
    assert len(ours) == len(theirs)
    np.testing.assert_array_equal(ours.frame, theirs.frame)
    assert (ours.stop_condition == theirs.stop_condition).mean() > 0.97
    distance = np.hypot(ours.x - theirs.x, ours.y - theirs.y)[ours.converged & theirs.converged]
    assert (distance < 1e-3).mean() > 0.98


def test_images_in_several_threads_and_on_all_gpus(movie):
    frames, _ = movie
    expected = localize(frames, backend="cuda")
    assert_same(localize(frames, backend="cuda", devices="all"), expected)
    with ThreadPoolExecutor(4) as pool:
        given = [frames, cupy.asarray(frames)] * 4
        for fits in pool.map(lambda image: localize(image, backend="cuda"), given):
            assert_same(fits, expected)


@pytest.mark.parametrize("there", [False, True])
def test_images_without_memory_are_the_cpus(movie, memory, there):
    frames, truth = movie
    given = cupy.asarray(frames) if there else frames
    expected = localize(frames, backend="cpu")
    memory(1)
    with pytest.warns(BackendFallbackWarning) as warned:
        fits = localize(given, backend="cuda")
    assert len(warned) == 1
    assert_same(fits, expected)
    places = truth[["frame", "y", "x"]].to_numpy()
    with pytest.warns(BackendFallbackWarning) as warned:
        fits = fit_at(given, places, backend="cuda")
    assert len(warned) == 1
    assert_same(fits, fit_at(frames, places, backend="cpu"))


def test_verdicts_lie_where_the_fits_do(spots, movie):
    there, here = fit_spots(cupy.asarray(spots), on_device=True), fit_spots(spots)
    assert isinstance(there.flags, cupy.ndarray)
    assert isinstance(there.good, cupy.ndarray)
    assert (cupy.asnumpy(there.good) == here.good).mean() > 0.999
    assert len(there[there.good]) == int(there.good.sum())
    assert there.to_dataframe()["good"].sum() == int(there.good.sum())
    frames, bad = cupy.asarray(movie[0]), cupy.zeros(movie[0].shape[1:], bool)
    bad[::7, ::5] = True
    one, other = localize(frames, bad_pixels=bad), localize(movie[0], bad_pixels=bad.get())
    assert (one.flags == other.flags).mean() > 0.99


def test_errors_of_filtered_images_are_found_where_the_fits_lie(spots):
    noise = NoiseModel(1.0, 20.0, 5.0, correlation=1.4, blur=0.8, unfiltered=1.6)
    there = fit_spots(cupy.asarray(spots), noise=noise, on_device=True)
    here = fit_spots(spots, noise=noise)
    for name, expected in here.columns.items():
        values = there.columns[name]
        assert isinstance(values, cupy.ndarray)
        assert values.dtype == expected.dtype
        np.testing.assert_allclose(cupy.asnumpy(values), expected, rtol=1e-6, err_msg=name)


def test_rendered_images_are_those_of_the_cpu_and_equal_in_parts():
    rng = np.random.default_rng(4)
    columns = dict(zip("yx", rng.uniform(-0.5, 63.5, (2, 100_000)), strict=True))
    errors = rng.lognormal(np.log(0.1), 0.7, (2, 100_000)).astype(np.float32)
    fits = SpotFits(columns | dict(zip(("y_stderr", "x_stderr"), errors, strict=True)))
    for by in ("precision", "histogram"):
        on_cpu, on_gpu = (
            RenderIndex(fits, shape=(64, 64), by=by, backend=backend) for backend in ("cpu", "cuda")
        )
        whole, expected = on_gpu.render(20), on_cpu.render(20)
        np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-5 * expected.max())
        for top, left in ((0, 0), (77, 401), (1200, 1013)):
            part = on_gpu.part((20, 20), (top, top + 80), (left, left + 120))
            assert (part == whole[top : top + 80, left : left + 120]).all()
