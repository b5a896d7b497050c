"""All public functions reach the library's fits by the same path."""

from __future__ import annotations

import ast
import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT
from same_fits import assert_same

from napari_spotfit import Camera, Fitter, Settings, fit_at, fit_spots, localize, simulate_movie
from napari_spotfit.engine.cpu import block_fits
from napari_spotfit.engine.fit_job import FitJob

PACKAGE = ROOT / "src" / "napari_spotfit"
#: Largest number of Python frames between a public function and the library's fits.
MOST_FRAMES = 8


def callers(path: Path) -> set[str]:
    """Return the library's fit functions that a module calls."""
    names = {
        node.attr for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
    }  # fmt: skip
    fits = {"spotfit_fit", "spotfit_fit_block", "spotfit_large_write"}
    return names & fits


def entry_points() -> dict[str, set[str]]:
    """Return the modules that call the library's fits, and what they call; tools print them."""
    found = {path.name: callers(path) for path in PACKAGE.rglob("*.py")}
    return {name: functions for name, functions in found.items() if functions}


@contextmanager
def recorded_stacks() -> Iterator[list[list[str]]]:
    """Record the names of the functions that lead to each call of the fits."""
    seen: list[list[str]] = []
    prepare = block_fits.CpuFitter._prepare

    def prepared(self, *given, **named):
        prepare(self, *given, **named)
        work = self._work

        def call(*arguments):
            seen.append([frame.name for frame in traceback.extract_stack()[:-1]])
            return work(*arguments)

        self._work = call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_fits.CpuFitter, "_prepare", prepared)
        yield seen


def frames_to_the_fits() -> dict[str, int]:
    """Return the Python frames between each public function and the fits; tools print them."""
    movie, truth = simulate_movie(2, shape=(48, 48), spots_per_frame=5, seed=1)
    settings = localize(movie, neighbours="exclude", backend="cpu", threads=1).settings
    movie = movie.astype(np.float32)  # what is prepared for others serves no longer
    places = truth[["frame", "y", "x"]].to_numpy()
    calls = {
        "localize": lambda: localize(movie, settings=settings),
        "fit_at": lambda: fit_at(movie, places, settings=settings),
        "fit_spots": lambda: fit_spots(movie[:, :9, :9], backend="cpu", threads=1),
    }
    between = {}
    for name, call in calls.items():
        with recorded_stacks() as stacks:
            call()
        stack = stacks.pop()
        between[name] = len(stack) - 1 - max(i for i, one in enumerate(stack) if one == name)
    return between


def test_two_modules_call_the_fits_of_the_library():
    assert entry_points() == {
        "block_fits.py": {"spotfit_fit_block"},
        "fit_kind.py": {"spotfit_large_write"},
    }


def test_few_frames_lie_between_a_call_and_the_fits():
    between = frames_to_the_fits()
    assert max(between.values()) <= MOST_FRAMES, between


def test_a_job_is_one_for_all_of_its_kind():
    settings = Settings(roi_size=9, sigma=1.3)
    jobs = [FitJob.of_spots(settings, (8, 9), np.dtype("u2")) for _ in range(2)]
    assert jobs[0] is jobs[1]
    assert jobs[0] != FitJob.of_spots(settings, (9, 9), np.dtype("u2"))
    assert jobs[0].by_one_thread().threads == 1


@pytest.mark.parametrize("neighbours", ["exclude", "ignore"])
def test_it_is_explained_which_pixels_are_excluded(neighbours):
    movie, truth = simulate_movie(1, shape=(70, 60), spots_per_frame=30, photons=3000, seed=4)
    frame = movie[0].astype(np.uint16)
    frame[20:23, 30:33] = 65535
    frame[12:60:12, 12:50:12] += 2000
    frame[:, 52:] = 0
    bad = np.zeros(frame.shape, bool)
    bad[40] = True
    places = np.vstack([[(21, 31), (40, 20)], truth[["y", "x"]], [(36, 24)]])
    found = dict.fromkeys(("bad", "saturated", "hot", "padding", "neighbour"), 0)
    with Fitter(9, sigma=1.3, bad_pixels=bad, neighbours=neighbours, backend="cpu") as fitter:
        fits = fitter.fit_at(frame, places).copy()
        for i in np.flatnonzero(fits.valid):
            own = np.vstack([places[i], np.delete(places, i, axis=0)])
            excluded = fitter.explain(frame, own)
            assert excluded.corner == (fits.roi_y[i], fits.roi_x[i])
            masks = {name: getattr(excluded, name) for name in found}
            assert sum(mask.astype(int) for mask in masks.values()).max() <= 1
            left = 81 - int(excluded.pixels.sum())
            assert fits.chi_square[i] / fits.reduced_chi_square[i] == pytest.approx(
                left - fits.settings.fitted_parameters, abs=0.01
            )
            for name, mask in masks.items():
                found[name] += int(mask.sum())
        with pytest.raises(ValueError, match="the spot must lie in the frame"):
            fitter.explain(frame, [(-3.0, 5.0)])
    assert (found.pop("neighbour") > 0) == (neighbours == "exclude")
    assert min(found.values()) > 0, found


def test_a_camera_with_maps_goes_the_same_way():
    movie, truth = simulate_movie(1, shape=(48, 48), spots_per_frame=5, seed=1)
    camera = Camera(np.zeros((48, 48)), 1.0, np.ones((48, 48)))
    with recorded_stacks() as stacks:
        fit_at(movie[0], truth[["y", "x"]], 9, sigma=1.3, camera=camera, backend="cpu")
    assert stacks


def test_positions_outside_of_the_frame_are_nobodys_neighbours():
    frame = np.random.default_rng(1).poisson(100, (32, 32)).astype(np.uint16)
    centers = [[2, 16], [-1, 16], [np.nan, 16], [np.inf, 16], [1e300, 16]]
    with Fitter(roi_size=9, sigma=1.3, backend="cpu") as fitter:
        assert not fitter.explain(frame, centers).pixels.any()
        fits = fitter.fit_at(frame, centers)
        counted = fits.chi_square[0] / fits.reduced_chi_square[0] + 5
        assert counted == pytest.approx(81, rel=1e-5)


def test_pixels_without_a_number_or_a_weight_are_explained():
    frame = np.random.default_rng(1).poisson(100, (32, 32)).astype(np.float32)
    frame[18:20, 18:22] = np.nan
    weights = np.ones(frame.shape)
    weights[21] = 0
    with Fitter(9, sigma=1.3, estimator="wlse", weights=weights, backend="cpu") as fitter:
        bad = fitter.explain(frame, [[20, 20]]).bad
    assert (
        np.argwhere(bad).tolist()
        == np.argwhere((np.isnan(frame) | (weights == 0))[16:25, 16:25]).tolist()
    )


def test_a_fitter_that_two_threads_use_says_so():
    """It keeps memory, which two threads would write to at once."""
    frame = np.random.default_rng(1).poisson(100, (60, 70)).astype(np.uint16)
    places = np.random.default_rng(2).uniform(0, 59, (25, 2))
    begun, go_on = threading.Event(), threading.Event()

    with Fitter(9, sigma=1.3, backend="cpu") as fitter:
        expected = fitter.fit_at(frame, places).copy()
        kept = fitter._frames.fit

        def fit(*given):
            begun.set()
            assert go_on.wait(30)
            return kept(*given)

        fitter._frames.fit = fit
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(fitter.fit_at, frame, places)
            assert begun.wait(30)
            for use in (fitter.fit_at, fitter.explain):
                with pytest.raises(RuntimeError, match="in use by another thread"):
                    use(frame, places)
            go_on.set()
            assert_same(first.result(), expected)
        fitter._frames.fit = kept
        assert_same(fitter.fit_at(frame, places), expected)


def test_what_a_caller_knows_of_pixels_is_not_kept():
    image = np.random.default_rng(1).poisson(100, (64, 64)).astype(np.uint16)
    weights = np.ones(image.shape, np.float32)
    kept = weakref.ref(weights)
    fit_at(image, [[20, 20]], 9, sigma=1.3, estimator="wlse", weights=weights, backend="cpu")
    del weights
    gc.collect()
    assert kept() is None


def test_the_gain_that_is_taken_is_warned_of_by_whatever_comes_first():
    frame = np.random.default_rng(1).poisson(100, (64, 64)).astype(np.uint16)
    with Fitter(9, sigma=1.3, estimator="mle", backend="cpu") as fitter:
        with pytest.warns(UserWarning, match="needs the camera's gain"):
            fitter.explain(frame, [[20, 20]])
        fitter.fit_at(frame, [[20, 20]])
