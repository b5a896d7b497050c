"""Blocks in parallel: in order, as many as workers, and all of them."""

from __future__ import annotations

import multiprocessing
import sys
import threading

import numpy as np
import pytest
from failing_gpu import FailingGpu
from same_fits import assert_same

from napari_spotfit import localize, simulate_movie
from napari_spotfit.engine import threads
from napari_spotfit.engine.backend import Load
from napari_spotfit.localization import plan
from napari_spotfit.localization.chunks import read_ahead, side_by_side


def test_results_come_in_order_and_no_more_than_asked_are_under_way():
    under_way, most, taking = [0], [0], threading.Lock()
    together = threading.Barrier(3)

    def work(item):
        with taking:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        if item < 3:
            together.wait(60)
        with taking:
            under_way[0] -= 1
        return -item

    assert list(side_by_side(work, range(100), 3)) == [-item for item in range(100)]
    assert most[0] == 3


def test_a_slow_worker_does_not_hold_the_others_up():
    """The first block is done last; the others go on meanwhile, up to a limit."""
    go_on, begun = threading.Event(), []

    def work(item):
        begun.append(item)
        if item == 0:
            assert go_on.wait(60)
        elif item == 7:
            go_on.set()
        return item

    assert list(side_by_side(work, range(100), 2)) == list(range(100))
    assert set(begun) == set(range(100))


def test_whoever_waits_for_a_slow_one_takes_no_more_than_a_few():
    held, taken = threading.Event(), []

    def items():
        for item in range(1000):
            taken.append(item)
            yield item

    def work(item):
        if item == 0:
            assert held.wait(60)
        elif item == 8:
            held.set()
        return item

    results = side_by_side(work, items(), 2)
    assert next(results) == 0
    assert len(taken) == 9
    results.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_errors_and_those_who_stop_end_the_rest(workers):
    done = []

    def work(item):
        if item == 5:
            raise ValueError("five")
        done.append(item)
        return item

    with pytest.raises(ValueError, match="five"):
        list(side_by_side(work, range(1000), workers))
    assert len(done) < 30
    results = side_by_side(work, range(4), workers)
    assert next(results) == 0
    results.close()


def test_blocks_side_by_side_share_no_threads_besides(monkeypatch):
    """Threads within blocks that have one core each are in each other's way: 20 % slower."""
    frames, _ = simulate_movie(50, (128, 128), spots_per_frame=40, seed=1)
    movie = np.resize(frames, (2100, 128, 128))
    known = localize(movie[:20], roi_size=9, threads=2).settings
    shared, together = [], threads.together
    monkeypatch.setattr(
        threads, "together", lambda works, stop: (shared.append(works), together(works, stop))
    )
    alone = localize(movie[:700], settings=known)
    assert shared  # too few blocks for two cores: these are shared
    shared.clear()
    fits = localize(movie, settings=known)
    assert not shared
    assert (fits.y[: len(alone)] == alone.y).all()


@pytest.mark.parametrize(
    ("frames", "lazy", "sizes"),
    [(40, False, {8}), (23, False, {2, 1}), (40, True, {2})],
    ids=["long", "short", "lazy"],
)
def test_long_movies_in_memory_keep_a_gpu_busier(monkeypatch, frames, lazy, sizes):
    """Blocks of others would be too few, or too much to read at once; the rows are the same."""
    movie = simulate_movie(frames, shape=(32, 32), spots_per_frame=3, seed=1)[0]
    expected = localize(movie, sigma=1.3, backend="cpu", threads=1)
    settings = expected.settings
    uploaded = []
    load = Load(2, 8 * movie[0].nbytes, 3)

    class Gpu(FailingGpu):
        def detect(self, block, settings):
            uploaded.append(len(block.pixels))
            return super().detect(block, settings)

    backend = Gpu(RuntimeError("never"), 1 << 30, long_movies=load)
    monkeypatch.setattr(plan, "select_backend", lambda *kind: backend)
    image = movie
    if lazy:
        dask = pytest.importorskip("dask.array")
        image = dask.from_array(movie, chunks=(1, 32, 32))
    assert_same(localize(image, settings=settings), expected)
    assert set(uploaded) == sizes
    assert sum(uploaded) == frames


def test_one_item_is_made_ahead_in_another_thread():
    made, asked = [], threading.Semaphore(0)

    def items():
        for item in range(3):
            made.append(threading.get_ident())
            asked.release()
            yield item
        raise ValueError("no more")

    ahead = read_ahead(items())
    assert next(ahead) == 0
    for _ in range(2):  # the second one is made without being asked for
        assert asked.acquire(timeout=60)
    assert threading.get_ident() not in made
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(ahead)
    stopped = read_ahead(iter(range(9)))
    assert next(stopped) == 0
    stopped.close()


def _in_a_fork(found):
    seen = []
    threads.in_pieces(lambda first, last: seen.append(first), 100, 10, 3)
    found.put(sorted(seen))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a safe fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    threads.in_pieces(lambda first, last: None, 100, 10, 3)
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    child = context.Process(target=_in_a_fork, args=(found,))
    child.start()
    assert found.get() == list(range(0, 100, 10))
    child.join()


@pytest.mark.parametrize(
    ("megabytes", "cores", "block"), [(1024, 2, 32), (96, 2, 24), (128, 1, 32), (1 << 16, 64, 4)]
)
def test_blocks_of_few_crowds_are_large_but_leave_each_core_some(megabytes, cores, block):
    found = plan._block_bytes(megabytes << 20, cores, overlap=True)
    assert found == block << 20
    assert (megabytes << 20) // found >= plan._OF_EACH_CORE * cores
    found = plan._block_bytes(megabytes << 20, cores, overlap=True, is_lazy=True)
    assert (megabytes << 20) // found >= plan._SIDE_BY_SIDE * cores
