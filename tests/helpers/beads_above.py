"""Beads above each other, in a table with z in planes as other programs have it."""

from __future__ import annotations

import numpy as np

from napari_spotfit import SpotFits

#: How far the beads move along x from one frame to the next, in how many frames.
STEP, FRAMES = 0.2, 10


def two_heights() -> SpotFits:
    """Return a sharp bead that fades as another, 5 planes above it, appears, and one far away.

    Linked by y and x alone, the first two are one that jumps by half a pixel.
    """
    half = FRAMES // 2
    frame = np.concatenate([np.arange(FRAMES), np.arange(FRAMES)])
    late = np.arange(FRAMES) >= half
    columns = {
        "frame": frame,
        "y": np.repeat([10.0, 40.0], FRAMES),
        "x": np.concatenate([10 + 0.5 * late, np.full(FRAMES, 40.0)]) + STEP * frame,
        "z_px": np.concatenate([np.where(late, 5.0, 0.0), np.full(FRAMES, 2.0)]),
        "stop_condition": np.full(2 * FRAMES, 3, np.uint8),
    }
    errors = np.repeat([0.01, 0.03], FRAMES).astype(np.float32)
    return SpotFits(columns | {"y_stderr": errors, "x_stderr": errors}, ("frame",))
