"""Work in pieces by threads: all of it is done once, and errors are raised."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import CancelledError
from contextvars import copy_context
from threading import Event

import pytest

from napari_spotfit.engine import threads
from napari_spotfit.workers import Workers, is_cancelled


@pytest.mark.parametrize("count", [None, 1, 3])
@pytest.mark.parametrize("total", [0, 1, 10, 101])
def test_every_piece_is_worked_on_once(total, count):
    seen = []
    threads.in_pieces(lambda first, last: seen.extend(range(first, last)), total, 10, count)
    assert sorted(seen) == list(range(total))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_errors_reach_the_caller_and_stop_the_rest(error):
    begun = []

    def fail(first, last):
        begun.append(first)
        if first == 20:
            raise error("piece 20")

    with pytest.raises(error, match="piece 20"):
        threads.in_pieces(fail, 1_000_000, 10, 4)
    assert len(begun) < 100_000


@pytest.mark.parametrize("total", [1, 100])
def test_long_work_is_stopped_when_it_is_cancelled(total):
    begun, ended, cancelled = [], Event(), Event()

    def work(first, last):
        begun.append(first)
        cancelled.set()
        assert ended.wait(60)

    def run():
        is_cancelled.set(cancelled.is_set)
        # Work of a pool that others share is cancelled with what it is for.
        with Workers(1) as workers:
            workers.submit(threads.in_pieces, work, total, 10, 2, ended.set).result()

    with pytest.raises(CancelledError):
        copy_context().run(run)
    assert len(begun) <= 2
    assert not is_cancelled.get()()


#: Fits in a process of its own that a signal interrupts: before it has fitted anything else, and
#: after some of the time that all of them take.
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import napari_spotfit as spotfit

# A shell that runs tests in the background lets them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
first, _ = spotfit.simulate_spots(500, 31, photons=3000, background=3, seed=1)
many = np.tile(first.astype(np.uint16), (200, 1, 1))
signalled = []
KIND = {"model": "gaussian_rotated", "estimator": "mle"}

def interrupt():
    signalled.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)

def seconds_to_stop(after):
    try:
        threading.Timer(after, interrupt).start()
        spotfit.fit_spots(many, **KIND, backend="cpu", threads=2)
    except KeyboardInterrupt:
        return time.perf_counter() - signalled[-1]
    raise SystemExit("was not interrupted")

waits = [seconds_to_stop(0.0)]
spotfit.fit_spots(many[:10], **KIND, backend="cpu", threads=2)  # imports what it needs
began = time.perf_counter()
few = spotfit.fit_spots(many[:4000], **KIND, backend="cpu", threads=2)
whole = (time.perf_counter() - began) * len(many) / 4000
waits += [seconds_to_stop(share * whole) for share in (0.1, 0.4)]
assert few.converged.mean() > 0.95, few
assert max(waits) < max(0.2 * whole, 0.5), (waits, whole)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
def test_an_interrupted_fit_stops_soon_and_others_go_on():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr


#: What goes on after the main thread has ended: a thread that is no daemon, and a call at exit.
AFTER_THE_END = """
import atexit, sys, threading
from pathlib import Path
import numpy as np
import napari_spotfit as spotfit

folder = Path(sys.argv[1])
movie, _ = spotfit.simulate_movie(40, shape=(300, 300), spots_per_frame=40, seed=1)
np.save(folder / "movie.npy", movie)
known = {"sigma": 1.3, "threads": 2, "backend": "cpu"}
expected = spotfit.localize(movie, **known)
main = threading.main_thread()

def localize(name):
    own = folder / name
    own.mkdir()
    found = [
        spotfit.localize(movie, **known),
        spotfit.localize(folder / "movie.npy", **known),
    ]
    parts = spotfit.localize_iter(folder / "movie.npy", resume=own / "resume", **known)
    assert sum(map(len, parts)) == len(expected)
    spotfit.localize_to_folder(folder / "movie.npy", own / "parts", **known)
    for fits in found:
        np.testing.assert_array_equal(fits.points(), expected.points())
    large = spotfit.fit_at(movie[0], [[150, 150]], 299, **known)
    assert len(large) == 1
    print(name, flush=True)

def wait():
    main.join()
    localize("thread")

threading.Thread(target=wait).start()
atexit.register(localize, "exit")
"""


def test_fits_are_made_after_the_main_thread_has_ended(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_END, str(tmp_path)],
        capture_output=True, encoding="utf-8", timeout=300,
    )  # fmt: skip
    assert done.stdout.split() == ["thread", "exit"], done.stderr
    assert done.returncode == 0, done.stderr
