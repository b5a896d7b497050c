"""Functions that are run while compiled code is made."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
from numba import njit

from napari_spotfit.engine.cpu.lanes import WIDTH, load, store
from napari_spotfit.engine.cpu.unroll import unrolled
from napari_spotfit.engine.cpu.vectors import Constant


@dataclass(frozen=True)
class Degree(Constant):
    degree: int


@unrolled
def _powers(kind, rows, row, scale):
    x = rows[row]
    return tuple(scale * x**k for k in range(kind.degree + 1))


@unrolled
def _sum(values):
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


@njit
def _geometric(kind, a, out, scale):
    for row in range(a.size // WIDTH):
        store(out, row, _sum(_powers(kind, a, row, scale)))


def test_one_text_serves_any_number_of_values():
    a = np.linspace(0.1, 0.9, 2 * WIDTH).astype(np.float32)
    for degree in (0, 1, 5):
        out = np.empty_like(a)
        _geometric(Degree(degree), a, out, 2.0)
        expected = 2 * sum(a.astype(float) ** k for k in range(degree + 1))
        np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert len(_geometric.signatures) == 3


@unrolled
def _chosen(low, value, row, flag):
    inside = (value > low) & ~(value >= 3)
    return (inside | flag).select(value, -1), row * 2 + 1, True


@njit
def _choose(a, out, flag):
    value, index, yes = _chosen(1.0, load(a, 0), 3, flag)
    store(out, 0, value)
    return index if yes else 0


def test_masks_numbers_and_indices():
    a, out = np.arange(WIDTH, dtype=np.float32), np.empty(WIDTH, np.float32)
    assert _choose(a, out, False) == 7
    np.testing.assert_array_equal(out, np.where(a == 2, 2, -1))
    _choose(a, out, True)
    np.testing.assert_array_equal(out, a)


def test_compiled_fits_are_found_on_disk_by_the_next_process(tmp_path):
    script = textwrap.dedent("""
        import numpy as np
        from napari_spotfit import fit_spots, simulate_spots
        from napari_spotfit.engine.cpu import fit
        spots, _ = simulate_spots(20, 7, photons=1000, seed=1)
        fit_spots(spots, model="gaussian_elliptical", errors=False, backend="cpu")
        stats = fit._fit_tiles.stats
        print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
    """)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    answers = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert answers == [["0", "1"], ["1", "0"]]
