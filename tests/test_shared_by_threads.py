"""Each public class documents its use by threads, and complies with it."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Callable

import numpy as np
import pytest

import napari_spotfit as spotfit
from napari_spotfit.images.files.image_file import ImageFile

PUBLIC = [getattr(spotfit, name) for name in spotfit.__all__]
CLASSES = [
    one
    for one in (*PUBLIC, ImageFile)
    if isinstance(one, type) and not issubclass(one, (Exception, enum.Enum))
]
UNCHANGED = "it does not change, so that any number may use one"


def side_by_side(count: int, work: Callable[[int], object]) -> list[object]:
    """Run a function in several threads at once; return the results, or raise an error."""
    begin, found = threading.Barrier(count), [None] * count

    def run(number: int) -> None:
        begin.wait()
        try:
            found[number] = work(number)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_says_it(kind):
    assert "Threads: " in kind.__doc__


@pytest.mark.parametrize(
    "kind", [one for one in CLASSES if UNCHANGED in one.__doc__], ids=lambda kind: kind.__name__
)
def test_what_is_shared_by_any_number_does_not_change(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen


def test_settings_do_not_change_from_within():
    settings = spotfit.Settings(bounds={"sigma": (1, 2)}, fixed={"x": None})
    for name in ("bounds", "fixed"):
        with pytest.raises(TypeError):
            getattr(settings, name)["sigma"] = (3, 4)


def test_fits_settings_and_camera_are_shared():
    spots, _ = spotfit.simulate_spots(4000, photons=2000, seed=1)
    settings = spotfit.Settings(roi_size=spots.shape[1], gain=1.0, threads=1, backend="cpu")
    camera = spotfit.Camera(offset=np.zeros(spots.shape[1:]))
    fits = side_by_side(8, lambda _: spotfit.fit_spots(spots, settings=settings, camera=camera))
    for one in fits[1:]:
        assert np.array_equal(one.x, fits[0].x, equal_nan=True)
    flags = side_by_side(8, lambda number: fits[0][number::8].flags)
    assert all(np.array_equal(one, fits[0].flags[n::8]) for n, one in enumerate(flags))
    with pytest.raises(AttributeError, match="fits are immutable"):
        fits[0].x = 0


def test_the_next_call_of_any_thread_overwrites_what_a_fitter_has_returned():
    spots, _ = spotfit.simulate_spots(200, photons=2000, seed=1)
    with spotfit.Fitter(roi_size=spots.shape[1], sigma=1.3, backend="cpu") as fitter:
        mine = fitter.fit(spots[:100])
        kept = mine.copy()
        (theirs,) = side_by_side(1, lambda _: fitter.fit(spots[100:]))
        assert np.array_equal(mine.x, theirs.x)
        assert not np.array_equal(kept.x, theirs.x)


def test_a_fitter_that_is_in_use_says_so():
    spots, _ = spotfit.simulate_spots(60_000, photons=2000, seed=1)
    with spotfit.Fitter(roi_size=spots.shape[1], sigma=1.3, backend="cpu", threads=1) as fitter:
        fitter.fit(spots[:10])
        ends = []

        def fit(number):
            try:
                ends.append(len(fitter.fit(spots)))
            except RuntimeError as error:
                ends.append(str(error))

        side_by_side(6, fit)
    assert len(spots) in ends
    assert {one for one in ends if one != len(spots)} <= {
        "this Fitter is in use by another thread. A Fitter is for one thread at a time; make one "
        "for each"
    }


def test_any_number_of_threads_put_and_take_frames():
    queue, taken = spotfit.FrameQueue(size=16), []

    def work(number):
        for place in range(500):
            if number % 2:
                queue.put(np.array([number, place]))
            elif (found := queue.take(timeout=0.001)) is not None:
                taken.append(tuple(found[0]))

    side_by_side(8, work)
    while (found := queue.take(timeout=0)) is not None:
        taken.append(tuple(found[0]))
    assert len(taken) + queue.dropped == 4 * 500
    assert len(set(taken)) == len(taken)


def test_any_thread_asks_a_session():
    scope, queue = spotfit.SimulatedMicroscope(4, (96, 96), drift=(0.0, 0.1)), spotfit.FrameQueue()
    for at, frame in scope.frames(rate=10, count=60):
        queue.put(frame, at)
    controller = spotfit.Controller(scope.stage, spotfit.StageCalibration.of_pixel_size(0.1))
    session = spotfit.TrackingSession(
        queue, spotfit.Tracker(scope.fiducials), controller=controller
    )
    session.start()

    def ask(number):
        for place in range(50):
            snapshot = session.snapshot()
            assert len(snapshot.time) == len(snapshot.y) == len(snapshot.x)
            session.mark(f"{number}-{place}")
            controller.arm() if place % 2 else controller.disarm()

    side_by_side(4, ask)
    session.finish()
    session.stop()
    assert session.snapshot().frames == 60
