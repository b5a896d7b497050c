"""Fits of spots in volumes, for what follows from a model's axes alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_spotfit import Settings, SpotFits
from napari_spotfit.models.profiles import GAUSSIAN_3D


def fits_in_volumes(count: int = 5, seed: int = 0, **options: Any) -> SpotFits:
    """Return fits at random positions."""
    rng = np.random.default_rng(seed)
    columns = {"frame": np.sort(rng.integers(0, 4, count))}
    columns |= {axis: rng.uniform(0, 9, count) for axis in GAUSSIAN_3D.axes}
    names = ("sigma", "sigma_z", "photons", "z_stderr", "y_stderr", "x_stderr")
    columns |= {name: rng.uniform(1, 2, count).astype(np.float32) for name in names}
    columns["stop_condition"] = np.full(count, 2, np.uint8)
    columns |= {
        f"roi_{axis}": rng.integers(0, 9, count).astype(np.int32) for axis in GAUSSIAN_3D.axes
    }
    columns["flags"] = np.zeros(count, np.uint32)
    return SpotFits(columns, ("frame",), Settings(model="gaussian_3d", **options))
