"""The backend that runs the fits, and messages about it."""

from __future__ import annotations

import numpy as np
import pytest
from failing_gpu import FailingGpu
from scenes import estimated

from napari_spotfit import (
    BackendUnavailableError,
    Settings,
    __version__,
    fit_at,
    fit_spots,
    localize,
    simulate_movie,
)
from napari_spotfit.engine import select, threads
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu.library import INSTRUCTION_SET
from napari_spotfit.engine.cuda import devices
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.select import describe, recorded, select_backend

CPU = Settings(backend="cpu", threads=3)
AUTO = CPU.changed(backend="auto")
CUDA = CPU.changed(backend="cuda")


@pytest.mark.parametrize(
    ("free", "cores", "workers"),
    [(100, 32, 24), (100, 12, 12), (16, 32, 10), (100, 8, None), (4, 32, None)],
)
def test_long_movies_take_more_of_a_gpu_where_there_is_more(monkeypatch, free, cores, workers):
    monkeypatch.setattr(devices, "free_memory", lambda number: free << 30)
    monkeypatch.setattr(threads, "available", lambda: cores)
    load = select._long_movies((devices.Gpu(0, "NVIDIA Test", (9, 0)),))
    assert (load and load.workers) == workers


@pytest.fixture
def no_gpu(monkeypatch):
    """Hide all GPUs, as users do."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_cpu():
    backend = select_backend(CPU)
    assert backend.name == backend.ran_on() == "CPU (3 threads)"
    assert (backend.load.frames, backend.load.workers) == (3, 1)
    assert select_backend(CPU.changed(threads=1)).name == "CPU (1 thread)"


def test_cuda_without_a_gpu_is_an_error(no_gpu):
    with pytest.raises(BackendUnavailableError, match="CUDA_VISIBLE_DEVICES='' hides every GPU"):
        select_backend(CUDA)
    with pytest.raises(BackendUnavailableError):
        select_backend(CUDA, use_gpu=False)
    with pytest.raises(BackendUnavailableError):
        localize(np.zeros((9, 9)), sigma=1.3, settings=CUDA)


def test_auto_without_a_gpu_is_the_cpu(no_gpu):
    assert select_backend(AUTO).name == "CPU (3 threads)"
    assert select_backend(AUTO, use_gpu=True).name == "CPU (3 threads)"


@pytest.mark.parametrize("which", ["one", "all"])
def test_what_is_said_without_a_gpu(no_gpu, which):
    described = describe(AUTO.changed(devices=which))
    assert str(described) == described.name == "CPU (3 threads)"
    assert "CUDA_VISIBLE_DEVICES" in described.reason
    assert described.gpus == 0
    described = describe(CUDA.changed(devices=which))
    assert described.name == "no GPU"
    assert "CUDA_VISIBLE_DEVICES" in described.reason


def test_no_reason_is_given_for_a_cpu_that_was_asked_for(no_gpu):
    described = describe(CPU)
    assert (described.name, described.reason, described.gpus) == ("CPU (3 threads)", "", 0)


def test_the_library_is_described(no_gpu, instruction_set):
    of_library = f"library {__version__}, {instruction_set}"
    assert describe(CPU).library == describe(AUTO).library == of_library
    assert describe(CUDA).library == ""


def test_a_library_that_cannot_be_used_says_why(monkeypatch):
    monkeypatch.setenv(INSTRUCTION_SET, "abacus")
    assert "NAPARI_SPOTFIT_INSTRUCTION_SET=abacus: this machine has" in describe(CPU).library


def test_results_settings_record_what_was_chosen(no_gpu):
    backend = select_backend(AUTO)
    assert recorded(AUTO, backend) == CPU
    assert recorded(AUTO, FailingGpu(ValueError())) == CUDA
    # What was asked for stays, also where a GPU has failed and the CPU has done the rest.
    assert recorded(CUDA, backend) is CUDA
    movie, _ = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
    fits = localize(movie, roi_size=9, threads=3)
    at = fit_at(movie, fits.points(), 9)
    spots = fit_spots(movie[:, :9, :9])
    assert fits.settings.backend == at.settings.backend == spots.settings.backend == "cpu"
    assert fits.settings == localize(movie, settings=fits.settings).settings


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [AUTO, CUDA])
def test_the_gpu_is_taken(gpu, settings):
    (first,) = devices.usable("one")
    backend = select_backend(settings, use_gpu=True)
    assert backend.name == backend.ran_on() == first.name
    assert describe(settings) == (first.name, "", devices.count(), "")
    every = select_backend(settings.changed(devices="all"))
    assert every.name == devices.names(devices.usable("all"))
    assert every.load.workers >= max(backend.load.workers, 3 * len(devices.usable("all")))


@pytest.mark.gpu
def test_a_few_fits_stay_on_the_cpu(gpu):
    assert select_backend(AUTO, use_gpu=False).name == "CPU (3 threads)"
    assert select_backend(CUDA, use_gpu=False).name != "CPU (3 threads)"


@pytest.mark.gpu
def test_all_gpus_find_and_fit_the_same(gpu):
    frames, _ = simulate_movie(4, shape=(64, 64), spots_per_frame=10, seed=1)
    settings = estimated(frames, CUDA.changed(devices="all", sigma=1.3))
    backend, cpu = select_backend(settings), select_backend(CPU)
    expected = cpu.detect(Block(frames, frames), settings)
    yx = np.column_stack([expected.y, expected.x]).astype(float)
    positions = Positions(yx, expected.frame)
    job = FitJob.of_spots(settings.changed(roi_size=9), (9, 9), frames.dtype)
    fitted = cpu.fit(job, Block(frames, frames), positions)
    for _ in range(2 * gpu):
        block = Block(frames, frames)
        found = backend.detect(block, settings)
        np.testing.assert_array_equal(found.y, expected.y)
        np.testing.assert_array_equal(found.x, expected.x)
        columns = backend.fit(job, block, positions)
        np.testing.assert_allclose(columns["x"], fitted["x"], atol=1e-2)
    assert backend.ran_on() == backend.name
