"""How right errors of first order can be for dim spots: SciPy's fits, in their own standard errors.

Least squares by scipy.optimize of one spot of σ 1.3 px in 9×9 pixels, whose noise is known exactly;
nothing of this package is used. Errors are (JᵀJ)⁻¹ JᵀVJ (JᵀJ)⁻¹, where the fit ended, and at the
truth; fits that would not be good are left out. What error_scatter.py prints of dim spots is
compared with these.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]

_SIGMA, _SIDE, _FITS, _SEED = 1.3, 9, 2500, 1
#: Photons of a spot, those of the background, and whether electrons are multiplied.
_SPOTS = (
    (40, 0.05, False), (80, 0.05, False), (200, 0.05, False), (300, 0.5, False), (1000, 5, False),
    (200, 0.05, True), (600, 1, True),
)  # fmt: skip
#: The read-out noise of the EMCCD, in photons.
_READ = 3 / 25
_Y, _X = np.mgrid[0:_SIDE, 0:_SIDE].astype(float)


def _profile(point: Array) -> Array:
    y, x, sigma = point[:3]
    return np.asarray(np.exp(-((_Y - y) ** 2 + (_X - x) ** 2) / (2 * sigma**2)))


def _model(point: Array) -> Array:
    return np.asarray(point[3] * _profile(point) + point[4])


def _slopes(point: Array) -> Array:
    y, x, sigma, amplitude, _ = point
    profile = _profile(point)
    dy, dx = (_Y - y) / sigma**2, (_X - x) / sigma**2
    light = amplitude * profile
    slopes = [light * dy, light * dx, light * (dy**2 + dx**2) * sigma, profile, np.ones_like(_Y)]
    return np.stack(slopes, -1).reshape(-1, 5)


def _errors(point: Array, excess: float, read: float) -> Array:
    slopes, light = _slopes(point), np.maximum(point[3:], 0)
    variance = excess * (light[0] * _profile(point) + light[1]).ravel() + read
    inverse = np.linalg.inv(slopes.T @ slopes)
    return np.sqrt(np.diag(inverse @ (slopes.T * variance) @ slopes @ inverse))


def spread(photons: float, background: float, emccd: bool) -> tuple[float, Array, Array]:
    """Return the share of good fits, and how far they scatter in both kinds of errors."""
    rng = np.random.default_rng([_SEED, round(photons), emccd])
    excess, read = (2.0, _READ**2) if emccd else (1.0, 0.0)
    own, true = [], []
    for _ in range(_FITS):
        middle = (_SIDE - 1) / 2 + rng.uniform(-0.5, 0.5, 2)
        truth = np.array([*middle, _SIGMA, photons / (2 * math.pi * _SIGMA**2), background])
        counts = rng.poisson(_model(truth)).astype(float)
        if emccd:
            counts = rng.gamma(np.maximum(counts, 1)) * (counts > 0)
            counts += rng.normal(0, _READ, counts.shape)
        point = least_squares(
            lambda p, counts=counts: (_model(p) - counts).ravel(), truth, _slopes, method="lm"
        ).x
        point[2] = abs(point[2])
        moved = math.hypot(*(point[:2] - truth[:2]))
        if moved > 1.5 * _SIGMA or not 0.5 < point[2] / _SIGMA < 2:
            continue
        error = _errors(point, excess, read)
        if point[3] > 3 * error[3]:
            own.append((point - truth) / error)
            true.append((point - truth) / _errors(truth, excess, read))
    return len(own) / _FITS, np.std(own, axis=0), np.std(true, axis=0)


def main() -> None:
    names = "".join(f"{name:>7}" for name in ("y", "x", "σ", "ampl.", "backg."))
    print(f"{'photons, background':>26}{'good':>6}  own:{names}  truth:{names}")
    for photons, background, emccd in _SPOTS:
        good, own, true = spread(photons, background, emccd)
        what = f"{photons}, {background}{' EMCCD' if emccd else ''}"
        numbers = ["".join(f"{number:7.2f}" for number in each) for each in (own, true)]
        print(f"{what:>26}{good:>6.0%}{numbers[0]:>41}{numbers[1]:>43}", flush=True)


if __name__ == "__main__":
    main()
