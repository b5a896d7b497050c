"""Cut-outs of the host on several GPUs: the same rows from any memory, in spite of failures.

The GPUs are those of fake_cupy: slow ones, on which all that is begun waits until somebody waits
for it.
"""

from __future__ import annotations

import math
import warnings
from functools import partial

import fake_cupy
import numpy as np
import on_host
import pytest
from excluding import fit_on_device

from napari_spotfit import Flag, NoiseModel, Settings, simulate_movie, simulate_spots
from napari_spotfit.engine.backend import BackendFallbackWarning, Block, Load, Positions
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.cuda import backend as cuda_backend
from napari_spotfit.engine.cuda import fit, pieces, transfer
from napari_spotfit.engine.cuda.backend import Gpus
from napari_spotfit.engine.fallback import Fallback
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.select import select_backend
from napari_spotfit.images.arrays import to_native
from napari_spotfit.images.pixel_calibration import Planes

SETTINGS = Settings(errors=False, threads=2)
COUNT, SHAPE = 3000, (7, 7)

#: The same kernels as those of the fake GPUs.
fit_rois_on_host = partial(on_host.fit_rois, optimised=True)


@pytest.fixture(scope="module")
def spots():
    counts = simulate_spots(COUNT, 7, photons=700, sigma=(1, 1.6), seed=20)[0]
    return np.minimum(counts, 127).astype(np.uint16)


@pytest.fixture(scope="module")
def expected(spots):
    return fit_rois_on_host(spots, None, SHAPE, SETTINGS)


@pytest.fixture
def gpus(monkeypatch):
    """Return a function that installs fake GPUs, with small pieces."""
    monkeypatch.setattr(cuda_backend, "FEW_BYTES", 0)
    sizes = {"PIECE_BYTES": 20_000, "PINNED_BYTES": 25_000, "COPIED_BYTES": 18_000}
    for name, size in (sizes | {"SMALL_PIECE": 1000, "FEEDER_BYTES": 10_000}).items():
        monkeypatch.setattr(pieces, name, size)
    monkeypatch.setattr(pieces.threads, "available", lambda: 3)
    # Parts are smaller than pieces, and end within a pixel.
    monkeypatch.setattr(transfer, "PART", 4099)

    def install(count=1, memory=1 << 30):
        made = fake_cupy.Gpus(count, memory)
        fake_cupy.install(monkeypatch, made)
        return made

    return install


def backend_of(numbers):
    return Gpus(numbers, "some GPUs", Load(1, 1, 2))


def fit_on(on, spots, settings=SETTINGS, start=None, planes=None):
    """Fit cut-outs by a backend."""
    job = FitJob.of_spots(settings, SHAPE, spots.dtype)
    return on.fit(job, Block(spots, spots, planes), None, start)


def run(count):
    """Return the backend of a run on several GPUs."""

    def without(lost):
        left = [number for number in range(count) if number not in lost]
        return backend_of(left) if left else None

    cpu = partial(select_backend, SETTINGS.changed(backend="cpu"))
    return Fallback(backend_of(list(range(count))), cpu, without)


def assert_same(columns, expected):
    assert list(columns) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(columns[name], values, err_msg=name)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_gpus_gives_the_same_rows(gpus, spots, expected, count):
    made = gpus(count)
    assert_same(fit_on(run(count), spots), expected)
    assert sum(made.launches) > 10
    assert all(made.launches)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", ">u2", "i2", "i4", ">i4", "u8", "f2", ">f8"])
def test_any_type_and_byte_order(gpus, spots, dtype):
    typed = spots.astype(dtype)
    native = to_native(typed)
    expected = fit_rois_on_host(native, None, SHAPE, SETTINGS)
    gpus(2)
    assert_same(fit_on(run(2), typed), expected)


def test_any_layout(gpus, spots, expected, tmp_path):
    gpus(2)
    wide = np.zeros((2 * COUNT, 7, 15), np.uint16)
    wide[::2, ::-1, 3:10] = spots
    assert_same(fit_on(run(2), wide[::2, ::-1, 3:10]), expected)
    spots.tofile(tmp_path / "spots")
    mapped = np.memmap(tmp_path / "spots", np.uint16, "r", shape=spots.shape)
    assert_same(fit_on(run(2), mapped), expected)


def test_page_locked_spots_are_uploaded_without_a_copy(gpus, spots, expected, monkeypatch):
    made = gpus(2)
    made.locked[spots.ctypes.data] = spots.nbytes
    sent = []
    feed = transfer.Staging.feed

    def watched(self, stream, done, piece=None):
        if piece is not None:
            begin = int(piece._kept[0]._moves[0, 1]) - spots.ctypes.data
            sent.append((piece._piece.in_place, begin))
        feed(self, stream, done, piece)

    monkeypatch.setattr(transfer.Staging, "feed", watched)
    assert_same(fit_on(run(2), spots), expected)
    assert all(in_place and 0 <= place < spots.nbytes for in_place, place in sent)
    # Partly locked memory is treated as pageable.
    made.locked[spots.ctypes.data] = spots.nbytes - 100
    sent.clear()
    assert_same(fit_on(run(2), spots), expected)
    assert sent
    assert not any(in_place for in_place, _ in sent)
    del made.locked[spots.ctypes.data]


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_start_values_and_maps_go_along(gpus, spots, locked, shared):
    random = np.random.default_rng(1)
    start = np.full((COUNT, 3), np.nan, np.float32)
    start[::3] = 3, 3, 1.3
    weights = random.uniform(0.5, 1, (1 if shared else COUNT, 7, 7)).astype(np.float32)
    settings = SETTINGS.changed(estimator="wlse")
    planes = Planes(weights)
    expected = fit_rois_on_host(spots, None, SHAPE, settings, start, planes=planes)
    made = gpus(2)
    if locked:
        made.locked[spots.ctypes.data] = spots.nbytes
    found = fit_on(run(2), spots, settings, start, planes)
    assert_same(found, expected)


def test_results_keep_their_memory_as_long_is_native_there(gpus, spots, expected):
    gpus(1)
    first = fit_on(run(1), spots)
    kept = {name: values.copy() for name, values in first.items()}
    place = first["y"].ctypes.data
    second = fit_on(run(1), spots[::-1])
    assert_same(first, kept)
    assert second["y"].ctypes.data != place
    sigma = first["sigma"][5:]
    del first, second
    fit_on(run(1), spots[::-1])
    np.testing.assert_array_equal(sigma, kept["sigma"][5:])
    del sigma
    # All of them are deleted.
    again = [fit_on(run(1), spots) for _ in range(2)]
    assert place in {columns["y"].ctypes.data for columns in again}


def test_more_results_than_are_page_locked(gpus, spots, expected, monkeypatch):
    made = gpus(2)
    monkeypatch.setattr(transfer, "_MOST_RESULTS", 300_000)
    kept = [fit_on(run(2), spots) for _ in range(4)]
    for columns in kept:
        assert_same(columns, expected)
    assert sum(transfer._locked_sizes) <= 300_000
    del kept, columns
    monkeypatch.setattr(transfer, "_MOST_RESULTS", 2_700_000)
    fit_on(run(2), np.concatenate([spots] * 20))
    assert len(transfer._locked_sizes) == 1
    assert sum(size >= 1 << 20 for size in made.locked.values()) == 1


def test_where_no_memory_can_be_page_locked_results_are_copied(gpus, spots, expected):
    made = gpus(2)
    made.fail(0, "register", for_good=False)
    for _ in range(2):
        assert_same(fit_on(run(2), spots), expected)
    # It was tried once.
    assert max(made.locked.values()) < COUNT * 43


@pytest.mark.parametrize("call", ["empty", "send", "launch", "receive", "synchronize"])
@pytest.mark.parametrize("first", [0, 1, 7])
def test_a_gpu_that_fails_gives_its_pieces_to_the_others(gpus, spots, expected, call, first):
    made = gpus(3)
    made.fail(1, call, first)
    backend = run(3)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        columns = fit_on(backend, spots)
    assert_same(columns, expected)
    # It may have had nothing left to fail with.
    assert len(warned) == 1 or (first and not warned)
    if warned:
        launches = list(made.launches)
        assert_same(fit_on(backend, spots), expected)
        assert made.launches[1] == launches[1], "a lost GPU was asked again"
    assert backend.ran_on() == "some GPUs"


@pytest.mark.parametrize("call", ["empty", "send", "launch", "receive", "synchronize"])
@pytest.mark.parametrize("first", [0, 2])
def test_when_all_fail_the_cpu_does_the_rest(gpus, spots, expected, call, first):
    made = gpus(2)
    for device in range(2):
        made.fail(device, call, first)
    backend = run(2)
    with pytest.warns(BackendFallbackWarning) as warned:
        columns = fit_on(backend, spots.astype(">u2"))
    assert len(warned) == 1
    assert backend.ran_on() == "some GPUs, CPU (2 threads)"
    cpu = select_backend(SETTINGS.changed(backend="cpu"))
    theirs = fit_on(cpu, spots)
    by_gpu = np.ones(COUNT, bool)
    for name, values in expected.items():
        by_gpu &= (columns[name] == values) | np.isnan(values)
    for name, values in theirs.items():
        np.testing.assert_array_equal(columns[name][~by_gpu], values[~by_gpu], err_msg=name)


def test_memory_that_is_short_for_all_is_enough_for_one_after_the_other(gpus, spots, expected):
    made = gpus(2, memory=60_000)
    # The free memory has shrunk meanwhile.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "free_memory", lambda _: 1 << 30)
        patch.setattr(pieces, "_SMALLEST", 10)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(fit_on(run(2), spots), expected)
    assert max(made.most) <= 60_000


def test_without_memory_the_cpu_does_it(gpus, spots):
    gpus(1, memory=100)
    cpu = select_backend(SETTINGS.changed(backend="cpu"))
    with pytest.warns(BackendFallbackWarning):
        columns = fit_on(run(1), spots)
    assert_same(columns, fit_on(cpu, spots))


def test_half_of_the_free_memory_is_left(gpus, spots, expected):
    made = gpus(1, memory=100_000)
    assert_same(fit_on(run(1), spots), expected)
    assert made.most[0] <= 50_000


def test_the_hosts_page_locked_memory_stays_below_a_gigabyte(monkeypatch):
    """Whatever was done before, on two GPUs and 32 cores: all that may be kept, added up."""
    monkeypatch.setattr(pieces.threads, "available", lambda: 32)
    monkeypatch.setattr(pieces, "free_memory", lambda _: 1 << 37)
    many = np.broadcast_to(np.uint16(1), (40_000_000, 7, 7))
    task = fit.task_of(SETTINGS, SHAPE, "u2", gather=False, planes=False, variance_map=False)
    none = fit.Maps(None, None)
    kept = transfer._MOST_RESULTS
    work = pieces._Work(many, None, none, task, many, reads=False, writes=False, is_native=True)
    piece, feeders = pieces._shares(work, [0, 1])
    kept += feeders * transfer.PART * transfer.PARTS
    kept += feeders * pieces.UNDER_WAY * piece * task.row_bytes
    piece, feeders = pieces._shares(work._replace(writes=True, is_native=False), [0, 1])
    kept += feeders * pieces.UNDER_WAY * piece * task.code.roi_bytes
    assert kept < 1 << 30


@pytest.mark.parametrize("estimator", ["wlse", "mle"])
def test_fits_that_are_prepared_give_the_same_rows(gpus, spots, monkeypatch, estimator):
    rng, few = np.random.default_rng(6), spots[:200]
    settings = SETTINGS.changed(estimator=estimator, gain=1.0)
    planes = Planes(rng.uniform(1, 2, (1, *SHAPE)).astype(np.float32))
    start = np.full((len(few), 3), np.nan, np.float32)
    start[:, 0] = rng.uniform(2, 4, len(few))
    expected = {
        given: fit_rois_on_host(few, None, SHAPE, settings, start if given else None, planes=planes)
        for given in (False, True)
    }
    made = gpus(1)
    monkeypatch.setattr(cuda_backend, "FEW_BYTES", 1 << 18)
    fitter = run(1).fitter(FitJob.of_spots(settings, SHAPE, few.dtype))
    kinds = [(slice(40), False), (slice(0), False), (slice(None), False), (slice(30, 70), True)]
    for rows, given in kinds:
        block = Block(few[rows], few[rows], planes)
        columns = fitter.fit(block, None, start[rows] if given else None)
        assert_same(columns, {name: values[rows] for name, values in expected[given].items()})
    # One launch each, as both read one memory, and none for nothing.
    assert made.launches == [3]
    # Of a call without a fitter, in any type.
    typed = few.astype(">i4")
    columns = fit_on(run(1), typed, settings, start, planes)
    assert made.launches == [4]
    assert_same(
        columns, fit_rois_on_host(few.astype(float), None, SHAPE, settings, start, planes=planes)
    )
    made.fail(0, "launch")
    with pytest.warns(BackendFallbackWarning, match="does the rest"):
        columns = fitter.fit(Block(few, few, planes))
    np.testing.assert_array_equal(columns["x"], fit_on(Cpu(2), few, settings, planes=planes)["x"])


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_fits_at_places_give_the_same_rows(gpus, monkeypatch, estimator):
    """The GPU fits what the library cuts out; ROIs without some pixels once more."""
    frame, truth = simulate_movie(1, (60, 64), spots_per_frame=40, photons=2500, seed=5)
    frame = frame.astype(np.uint16)
    frame[0, 11, 11] = 20_000
    places = np.vstack([truth[["y", "x"]], [[11.0, 12.0], [-0.4, 63.2]]])
    noise = NoiseModel(1.0, 0.0, 1.0)
    settings = SETTINGS.changed(
        estimator=estimator, gain=1.0, sigma=1.3, roi_size=SHAPE, noise=noise
    )
    job = FitJob(settings, SHAPE, "u2", 1.3, settings)
    block = Block(frame, frame)

    def expected(places):
        with pytest.MonkeyPatch.context() as patch:
            return fit_on_device(patch, job, block, Positions(places), fit_rois_on_host)[0]

    made = gpus(1)
    monkeypatch.setattr(cuda_backend, "FEW_BYTES", 1 << 20)
    fitter = run(1).fitter(job)
    for count in (3, len(places)):
        columns = fitter.fit(block, Positions(places[:count]))
        assert columns["y"].shape == (count,)
    assert_same(columns, expected(places))
    assert 3 <= made.launches[0] <= 4
    # Pixels may be saturated, or no data; and positions outside.
    frame[0, 20:23, 30:33], frame[0, :, :9] = 65535, 0
    some = np.vstack([places, [(21.0, 31.0), (8.0, 10.0)]])
    columns = fitter.fit(block, Positions(some))
    assert_same(columns, expected(some))
    assert columns["flags"][-2] & Flag.SATURATED
    counted = columns["chi_square"][-1] / columns["reduced_chi_square"][-1] + 5
    assert counted < math.prod(SHAPE) - 9
    there = {name: column.copy() for name, column in columns.items()}
    outside = fitter.fit(block, Positions(np.vstack([some, [(-1.0, 5.0)]])))
    assert outside["roi_y"][-1] == -1
    assert_same({name: column[:-1] for name, column in outside.items()}, there)
    # Larger calls use threads.
    assert cuda_backend.is_few(job, block, Positions(places[:20]))
    monkeypatch.setattr(cuda_backend, "FEW_BYTES", 1000)
    assert not cuda_backend.is_few(job, block, Positions(places[:20]))
    monkeypatch.setattr(cuda_backend, "FEW_BYTES", 1 << 20)
    made.fail(0, "launch")
    with pytest.warns(BackendFallbackWarning, match="does the rest"):
        columns = fitter.fit(block, Positions(places[:3]))
    assert_same(columns, Cpu(2).fit(job, block, Positions(places[:3])))


def test_other_errors_are_raised(gpus, spots):
    made = gpus(2)
    made.fail(1, "empty", 1, ValueError("no"), for_good=False)
    with pytest.raises(ValueError, match="no"):
        fit_on(run(2), spots)


def test_frames_go_to_the_gpu_that_has_fewest(gpus, monkeypatch):
    """The faster one, which is done the sooner, gets more."""
    gpus(2)
    monkeypatch.setattr(transfer, "begin_upload", lambda frames: frames.copy())
    on, frames = backend_of([0, 1]), np.zeros((1, 8, 8), np.uint16)

    def upload(frames):
        return on._uploaded(Block(frames, frames))

    kept = [upload(frames) for _ in range(4)]
    assert sorted(one.device for one in kept) == [0, 0, 1, 1]
    kept = [one for one in kept if one.device == 0]
    kept += [upload(frames) for _ in range(2)]
    assert [one.device for one in kept] == [0, 0, 1, 1]
    made = [upload(frames).device for _ in range(6)]
    assert made.count(0) == made.count(1) == 3


def test_frames_of_a_lost_gpu_go_to_another_one(gpus, spots, monkeypatch):
    made = gpus(2)
    monkeypatch.setattr(transfer, "begin_upload", lambda frames: frames.copy())
    blocks = [Block(spots, spots) for _ in range(2)]
    both = backend_of([0, 1])
    there = [both._uploaded(block).device for block in blocks]
    assert sorted(there) == [0, 1]
    assert [both._uploaded(block).device for block in blocks] == there
    left = backend_of([1])
    assert [left._uploaded(block).device for block in blocks] == [1, 1]
    assert not any(made.launches)
