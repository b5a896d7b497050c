"""Spots for files of other programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_spotfit import Settings, SpotFits

#: Pixels that are higher than wide, so that y is not taken for x.
SIZE = (120.0, 100.0)


def localised(count: int = 40, seed: int = 0, **more: Any) -> SpotFits:
    """Return photons at known places."""
    rng = np.random.default_rng(seed)
    columns = {
        "frame": np.sort(rng.integers(0, 9, count)),
        "y": rng.uniform(0, 60, count),
        "x": rng.uniform(0, 80, count),
        "sigma": rng.uniform(1, 2, count).astype(np.float32),
        "amplitude": rng.uniform(50, 500, count).astype(np.float32),
        "background": rng.uniform(1, 20, count).astype(np.float32),
        "photons": rng.uniform(100, 4000, count).astype(np.float32),
        "iterations": rng.integers(1, 20, count).astype(np.uint16),
        "stop_condition": rng.integers(0, 5, count).astype(np.uint8),
        "x_stderr": rng.uniform(0.01, 0.2, count).astype(np.float32),
        "y_stderr": rng.uniform(0.01, 0.2, count).astype(np.float32),
    }
    return SpotFits(columns | more, ("frame",), Settings(gain=1.0))
