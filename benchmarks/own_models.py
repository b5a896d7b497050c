"""Models that are built in, written as expressions, and images with one large spot."""

from __future__ import annotations

import numpy as np

from napari_spotfit import Profile, simulate_spots

ROUND = Profile.from_expression(
    "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))", start={"s": "sigma"}, name="round"
)
ROTATED = Profile.from_expression(
    "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2 / (2*a**2)"
    " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2 / (2*b**2))",
    start={"a": "1.1*sigma", "b": "0.9*sigma", "t": 0.3},
    name="rotated",
)


def large_spot(side: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return an image (1, side, side) of one turned Gaussian with shot noise, and y and x."""
    spots, truth = simulate_spots(
        1, side, photons=3e4 * (side / 10) ** 2, background=50.0, sigma=side / 8,
        sigma_y=side / 12, angle=20.0, jitter=side / 20, seed=side,
    )  # fmt: skip
    return spots.astype(dtype), truth[["y", "x"]].to_numpy()[0]
