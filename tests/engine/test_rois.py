"""ROIs around spots, and scattered rows, against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from napari_spotfit import Settings
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu.block_fits import CpuFitter
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.positions import scatter_rows
from napari_spotfit.models.profiles import MODELS

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=100, deadline=None)
@given(
    SEEDS,
    st.integers(1, 50),
    st.integers(4, 30),
    st.integers(4, 30),
    st.sampled_from(sorted(MODELS)),
)
def test_rois_are_around_their_spots_and_within_their_frames(seed, count, rows, columns, model):
    rng = np.random.default_rng(seed)
    size = np.array([rows, columns]) + rng.integers(0, 40, 2)
    frame = np.sort(rng.integers(0, 9, count))
    places = rng.uniform(-0.5, size - 0.5, (count, 2))
    halves = rng.random((count, 2)) < 0.5  # halfway between pixels
    places[halves] = np.floor(places[halves]) + 0.5
    frames = np.zeros((9, *size), np.uint8)
    job = FitJob(Settings(model=model), (rows, columns), "u1")
    fitter = CpuFitter(load(), job)
    fitter.explain(Block(frames, frames), Positions(places, frame))
    first = np.rint(places).astype(int) - np.array([rows, columns]) // 2
    first = np.clip(first, 0, size - [rows, columns])
    np.testing.assert_array_equal(fitter._corners, np.column_stack([frame, first]))
    start, shape = fitter._start, len(MODELS[model].shape)
    np.testing.assert_array_equal(start[:, :2], (places - first).astype(np.float32))
    assert start.shape == (count, shape)
    assert np.isnan(start[:, 2:]).all()


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(0, 50))
def test_rows_find_back(seed, count):
    rng = np.random.default_rng(seed)
    second = rng.random(count) < rng.random()
    table = {
        kind: rng.integers(0, 100, count).astype(kind) for kind in ("u1", "u2", "f4", "f8", "i8")
    }
    back = {name: np.empty_like(column) for name, column in table.items()}
    for rows in map(np.flatnonzero, (~second, second)):
        scatter_rows({name: column[rows] for name, column in table.items()}, rows, back)
    for name, column in table.items():
        np.testing.assert_array_equal(back[name], column)
